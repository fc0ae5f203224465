package registry_test

import (
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/ax-scheduler/ax/internal/clock"
	"github.com/ax-scheduler/ax/internal/protocol"
	"github.com/ax-scheduler/ax/internal/registry"
	"github.com/ax-scheduler/ax/internal/store"
	"github.com/ax-scheduler/ax/internal/storetest"
)

func register(i int, startID string) protocol.Register {
	return protocol.Register{Address: fmt.Sprintf("http://10.0.%d.%d:1", i/250, i%250), StartID: startID, Slots: 2, Handlers: []protocol.Handler{{Name: "work", Kind: "simple"}}}
}

// fleet registers n executors, all at once, and waits until they are online.
func fleet(t *testing.T, r *registry.Registry, n int) []int64 {
	t.Helper()
	ids := make([]int64, n)
	var wait sync.WaitGroup
	for i := range n {
		wait.Go(func() {
			x, err := r.Beat(t.Context(), bucketOfApp, app(), register(i, fmt.Sprintf("process-%d", i)))
			if err == nil {
				ids[i] = x.ID
			}
		})
	}
	wait.Wait()
	require.Eventually(t, func() bool { return r.Online(3) == n }, 20*time.Second, 5*time.Millisecond)
	return ids
}

func hangs(store.Executor, string) (protocol.Probed, error) {
	return protocol.Probed{}, errors.New("timeout")
}

// settle looks at the executors until something is so.
func settle(t *testing.T, r *registry.Registry, now time.Time, done func() bool) {
	t.Helper()
	require.Eventually(t, func() bool {
		r.RunOnce(t.Context(), now, ours)
		return done()
	}, 20*time.Second, 10*time.Millisecond)
}

// P10: when a large share goes at once, none is removed until some report.
func TestStorm(t *testing.T) {
	n := &net1{answer: honest}
	r := registry.New(storetest.New(t), manual(), discard(), registry.Settings{Heartbeat: 200 * time.Millisecond, ProbeDelay: 200 * time.Millisecond, Lease: time.Minute, StormShare: 0.5, StormWindow: time.Minute}, n.probe, func() {})
	const all, back = 10, 5
	ids := fleet(t, r, all)
	n.set(hangs)
	until := func(done func() bool) {
		t.Helper()
		require.Eventually(t, func() bool {
			r.RunOnce(t.Context(), time.Now(), ours)
			return done()
		}, 20*time.Second, 10*time.Millisecond)
	}
	until(func() bool { return r.Held() == all })
	storms := r.Storms(1)
	require.Len(t, storms, 1)
	require.Equal(t, []int{all, all, all}, []int{storms[0].Held, storms[0].Going, storms[0].All})
	require.True(t, r.Word(ids[0], "process-0", 55).Held, "what it runs is left alone")
	x, _ := r.Executor(ids[0])
	state, reason := x.Shown()
	require.Equal(t, []string{store.ExecutorSuspect, registry.ReasonStorm}, []string{state, reason})
	require.Zero(t, r.Online(3), "and none gets new work")

	// Half of them report: the others are few now, and go.
	until(func() bool {
		for i := range back {
			_, err := r.Beat(t.Context(), bucketOfApp, app(), register(i, fmt.Sprintf("process-%d", i)))
			require.NoError(t, err)
		}
		return r.Count(store.ExecutorOffline) == all-back
	})
	require.Empty(t, r.Storms(1))
	require.Equal(t, back, r.Online(3))
	require.False(t, r.Word(ids[all-1], fmt.Sprintf("process-%d", all-1), 55).Held)
}

func TestAStormIsReleased(t *testing.T) {
	r, n, _ := newRegistry(t)
	fleet(t, r, 4)
	n.set(hangs)
	now := time.Now().Add(31 * time.Second)
	r.RunOnce(t.Context(), now, ours)
	now = now.Add(16 * time.Second)
	settle(t, r, now, func() bool { return r.Held() == 4 })
	require.Equal(t, 4, r.LetGo(3))
	now = now.Add(6 * time.Second)
	settle(t, r, now, func() bool { return r.Count(store.ExecutorOffline) == 4 })
}

// That nobody listens at an address is known for certain, however many it concerns.
func TestRefusedIsNoStorm(t *testing.T) {
	r, n, _ := newRegistry(t)
	ids := fleet(t, r, 4)
	n.set(refused)
	now := time.Now().Add(31 * time.Second)
	r.RunOnce(t.Context(), now, ours)
	now = now.Add(16 * time.Second)
	require.Eventually(t, func() bool {
		now = now.Add(6 * time.Second)
		r.RunOnce(t.Context(), now, ours)
		return r.Count(store.ExecutorOffline) == 4
	}, 20*time.Second, 10*time.Millisecond)
	require.True(t, r.Word(ids[0], "process-0", 55).Gone)
}

