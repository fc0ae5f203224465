package outcome_test

import (
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/ax-scheduler/ax/internal/batch"
	"github.com/ax-scheduler/ax/internal/job"
	"github.com/ax-scheduler/ax/internal/outcome"
	"github.com/ax-scheduler/ax/internal/ready"
	"github.com/ax-scheduler/ax/internal/schedule"
	"github.com/ax-scheduler/ax/internal/store"
	"github.com/ax-scheduler/ax/internal/storetest"
)

// life is a batch to which everything happens that can, in any order, and what must be true of it at any time.
type life struct {
	*bench
	t     *rapid.T
	id    string
	total int
	ends  map[int64]batch.Run // executions that have ended, and how
	stops map[int64]bool      // executions whose stop was confirmed
}

func (l *life) all() []store.Execution {
	attempts, err := l.s.Attempts(l.bench.t.Context(), l.job.NS, l.id)
	require.NoError(l.t, err)
	ids := make([]int64, len(attempts))
	for i, a := range attempts {
		ids[i] = a.ID
	}
	out := make([]store.Execution, len(ids))
	require.NoError(l.t, l.s.InBucket(l.bench.t.Context(), l.fence, func(b *store.Bucket) error {
		rows, err := b.Executions(ids)
		for i, id := range ids {
			out[i] = rows[id]
		}
		return err
	}))
	return out
}

// holds checks everything.
func (l *life) holds() {
	t := l.t
	head := l.head(l.id)
	latest := map[int]store.Execution{}
	open := map[int]int{}
	for _, e := range l.all() {
		require.Equal(t, latest[e.Shard].Attempt+1, e.Attempt, "attempts of a shard have no hole")
		latest[e.Shard] = e
		if !e.Status.Final() {
			open[e.Shard]++
		}
		if was, ended := l.ends[e.ID]; ended {
			require.Equal(t, was, e.Status, "final is final")
		}
		if e.Status.Final() {
			l.ends[e.ID] = e.Status
		}
		require.LessOrEqual(t, e.Tries(), l.job.Definition.Retry.Extra()+1, "the budget of a series")
		require.Positive(t, e.Tries())
		require.False(t, e.StopConfirmed && e.StopAskedAt == 0, "what nobody asked for is not confirmed")
		require.False(t, e.StopConfirmed && !e.Status.Final(), "confirmed means that it has ended")
		require.False(t, l.stops[e.ID] && !e.StopConfirmed, "a confirmed stop stays confirmed")
		l.stops[e.ID] = e.StopConfirmed
		if l.o.Lingers(e.ID) {
			require.True(t, e.Lingers(), "what keeps its place has ended unconfirmed")
		}
	}
	done, failed := 0, 0
	for shard, e := range latest {
		require.LessOrEqual(t, open[shard], 1, "one attempt at a time")
		if e.Status.Final() {
			done++
			if e.Status != batch.RunSucceeded {
				failed++
			}
		}
	}
	require.Equal(t, []int{done, failed}, []int{head.Done, head.FailedN}, "the counters are those of the shards")
	require.Equal(t, done == l.total, head.State.Final(), "%s with %d of %d", head.State, done, l.total)
	require.Equal(t, head.State.Final() && failed == 0, head.State == batch.Succeeded)
	// What lingers is remembered over a restart.
	rows, err := l.s.LingeringIn(l.bench.t.Context(), l.fence.Bucket)
	require.NoError(t, err)
	kept := map[int64]bool{}
	for _, r := range rows {
		kept[r.ExecutionID] = true
	}
	for _, e := range l.all() {
		require.Equal(t, kept[e.ID], l.o.Lingers(e.ID))
	}
}

// C321, C274, P6: whatever happens to a batch in whatever order, an end is an end, its counters are right, a shard has
// one open attempt and its budget, and a stop is confirmed only when it is.
func TestALifeInAnyOrder(t *testing.T) {
	storetest.Each(t, func(t *testing.T, s *store.Store) {
		b := newBench(t, s, job.Retry{Max: 2, Backoff: job.BackoffFixed, Initial: schedule.Duration(time.Second)})
		rapid.Check(t, func(rt *rapid.T) {
			total := rapid.IntRange(1, 3).Draw(rt, "shards")
			_, ids := b.running(1, total)
			l := &life{bench: b, t: rt, id: ids[0], total: total, ends: map[int64]batch.Run{}, stops: map[int64]bool{}}
			l.holds()
			for range rapid.IntRange(1, 15).Draw(rt, "steps") {
				l.step()
				l.holds()
			}
		})
	})
}

