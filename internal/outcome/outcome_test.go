package outcome_test

import (
	"context"
	"fmt"
	"log/slog"
	"strconv"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/ax-scheduler/ax/internal/batch"
	"github.com/ax-scheduler/ax/internal/clock"
	"github.com/ax-scheduler/ax/internal/cluster"
	"github.com/ax-scheduler/ax/internal/job"
	"github.com/ax-scheduler/ax/internal/metric"
	"github.com/ax-scheduler/ax/internal/outcome"
	"github.com/ax-scheduler/ax/internal/protocol"
	"github.com/ax-scheduler/ax/internal/ready"
	"github.com/ax-scheduler/ax/internal/registry"
	"github.com/ax-scheduler/ax/internal/schedule"
	"github.com/ax-scheduler/ax/internal/store"
	"github.com/ax-scheduler/ax/internal/storetest"
)

const start = int64(1_796_000_000_000)

// bench is an Outcome over a real store that owns every bucket, with one job in namespace 1.
type bench struct {
	t     testing.TB
	s     *store.Store
	o     *outcome.Outcome
	ready *ready.Ready
	c     *cluster.Cluster
	fence store.Fence
	job   store.Job
	n     int
}

func newBench(t testing.TB, s *store.Store, retry job.Retry) *bench {
	t.Helper()
	ctx := t.Context()
	log := slog.New(slog.DiscardHandler)
	clk := clock.NewManual(time.UnixMilli(start))
	ns := store.Namespace{Name: "one", DisplayName: "one", Egress: "[]", CreatedAt: start}
	entry := func() *store.AuditEntry {
		return &store.AuditEntry{At: start, ActorType: "system", Action: "test", ObjectType: "test", Outcome: "success"}
	}
	require.NoError(t, s.CreateNamespace(ctx, &ns, entry()))
	app := store.App{NSID: ns.ID, Name: "app", Protocol: "ax", CreatedAt: start}
	require.NoError(t, s.CreateApp(ctx, &app, func(int64) (string, error) { return "sealed", nil }, entry()))
	b := &bench{t: t, s: s, ready: ready.New(clk.Now())}
	reg := registry.New(s, clk, log, registry.Settings{Heartbeat: time.Second, ProbeDelay: time.Second, Lease: time.Minute}, nil, func() {})
	c := cluster.New(cluster.Config{Store: s, Replica: store.Replica{ID: "a"}, Log: log, Taken: func(context.Context, store.Fence) error { return nil }, Gone: func(store.Fence) {}})
	owned, err := c.RunOnce(ctx, true)
	require.NoError(t, err)
	require.Equal(t, store.Buckets, owned)
	b.o = outcome.New(outcome.Config{Store: s, Cluster: c, Ready: b.ready, Registry: reg, Clock: clk, Metrics: metric.New("test", "test"), Log: log, Planned: func() {}})
	b.c = c
	b.fence, _ = c.Fence(ns.Bucket)
	def := job.Definition{Name: "job", App: "app", Handler: "work", Retry: retry}
	def.Normalize(0)
	b.job = store.Job{NS: ns.ID, Bucket: ns.Bucket, AppID: app.ID, Definition: def, Enabled: true, CreatedAt: start, UpdatedAt: start}
	require.NoError(t, s.InBucket(ctx, b.fence, func(t *store.Bucket) error { return t.CreateJob(&b.job, nil, entry()) }))
	t.Cleanup(func() { _ = c.Run(done()) })
	keep := time.NewTicker(500 * time.Millisecond)
	t.Cleanup(keep.Stop)
	go func() {
		for {
			select {
			case <-t.Context().Done():
				return
			case <-keep.C:
				_, _ = c.RunOnce(t.Context(), true)
			}
		}
	}()
	go func() { _ = b.o.Run(t.Context()) }()
	return b
}

func done() context.Context {
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	return ctx
}