// Two of a large fleet are no storm, and neither are a few that are replaced.
func TestAFewAreNoStorm(t *testing.T) {
	r, n, _ := newRegistry(t)
	ids := fleet(t, r, 2)
	n.set(hangs)
	now := time.Now().Add(31 * time.Second)
	r.RunOnce(t.Context(), now, ours)
	settle(t, r, now.Add(16*time.Second), func() bool { return r.Count(store.ExecutorOffline) == 2 })
	require.False(t, r.Word(ids[0], "process-0", 55).Held)
}

// P10: leases that lapse move at a bounded rate.
func TestRedispatchIsBounded(t *testing.T) {
	r, _, _ := newRegistry(t)
	ids := fleet(t, r, 1)
	now := time.Now()
	moved := 0
	for range 200 {
		if r.Move(ids[0], now) {
			moved++
		}
	}
	require.Equal(t, 50, moved)
	require.False(t, r.Move(ids[0], now.Add(59*time.Second)))
	require.True(t, r.Move(ids[0], now.Add(60*time.Second)))
	r.LetGo(3)
	require.True(t, r.Move(ids[0], now.Add(60*time.Second)), "an operator lets them go")
}

// An executor that reports and does not answer requests gets no more of them until it answers a probe.
func TestADeafExecutor(t *testing.T) {
	r, n, _ := newRegistry(t)
	id := fleet(t, r, 1)[0]
	n.set(hangs)
	r.Unanswered(t.Context(), id)
	r.Unanswered(t.Context(), id)
	r.Answered(id)
	r.Unanswered(t.Context(), id)
	r.Unanswered(t.Context(), id)
	reaches(t, r, id, store.ExecutorOnline, "")
	r.Unanswered(t.Context(), id)
	reaches(t, r, id, store.ExecutorSuspect, registry.ReasonDeaf)
	_, err := r.Beat(t.Context(), bucketOfApp, app(), register(0, "process-0"))
	require.NoError(t, err)
	reaches(t, r, id, store.ExecutorSuspect, registry.ReasonDeaf)
	// It goes on reporting, so it is never removed.
	now := time.Now()
	for range 5 {
		now = now.Add(20 * time.Second)
		_, err := r.Beat(t.Context(), bucketOfApp, app(), register(0, "process-0"))
		require.NoError(t, err)
		r.RunOnce(t.Context(), time.Now().Add(16*time.Second), ours)
	}
	reaches(t, r, id, store.ExecutorSuspect, registry.ReasonDeaf)
	n.set(honest)
	settle(t, r, time.Now().Add(25*time.Second), func() bool { return r.Online(3) == 1 })
	// The next time it waits twice as long.
	for range 3 {
		r.Unanswered(t.Context(), id)
	}
	r.RunOnce(t.Context(), time.Now().Add(16*time.Second), ours)
	reaches(t, r, id, store.ExecutorSuspect, registry.ReasonDeaf)
	probes := func() int {
		n.mu.Lock()
		defer n.mu.Unlock()
		return n.probes
	}
	asked := probes()
	r.RunOnce(t.Context(), time.Now().Add(29*time.Second), ours)
	require.Equal(t, asked, probes(), "not yet")
	settle(t, r, time.Now().Add(31*time.Second), func() bool { return probes() > asked })
}

// C433: an operator's drain takes effect at once, and holds over restarts of the executor and of the server.
func TestDrainHolds(t *testing.T) {
	r, n, s := newRegistry(t)
	ns := namespace(t, s)
	id := fleet(t, r, 1)[0]
	drain := func(r *registry.Registry, id, at int64) {
		x, ok := r.Executor(id)
		require.True(t, ok)
		e := x.Executor
		e.DrainedAt, e.DrainedBy, e.DrainReason = at, "somebody", "new disk"
		require.NoError(t, r.Drain(t.Context(), e, &store.AuditEntry{At: 1, ActorType: "user", Action: "executor.pause", ObjectType: "executor", Outcome: "success"}))
	}
	drain(r, id, 5)
	require.Zero(t, r.Online(3))
	_, takes := r.Takes(id, "process-0", "work")
	require.False(t, takes)
	require.True(t, r.Closed(id), "not even what was assigned before is sent")
	list, online, _ := r.Candidates(registry.Want{AppID: 3, JobID: 1, Handler: "work"})
	require.Equal(t, "draining", list[0].Barred)
	require.False(t, online)

	again, err := r.Beat(t.Context(), bucketOfApp, app(), register(0, "another-process"))
	require.NoError(t, err)
	require.NotEqual(t, id, again.ID)
	reaches(t, r, again.ID, store.ExecutorOnline, "")
	x, _ := r.Executor(again.ID)
	state, reason := x.Shown()
	require.Equal(t, []string{store.ExecutorDrained, registry.ReasonDrained}, []string{state, reason})
	require.Zero(t, r.Online(3))

	require.NoError(t, r.Flush(t.Context()))
	other := registry.New(s, manual(), discard(), r.Settings(), n.probe, func() {})
	require.NoError(t, other.Load(t.Context(), ns.Bucket))
	require.Zero(t, other.Online(3), "another server knows")
	drain(other, again.ID, 0)
	require.Equal(t, 1, other.Online(3))
}

