package main

import (
	"context"
	"encoding/json"
	"net/http"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/ax-scheduler/ax/server/axtest"
)

// The life of a run, from its first attempt to its last word. The cases share one server for each
// database and have a namespace each.
func TestLife(t *testing.T) {
	cases := []shared{
		{"C306 rules by the code of a failure", retryRules},
		{"C301 C307 nothing follows a success", nothingAfterSuccess},
		{"C301 with nobody left the attempts end", executorsLeave},
		{"C303 retries of one firing do not delay the next", retriesDelayNobody},
		{"C309 disabling cancels the retries that wait", disableCancelsRetries},
		{"C309 deleting cancels the retries that wait", deleteCancelsRetries},
		{"M18 cancelling a batch cancels shards that wait and retries in one step", cancelAtOnce},
		{"a retry by hand keeps the history and has a full budget", retryByHand},
		{"one failure for all attempts of a batch", oneFailure},
		{"what waited too long is recorded, or skipped if its job says so", waitedTooLong},
		{"a success has a message and no error", successHasMessage},
		{"B10 an operator's drain takes effect at once", drained},
		{"an executor that never answers a request becomes suspect", deafToRun},
		{"a job that ends its executors is quarantined", quarantined},
		{"P9 a pause of 30 heartbeats re-dispatches nothing", pauseMovesNothing},
		{"C297 a beat that comes late loses no run", lateBeat},
		{"A7 more time is given on request", moreTime},
		{"C312 no limit is no limit", noLimit},
		{"C315 an address that swallows everything holds up nobody else", blackHole},
	}
	axtest.Both(t, func(t *testing.T, o ...axtest.Option) {
		s := axtest.Start(t, o...)
		runShared(t, s, cases)
		s.LedgerClean(t)
	})
}

func retryRules(t *testing.T, ns *axtest.Namespace) {
	x := ns.App("app").Worker(func(_ context.Context, run axtest.Run) axtest.Result {
		return axtest.Result{State: "FAILED", Message: "no", Code: run.Params}
	})
	rules := []map[string]any{{"codes": []string{"BAD.*"}, "do": "never"}, {"codes": []string{"AGAIN"}, "do": "now"}}
	job := func(code, initial string) string {
		return ns.Job(axtest.Def{"name": code, "params": code, "retry": map[string]any{"max": 2, "initial": initial, "backoff": "fixed", "jitter": 0, "rules": rules}})
	}
	never := ns.Ended(ns.Trigger(job("BAD.DAY", "100ms")))
	require.Equal(t, "FAILED", never.State)
	require.Len(t, never.Executions, 1)
	require.Equal(t, "BAD.DAY", never.Executions[0].Code)
	require.Contains(t, never.Kinds(), "not_retried")

	at := time.Now()
	now := ns.Ended(ns.Trigger(job("AGAIN", "1h")))
	require.Equal(t, "FAILED", now.State)
	require.Len(t, now.Executions, 3, "at once still counts")
	require.Less(t, time.Since(at), time.Minute)

	other := ns.Ended(ns.Trigger(job("OTHER", "700ms")))
	require.Len(t, other.Executions, 3)
	var starts []time.Time
	for _, s := range x.Starts() {
		if s.Run.BatchID == other.BatchID {
			starts = append(starts, s.At)
		}
	}
	require.Len(t, starts, 3)
	require.GreaterOrEqual(t, starts[1].Sub(starts[0]), 690*time.Millisecond, "without a rule the policy counts")
}

func nothingAfterSuccess(t *testing.T, ns *axtest.Namespace) {
	x := ns.App("app").Worker(func(_ context.Context, run axtest.Run) axtest.Result {
		if run.Attempt == 1 {
			return axtest.Fail(context.Background(), run)
		}
		return axtest.Result{}
	})
	b := ns.Ended(ns.Trigger(ns.Job(axtest.Def{"routing": strategy("failover"), "retry": retries(5)})))
	require.Equal(t, "SUCCEEDED", b.State)
	axtest.Stays(t, 2*time.Second, "nothing follows", func() bool { return len(x.Starts()) == 2 })
}

