package main

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/ax-scheduler/ax/internal/storetest"
	"github.com/ax-scheduler/ax/server/axtest"
)

// Those that measure time run beside no other.

// B17: any call may reach any replica. Everything here is asked of one that does not own the namespace.
func TestAnyReplicaTakesAnyCall(t *testing.T) {
	t.Parallel()
	list := axtest.Replicas(t, 3)
	home := list[0].Namespace(t)
	owner, others := axtest.Owner(t, home, list...)
	ns := home.At(others[0])
	app := ns.App("app")
	x := app.At(others[1]).Worker(axtest.Succeed)
	slow := app.At(others[0]).Executor(map[string]axtest.Handler{"long": axtest.UntilStopped})

	t.Run("an edit, a run and its result", func(t *testing.T) {
		job := ns.Job(axtest.Def{})
		b := ns.Ended(ns.Trigger(job))
		require.Equal(t, "SUCCEEDED", b.State)
		v := ns.JobView(job)
		a := ns.Client.Do(t, http.MethodPost, ns.Path("/jobs/"+job+"/disable"), map[string]any{"version": v.Version})
		require.Equal(t, http.StatusOK, a.Status, a.Text())
		require.False(t, home.At(others[1]).JobView(job).Enabled)
		axtest.NothingTwice(t, x)
	})
	t.Run("the trail names the caller", func(t *testing.T) {
		job := ns.Job(axtest.Def{"name": "audited"})
		a := ns.Client.Do(t, http.MethodPost, ns.Path("/jobs/"+job+"/trigger"), map[string]any{})
		require.Equal(t, http.StatusOK, a.Status, a.Text())
		id := a.Header.Get("X-Request-Id")
		require.NotEmpty(t, id)
		require.True(t, slices.ContainsFunc(others[1].Audit(t, "namespace="+ns.Name+"&action=job.run"), func(e axtest.Audit) bool {
			return e.RequestID == id && e.Actor.Name == "admin"
		}))
	})
	t.Run("a stop", func(t *testing.T) {
		job := ns.Job(axtest.Def{"name": "long", "handler": "long"})
		id := ns.Trigger(job)
		ns.Reaches(id, "RUNNING")
		a := ns.Client.Do(t, http.MethodPost, ns.Path("/batches/"+id+"/cancel"), nil)
		require.Equal(t, http.StatusAccepted, a.Status, a.Text())
		require.Equal(t, "CANCELLED", ns.Ended(id).State)
		require.Len(t, slow.Kills(), 1)
	})
	t.Run("output", func(t *testing.T) {
		job := ns.Job(axtest.Def{"name": "talks"})
		b := ns.Ended(ns.Trigger(job))
		i := slices.IndexFunc(x.Starts(), func(s axtest.Started) bool { return s.Run.BatchID == b.BatchID })
		x.Write(x.Starts()[i].Run, 1, "hello from elsewhere\n")
		require.Equal(t, "hello from elsewhere\n", home.Output(b.Executions[0].ID))
	})
	t.Run("a delayed task with a key, and events", func(t *testing.T) {
		job := ns.Job(axtest.Def{"name": "asked", "triggers": []map[string]any{{"kind": "event"}}})
		ask := map[string]any{"delay": "1h", "key": "order-1"}
		a := ns.Client.Do(t, http.MethodPost, ns.Path("/jobs/"+job+"/delayed"), ask)
		require.Equal(t, http.StatusCreated, a.Status, a.Text())
		a = home.At(others[1]).Client.Do(t, http.MethodPost, ns.Path("/jobs/"+job+"/delayed"), ask)
		require.Equal(t, http.StatusConflict, a.Status, a.Text())
		require.Equal(t, "key_taken", a.Problem(t).Code)
		send := func(s *axtest.Server, body string) axtest.Answer {
			c := home.At(s).Client
			c.Header = http.Header{"Idempotency-Key": {"event-1"}}
			return c.Do(t, http.MethodPost, "/api/v1/tasks/"+job+"/events", []byte(body))
		}
		first := send(others[0], `{"order":1}`)
		require.Equal(t, http.StatusAccepted, first.Status, first.Text())
		again := send(others[1], `{"order":1}`)
		require.Contains(t, []int{http.StatusOK, http.StatusAccepted}, again.Status, again.Text())
		var one, two struct {
			BatchID string `json:"batchId"`
		}
		first.Into(t, &one)
		again.Into(t, &two)
		require.Equal(t, one.BatchID, two.BatchID)
		require.Equal(t, http.StatusConflict, send(owner, `{"order":2}`).Status)
		require.Equal(t, "SUCCEEDED", ns.Ended(one.BatchID).State)
	})
	t.Run("what only the owner's memory knows", func(t *testing.T) {
		for _, s := range list {
			states := map[string]int{}
			for _, e := range home.At(s).Executors() {
				states[e.State]++
			}
			require.Equal(t, map[string]int{"ONLINE": 2}, states)
		}
	})
	t.Run("executors learn where the owner is", func(t *testing.T) {
		status, raw := x.Post("/ax/registry", x.Registration())
		require.Equal(t, http.StatusOK, status, string(raw))
		var reply struct {
			Owner string `json:"owner"`
		}
		require.NoError(t, json.Unmarshal(raw, &reply))
		require.Equal(t, owner.URL(), reply.Owner)
	})
	t.Run("nobody else speaks for a replica", func(t *testing.T) {
		c := home.At(others[0]).Client
		c.Header = http.Header{"Ax-Peer": {"eyJhbGciOiJub25lIn0.e30."}}
		a := c.Do(t, http.MethodGet, ns.Path("/executors"), nil)
		require.Equal(t, http.StatusUnauthorized, a.Status)
		require.Equal(t, "bad_peer", a.Problem(t).Code)
	})
	// What is for the bucket of another namespace is nobody's to report.
	t.Run("a key speaks for its own bucket only", func(t *testing.T) {
		other := list[0].Namespace(t)
		y := other.App("app").Worker(axtest.Succeed)
		b := other.Ended(other.Trigger(other.Job(axtest.Def{})))
		require.Equal(t, "SUCCEEDED", b.State)
		require.Equal(t, []string{"unknown"}, x.Report(axtest.ResultOf(y.Starts()[0].Run, "FAILED", "not mine")))
	})
	type system struct {
		Replicas []struct {
			ID, Address, State string
			Buckets            int
		}
		Buckets []struct {
			Bucket     int
			Owner      string
			PinnedTo   string
			Namespaces []string
		}
		Moves []struct {
			Bucket int
			Reason axtest.Reason
		}
	}
	admin := others[0].Admin(t)
	look := func() (s system, mine int) {
		admin.Get(t, "/api/v1/system", &s)
		for i, b := range s.Buckets {
			if slices.Contains(b.Namespaces, ns.Name) {
				mine = i
			}
		}
		return s, mine
	}
	idOf := func(of *axtest.Server) string {
		s, _ := look()
		for _, r := range s.Replicas {
			if "http://"+r.Address == of.URL() {
				return r.ID
			}
		}
		t.Fatal("no such replica")
		return ""
	}
	t.Run("a bucket is moved and a replica drained", func(t *testing.T) {
		s, mine := look()
		require.Len(t, s.Replicas, 3)
		require.Len(t, s.Buckets, 64)
		require.Equal(t, idOf(owner), s.Buckets[mine].Owner)
		to := idOf(others[1])
		a := admin.Do(t, http.MethodPost, fmt.Sprintf("/api/v1/system/buckets/%d/move", mine), map[string]any{"to": to})
		require.Equal(t, http.StatusOK, a.Status, a.Text())
		axtest.WaitUpTo(t, 5*time.Second, "the bucket is there", func() bool { s, mine := look(); return s.Buckets[mine].Owner == to })
		axtest.Even(t, list...)
		require.Equal(t, "SUCCEEDED", ns.Ended(ns.Trigger(ns.Job(axtest.Def{"name": "after the move"}))).State)
		s, _ = look()
		require.True(t, slices.ContainsFunc(s.Moves, func(m struct {
			Bucket int
			Reason axtest.Reason
		},
		) bool {
			return m.Bucket == mine && m.Reason.Code == "move_asked"
		}))
		a = admin.Do(t, http.MethodPost, fmt.Sprintf("/api/v1/system/buckets/%d/move", mine), map[string]any{"to": "nobody"})
		require.Equal(t, http.StatusUnprocessableEntity, a.Status)
		require.Equal(t, "bad_replica", a.Problem(t).Errors[0].Code)

		a = admin.Do(t, http.MethodPost, "/api/v1/system/replicas/"+to+"/drain", nil)
		require.Equal(t, http.StatusOK, a.Status, a.Text())
		axtest.WaitFor(t, "it owns nothing", func() bool { return others[1].Metric("ax_buckets_owned") == 0 })
		axtest.Even(t, owner, others[0])
		require.Equal(t, "SUCCEEDED", ns.Ended(ns.At(others[1]).Trigger(ns.Job(axtest.Def{"name": "by way of the drained one"}))).State)
		for _, s := range []*axtest.Server{owner, others[0]} {
			a = admin.Do(t, http.MethodPost, "/api/v1/system/replicas/"+idOf(s)+"/drain", nil)
		}
		require.Equal(t, http.StatusConflict, a.Status)
		require.Equal(t, "last_replica", a.Problem(t).Code)
		for _, s := range []*axtest.Server{owner, others[1]} {
			a = admin.Do(t, http.MethodPost, "/api/v1/system/replicas/"+idOf(s)+"/resume", nil)
			require.Equal(t, http.StatusOK, a.Status, a.Text())
		}
		axtest.Even(t, list...)
		require.GreaterOrEqual(t, len(others[0].Audit(t, "action=system.update")), 4)
	})
	owner.LedgerClean(t)
}

