package main

import (
	"context"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/stretchr/testify/require"

	"github.com/ax-scheduler/ax/server/axtest"
)

// The cases of TestEngine share one server for each database and have a namespace each.
func TestEngine(t *testing.T) {
	cases := []shared{
		{"C271 C280 a broadcast reaches every executor once, with its shard", broadcastOnce},
		{"C272 the shard of a killed executor moves", shardMoves},
		{"C274 only the shard that failed is tried again", shardRetries},
		{"C277 with nobody there the attempts end", nobodyThere},
		{"C300 three retries are four attempts", threeRetries},
		{"C306 what can not heal is not tried again", noRetry},
		{"C307 the third attempt succeeds", thirdSucceeds},
		{"C282 strategies spread thirty firings as they say", strategies},
		{"C285 another executor is tried when one refuses", refusedGoesElsewhere},
		{"C288 work never goes to another app", ownAppOnly},
		{"C261 C268 skip: one at a time over all executors", overlapSkip},
		{"C270 a failed run holds no lock", failedHoldsNothing},
		{"C258 queueOne: one waits, the next is skipped", overlapQueueOne},
		{"C314 queueAll: all run, one after the other, and waiting costs no run time", overlapQueueAll},
		{"C265 cover: the newest wins", overlapCover},
		{"C262 queueAll: the queue is bounded, its depth is seen, and what is too much is skipped", overlapQueueBounded},
		{"B15 cover: the newest waits until it is confirmed that the old one has stopped", coverUnconfirmed},
		{"C264 allow: side by side up to the limit", overlapAllow},
		{"C310 C311 a run that ignores its limit is timed out and its late success noted", ignoresTimeout},
		{"C317 an executor that dies under a time limit ends the run once", diesUnderTimeout},
		{"C318 an unconfirmed stop is never called confirmed", unconfirmedStop},
		{"C318 a confirmed stop says so", confirmedStop},
		{"C321 the first end wins", firstEndWins},
		{"C321 many reports at once are one end", reportsAtOnce},
		{"C323 five hundred results with bad ones among them", manyResults},
		{"C324 a long message is cut and an oversized body refused", longMessages},
		{"C326 a result from another namespace changes nothing", foreignResult},
		{"C327 a job deleted while it runs", deletedWhileRunning},
		{"C374 a job disabled while it runs", disabledWhileRunning},
		{"C337 disabling holds at any moment", disableHolds},
		{"C333 an idempotency key makes one batch", idempotency},
		{"C339 a hundred registrations of one address are one executor", registrations},
		{"C299 hand runs leave the grid alone", gridStays},
		{"F17 answers that come late or twice start nothing twice", lateAndTwice},
		{"C291 a run that was accepted and died is tried on another executor", diesAfterAccept},
		{"C293 a silent executor that answers keeps its run", silentKeepsItsRun},
		{"C284 an executor without room is passed over", fullPassedOver},
		{"C398 text keeps its characters on the whole way", textSurvives},
		{"C399 C405 text in another encoding, and with marks before it, loses nothing", otherEncodings},
	}
	axtest.Both(t, func(t *testing.T, o ...axtest.Option) {
		s := axtest.Start(t, o...)
		runShared(t, s, cases)
		s.LedgerClean(t)
	})
}

func retries(n int) map[string]any { return map[string]any{"max": n, "initial": "100ms", "jitter": 0} }

func policy(name string, most int) map[string]any {
	return map[string]any{"policy": name, "max": most}
}

func strategy(name string) map[string]any { return map[string]any{"strategy": name} }

func every(span string) []map[string]any {
	return []map[string]any{{"kind": "fixedRate", "every": span}}
}

func disable(t *testing.T, ns *axtest.Namespace, job string) {
	t.Helper()
	a := ns.Client.Do(t, http.MethodPost, ns.Path("/jobs/"+job+"/disable"), map[string]any{})
	require.Equal(t, http.StatusOK, a.Status, a.Text())
}

func broadcastOnce(t *testing.T, ns *axtest.Namespace) {
	app := ns.App("app")
	list := []*axtest.Executor{app.Worker(axtest.Succeed), app.Worker(axtest.Succeed), app.Worker(axtest.Succeed)}
	b := ns.Ended(ns.Trigger(ns.Job(axtest.Def{"routing": strategy("shardingBroadcast")})))
	require.Equal(t, "SUCCEEDED", b.State)
	require.Equal(t, 3, b.ShardTotal)
	require.Equal(t, 3, b.ShardsDone)
	shards := map[int]bool{}
	for _, x := range list {
		got := x.Deliveries()
		require.Len(t, got, 1, "each executor has one shard")
		require.Equal(t, b.BatchID, got[0].Run.BatchID)
		require.Equal(t, 3, got[0].Run.ShardingTotal)
		require.Equal(t, b.DueAt.UnixMilli(), got[0].Run.DueAt)
		require.Contains(t, got[0].Raw, fmt.Sprintf(`"shardingId":%d,"shardingTotal":3,`, got[0].Run.ShardingID), "numbers, not texts")
		shards[got[0].Run.ShardingID] = true
	}
	require.Equal(t, map[int]bool{0: true, 1: true, 2: true}, shards)

	plain := ns.Ended(ns.Trigger(ns.Job(axtest.Def{"name": "plain"})))
	for _, x := range list {
		for _, d := range x.Deliveries() {
			if d.Run.BatchID == plain.BatchID {
				require.Contains(t, d.Raw, `"shardingId":0,"shardingTotal":1,`)
			}
		}
	}
}

func shardMoves(t *testing.T, ns *axtest.Namespace) {
	app := ns.App("app")
	work := axtest.For(4 * time.Second)
	list := []*axtest.Executor{app.Worker(work), app.Worker(work), app.Worker(work)}
	id := ns.Trigger(ns.Job(axtest.Def{"routing": strategy("shardingBroadcast"), "retry": retries(0)}))
	axtest.WaitFor(t, "every executor runs its shard", func() bool { return len(axtest.Ledger(list...)) == 3 })
	dead := list[1]
	lost := dead.Starts()[0].Run
	dead.Die()
	b := ns.Ended(id)
	require.Equal(t, "SUCCEEDED", b.State, b.Code())
	require.Equal(t, 3, b.ShardsDone)
	require.Zero(t, b.ShardsFail)
	var again []axtest.Started
	for _, s := range axtest.Ledger(list[0], list[2]) {
		if s.Run.ShardingID == lost.ShardingID {
			again = append(again, s)
		}
	}
	require.Len(t, again, 1, "the lost shard ran once more, elsewhere")
	require.Equal(t, 3, again[0].Run.ShardingTotal)
	require.Greater(t, again[0].Run.Attempt, lost.Attempt)
	states := map[string]int{}
	for _, e := range b.Executions {
		states[e.State]++
	}
	require.Equal(t, map[string]int{"SUCCEEDED": 3, "LOST": 1}, states)
}

