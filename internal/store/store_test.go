package store_test

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/ax-scheduler/ax/internal/batch"
	"github.com/ax-scheduler/ax/internal/store"
	"github.com/ax-scheduler/ax/internal/storetest"
)

func take(t *testing.T, s *store.Store, owner string) store.Fence {
	t.Helper()
	ctx := context.Background()
	require.NoError(t, s.Announce(ctx, store.Replica{ID: owner, Build: "test"}, time.Minute))
	fences, err := s.TakeFree(ctx, owner)
	require.NoError(t, err)
	require.Len(t, fences, store.Buckets)
	return fences[3]
}

func row(id string, due int64, no int) store.BatchRow {
	return store.BatchRow{ID: id, Day: batch.Day(due), NS: 1, JobID: 10001, JobVersion: 1, TriggerNo: no, TriggerKind: "cron", DueAt: due, PlannedFor: due, State: batch.Delayed, Total: 1, CreatedBy: "schedule", CreatedAt: due - 1000}
}

func TestWritesOfAFencedOwnerAreRefused(t *testing.T) {
	storetest.Each(t, func(t *testing.T, s *store.Store) {
		ctx := context.Background()
		f := take(t, s, "a")
		old := f
		old.Epoch--
		wrote := false
		err := s.InBucket(ctx, old, func(b *store.Bucket) error {
			wrote = true
			_, err := b.InsertBatches([]store.BatchRow{row("10001-20260101000000", 1767196800000, 1)})
			return err
		})
		require.ErrorIs(t, err, store.ErrFenced)
		require.False(t, wrote, "the closure must not run without the fence")
		require.NoError(t, s.InBucket(ctx, f, func(b *store.Bucket) error {
			existing, err := b.InsertBatches([]store.BatchRow{row("10001-20260101000000", 1767196800000, 1)})
			require.Empty(t, existing)
			return err
		}))
	})
}

func TestTheSameFiringIsMadeOnce(t *testing.T) {
	storetest.Each(t, func(t *testing.T, s *store.Store) {
		ctx := context.Background()
		f := take(t, s, "a")
		insert := func(list ...store.BatchRow) (existing map[string]bool) {
			require.NoError(t, s.InBucket(ctx, f, func(b *store.Bucket) error {
				var err error
				existing, err = b.InsertBatches(list)
				return err
			}))
			return existing
		}
		const due = 1767196800000
		require.Empty(t, insert(row("10001-20260101000000", due, 1)))
		again := row("10001-20260101000000", due, 1)
		again.CreatedAt += 5
		require.Equal(t, map[string]bool{"10001-20260101000000": true}, insert(again, row("10001-20260101000010", due+10_000, 1)))
		// The same firing under another id, as a changed zone would name it.
		renamed := row("10001-20251231160000z", due, 1)
		renamed.CreatedAt += 7
		require.Equal(t, map[string]bool{"10001-20251231160000z": true}, insert(renamed))
		// Two readings of the trigger in one millisecond: what was made by the first has its execution.
		require.NoError(t, s.InBucket(ctx, f, func(b *store.Bucket) error {
			return b.InsertExecutions([]store.ExecutionRow{{ID: 1, Day: again.Day, NS: 1, JobID: 10001, BatchID: "10001-20260101000000", Total: 1, Attempt: 1, Status: batch.RunScheduled, TriggerTime: due}})
		}))
		require.Equal(t, map[string]bool{"10001-20260101000000": true}, insert(row("10001-20260101000000", due, 1), row("10001-20260101000020", due+20_000, 1)))
		// Batches without a trigger number do not take part.
		require.Empty(t, insert(row("10001-20260101000000000-aaaa", due, 0), row("10001-20260101000000000-bbbb", due, 0)))
	})
}

func TestAnExpiredOwnerLosesItsBuckets(t *testing.T) {
	storetest.Each(t, func(t *testing.T, s *store.Store) {
		ctx := context.Background()
		require.NoError(t, s.Announce(ctx, store.Replica{ID: "a"}, -time.Second))
		first, err := s.TakeFree(ctx, "a")
		require.NoError(t, err)
		require.Len(t, first, store.Buckets)
		require.NoError(t, s.Announce(ctx, store.Replica{ID: "b"}, time.Minute))
		second, err := s.TakeFree(ctx, "b")
		require.NoError(t, err)
		require.Len(t, second, store.Buckets)
		require.Equal(t, first[0].Epoch+1, second[0].Epoch)
		none, err := s.TakeFree(ctx, "a")
		require.NoError(t, err)
		require.Empty(t, none)
		require.ErrorIs(t, s.InBucket(ctx, first[0], func(*store.Bucket) error { return nil }), store.ErrFenced)
		require.NoError(t, s.Release(ctx, second[0]))
		back, err := s.TakeFree(ctx, "a")
		require.NoError(t, err)
		require.Len(t, back, 1)
	})
}

// F12: the clock of the database went back by two hours, and the owner died before it could renew. What it wrote
// before keeps its buckets from nobody; an owner that renews keeps them.
func TestALivenessFromAClockThatWentBackIsNone(t *testing.T) {
	storetest.Each(t, func(t *testing.T, s *store.Store) {
		ctx := context.Background()
		require.NoError(t, s.Announce(ctx, store.Replica{ID: "a"}, 3*time.Second))
		_, err := s.TakeFree(ctx, "a")
		require.NoError(t, err)
		require.NoError(t, s.Announce(ctx, store.Replica{ID: "a"}, 2*time.Hour))
		require.NoError(t, s.Announce(ctx, store.Replica{ID: "b"}, 3*time.Second))
		got, err := s.TakeFree(ctx, "b")
		require.NoError(t, err)
		require.Len(t, got, store.Buckets)
		// Alive again, it takes nothing from the new owner.
		require.NoError(t, s.Announce(ctx, store.Replica{ID: "a"}, 3*time.Second))
		none, err := s.TakeFree(ctx, "a")
		require.NoError(t, err)
		require.Empty(t, none)
	})
}

