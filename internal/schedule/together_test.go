package schedule

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"
)

// All options at once: what fires is what a plain walk over the bare schedule leaves that lies within start and end and is left out
// by none of the calendars, judged by the civil clock; asked from anywhere in between it is the same; and jitter starts each before
// the next one that is left.
func TestOptionsTogetherAgainstAPlainWalk(t *testing.T) {
	zones := []string{"Asia/Shanghai", "America/New_York", "Europe/Berlin", "Pacific/Apia", "America/Sao_Paulo", "Asia/Kathmandu", "Australia/Lord_Howe", "Pacific/Chatham", "Africa/Casablanca", "America/Santiago"}
	rapid.Check(t, func(t *rapid.T) {
		year := rapid.IntRange(2009, 2030).Draw(t, "year")
		begin := time.Date(year, time.Month(rapid.IntRange(1, 12).Draw(t, "month")), rapid.IntRange(1, 28).Draw(t, "day"), rapid.IntRange(0, 23).Draw(t, "hour"), 0, 0, 0, time.UTC)
		bare := rapid.SampledFrom([]Spec{
			{Expr: "0 0/20 * * * ?"},
			{Expr: "0 30 1,2,3,23 * * ?"},
			{Expr: "0 0 0 * * ?"},
			{Expr: "0 15 2 ? * MON-FRI"},
			{Expr: "0 0 1 L * ?"},
			{Kind: FixedRate, Every: Duration(7 * time.Hour), Anchor: &begin},
			{Kind: FixedRate, Every: Duration(90*time.Minute + 7*time.Second)},
		}).Draw(t, "bare")
		bare.Zone = rapid.SampledFrom(zones).Draw(t, "zone")
		if bare.Expr != "" {
			bare.ClockChange = rapid.SampledFrom([]string{ClockOnce, ClockSkip, ClockBoth, ClockQuartz}).Draw(t, "clock change")
		} else if bare.Anchor == nil {
			anchor := begin.Add(-time.Hour)
			bare.Anchor = &anchor // without one it would begin at its start
		}
		plain, err := Compile(bare)
		require.NoError(t, err)

		spec := bare
		if rapid.Bool().Draw(t, "has a start") {
			start := begin.Add(time.Duration(rapid.Int64Range(-48*3600*1000, 30*24*3600*1000).Draw(t, "start")) * time.Millisecond)
			spec.Start = &start
		}
		if rapid.Bool().Draw(t, "has an end") {
			end := begin.Add(time.Duration(rapid.Int64Range(31*24*3600*1000, 90*24*3600*1000).Draw(t, "end")) * time.Millisecond)
			if rapid.Bool().Draw(t, "ends at a fire") {
				if due, ok := plain.Next(end); ok {
					end = due
				}
			}
			spec.End = &end
		}
		spec.Jitter = Duration(rapid.Int64Range(0, 3*3600*1000).Draw(t, "jitter")) * Duration(time.Millisecond)
		var outs []func(time.Time) bool
		var calendars []Calendar
		for range rapid.IntRange(0, 2).Draw(t, "calendars") {
			c := Calendar{Zone: rapid.SampledFrom(zones).Draw(t, "of calendar")}
			loc, err := ParseZone(c.Zone)
			require.NoError(t, err)
			days := map[string]bool{}
			for range rapid.IntRange(0, 8).Draw(t, "dates") {
				d := begin.AddDate(0, 0, rapid.IntRange(-2, 40).Draw(t, "date")).Format("2006-01-02")
				days[d] = true
				c.Dates = append(c.Dates, d)
			}
			weekday := time.Weekday(rapid.IntRange(-1, 6).Draw(t, "weekday"))
			if weekday >= 0 {
				c.Weekdays = []string{weekdayNames[weekday][:3]}
			}
			from := rapid.IntRange(-1, 22).Draw(t, "from")
			if from >= 0 {
				c.Times = []TimeRange{{time.Date(2000, 1, 1, from, 0, 0, 0, time.UTC).Format("15:04"), time.Date(2000, 1, 1, from+1, 0, 0, 0, time.UTC).Format("15:04")}}
			}
			calendars = append(calendars, c)
			outs = append(outs, func(at time.Time) bool {
				local := at.In(loc)
				return days[local.Format("2006-01-02")] || local.Weekday() == weekday || from >= 0 && local.Hour() == from
			})
		}
		s, err := Compile(with(spec, calendars...))
		require.NoError(t, err)

		// The walk.
		var want []time.Time
		ended := false
		at := begin.Add(-72 * time.Hour)
		for n := 0; len(want) < 40 && n < 500; n++ { // what leaves nothing for so long is as good as never
			due, ok := plain.Next(at)
			require.True(t, ok)
			at = due
			if ended = spec.End != nil && due.After(*spec.End); ended {
				break
			}
			left := spec.Start == nil || !due.Before(*spec.Start)
			for _, out := range outs {
				left = left && !out(due)
			}
			if left {
				want, n = append(want, due), 0
			}
		}
		at = begin.Add(-72 * time.Hour)
		job, no := rapid.Int64Range(1, 1<<40).Draw(t, "job"), rapid.IntRange(1, 20).Draw(t, "no")
		for i, due := range want {
			got, ok := s.Next(at)
			require.True(t, ok, "fire %d is %s", i, due)
			require.Equal(t, due, got, "fire %d", i)
			between := at.Add(time.Duration(rapid.Int64Range(0, due.Sub(at).Nanoseconds()-1).Draw(t, "between")))
			again, ok := s.Next(between)
			require.True(t, ok)
			require.Equal(t, due, again, "from %s", between)
			start := s.Start(job, no, due)
			require.False(t, start.Before(due))
			require.LessOrEqual(t, start.Sub(due), time.Duration(spec.Jitter))
			if i+1 < len(want) {
				require.True(t, start.Before(want[i+1]), "%s starts at %s, the next is due at %s", due, start, want[i+1])
			}
			at = due
		}
		if ended {
			got, ok := s.Next(at)
			require.False(t, ok, "%s is after the end", got)
		}
	})
}