func shardRetries(t *testing.T, ns *axtest.Namespace) {
	app := ns.App("app")
	work := func(_ context.Context, run axtest.Run) axtest.Result {
		if run.ShardingID == 2 && run.Attempt == 1 {
			return axtest.Result{State: "FAILED", Message: "once"}
		}
		return axtest.Result{}
	}
	list := []*axtest.Executor{app.Worker(work), app.Worker(work), app.Worker(work)}
	b := ns.Ended(ns.Trigger(ns.Job(axtest.Def{"routing": strategy("shardingBroadcast"), "retry": retries(2)})))
	require.Equal(t, "SUCCEEDED", b.State)
	counts := map[int]int{}
	for _, s := range axtest.Ledger(list...) {
		counts[s.Run.ShardingID]++
	}
	require.Equal(t, map[int]int{0: 1, 1: 1, 2: 2}, counts)
	axtest.NothingTwice(t, list...)
}

func nobodyThere(t *testing.T, ns *axtest.Namespace) {
	ns.App("app")
	for _, s := range []string{"roundRobin", "shardingBroadcast"} {
		b := ns.Ended(ns.Trigger(ns.Job(axtest.Def{"name": s, "routing": strategy(s), "retry": retries(1)})))
		require.Equal(t, "FAILED", b.State, s)
		require.Equal(t, "no_executor", b.Code(), s)
		require.Len(t, b.Executions, 2, s)
	}
}

func threeRetries(t *testing.T, ns *axtest.Namespace) {
	x := ns.App("app").Worker(axtest.Fail)
	b := ns.Ended(ns.Trigger(ns.Job(axtest.Def{"retry": retries(3)})))
	require.Equal(t, "FAILED", b.State)
	require.Equal(t, "handler_failed", b.Code())
	var attempts []int
	for _, s := range x.Starts() {
		attempts = append(attempts, s.Run.Attempt)
	}
	require.Equal(t, []int{1, 2, 3, 4}, attempts)
	require.Len(t, b.Executions, 4)
	axtest.NothingTwice(t, x)
}

func noRetry(t *testing.T, ns *axtest.Namespace) {
	x := ns.App("app").Worker(func(context.Context, axtest.Run) axtest.Result {
		return axtest.Result{State: "FAILED", Message: "bad parameter", NoRetry: true}
	})
	b := ns.Ended(ns.Trigger(ns.Job(axtest.Def{"retry": retries(3)})))
	require.Equal(t, "FAILED", b.State)
	require.Len(t, b.Executions, 1)
	require.Equal(t, "bad parameter", b.Executions[0].Error)

	b = ns.Ended(ns.Trigger(ns.Job(axtest.Def{"name": "unknown handler", "handler": "nothing", "retry": retries(3)})))
	require.Equal(t, "FAILED", b.State)
	require.Equal(t, "no_handler", b.Code())
	require.Len(t, b.Executions, 1)
	require.Len(t, x.Starts(), 1)
}

func thirdSucceeds(t *testing.T, ns *axtest.Namespace) {
	x := ns.App("app").Worker(func(_ context.Context, run axtest.Run) axtest.Result {
		if run.Attempt < 3 {
			return axtest.Result{State: "FAILED", Message: "not yet"}
		}
		return axtest.Result{}
	})
	b := ns.Ended(ns.Trigger(ns.Job(axtest.Def{"retry": retries(3)})))
	require.Equal(t, "SUCCEEDED", b.State)
	require.Zero(t, b.ShardsFail)
	require.Len(t, x.Starts(), 3)
	require.Equal(t, []string{"FAILED", "FAILED", "SUCCEEDED"}, []string{b.Executions[0].State, b.Executions[1].State, b.Executions[2].State})
}

func strategies(t *testing.T, ns *axtest.Namespace) {
	app := ns.App("app")
	list := []*axtest.Executor{app.Worker(axtest.Succeed), app.Worker(axtest.Succeed), app.Worker(axtest.Succeed)}
	jobs := map[string]string{}
	var ids []string
	for _, name := range []string{"roundRobin", "roundRobin again", "first", "last", "consistentHash", "random", "leastUsed"} {
		jobs[name] = ns.Job(axtest.Def{"name": name, "routing": strategy(strings.Fields(name)[0]), "concurrency": policy("allow", 0)})
	}
	for range 30 {
		for _, job := range jobs {
			ids = append(ids, ns.Trigger(job))
		}
	}
	for _, id := range ids {
		require.Equal(t, "SUCCEEDED", ns.Ended(id).State)
	}
	counts := map[string][]int{}
	for name, job := range jobs {
		for _, x := range list {
			n := 0
			for _, s := range x.Starts() {
				if s.Run.Job.ID == job {
					n++
				}
			}
			counts[name] = append(counts[name], n)
		}
	}
	require.Equal(t, []int{10, 10, 10}, counts["roundRobin"])
	require.Equal(t, []int{10, 10, 10}, counts["roundRobin again"], "two jobs do not disturb each other")
	require.Equal(t, []int{30, 0, 0}, counts["first"])
	require.Equal(t, []int{0, 0, 30}, counts["last"])
	require.ElementsMatch(t, []int{30, 0, 0}, counts["consistentHash"], "one job stays with one executor")
	require.Equal(t, []int{10, 10, 10}, counts["leastUsed"])
	for _, n := range counts["random"] {
		require.NotZero(t, n, "random reaches everybody")
	}
}

func refusedGoesElsewhere(t *testing.T, ns *axtest.Namespace) {
	app := ns.App("app")
	list := []*axtest.Executor{app.Worker(axtest.Succeed), app.Worker(axtest.Succeed)}
	for _, s := range []string{"first", "consistentHash"} {
		job := ns.Job(axtest.Def{"name": s, "routing": strategy(s), "retry": retries(1)})
		b := ns.Ended(ns.Trigger(job))
		chosen, other := list[0], list[1]
		if b.Executions[0].Address() == other.Address {
			chosen, other = other, chosen
		}
		chosen.Is(axtest.Refuses)
		b = ns.Ended(ns.Trigger(job))
		require.Equal(t, "SUCCEEDED", b.State, s)
		last := b.Executions[len(b.Executions)-1]
		require.Equal(t, other.Address, last.Address(), s)
		chosen.Is(axtest.Fine)
		axtest.WaitFor(t, "both take work again", func() bool {
			online := 0
			for _, e := range ns.Executors() {
				if e.State == "ONLINE" {
					online++
				}
			}
			return online == 2
		})
	}
	// A run that fails is tried on the other one.
	list[0].Is(axtest.Fine)
	fails := ns.App("fails")
	a, b := fails.Worker(axtest.Fail), fails.Worker(axtest.Fail)
	end := ns.Ended(ns.Trigger(ns.Job(axtest.Def{"name": "fails", "app": "fails", "retry": retries(1)})))
	require.Equal(t, "FAILED", end.State)
	require.Len(t, end.Executions, 2)
	require.NotEqual(t, end.Executions[0].Address(), end.Executions[1].Address())
	axtest.NothingTwice(t, a, b)
}