func retriesDelayNobody(t *testing.T, ns *axtest.Namespace) {
	x := ns.App("app").Worker(axtest.Fail)
	job := ns.Job(axtest.Def{"concurrency": policy("allow", 0), "retry": map[string]any{"max": 2, "initial": "2s", "backoff": "fixed"}})
	first := ns.Trigger(job)
	axtest.WaitFor(t, "its retry waits", func() bool { return len(ns.Batch(first).Executions) == 2 })
	second := ns.Trigger(job)
	axtest.WaitFor(t, "the next firing starts meanwhile", func() bool {
		for _, s := range x.Starts() {
			if s.Run.BatchID == second {
				return true
			}
		}
		return false
	})
	a, b := ns.Ended(first), ns.Ended(second)
	require.Len(t, a.Executions, 3)
	require.Len(t, b.Executions, 3)
	for _, list := range [][]axtest.Execution{a.Executions, b.Executions} {
		for i, e := range list {
			require.Equal(t, i+1, e.Attempt, "attempts are in order")
		}
	}
	axtest.NothingTwice(t, x)
}

// waitingRetry is a batch that failed once and whose next attempt is far away.
func waitingRetry(t *testing.T, ns *axtest.Namespace) (x *axtest.Executor, job, id string) {
	t.Helper()
	x = ns.App("app").Worker(axtest.Fail)
	job = ns.Job(axtest.Def{"retry": map[string]any{"max": 3, "initial": "8s", "backoff": "fixed"}})
	id = ns.Trigger(job)
	axtest.WaitFor(t, "its retry waits", func() bool { return len(ns.Batch(id).Executions) == 2 })
	return x, job, id
}

func disableCancelsRetries(t *testing.T, ns *axtest.Namespace) {
	x, job, id := waitingRetry(t, ns)
	disable(t, ns, job)
	b := ns.Batch(id)
	require.Equal(t, []string{"CANCELLED", "job_disabled"}, []string{b.State, b.Code()}, "in the same step")
	require.Equal(t, "FAILED", b.Executions[0].State)
	require.Equal(t, "CANCELLED", b.Executions[1].State)
	require.Equal(t, 1, b.ShardsDone)
	axtest.Stays(t, 9*time.Second, "no attempt comes", func() bool { return len(x.Starts()) == 1 })
}

func deleteCancelsRetries(t *testing.T, ns *axtest.Namespace) {
	x, job, id := waitingRetry(t, ns)
	a := ns.Client.Do(t, http.MethodDelete, ns.Path("/jobs/"+job), nil)
	require.Equal(t, http.StatusNoContent, a.Status, a.Text())
	b := ns.Batch(id)
	require.Equal(t, []string{"CANCELLED", "job_deleted"}, []string{b.State, b.Code()})
	axtest.Stays(t, 9*time.Second, "no attempt comes", func() bool { return len(x.Starts()) == 1 })
}

func cancel(t *testing.T, ns *axtest.Namespace, id string) {
	t.Helper()
	a := ns.Client.Do(t, http.MethodPost, ns.Path("/batches/"+id+"/cancel"), nil)
	require.Equal(t, http.StatusAccepted, a.Status, a.Text())
}

