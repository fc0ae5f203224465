package cluster_test

import (
	"context"
	"errors"
	"fmt"
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
	mu      sync.Mutex
	taken   []store.Fence
	gone    []store.Fence
	drained int
	fail    error
}

func newReplica(s *store.Store, id string) *replica {
	r := &replica{}
	r.Cluster = cluster.New(cluster.Config{
		Store: s, Replica: store.Replica{ID: id, Build: "test"}, Log: slog.New(slog.DiscardHandler),
		Taken: func(_ context.Context, f store.Fence) error {
			r.mu.Lock()
			defer r.mu.Unlock()
			if r.fail != nil {
				return r.fail
			}
			r.taken = append(r.taken, f)
			return nil
		},
		Drained: func(context.Context, store.Fence) {
			r.mu.Lock()
			defer r.mu.Unlock()
			r.drained++
		},
		Gone: func(f store.Fence) {
			r.mu.Lock()
			defer r.mu.Unlock()
			r.gone = append(r.gone, f)
		},
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
	old := f
	old.Epoch--
	a.Lost(old)
	_, ok = a.Fence(5)
	require.False(t, ok)
	require.Equal(t, store.Buckets-1, a.once(t), "an epoch that was refused is not believed again, whatever a late look says")
	require.Equal(t, []store.Fence{f}, a.gone)
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

// B17: who joins gets its share, in whole: nothing is owned twice or by nobody, what moves is as little as can
// be, and then it stays.
func TestWhoJoinsGetsItsShare(t *testing.T) {
	dsn := storetest.Database(t)
	s, err := store.Open(store.Config{DSN: dsn, AuditKey: storetest.AuditKey()})
	require.NoError(t, err)
	t.Cleanup(func() { _ = s.Close() })
	require.NoError(t, s.Migrate(t.Context()))
	db := storetest.SQL(t, dsn, "")
	t.Cleanup(func() { _ = db.Close() })
	exec := func(query string) {
		_, err := db.ExecContext(t.Context(), query)
		require.NoError(t, err)
	}
	const aged = "UPDATE replica SET started_at = started_at - 60000" // each has lived for a while
	a, b, c := newReplica(s, "a"), newReplica(s, "b"), newReplica(s, "c")
	list := []*replica{a}
	rounds := func(n int) {
		for range n {
			for _, r := range list {
				r.once(t)
			}
		}
	}
	counts := func() (out []int) {
		sum := 0
		for _, r := range list {
			out = append(out, len(r.Owned()))
			sum += len(r.Owned())
		}
		require.Equal(t, store.Buckets, sum)
		return out
	}
	rounds(1)
	require.Equal(t, []int{64}, counts())
	list = append(list, b)
	rounds(1)
	require.Equal(t, []int{64, 0}, counts(), "one that has just come may go again: it gets nothing yet")
	exec(aged)
	rounds(6)
	require.Equal(t, []int{32, 32}, counts())
	require.Equal(t, 32, a.drained, "what was in hand of each was finished first")
	list = append(list, c)
	rounds(1)
	exec(aged)
	rounds(6)
	require.ElementsMatch(t, []int{22, 21, 21}, counts())
	moves, err := s.Moves(t.Context(), 1000)
	require.NoError(t, err)
	require.Len(t, moves, 64+32+21, "no bucket moved that did not have to")
	rounds(5)
	again, err := s.Moves(t.Context(), 1000)
	require.NoError(t, err)
	require.Len(t, again, len(moves), "and then nothing moves")

	// One that is asked to drain owns nothing and lives on.
	require.NoError(t, s.SetDraining(t.Context(), "b", store.AskedToDrain, nil))
	rounds(6)
	require.Empty(t, b.Owned())
	require.ElementsMatch(t, []int{32, 0, 32}, counts())
	require.NoError(t, s.SetDraining(t.Context(), "b", store.NotDraining, nil))
	rounds(6)
	require.ElementsMatch(t, []int{22, 21, 21}, counts())

	// A bucket goes where somebody wants it, and stays.
	f, ok := a.Fence(a.Owned()[0].Bucket)
	require.True(t, ok)
	exec(fmt.Sprintf("UPDATE bucket_lease SET pinned_to = 'c' WHERE bucket = %d", f.Bucket))
	rounds(6)
	_, ok = c.Fence(f.Bucket)
	require.True(t, ok)
	require.ElementsMatch(t, []int{22, 21, 21}, counts())
	require.ErrorIs(t, s.InBucket(t.Context(), f, func(*store.Bucket) error { return nil }), store.ErrFenced)

	// One that stops hands everything over first, with nobody waiting for a lease.
	var loops sync.WaitGroup
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	for _, r := range list {
		loops.Go(func() { _ = r.Run(ctx) })
	}
	a.Drain(t.Context())
	require.Empty(t, a.Owned())
	require.Eventually(t, func() bool { return len(b.Owned())+len(c.Owned()) == store.Buckets }, 5*time.Second, 10*time.Millisecond)
	stop()
	loops.Wait()
}

// A take or a hand-over whose answer was lost is found out by looking, never by doing it again.
func TestWhatTheDatabaseSaysIsBelieved(t *testing.T) {
	storetest.Each(t, func(t *testing.T, s *store.Store) {
		a := newReplica(s, "a")
		require.NoError(t, s.Announce(t.Context(), store.Replica{ID: "a"}, time.Minute))
		lost, err := s.TakeFree(t.Context(), "a") // and its answer never came
		require.NoError(t, err)
		require.Len(t, lost, store.Buckets)
		require.Equal(t, store.Buckets, a.once(t), "what is ours in the database is taken up")
		f, _ := a.Fence(7)
		require.Equal(t, lost[7].Epoch, f.Epoch)
		require.NoError(t, s.Announce(t.Context(), store.Replica{ID: "b"}, time.Minute))
		require.NoError(t, s.HandOver(t.Context(), f, "b", store.MoveAsked)) // and its answer never came
		a.once(t)
		_, ok := a.Fence(7)
		require.False(t, ok, "what is another's is let go before the next write finds out")
		require.ErrorIs(t, s.HandOver(t.Context(), f, "a", store.MoveAsked), store.ErrFenced)
	})
}

// S11: a connection that closes tells of a death in milliseconds; one that goes on renewing is not believed dead
// because its lock is free for a moment.
func TestADeathIsSeenByTheLock(t *testing.T) {
	s := storetest.MySQL(t)
	run := func(id string) (r *replica, kill func()) {
		r = newReplica(s, id)
		ctx, stop := context.WithCancel(t.Context())
		var done sync.WaitGroup
		done.Go(func() { _ = r.Run(ctx) })
		kill = sync.OnceFunc(func() {
			stop()
			done.Wait()
		})
		t.Cleanup(kill)
		return r, kill
	}
	b, _ := run("b")
	require.Eventually(t, func() bool { return len(b.Owned()) == store.Buckets }, 20*time.Second, 10*time.Millisecond)
	// a lives by its row and its lock only.
	lock, err := s.Lock(t.Context(), "ax:a", 0)
	require.NoError(t, err)
	require.NoError(t, s.Announce(t.Context(), store.Replica{ID: "a"}, 50*time.Second))
	f, _ := b.Fence(9)
	require.NoError(t, s.HandOver(t.Context(), f, "a", store.MoveAsked))
	require.Eventually(t, func() bool { _, ok := b.Fence(9); return !ok }, 5*time.Second, 5*time.Millisecond)
	keep := time.NewTimer(time.Second)
	for waiting := true; waiting; {
		select {
		case <-keep.C:
			waiting = false
		default:
			require.NoError(t, lock.Held(t.Context()))
			_, ok := b.Fence(9)
			require.False(t, ok, "a lives")
		}
	}
	at := time.Now()
	lock.Free()
	require.Eventually(t, func() bool { _, ok := b.Fence(9); return ok }, 5*time.Second, time.Millisecond)
	t.Logf("taken over %s after the connection closed", time.Since(at))
	require.Less(t, time.Since(at), time.Second)
}

// F12: the database's clock jumps while an owner and a standby live. Liveness is by that clock, so that the
// owner may look dead for the half second until it renews: a jump costs at most one takeover, every bucket has
// an owner again at once, and nobody takes them to and fro.
func TestAJumpOfTheDatabasesClockIsNoStorm(t *testing.T) {
	clock := storetest.StartFakeTime(t)
	s, err := store.Open(store.Config{DSN: storetest.Database(t), AuditKey: storetest.AuditKey()})
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
