package main

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/ax-scheduler/ax/internal/store"
	"github.com/ax-scheduler/ax/internal/storetest"
	"github.com/ax-scheduler/ax/server/axtest"
)

// nobodyEarly requires that no delivery was before its planned time, by a clock that is ahead of the host's
// by offset. 100 ms is what two samples may have moved ax time.
func nobodyEarly(t *testing.T, x *axtest.Executor, offset time.Duration) {
	t.Helper()
	for _, d := range x.Deliveries() {
		require.GreaterOrEqual(t, d.At.Add(offset).UnixMilli()+100, d.Run.DueAt, "batch %s", d.Run.BatchID)
	}
}

// F12, C260: the clock of the database jumps while everything works. Nothing fires early or twice, nothing is
// skipped in silence, and nobody takes buckets over and over.
func TestTheDatabasesClockJumps(t *testing.T) {
	clock := storetest.StartFakeTime(t)
	s := axtest.Start(t, axtest.Database(storetest.Database(t)))
	ns := s.Namespace(t)
	x := ns.App("app").Worker(axtest.Succeed)
	jobs := []string{
		ns.Job(axtest.Def{"name": "rate", "triggers": every("1s"), "concurrency": policy("allow", 0)}),
		ns.Job(axtest.Def{"name": "cron", "triggers": []map[string]any{{"kind": "cron", "expr": "* * * * * ?", "zone": "UTC"}}, "concurrency": policy("allow", 0)}),
	}
	fired := func(n int) {
		t.Helper()
		from := len(x.Starts())
		axtest.WaitFor(t, "it goes on firing", func() bool { return len(x.Starts()) >= from+n })
	}
	fired(4)
	for _, jump := range []time.Duration{time.Second, -time.Second, 10 * time.Second, -10 * time.Second, 2 * time.Hour, -2 * time.Hour} {
		clock.Set(t, jump)
		fired(4)
		if jump.Abs() == time.Second {
			// Small enough to be followed, slowly: until a sample has seen it.
			axtest.WaitUpTo(t, 2*axtest.Patience, "it is seen", func() bool {
				drift := s.Metric("ax_clock_drift_seconds") - jump.Seconds()
				return drift > -0.3 && drift < 0.3
			})
			fired(2)
		}
		nobodyEarly(t, x, 0)
		clock.Set(t, 0)
		fired(4)
		s.LedgerClean(t)
	}
	for i := range 20 { // strobe
		clock.Set(t, time.Duration(i%3)*100*time.Millisecond)
		axtest.Pause(150 * time.Millisecond)
	}
	// Until it is alarmed: a sample is taken every ten seconds.
	clock.Set(t, 2*time.Hour)
	var meta struct {
		ClockDriftMs, ClockRefusedMs int64
		ClockAlarm                   bool
	}
	axtest.WaitUpTo(t, 2*axtest.Patience, "it is told", func() bool {
		ns.Client.Get(t, "/api/v1/meta", &meta)
		return meta.ClockAlarm
	})
	require.InDelta(t, 2*3600_000, meta.ClockRefusedMs, 5000)
	require.InDelta(t, 7200, s.Metric("ax_clock_refused_step_seconds"), 5)
	require.Contains(t, s.Log(), "database clock stepped and is not followed until the host clock agrees")
	from := len(x.Starts())
	fired(3)
	axtest.WaitFor(t, "what started meanwhile is marked", func() bool {
		for _, st := range x.Starts()[from:] {
			if b := ns.Batch(st.Run.BatchID); strings.Contains(fmt.Sprint(b.Kinds()), "clock_drift") {
				return true
			}
		}
		return false
	})
	clock.Set(t, 0)
	for _, id := range jobs {
		disable(t, ns, id)
		fates(t, ns, id, time.Second, x)
	}
	nobodyEarly(t, x, 0)
	axtest.NothingTwice(t, x)
	s.LedgerClean(t)
	require.Equal(t, 1, strings.Count(s.Log(), "buckets taken"), "no storm of takeovers")
	require.NotContains(t, s.Log(), "bucket lost")
}

// F14: a server whose database lives at the turn of the year, on the leap day, at a change of clocks.
func TestTurnsOfTheCalendar(t *testing.T) {
	clock := storetest.StartFakeTime(t)
	for name, c := range map[string]struct{ zone, turn string }{
		"the leap day begins":          {"UTC", "2028-02-29T00:00:00Z"},
		"the year ends":                {"Asia/Shanghai", "2027-12-31T16:00:00Z"},
		"an hour is left out":          {"America/New_York", "2027-03-14T07:00:00Z"},
		"an hour is there twice":       {"America/New_York", "2027-11-07T06:00:00Z"},
		"a country changed its offset": {"Asia/Almaty", "2024-02-29T19:00:00Z"},
	} {
		t.Run(name, func(t *testing.T) {
			turn, err := time.Parse(time.RFC3339, c.turn)
			require.NoError(t, err)
			offset := time.Until(turn) - 6*time.Second
			clock.Set(t, offset)
			s := axtest.Start(t, axtest.Database(storetest.Database(t)))
			ns := s.Namespace(t)
			x := ns.App("app").Worker(axtest.Succeed)
			job := ns.Job(axtest.Def{"triggers": []map[string]any{{"kind": "cron", "expr": "* * * * * ?", "zone": c.zone}}, "concurrency": policy("allow", 0)})
			axtest.WaitFor(t, "the turn has passed", func() bool {
				starts := x.Starts()
				return len(starts) > 0 && starts[len(starts)-1].Run.DueAt >= turn.Add(2*time.Second).UnixMilli()
			})
			require.Less(t, x.Starts()[0].Run.DueAt, turn.UnixMilli(), "it was there before")
			disable(t, ns, job)
			fates(t, ns, job, time.Second, x)
			nobodyEarly(t, x, offset)
			axtest.NothingTwice(t, x)
			s.LedgerClean(t)
			require.Equal(t, store.Buckets, int(s.Metric("ax_buckets_owned")))
			s.Stop()
		})
	}
}
