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
