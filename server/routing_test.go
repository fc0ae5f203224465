package main

import (
	"context"
	"net/http"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/ax-scheduler/ax/server/axtest"
)

// The cases of TestRouting share one server for each database and have a namespace each.
func TestRouting(t *testing.T) {
	cases := []shared{
		{"P11 a selector chooses by labels, and what nobody fits waits and says so", selectorChooses},
		{"P11 a rule ranks by what a job asks for", ruleRanks},
		{"P8 what a job declares bounds what an executor gets", capacityBounds},
		{"P12 a choice is explained", choiceExplained},
		{"M2 simulating runs nothing", simulated},
		{"C281 a key stays with its executor", keyStays},
	}
	axtest.Both(t, func(t *testing.T, o ...axtest.Option) {
		s := axtest.Start(t, o...)
		runShared(t, s, cases)
	})
}

func selectorChooses(t *testing.T, ns *axtest.Namespace) {
	app := ns.App("app")
	a := app.Labelled(map[string]string{"zone": "a"}, axtest.Succeed)
	b := app.Labelled(map[string]string{"zone": "b", "gpu": ""}, axtest.Succeed)
	select1 := func(selector string) map[string]any { return map[string]any{"strategy": "first", "selector": selector} }
	onB := ns.Job(axtest.Def{"name": "on b", "routing": select1("zone in (b, c), gpu")})
	notA := ns.Job(axtest.Def{"name": "not on a", "routing": select1("!gpu, address in (127.0.0.0/8)")})
	for range 3 {
		require.Equal(t, b.Address, ns.Ended(ns.Trigger(onB)).Executions[0].Address())
		require.Equal(t, a.Address, ns.Ended(ns.Trigger(notA)).Executions[0].Address())
	}
	onC := ns.Job(axtest.Def{"name": "on c", "routing": select1("zone = c")})
	id := ns.Trigger(onC)
	axtest.WaitFor(t, "it says what it waits for", func() bool { return ns.Batch(id).Code() == "waiting_no_match" })
	reason := ns.Batch(id).Reason
	require.Equal(t, "selector_not_met 2", reason.Detail)
	require.NotEqual(t, reason.Code, reason.EN)
	require.NotEqual(t, reason.EN, reason.ZH)
	require.Equal(t, a.Address, ns.Ended(ns.Trigger(notA)).Executions[0].Address(), "it holds up nobody of its app")
	c := app.Labelled(map[string]string{"zone": "c"}, axtest.Succeed)
	got := ns.Ended(id)
	require.Equal(t, "SUCCEEDED", got.State)
	require.Equal(t, c.Address, got.Executions[0].Address())

	for field, routing := range map[string]map[string]any{
		"routing.selector": {"selector": "zone in b"}, "routing.rule": {"rule": "executor.("}, "routing.strategy": {"strategy": "nonsense"}, "routing.quorum": {"quorum": 50}, "routing.perExecutor": {"perExecutor": 2},
	} {
		p := ns.Client.Do(t, http.MethodPost, ns.Path("/jobs"), map[string]any{"name": "bad", "app": "app", "handler": "work", "routing": routing}).Problem(t)
		require.Equal(t, http.StatusUnprocessableEntity, p.Status)
		require.Equal(t, field, p.Errors[0].Field)
	}
}

func ruleRanks(t *testing.T, ns *axtest.Namespace) {
	app := ns.App("app")
	dear := app.Labelled(map[string]string{"cost": "9"}, axtest.Succeed)
	cheap := app.Labelled(map[string]string{"cost": "2"}, axtest.Succeed)
	job := ns.Job(axtest.Def{"params": `{"budget":5}`, "routing": map[string]any{"strategy": "first", "rule": "double(executor.labels.cost) <= params.budget"}})
	require.Equal(t, cheap.Address, ns.Ended(ns.Trigger(job)).Executions[0].Address())
	best := ns.Job(axtest.Def{"name": "best", "routing": map[string]any{"strategy": "last", "rule": "int(executor.labels.cost)"}})
	require.Equal(t, dear.Address, ns.Ended(ns.Trigger(best)).Executions[0].Address())
}

