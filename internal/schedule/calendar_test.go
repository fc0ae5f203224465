package schedule

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"
)

// with gives a spec calendars as a store would.
func with(spec Spec, list ...Calendar) Spec {
	for i := range list {
		if list[i].Name == "" {
			list[i].Name = "c" + string(rune('1'+i))
		}
		spec.Calendars = append(spec.Calendars, list[i].Name)
	}
	spec.Excluded = list
	return spec
}

func fires(t *testing.T, spec Spec, from string, n int) []string {
	t.Helper()
	s, err := Compile(spec)
	require.NoError(t, err)
	at := moment(t, from)
	var out []string
	for range n {
		next, ok := s.Next(at)
		if !ok {
			break
		}
		out = append(out, next.In(s.Zone()).Format("2006-01-02 15:04"))
		at = next
	}
	return out
}

func TestWhatACalendarLeavesOut(t *testing.T) {
	daily := Spec{Expr: "0 0 8 * * ?"}
	for name, c := range map[string]struct {
		spec Spec
		from string
		want []string
	}{
		"a date":                  {with(daily, Calendar{Dates: []string{"2026-10-01"}}), "2026-09-30T12:00:00Z", []string{"2026-10-02 08:00", "2026-10-03 08:00"}},
		"a date of each year":     {with(daily, Calendar{Dates: []string{"01-01"}}), "2026-12-31T12:00:00Z", []string{"2027-01-02 08:00"}},
		"the leap day":            {with(daily, Calendar{Dates: []string{"02-29"}}), "2028-02-28T12:00:00Z", []string{"2028-03-01 08:00"}},
		"a range":                 {with(daily, Calendar{Ranges: []DateRange{{"2026-10-01", "2026-10-07"}}}), "2026-09-29T12:00:00Z", []string{"2026-09-30 08:00", "2026-10-08 08:00"}},
		"a range over new year":   {with(daily, Calendar{Ranges: []DateRange{{"12-24", "01-02"}}}), "2026-12-22T12:00:00Z", []string{"2026-12-23 08:00", "2027-01-03 08:00"}},
		"weekdays":                {with(daily, Calendar{Weekdays: []string{"SAT", "sunday"}}), "2026-11-27T12:00:00Z", []string{"2026-11-30 08:00"}},
		"hours, end excluded":     {with(Spec{Expr: "0 0 * * * ?"}, Calendar{Times: []TimeRange{{"09:00", "17:00"}}}), "2026-11-30T00:00:00Z", []string{"2026-11-30 17:00", "2026-11-30 18:00"}},
		"hours over midnight":     {with(Spec{Expr: "0 0 * * * ?"}, Calendar{Times: []TimeRange{{"22:00", "06:00"}}}), "2026-11-30T13:00:00Z", []string{"2026-12-01 06:00"}},
		"a period":                {with(Spec{Expr: "0 0 * * * ?"}, Calendar{Periods: []Period{{moment(t, "2026-11-30T01:00:00Z"), moment(t, "2026-11-30T03:00:00Z")}}}), "2026-11-30T00:30:00Z", []string{"2026-11-30 11:00"}},
		"another zone's day":      {with(daily, Calendar{Zone: "America/New_York", Dates: []string{"2026-11-26"}}), "2026-11-26T12:00:00Z", []string{"2026-11-28 08:00"}},
		"any of two":              {with(daily, Calendar{Dates: []string{"2026-10-01"}}, Calendar{Dates: []string{"2026-10-02"}}), "2026-09-30T12:00:00Z", []string{"2026-10-03 08:00"}},
		"a beat skips the day":    {with(Spec{Expr: "* * * * * ?"}, Calendar{Dates: []string{"2026-10-01"}}), "2026-09-30T15:59:59Z", []string{"2026-10-02 00:00"}},
		"a fixed rate, its grid":  {with(Spec{Kind: FixedRate, Every: Duration(7 * time.Hour)}, Calendar{Dates: []string{"1970-01-01"}, Zone: "UTC"}), "1970-01-01T00:00:00Z", []string{"1970-01-02 12:00"}},
		"bounded by its end":      {with(Spec{Expr: "0 0 8 * * ?", End: at(1790856000)}, Calendar{Dates: []string{"2026-10-01"}}), "2026-09-30T12:00:00Z", nil},
		"nothing when not spoken": {with(daily, Calendar{}), "2026-09-30T12:00:00Z", []string{"2026-10-01 08:00"}},
	} {
		t.Run(name, func(t *testing.T) {
			require.Equal(t, c.want, fires(t, c.spec, c.from, max(len(c.want), 1)))
		})
	}
}