// Ten thousand executors that come and go cost a bounded number of statements: here a few hundred, which fall
// silent and report again, over and over, and each time as new processes.
func TestFlappingCostsLittle(t *testing.T) {
	storetest.Each(t, flapping)
}

func flapping(t *testing.T, s *store.Store) {
	r := registryOn(s, &net1{answer: honest})
	ns := namespace(t, s)
	const n, rounds = 400, 10
	fleet(t, r, n)
	require.NoError(t, r.Flush(t.Context()))
	first := r.Statements()
	require.Less(t, first, 100, "they came at once")
	begun := time.Now()
	for round := range rounds {
		r.RunOnce(t.Context(), time.Now().Add(31*time.Second), ours)
		require.Equal(t, n, r.Count(store.ExecutorSuspect))
		for i := range n {
			_, err := r.Beat(t.Context(), bucketOfApp, app(), register(i, fmt.Sprintf("process-%d", i)))
			require.NoError(t, err)
		}
		require.Equal(t, n, r.Online(3), "round %d", round)
	}
	require.NoError(t, r.Flush(t.Context()))
	spent := r.Statements() - first
	require.LessOrEqual(t, spent, 2*(int(time.Since(begun)/(250*time.Millisecond))+2), "%d changes of state, in %s", 2*n*rounds, time.Since(begun))
	list, err := s.ExecutorsIn(t.Context(), ns.Bucket)
	require.NoError(t, err)
	require.Len(t, list, n)
	for _, e := range list {
		require.Equal(t, store.ExecutorOnline, e.State)
	}

	// As new processes.
	before := r.Statements()
	var wait sync.WaitGroup
	for i := range n {
		wait.Go(func() { _, _ = r.Beat(t.Context(), bucketOfApp, app(), register(i, fmt.Sprintf("again-%d", i))) })
	}
	wait.Wait()
	require.Eventually(t, func() bool { return r.Online(3) == n }, 20*time.Second, 5*time.Millisecond)
	require.NoError(t, r.Flush(t.Context()))
	require.Less(t, r.Statements()-before, n/2)
	list, err = s.ExecutorsIn(t.Context(), ns.Bucket)
	require.NoError(t, err)
	require.Len(t, list, n, "a new process replaces the row of the one before")
}

// An executor of a later protocol is told why it gets nothing.
func TestALaterProtocolIsRefused(t *testing.T) {
	r, _, _ := newRegistry(t)
	m := register(0, "process-0")
	m.Protocol = protocol.Version + 1
	x, err := r.Beat(t.Context(), bucketOfApp, app(), m)
	require.NoError(t, err)
	require.Equal(t, []string{store.ExecutorRefused, registry.ReasonVersion}, []string{x.State, x.Reason})
	require.Empty(t, r.List(1))
}

// namespace makes the one that app is of.
func namespace(t *testing.T, s *store.Store) store.Namespace {
	t.Helper()
	ns := store.Namespace{Name: "one", Egress: "[]"}
	require.NoError(t, s.CreateNamespace(t.Context(), &ns, &store.AuditEntry{ActorType: "system", Action: "namespace.create"}))
	require.Equal(t, app().NSID, ns.ID)
	return ns
}

// C294: an executor that registered while the clock was nine months ahead expires by real silence.
func TestAClockFarAheadKeepsNobody(t *testing.T) {
	n := &net1{answer: honest}
	s := storetest.New(t)
	c := clock.NewManual(time.UnixMilli(1_796_000_000_000).Add(270 * 24 * time.Hour))
	r := registry.New(s, c, discard(), registry.Settings{Heartbeat: 10 * time.Second, ProbeDelay: 15 * time.Second, Lease: time.Minute}, n.probe, func() {})
	ns := namespace(t, s)
	fleet(t, r, 1)
	require.NoError(t, r.Flush(t.Context()))
	c.Set(time.UnixMilli(1_796_000_000_000))
	n.set(hangs)
	now := time.Now().Add(31 * time.Second)
	r.RunOnce(t.Context(), now, ours)
	settle(t, r, now.Add(16*time.Second), func() bool { return r.Count(store.ExecutorOffline) == 1 })
	require.NoError(t, r.Flush(t.Context()))
	require.NoError(t, s.ForgetExecutors(t.Context(), 1_796_000_000_001))
	list, err := s.ExecutorsIn(t.Context(), ns.Bucket)
	require.NoError(t, err)
	require.Empty(t, list)
}