func capacityBounds(t *testing.T, ns *axtest.Namespace) {
	app := ns.App("app")
	hold := make(chan struct{})
	work := func(context.Context, axtest.Run) axtest.Result {
		<-hold
		return axtest.Result{}
	}
	// Each registers two cores.
	list := []*axtest.Executor{app.Worker(work), app.Worker(work)}
	job := ns.Job(axtest.Def{"concurrency": policy("allow", 0), "resources": map[string]any{"cpu": 0.8, "memoryMB": 10}})
	light := ns.Job(axtest.Def{"name": "light", "concurrency": policy("allow", 0)})
	var ids []string
	for range 5 {
		ids = append(ids, ns.Trigger(job))
	}
	axtest.WaitFor(t, "what fits runs", func() bool { return len(axtest.Ledger(list...)) == 4 })
	axtest.WaitFor(t, "the fifth waits and says so", func() bool { return ns.Batch(ids[4]).Code() == "waiting_no_capacity" })
	require.Equal(t, "too_little_cpu 2", ns.Batch(ids[4]).Reason.Detail)
	easy := ns.Trigger(light)
	axtest.WaitFor(t, "what declares nothing is not held up", func() bool { return len(axtest.Ledger(list...)) == 5 })
	close(hold)
	require.Equal(t, "SUCCEEDED", ns.Ended(easy).State)
	for _, id := range ids {
		require.Equal(t, "SUCCEEDED", ns.Ended(id).State)
	}
	for _, x := range list {
		var heavy []axtest.Started
		for _, s := range x.Starts() {
			if s.Run.Job.ID == job {
				heavy = append(heavy, s)
			}
		}
		require.LessOrEqual(t, axtest.Most(heavy), 2)
	}
}

func choiceExplained(t *testing.T, ns *axtest.Namespace) {
	app := ns.App("app")
	a := app.Labelled(map[string]string{"zone": "a"}, axtest.Succeed)
	b := app.Worker(axtest.Succeed)
	job := ns.Job(axtest.Def{"routing": map[string]any{"strategy": "leastUsed", "selector": "zone"}})
	e := ns.Execution(ns.Ended(ns.Trigger(job)).Executions[0].ID)
	require.NotNil(t, e.Choice)
	require.Equal(t, "remembered", e.Choice.Source, "nothing of it is worth a row")
	require.Equal(t, "leastUsed", e.Choice.Strategy)
	require.Len(t, e.Choice.Candidates, 2)
	require.True(t, e.Choice.Candidates[0].Chosen)
	require.Equal(t, a.Address, e.Choice.Candidates[0].Executor.Address)
	require.Equal(t, "selector_not_met", e.Choice.Why(b.Address))

	// One that waited, or whose first choice could not have it, keeps its explanation.
	first := ns.Job(axtest.Def{"name": "first", "retry": retries(0), "routing": strategy("first")})
	a.Is(axtest.Full)
	batch := ns.Ended(ns.Trigger(first))
	a.Is(axtest.Fine)
	last := batch.Executions[len(batch.Executions)-1]
	require.Equal(t, b.Address, last.Address())
	e = ns.Execution(last.ID)
	require.Equal(t, "written", e.Choice.Source)
	require.Equal(t, "refused_before", e.Choice.Why(a.Address))
	require.Equal(t, 1, e.Choice.Candidates[0].Place)
	require.True(t, e.Choice.Candidates[0].Chosen)
	require.NotContains(t, batch.Kinds(), "routed", "it is told with the execution")
}

