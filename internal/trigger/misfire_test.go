package trigger

import (
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/ax-scheduler/ax/internal/job"
	"github.com/ax-scheduler/ax/internal/quota"
	"github.com/ax-scheduler/ax/internal/ready"
	"github.com/ax-scheduler/ax/internal/schedule"
	"github.com/ax-scheduler/ax/internal/store"
)

const now = int64(1_796_000_000_000)

// secondsAgo are instants that many seconds before now.
func secondsAgo(list ...int64) []int64 {
	out := make([]int64, len(list))
	for i, s := range list {
		out[i] = now - s*1000
	}
	return out
}

func policy(name string, window time.Duration, most int, order string, rate float64) job.Misfire {
	return job.Misfire{Policy: name, Window: schedule.Duration(window), Max: most, Order: order, Rate: rate}
}

// start is what is expected to run: how many seconds ago it was due, and how many milliseconds from now it starts.
type start struct{ ago, in int64 }

func TestWhatAPolicyMakesOfMissedFirings(t *testing.T) {
	for name, c := range map[string]struct {
		policy  job.Misfire
		fated   []store.Stretch
		behind  []int64 // seconds ago
		appRate float64
		taken   int // starts of the app that are given away already
		jump    jump
		run     []start
		missed  []span
	}{
		"skip lets nothing run": {
			policy: policy(job.MisfireSkip, time.Hour, 100, "", 10), behind: []int64{40, 30, 20, 10},
			missed: []span{{now - 40_000, now - 10_000, 4, ReasonMissed}},
		},
		"once lets the newest run": {
			policy: policy(job.MisfireOnce, time.Hour, 100, "", 10), behind: []int64{40, 30, 20, 10},
			run: []start{{10, 0}}, missed: []span{{now - 40_000, now - 20_000, 3, ReasonMissed}},
		},
		"once outside its window lets nothing run": {
			policy: policy(job.MisfireOnce, 5*time.Second, 100, "", 10), behind: []int64{40, 10},
			missed: []span{{now - 40_000, now - 10_000, 2, ReasonMissed}},
		},
		"all starts the oldest first, as fast as the job's rate": {
			policy: policy(job.MisfireAll, time.Hour, 100, job.OrderOldest, 2), behind: []int64{30, 20, 10},
			run: []start{{30, 0}, {20, 500}, {10, 1000}},
		},
		"all starts the newest first when it is told to": {
			policy: policy(job.MisfireAll, time.Hour, 100, job.OrderNewest, 2), behind: []int64{30, 20, 10},
			run: []start{{10, 0}, {20, 500}, {30, 1000}},
		},
		"all keeps the newest so many": {
			policy: policy(job.MisfireAll, time.Hour, 2, job.OrderOldest, 10), behind: []int64{40, 30, 20, 10},
			run: []start{{20, 0}, {10, 100}}, missed: []span{{now - 40_000, now - 30_000, 2, ReasonMissed}},
		},
		"what is older than the window is missed": {
			policy: policy(job.MisfireAll, 25*time.Second, 100, job.OrderOldest, 10), behind: []int64{40, 30, 20, 10},
			run: []start{{20, 0}, {10, 100}}, missed: []span{{now - 40_000, now - 30_000, 2, ReasonMissed}},
		},
		"exactly as old as the window may still start": {
			policy: policy(job.MisfireAll, 20*time.Second, 100, job.OrderOldest, 10), behind: []int64{20, 10},
			run: []start{{20, 0}, {10, 100}},
		},
		"what the rate leaves no start in time is missed with its own reason, and the newer ones take the starts": {
			policy: policy(job.MisfireAll, 40*time.Second, 100, job.OrderOldest, 0.05), behind: []int64{40, 30, 20, 10},
			// Starts at 0, 20 and 40 s; the latest starts are 0, 10, 20 and 30 s from now.
			run:    []start{{40, 0}, {20, 20_000}},
			missed: []span{{now - 30_000, now - 30_000, 1, ready.ReasonMissedWindow}, {now - 10_000, now - 10_000, 1, ready.ReasonMissedWindow}},
		},
		"newest first leaves the oldest without a start": {
			policy: policy(job.MisfireAll, 40*time.Second, 100, job.OrderNewest, 0.05), behind: []int64{40, 30, 20, 10},
			run:    []start{{10, 0}, {20, 20_000}},
			missed: []span{{now - 40_000, now - 30_000, 2, ready.ReasonMissedWindow}},
		},
		"the app's rate holds for once too, after what is given away": {
			policy: policy(job.MisfireOnce, time.Hour, 100, "", 10), behind: []int64{10}, appRate: 4, taken: 6,
			run: []start{{10, 1500}},
		},
		"the slower of two rates counts": {
			policy: policy(job.MisfireAll, time.Hour, 100, "", 1000), behind: []int64{30, 20, 10}, appRate: 1,
			run: []start{{30, 0}, {20, 1000}, {10, 2000}},
		},
		"what has its row is left alone, and no row reaches over it": {
			policy: policy(job.MisfireSkip, time.Hour, 100, "", 10), behind: []int64{60, 50, 40, 30, 20, 10}, fated: []store.Stretch{{First: now - 50_000, Last: now - 50_000}, {First: now - 35_000, Last: now - 30_000}, {First: now - 15_000, Last: now - 15_000}},
			missed: []span{{now - 60_000, now - 60_000, 1, ReasonMissed}, {now - 40_000, now - 40_000, 1, ReasonMissed}, {now - 20_000, now - 20_000, 1, ReasonMissed}, {now - 10_000, now - 10_000, 1, ReasonMissed}},
		},
		"what the clock jumped over has that reason, in a row of its own": {
			policy: policy(job.MisfireSkip, time.Hour, 100, "", 10), behind: []int64{40, 30, 20, 10}, jump: jump{from: now - 30_000, to: now},
			missed: []span{{now - 40_000, now - 30_000, 2, ReasonMissed}, {now - 20_000, now - 10_000, 2, ReasonMissedClock}},
		},
	} {
		t.Run(name, func(t *testing.T) {
			app := quota.NewPace(c.appRate)
			for range c.taken {
				app.Take(quota.Together(now, app, nil))
			}
			run, missed, rest := settle(debt{policy: c.policy, behind: secondsAgo(c.behind...), fated: c.fated, now: now, jump: c.jump, job: quota.NewPace(c.policy.PerSecond()), app: app})
			require.Zero(t, rest)
			var got []start
			for _, r := range run {
				got = append(got, start{(now - r.at) / 1000, r.notBefore - now})
			}
			require.Equal(t, c.run, got)
			require.Equal(t, c.missed, missed)
		})
	}
}