func ownAppOnly(t *testing.T, ns *axtest.Namespace) {
	down, other := ns.App("app"), ns.App("other")
	x := down.Worker(axtest.Succeed)
	y := other.Worker(axtest.Succeed)
	x.Die()
	for _, s := range []string{"roundRobin", "failover", "random", "leastBusy"} {
		b := ns.Ended(ns.Trigger(ns.Job(axtest.Def{"name": s, "routing": strategy(s), "retry": retries(0)})))
		require.Equal(t, "FAILED", b.State, s)
	}
	require.Empty(t, y.Deliveries())
}

func overlapSkip(t *testing.T, ns *axtest.Namespace) {
	app := ns.App("app")
	hold := make(chan struct{})
	work := func(context.Context, axtest.Run) axtest.Result {
		<-hold
		return axtest.Result{}
	}
	list := []*axtest.Executor{app.Worker(work), app.Worker(work)}
	job := ns.Job(axtest.Def{"concurrency": policy("skip", 1)})
	first := ns.Trigger(job)
	ns.Reaches(first, "RUNNING")
	for range 3 {
		b := ns.Ended(ns.Trigger(job))
		require.Equal(t, "SKIPPED", b.State)
		require.Equal(t, "overlap_running", b.Code())
	}
	close(hold)
	require.Equal(t, "SUCCEEDED", ns.Ended(first).State)
	require.Len(t, axtest.Ledger(list...), 1)
	var sum struct {
		Failed  int `json:"failed1h"`
		Skipped int `json:"skipped1h"`
	}
	ns.Client.Get(t, ns.Path("/summary"), &sum)
	require.Equal(t, 3, sum.Skipped)
	require.Zero(t, sum.Failed, "a skip is no failure")
}

func failedHoldsNothing(t *testing.T, ns *axtest.Namespace) {
	x := ns.App("app").Worker(axtest.Fail)
	job := ns.Job(axtest.Def{"retry": retries(0)})
	for range 3 {
		require.Equal(t, "FAILED", ns.Ended(ns.Trigger(job)).State)
	}
	require.Len(t, x.Starts(), 3)
}

func overlapQueueOne(t *testing.T, ns *axtest.Namespace) {
	hold := make(chan struct{})
	x := ns.App("app").Worker(func(context.Context, axtest.Run) axtest.Result {
		<-hold
		return axtest.Result{}
	})
	job := ns.Job(axtest.Def{"concurrency": policy("queueOne", 1)})
	first := ns.Trigger(job)
	ns.Reaches(first, "RUNNING")
	second := ns.Trigger(job)
	third := ns.Ended(ns.Trigger(job))
	require.Equal(t, "SKIPPED", third.State)
	require.Equal(t, "overlap_queue_full", third.Code())
	require.False(t, ns.Batch(second).Final(), "one waits")
	close(hold)
	require.Equal(t, "SUCCEEDED", ns.Ended(first).State)
	require.Equal(t, "SUCCEEDED", ns.Ended(second).State)
	require.Equal(t, 1, axtest.Most(x.Starts()))
}

func overlapQueueAll(t *testing.T, ns *axtest.Namespace) {
	x := ns.App("app").Worker(axtest.For(700 * time.Millisecond))
	job := ns.Job(axtest.Def{"concurrency": policy("queueAll", 1), "timeout": "1s"})
	var ids []string
	for range 4 {
		ids = append(ids, ns.Trigger(job))
	}
	for _, id := range ids {
		require.Equal(t, "SUCCEEDED", ns.Ended(id).State)
	}
	var order []string
	for _, s := range x.Starts() {
		order = append(order, s.Run.BatchID)
		require.EqualValues(t, 1000, s.Run.TimeoutMs)
	}
	require.Equal(t, ids, order, "first asked, first run")
	require.Equal(t, 1, axtest.Most(x.Starts()))
}

func overlapQueueBounded(t *testing.T, ns *axtest.Namespace) {
	hold := make(chan struct{})
	x := ns.App("app").Worker(wait(hold))
	job := ns.Job(axtest.Def{"name": "bounded of " + ns.Name, "concurrency": map[string]any{"policy": "queueAll", "max": 1, "queue": 5}})
	ids := []string{ns.Trigger(job)}
	ns.Reaches(ids[0], "RUNNING")
	for range 3 {
		ids = append(ids, ns.Trigger(job))
	}
	axtest.WaitFor(t, "three wait", func() bool { return waits(ns, ids[3]).Position == 3 })
	warned := func() bool { return strings.Contains(ns.Server.Log(), `job="bounded of `+ns.Name) }
	require.False(t, warned())
	for range 2 {
		ids = append(ids, ns.Trigger(job))
	}
	axtest.WaitFor(t, "the queue is full", func() bool { return waits(ns, ids[1]).Of == 5 && waits(ns, ids[5]).Position == 5 })
	axtest.WaitFor(t, "somebody was told before it was", warned)
	for range 2 {
		b := ns.Ended(ns.Trigger(job))
		require.Equal(t, "SKIPPED", b.State)
		require.Equal(t, "overlap_queue_full", b.Code())
	}
	close(hold)
	for _, id := range ids {
		require.Equal(t, "SUCCEEDED", ns.Ended(id).State)
	}
	require.Equal(t, 1, axtest.Most(x.Starts()))
	require.Len(t, x.Starts(), 6)
}

func overlapCover(t *testing.T, ns *axtest.Namespace) {
	x := ns.App("app").Worker(func(ctx context.Context, run axtest.Run) axtest.Result {
		if run.Params == "last" {
			return axtest.Result{}
		}
		return axtest.UntilStopped(ctx, run)
	})
	job := ns.Job(axtest.Def{"concurrency": policy("cover", 1), "retry": retries(3)})
	first := ns.Trigger(job)
	ns.Reaches(first, "RUNNING")
	a := ns.Client.Do(t, http.MethodPost, ns.Path("/jobs/"+job+"/trigger"), map[string]any{"params": "last"})
	require.Equal(t, http.StatusOK, a.Status, a.Text())
	var out struct{ BatchID string }
	a.Into(t, &out)
	old := ns.Ended(first)
	require.Equal(t, "CANCELLED", old.State)
	require.Equal(t, "covered_by_next", old.Code())
	require.Len(t, old.Executions, 1, "what was covered is not tried again")
	require.Equal(t, "SUCCEEDED", ns.Ended(out.BatchID).State)
	require.Equal(t, 1, axtest.Most(x.Starts()), "the new one starts when the old one has stopped")
}

