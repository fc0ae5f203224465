package main

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/ax-scheduler/ax/internal/storetest"
	"github.com/ax-scheduler/ax/server/app"
	"github.com/ax-scheduler/ax/server/axtest"
	"github.com/ax-scheduler/ax/server/cli"
)

// C267: what ran while the server was restarted is UNKNOWN, then what its executor says, and
// nothing starts twice.
func TestARestartStartsNothingTwice(t *testing.T) {
	axtest.Both(t, func(t *testing.T, o ...axtest.Option) {
		s := axtest.Start(t, o...)
		ns := s.Namespace(t)
		app := ns.App("app")
		hold := make(chan struct{})
		work := func(_ context.Context, run axtest.Run) axtest.Result {
			if run.Trigger == "manual" {
				<-hold
			}
			return axtest.Result{}
		}
		list := []*axtest.Executor{app.Worker(work), app.Worker(work)}
		job := ns.Job(axtest.Def{"name": "long", "retry": retries(3)})
		id := ns.Trigger(job)
		ns.Reaches(id, "RUNNING")
		queued := ns.Job(axtest.Def{"name": "queued", "concurrency": policy("queueAll", 1)})
		waiting := []string{ns.Trigger(queued), ns.Trigger(queued), ns.Trigger(queued)}
		busy := ns.Job(axtest.Def{"name": "busy", "triggers": every("1s"), "concurrency": policy("allow", 0)})
		for range 2 {
			s.Stop()
			for _, x := range list {
				x.Silence(true)
			}
			s.Again()
			b := ns.Batch(id)
			require.Equal(t, "UNKNOWN", b.State, "nobody has said anything yet")
			require.Equal(t, "UNKNOWN", b.Executions[0].State)
			for _, x := range list {
				x.Silence(false)
			}
			ns.Reaches(id, "RUNNING")
		}
		// The job that runs holds its place over the restart.
		require.Equal(t, "SKIPPED", ns.Ended(ns.Trigger(job)).State)
		close(hold)
		require.Equal(t, "SUCCEEDED", ns.Ended(id).State)
		for _, w := range waiting {
			require.Equal(t, "SUCCEEDED", ns.Ended(w).State)
		}
		disable(t, ns, busy)
		fates(t, ns, busy, time.Second, list...)
		axtest.NothingTwice(t, list...)
		s.LedgerClean(t)
	})
}

// fates checks that the firings of a fixed-rate job that is switched off have no hole and no
// double, that each ended, and that what ran is in a ledger once.
func fates(t *testing.T, ns *axtest.Namespace, job string, every time.Duration, list ...*axtest.Executor) {
	t.Helper()
	var all []axtest.Batch
	axtest.WaitUpTo(t, 2*axtest.Patience, "all firings have ended", func() bool {
		all = ns.Batches(job)
		for _, b := range all {
			if !b.Final() {
				return false
			}
		}
		return true
	})
	due := map[int64]string{}
	low, high := int64(1<<62), int64(0)
	for _, b := range all {
		if b.Trigger == "manual" {
			continue
		}
		at := b.DueAt.UnixMilli()
		last := at
		if b.State == "MISSED" && b.MissedLast != nil {
			last = b.MissedLast.UnixMilli()
		}
		for ; at <= last; at += every.Milliseconds() {
			require.NotContains(t, due, at, "two fates of one firing")
			due[at] = b.State
			low, high = min(low, at), max(high, at)
		}
	}
	require.NotEmpty(t, due)
	for at := low; at <= high; at += every.Milliseconds() {
		require.Contains(t, due, at, "a firing without a fate")
	}
	starts := map[string]int{}
	for _, x := range axtest.Ledger(list...) {
		starts[x.Run.BatchID]++
	}
	for _, b := range all {
		if b.State == "SUCCEEDED" {
			require.Equal(t, 1, starts[b.BatchID], b.BatchID)
		}
	}
}

