package outcome_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/ax-scheduler/ax/internal/batch"
	"github.com/ax-scheduler/ax/internal/job"
	"github.com/ax-scheduler/ax/internal/outcome"
	"github.com/ax-scheduler/ax/internal/protocol"
	"github.com/ax-scheduler/ax/internal/ready"
	"github.com/ax-scheduler/ax/internal/store"
	"github.com/ax-scheduler/ax/internal/storetest"
)

// sent tells that executions of batches of one shard have left for executor 7.
func (b *bench) sent(ids []int64, batches []string) {
	for i, id := range ids {
		b.o.Sent(b.fence, 7, &ready.Execution{ID: id, Attempt: 1, Batch: &ready.Batch{
			ID: batches[i], Day: batch.Day(start), Bucket: b.fence.Bucket, NS: b.job.NS, JobID: b.job.ID, JobVersion: b.job.Version, AppID: b.job.AppID, Def: &b.job.Definition, Kind: "manual", DueAt: start, PlannedFor: start, Total: 1,
		}})
	}
}

func (b *bench) execution(id int64) store.Execution {
	b.t.Helper()
	var rows map[int64]store.Execution
	require.NoError(b.t, b.s.InBucket(b.t.Context(), b.fence, func(t *store.Bucket) (err error) {
		rows, err = t.Executions([]int64{id})
		return err
	}))
	require.Contains(b.t, rows, id)
	return rows[id]
}

// What is known to have been sent ends without its rows being read: the same as if they were.
func TestWhatIsKnownEndsUnread(t *testing.T) {
	storetest.Each(t, func(t *testing.T, s *store.Store) {
		b := newBench(t, s, job.Retry{})
		ids, batches := b.running(4, 1)
		b.sent(ids[:3], batches[:3])
		answers, err := b.o.Record(t.Context(), []*outcome.Report{
			b.report(ids[0], batches[0], "SUCCEEDED"), b.report(ids[1], batches[1], "FAILED"), b.report(ids[2], batches[2], "SUCCEEDED"), b.report(ids[2], batches[2], "SUCCEEDED"), b.report(ids[3], batches[3], "SUCCEEDED"),
		})
		require.NoError(t, err)
		require.Equal(t, []string{protocol.Recorded, protocol.Recorded, protocol.Recorded, protocol.Repeated, protocol.Recorded}, answers)
		for i, want := range []batch.State{batch.Succeeded, batch.Failed, batch.Succeeded, batch.Succeeded} {
			h := b.head(batches[i])
			require.Equal(t, want, h.State)
			require.Equal(t, 1, h.Done)
		}
		again, err := b.o.Record(t.Context(), []*outcome.Report{b.report(ids[0], batches[0], "FAILED")})
		require.NoError(t, err)
		require.Equal(t, []string{protocol.Late}, again)
		require.Equal(t, batch.Succeeded, b.head(batches[0]).State)
		other := b.report(ids[0], batches[1], "SUCCEEDED")
		answers, err = b.o.Record(t.Context(), []*outcome.Report{other})
		require.NoError(t, err)
		require.Equal(t, []string{protocol.Unknown}, answers)
	})
}

// What memory knows may be outdated: somebody has asked the execution to stop, or it has ended. The rows decide.
func TestWhatIsKnownMayBeOutdated(t *testing.T) {
	storetest.Each(t, func(t *testing.T, s *store.Store) {
		b := newBench(t, s, job.Retry{})
		ids, batches := b.running(3, 1)
		b.sent(ids, batches)
		require.NoError(t, s.InBucket(t.Context(), b.fence, func(x *store.Bucket) error {
			if err := x.Stopping(ids[1:2], outcome.ReasonCancelled, "somebody", start); err != nil {
				return err
			}
			return x.End([]store.Ending{{ID: ids[2], Status: batch.RunFailed, Error: "broken", Duration: 5}}, start)
		}))
		answers, err := b.o.Record(t.Context(), []*outcome.Report{b.report(ids[0], batches[0], "SUCCEEDED"), b.report(ids[1], batches[1], "SUCCEEDED"), b.report(ids[2], batches[2], "SUCCEEDED")})
		require.NoError(t, err)
		require.Equal(t, []string{protocol.Recorded, protocol.Recorded, protocol.Late}, answers)
		require.Equal(t, batch.RunSucceeded, b.execution(ids[0]).Status)
		stopped := b.execution(ids[1])
		require.Equal(t, batch.RunSucceeded, stopped.Status)
		require.True(t, stopped.StopConfirmed, "its end confirms the stop that was asked for")
		require.Equal(t, batch.RunFailed, b.execution(ids[2]).Status, "the first end wins")
	})
}