func overlapAllow(t *testing.T, ns *axtest.Namespace) {
	x := ns.App("app").Worker(axtest.For(time.Second))
	free := ns.Job(axtest.Def{"name": "free", "concurrency": policy("allow", 0)})
	two := ns.Job(axtest.Def{"name": "two", "concurrency": policy("allow", 2)})
	var ids []string
	for range 4 {
		ids = append(ids, ns.Trigger(free), ns.Trigger(two))
	}
	for _, id := range ids {
		require.Equal(t, "SUCCEEDED", ns.Ended(id).State)
	}
	per := map[string][]axtest.Started{}
	for _, s := range x.Starts() {
		per[s.Run.Job.ID] = append(per[s.Run.Job.ID], s)
	}
	require.Len(t, per[two], 4)
	require.LessOrEqual(t, axtest.Most(per[two]), 2)
	require.Len(t, per[free], 4)
	require.Greater(t, axtest.Most(per[free]), 1)
}

func ignoresTimeout(t *testing.T, ns *axtest.Namespace) {
	app := ns.App("app")
	hold := make(chan struct{})
	work := func(_ context.Context, run axtest.Run) axtest.Result {
		if run.Attempt == 1 {
			<-hold
		}
		return axtest.Result{Message: "done"}
	}
	list := []*axtest.Executor{app.Worker(work), app.Worker(work)}
	job := ns.Job(axtest.Def{"timeout": "1s", "retry": retries(1)})
	id := ns.Trigger(job)
	var b axtest.Batch
	axtest.WaitFor(t, "the attempt is timed out and its stop is not confirmed", func() bool {
		b = ns.Batch(id)
		return b.Executions[0].State == "TIMED_OUT"
	})
	first := list[0]
	if b.Executions[0].Address() == list[1].Address {
		first = list[1]
	}
	e := b.Executions[0]
	require.NotNil(t, e.Stop)
	require.False(t, e.Stop.Confirmed, "it may still run, and the row says so")
	require.Nil(t, e.Stop.ConfirmedAt)
	require.NotNil(t, e.Stop.AcknowledgedAt)
	require.Contains(t, b.Kinds(), "stop_unconfirmed")
	require.NotEmpty(t, first.Kills())
	axtest.WaitFor(t, "the next attempt says what it waits for", func() bool { return ns.Batch(id).Code() == "waiting_stop_unconfirmed" })
	require.Len(t, axtest.Ledger(list...), 1, "two attempts of a shard never overlap")
	// Its job's place is kept, too.
	other := ns.Ended(ns.Trigger(job))
	require.Equal(t, []string{"SKIPPED", "overlap_running"}, []string{other.State, other.Code()})
	close(hold)
	b = ns.Ended(id)
	require.Equal(t, "SUCCEEDED", b.State)
	require.Len(t, b.Executions, 2)
	e = b.Executions[0]
	require.Equal(t, "TIMED_OUT", e.State)
	require.NotNil(t, e.Stop)
	require.True(t, e.Stop.Confirmed, "it was confirmed before the next attempt started")
	require.NotEqual(t, e.Address(), b.Executions[1].Address(), "the next attempt keeps away from it")
	attempts := map[int]string{}
	for _, s := range axtest.Ledger(list...) {
		attempts[s.Run.Attempt] = s.Run.BatchID
	}
	require.Equal(t, map[int]string{1: id, 2: id}, attempts, "a receiver can tell that they belong together")
	axtest.WaitFor(t, "the late success was answered", func() bool { return len(first.Answers()) == 1 })
	require.Equal(t, []string{"late"}, first.Answers())
	b = ns.Batch(id)
	require.Equal(t, "TIMED_OUT", b.Executions[0].State, "the late success changes nothing")
	require.Contains(t, b.Kinds(), "late_result")
	require.Contains(t, b.Kinds(), "stop_confirmed")
	axtest.NothingTwice(t, list...)
	require.Equal(t, "SUCCEEDED", ns.Ended(ns.Trigger(job)).State, "its place is free again")
}

func diesUnderTimeout(t *testing.T, ns *axtest.Namespace) {
	x := ns.App("app").Worker(axtest.UntilStopped)
	id := ns.Trigger(ns.Job(axtest.Def{"timeout": "30s", "retry": retries(0)}))
	ns.Reaches(id, "RUNNING")
	run := x.Starts()[0].Run
	x.Die()
	axtest.WaitFor(t, "the attempt was lost", func() bool { return ns.Batch(id).Executions[0].State == "LOST" })
	x.Revive()
	b := ns.Ended(id)
	ends := 0
	for _, e := range b.Executions {
		if e.ID == run.ExecutionID {
			require.Equal(t, "LOST", e.State)
			require.NotNil(t, e.Reason)
			require.Equal(t, "executor_gone", e.Reason.Code)
		}
		if e.FinishedAt != nil {
			ends++
		}
	}
	require.Equal(t, len(b.Executions), ends)
}

func unconfirmedStop(t *testing.T, ns *axtest.Namespace) {
	hold := make(chan struct{})
	x := ns.App("app").Worker(func(context.Context, axtest.Run) axtest.Result {
		<-hold
		return axtest.Result{}
	})
	t.Cleanup(func() { close(hold) })
	id := ns.Trigger(ns.Job(axtest.Def{"retry": retries(3)}))
	ns.Reaches(id, "RUNNING")
	x.Is(axtest.DeafToKill)
	a := ns.Client.Do(t, http.MethodPost, ns.Path("/batches/"+id+"/cancel"), nil)
	require.Equal(t, http.StatusAccepted, a.Status, a.Text())
	b := ns.Batch(id)
	require.False(t, b.Final(), "asked is not stopped")
	require.Equal(t, "STOPPING", b.Executions[0].State)
	require.NotNil(t, b.Executions[0].Stop)
	require.Equal(t, "admin", b.Executions[0].Stop.AskedBy)
	require.False(t, b.Executions[0].Stop.Confirmed)
	require.Nil(t, b.Executions[0].Stop.AcknowledgedAt, "an error is no acknowledgement")
	axtest.WaitFor(t, "the stop is asked for again", func() bool { return len(x.Kills()) >= 2 })
	b = ns.Ended(id)
	require.Equal(t, "CANCELLED", b.State)
	require.Equal(t, "cancelled_by_hand", b.Code())
	require.Len(t, b.Executions, 1)
	require.False(t, b.Executions[0].Stop.Confirmed)
	require.Nil(t, b.Executions[0].Stop.ConfirmedAt)
}