// One shard runs, one waits for its retry, one has succeeded.
func cancelAtOnce(t *testing.T, ns *axtest.Namespace) {
	app := ns.App("app")
	work := func(ctx context.Context, run axtest.Run) axtest.Result {
		switch run.ShardingID {
		case 0:
			return axtest.UntilStopped(ctx, run)
		case 1:
			return axtest.Fail(ctx, run)
		}
		return axtest.Result{}
	}
	list := []*axtest.Executor{app.Worker(work), app.Worker(work), app.Worker(work)}
	id := ns.Trigger(ns.Job(axtest.Def{"routing": strategy("shardingBroadcast"), "retry": map[string]any{"max": 3, "initial": "8s", "backoff": "fixed"}}))
	axtest.WaitFor(t, "one runs, one waits, one is done", func() bool {
		b := ns.Batch(id)
		return len(b.Executions) == 4 && b.ShardsDone == 1 && b.Executions[0].State == "RUNNING"
	})
	cancel(t, ns, id)
	b := ns.Batch(id)
	for _, e := range b.Executions {
		if e.Shard == 1 && e.Attempt == 2 {
			require.Equal(t, "CANCELLED", e.State, "a retry that waits is cancelled with the same step")
		}
	}
	b = ns.Ended(id)
	require.Equal(t, []string{"CANCELLED", "cancelled_by_hand"}, []string{b.State, b.Code()})
	require.Equal(t, 3, b.ShardsDone)
	require.True(t, b.Executions[0].Stop.Confirmed)
	axtest.Stays(t, 9*time.Second, "nothing starts any more", func() bool { return len(axtest.Ledger(list...)) == 3 })
}

func retryByHand(t *testing.T, ns *axtest.Namespace) {
	x := ns.App("app").Worker(func(_ context.Context, run axtest.Run) axtest.Result {
		if run.Attempt < 6 {
			return axtest.Fail(context.Background(), run)
		}
		return axtest.Result{}
	})
	id := ns.Trigger(ns.Job(axtest.Def{"retry": retries(2)}))
	require.Equal(t, "FAILED", ns.Ended(id).State)
	a := ns.Client.Do(t, http.MethodPost, ns.Path("/batches/"+id+"/retry"), nil)
	require.Equal(t, http.StatusAccepted, a.Status, a.Text())
	b := ns.Ended(id)
	require.Equal(t, "SUCCEEDED", b.State)
	var states []string
	for i, e := range b.Executions {
		require.Equal(t, i+1, e.Attempt)
		states = append(states, e.State)
	}
	require.Equal(t, []string{"FAILED", "FAILED", "FAILED", "FAILED", "FAILED", "SUCCEEDED"}, states, "three attempts, and three more")
	fence := 0
	for _, s := range x.Starts() {
		require.Equal(t, id, s.Run.BatchID, "the batchId tells that they belong together")
		require.Greater(t, s.Run.Fence.Attempt, fence, "the fence rises")
		fence = s.Run.Fence.Attempt
	}
}

func oneFailure(t *testing.T, ns *axtest.Namespace) {
	name := "only-" + ns.Name
	ns.App(name).Worker(axtest.Fail)
	b := ns.Ended(ns.Trigger(ns.Job(axtest.Def{"app": name, "retry": retries(3)})))
	require.Len(t, b.Executions, 4)
	failures := func() float64 { return ns.Server.Metric(`ax_dispatch_task_failure_total{app="` + name + `"}`) }
	axtest.WaitFor(t, "the failure is counted", func() bool { return failures() > 0 })
	axtest.Stays(t, time.Second, "what alerts stand on is counted once, at the end", func() bool { return failures() == 1 })
}

