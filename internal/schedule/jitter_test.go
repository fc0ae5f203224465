package schedule

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"
)

// Whatever the schedule: a start is never before its due time, never at or after the next one, within the
// jitter, and the same when asked again of another copy.
func TestJitterStaysBetweenTwoFires(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		spec := rapid.SampledFrom([]Spec{
			{Expr: "0 0/5 * * * ?"},
			{Expr: "* * * * * ?"},
			{Expr: "0 30 1 * * ?", Zone: "America/New_York", ClockChange: ClockBoth},
			{Kind: FixedRate, Every: Duration(100 * time.Millisecond)},
			{Expr: "0 0 8 1 1 ?"},
		}).Draw(t, "spec")
		spec.Jitter = Duration(rapid.Int64Range(0, 24*3600*1000-1).Draw(t, "jitter")) * Duration(time.Millisecond)
		s, err := Compile(spec)
		require.NoError(t, err)
		again, err := Compile(spec)
		require.NoError(t, err)
		job, no := rapid.Int64Range(1, 1<<40).Draw(t, "job"), rapid.IntRange(1, 20).Draw(t, "no")
		due, ok := s.Next(time.Unix(rapid.Int64Range(1_700_000_000, 1_900_000_000).Draw(t, "from"), 0))
		require.True(t, ok)
		start := s.Start(job, no, due)
		require.False(t, start.Before(due))
		require.LessOrEqual(t, start.Sub(due), time.Duration(spec.Jitter))
		next, ok := s.Next(due)
		require.True(t, ok)
		require.True(t, start.Before(next), "%s, next %s", start, next)
		require.Equal(t, start, again.Start(job, no, due))
	})
}

func TestJitterSpreadsEvenly(t *testing.T) {
	s, err := Compile(Spec{Expr: "0 0 8 * * ?", Jitter: Duration(10 * time.Minute)})
	require.NoError(t, err)
	due := moment(t, "2026-12-01T00:00:00Z")
	var jobs, triggers, days [10]int
	put := func(in *[10]int, start, due time.Time) {
		in[min(start.Sub(due)/time.Minute, 9)]++
	}
	for i := range 10_000 {
		put(&jobs, s.Start(int64(i+1), 1, due), due)
		put(&triggers, s.Start(1, i+1, due), due)
		day := due.AddDate(0, 0, i)
		put(&days, s.Start(1, 1, day), day)
	}
	for _, parts := range [][10]int{jobs, triggers, days} {
		for _, n := range parts {
			require.InDelta(t, 1000, n, 150)
		}
	}
}

func TestPreviewTellsTheJitter(t *testing.T) {
	from := moment(t, "2026-12-01T00:30:00Z")
	spec := Spec{No: 2, Expr: "0 0 9 * * ?", Jitter: Duration(5 * time.Minute)}
	fires, warnings, err := Preview(0, []Spec{spec}, from, 1)
	require.NoError(t, err)
	require.Empty(t, warnings)
	require.Equal(t, "starts between 09:00:00 and 09:05:00 (jitter)", fires[0].Note.EN)
	require.Equal(t, "将在 09:00:00 至 09:05:00 之间启动（抖动）", fires[0].Note.ZH)
	fires, _, err = Preview(7, []Spec{spec}, from, 1)
	require.NoError(t, err)
	s, err := Compile(spec)
	require.NoError(t, err)
	want := s.Start(7, 2, fires[0].At).In(s.Zone()).Format("15:04:05.999")
	require.Equal(t, "starts at "+want+" (jitter)", fires[0].Note.EN)
	require.Equal(t, "2026-12-01T09:00:00+08:00", fires[0].At.Format(time.RFC3339), "the due time stays")
	spec.Jitter = Duration(30 * time.Hour)
	_, _, err = Preview(0, []Spec{spec}, from, 1)
	require.Equal(t, "triggers[0].jitter", refusalOf(t, err).Field)
}