func coverUnconfirmed(t *testing.T, ns *axtest.Namespace) {
	hold := make(chan struct{})
	x := ns.App("app").Worker(func(_ context.Context, run axtest.Run) axtest.Result {
		if run.Params == "old" {
			<-hold
		}
		return axtest.Result{}
	})
	putLimit(t, ns, "one", map[string]any{"max": 1})
	job := ns.Job(axtest.Def{"concurrency": policy("cover", 1), "retry": retries(0), "limits": []string{"one"}, "params": "old"})
	first := ns.Trigger(job)
	ns.Reaches(first, "RUNNING")
	x.Is(axtest.DeafToKill)
	a := ns.Client.Do(t, http.MethodPost, ns.Path("/jobs/"+job+"/trigger"), map[string]any{"params": "new"})
	require.Equal(t, http.StatusOK, a.Status, a.Text())
	var out struct{ BatchID string }
	a.Into(t, &out)
	axtest.WaitFor(t, "the new one waits", func() bool { return waits(ns, out.BatchID).Reason.Code == "waiting_overlap" })
	old := ns.Ended(first)
	require.Equal(t, "CANCELLED", old.State)
	require.Equal(t, "covered_by_next", old.Code())
	require.False(t, old.Executions[0].Stop.Confirmed)
	axtest.WaitFor(t, "it says that the stop was not confirmed", func() bool { return waits(ns, out.BatchID).Reason.Code == "waiting_batch_unstopped" })
	require.Equal(t, 1, limitOf(t, ns, "one").Running, "what may still run keeps its place")
	axtest.Stays(t, time.Second, "and nothing of the job starts beside it", func() bool { return len(x.Starts()) == 1 })
	x.Is(axtest.Fine)
	close(hold)
	require.Equal(t, "SUCCEEDED", ns.Ended(out.BatchID).State)
	require.Equal(t, 1, axtest.Most(x.Starts()))
	axtest.WaitFor(t, "nothing is left of it", func() bool { return limitOf(t, ns, "one").Running == 0 })
}

func confirmedStop(t *testing.T, ns *axtest.Namespace) {
	x := ns.App("app").Worker(axtest.UntilStopped)
	id := ns.Trigger(ns.Job(axtest.Def{"retry": retries(3)}))
	ns.Reaches(id, "RUNNING")
	a := ns.Client.Do(t, http.MethodPost, ns.Path("/batches/"+id+"/cancel"), nil)
	require.Equal(t, http.StatusAccepted, a.Status, a.Text())
	b := ns.Ended(id)
	require.Equal(t, "CANCELLED", b.State)
	require.Equal(t, "cancelled_by_hand", b.Code())
	axtest.WaitFor(t, "its executor's word is noted", func() bool { return ns.Batch(id).Executions[0].Stop.AcknowledgedAt != nil })
	stop := ns.Batch(id).Executions[0].Stop
	require.True(t, stop.Confirmed)
	require.NotNil(t, stop.AcknowledgedAt)
	require.NotNil(t, stop.ConfirmedAt)
	require.False(t, stop.AcknowledgedAt.Before(stop.AskedAt))
	require.Equal(t, "admin", stop.AskedBy)
	require.Equal(t, "cancelled_by_hand", stop.Reason.Code)
	a = ns.Client.Do(t, http.MethodPost, ns.Path("/batches/"+id+"/cancel"), nil)
	require.Equal(t, http.StatusConflict, a.Status)
	require.Equal(t, "already_ended", a.Problem(t).Code)
	// By hand it may be tried again.
	a = ns.Client.Do(t, http.MethodPost, ns.Path("/batches/"+id+"/retry"), nil)
	require.Equal(t, http.StatusAccepted, a.Status, a.Text())
	axtest.WaitFor(t, "it runs again", func() bool { return len(x.Starts()) == 2 })
	a = ns.Client.Do(t, http.MethodPost, ns.Path("/batches/"+id+"/cancel"), nil)
	require.Equal(t, http.StatusAccepted, a.Status, a.Text())
	b = ns.Ended(id)
	require.Equal(t, "CANCELLED", b.State)
	require.Equal(t, 1, b.ShardsDone)
	axtest.NothingTwice(t, x)
}

// silentRun starts a run whose executor never reports by itself.
func silentRun(t *testing.T, ns *axtest.Namespace) (x *axtest.Executor, run axtest.Run) {
	t.Helper()
	x = ns.App("app").Worker(axtest.Succeed)
	x.Is(axtest.Mute)
	id := ns.Trigger(ns.Job(axtest.Def{"retry": retries(0)}))
	ns.Reaches(id, "RUNNING")
	return x, x.Starts()[0].Run
}

func firstEndWins(t *testing.T, ns *axtest.Namespace) {
	x, run := silentRun(t, ns)
	require.Equal(t, []string{"recorded"}, x.Report(axtest.ResultOf(run, "SUCCEEDED", "yes")))
	require.Equal(t, []string{"late"}, x.Report(axtest.ResultOf(run, "FAILED", "no")))
	require.Equal(t, []string{"repeated", "repeated"}, x.Report(axtest.ResultOf(run, "SUCCEEDED", "yes"), axtest.ResultOf(run, "SUCCEEDED", "yes")))
	strange := axtest.ResultOf(run, "SUCCEEDED", "")
	strange["executionId"] = "1"
	other := axtest.ResultOf(run, "SUCCEEDED", "")
	other["batchId"] = run.BatchID + "0"
	odd := axtest.ResultOf(run, "PERHAPS", "")
	require.Equal(t, []string{"unknown", "unknown", "unknown"}, x.Report(strange, other, odd))
	b := ns.Ended(run.BatchID)
	require.Equal(t, "SUCCEEDED", b.State)
	require.Equal(t, "yes", b.Executions[0].Message)
	require.Equal(t, 1, b.ShardsDone)
	require.Contains(t, b.Kinds(), "late_result")
}

func reportsAtOnce(t *testing.T, ns *axtest.Namespace) {
	x, run := silentRun(t, ns)
	var mu sync.Mutex
	counts := map[string]int{}
	var wait sync.WaitGroup
	for range 20 {
		wait.Go(func() {
			status, raw := x.Post("/ax/results", map[string]any{"type": "results", "namespace": ns.Name, "app": "app", "instance": x.Instance(), "results": []any{axtest.ResultOf(run, "SUCCEEDED", "")}})
			mu.Lock()
			defer mu.Unlock()
			for _, word := range []string{"recorded", "repeated"} {
				if status == http.StatusOK && strings.Contains(string(raw), `"`+word+`"`) {
					counts[word]++
				}
			}
		})
	}
	wait.Wait()
	require.Equal(t, map[string]int{"recorded": 1, "repeated": 19}, counts)
	require.Equal(t, 1, ns.Ended(run.BatchID).ShardsDone)
}

