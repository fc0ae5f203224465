package schedule

import (
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// C235: one parser for every entrance. Blanks at the ends are no fault, and a no-break space means a blank or is named.
func TestC235BlanksAroundAnExpression(t *testing.T) {
	from := time.Date(2026, 9, 26, 10, 17, 3, 0, time.UTC)
	plain, err := Compile(Spec{Expr: "0/10 * * * * ?"})
	require.NoError(t, err)
	want, ok := plain.Next(from)
	require.True(t, ok)
	for _, expr := range []string{"0/10 * * * * ? ", "\t0/10 * * * * ?\n", "0/10\u00a0* * * * ?", "0/10 * * * * ?\u00a0"} {
		s, err := Compile(Spec{Expr: expr})
		if err != nil {
			require.Contains(t, expr, "\u00a0", "%q", expr)
			require.Contains(t, strings.ToLower(refusalOf(t, err).Message.EN), "space", "%q", expr)
			continue
		}
		got, ok := s.Next(from)
		require.True(t, ok)
		require.Equal(t, want, got, "%q", expr)
	}
}

// C240: what is due does not depend on the zone of the host.
func TestC240TheHostsZoneDoesNotMatter(t *testing.T) {
	before := time.Local
	defer func() { time.Local = before }()
	for _, host := range []string{"America/New_York", "Asia/Tokyo", "UTC"} {
		loc, err := time.LoadLocation(host)
		require.NoError(t, err)
		time.Local = loc
		s, err := Compile(Spec{Expr: "0 30 0 * * ?", Zone: "Asia/Shanghai"})
		require.NoError(t, err)
		due, ok := s.Next(time.Date(2026, 3, 7, 12, 0, 0, 0, loc))
		require.True(t, ok)
		require.Equal(t, "16:30", due.UTC().Format("15:04"), "on a host in %s", host)
	}
}

// C246: a day's time that one date does not have does not move the days after it.
func TestC246AMissingTimeDoesNotShiftTheNextDays(t *testing.T) {
	s, err := Compile(Spec{Expr: "0 30 2 * * ?", Zone: "Europe/Amsterdam"})
	require.NoError(t, err)
	after, err := time.Parse(time.RFC3339, "2025-04-01T02:00:00+02:00")
	require.NoError(t, err)
	for from := after.AddDate(0, -1, 0); from.Before(after); from = from.AddDate(0, 0, 1) {
		last := from
		for at, ok := s.Next(from); ok && !at.After(after); at, ok = s.Next(at) {
			last = at
		}
		due, ok := s.Next(last)
		require.True(t, ok)
		require.Equal(t, "2025-04-01T02:30:00+02:00", due.In(s.Zone()).Format(time.RFC3339), "asked step by step from %s", from)
	}
}