// load is jobs of several namespaces that fire every second, and their executors.
type load struct {
	spaces    []*axtest.Namespace
	executors []*axtest.Executor
	jobs      [][]string
}

func newLoad(t *testing.T, list []*axtest.Server, spaces, jobs int, every string, work axtest.Handler) *load {
	t.Helper()
	l := &load{}
	for i := range spaces {
		ns := list[0].Namespace(t)
		turned := append(slices.Clone(list[i%len(list):]), list[:i%len(list)]...)
		app := ns.App("app")
		for range 2 {
			l.executors = append(l.executors, app.At(turned...).Worker(work))
		}
		var ids []string
		for j := range jobs {
			ids = append(ids, ns.Job(axtest.Def{"name": fmt.Sprint("job ", j), "concurrency": policy("allow", 0), "misfire": map[string]any{"policy": "all"}, "triggers": []map[string]any{{"kind": "fixedRate", "every": every}}}))
		}
		l.spaces, l.jobs = append(l.spaces, ns), append(l.jobs, ids)
	}
	return l
}

// end switches everything off by way of a server and waits until what fired has ended.
func (l *load) end(t *testing.T, by *axtest.Server) {
	t.Helper()
	for i, ns := range l.spaces {
		at := ns.At(by)
		for _, id := range l.jobs[i] {
			v := at.JobView(id)
			axtest.WaitFor(t, "the job is switched off", func() bool {
				a, err := at.Client.Try(http.MethodPost, at.Path("/jobs/"+id+"/disable"), map[string]any{"version": v.Version})
				return err == nil && a.Status == http.StatusOK
			})
		}
	}
	for i, ns := range l.spaces {
		at := ns.At(by)
		for _, id := range l.jobs[i] {
			axtest.WaitFor(t, "what fired has ended", func() bool {
				return !slices.ContainsFunc(at.Batches(id), func(b axtest.Batch) bool { return !b.Final() })
			})
		}
	}
}