func manyResults(t *testing.T, ns *axtest.Namespace) {
	const good = 300
	x := ns.App("app").Worker(axtest.Succeed)
	x.Is(axtest.Mute)
	job := ns.Job(axtest.Def{"concurrency": policy("allow", 0), "retry": retries(0)})
	var wait sync.WaitGroup
	for range 10 {
		wait.Go(func() {
			for range good / 10 {
				if a, err := ns.Client.Try(http.MethodPost, ns.Path("/jobs/"+job+"/trigger"), map[string]any{}); err != nil || a.Status != http.StatusOK {
					t.Errorf("trigger: %v %s", err, a.Body)
				}
			}
		})
	}
	wait.Wait()
	axtest.WaitFor(t, "all were delivered", func() bool { return len(x.Starts()) == good })
	axtest.WaitFor(t, "all run", func() bool {
		for _, b := range ns.Batches(job) {
			if b.State != "RUNNING" {
				return false
			}
		}
		return true
	})
	var list []map[string]any
	want := make([]string, 0, good+6)
	for i, s := range x.Starts() {
		list = append(list, axtest.ResultOf(s.Run, "SUCCEEDED", ""))
		want = append(want, "recorded")
		if i%60 == 0 {
			bad := axtest.ResultOf(s.Run, "SUCCEEDED", "")
			bad["executionId"] = fmt.Sprint(4711 + i)
			list, want = append(list, bad), append(want, "unknown")
		}
	}
	bad := axtest.ResultOf(x.Starts()[0].Run, "SUCCEEDED", "")
	bad["durationMs"] = "long"
	list, want = append(list, bad), append(want, "unknown")
	require.Equal(t, want, x.Report(list...), "one bad item does not void the others")
	ended := 0
	for _, b := range ns.Batches(job) {
		if b.State == "SUCCEEDED" {
			ended++
		}
	}
	require.Equal(t, good, ended)
	tooMany := make([]map[string]any, 501)
	for i := range tooMany {
		tooMany[i] = list[0]
	}
	status, raw := x.Post("/ax/results", map[string]any{"type": "results", "namespace": ns.Name, "app": "app", "instance": x.Instance(), "results": tooMany})
	require.Equal(t, http.StatusBadRequest, status)
	require.Contains(t, string(raw), "too_many")
}

func longMessages(t *testing.T, ns *axtest.Namespace) {
	x, run := silentRun(t, ns)
	status, raw := x.PostRaw("/ax/results", []byte(`{"type":"results","results":[`+strings.Repeat(" ", 2<<20)+`]}`), time.Now())
	require.Equal(t, http.StatusRequestEntityTooLarge, status, string(raw))
	require.False(t, ns.Batch(run.BatchID).Final())
	body := fmt.Sprintf(`{"type":"results","namespace":%q,"app":"app","instance":%q,"results":[{"batchId":%q,"executionId":%q,"shardingId":0,"fence":{"attempt":1,"epoch":1},"state":"FAILED","message":"%s","durationMs":1}]}`,
		ns.Name, x.Instance(), run.BatchID, run.ExecutionID, `\ud800 \u0000`+strings.Repeat("坏了😀", 60_000))
	status, raw = x.PostRaw("/ax/results", []byte(body), time.Now())
	require.Equal(t, http.StatusOK, status, string(raw))
	b := ns.Ended(run.BatchID)
	require.Equal(t, "FAILED", b.State)
	message := b.Executions[0].Error
	require.LessOrEqual(t, len(message), 4100)
	require.True(t, strings.HasSuffix(message, "…"), "it says that it was cut")
	require.Contains(t, message, "坏了😀坏了😀")
	require.Contains(t, message, "\uFFFD", "what is no character is replaced")
}

func foreignResult(t *testing.T, ns *axtest.Namespace) {
	_, run := silentRun(t, ns)
	other := ns.Server.Namespace(t)
	y := other.App("app").Worker(axtest.Succeed)
	require.Equal(t, []string{"unknown"}, y.Report(axtest.ResultOf(run, "SUCCEEDED", "mine")))
	b := ns.Batch(run.BatchID)
	require.Equal(t, "RUNNING", b.State)
	require.Empty(t, b.Events)
	// Output and leases neither.
	status, raw := y.Post("/ax/log", map[string]any{"type": "log", "namespace": other.Name, "app": "app", "instance": y.Instance(), "chunks": []any{map[string]any{"batchId": run.BatchID, "executionId": run.ExecutionID, "seq": 1, "text": "x\n"}}})
	require.Equal(t, http.StatusOK, status)
	require.Contains(t, string(raw), `"refused"`)
	status, raw = y.Post("/ax/lease", map[string]any{"type": "lease", "namespace": other.Name, "app": "app", "instance": y.Instance(), "executions": []any{map[string]any{"batchId": run.BatchID, "executionId": run.ExecutionID, "fence": run.Fence, "extendMs": 1000}}})
	require.Equal(t, http.StatusOK, status)
	require.Contains(t, string(raw), `"unknown"`)
	require.Empty(t, ns.Output(run.ExecutionID))
}

func deletedWhileRunning(t *testing.T, ns *axtest.Namespace) {
	hold := make(chan struct{})
	x := ns.App("app").Worker(func(context.Context, axtest.Run) axtest.Result {
		<-hold
		return axtest.Result{State: "FAILED", Message: "too late"}
	})
	job := ns.Job(axtest.Def{"retry": retries(3), "triggers": every("1s")})
	axtest.WaitFor(t, "it runs", func() bool { return len(x.Starts()) == 1 })
	id := x.Starts()[0].Run.BatchID
	a := ns.Client.Do(t, http.MethodDelete, ns.Path("/jobs/"+job), nil)
	require.Equal(t, http.StatusNoContent, a.Status, a.Text())
	close(hold)
	b := ns.Ended(id)
	require.Contains(t, []string{"FAILED", "CANCELLED"}, b.State)
	axtest.WaitFor(t, "nothing of the job is left open", func() bool {
		for _, b := range ns.Batches(job) {
			if !b.Final() {
				return false
			}
		}
		return true
	})
	before := len(x.Deliveries())
	axtest.Stays(t, 2500*time.Millisecond, "a deleted job does not fire", func() bool { return len(x.Deliveries()) == before })
	require.NotContains(t, ns.Server.Log(), "request panicked")
}

func disabledWhileRunning(t *testing.T, ns *axtest.Namespace) {
	hold := make(chan struct{})
	x := ns.App("app").Worker(func(context.Context, axtest.Run) axtest.Result {
		<-hold
		return axtest.Result{}
	})
	job := ns.Job(axtest.Def{"triggers": every("1s"), "concurrency": policy("allow", 1)})
	axtest.WaitFor(t, "it runs", func() bool { return len(x.Starts()) == 1 })
	id := x.Starts()[0].Run.BatchID
	disable(t, ns, job)
	at := time.Now()
	require.Nil(t, ns.JobView(job).NextTriggerAt)
	require.False(t, ns.Batch(id).Final(), "what runs goes on")
	close(hold)
	require.Equal(t, "SUCCEEDED", ns.Ended(id).State)
	axtest.Stays(t, 2500*time.Millisecond, "no firing after it was disabled", func() bool {
		for _, d := range x.Deliveries() {
			if d.Run.DueAt > at.UnixMilli() {
				return false
			}
		}
		return true
	})
}

