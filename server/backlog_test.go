package main

import (
	"fmt"
	"net/http"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/ax-scheduler/ax/internal/storetest"
	"github.com/ax-scheduler/ax/server/axtest"
)

// overdue makes every trigger of a stopped server due since a while, as an outage of that length does.
func overdue(t *testing.T, s *axtest.Server, since time.Duration) {
	t.Helper()
	c := s.Config()
	db := storetest.SQL(t, c.Database, c.Data)
	defer func() { _ = db.Close() }()
	past := time.Now().Add(-since).UnixMilli()
	for query, arg := range map[string]int64{
		"UPDATE job_trigger SET next_due_hint = ?": past / 1000 * 1000, "UPDATE trigger_period SET from_at = ?": past/1000*1000 - 1,
	} {
		_, err := db.ExecContext(t.Context(), query, arg)
		require.NoError(t, err)
	}
}

// most is the largest number of first starts that any second has seen.
func most(starts []axtest.Started, since time.Time) (n int) {
	for _, from := range starts {
		in := 0
		for _, s := range starts {
			if s.At.After(since) && !s.At.Before(from.At) && s.At.Sub(from.At) < time.Second {
				in++
			}
		}
		n = max(n, in)
	}
	return n
}

type backlogView struct {
	Count, Jobs int
	Items       []struct {
		Job, Name, App string
		Count          int
		Oldest, Newest time.Time
		Rate, AppRate  float64
		Paused         bool
		ExpectedEnd    *time.Time
	}
}

// M5, B6: an hour's outage of many jobs with policy once. The executors see no more starts in a second than the
// app's drain rate, not even when the server is killed in the middle, and every firing has its fate.
func TestAnAppsDrainRateHolds(t *testing.T) {
	axtest.Both(t, func(t *testing.T, o ...axtest.Option) {
		const jobs, rate = 150, 20
		s := axtest.Start(t, append(o, axtest.Process())...)
		ns := s.Namespace(t)
		app := ns.App("app")
		a := ns.Client.Do(t, http.MethodPut, ns.Path("/apps/app"), map[string]any{"drainRate": rate})
		require.Equal(t, http.StatusOK, a.Status, a.Text())
		x := app.Worker(axtest.Succeed)
		var ids []string
		for i := range jobs {
			ids = append(ids, ns.Job(axtest.Def{"name": fmt.Sprint("job ", i), "misfire": map[string]any{"policy": "once", "window": "2h"}, "triggers": every("10m")}))
		}
		s.Stop()
		overdue(t, s, time.Hour)
		s.Again()
		began := time.Now().Add(-time.Minute)
		axtest.WaitFor(t, "it has begun", func() bool { return len(x.Starts()) >= 40 })
		s.Kill()
		axtest.Pause(time.Second) // what was planned for this time must not all start afterwards
		s.Again()
		axtest.WaitUpTo(t, 2*axtest.Patience, "all have caught up", func() bool { return len(x.Starts()) >= jobs })
		// What is let in keeps the rate exactly; on its way through a busy machine it can be pressed together.
		require.LessOrEqual(t, most(x.Starts(), began), rate+rate/2)
		for _, id := range ids {
			ran := 0
			for _, b := range ns.Batches(id) {
				if b.State == "SUCCEEDED" {
					ran++
				}
			}
			require.Equal(t, 1, ran)
		}
		axtest.NothingTwice(t, x)
		s.LedgerClean(t)
	})
}