// C252, F1: a hundred firings that a killed server had made durable all have a fate, once.
func TestAKilledServerLosesNothing(t *testing.T) {
	axtest.Both(t, func(t *testing.T, o ...axtest.Option) {
		const jobs, grid = 100, 10 * time.Second
		s := axtest.Start(t, append(o, axtest.Process())...)
		ns := s.Namespace(t)
		app := ns.App("app")
		list := []*axtest.Executor{app.Worker(axtest.Succeed), app.Worker(axtest.Succeed)}
		var ids []string
		for i := range jobs {
			ids = append(ids, ns.Job(axtest.Def{"name": fmt.Sprint("job ", i), "concurrency": policy("allow", 0), "misfire": map[string]any{"policy": "all"}, "triggers": every(grid.String())}))
		}
		// All are due at one instant, and it has been made durable when the server dies.
		due := time.Now().Add(2 * time.Second).Truncate(grid).Add(grid)
		axtest.Pause(time.Until(due) - 200*time.Millisecond)
		s.Kill()
		axtest.Pause(time.Until(due.Add(time.Second)))
		s.Again()
		for _, id := range ids {
			axtest.WaitFor(t, "job "+id+" has fired", func() bool {
				n := 0
				for _, b := range ns.Batches(id) {
					if b.DueAt.Equal(due) && b.State == "SUCCEEDED" {
						n++
					}
				}
				require.LessOrEqual(t, n, 1)
				return n == 1
			})
		}
		ran := 0
		for _, st := range axtest.Ledger(list...) {
			if st.Run.DueAt == due.UnixMilli() {
				ran++
			}
		}
		require.Equal(t, jobs, ran)
		axtest.NothingTwice(t, list...)
		s.LedgerClean(t)
	})
}

// F1, F27: a server killed at random moments of a busy time loses no firing and starts none twice.
func TestKillsAtRandomMoments(t *testing.T) {
	axtest.Both(t, func(t *testing.T, o ...axtest.Option) {
		s := axtest.Start(t, append(o, axtest.Process())...)
		ns := s.Namespace(t)
		app := ns.App("app")
		list := []*axtest.Executor{app.Worker(axtest.For(300 * time.Millisecond)), app.Worker(axtest.For(300 * time.Millisecond))}
		var jobs []string
		for i := range 5 {
			jobs = append(jobs, ns.Job(axtest.Def{"name": fmt.Sprint("busy ", i), "triggers": every("1s"), "concurrency": policy("allow", 0), "misfire": map[string]any{"policy": "all"}}))
		}
		for i := range 3 {
			axtest.Pause(time.Duration(1500+i*370) * time.Millisecond)
			s.Kill()
			s.Again()
		}
		axtest.Pause(2 * time.Second)
		for _, job := range jobs {
			disable(t, ns, job)
		}
		for _, job := range jobs {
			fates(t, ns, job, time.Second, list...)
		}
		axtest.NothingTwice(t, list...)
		s.LedgerClean(t)
	})
}

// C248, C249, C251, C257: what a job that was due while nobody could fire it does afterwards.
func TestMisfire(t *testing.T) {
	axtest.Both(t, func(t *testing.T, o ...axtest.Option) {
		s := axtest.Start(t, o...)
		ns := s.Namespace(t)
		x := ns.App("app").Worker(axtest.Succeed)
		anchor := time.Now().UTC().Truncate(time.Hour)
		rate := []map[string]any{{"kind": "fixedRate", "every": "2s", "anchor": anchor.Format(time.RFC3339)}}
		jobs := map[string]string{}
		for _, p := range []string{"skip", "once", "all"} {
			jobs[p] = ns.Job(axtest.Def{"name": p, "triggers": rate, "concurrency": policy("allow", 0), "misfire": map[string]any{"policy": p, "max": 2}})
		}
		jobs["off"] = ns.Job(axtest.Def{"name": "off", "triggers": rate, "concurrency": policy("allow", 0), "misfire": map[string]any{"policy": "all"}})
		axtest.WaitFor(t, "all have fired", func() bool { return len(x.Starts()) >= 4 })
		disable(t, ns, jobs["off"])
		s.Stop()
		down := time.Now()
		axtest.Pause(12 * time.Second)
		s.Again()
		up := time.Now()
		enabled := time.Now() // not before this; the call may take a while
		a := ns.Client.Do(t, http.MethodPost, ns.Path("/jobs/"+jobs["off"]+"/enable"), map[string]any{})
		require.Equal(t, http.StatusOK, a.Status, a.Text())
		axtest.Pause(4 * time.Second)
		for _, id := range jobs {
			disable(t, ns, id)
		}
		caught := map[string][]int64{}
		for p, id := range jobs {
			fatesOf := ns.Batches(id)
			for _, b := range fatesOf {
				require.Zero(t, b.DueAt.Sub(anchor)%(2*time.Second), "the grid is the anchor's, not the restart's")
				if b.State != "MISSED" && b.Reason != nil && strings.HasPrefix(b.Code(), "misfire_") {
					caught[p] = append(caught[p], b.DueAt.UnixMilli())
				}
			}
			if p != "off" {
				fates(t, ns, id, 2*time.Second, x)
			}
		}
		// The newest firing that was more than five seconds late, and those before it.
		require.Empty(t, caught["skip"])
		require.Len(t, caught["once"], 1)
		require.Len(t, caught["all"], 2, "as many as max says")
		require.Equal(t, caught["once"][0], max(caught["all"][0], caught["all"][1]), "the newest")
		require.EqualValues(t, 2000, max(caught["all"][0], caught["all"][1])-min(caught["all"][0], caught["all"][1]))
		require.Empty(t, caught["off"])
		for _, d := range x.Deliveries() {
			if d.Run.Job.ID == jobs["off"] {
				require.False(t, d.Run.DueAt > down.UnixMilli() && d.Run.DueAt < enabled.UnixMilli(), "the time while it was off is not missed")
			}
			if d.Run.Job.ID == jobs["skip"] && d.At.After(up) {
				require.Greater(t, d.Run.DueAt, up.Add(-6*time.Second).UnixMilli(), "skip lets nothing old run")
			}
		}
		axtest.NothingTwice(t, x)
		s.LedgerClean(t)
	})
}