func disableHolds(t *testing.T, ns *axtest.Namespace) {
	const jobs, rounds = 10, 5
	x := ns.App("app").Worker(axtest.Succeed)
	var total atomic.Int64
	var wait sync.WaitGroup
	for i := range jobs {
		job := ns.Job(axtest.Def{"name": fmt.Sprint("busy ", i), "triggers": every("1s"), "concurrency": policy("allow", 0)})
		wait.Go(func() {
			for range rounds {
				axtest.Pause(time.Duration(rand.IntN(1300)) * time.Millisecond)
				if a, err := ns.Client.Try(http.MethodPost, ns.Path("/jobs/"+job+"/disable"), map[string]any{}); err != nil || a.Status != http.StatusOK {
					t.Errorf("disable: %v %s", err, a.Body)
					return
				}
				at := time.Now().UnixMilli()
				axtest.Pause(1300 * time.Millisecond)
				var v axtest.JobView
				a, err := ns.Client.Try(http.MethodGet, ns.Path("/jobs/"+job), nil)
				if err != nil || a.Status != http.StatusOK {
					t.Errorf("read: %v %s", err, a.Body)
					return
				}
				a.Into(t, &v)
				if v.Enabled || v.NextTriggerAt != nil {
					t.Errorf("job %s was disabled and is %+v", job, v)
				}
				for _, d := range x.Deliveries() {
					if d.Run.Job.ID == job && d.Run.DueAt > at && d.At.UnixMilli() > at {
						t.Errorf("job %s was disabled at %d and ran for %d", job, at, d.Run.DueAt)
					}
				}
				total.Add(1)
				if a, err := ns.Client.Try(http.MethodPost, ns.Path("/jobs/"+job+"/enable"), map[string]any{}); err != nil || a.Status != http.StatusOK {
					t.Errorf("enable: %v %s", err, a.Body)
					return
				}
			}
			_, _ = ns.Client.Try(http.MethodPost, ns.Path("/jobs/"+job+"/disable"), map[string]any{})
		})
	}
	wait.Wait()
	require.EqualValues(t, jobs*rounds, total.Load())
	require.NotEmpty(t, x.Starts(), "the jobs were busy")
	axtest.NothingTwice(t, x)
}

func idempotency(t *testing.T, ns *axtest.Namespace) {
	x := ns.App("app").Worker(axtest.Succeed)
	job := ns.Job(axtest.Def{"concurrency": policy("allow", 0)})
	ask := func(body map[string]any) (int, string) {
		a, err := ns.Client.Try(http.MethodPost, ns.Path("/jobs/"+job+"/trigger"), body)
		if err != nil {
			return 0, err.Error()
		}
		var out struct{ BatchID, Code string }
		a.Into(t, &out)
		return a.Status, out.BatchID + out.Code
	}
	ids := make([]string, 8)
	var wait sync.WaitGroup
	for i := range ids {
		wait.Go(func() { _, ids[i] = ask(map[string]any{"idempotencyKey": "K", "params": "p"}) })
	}
	wait.Wait()
	for _, id := range ids {
		require.Equal(t, ids[0], id)
	}
	require.Equal(t, "SUCCEEDED", ns.Ended(ids[0]).State)
	status, again := ask(map[string]any{"idempotencyKey": "K", "params": "p"})
	require.Equal(t, http.StatusOK, status)
	require.Equal(t, ids[0], again, "also after the end")
	for _, other := range []map[string]any{{"idempotencyKey": "K", "params": "q"}, {"idempotencyKey": "K"}} {
		status, code := ask(other)
		require.Equal(t, http.StatusConflict, status)
		require.Equal(t, "key_reused", code)
	}
	_, fresh := ask(map[string]any{"idempotencyKey": "L", "params": "p"})
	require.NotEqual(t, ids[0], fresh)
	require.Equal(t, "SUCCEEDED", ns.Ended(fresh).State)
	require.Len(t, x.Starts(), 2)
}

func registrations(t *testing.T, ns *axtest.Namespace) {
	x := ns.App("app").Worker(axtest.Succeed)
	x.Die()
	x.Revive() // a new process: its first registrations come all at once
	x.Silence(true)
	x.Die()
	fresh := x.Registration()
	fresh["startId"] = "another process 0123456789"
	var wait sync.WaitGroup
	for range 100 {
		wait.Go(func() {
			if status, raw := x.Post("/ax/registry", fresh); status != http.StatusOK {
				t.Errorf("register: %d %s", status, raw)
			}
		})
	}
	wait.Wait()
	seen := 0
	for _, e := range ns.Executors() {
		if e.StartID == fresh["startId"] {
			seen++
		}
	}
	require.Equal(t, 1, seen)
	row, err := ns.Server.Store().NamespaceByName(context.Background(), ns.Name)
	require.NoError(t, err)
	list, err := ns.Server.Store().ExecutorsIn(context.Background(), row.Bucket)
	require.NoError(t, err)
	rows := 0
	for _, e := range list {
		if e.StartID == fresh["startId"] {
			rows++
		}
	}
	require.Equal(t, 1, rows, "nor does the database have more")
}

func gridStays(t *testing.T, ns *axtest.Namespace) {
	x := ns.App("app").Worker(axtest.Succeed)
	job := ns.Job(axtest.Def{"triggers": []map[string]any{{"kind": "fixedRate", "every": "1h"}}, "concurrency": policy("allow", 0)})
	before := ns.JobView(job)
	for range 3 {
		require.Equal(t, "SUCCEEDED", ns.Ended(ns.Trigger(job)).State)
	}
	after := ns.JobView(job)
	require.NotNil(t, before.NextTriggerAt)
	require.Equal(t, before.NextTriggerAt, after.NextTriggerAt)
	require.Len(t, x.Starts(), 3)
}

func lateAndTwice(t *testing.T, ns *axtest.Namespace) {
	app := ns.App("app")
	x := app.Worker(axtest.Succeed)
	job := ns.Job(axtest.Def{"concurrency": policy("allow", 0), "retry": retries(0)})
	for _, f := range []axtest.Fault{axtest.AnswersLate, axtest.AnswersTwice, axtest.Slow} {
		x.Is(f)
		id := ns.Trigger(job)
		if f == axtest.AnswersLate {
			axtest.WaitFor(t, "the request was repeated", func() bool {
				n := 0
				for _, d := range x.Deliveries() {
					if d.Run.BatchID == id {
						n++
					}
				}
				return n > 1
			})
		}
		x.Is(axtest.Fine)
		b := ns.Ended(id)
		require.Equal(t, "SUCCEEDED", b.State, f)
		require.Len(t, b.Executions, 1, f)
		require.Equal(t, 1, b.ShardsDone, f)
	}
	// One that hangs is asked until it answers again.
	x.Is(axtest.Hangs)
	id := ns.Trigger(job)
	axtest.Pause(1500 * time.Millisecond)
	x.Is(axtest.Fine)
	require.Equal(t, "SUCCEEDED", ns.Ended(id).State)
	require.Len(t, x.Starts(), 4)
	axtest.NothingTwice(t, x)
}

func diesAfterAccept(t *testing.T, ns *axtest.Namespace) {
	app := ns.App("app")
	list := []*axtest.Executor{app.Worker(axtest.Succeed), app.Worker(axtest.Succeed)}
	list[0].Is(axtest.DiesAfterAccept)
	b := ns.Ended(ns.Trigger(ns.Job(axtest.Def{"routing": strategy("first"), "retry": retries(0)})))
	require.Equal(t, "SUCCEEDED", b.State, b.Code())
	require.Len(t, b.Executions, 2)
	require.Equal(t, "LOST", b.Executions[0].State)
	require.Equal(t, list[0].Address, b.Executions[0].Address())
	require.Equal(t, list[1].Address, b.Executions[1].Address())
	require.Len(t, list[0].Deliveries(), 1)
	require.Len(t, axtest.Ledger(list...), 1)
}