// late lists how late each start was that was due between two instants, in order.
func (l *load) late(from, to time.Time) (out []time.Duration) {
	for _, s := range axtest.Ledger(l.executors...) {
		due := time.UnixMilli(s.Run.DueAt)
		if s.Run.Attempt == 1 && !due.Before(from) && due.Before(to) {
			out = append(out, s.At.Sub(due))
		}
	}
	slices.Sort(out)
	return out
}

// check requires that every firing has its fate, every one that ran was started once, and each start was of a
// firing that succeeded.
func (l *load) check(t *testing.T, by *axtest.Server) {
	t.Helper()
	by.LedgerClean(t)
	axtest.NothingTwice(t, l.executors...)
	starts := map[string]int{}
	for _, s := range axtest.Ledger(l.executors...) {
		starts[s.Run.BatchID]++
	}
	for i, ns := range l.spaces {
		at := ns.At(by)
		for _, id := range l.jobs[i] {
			for _, b := range at.Batches(id) {
				switch b.State {
				case "SUCCEEDED":
					require.NotZero(t, starts[b.BatchID], "%s ran nowhere", b.BatchID)
				case "MISSED": // a catch-up that the end of the load found waiting
					require.Equal(t, "missed_paused", b.Code(), b.BatchID)
				default:
					require.Contains(t, []string{"SKIPPED", "CANCELLED"}, b.State, "%s: %s", b.BatchID, b.Code())
				}
			}
		}
	}
}

