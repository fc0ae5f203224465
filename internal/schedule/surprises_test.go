package schedule

import (
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// C246: a day of the clock is not 24 hours. A daily 02:30 that is moved to 03:00 on the day without it
// is back at 02:30 on the next, and no day is left out.
func TestC246TheDayAfterAGapIsAsBefore(t *testing.T) {
	s, err := Compile(Spec{Expr: "0 30 2 * * ?", Zone: "Europe/Amsterdam"})
	require.NoError(t, err)
	var got []string
	for _, at := range nextTimes(s, moment(t, "2025-03-29T00:00:00+01:00"), 4) {
		got = append(got, at.In(s.Zone()).Format(time.RFC3339))
	}
	require.Equal(t, []string{"2025-03-29T02:30:00+01:00", "2025-03-30T03:00:00+02:00", "2025-03-31T02:30:00+02:00", "2025-04-01T02:30:00+02:00"}, got)
	due, ok := s.Next(moment(t, "2025-04-01T02:00:00+02:00"))
	require.True(t, ok)
	require.Equal(t, "2025-04-01T02:30:00+02:00", due.In(s.Zone()).Format(time.RFC3339))

	// 24 hours of real time, on the other hand, are those: the reading of the clock moves.
	anchor := moment(t, "2025-03-01T02:30:00+01:00")
	rate, err := Compile(Spec{Kind: FixedRate, Every: Duration(24 * time.Hour), Anchor: &anchor, Zone: "Europe/Amsterdam"})
	require.NoError(t, err)
	due, ok = rate.Next(moment(t, "2025-04-01T02:00:00+02:00"))
	require.True(t, ok)
	require.Equal(t, "2025-04-01T03:30:00+02:00", due.In(rate.Zone()).Format(time.RFC3339))
}

// C402: the weekday in the words is that of the first fire, in both languages, in each way to write it.
func TestC402WeekdaysInWords(t *testing.T) {
	from := moment(t, "2026-01-01T00:00:00Z")
	for number, day := range []time.Weekday{time.Sunday, time.Monday, time.Tuesday, time.Wednesday, time.Thursday, time.Friday, time.Saturday} {
		name := strings.ToUpper(day.String())
		quartz, unix := string(rune('1'+number)), string(rune('0'+number))
		for _, spec := range []Spec{
			{Expr: "0 0 9 ? * " + quartz},
			{Expr: "0 0 9 ? * " + name},
			{Expr: "0 0 9 ? * " + name[:3]},
			{Expr: "0 0 9 ? * " + quartz + "L"},
			{Expr: "0 0 9 ? * " + quartz + "#2"},
			{Expr: "0 9 * * " + unix, Dialect: Unix},
			{Expr: "0 9 * * " + name[:3], Dialect: Unix},
		} {
			spec.Zone = "UTC"
			s, err := Compile(spec)
			require.NoError(t, err, spec.Expr)
			due, ok := s.Next(from)
			require.True(t, ok, spec.Expr)
			require.Equal(t, day, due.Weekday(), spec.Expr)
			require.Contains(t, s.Text().EN, day.String(), spec.Expr)
			require.Contains(t, s.Text().ZH, weekdayZH[day], spec.Expr)
			require.NotContains(t, s.Text().EN+s.Text().ZH, "?", spec.Expr)
		}
	}
}

// C362: what goes by the hours of a day in the zone of a job counts those that the day has.
func TestC362HoursOfADay(t *testing.T) {
	for day, hours := range map[string]int{"2026-03-07": 24, "2026-03-08": 23, "2026-11-01": 25} {
		s, err := Compile(Spec{Expr: "0 0 * * * ?", Zone: "America/New_York"})
		require.NoError(t, err)
		start, err := time.ParseInLocation("2006-01-02", day, s.Zone())
		require.NoError(t, err)
		n := 0
		for at, ok := s.Next(start.Add(-1)); ok && at.Before(start.AddDate(0, 0, 1)); at, ok = s.Next(at) {
			n++
		}
		require.Equal(t, hours, n, day)
	}
}