// C255: five hundred overdue jobs, one of them with a stored expression that is broken.
func TestABrokenTriggerStopsNobody(t *testing.T) {
	axtest.Both(t, func(t *testing.T, o ...axtest.Option) {
		const jobs = 150
		s := axtest.Start(t, o...)
		ns := s.Namespace(t)
		x := ns.App("app").Worker(axtest.Succeed)
		var ids []string
		for i := range jobs {
			// The last planned instant lies hours back, before there was a job: what has run once is not
			// run again, so an instant that passes while the jobs are being made would spoil the count.
			ids = append(ids, ns.Job(axtest.Def{"name": fmt.Sprint("job ", i), "misfire": map[string]any{"policy": "once", "window": "48h"}, "triggers": every("24h")}))
		}
		s.Stop()
		stopped := time.Now()
		past := stopped.Add(-25 * time.Hour).UnixMilli()
		c := s.Config()
		db := storetest.SQL(t, c.Database, c.Data)
		_, err := db.ExecContext(context.Background(), "UPDATE job_trigger SET next_due_hint = ?", past)
		require.NoError(t, err)
		_, err = db.ExecContext(context.Background(), "UPDATE job_trigger SET spec = ?, next_due_hint = ? WHERE job_id = ?", `{"no":1,"kind":"cron","expr":"not a schedule","zone":"UTC"}`, past-1000, ids[3])
		require.NoError(t, err)
		require.NoError(t, db.Close())
		s.Again()
		axtest.WaitFor(t, "all the others have caught up", func() bool {
			done := map[string]bool{}
			for _, st := range x.Starts() {
				if st.At.After(stopped) {
					done[st.Run.Job.ID] = true
				}
			}
			return len(done) == jobs-1 && !done[ids[3]]
		})
		require.Contains(t, s.Log(), "trigger not understood")
		axtest.NothingTwice(t, x)
		s.LedgerClean(t)
	})
}

// F3, F7, T-OPS-2: the database is away for a while. The server lives and says that it is not
// ready; when the database is back no firing is lost and none runs twice.
func TestTheDatabaseIsAway(t *testing.T) {
	t.Parallel()
	dsn := storetest.Database(t)
	u, err := url.Parse(dsn)
	require.NoError(t, err)
	p := axtest.NewProxy(t, u.Host)
	u.Host = p.Address
	s := axtest.Start(t, axtest.Database(u.String()))
	ns := s.Namespace(t)
	app := ns.App("app")
	work := axtest.For(200 * time.Millisecond)
	list := []*axtest.Executor{app.Worker(work), app.Worker(work)}
	busy := ns.Job(axtest.Def{"triggers": every("1s"), "concurrency": policy("allow", 0), "misfire": map[string]any{"policy": "all"}})
	ns.App("lonely")
	alone := ns.Job(axtest.Def{"name": "nobody", "app": "lonely", "retry": retries(2), "concurrency": policy("allow", 0)})
	axtest.WaitFor(t, "it is busy", func() bool { return len(axtest.Ledger(list...)) >= 2 })
	for _, away := range []time.Duration{700 * time.Millisecond, 3 * time.Second, 8 * time.Second} {
		// An attempt that will fail for want of an executor just when nothing can be written.
		waiting := ns.Trigger(alone)
		axtest.Pause(300 * time.Millisecond)
		p.Cut(true)
		if away > 7*time.Second {
			axtest.WaitFor(t, "it says that it is not ready", func() bool { return s.Status("/readyz") == http.StatusServiceUnavailable })
			a, err := ns.Client.Try(http.MethodGet, ns.Path("/jobs"), nil)
			require.NoError(t, err)
			require.Equal(t, http.StatusServiceUnavailable, a.Status, a.Text())
			require.NotContains(t, a.Text(), "127.0.0.1", "where the database is is nobody's business")
		}
		axtest.Pause(away)
		require.Equal(t, http.StatusOK, s.Status("/livez"))
		p.Cut(false)
		axtest.WaitFor(t, "it is ready again", func() bool { return s.Status("/readyz") == http.StatusOK && s.Metric("ax_buckets_owned") == 64 })
		require.Equal(t, "FAILED", ns.Ended(waiting).State, "away for %s", away)
		axtest.Pause(1200 * time.Millisecond)
	}
	disable(t, ns, busy)
	fates(t, ns, busy, time.Second, list...)
	axtest.NothingTwice(t, list...)
	s.LedgerClean(t)
}