func waitedTooLong(t *testing.T, ns *axtest.Namespace) {
	hold := make(chan struct{})
	x := ns.App("app").Worker(func(_ context.Context, run axtest.Run) axtest.Result {
		if run.Trigger == "delayed" {
			<-hold
		}
		return axtest.Result{}
	})
	x.Room(1)
	x.Beat()
	// What its own queue takes on top of its one slot is full, too.
	const most = 1001
	tasks := make([]map[string]any, most)
	for i := range tasks {
		tasks[i] = map[string]any{"delay": "1s"}
	}
	busy := ns.Job(axtest.Def{"name": "busy", "concurrency": policy("allow", 0)})
	for part := range slices.Chunk(tasks, 1000) {
		a := ns.Client.Do(t, http.MethodPost, ns.Path("/jobs/"+busy+"/delayed/bulk"), part)
		require.Less(t, a.Status, 300, a.Text())
	}
	axtest.WaitFor(t, "it is full", func() bool { return len(x.Starts()) == most })
	full := ns.Job(axtest.Def{"name": "full", "concurrency": policy("allow", 0), "retry": retries(3), "wait": map[string]any{"limit": "1s"}})
	skip := ns.Job(axtest.Def{"name": "skip", "retry": retries(3), "wait": map[string]any{"limit": "1s", "do": "skip"}})
	failed, skipped := ns.Trigger(full), ns.Trigger(skip)
	b := ns.Ended(failed)
	require.Equal(t, []string{"FAILED", "waited_too_long"}, []string{b.State, b.Code()})
	require.Len(t, b.Executions, 1)
	require.Equal(t, "REJECTED", b.Executions[0].State)
	b = ns.Ended(skipped)
	require.Equal(t, []string{"SKIPPED", "waited_too_long"}, []string{b.State, b.Code()})
	// Nobody holds the job's place.
	close(hold)
	require.Equal(t, "SUCCEEDED", ns.Ended(ns.Trigger(skip)).State)
}

func successHasMessage(t *testing.T, ns *axtest.Namespace) {
	ns.App("app").Worker(func(context.Context, axtest.Run) axtest.Result { return axtest.Result{Message: "copied 7"} })
	b := ns.Ended(ns.Trigger(ns.Job(axtest.Def{})))
	require.Equal(t, "copied 7", b.Executions[0].Message)
	require.Empty(t, b.Executions[0].Error)
}

func executors(ns *axtest.Namespace, id, verb string, body any) axtest.Answer {
	a, err := ns.Client.Try(http.MethodPost, ns.Path("/executors/"+id+"/"+verb), body)
	if err != nil {
		return axtest.Answer{}
	}
	return a
}

func drained(t *testing.T, ns *axtest.Namespace) {
	app := ns.App("app")
	hold := make(chan struct{})
	work := func(_ context.Context, run axtest.Run) axtest.Result {
		if run.Params == "hold" {
			<-hold
		}
		return axtest.Result{}
	}
	list := []*axtest.Executor{app.Worker(work), app.Worker(work)}
	long := ns.Trigger(ns.Job(axtest.Def{"name": "long", "params": "hold"}))
	ns.Reaches(long, "RUNNING")
	out, rest := list[0], list[1]
	if len(rest.Starts()) == 1 {
		out, rest = rest, out
	}
	require.Equal(t, http.StatusUnprocessableEntity, executors(ns, out.Instance(), "drain", map[string]any{"reason": ""}).Status)
	require.Equal(t, http.StatusNotFound, executors(ns, "999999", "drain", map[string]any{"reason": "new disk"}).Status)
	a := executors(ns, out.Instance(), "drain", map[string]any{"reason": "new disk"})
	require.Equal(t, http.StatusOK, a.Status, a.Text())
	var v struct {
		State  string
		Reason axtest.Reason
		Drain  struct{ By, Reason string }
	}
	a.Into(t, &v)
	require.Equal(t, []string{"DRAINING", "drained_by_operator", "admin", "new disk"}, []string{v.State, v.Reason.Code, v.Drain.By, v.Drain.Reason})
	quick := ns.Job(axtest.Def{"name": "quick", "concurrency": policy("allow", 0)})
	for range 6 {
		require.Equal(t, "SUCCEEDED", ns.Ended(ns.Trigger(quick)).State)
	}
	require.Len(t, out.Deliveries(), 1, "nothing new after the answer")
	require.Len(t, rest.Deliveries(), 6)
	require.False(t, ns.Batch(long).Final(), "what runs goes on")
	close(hold)
	require.Equal(t, "SUCCEEDED", ns.Ended(long).State)
	a = executors(ns, out.Instance(), "undrain", nil)
	require.Equal(t, http.StatusOK, a.Status, a.Text())
	for range 6 {
		require.Equal(t, "SUCCEEDED", ns.Ended(ns.Trigger(quick)).State)
	}
	require.Greater(t, len(out.Deliveries()), 1)
	found := 0
	for _, e := range ns.Server.Audit(t, "action=executor.pause&namespace="+ns.Name) {
		if e.Object.Type == "executor" {
			found++
		}
	}
	require.Equal(t, 2, found)
}

