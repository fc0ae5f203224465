package quota_test

import (
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/ax-scheduler/ax/internal/quota"
)

// Whatever the rates and whenever somebody asks: no second has more starts than the rate and one, no
// start is before it was asked for, and none later than the slower of the two rates explains.
func TestNoSecondHasMoreStartsThanItsRate(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		rates := []float64{rapid.SampledFrom([]float64{0, 0.5, 1, 3, 10, 50, 999}).Draw(t, "a"), rapid.SampledFrom([]float64{0, 0.5, 1, 7, 20, 3000}).Draw(t, "b")}
		a, b := quota.NewPace(rates[0]), quota.NewPace(rates[1])
		const now = int64(1_796_000_000_000)
		var starts []int64
		for range rapid.IntRange(1, 200).Draw(t, "n") {
			ask := now + rapid.Int64Range(0, 2000).Draw(t, "at")
			at := quota.Together(ask, a, b)
			require.GreaterOrEqual(t, at, ask)
			a.Take(at)
			b.Take(at)
			a.Forget(now)
			starts = append(starts, at)
		}
		for _, rate := range rates {
			if rate == 0 {
				continue
			}
			for _, from := range starts {
				n := 0
				for _, s := range starts {
					if s >= from && s < from+10_000 {
						n++
					}
				}
				require.LessOrEqual(t, float64(n), 10*rate+2, "in ten seconds at %v a second", rate)
			}
		}
	})
}

func TestStartsFollowEachOtherAtTheRate(t *testing.T) {
	p := quota.NewPace(4)
	const now = int64(1_796_000_000_000)
	for i := range int64(5000) {
		at := quota.Together(now, p, nil)
		require.Equal(t, now+i*250, at)
		p.Take(at)
		p.Forget(now)
	}
	var none *quota.Pace
	none.Take(now)
	require.Equal(t, now, none.Free(now), "no limit")
}
