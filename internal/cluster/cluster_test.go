package cluster_test

import (
	"context"
	"errors"
	"log/slog"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/ax-scheduler/ax/internal/cluster"
	"github.com/ax-scheduler/ax/internal/store"
	"github.com/ax-scheduler/ax/internal/storetest"
)

// replica is a cluster view that notes what it was told.
type replica struct {
	*cluster.Cluster
	mu    sync.Mutex
	taken []store.Fence
	gone  []store.Fence
	fail  error
}

func newReplica(s *store.Store, id string) *replica {
	r := &replica{}
	r.Cluster = cluster.New(s, store.Replica{ID: id, Build: "test"}, slog.New(slog.DiscardHandler),
		func(_ context.Context, f store.Fence) error {
			r.mu.Lock()
			defer r.mu.Unlock()
			if r.fail != nil {
				return r.fail
			}
			r.taken = append(r.taken, f)
			return nil
		},
		func(f store.Fence) {
			r.mu.Lock()
			defer r.mu.Unlock()
			r.gone = append(r.gone, f)
		})
	return r
}

func (r *replica) once(t *testing.T) int {
	t.Helper()
	n, err := r.RunOnce(t.Context(), true)
	require.NoError(t, err)
	return n
}

// leave is what the end of its context makes a replica do.
func (r *replica) leave(t *testing.T) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	require.NoError(t, r.Run(ctx))
}

func TestABucketHasOneOwner(t *testing.T) {
	storetest.Each(t, func(t *testing.T, s *store.Store) {
		a, b := newReplica(s, "a"), newReplica(s, "b")
		require.Equal(t, store.Buckets, a.once(t))
		require.Zero(t, b.once(t))
		before, ok := a.Fence(3)
		require.True(t, ok)
		a.leave(t)
		require.Empty(t, a.Owned())
		require.Len(t, a.gone, store.Buckets, "whoever leaves lets go of each")
		require.Equal(t, store.Buckets, b.once(t), "at once, not a lease later")
		after, ok := b.Fence(3)
		require.True(t, ok)
		require.Equal(t, before.Epoch+1, after.Epoch)
		require.ErrorIs(t, s.InBucket(t.Context(), before, func(*store.Bucket) error { return nil }), store.ErrFenced)
	})
}

// A bucket that can not be taken up is not acted for, and is tried again.
func TestABucketCountsWhenItWasTakenUp(t *testing.T) {
	s := storetest.New(t)
	a := newReplica(s, "a")
	a.fail = errors.New("rows can not be read")
	_, err := a.RunOnce(t.Context(), true)
	require.ErrorIs(t, err, a.fail)
	require.Empty(t, a.Owned())
	a.fail = nil
	require.Equal(t, store.Buckets, a.once(t))
	require.Len(t, a.taken, store.Buckets)
}

func TestABucketThatIsReadAgainIsNotActedForMeanwhile(t *testing.T) {
	s := storetest.New(t)
	a := newReplica(s, "a")
	require.Equal(t, store.Buckets, a.once(t))
	f, _ := a.Fence(5)
	a.Reload(f)
	_, ok := a.Fence(5)
	require.False(t, ok)
	require.Equal(t, store.Buckets, a.once(t))
	f.Round++
	require.Equal(t, f, a.taken[len(a.taken)-1], "what was begun before can be told from what is begun now")
	require.Empty(t, a.gone, "it never left")
	// Of a bucket that was refused it lets go, once.
	a.Lost(f)
	a.Lost(f)
	require.Equal(t, []store.Fence{f}, a.gone)
	old := f
	old.Epoch--
	a.Lost(old)
	require.Len(t, a.gone, 1)
}

// A replica that can not renew its liveness stops by itself before another may take over.
func TestAReplicaThatCanNotRenewOwnsNothing(t *testing.T) {
	s := storetest.New(t)
	a := newReplica(s, "a")
	at := time.Now()
	require.Equal(t, store.Buckets, a.once(t))
	require.Eventually(t, func() bool { return len(a.Owned()) == 0 }, 2*cluster.TTL, 10*time.Millisecond)
	_, ok := a.Fence(0)
	require.False(t, ok)
	require.Greater(t, time.Since(at), cluster.TTL/2, "not at the first hiccup")
	require.Equal(t, store.Buckets, a.once(t), "nobody took them: it goes on")
}

// F12: the database's clock jumps while an owner and a standby live. Liveness is by that clock, so that the
// owner may look dead for the half second until it renews: a jump costs at most one takeover, every bucket has
// an owner again at once, and nobody takes them to and fro.
func TestAJumpOfTheDatabasesClockIsNoStorm(t *testing.T) {
	clock := storetest.StartFakeTime(t)
	s, err := store.Open(store.Config{DSN: storetest.Database(t)})
	require.NoError(t, err)
	t.Cleanup(func() { _ = s.Close() })
	require.NoError(t, s.Migrate(t.Context()))
	list := []*replica{newReplica(s, "a"), newReplica(s, "b")}
	var loops sync.WaitGroup
	ctx, stop := context.WithCancel(t.Context())
	t.Cleanup(func() {
		stop()
		loops.Wait()
	})
	for _, r := range list {
		loops.Go(func() { _ = r.Run(ctx) })
	}
	takeovers := func() (n int) {
		for _, r := range list {
			r.mu.Lock()
			n += len(r.taken)
			r.mu.Unlock()
		}
		return n / store.Buckets
	}
	whole := func() bool {
		// What the database says: the one that lost them finds out when it writes.
		db := 0
		for bucket := range store.Buckets {
			for _, r := range list {
				if f, ok := r.Fence(bucket); ok && s.InBucket(t.Context(), f, func(*store.Bucket) error { return nil }) == nil {
					db++
				}
			}
		}
		return db == store.Buckets
	}
	require.Eventually(t, whole, 20*time.Second, 100*time.Millisecond)
	for i, jump := range []time.Duration{2 * time.Hour, 0, 10 * time.Second, 0, -2 * time.Hour, 0} {
		before := takeovers()
		clock.Set(t, jump)
		at := time.Now()
		require.Eventually(t, func() bool { return time.Since(at) > 4*time.Second && whole() }, 20*time.Second, 200*time.Millisecond)
		require.LessOrEqual(t, takeovers()-before, 1, "jump %d to %s", i, jump)
	}
}