func executorState(ns *axtest.Namespace, x *axtest.Executor) (state, reason string) {
	for _, v := range ns.Executors() {
		if v.Address == x.Address {
			if v.Reason != nil {
				reason = v.Reason.Code
			}
			return v.State, reason
		}
	}
	return "", ""
}

func deafToRun(t *testing.T, ns *axtest.Namespace) {
	app := ns.App("app")
	deaf := app.Worker(axtest.Succeed)
	deaf.Is(axtest.DeafToRun)
	id := ns.Trigger(ns.Job(axtest.Def{"name": "first", "retry": retries(0)}))
	axtest.WaitFor(t, "it is suspect although it reports", func() bool {
		state, reason := executorState(ns, deaf)
		return state == "SUSPECT" && reason == "requests_unanswered"
	})
	fine := app.Worker(axtest.Succeed)
	quick := ns.Job(axtest.Def{"name": "quick", "concurrency": policy("allow", 0)})
	for range 3 {
		require.Equal(t, "SUCCEEDED", ns.Ended(ns.Trigger(quick)).State, "work goes to the other one")
	}
	require.NotEmpty(t, fine.Starts())
	deaf.Is(axtest.Fine)
	require.True(t, ns.Ended(id).Final())
	axtest.WaitFor(t, "it is online again", func() bool { state, _ := executorState(ns, deaf); return state == "ONLINE" })
	axtest.NothingTwice(t, deaf, fine)
}

func quarantined(t *testing.T, ns *axtest.Namespace) {
	app := ns.App("app")
	var list []*axtest.Executor
	for range 5 {
		x := app.Worker(axtest.Succeed)
		x.Is(axtest.DiesAfterAccept)
		list = append(list, x)
	}
	b := ns.Ended(ns.Trigger(ns.Job(axtest.Def{"retry": retries(3)})))
	require.Equal(t, []string{"FAILED", "quarantined"}, []string{b.State, b.Code()})
	require.Len(t, b.Executions, 3)
	dead := 0
	for _, x := range list {
		if x.State() == "DEAD" {
			dead++
		}
	}
	require.Equal(t, 3, dead, "two were spared")
	require.Contains(t, b.Kinds(), "quarantined")
}

// The heartbeat of the test's server is 1 s and its lease 30 s.
func pauseMovesNothing(t *testing.T, ns *axtest.Namespace) {
	app := ns.App("app")
	hold := make(chan struct{})
	work := func(context.Context, axtest.Run) axtest.Result {
		<-hold
		return axtest.Result{}
	}
	x := app.Worker(work)
	id := ns.Trigger(ns.Job(axtest.Def{"retry": retries(3)}))
	ns.Reaches(id, "RUNNING")
	other := app.Worker(work)
	x.Silence(true)
	x.Is(axtest.Hangs)
	axtest.WaitFor(t, "it was removed after its probe", func() bool { state, _ := executorState(ns, x); return state == "OFFLINE" })
	axtest.Stays(t, 8*time.Second, "what it runs is left to it", func() bool { return len(ns.Batch(id).Executions) == 1 && !ns.Batch(id).Final() })
	x.Is(axtest.Fine)
	x.Silence(false)
	close(hold)
	b := ns.Ended(id)
	require.Equal(t, "SUCCEEDED", b.State)
	require.Len(t, b.Executions, 1)
	require.Empty(t, other.Starts())
	axtest.WaitFor(t, "it is online again", func() bool { state, _ := executorState(ns, x); return state == "ONLINE" })
}