func percentile(sorted []time.Duration, p float64) time.Duration {
	return sorted[min(int(p*float64(len(sorted))), len(sorted)-1)]
}

// M11, F23: three replicas are restarted one after the other while hundreds of jobs fire each second and
// somebody uses the API. Nothing is lost or doubled, the trigger error's 99th percentile stays under a second, and every call
// succeeds when it is repeated as its answer asks for.
func TestARollingRestartHasNoGap(t *testing.T) {
	list := axtest.Replicas(t, 3)
	l := newLoad(t, list, 6, 25, "1s", axtest.Succeed)
	from := time.Now().Add(time.Second)
	done := make(chan struct{})
	var calls sync.WaitGroup
	calls.Go(func() {
		ns := l.spaces[0]
		job := l.jobs[0][0]
		for i := 0; ; i++ {
			select {
			case <-done:
				return
			default:
			}
			for try := 0; ; try++ {
				at := ns.At(list[(i+try)%len(list)])
				a, err := at.Client.Try(http.MethodPost, at.Path("/jobs/"+job+"/trigger"), map[string]any{})
				if err == nil && a.Status == http.StatusOK {
					break
				}
				if err == nil && a.Status != http.StatusServiceUnavailable || try == 40 {
					t.Errorf("the API answered %d %s %v", a.Status, a.Text(), err)
					return
				}
				axtest.Pause(100 * time.Millisecond)
			}
			axtest.Pause(50 * time.Millisecond)
		}
	})
	for _, s := range list {
		axtest.Pause(time.Second)
		at := time.Now()
		s.Stop()
		t.Logf("stopped in %s", time.Since(at))
		s.Again()
		axtest.Even(t, list...)
		t.Logf("even again %s after the signal", time.Since(at))
		require.Less(t, time.Since(at), 20*time.Second)
	}
	to := time.Now()
	axtest.Pause(time.Second)
	close(done)
	calls.Wait()
	l.end(t, list[0])
	l.check(t, list[0])
	late := l.late(from, to)
	require.Greater(t, len(late), 500)
	t.Logf("%d firings: p50 %s, p99 %s, max %s", len(late), percentile(late, 0.5), percentile(late, 0.99), late[len(late)-1])
	require.Less(t, percentile(late, 0.99), time.Second)
}

// S11, F1, P7: the owner is killed. The others fire in its place within a second, what runs is left alone and ends as
// what it is, and nothing is lost or doubled.
func TestTheOthersTakeOverFromAKilledServer(t *testing.T) {
	list := axtest.Replicas(t, 3)
	l := newLoad(t, list, 3, 20, "1s", axtest.Succeed)
	owner, others := axtest.Owner(t, l.spaces[0], list...)
	ns := l.spaces[0].At(others[0])
	long := ns.App("long")
	x := long.At(others...).Worker(axtest.For(5 * time.Second))
	id := ns.Trigger(ns.Job(axtest.Def{"name": "long", "app": "long"}))
	ns.Reaches(id, "RUNNING")
	// It dies with everything made durable that is due in a few milliseconds, and nothing of it sent.
	axtest.Pause(time.Until(time.Now().Truncate(time.Second).Add(2*time.Second - 4*time.Millisecond)))
	at := time.Now()
	owner.Kill()
	axtest.Pause(3 * time.Second)
	late := l.late(at, at.Add(time.Second))
	require.NotEmpty(t, late)
	t.Logf("after the kill: %d firings due in the first second, the latest %s late", len(late), late[len(late)-1])
	require.Less(t, late[len(late)-1], time.Second)

	b := ns.Ended(id)
	require.Equal(t, "SUCCEEDED", b.State)
	require.Len(t, b.Executions, 1, "what ran was not disturbed")
	require.Len(t, x.Starts(), 1)
	require.Empty(t, x.Kills())
	owner.Again()
	axtest.Even(t, list...)
	l.end(t, others[0])
	l.check(t, others[0])
}