// running makes n batches of so many shards that run.
func (b *bench) running(n, shards int) (ids []int64, batches []string) {
	b.t.Helper()
	err := b.s.InBucket(b.t.Context(), b.fence, func(t *store.Bucket) error {
		ids, batches = nil, nil
		var rows []store.BatchRow
		var executions []store.ExecutionRow
		var assign []store.Assignment
		var accept []store.Accepted
		first := t.TakeSequence(n * shards)
		for range n {
			b.n++
			id := batch.FreshID(b.job.ID, time.UnixMilli(start).UTC(), fmt.Sprintf("%08x", b.n))
			batches = append(batches, id)
			rows = append(rows, store.BatchRow{ID: id, Day: batch.Day(start), NS: b.job.NS, JobID: b.job.ID, JobVersion: b.job.Version, TriggerKind: string(schedule.Manual), DueAt: start, PlannedFor: start, State: batch.Delayed, Total: shards, CreatedBy: "test", CreatedAt: start})
			for shard := range shards {
				e := batch.ExecutionID(batch.Day(start), b.fence.Bucket, first)
				first++
				ids = append(ids, e)
				executions = append(executions, store.ExecutionRow{ID: e, Day: batch.Day(start), NS: b.job.NS, JobID: b.job.ID, BatchID: id, Shard: shard, Total: shards, Attempt: 1, Status: batch.RunScheduled, TriggerTime: start, NotBefore: start})
				assign = append(assign, store.Assignment{ID: e, BatchID: id, Worker: 7, Address: "http://10.0.0.7:1", StartID: "s"})
				accept = append(accept, store.Accepted{ID: e, BatchID: id})
			}
		}
		if _, err := t.InsertBatches(rows); err != nil {
			return err
		}
		if err := t.InsertExecutions(executions); err != nil {
			return err
		}
		if refused, err := t.Assign(assign, start); err != nil || len(refused) > 0 {
			return fmt.Errorf("refused %v: %w", refused, err)
		}
		return t.Accept(accept, start, start+60_000)
	})
	require.NoError(b.t, err)
	return ids, batches
}

func (b *bench) report(id int64, batchID, state string) *outcome.Report {
	r, ok := outcome.FromResult(b.job.NS, b.job.Definition.App, protocol.Result{BatchID: batchID, ExecutionID: strconv.FormatInt(id, 10), State: state, DurationMs: 5})
	require.True(b.t, ok)
	return r
}

func (b *bench) head(id string) store.BatchHead {
	b.t.Helper()
	heads, err := b.s.BatchHeads(b.t.Context(), map[string]int{id: batch.Day(start)})
	require.NoError(b.t, err)
	require.Contains(b.t, heads, id)
	return heads[id]
}

func TestTheFirstEndWins(t *testing.T) {
	storetest.Each(t, func(t *testing.T, s *store.Store) {
		b := newBench(t, s, job.Retry{})
		ids, batches := b.running(1, 1)
		answers, err := b.o.Record(t.Context(), []*outcome.Report{b.report(ids[0], batches[0], "SUCCEEDED"), b.report(ids[0], batches[0], "SUCCEEDED"), b.report(ids[0], batches[0], "FAILED"), b.report(12345, batches[0], "FAILED")})
		require.NoError(t, err)
		require.Equal(t, []string{protocol.Recorded, protocol.Repeated, protocol.Late, protocol.Unknown}, answers)
		h := b.head(batches[0])
		require.Equal(t, batch.Succeeded, h.State)
		require.Equal(t, 1, h.Done)
		require.Zero(t, h.FailedN)
	})
}

// A batch of shards ends with its last shard, in one message or in several, in any order.
func TestShardsEndTheirBatch(t *testing.T) {
	tests := []struct {
		name   string
		states []string
		want   batch.State
		failed int
	}{
		{"all well", []string{"SUCCEEDED", "SUCCEEDED", "SUCCEEDED"}, batch.Succeeded, 0},
		{"one failed", []string{"SUCCEEDED", "FAILED", "SUCCEEDED"}, batch.Failed, 1},
		{"the first failed", []string{"FAILED", "SUCCEEDED", "SUCCEEDED"}, batch.Failed, 1},
		{"one ran out of time", []string{"SUCCEEDED", "SUCCEEDED", "TIMED_OUT"}, batch.TimedOut, 1},
		{"the first ran out of time", []string{"TIMED_OUT", "SUCCEEDED", "SUCCEEDED"}, batch.TimedOut, 1},
		{"one was stopped", []string{"SUCCEEDED", "CANCELLED", "SUCCEEDED"}, batch.Cancelled, 1},
		{"all failed", []string{"FAILED", "FAILED", "FAILED"}, batch.Failed, 3},
	}
	storetest.Each(t, func(t *testing.T, s *store.Store) {
		b := newBench(t, s, job.Retry{Max: 0})
		for _, tt := range tests {
			for _, together := range []bool{true, false} {
				ids, batches := b.running(1, 3)
				var list []*outcome.Report
				for i, state := range tt.states {
					list = append(list, b.report(ids[i], batches[0], state))
				}
				if together {
					_, err := b.o.Record(t.Context(), list)
					require.NoError(t, err)
				} else {
					for i, r := range list {
						_, err := b.o.Record(t.Context(), []*outcome.Report{r})
						require.NoError(t, err)
						require.Equal(t, i == 2, b.head(batches[0]).State.Final(), tt.name)
					}
				}
				h := b.head(batches[0])
				require.Equal(t, tt.want, h.State, "%s, together %v", tt.name, together)
				require.Equal(t, 3, h.Done, tt.name)
				require.Equal(t, tt.failed, h.FailedN, tt.name)
			}
		}
	})
}