// Ends that are written together keep each its own word, however different in length, and its own result.
func TestEndsKeepTheirWords(t *testing.T) {
	storetest.Each(t, func(t *testing.T, s *store.Store) {
		ctx := context.Background()
		f := take(t, s, "a")
		const due = 1767196800000
		result := strings.Repeat("果", 5000)
		words := []string{"", "short", strings.Repeat("长", 4000), "'quoted' \\ and\n", ""}
		var rows []store.ExecutionRow
		var ends []store.Ending
		for i, w := range words {
			id := batch.ExecutionID(batch.Day(due), f.Bucket, int64(i+1))
			rows = append(rows, store.ExecutionRow{ID: id, Day: batch.Day(due), NS: 1, JobID: 10001, BatchID: "10001-20260101000000", Shard: i, Total: len(words), Attempt: 1, Status: batch.RunRunning, TriggerTime: due, NotBefore: due})
			e := store.Ending{ID: id, Status: batch.RunSucceeded, Error: w, Duration: int64(10 * i), Waited: int64(i), PeakMemoryMB: int64(i), SentAt: due + 1}
			switch i {
			case 1:
				e.Status, e.StopConfirmed = batch.RunFailed, true
			case 3:
				e.Result = &result
			case 4:
				e.Status, e.Duration, e.Error = batch.RunCancelled, -1, "not run"
			}
			ends = append(ends, e)
		}
		require.NoError(t, s.InBucket(ctx, f, func(b *store.Bucket) error {
			if err := b.InsertExecutions(rows); err != nil {
				return err
			}
			return b.End(ends, due+100)
		}))
		list, err := s.Attempts(ctx, 1, "10001-20260101000000")
		require.NoError(t, err)
		require.Len(t, list, len(words))
		for i, e := range list {
			require.Equal(t, ends[i].Status, e.Status)
			require.Equal(t, ends[i].Error, e.Error)
			require.Equal(t, ends[i].StopConfirmed, e.StopConfirmed)
			if ends[i].Duration >= 0 {
				require.Equal(t, ends[i].PeakMemoryMB, e.PeakMemoryMB)
			}
			require.Equal(t, ends[i].Result, e.Result)
			require.EqualValues(t, due+100, e.FinishedAt)
		}
	})
}

func TestOutputKeepsItsOrder(t *testing.T) {
	storetest.Each(t, func(t *testing.T, s *store.Store) {
		ctx := context.Background()
		f := take(t, s, "a")
		const due = 1767196800000
		id := batch.ExecutionID(batch.Day(due), f.Bucket, 7)
		require.NoError(t, s.InBucket(ctx, f, func(b *store.Bucket) error {
			return b.InsertExecutions([]store.ExecutionRow{{ID: id, Day: batch.Day(due), NS: 1, JobID: 10001, BatchID: "10001-20260101000000", Total: 1, Attempt: 1, Status: batch.RunScheduled, TriggerTime: due, NotBefore: due}})
		}))
		chunk := func(seq int64, text string) store.Chunk {
			return store.Chunk{ExecutionID: id, Seq: seq, Text: text, Progress: -1}
		}
		next, _, err := s.AppendOutput(ctx, 1, id, batch.Day(due), []store.Chunk{chunk(1, "eins 一\n"), chunk(2, "zwei\n")}, store.Room{Execution: 1 << 20, Namespace: 1 << 20}, due)
		require.NoError(t, err)
		require.EqualValues(t, 3, next)
		next, _, err = s.AppendOutput(ctx, 1, id, batch.Day(due), []store.Chunk{chunk(2, "zwei\n"), chunk(3, "drei\n")}, store.Room{Execution: 1 << 20, Namespace: 1 << 20}, due)
		require.NoError(t, err)
		require.EqualValues(t, 4, next)
		next, _, err = s.AppendOutput(ctx, 1, id, batch.Day(due), []store.Chunk{chunk(9, "neun\n")}, store.Room{Execution: 1 << 20, Namespace: 1 << 20}, due)
		require.ErrorIs(t, err, store.ErrGap)
		require.EqualValues(t, 4, next)
		_, _, err = s.AppendOutput(ctx, 2, id, batch.Day(due), []store.Chunk{chunk(4, "fremd\n")}, store.Room{Execution: 1 << 20, Namespace: 1 << 20}, due)
		require.ErrorIs(t, err, store.ErrNotFound, "another namespace")
		text, to, err := s.Output(ctx, 1, id, 0, 1<<20)
		require.NoError(t, err)
		require.Equal(t, "eins 一\nzwei\ndrei\n", text)
		text, _, err = s.Output(ctx, 1, id, 9, 1<<20)
		require.NoError(t, err)
		require.Equal(t, "zwei\ndrei\n", text)
		text, to2, err := s.Output(ctx, 1, id, to, 1<<20)
		require.NoError(t, err)
		require.Empty(t, text)
		require.Equal(t, to, to2)
		// A limit in the middle of a character gives whole characters.
		text, to, err = s.Output(ctx, 1, id, 0, 6)
		require.NoError(t, err)
		require.Equal(t, "eins ", text)
		require.EqualValues(t, 5, to)
	})
}