func lateBeat(t *testing.T, ns *axtest.Namespace) {
	x := ns.App("app").Worker(axtest.For(9 * time.Second))
	id := ns.Trigger(ns.Job(axtest.Def{"retry": retries(3)}))
	ns.Reaches(id, "RUNNING")
	for range 2 {
		x.Silence(true)
		axtest.Pause(2 * time.Second) // two heartbeats late, of three
		x.Silence(false)
		x.Beat()
		state, _ := executorState(ns, x)
		require.Equal(t, "ONLINE", state)
	}
	b := ns.Ended(id)
	require.Equal(t, "SUCCEEDED", b.State)
	require.Len(t, b.Executions, 1)
}

func moreTime(t *testing.T, ns *axtest.Namespace) {
	hold := make(chan struct{})
	x := ns.App("app").Worker(func(context.Context, axtest.Run) axtest.Result {
		<-hold
		return axtest.Result{}
	})
	id := ns.Trigger(ns.Job(axtest.Def{"timeout": "2s", "retry": retries(0)}))
	ns.Reaches(id, "RUNNING")
	run := x.Starts()[0].Run
	ask := func(extendMs int64) (answer string, deadline int64) {
		status, raw := x.Post("/ax/lease", map[string]any{"type": "lease", "namespace": ns.Name, "app": "app", "instance": x.Instance(), "executions": []map[string]any{{"batchId": run.BatchID, "executionId": run.ExecutionID, "fence": run.Fence, "extendMs": extendMs}}})
		require.Equal(t, http.StatusOK, status, string(raw))
		var reply struct {
			Answers []struct {
				Answer   string
				Deadline int64
			}
		}
		require.NoError(t, json.Unmarshal(raw, &reply))
		return reply.Answers[0].Answer, reply.Answers[0].Deadline
	}
	answer, _ := ask(0)
	require.Equal(t, "renewed", answer)
	answer, deadline := ask(60_000)
	require.Equal(t, "extended", answer)
	require.Greater(t, deadline, time.Now().Add(55*time.Second).UnixMilli())
	// Without it the limit and its grace of 5 s would be over, and a stop would be asked for.
	axtest.Stays(t, 10*time.Second, "it is left alone", func() bool { return ns.Batch(id).Executions[0].Stop == nil })
	close(hold)
	require.Equal(t, "SUCCEEDED", ns.Ended(id).State)
}

func noLimit(t *testing.T, ns *axtest.Namespace) {
	x := ns.App("app").Worker(axtest.Succeed)
	job := ns.Job(axtest.Def{"timeout": "0s"})
	require.Equal(t, "SUCCEEDED", ns.Ended(ns.Trigger(job)).State)
	require.Zero(t, x.Starts()[0].Run.TimeoutMs, "the executor is told of no limit")
	var v struct{ Timeout string }
	ns.Client.Get(t, ns.Path("/jobs/"+job), &v)
	require.Equal(t, "0s", v.Timeout)
}

func blackHole(t *testing.T, ns *axtest.Namespace) {
	hole := ns.App("hole").Worker(axtest.Succeed)
	hole.Is(axtest.Hangs)
	fine := ns.App("fine").Worker(axtest.Succeed)
	const n = 50
	lost := ns.Job(axtest.Def{"name": "lost", "app": "hole", "concurrency": policy("allow", 0), "retry": retries(0)})
	good := ns.Job(axtest.Def{"name": "good", "app": "fine", "concurrency": policy("allow", 0)})
	at := time.Now().Add(2 * time.Second)
	tasks := make([]map[string]any, n)
	for i := range tasks {
		tasks[i] = map[string]any{"runAt": at.UTC().Format(time.RFC3339Nano)}
	}
	for _, job := range []string{lost, good} {
		a := ns.Client.Do(t, http.MethodPost, ns.Path("/jobs/"+job+"/delayed/bulk"), tasks)
		require.Less(t, a.Status, 300, a.Text())
	}
	axtest.WaitFor(t, "the healthy ones have started", func() bool { return len(fine.Starts()) == n })
	for _, s := range fine.Starts() {
		require.Less(t, s.At.Sub(at), 2*time.Second)
	}
	hole.Is(axtest.Fine)
}