// Whatever the policy and however the passes are cut: every missed firing has exactly one fate, no row
// lies over another, counts are exact, and nothing starts outside its window or faster than the rates.
func TestEveryMissedFiringHasOneFate(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		p := policy(rapid.SampledFrom([]string{job.MisfireSkip, job.MisfireOnce, job.MisfireAll}).Draw(t, "policy"), time.Duration(rapid.IntRange(5, 600).Draw(t, "window"))*time.Second,
			rapid.IntRange(1, 20).Draw(t, "max"), rapid.SampledFrom([]string{job.OrderOldest, job.OrderNewest}).Draw(t, "order"), rapid.SampledFrom([]float64{0.02, 0.5, 3, 50}).Draw(t, "rate"))
		var all []int64
		for at := now - 5000 - int64(rapid.IntRange(0, 500).Draw(t, "n"))*1000; at <= now-5000; at += int64(rapid.IntRange(1, 3000).Draw(t, "gap")) {
			all = append(all, at)
		}
		if len(all) == 0 {
			return
		}
		limit := rapid.IntRange(21, 200).Draw(t, "limit")
		ofJob, app := quota.NewPace(p.Rate), quota.NewPace(rapid.SampledFrom([]float64{0, 0.5, 5}).Draw(t, "app"))
		fates := map[int64]int{}
		var run []catchUp
		from := 0
		for from < len(all) {
			to := min(from+limit, len(all))
			got, missed, rest := settle(debt{policy: p, behind: all[from:to], more: to < len(all), now: now, job: ofJob, app: app})
			run = append(run, got...)
			for _, r := range got {
				fates[r.at]++
			}
			for _, m := range missed {
				n := int64(0)
				for _, at := range all {
					if at >= m.first && at <= m.last {
						fates[at]++
						n++
					}
				}
				require.Equal(t, n, m.count)
			}
			from = to
			if rest > 0 {
				from = slices.Index(all, rest)
			}
		}
		require.Len(t, fates, len(all))
		for at, n := range fates {
			require.Equal(t, 1, n, at)
		}
		switch p.Policy {
		case job.MisfireSkip:
			require.Empty(t, run)
		case job.MisfireOnce:
			require.LessOrEqual(t, len(run), 1)
		default:
			require.LessOrEqual(t, len(run), p.Max)
		}
		for _, r := range run {
			require.GreaterOrEqual(t, r.notBefore, now)
			require.LessOrEqual(t, r.notBefore, r.at+time.Duration(p.Window).Milliseconds())
		}
		for i := range run {
			n := 0
			for _, o := range run {
				if o.notBefore >= run[i].notBefore && o.notBefore < run[i].notBefore+100_000 {
					n++
				}
			}
			require.LessOrEqual(t, float64(n), 100*p.Rate+2)
		}
	})
}

