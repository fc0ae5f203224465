package main

import (
	"context"
	"fmt"
	"math/rand/v2"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/ax-scheduler/ax/server/axtest"
)

func TestShards(t *testing.T) {
	cases := []shared{
		{"C278 a fixed number runs each once while executors leave, die and join", fixedShards},
		{"C275 firings with different totals never run together", differentTotals},
		{"B9 several for each executor, frozen when the batch is made", severalEach},
		{"M16 one bad of a thousand: one is tried again", oneBad},
		{"B9 a quorum is a success, and what failed may be tried again", quorum},
		{"B9 what shards return is collected", shardResults},
	}
	axtest.Both(t, func(t *testing.T, o ...axtest.Option) {
		s := axtest.Start(t, o...)
		runShared(t, s, cases)
		s.LedgerClean(t)
	})
}

func fixedShards(t *testing.T, ns *axtest.Namespace) {
	app := ns.App("app")
	work := axtest.For(1500 * time.Millisecond)
	var list []*axtest.Executor
	for range 5 {
		list = append(list, app.Worker(work))
	}
	job := ns.Job(axtest.Def{"retry": retries(0), "routing": map[string]any{"strategy": "roundRobin", "shards": 9}})
	id := ns.Trigger(job)
	axtest.WaitFor(t, "every shard runs somewhere", func() bool { return len(axtest.Ledger(list...)) == 9 })
	list[0].Is(axtest.Drains) // it leaves, and finishes what it has
	list[0].Beat()
	dead := list[1]
	lost := len(dead.Starts())
	require.NotZero(t, lost, "the shards are spread")
	dead.Die()
	list = append(list, app.Worker(work))
	b := ns.Ended(id)
	require.Equal(t, "SUCCEEDED", b.State, b.Code())
	require.Equal(t, 9, b.ShardTotal)
	require.Equal(t, 9, b.ShardsDone)
	ended := map[int]int{}
	for _, e := range b.Executions {
		require.Equal(t, 9, e.ShardTotal)
		if e.State == "SUCCEEDED" {
			ended[e.Shard]++
		}
	}
	require.Len(t, ended, 9)
	for shard, n := range ended {
		require.Equal(t, 1, n, "shard %d", shard)
	}
	require.Len(t, axtest.Ledger(list...), 9+lost, "only what the dead one had ran again")
	axtest.NothingTwice(t, list...)

	for _, n := range []int{0, -1, 10_000} {
		a := ns.Client.Do(t, http.MethodPost, ns.Path("/jobs"), map[string]any{"name": fmt.Sprint("n", n), "app": "app", "handler": "work", "routing": map[string]any{"shards": n}})
		require.Equal(t, http.StatusUnprocessableEntity, a.Status, a.Text())
		p := a.Problem(t)
		require.Contains(t, p.Errors[0].Field, "shards")
		require.NotEmpty(t, p.Errors[0].Message.ZH)
	}
}

func differentTotals(t *testing.T, ns *axtest.Namespace) {
	app := ns.App("app")
	hold := make(chan struct{})
	list := []*axtest.Executor{app.Worker(wait(hold)), app.Worker(wait(hold)), app.Worker(wait(hold))}
	job := ns.Job(axtest.Def{"routing": strategy("shardingBroadcast"), "concurrency": policy("queueOne", 1)})
	first := ns.Trigger(job)
	axtest.WaitFor(t, "all three run", func() bool { return len(axtest.Ledger(list...)) == 3 })
	list[2].Is(axtest.Drains)
	list[2].Beat()
	second := ns.Trigger(job)
	axtest.WaitFor(t, "the next waits", func() bool { return waits(ns, second).Reason.Code == "waiting_overlap" })
	require.Equal(t, 2, ns.Batch(second).ShardTotal)
	require.Equal(t, "SKIPPED", ns.Ended(ns.Trigger(job)).State)
	close(hold)
	require.Equal(t, 3, ns.Ended(first).ShardTotal)
	require.Equal(t, "SUCCEEDED", ns.Ended(second).State)
	for _, s := range axtest.Ledger(list...) {
		for _, o := range axtest.Ledger(list...) {
			if s.Run.ShardingTotal != o.Run.ShardingTotal {
				require.False(t, s.At.Before(o.Until) && o.At.Before(s.Until), "shards of %d and of %d at once", s.Run.ShardingTotal, o.Run.ShardingTotal)
			}
		}
	}
	axtest.NothingTwice(t, list...)
}

