package store_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/ax-scheduler/ax/internal/store"
	"github.com/ax-scheduler/ax/internal/storetest"
)

// F11: an owner that is paused in the middle of a transaction holds its bucket's row. The others are not held up by it: every other
// bucket is taken at once, and this one when the database has closed the silent session, two seconds later. What the paused one
// had begun is undone.
func TestAPausedTransactionHoldsUpOneBucketAndNotForLong(t *testing.T) {
	s := storetest.MySQL(t)
	ctx := t.Context()
	require.NoError(t, s.Announce(ctx, store.Replica{ID: "a"}, time.Minute))
	fences, err := s.TakeFree(ctx, "a")
	require.NoError(t, err)
	require.NoError(t, s.Announce(ctx, store.Replica{ID: "b"}, time.Minute))
	require.NoError(t, s.Leave(ctx, "a"))
	began, wake, woke := make(chan struct{}), make(chan struct{}), make(chan error)
	go func() {
		woke <- s.InBucket(ctx, fences[7], func(b *store.Bucket) error {
			b.TakeSequence(100)
			close(began)
			<-wake // no statement is sent any more: the process stands still
			return nil
		})
	}()
	<-began
	at := time.Now()
	got, err := s.TakeFree(ctx, "b")
	require.NoError(t, err)
	require.Len(t, got, store.Buckets-1)
	require.Less(t, time.Since(at), time.Second, "nobody waits for the row that is held")
	require.Eventually(t, func() bool {
		last, err := s.TakeFree(ctx, "b")
		return err == nil && len(last) == 1 && last[0].Bucket == 7
	}, 10*time.Second, 50*time.Millisecond)
	t.Logf("taken %s after the pause began", time.Since(at))
	require.Less(t, time.Since(at), 4*time.Second)
	close(wake)
	require.Error(t, <-woke, "what it had begun is undone")
	var next int64
	m, err := s.Membership(ctx)
	require.NoError(t, err)
	require.Equal(t, "b", m.Leases[7].Owner)
	require.NoError(t, s.InBucket(ctx, store.Fence{Bucket: 7, Owner: "b", Epoch: m.Leases[7].Epoch}, func(b *store.Bucket) error {
		next = b.TakeSequence(1)
		return nil
	}))
	require.Less(t, next, int64(100))
}

// A bucket's inbox: the last of what has one key counts, what was applied is gone, what was replaced meanwhile stays, and it is bounded.
func TestAnInbox(t *testing.T) {
	storetest.Each(t, func(t *testing.T, s *store.Store) {
		ctx := t.Context()
		put := func(bucket int, kind, key, body string, at int64) {
			require.NoError(t, s.PutInbox(ctx, store.InboxRow{Bucket: bucket, Kind: kind, Key: key, Body: []byte(body), CreatedAt: at}))
		}
		put(3, "results", "m1", "one", 1000)
		put(3, "register", "7", "old", 1001)
		put(4, "results", "m2", "elsewhere", 1002)
		list, err := s.Inbox(ctx, []int{3}, 10)
		require.NoError(t, err)
		require.Len(t, list, 2)
		require.Equal(t, "one", string(list[0].Body), "oldest first")
		put(3, "register", "7", "new", 1003)
		for _, row := range list {
			require.NoError(t, s.TakeInbox(ctx, row))
		}
		list, err = s.Inbox(ctx, []int{3}, 10)
		require.NoError(t, err)
		require.Len(t, list, 1)
		require.Equal(t, "new", string(list[0].Body))
		none, err := s.Inbox(ctx, nil, 10)
		require.NoError(t, err)
		require.Empty(t, none)
	})
}