func (l *life) step() {
	ctx, t := l.bench.t.Context(), l.t
	all := l.all()
	e := all[rapid.IntRange(0, len(all)-1).Draw(t, "execution")]
	record := func(r *outcome.Report) {
		_, err := l.o.Record(ctx, []*outcome.Report{r})
		require.NoError(t, err)
	}
	fine := func(err error) {
		if !errors.Is(err, batch.ErrNotAllowed) {
			require.NoError(t, err)
		}
	}
	switch what := rapid.SampledFrom([]string{"result", "result", "result", "send", "send", "see", "gone", "lease", "stop", "giveUp", "acknowledge", "cancel", "again", "unassign", "restart", "release", "disable"}).Draw(t, "what"); what {
	case "result":
		record(l.report(e.ID, l.id, rapid.SampledFrom([]string{"SUCCEEDED", "FAILED", "FAILED", "TIMED_OUT", "CANCELLED", "REJECTED"}).Draw(t, "state")))
		require.False(t, l.o.Lingers(e.ID), "its executor has said that it ended")
	case "send": // what waits goes to an executor
		l.ready.TakeOut(func(w *ready.Execution) bool { return w.Batch.ID == l.id })
		require.NoError(t, l.s.InBucket(ctx, l.fence, func(b *store.Bucket) error {
			for _, w := range all {
				if w.Status != batch.RunScheduled {
					continue
				}
				if _, err := b.Assign([]store.Assignment{{ID: w.ID, BatchID: l.id, Worker: 7, Address: "http://10.0.0.7:1", StartID: "s"}}, start); err != nil {
					return err
				}
				if err := b.Accept([]store.Accepted{{ID: w.ID, BatchID: l.id}}, start, start+60_000); err != nil {
					return err
				}
			}
			return nil
		}))
	case "see":
		record(&outcome.Report{ExecutionID: e.ID, Event: batch.RunSee})
	case "gone":
		record(&outcome.Report{ExecutionID: e.ID, Event: batch.RunLose, Reason: outcome.ReasonGone, Waited: rapid.Bool().Draw(t, "waited")})
	case "lease":
		record(&outcome.Report{ExecutionID: e.ID, Event: batch.RunLose, Reason: outcome.ReasonLease})
	case "unassign":
		if e.Status == batch.RunDispatching || e.Status == batch.RunUnknown {
			record(&outcome.Report{ExecutionID: e.ID, Event: batch.RunUnassign, Reason: "refused"})
		}
	case "stop":
		if !e.Status.Final() {
			fine(l.o.Stop(ctx, l.fence.Bucket, []store.Execution{e}, outcome.ReasonTimeout))
		}
	case "giveUp": // as the sweep does, of what was asked to stop
		if e.Status == batch.RunStopping {
			event := batch.RunTimeOut
			if e.StopReason != outcome.ReasonTimeout {
				event = batch.RunCancel
			}
			record(&outcome.Report{ExecutionID: e.ID, Event: event, Reason: e.StopReason, Unconfirmed: true})
		}
	case "acknowledge":
		require.NoError(t, l.o.Acknowledged(ctx, []int64{e.ID}))
	case "cancel":
		fine(l.o.Cancel(ctx, l.fence.Bucket, l.id, outcome.ReasonCancelled, nil))
	case "again":
		_, err := l.o.Retry(ctx, l.fence.Bucket, l.id, &store.AuditEntry{At: start, ActorType: "user", Action: "batch.retry", ObjectType: "batch", Outcome: "success"})
		fine(err)
	case "restart":
		require.NoError(t, l.o.TakeUp(ctx, l.fence))
	case "release":
		for _, r := range l.o.Lingering(l.fence.Bucket) {
			if r.BatchID == l.id {
				require.NoError(t, l.o.Release(ctx, l.fence.Bucket, []store.Lingering{r}, rapid.Bool().Draw(t, "confirmed"), "test"))
			}
		}
	case "disable":
		retries := l.ready.TakeOut(func(w *ready.Execution) bool { return w.Batch.ID == l.id && w.Retry })
		var after func()
		require.NoError(t, l.s.InBucket(ctx, l.fence, func(b *store.Bucket) error {
			var err error
			after, err = l.o.CancelRetries(ctx, b, l.fence.Bucket, retries, outcome.ReasonJobDisabled)
			return err
		}))
		after()
	}
}