func severalEach(t *testing.T, ns *axtest.Namespace) {
	app := ns.App("app")
	hold := make(chan struct{})
	list := []*axtest.Executor{app.Labelled(map[string]string{"pool": "big"}, wait(hold)), app.Labelled(map[string]string{"pool": "big"}, wait(hold)), app.Worker(wait(hold))}
	job := ns.Job(axtest.Def{"routing": map[string]any{"strategy": "shardingBroadcast", "perExecutor": 3, "selector": "pool = big"}, "concurrency": policy("allow", 0)})
	id := ns.Trigger(job)
	axtest.WaitFor(t, "all run", func() bool { return len(axtest.Ledger(list...)) == 6 })
	require.Len(t, list[0].Starts(), 3)
	require.Len(t, list[1].Starts(), 3, "who may not run it has no share")
	list = append(list, app.Labelled(map[string]string{"pool": "big"}, wait(hold)))
	next := ns.Trigger(job)
	require.Equal(t, 6, ns.Batch(id).ShardTotal, "what is made is frozen")
	require.Equal(t, 9, ns.Batch(next).ShardTotal, "who joins takes part in the next")
	close(hold)
	require.Equal(t, "SUCCEEDED", ns.Ended(id).State)
	require.Equal(t, "SUCCEEDED", ns.Ended(next).State)
	axtest.NothingTwice(t, list...)
}

func retryBatch(t *testing.T, ns *axtest.Namespace, id string, body map[string]any, want int) {
	t.Helper()
	a := ns.Client.Do(t, http.MethodPost, ns.Path("/batches/"+id+"/retry"), body)
	require.Equal(t, want, a.Status, a.Text())
}

func oneBad(t *testing.T, ns *axtest.Namespace) {
	const bad = 617
	var good atomic.Bool
	work := func(_ context.Context, run axtest.Run) axtest.Result {
		if run.ShardingID == bad && !good.Load() {
			return axtest.Result{State: "FAILED", Message: "bad rows"}
		}
		return axtest.Result{}
	}
	app := ns.App("app")
	list := []*axtest.Executor{app.Worker(work), app.Worker(work)}
	id := ns.Trigger(ns.Job(axtest.Def{"retry": retries(0), "routing": map[string]any{"shards": 1000}}))
	b := ns.Ended(id)
	require.Equal(t, "FAILED", b.State)
	require.Equal(t, "shards_failed", b.Code())
	require.True(t, strings.HasPrefix(b.Reason.Detail, "1 of 1000: bad rows"), b.Reason.Detail)
	require.Len(t, axtest.Ledger(list...), 1000)
	good.Store(true)
	retryBatch(t, ns, id, map[string]any{"onlyFailed": true}, http.StatusAccepted)
	b = ns.Ended(id)
	require.Equal(t, "SUCCEEDED", b.State)
	require.Equal(t, 1000, b.ShardsDone)
	require.Zero(t, b.ShardsFail)
	starts := axtest.Ledger(list...)
	require.Len(t, starts, 1001)
	again := 0
	for _, s := range starts {
		if s.Run.Attempt > 1 {
			require.Equal(t, bad, s.Run.ShardingID)
			require.Equal(t, 1000, s.Run.ShardingTotal)
			again++
		}
	}
	require.Equal(t, 1, again)
	retryBatch(t, ns, id, map[string]any{}, http.StatusConflict)
	axtest.NothingTwice(t, list...)
}

func quorum(t *testing.T, ns *axtest.Namespace) {
	var bad atomic.Int64
	x := ns.App("app").Worker(func(_ context.Context, run axtest.Run) axtest.Result {
		if int64(run.ShardingID) < bad.Load() {
			return axtest.Result{State: "FAILED", Message: "no luck"}
		}
		return axtest.Result{}
	})
	job := ns.Job(axtest.Def{"retry": retries(0), "concurrency": policy("allow", 0), "routing": map[string]any{"shards": 4, "quorum": 75}})
	bad.Store(1)
	id := ns.Trigger(job)
	b := ns.Ended(id)
	require.Equal(t, "SUCCEEDED", b.State)
	require.Equal(t, "quorum_met", b.Code())
	require.Equal(t, 1, b.ShardsFail, "nothing is hidden")
	bad.Store(2)
	failed := ns.Ended(ns.Trigger(job))
	require.Equal(t, "FAILED", failed.State)
	require.Equal(t, 2, failed.ShardsFail)
	bad.Store(0)
	retryBatch(t, ns, id, map[string]any{}, http.StatusAccepted)
	b = ns.Ended(id)
	require.Equal(t, "SUCCEEDED", b.State)
	require.NotEqual(t, "quorum_met", b.Code())
	require.Zero(t, b.ShardsFail)
	require.Len(t, x.Starts(), 9)
	retryBatch(t, ns, failed.BatchID, map[string]any{"onlyFailed": false}, http.StatusUnprocessableEntity) // what succeeded is not run twice
	retryBatch(t, ns, failed.BatchID, map[string]any{"onlyFailed": true}, http.StatusAccepted)
	b = ns.Ended(failed.BatchID)
	require.Equal(t, "SUCCEEDED", b.State)
	require.Equal(t, 4, b.ShardsDone)
	require.Len(t, x.Starts(), 11)
	axtest.NothingTwice(t, x)
}