// F11, C253: a server is paused for longer than it is believed to live, and wakes: it does nothing, finds out, and
// takes part again. The others have taken over within five seconds, as after the loss of its host.
func TestAPausedServerThatWakesDoesNothing(t *testing.T) {
	list := axtest.Replicas(t, 3)
	l := newLoad(t, list, 3, 20, "1s", axtest.Succeed)
	owner, others := axtest.Owner(t, l.spaces[0], list...)
	ns := l.spaces[0].At(others[0])
	x := ns.App("long").At(others...).Worker(axtest.For(7 * time.Second))
	id := ns.Trigger(ns.Job(axtest.Def{"name": "long", "app": "long"}))
	ns.Reaches(id, "RUNNING")
	axtest.Pause(time.Second)
	at := time.Now()
	owner.Signal(syscall.SIGSTOP)
	axtest.Pause(6 * time.Second)
	late := l.late(at, at.Add(time.Second))
	require.NotEmpty(t, late)
	t.Logf("after the pause: %d firings due in the first second, the latest %s late", len(late), late[len(late)-1])
	require.Less(t, late[len(late)-1], 5*time.Second)
	owner.Signal(syscall.SIGCONT)
	b := ns.Ended(id)
	require.Equal(t, "SUCCEEDED", b.State)
	require.Len(t, x.Starts(), 1)
	axtest.Even(t, list...)
	l.end(t, owner)
	l.check(t, owner)
}

// §3, 4.2 ("result callback lost"): the owner lives and can not be reached from the replica that an executor
// talks to. Results and heartbeats are made durable there and applied by the owner, output is stored, what needs the owner's answer is
// refused with the request to send it again.
func TestWhatComesWhileTheOwnerCanNotBeReached(t *testing.T) {
	t.Parallel()
	a := axtest.Start(t, axtest.Database(storetest.Database(t)), axtest.Set("advertise-addr", "127.0.0.1:9"))
	b := a.Beside()
	b.Begin()
	b.WaitReady()
	axtest.Even(t, a, b)
	ns := a.Namespace(t)
	for b.Owns(ns) {
		ns = a.Namespace(t)
	}
	x := ns.App("app").At(a, b).Executor(map[string]axtest.Handler{"work": axtest.Succeed, "long": axtest.UntilStopped})
	x.Through(b)
	// A result and what is written reach the owner all the same, and a heartbeat keeps the executor online.
	done := ns.Ended(ns.Trigger(ns.Job(axtest.Def{})))
	require.Equal(t, "SUCCEEDED", done.State)
	require.Equal(t, []string{"recorded"}, x.Answers())
	x.Write(x.Starts()[0].Run, 1, "by another way\n")
	require.Equal(t, "by another way\n", ns.Output(done.Executions[0].ID))
	long := ns.Trigger(ns.Job(axtest.Def{"name": "long", "handler": "long"}))
	ns.Reaches(long, "RUNNING")
	axtest.Stays(t, 5*time.Second, "its heartbeats arrive", func() bool {
		list := ns.Executors()
		return len(list) == 1 && list[0].State == "ONLINE"
	})
	require.Equal(t, "ONLINE", x.State())
	require.Equal(t, "RUNNING", ns.Batch(long).State)
	// A result that was sent twice has one effect.
	run := x.Starts()[0].Run
	require.Equal(t, []string{"recorded"}, x.Report(axtest.ResultOf(run, "FAILED", "late")))
	axtest.WaitFor(t, "the owner has noted that it came late", func() bool { return slices.Contains(ns.Batch(done.BatchID).Kinds(), "late_result") })
	require.Equal(t, "SUCCEEDED", ns.Batch(done.BatchID).State)
	// An edit needs its answer.
	answer := ns.At(b).Client.Do(t, http.MethodPost, ns.Path("/jobs"), map[string]any{"name": "n", "app": "app", "handler": "work"})
	require.Equal(t, http.StatusServiceUnavailable, answer.Status)
	require.Equal(t, "not_owner", answer.Problem(t).Code)
	require.Equal(t, "1", answer.Header.Get("Retry-After"))
	answer = ns.Client.Do(t, http.MethodPost, ns.Path("/batches/"+long+"/cancel"), nil)
	require.Equal(t, http.StatusAccepted, answer.Status, answer.Text())
	require.Equal(t, "CANCELLED", ns.Ended(long).State)
	axtest.WaitFor(t, "what was applied is gone", func() bool {
		row, err := a.Store().NamespaceByName(t.Context(), ns.Name)
		require.NoError(t, err)
		waiting, err := a.Store().Inbox(t.Context(), []int{row.Bucket}, 100)
		require.NoError(t, err)
		return len(waiting) <= 1 // a heartbeat
	})
	a.LedgerClean(t)
}