func executorsLeave(t *testing.T, ns *axtest.Namespace) {
	x := ns.App("app").Worker(axtest.Fail)
	id := ns.Trigger(ns.Job(axtest.Def{"routing": strategy("failover"), "retry": map[string]any{"max": 2, "initial": "1s", "backoff": "fixed"}}))
	axtest.WaitFor(t, "its first retry waits", func() bool { return len(ns.Batch(id).Executions) == 2 })
	x.Die()
	b := ns.Ended(id)
	require.Equal(t, "FAILED", b.State)
	starts := len(x.Starts())
	axtest.Stays(t, 3*time.Second, "it has ended", func() bool { return len(ns.Batch(id).Executions) == len(b.Executions) && len(x.Starts()) == starts })
}

// C309, B15: over a restart of the server a retry comes at its time and keeps away from where it failed, a run that
// would not stop keeps its place, and a drained address stays drained.
func TestLifeGoesOnAfterARestart(t *testing.T) {
	axtest.Both(t, func(t *testing.T, o ...axtest.Option) {
		s := axtest.Start(t, o...)
		ns := s.Namespace(t)
		app := ns.App("app")
		hold := make(chan struct{})
		work := func(ctx context.Context, run axtest.Run) axtest.Result {
			switch {
			case run.Params == "fail" && run.Attempt == 1:
				return axtest.Fail(ctx, run)
			case run.Params == "hang" && run.Attempt == 1:
				<-hold
			}
			return axtest.Result{}
		}
		list := []*axtest.Executor{app.Worker(work), app.Worker(work)}
		out := ns.App("drained").Worker(axtest.Succeed)
		a := executors(ns, out.Instance(), "drain", map[string]any{"reason": "new disk"})
		require.Equal(t, http.StatusOK, a.Status, a.Text())

		hanging := ns.Job(axtest.Def{"name": "hanging", "params": "hang", "timeout": "1s", "retry": retries(1)})
		hung := ns.Trigger(hanging)
		axtest.WaitFor(t, "it will not stop", func() bool { return ns.Batch(hung).Executions[0].State == "TIMED_OUT" })

		const wait = 8 * time.Second
		failing := ns.Trigger(ns.Job(axtest.Def{"name": "failing", "params": "fail", "retry": map[string]any{"max": 1, "initial": wait.String(), "backoff": "fixed", "jitter": 0}}))
		axtest.WaitFor(t, "its retry waits", func() bool { return len(ns.Batch(failing).Executions) == 2 })
		s.Restart()
		for _, x := range append(list, out) {
			x.Online()
		}

		b := ns.Ended(failing)
		require.Equal(t, "SUCCEEDED", b.State)
		require.GreaterOrEqual(t, b.Executions[1].StartedAt.Sub(*b.Executions[0].FinishedAt), wait-100*time.Millisecond)
		require.NotEqual(t, b.Executions[0].Address(), b.Executions[1].Address())

		b = ns.Batch(hung)
		require.False(t, b.Final())
		require.Len(t, axtest.Ledger(list...), 3, "the next attempt of what hangs has not started")
		require.Equal(t, "overlap_running", ns.Ended(ns.Trigger(hanging)).Code())
		close(hold)
		b = ns.Ended(hung)
		require.Equal(t, "SUCCEEDED", b.State)
		require.True(t, b.Executions[0].Stop.Confirmed)
		require.Equal(t, "SUCCEEDED", ns.Ended(ns.Trigger(hanging)).State)
		axtest.NothingTwice(t, list...)

		state, reason := executorState(ns, out)
		require.Equal(t, []string{"DRAINING", "drained_by_operator"}, []string{state, reason})
		out.Die()
		out.Revive()
		b = ns.Ended(ns.Trigger(ns.Job(axtest.Def{"name": "elsewhere", "app": "drained", "retry": retries(0)})))
		require.Equal(t, "no_executor", b.Code(), "a new process at the address is drained, too")
	})
}