// Two servers on one SQLite would both own every bucket: the second one is refused.
func TestASecondServerOnTheSameDataIsRefused(t *testing.T) {
	t.Parallel()
	s := axtest.Start(t)
	_, err := app.New(s.Config(), nil, io.Discard)
	require.ErrorContains(t, err, "another ax-server uses the data directory "+s.Data())
	require.Equal(t, http.StatusOK, s.Status("/readyz"), "the first one goes on")
}

func TestWhatKeepsAServerFromStarting(t *testing.T) {
	t.Parallel()
	serve := func(args ...string) (code int, said string) {
		ctx, cancel := context.WithTimeout(context.Background(), axtest.Patience)
		defer cancel()
		var out strings.Builder
		code = cli.Run(ctx, append([]string{"serve"}, args...), strings.NewReader(""), &out, &out)
		require.NoError(t, ctx.Err(), "it ended by itself")
		return code, out.String()
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	defer func() { _ = l.Close() }()
	t.Run("its port is taken", func(t *testing.T) {
		code, said := serve("--data", t.TempDir(), "--listen", l.Addr().String())
		require.Equal(t, 1, code, said)
		require.Contains(t, said, "listen on "+l.Addr().String())
		require.Contains(t, said, "--listen")
	})
	t.Run("settings that are not understood", func(t *testing.T) {
		file := filepath.Join(t.TempDir(), "ax.yaml")
		require.NoError(t, os.WriteFile(file, []byte("listen: [\n"), 0o600))
		code, said := serve("--config", file)
		require.Equal(t, 2, code, said)
		require.Contains(t, said, file)
		require.NoError(t, os.WriteFile(file, []byte("lisen: 127.0.0.1:0\n"), 0o600))
		code, said = serve("--config", file)
		require.Equal(t, 2, code, said)
		require.Contains(t, said, `"lisen"`)
		code, said = serve("--config", filepath.Join(t.TempDir(), "none.yaml"))
		require.Equal(t, 2, code, said)
		require.Contains(t, said, "none.yaml")
		code, said = serve("--executor-heartbeat", "1")
		require.Equal(t, 2, code, said)
		require.Contains(t, said, `executor-heartbeat = "1" (flag --executor-heartbeat)`)
		code, said = serve("--listen", "0.0.0.0:0")
		require.Equal(t, 2, code, said)
		require.Contains(t, said, "allow-plain-http")
		code, said = serve("--database", "mysql://ax:geheim42@", "--data", t.TempDir(), "--listen", "127.0.0.1:0")
		require.NotZero(t, code, said)
		require.NotContains(t, said, "geheim42")
	})
	t.Run("another master key", func(t *testing.T) {
		s := axtest.Start(t)
		s.Stop()
		key := filepath.Join(s.Data(), "master.key")
		was, err := os.ReadFile(key)
		require.NoError(t, err)
		require.NoError(t, os.Remove(key))
		code, said := serve("--data", s.Data(), "--listen", "127.0.0.1:0")
		require.Equal(t, 1, code, said)
		require.Contains(t, said, "master.key")
		require.NoError(t, os.WriteFile(key, []byte("nonsense\n"), 0o600))
		code, said = serve("--data", s.Data(), "--listen", "127.0.0.1:0")
		require.Equal(t, 1, code, said)
		require.Contains(t, said, "master.key")
		require.NotContains(t, said, "nonsense", "what is in the file is not told")
		require.NoError(t, os.WriteFile(key, was, 0o600))
		s.Again()
	})
}