func TestAFixedDelayWaitsForTheEndOfTheCalendar(t *testing.T) {
	s, err := Compile(with(Spec{Kind: FixedDelay, Every: Duration(time.Hour)}, Calendar{Dates: []string{"2026-10-01"}, Times: []TimeRange{{"00:00", "06:00"}}}))
	require.NoError(t, err)
	due, ok := s.AfterRun(moment(t, "2026-09-30T15:30:00Z"))
	require.True(t, ok)
	require.Equal(t, "2026-10-01T22:00:00Z", due.Format(time.RFC3339), "06:00 of the day after")
	due, ok = s.AfterRun(moment(t, "2026-09-29T04:00:00Z"))
	require.True(t, ok)
	require.Equal(t, "2026-09-29T05:00:00Z", due.Format(time.RFC3339))
}

// Next with calendars is what a plain walk over all fires leaves, judged by the civil clock, through gaps and
// overlaps of both zones.
func TestCalendarsAgainstAPlainWalk(t *testing.T) {
	zones := []string{"Asia/Shanghai", "America/New_York", "Europe/Berlin", "Pacific/Apia", "America/Sao_Paulo", "Asia/Beirut", "Australia/Lord_Howe"}
	rapid.Check(t, func(t *rapid.T) {
		year := rapid.IntRange(2009, 2019).Draw(t, "year")
		start := time.Date(year, time.Month(rapid.IntRange(1, 12).Draw(t, "month")), rapid.IntRange(1, 28).Draw(t, "day"), rapid.IntRange(0, 23).Draw(t, "hour"), 0, 0, 0, time.UTC)
		days := map[string]bool{}
		c := Calendar{Name: "c", Zone: rapid.SampledFrom(zones).Draw(t, "of calendar")}
		if first := rapid.IntRange(-5, 60).Draw(t, "range"); first >= 0 {
			last := first + rapid.IntRange(0, 250).Draw(t, "length")
			for d := first; d <= last; d++ {
				days[start.AddDate(0, 0, d).Format("2006-01-02")] = true
			}
			c.Ranges = []DateRange{{start.AddDate(0, 0, first).Format("2006-01-02"), start.AddDate(0, 0, last).Format("2006-01-02")}}
		}
		for range rapid.IntRange(0, 12).Draw(t, "dates") {
			d := start.AddDate(0, 0, rapid.IntRange(-2, 40).Draw(t, "date")).Format("2006-01-02")
			days[d] = true
			c.Dates = append(c.Dates, d)
		}
		weekday := time.Weekday(rapid.IntRange(-1, 6).Draw(t, "weekday"))
		if weekday >= 0 {
			c.Weekdays = []string{weekdayNames[weekday][:3]}
		}
		from, to := rapid.IntRange(0, 23).Draw(t, "from"), rapid.IntRange(0, 23).Draw(t, "to")
		if from != to {
			clock := func(h int) string { return time.Date(2000, 1, 1, h, 0, 0, 0, time.UTC).Format("15:04") }
			c.Times = []TimeRange{{clock(from), clock(to)}}
		}
		loc, err := ParseZone(c.Zone)
		require.NoError(t, err)
		out := func(at time.Time) bool {
			local := at.In(loc)
			h := local.Hour()
			return days[local.Format("2006-01-02")] || local.Weekday() == weekday ||
				from < to && h >= from && h < to || from > to && (h >= from || h < to)
		}
		spec := Spec{Expr: rapid.SampledFrom([]string{"0 0/20 * * * ?", "0 30 1,2,23 * * ?", "0 0 0 * * ?"}).Draw(t, "expr"), Zone: rapid.SampledFrom(zones).Draw(t, "of trigger")}
		plain, err := Compile(spec)
		require.NoError(t, err)
		s, err := Compile(with(spec, c))
		require.NoError(t, err)
		got, want := start, start
		for range 60 {
			var ok bool
			for n := 0; ; n++ {
				want, ok = plain.Next(want)
				require.True(t, ok)
				if !out(want) || n > 30_000 {
					break
				}
			}
			if out(want) {
				return // as good as never
			}
			got, ok = s.Next(got)
			require.True(t, ok)
			require.Equal(t, want, got)
		}
	})
}