// M5: what an operator may do with a backlog.
func TestAnOperatorsBacklog(t *testing.T) {
	axtest.Both(t, func(t *testing.T, o ...axtest.Option) {
		s := axtest.Start(t, o...)
		ns := s.Namespace(t)
		x := ns.App("app").Worker(axtest.Succeed)
		misfire := map[string]any{"policy": "all", "max": 200, "rate": 0.5, "order": "newest"}
		slow := ns.Job(axtest.Def{"name": "slow", "triggers": every("1m"), "misfire": misfire, "concurrency": policy("skip", 1)})
		other := ns.Job(axtest.Def{"name": "other", "triggers": every("1m"), "misfire": misfire, "concurrency": policy("skip", 1)})
		post := func(action string, body map[string]any) map[string]any {
			t.Helper()
			a := ns.Client.Do(t, http.MethodPost, ns.Path("/backlog/"+action), body)
			require.Equal(t, http.StatusOK, a.Status, a.Text())
			var v map[string]any
			a.Into(t, &v)
			return v
		}
		backlog := func(query string) (v backlogView) {
			t.Helper()
			ns.Client.Get(t, ns.Path("/backlog"+query), &v)
			return v
		}
		require.Zero(t, backlog("").Count)
		s.Stop()
		overdue(t, s, 50*time.Minute)
		s.Again()
		axtest.WaitFor(t, "there is a backlog", func() bool { return backlog("").Count > 80 })
		v := backlog("?job=" + slow)
		require.Equal(t, 1, v.Jobs)
		require.Equal(t, slow, v.Items[0].Job)
		require.Equal(t, "slow", v.Items[0].Name)
		require.InDelta(t, 0.5, v.Items[0].Rate, 0.001)
		require.Less(t, v.Items[0].Oldest, v.Items[0].Newest.Add(-40*time.Minute))
		require.NotNil(t, v.Items[0].ExpectedEnd)
		require.Greater(t, time.Until(*v.Items[0].ExpectedEnd), 60*time.Second)

		// Counted first, then paused, over a restart too.
		dry := post("pause", map[string]any{"job": slow, "dryRun": true})
		require.Equal(t, true, dry["dryRun"])
		require.InDelta(t, v.Count, dry["count"], 2)
		require.False(t, backlog("?job=" + slow).Items[0].Paused)
		post("pause", map[string]any{"job": slow})
		require.True(t, backlog("?job=" + slow).Items[0].Paused)
		require.Nil(t, backlog("?job=" + slow).Items[0].ExpectedEnd)
		require.False(t, backlog("?job=" + other).Items[0].Paused)
		s.Stop()
		s.Again()
		axtest.WaitFor(t, "it is taken up", func() bool { return backlog("?job="+slow).Count > 0 })
		left := backlog("?job=" + slow)
		require.True(t, left.Items[0].Paused)
		axtest.Stays(t, 3*time.Second, "nothing of it starts", func() bool { return backlog("?job="+slow).Count == left.Count })

		// Faster, and on.
		post("speed", map[string]any{"job": slow, "rate": 100})
		post("resume", map[string]any{"job": slow})
		axtest.WaitFor(t, "it is worked off", func() bool { return backlog("?job="+slow).Count == 0 })

		// Given up: missed, and it says why and by whom.
		count := backlog("?job=" + other).Count
		require.Positive(t, count)
		require.InDelta(t, count, post("drop", map[string]any{"app": "app", "dryRun": true})["count"], 2)
		require.InDelta(t, count, post("drop", map[string]any{"app": "app"})["count"], 2)
		require.Zero(t, backlog("").Count)
		dropped := 0
		for _, b := range ns.Batches(other) {
			if b.Code() == "dropped_by_operator" {
				require.Equal(t, "MISSED", b.State)
				require.Equal(t, "admin", b.Reason.Detail)
				dropped++
			}
		}
		require.InDelta(t, count, dropped, 2)
		actions := map[string]int{}
		for _, e := range s.Audit(t, "namespace="+ns.Name) {
			actions[e.Action]++
		}
		require.Equal(t, 3, actions["job.pause"], "pause, speed, resume; a dry run is none")
		require.Equal(t, 1, actions["batch.cancel"])

		for _, bad := range []struct {
			action, field string
			body          map[string]any
		}{
			{"pause", "job", map[string]any{}},
			{"drop", "app", map[string]any{"job": slow, "app": "app"}},
			{"pause", "app", map[string]any{"app": "nobody"}},
			{"speed", "rate", map[string]any{"job": slow, "rate": -1}},
			{"speed", "rate", map[string]any{"job": slow, "rate": 2000}},
		} {
			a := ns.Client.Do(t, http.MethodPost, ns.Path("/backlog/"+bad.action), bad.body)
			require.Equal(t, http.StatusUnprocessableEntity, a.Status, a.Text())
			require.Contains(t, a.Text(), bad.field)
		}
		for _, id := range []string{slow, other} {
			fates(t, ns, id, time.Minute, x)
		}
		axtest.NothingTwice(t, x)
		s.LedgerClean(t)
	})
}

// A job that is switched off, or edited, right after an outage: what it missed has a fate all the same.
func TestAChangeRightAfterAnOutageLosesNothing(t *testing.T) {
	axtest.Both(t, func(t *testing.T, o ...axtest.Option) {
		s := axtest.Start(t, o...)
		ns := s.Namespace(t)
		x := ns.App("app").Worker(axtest.Succeed)
		slow := map[string]any{"policy": "all", "rate": 0.1}
		off := ns.Job(axtest.Def{"name": "off", "triggers": every("1m"), "misfire": slow})
		gone := ns.Job(axtest.Def{"name": "gone", "triggers": every("1m"), "misfire": slow})
		s.Stop()
		overdue(t, s, 30*time.Minute)
		s.Again()
		disable(t, ns, off)
		a := ns.Client.Do(t, http.MethodDelete, ns.Path("/jobs/"+gone), nil)
		require.Equal(t, http.StatusNoContent, a.Status, a.Text())
		var v backlogView
		ns.Client.Get(t, ns.Path("/backlog"), &v)
		require.Zero(t, v.Count, "a job that is off has no backlog")
		for _, id := range []string{off, gone} {
			list := ns.Batches(id)
			require.GreaterOrEqual(t, len(list), 30)
			for _, b := range list {
				require.True(t, b.State == "SUCCEEDED" || b.Code() == "missed_paused" || b.State == "RUNNING" || b.State == "DISPATCHING", "%s %s", b.State, b.Code())
			}
		}
		axtest.NothingTwice(t, x)
		s.LedgerClean(t)
	})
}

