package store_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/ax-scheduler/ax/internal/batch"
	"github.com/ax-scheduler/ax/internal/store"
	"github.com/ax-scheduler/ax/internal/storetest"
)

// One window of 500 firings: a transaction with their batches, executions and cursor.
func BenchmarkWindow500(b *testing.B) {
	b.Run("sqlite", func(b *testing.B) { window(b, storetest.New(b)) })
	b.Run("mysql", func(b *testing.B) { window(b, storetest.MySQL(b)) })
}

func window(b *testing.B, s *store.Store) {
	b.Helper()
	ctx := context.Background()
	require.NoError(b, s.Announce(ctx, store.Replica{ID: "a"}, time.Hour))
	fences, err := s.TakeFree(ctx, "a")
	require.NoError(b, err)
	const size, start = 500, int64(1_767_196_800_000)
	b.ReportAllocs()
	b.ResetTimer()
	for i := range b.N {
		due := start + int64(i)*1000
		batches := make([]store.BatchRow, size)
		for j := range batches {
			id := batch.ID(int64(10_000+j), time.UnixMilli(due).UTC(), 1)
			batches[j] = row(id, due, 1)
			batches[j].JobID = int64(10_000 + j)
		}
		err := s.InBucket(ctx, fences[0], func(t *store.Bucket) error {
			existing, err := t.InsertBatches(batches)
			if err != nil || len(existing) > 0 {
				return fmt.Errorf("existing %d: %w", len(existing), err)
			}
			first := t.TakeSequence(size)
			rows := make([]store.ExecutionRow, size)
			for j := range rows {
				rows[j] = store.ExecutionRow{
					ID: batch.ExecutionID(batch.Day(due), 0, first+int64(j)), Day: batch.Day(due), NS: 1, JobID: batches[j].JobID, BatchID: batches[j].ID, Total: 1, Attempt: 1, Status: batch.RunScheduled, TriggerTime: due, NotBefore: due,
				}
			}
			if err := t.InsertExecutions(rows); err != nil {
				return err
			}
			t.MoveCursor(due)
			return nil
		})
		require.NoError(b, err)
	}
}