// C290: of three servers the one that owns most is killed again and again, and comes back. Every planned instant has one fate,
// whoever was there ran it, and after each kill the jobs go on by themselves.
func TestOwnersAreKilledAgainAndAgain(t *testing.T) {
	t.Parallel()
	list := axtest.Replicas(t, 3)
	l := newLoad(t, list, 3, 2, "2s", axtest.Succeed)
	for round := range 3 {
		axtest.Pause(4 * time.Second)
		owner := slices.MaxFunc(list, func(a, b *axtest.Server) int {
			return cmp.Compare(a.Metric("ax_buckets_owned"), b.Metric("ax_buckets_owned"))
		})
		at := time.Now()
		owner.Kill()
		axtest.WaitFor(t, "all jobs go on", func() bool {
			on := map[string]bool{}
			for _, s := range axtest.Ledger(l.executors...) {
				if time.UnixMilli(s.Run.DueAt).After(at) {
					on[s.Run.Job.ID] = true
				}
			}
			return len(on) == 6
		})
		t.Logf("round %d: all jobs had fired again %s after the kill", round, time.Since(at))
		owner.Again()
		axtest.Even(t, list...)
	}
	l.end(t, list[0])
	for i, ns := range l.spaces {
		for _, id := range l.jobs[i] {
			fates(t, ns.At(list[0]), id, 2*time.Second, l.executors...)
		}
	}
	l.check(t, list[0])
}

// C330, C336: two servers, fifty jobs every second, a database 20 ms away and a processor that others use too: each job has one
// run or one recorded reason for each planned second, none twice, and every schedule goes on to the end.
func TestFiftyJobsASecondOnASlowDatabase(t *testing.T) {
	t.Parallel()
	dsn := storetest.Database(t)
	u, err := url.Parse(dsn)
	require.NoError(t, err)
	p := axtest.NewProxy(t, u.Host)
	u.Host = p.Address
	list := axtest.ReplicasOn(t, []string{u.String(), u.String()})
	l := newLoad(t, list, 2, 25, "1s", axtest.Succeed)
	busy, stop := context.WithCancel(t.Context())
	defer stop()
	for range 2 {
		go func() {
			for busy.Err() == nil { // that is the stress
			}
		}()
	}
	p.Slow(20 * time.Millisecond)
	axtest.Pause(20 * time.Second)
	p.Slow(0)
	stop()
	l.end(t, list[0])
	for i, ns := range l.spaces {
		for _, id := range l.jobs[i] {
			fates(t, ns.At(list[0]), id, time.Second, l.executors...)
			require.GreaterOrEqual(t, len(ns.At(list[0]).Batches(id)), 15, "it went on")
		}
	}
	l.check(t, list[0])
}

// C407: one of fifteen changes of what schedules is the victim of a deadlock. It is tried again, the other jobs go on, and no firing
// is lost or doubled.
func TestDeadlocksInEveryTransaction(t *testing.T) {
	t.Parallel()
	dsn := storetest.Database(t)
	u, err := url.Parse(dsn)
	require.NoError(t, err)
	p := axtest.NewProxy(t, u.Host)
	u.Host = p.Address
	s := axtest.Start(t, axtest.Database(u.String()))
	l := newLoad(t, []*axtest.Server{s}, 3, 5, "1s", axtest.Succeed)
	p.Deadlocks(15)
	axtest.Pause(15 * time.Second)
	n := p.Deadlocks(0)
	require.Greater(t, n, 20, "there were deadlocks")
	t.Logf("%d deadlocks", n)
	l.end(t, s)
	for i, ns := range l.spaces {
		for _, id := range l.jobs[i] {
			fates(t, ns, id, time.Second, l.executors...)
		}
	}
	l.check(t, s)
}