func silentKeepsItsRun(t *testing.T, ns *axtest.Namespace) {
	app := ns.App("app")
	hold := make(chan struct{})
	work := func(context.Context, axtest.Run) axtest.Result {
		<-hold
		return axtest.Result{}
	}
	x := app.Worker(work)
	id := ns.Trigger(ns.Job(axtest.Def{"retry": retries(0)}))
	ns.Reaches(id, "RUNNING")
	x.Silence(true)
	axtest.WaitFor(t, "its silence is noticed", func() bool { return ns.Executors()[0].State == "SUSPECT" })
	y := app.Worker(work)
	axtest.Stays(t, 5*time.Second, "its run is left alone while it answers", func() bool {
		b := ns.Batch(id)
		return !b.Final() && len(b.Executions) == 1
	})
	x.Silence(false)
	axtest.WaitFor(t, "it is back at its first heartbeat", func() bool { return ns.Executors()[0].State == "ONLINE" })
	close(hold)
	b := ns.Ended(id)
	require.Equal(t, "SUCCEEDED", b.State)
	require.Len(t, b.Executions, 1)
	require.Empty(t, y.Starts())
}

func fullPassedOver(t *testing.T, ns *axtest.Namespace) {
	app := ns.App("app")
	full, draining, broken, free := app.Worker(axtest.Succeed), app.Worker(axtest.Succeed), app.Worker(axtest.Succeed), app.Worker(axtest.Succeed)
	full.Is(axtest.Full)
	broken.Is(axtest.Errs)
	draining.Is(axtest.Drains)
	job := ns.Job(axtest.Def{"routing": strategy("first"), "retry": retries(0)})
	b := ns.Ended(ns.Trigger(job))
	require.Equal(t, "SUCCEEDED", b.State, b.Code())
	require.Len(t, axtest.Ledger(full, draining, broken, free), 1)
	require.Len(t, free.Starts(), 1)
	free.Is(axtest.Full)
	broken.Is(axtest.Full)
	id := ns.Trigger(job)
	axtest.WaitFor(t, "everybody has been asked", func() bool { return len(free.Deliveries()) > 1 && len(broken.Deliveries()) > 0 })
	require.False(t, ns.Batch(id).Final(), "it waits for room")
	for _, e := range ns.Batch(id).Executions {
		if e.State == "REJECTED" {
			require.NotNil(t, e.Reason)
			require.Contains(t, []string{"executor_full", "executor_draining"}, e.Reason.Code)
		}
	}
	free.Is(axtest.Fine)
	require.Equal(t, "SUCCEEDED", ns.Ended(id).State)
}

func textSurvives(t *testing.T, ns *axtest.Namespace) {
	const text = "中文 😀 العربية <script>alert(1)</script> \"quoted\" \\ \t ünï"
	x := ns.App("app").Worker(axtest.Succeed)
	x.Is(axtest.Mute)
	job := ns.Job(axtest.Def{"name": text[:20], "params": text, "description": text})
	id := ns.Trigger(job)
	axtest.WaitFor(t, "it was delivered", func() bool { return len(x.Deliveries()) == 1 })
	run := x.Deliveries()[0].Run
	require.Equal(t, text, run.Params)
	x.Write(run, 1, text+"\n")
	axtest.WaitFor(t, "it runs", func() bool { return ns.Batch(id).State == "RUNNING" })
	res := axtest.ResultOf(run, "SUCCEEDED", text)
	res["result"] = text
	require.Equal(t, []string{"recorded"}, x.Report(res))
	b := ns.Ended(id)
	require.Equal(t, text, b.Executions[0].Message)
	require.Equal(t, text, *b.Executions[0].Result)
	require.Equal(t, text+"\n", ns.Output(run.ExecutionID))
	require.Equal(t, text, ns.JobView(job).Description)
}

func otherEncodings(t *testing.T, ns *axtest.Namespace) {
	x := ns.App("app").Worker(axtest.Succeed)
	x.Is(axtest.Mute)
	id := ns.Trigger(ns.Job(axtest.Def{}))
	axtest.WaitFor(t, "it was delivered", func() bool { return len(x.Deliveries()) == 1 })
	run := x.Deliveries()[0].Run
	post := func(path string, message map[string]any, change func(raw string) string) (int, string) {
		t.Helper()
		message["namespace"], message["app"], message["instance"] = ns.Name, "app", x.Instance()
		raw, err := json.Marshal(message)
		require.NoError(t, err)
		status, reply := x.PostRaw(path, []byte(change(string(raw))), time.Now())
		return status, string(reply)
	}
	// GBK of 中文, which is no UTF-8.
	status, reply := post("/ax/log", map[string]any{"type": "log", "chunks": []map[string]any{{"batchId": run.BatchID, "executionId": run.ExecutionID, "seq": 1, "text": "before @@ after\n"}}}, func(raw string) string {
		return strings.Replace(raw, "@@", "\xd6\xd0\xce\xc4", 1)
	})
	require.Equal(t, http.StatusOK, status, reply)
	// A byte order mark, escapes, and a content type without a charset or with one.
	for i, kind := range []string{"application/json", "application/json; charset=utf-8", "application/json;charset=GBK"} {
		message := map[string]any{"type": "log", "namespace": ns.Name, "app": "app", "instance": x.Instance(), "chunks": []map[string]any{{"batchId": run.BatchID, "executionId": run.ExecutionID, "seq": i + 2, "text": "中 @@\n"}}}
		raw, err := json.Marshal(message)
		require.NoError(t, err)
		status, reply := x.PostRaw("/ax/log", []byte("\xef\xbb\xbf"+strings.Replace(string(raw), "@@", `\u6587`, 1)), time.Now(), func(r *http.Request) { r.Header.Set("Content-Type", kind) })
		require.Equal(t, http.StatusOK, status, string(reply))
	}
	out := ns.Output(run.ExecutionID)
	require.True(t, utf8.ValidString(out))
	require.Contains(t, out, "before ")
	require.Contains(t, out, " after\n")
	require.Equal(t, 3, strings.Count(out, "中 文\n"))
	res := axtest.ResultOf(run, "SUCCEEDED", "done @@")
	status, reply = post("/ax/results", map[string]any{"type": "results", "results": []any{res}}, func(raw string) string { return strings.Replace(raw, "@@", "\xff", 1) })
	require.Equal(t, http.StatusOK, status, reply)
	b := ns.Ended(id)
	require.Equal(t, "SUCCEEDED", b.State)
	require.Equal(t, "done \ufffd", b.Executions[0].Message)
}