// B6: three days of a job that was due every second: more than one pass judges.
func TestALongGapIsJudgedInPassesAsOne(t *testing.T) {
	const n = 3 * 24 * 3600
	all := make([]int64, n)
	for i := range all {
		all[i] = now - 5000 - int64(n-1-i)*1000
	}
	for name, most := range map[string]int{job.MisfireSkip: 0, job.MisfireOnce: 1, job.MisfireAll: 100_000} {
		p := policy(name, 100*24*time.Hour, max(most, 1), "", 1000)
		ran, missed, rows := 0, int64(0), 0
		last := int64(0)
		for from := 0; from < n; {
			to := min(from+missedLimit, n)
			got, gone, rest := settle(debt{policy: p, behind: all[from:to], more: to < n, now: now, job: quota.NewPace(p.Rate)})
			ran += len(got)
			for _, g := range gone {
				require.Greater(t, g.first, last, "rows do not overlap")
				last = g.last
				missed += g.count
				rows++
			}
			from = to
			if rest > 0 {
				from = slices.Index(all, rest)
			}
		}
		require.Equal(t, most, ran, name)
		require.EqualValues(t, n-most, missed, name)
		require.LessOrEqual(t, rows, 3, name)
	}
}

func TestAJumpOfTheClockIsToldFromAnOutage(t *testing.T) {
	var p passed
	p.at(now)
	p.at(now + 100)
	require.Equal(t, jump{}, p.jump)
	p.at(now + 2*3600*1000)
	require.True(t, p.jump.over(now+3600*1000))
	require.False(t, p.jump.over(now-1000))
	require.False(t, p.jump.over(now+3*3600*1000))
	was := p.jump
	p.at(now)
	require.Equal(t, was, p.jump, "backwards jumps over nothing")
}

// C254: the edge between a late run and a misfire.
func TestTheEdgeOfAMisfire(t *testing.T) {
	const edge = 5000
	require.False(t, missed(now-edge+1, now), "a millisecond before")
	require.True(t, missed(now-edge, now))
	require.True(t, missed(now-edge-1, now))
	require.False(t, missed(now, now))
	require.False(t, missed(now+1000, now))
}