func shardResults(t *testing.T, ns *axtest.Namespace) {
	ns.App("app").Worker(func(_ context.Context, run axtest.Run) axtest.Result {
		if run.ShardingID == 2 && run.Attempt == 1 {
			return axtest.Result{State: "FAILED"}
		}
		text := fmt.Sprintf(`{"rows":%d,"attempt":%d}`, run.ShardingID*100, run.Attempt)
		return axtest.Result{Result: &text}
	})
	b := ns.Ended(ns.Trigger(ns.Job(axtest.Def{"retry": retries(1), "routing": map[string]any{"shards": 3}})))
	require.Equal(t, "SUCCEEDED", b.State)
	require.Equal(t, []axtest.ShardResult{{Shard: 0, Result: `{"rows":0,"attempt":1}`}, {Shard: 1, Result: `{"rows":100,"attempt":1}`}, {Shard: 2, Result: `{"rows":200,"attempt":2}`}}, b.Results)
}

// B9: whatever executors do, every shard of every firing succeeds once, with its index and the total of when the
// firing was made, and no attempt runs twice or beside another of its shard. Limits hold all the while.
func TestShardsSurviveChurn(t *testing.T) {
	axtest.Both(t, func(t *testing.T, o ...axtest.Option) {
		s := axtest.Start(t, o...)
		ns := s.Namespace(t)
		app := ns.App("app")
		work := func(ctx context.Context, run axtest.Run) axtest.Result {
			return axtest.For(time.Duration(100+run.ShardingID%7*100)*time.Millisecond)(ctx, run)
		}
		var all []*axtest.Executor
		join := func() *axtest.Executor {
			x := app.Worker(work)
			all = append(all, x)
			return x
		}
		for range 4 {
			join()
		}
		putLimit(t, ns, "narrow", map[string]any{"max": 12})
		jobs := map[string]int{
			ns.Job(axtest.Def{"name": "fixed", "retry": retries(3), "concurrency": policy("allow", 0), "limits": []string{"narrow"}, "routing": map[string]any{"strategy": "leastBusy", "shards": 40}}):                 40,
			ns.Job(axtest.Def{"name": "broadcast", "retry": retries(3), "concurrency": policy("allow", 0), "limits": []string{"narrow"}, "routing": map[string]any{"strategy": "shardingBroadcast", "perExecutor": 5}}): 0,
		}
		totals := map[string]int{}
		fire := func() {
			for job, total := range jobs {
				id := ns.Trigger(job)
				made := ns.Batch(id).ShardTotal
				if total > 0 {
					require.Equal(t, total, made)
				}
				totals[id] = made
			}
		}
		fire()
		seed := rand.New(rand.NewPCG(7, 11))
		for step := range 4 {
			axtest.Pause(time.Duration(200+seed.IntN(400)) * time.Millisecond)
			x := all[seed.IntN(len(all))]
			switch step % 4 {
			case 0:
				join()
			case 1:
				x.Die()
			case 2:
				x = join()
				x.Is(axtest.Drains)
				x.Beat()
			case 3:
				fire()
			}
		}
		for id, total := range totals {
			b := ns.Ended(id)
			require.Equal(t, "SUCCEEDED", b.State, b.Code())
			require.Equal(t, total, b.ShardTotal)
			require.Equal(t, total, b.ShardsDone)
			good := map[int]int{}
			for _, e := range b.Executions {
				require.Equal(t, total, e.ShardTotal)
				if e.State == "SUCCEEDED" {
					good[e.Shard]++
				}
			}
			require.Len(t, good, total)
			for shard, n := range good {
				require.Equal(t, 1, n, "shard %d of %s", shard, id)
			}
		}
		axtest.NothingTwice(t, all...)
		require.LessOrEqual(t, axtest.Most(axtest.Ledger(all...)), 12)
		axtest.WaitFor(t, "the limit is free again", func() bool { return limitOf(t, ns, "narrow").Running == 0 })
		s.LedgerClean(t)
	})
}