// C304, C329: with two servers attempts come one at a time and in order, whichever of them hears the results.
func TestRetriesOverTwoServers(t *testing.T) {
	t.Parallel()
	list := axtest.Replicas(t, 2)
	ns := list[0].Namespace(t)
	_, others := axtest.Owner(t, ns, list...)
	x := ns.App("app").At(others[0]).Worker(axtest.Fail)
	job := ns.Job(axtest.Def{"concurrency": policy("allow", 0), "retry": retries(3)})
	var ids []string
	for range 20 {
		ids = append(ids, ns.Trigger(job))
	}
	for _, id := range ids {
		b := ns.Ended(id)
		require.Equal(t, "FAILED", b.State)
		require.Len(t, b.Executions, 4)
	}
	require.Len(t, x.Starts(), 80)
	axtest.NothingTwice(t, x)
	failures := 0.0
	for _, s := range list {
		failures += max(s.Metric(`ax_dispatch_task_failure_total{app="app"}`), 0)
	}
	require.InDelta(t, 20, failures, 0, "each batch failed once")
}

// P10: executors that fall silent together are held, shown, and let go on an operator's word.
func TestAStormIsHeld(t *testing.T) {
	axtest.Both(t, func(t *testing.T, o ...axtest.Option) {
		s := axtest.Start(t, append(o, axtest.Set("executor-storm-percent", "50"))...)
		ns := s.Namespace(t)
		app := ns.App("app")
		hold := make(chan struct{})
		var list []*axtest.Executor
		for range 4 {
			list = append(list, app.Worker(func(context.Context, axtest.Run) axtest.Result {
				<-hold
				return axtest.Result{}
			}))
		}
		id := ns.Trigger(ns.Job(axtest.Def{"routing": strategy("shardingBroadcast"), "retry": retries(0)}))
		axtest.WaitFor(t, "all run", func() bool { return len(axtest.Ledger(list...)) == 4 })
		for _, x := range list {
			x.Silence(true)
			x.Is(axtest.Hangs)
		}
		type storm struct {
			App     string
			Held    int
			Running int
		}
		storms := func() []storm {
			var v struct{ Items []storm }
			ns.Client.Get(t, ns.Path("/executors/storm"), &v)
			return v.Items
		}
		axtest.WaitFor(t, "they are held", func() bool {
			list := storms()
			return len(list) == 1 && list[0] == storm{"app", 4, 4}
		})
		require.InDelta(t, 4, s.Metric("ax_executors_held"), 0)
		// Three come back; the fourth is really gone, and one is no storm.
		for _, x := range list[:3] {
			x.Is(axtest.Fine)
			x.Silence(false)
		}
		axtest.WaitFor(t, "the storm is over", func() bool { return len(storms()) == 0 })
		axtest.WaitFor(t, "the one is removed", func() bool { state, _ := executorState(ns, list[3]); return state == "OFFLINE" })
		require.False(t, ns.Batch(id).Final())
		list[3].Is(axtest.Fine)
		list[3].Silence(false)
		close(hold)
		b := ns.Ended(id)
		require.Equal(t, "SUCCEEDED", b.State)
		require.Len(t, b.Executions, 4, "nothing was started once more")
		a := ns.Client.Do(t, http.MethodPost, ns.Path("/executors/storm/release"), map[string]any{"app": "app", "reason": "the rack is off"})
		require.Equal(t, http.StatusOK, a.Status, a.Text())
	})
}