func simulated(t *testing.T, ns *axtest.Namespace) {
	app := ns.App("app")
	a := app.Labelled(map[string]string{"zone": "a"}, axtest.Succeed)
	b := app.Worker(axtest.Succeed)
	type simulation struct {
		ShardTotal int `json:"shardTotal"`
		Shards     []struct {
			Shard    int `json:"shard"`
			Executor *struct {
				Address string `json:"address"`
			} `json:"executor"`
		} `json:"shards"`
		Choice axtest.Choice `json:"choice"`
	}
	ask := func(path string, body map[string]any) (out simulation) {
		got := ns.Client.Do(t, http.MethodPost, ns.Path(path), body)
		require.Equal(t, http.StatusOK, got.Status, got.Text())
		got.Into(t, &out)
		return out
	}
	job := ns.Job(axtest.Def{"routing": map[string]any{"strategy": "last", "selector": "zone = a"}})
	got := ask("/jobs/"+job+"/routing/simulate", map[string]any{})
	require.Equal(t, 1, got.ShardTotal)
	require.Equal(t, a.Address, got.Shards[0].Executor.Address)
	require.Equal(t, "selector_not_met", got.Choice.Why(b.Address))
	unsaved := func(routing map[string]any) simulation {
		return ask("/routing/simulate", map[string]any{"job": map[string]any{"name": "new", "app": "app", "handler": "work", "routing": routing}})
	}
	got = unsaved(map[string]any{"strategy": "shardingBroadcast", "perExecutor": 2})
	require.Equal(t, 4, got.ShardTotal)
	counts := map[string]int{}
	for _, s := range got.Shards {
		counts[s.Executor.Address]++
	}
	require.Equal(t, map[string]int{a.Address: 2, b.Address: 2}, counts)
	require.Equal(t, 9, unsaved(map[string]any{"shards": 9}).ShardTotal)
	nobody := unsaved(map[string]any{"selector": "zone = nowhere"})
	require.Nil(t, nobody.Shards[0].Executor)
	require.Equal(t, "selector_not_met", nobody.Choice.Why(a.Address))
	require.Empty(t, ns.Batches(job))
	require.Empty(t, axtest.Ledger(a, b))
}

func keyStays(t *testing.T, ns *axtest.Namespace) {
	app := ns.App("app")
	app.Worker(axtest.Succeed)
	app.Worker(axtest.Succeed)
	job := ns.Job(axtest.Def{"concurrency": policy("allow", 0), "routing": map[string]any{"strategy": "consistentHash", "hashKey": "user"}})
	place := map[string]string{}
	run := func() int {
		moved := 0
		for i := range 12 {
			user := string(rune('a' + i))
			a := ns.Client.Do(t, http.MethodPost, ns.Path("/jobs/"+job+"/trigger"), map[string]any{"params": map[string]any{"user": user}})
			require.Equal(t, http.StatusOK, a.Status, a.Text())
			var out struct{ BatchID string }
			a.Into(t, &out)
			address := ns.Ended(out.BatchID).Executions[0].Address()
			if was, ok := place[user]; ok && was != address {
				moved++
			}
			place[user] = address
		}
		return moved
	}
	run()
	require.Zero(t, run(), "the same user goes to the same executor")
	third := app.Worker(axtest.Succeed)
	before := len(third.Starts())
	moved := run()
	require.Equal(t, moved, len(third.Starts())-before, "a key moves to the new executor or not at all")
}

// B8: where a job went before survives a restart of the server.
func TestUseSurvivesARestart(t *testing.T) {
	axtest.Both(t, func(t *testing.T, o ...axtest.Option) {
		s := axtest.Start(t, o...)
		ns := s.Namespace(t)
		app := ns.App("app")
		used := app.Worker(axtest.Succeed)
		job := ns.Job(axtest.Def{"routing": strategy("leastUsed")})
		for range 5 {
			require.Equal(t, used.Address, ns.Ended(ns.Trigger(job)).Executions[0].Address())
		}
		fresh := app.Worker(axtest.Succeed)
		s.Restart()
		used.Online()
		fresh.Online()
		ns.Client = s.Admin(t)
		axtest.WaitFor(t, "the new server knows of the five", func() bool {
			a := ns.Client.Do(t, http.MethodPost, ns.Path("/jobs/"+job+"/routing/simulate"), map[string]any{})
			var out struct{ Choice axtest.Choice }
			a.Into(t, &out)
			for _, c := range out.Choice.Candidates {
				if c.Executor.Address == used.Address && c.Terms["used"] == 5 {
					return true
				}
			}
			return false
		})
		for range 5 {
			require.Equal(t, fresh.Address, ns.Ended(ns.Trigger(job)).Executions[0].Address())
		}
	})
}