// M5: catch-ups whose turn has come and that no executor takes before their latest start are missed, all shards of them, and
// do not start when an executor comes; what is on time does.
func TestACatchUpThatFindsNoExecutorInTime(t *testing.T) {
	axtest.Both(t, func(t *testing.T, o ...axtest.Option) {
		s := axtest.Start(t, append(o, axtest.Set("dispatch-executor-wait", "5m"), axtest.Set("dispatch-wait-limit", "5m"))...)
		ns := s.Namespace(t)
		app := ns.App("app")
		const window = 20 * time.Second
		misfire := map[string]any{"policy": "all", "window": "20s", "rate": 50}
		single := ns.Job(axtest.Def{"name": "single", "misfire": misfire, "triggers": every("2s"), "concurrency": policy("allow", 0)})
		sharded := ns.Job(axtest.Def{"name": "sharded", "misfire": misfire, "triggers": every("2s"), "concurrency": policy("allow", 0), "routing": map[string]any{"strategy": "roundRobin", "shards": 3}})
		s.Stop()
		overdue(t, s, 16*time.Second)
		s.Restart()
		for _, id := range []string{single, sharded} {
			axtest.WaitFor(t, "what passed its latest start is missed", func() bool {
				n := 0
				for _, b := range ns.Batches(id) {
					if b.State == "MISSED" && b.Code() == "missed_window" {
						require.False(t, time.Now().Before(b.DueAt.Add(window)), "%s: its latest start is not over", b.BatchID)
						n++
					}
				}
				return n >= 4
			})
			disable(t, ns, id)
		}
		at := time.Now()
		x := app.Worker(axtest.Succeed)
		for _, id := range []string{single, sharded} {
			axtest.WaitFor(t, "all has ended", func() bool {
				return !slices.ContainsFunc(ns.Batches(id), func(b axtest.Batch) bool { return !b.Final() })
			})
			for _, b := range ns.Batches(id) {
				if b.State == "MISSED" {
					continue
				}
				require.Equal(t, "SUCCEEDED", b.State, b.BatchID)
				require.True(t, b.DueAt.Add(window+time.Minute).After(at))
			}
		}
		missed := map[string]bool{}
		for _, id := range []string{single, sharded} {
			for _, b := range ns.Batches(id) {
				missed[b.BatchID] = b.State == "MISSED"
			}
		}
		for _, start := range x.Starts() {
			require.False(t, missed[start.Run.BatchID], "%s was missed and started", start.Run.BatchID)
		}
		axtest.NothingTwice(t, x)
		s.LedgerClean(t)
	})
}

// M1: what is planned once more although it has its row, as an edit on a busy machine makes it, keeps that one fate: no span of
// missed firings reaches over it.
func TestWhatHasItsRowIsNotMissed(t *testing.T) {
	axtest.Both(t, func(t *testing.T, o ...axtest.Option) {
		s := axtest.Start(t, o...)
		ns := s.Namespace(t)
		x := ns.App("app").Worker(axtest.Succeed)
		var ids []string
		for _, p := range []string{"skip", "once", "all"} {
			ids = append(ids, ns.Job(axtest.Def{"name": p, "misfire": map[string]any{"policy": p}, "triggers": every("1s"), "concurrency": policy("allow", 0)}))
		}
		axtest.WaitFor(t, "they fire", func() bool { return len(x.Starts()) > 9 && x.TookAll() })
		s.Stop()
		axtest.Pause(6 * time.Second)
		overdue(t, s, 30*time.Second)
		s.Restart()
		n := len(x.Starts())
		axtest.WaitFor(t, "they go on", func() bool { return len(x.Starts()) > n+9 })
		for _, id := range ids {
			disable(t, ns, id)
		}
		axtest.WaitFor(t, "all has ended", func() bool {
			return !slices.ContainsFunc(ids, func(id string) bool {
				return slices.ContainsFunc(ns.Batches(id), func(b axtest.Batch) bool { return !b.Final() })
			})
		})
		axtest.NothingTwice(t, x)
		s.LedgerClean(t)
	})
}