// A calendar that leaves nothing is told fast, however it says so.
func TestACalendarThatLeavesNothing(t *testing.T) {
	from := moment(t, "2026-11-30T00:00:00Z")
	everyDay := []string{}
	for m := 1; m <= 12; m++ {
		for d := 1; d <= monthLength(2000, m); d++ {
			everyDay = append(everyDay, time.Date(2000, time.Month(m), d, 0, 0, 0, 0, time.UTC).Format("01-02"))
		}
	}
	for name, c := range map[string]Calendar{
		"all weekdays":      {Weekdays: []string{"SUN", "MON", "TUE", "WED", "THU", "FRI", "SAT"}},
		"all of the day":    {Times: []TimeRange{{"00:00", "12:00"}, {"12:00", "24:00"}}},
		"all days of years": {Dates: everyDay},
		"all but leap days": {Dates: append(append([]string{}, everyDay[:59]...), everyDay[60:]...), Weekdays: []string{"MON", "TUE", "WED", "THU", "FRI", "SAT"}, Times: []TimeRange{{"08:00", "09:00"}}},
		"its hours":         {Times: []TimeRange{{"07:00", "09:00"}}},
		"all that is left":  {Ranges: []DateRange{{"1970-01-01", "2199-12-31"}}},
		"all of time":       {Periods: []Period{{moment(t, "1960-01-01T00:00:00Z"), moment(t, "2210-01-01T00:00:00Z")}}},
	} {
		for _, spec := range []Spec{{Expr: "0 0 8 * * ?"}, {Expr: "0 0 8 * * ?", Zone: "America/New_York"}} {
			s, err := Compile(with(spec, c))
			require.NoError(t, err, name)
			best := time.Hour
			for range 5 {
				began := time.Now()
				_, ok := s.Next(from)
				require.False(t, ok, name)
				best = min(best, time.Since(began))
			}
			t.Logf("%s: %s", name, best)
			require.Less(t, best, 5*time.Millisecond, name)
			require.Equal(t, codeAllLeftOut, s.Over(from).Code, name)
		}
	}
}

func TestPreviewTellsWhatIsLeftOut(t *testing.T) {
	spec := with(Spec{Expr: "0 0 8 * * ?"}, Calendar{Name: "national-day", Ranges: []DateRange{{"2026-10-01", "2026-10-07"}}})
	list, _, err := Preview(0, []Spec{spec}, moment(t, "2026-09-29T12:00:00Z"), 3)
	require.NoError(t, err)
	require.Nil(t, list[0].Note)
	require.Equal(t, "left out: 7 before this, from 2026-10-01 08:00:00 (calendar national-day)", list[1].Note.EN)
	require.Equal(t, "此前排除 7 次，自 2026-10-01 08:00:00 起（日历 national-day）", list[1].Note.ZH)
	require.Nil(t, list[2].Note)
	s, err := Compile(spec)
	require.NoError(t, err)
	require.Contains(t, s.Text().EN, "national-day")
}

func TestDaysOfAYear(t *testing.T) {
	days, err := Calendar{Dates: []string{"05-01"}, Ranges: []DateRange{{"2026-10-01", "2026-10-03"}, {"12-31", "01-01"}}}.Days(2026)
	require.NoError(t, err)
	require.Equal(t, []string{"2026-01-01", "2026-05-01", "2026-10-01", "2026-10-02", "2026-10-03", "2026-12-31"}, days)
	days, err = Calendar{Weekdays: []string{"SUN"}}.Days(2026)
	require.NoError(t, err)
	require.Len(t, days, 52)
}
