package main

import (
	"context"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/ax-scheduler/ax/server/axtest"
)

// TestWalk follows one firing through the server, as docs/walk.md does in words.
func TestWalk(t *testing.T) {
	axtest.Both(t, func(t *testing.T, o ...axtest.Option) {
		s := axtest.Start(t, o...)
		ns := s.Namespace(t)
		app := ns.App("app")

		// The job exists, with its first firing planned and an audit entry.
		result := `{"copied":2481}`
		var x *axtest.Executor
		ready := make(chan struct{})
		work := func(_ context.Context, run axtest.Run) axtest.Result {
			<-ready
			x.Write(run, 1, "copying 订单\n")
			x.Write(run, 2, "copied 2481\n")
			return axtest.Result{Message: "copied 2481 orders", Result: &result}
		}
		x = app.Worker(work)
		close(ready)
		job := ns.Job(axtest.Def{"params": `{"day":"yesterday"}`, "retry": map[string]any{"max": 0}, "triggers": []map[string]any{{"kind": "fixedRate", "every": "2s"}}})
		view := ns.JobView(job)
		require.NotNil(t, view.NextTriggerAt)

		// trigger.RunOnce opens the batch, dispatch.RunOnce gives it to the executor, which is asked once.
		axtest.WaitFor(t, "the first firing has ended", func() bool {
			for _, b := range ns.Batches(job) {
				if b.State == "SUCCEEDED" {
					return true
				}
			}
			return false
		})
		a := ns.Client.Do(t, "POST", ns.Path("/jobs/"+job+"/disable"), map[string]any{})
		require.Equal(t, 200, a.Status, a.Text())
		first := x.Deliveries()[0]
		require.Equal(t, "accepted", first.Answer)
		require.Equal(t, "work", first.Run.Handler)
		require.Equal(t, `{"day":"yesterday"}`, first.Run.Params)
		require.Equal(t, 0, first.Run.ShardingID)
		require.Equal(t, 1, first.Run.ShardingTotal)
		require.Equal(t, 1, first.Run.Attempt)
		require.Equal(t, "fixedRate", first.Run.Trigger)
		require.Zero(t, first.Run.DueAt%2000, "the grid of the rate")
		require.GreaterOrEqual(t, first.At.UnixMilli(), first.Run.DueAt, "never early")

		// outcome.Record ended it: state, message, result, output.
		b := ns.Ended(first.Run.BatchID)
		require.Equal(t, "SUCCEEDED", b.State)
		require.Equal(t, first.Run.DueAt, b.DueAt.UnixMilli())
		require.Equal(t, 1, b.ShardsDone)
		require.Len(t, b.Executions, 1)
		e := b.Executions[0]
		require.Equal(t, first.Run.ExecutionID, e.ID)
		require.Equal(t, "SUCCEEDED", e.State)
		require.Equal(t, x.Address, e.Address())
		require.Equal(t, "copied 2481 orders", e.Message)
		require.NotNil(t, e.Result)
		require.Equal(t, result, *e.Result)
		require.Equal(t, "copying 订单\ncopied 2481\n", ns.Output(e.ID))
		require.Contains(t, s.Log(), "task="+job+" instance="+b.BatchID+" dispatch to worker="+x.Address)

		// People did four things to this namespace, and the trail has four entries.
		actions := map[string]int{}
		for _, entry := range s.Audit(t, "namespace="+ns.Name) {
			actions[entry.Action]++
		}
		require.Equal(t, map[string]int{"namespace.create": 1, "app.create": 1, "job.create": 1, "job.pause": 1}, actions)
		axtest.NothingTwice(t, x)
	})
}