func TestARetryIsQueued(t *testing.T) {
	storetest.Each(t, func(t *testing.T, s *store.Store) {
		b := newBench(t, s, job.Retry{Max: 1, Backoff: job.BackoffFixed, Initial: schedule.Duration(5 * time.Second)})
		ids, batches := b.running(1, 1)
		_, err := b.o.Record(t.Context(), []*outcome.Report{b.report(ids[0], batches[0], "FAILED")})
		require.NoError(t, err)
		require.Equal(t, batch.Delayed, b.head(batches[0]).State)
		next, ok := b.ready.Next()
		require.True(t, ok)
		require.LessOrEqual(t, next, start+5000)
		b.ready.Due(start + 4999)
		require.Zero(t, b.ready.Len(), "not before its time")
		b.ready.Due(start + 5000)
		require.Equal(t, 1, b.ready.Take(start+5000, 10, func(e *ready.Execution, _ string) ready.Placement {
			require.Equal(t, 2, e.Attempt)
			require.Equal(t, []int64{7}, e.Avoid, "elsewhere, if there is another executor")
			return ready.Taken
		}))
	})
}

func BenchmarkRecord(b *testing.B) {
	bench := newBench(b, storetest.New(b), job.Retry{})
	const size = 100
	b.ReportAllocs()
	for b.Loop() {
		b.StopTimer()
		ids, batches := bench.running(size, 1)
		list := make([]*outcome.Report, size)
		for i := range list {
			list[i] = bench.report(ids[i], batches[i], "SUCCEEDED")
		}
		b.StartTimer()
		_, err := bench.o.Record(b.Context(), list)
		require.NoError(b, err)
	}
	b.ReportMetric(float64(size*b.N)/b.Elapsed().Seconds(), "results/s")
}

// A report that was begun before its bucket was read again would put a second copy of its execution
// into memory: it is left to the copy that the reading brought.
func TestAReportFromBeforeTheBucketWasReadAgain(t *testing.T) {
	storetest.Each(t, func(t *testing.T, s *store.Store) {
		b := newBench(t, s, job.Retry{Max: 3})
		ids, batches := b.running(1, 1)
		b.c.Reload(b.fence)
		_, err := b.c.RunOnce(t.Context(), true)
		require.NoError(t, err)
		now, ok := b.c.Fence(b.fence.Bucket)
		require.True(t, ok)
		require.NotEqual(t, b.fence, now)
		require.Equal(t, b.fence.Epoch, now.Epoch)
		reject := func(under store.Fence) *outcome.Report {
			return &outcome.Report{ExecutionID: ids[0], Under: under, Event: batch.RunLose, Reason: outcome.ReasonGone}
		}
		_, err = b.o.Record(t.Context(), []*outcome.Report{reject(b.fence)})
		require.ErrorIs(t, err, outcome.ErrNotOwner)
		require.Equal(t, batch.Running, b.head(batches[0]).State)
		_, ok = b.ready.Next()
		require.False(t, ok, "nothing was queued")
		_, err = b.o.Record(t.Context(), []*outcome.Report{reject(now)})
		require.NoError(t, err)
		_, ok = b.ready.Next()
		require.True(t, ok, "the next attempt is queued")
	})
}

// Memory may be behind: what has been sent or has ended is not overwritten by a skip.
func TestASkipLeavesAloneWhatRan(t *testing.T) {
	storetest.Each(t, func(t *testing.T, s *store.Store) {
		b := newBench(t, s, job.Retry{})
		ids, batches := b.running(2, 1)
		_, err := b.o.Record(t.Context(), []*outcome.Report{b.report(ids[0], batches[0], "SUCCEEDED")})
		require.NoError(t, err)
		var skips []ready.Skip
		for i, id := range batches {
			skips = append(skips, ready.Skip{Reason: ready.ReasonStillRunning, Executions: []*ready.Execution{{ID: ids[i], Batch: &ready.Batch{ID: id, Day: batch.Day(start), Bucket: b.fence.Bucket, NS: b.job.NS, JobID: b.job.ID}}}})
		}
		require.NoError(t, b.o.Skip(t.Context(), skips))
		require.Equal(t, batch.Succeeded, b.head(batches[0]).State)
		require.Equal(t, batch.Running, b.head(batches[1]).State)
		rows, err := s.Attempts(t.Context(), b.job.NS, batches[0])
		require.NoError(t, err)
		require.Equal(t, batch.RunSucceeded, rows[0].Status)
		rows, err = s.Attempts(t.Context(), b.job.NS, batches[1])
		require.NoError(t, err)
		require.Equal(t, batch.RunRunning, rows[0].Status)
	})
}
