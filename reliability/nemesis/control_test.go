//go:build nofence

package nemesis

import (
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// The control: with the fence switched off (and with it the belief that goes with it), paused owners wake and go on. The checker must
// see it, or its silence over the other runs would mean nothing.
func TestWithoutTheFenceItIsNoticed(t *testing.T) {
	out := play(t, 11, 20*time.Second, []string{"pause"}, false)
	for _, v := range out.Violations {
		t.Log(v.Invariant, v.Text)
	}
	require.True(t, slices.ContainsFunc(out.Violations, func(v Violation) bool { return v.Invariant == "I3" }), "an owner whose epoch was over started work, and nobody noticed")
}
