package registry_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/ax-scheduler/ax/internal/clock"
	"github.com/ax-scheduler/ax/internal/egress"
	"github.com/ax-scheduler/ax/internal/protocol"
	"github.com/ax-scheduler/ax/internal/registry"
	"github.com/ax-scheduler/ax/internal/routing"
	"github.com/ax-scheduler/ax/internal/store"
	"github.com/ax-scheduler/ax/internal/storetest"
)

// net1 is a network with one thing in it: what answers a probe.
type net1 struct {
	mu     sync.Mutex
	answer func(e store.Executor, nonce string) (protocol.Probed, error)
	probes int
}

func (n *net1) probe(_ context.Context, e store.Executor, nonce string) (protocol.Probed, error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.probes++
	return n.answer(e, nonce)
}

func (n *net1) set(answer func(e store.Executor, nonce string) (protocol.Probed, error)) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.answer = answer
}

func honest(e store.Executor, nonce string) (protocol.Probed, error) {
	return protocol.Probed{Nonce: nonce, StartID: e.StartID}, nil
}

func refused(store.Executor, string) (protocol.Probed, error) {
	return protocol.Probed{}, &net.OpError{Op: "dial", Err: syscall.ECONNREFUSED}
}

func newRegistry(t *testing.T) (*registry.Registry, *net1, *store.Store) {
	t.Helper()
	s := storetest.New(t)
	n := &net1{answer: honest}
	return registryOn(s, n), n, s
}

func ours(bucket int) bool { return bucket == bucketOfApp }

const bucketOfApp = 5

func registryOn(s *store.Store, n *net1) *registry.Registry {
	return registry.New(s, clock.NewManual(time.UnixMilli(1_796_000_000_000)), discard(), registry.Settings{Heartbeat: 10 * time.Second, ProbeDelay: 15 * time.Second, Lease: time.Minute, StormShare: 0.5, StormWindow: time.Minute, Redispatch: 50}, n.probe, func() {})
}

func manual() clock.Clock { return clock.NewManual(time.UnixMilli(1_796_000_100_000)) }

func discard() *slog.Logger { return slog.New(slog.DiscardHandler) }

func app() store.App { return store.App{ID: 3, NSID: 1, Name: "app"} }

func beat(t *testing.T, r *registry.Registry, startID string, running ...protocol.Ref) registry.Executor {
	t.Helper()
	x, err := r.Beat(t.Context(), bucketOfApp, app(), protocol.Register{Address: "http://10.0.0.1:1", StartID: startID, Slots: 2, Handlers: []protocol.Handler{{Name: "work", Kind: "simple"}}, Running: running})
	require.NoError(t, err)
	return x
}

func reaches(t *testing.T, r *registry.Registry, id int64, state, reason string) {
	t.Helper()
	require.Eventually(t, func() bool {
		x, ok := r.Executor(id)
		return ok && x.State == state && x.Reason == reason
	}, 10*time.Second, 5*time.Millisecond, "%s %s", state, reason)
}

// EXE-7: what the challenge can bring.
func TestChallenge(t *testing.T) {
	tests := []struct {
		name   string
		answer func(e store.Executor, nonce string) (protocol.Probed, error)
		state  string
		reason string
	}{
		{"itself", honest, store.ExecutorOnline, ""},
		{"nobody", refused, store.ExecutorRefused, registry.ReasonUnreachable},
		{"somebody without the key", func(store.Executor, string) (protocol.Probed, error) {
			return protocol.Probed{}, fmt.Errorf("answer: %w", protocol.ErrSignature)
		}, store.ExecutorRefused, registry.ReasonForeign},
		{"another process of the app", func(_ store.Executor, nonce string) (protocol.Probed, error) {
			return protocol.Probed{Nonce: nonce, StartID: "another"}, nil
		}, store.ExecutorRefused, registry.ReasonForeign},
		{"an address that the policy bars", func(store.Executor, string) (protocol.Probed, error) {
			return protocol.Probed{}, fmt.Errorf("dial: %w", egress.ErrBlocked)
		}, store.ExecutorRefused, registry.ReasonBlocked},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			r, n, _ := newRegistry(t)
			n.set(tt.answer)
			x := beat(t, r, "process-one")
			require.Equal(t, store.ExecutorPending, x.State)
			reaches(t, r, x.ID, tt.state, tt.reason)
			list, online, offered := r.Candidates(registry.Want{AppID: 3, JobID: 1, Handler: "work"})
			require.Len(t, list, 1)
			require.Equal(t, tt.state == store.ExecutorOnline, online)
			require.Equal(t, tt.state == store.ExecutorOnline, offered)
			require.Equal(t, tt.state == store.ExecutorOnline, list[0].Barred == "")
			// What was refused is asked again at the next heartbeat.
			n.set(honest)
			beat(t, r, "process-one")
			reaches(t, r, x.ID, store.ExecutorOnline, "")
		})
	}
}

// C293: three missed heartbeats make it suspect, two refused connections after a while make it gone,
// and whatever else is wrong does not.
func TestASilentExecutor(t *testing.T) {
	r, n, _ := newRegistry(t)
	ref := protocol.Ref{ExecutionID: "55"}
	x := beat(t, r, "process-one", ref)
	reaches(t, r, x.ID, store.ExecutorOnline, "")
	now := time.Now()
	r.RunOnce(t.Context(), now.Add(29*time.Second), ours)
	reaches(t, r, x.ID, store.ExecutorOnline, "")
	r.RunOnce(t.Context(), now.Add(31*time.Second), ours)
	reaches(t, r, x.ID, store.ExecutorSuspect, registry.ReasonSilent)
	list, _, _ := r.Candidates(registry.Want{AppID: 3, JobID: 1, Handler: "work"})
	require.Equal(t, "suspect", list[0].Barred)
	n.mu.Lock()
	n.probes = 0
	n.mu.Unlock()
	r.RunOnce(t.Context(), now.Add(40*time.Second), ours)
	n.mu.Lock()
	require.Zero(t, n.probes, "it is left alone for a while")
	n.mu.Unlock()

	n.set(refused)
	probed := func(want int) func() bool {
		return func() bool {
			n.mu.Lock()
			defer n.mu.Unlock()
			return n.probes == want
		}
	}
	r.RunOnce(t.Context(), now.Add(50*time.Second), ours)
	require.Eventually(t, probed(1), 10*time.Second, 5*time.Millisecond)
	require.False(t, r.Word(x.ID, "process-one", 55).Gone, "one refusal is none")
	require.Eventually(t, func() bool {
		r.RunOnce(t.Context(), now.Add(60*time.Second), ours)
		x, ok := r.Executor(x.ID)
		return ok && x.State == store.ExecutorOffline
	}, 10*time.Second, 5*time.Millisecond)
	w := r.Word(x.ID, "process-one", 55)
	require.True(t, w.Gone)

	// What it ran was given up, so its next heartbeat makes it a new executor, proven anew.
	n.set(honest)
	fresh := beat(t, r, "process-one", ref)
	require.NotEqual(t, x.ID, fresh.ID)
	reaches(t, r, fresh.ID, store.ExecutorOnline, "")
	require.True(t, r.Word(x.ID, "process-one", 55).Gone)
	require.Equal(t, 1, r.Online(3))
}

func TestASilentExecutorThatHangsIsNotGone(t *testing.T) {
	r, n, _ := newRegistry(t)
	x := beat(t, r, "process-one")
	reaches(t, r, x.ID, store.ExecutorOnline, "")
	n.set(func(store.Executor, string) (protocol.Probed, error) { return protocol.Probed{}, errors.New("timeout") })
	now := time.Now()
	r.RunOnce(t.Context(), now.Add(31*time.Second), ours)
	r.RunOnce(t.Context(), now.Add(60*time.Second), ours)
	reaches(t, r, x.ID, store.ExecutorOffline, registry.ReasonSilent)
	require.False(t, r.Word(x.ID, "process-one", 55).Gone, "it may be paused: its runs are left to their lease")
}

// Another process at the address: what the old one ran is known to be gone.
func TestANewProcessAtTheAddress(t *testing.T) {
	r, _, _ := newRegistry(t)
	old := beat(t, r, "process-one", protocol.Ref{ExecutionID: "55"})
	reaches(t, r, old.ID, store.ExecutorOnline, "")
	fresh := beat(t, r, "process-two")
	require.NotEqual(t, old.ID, fresh.ID)
	require.True(t, r.Word(old.ID, "process-one", 55).Gone)
	require.True(t, r.Word(fresh.ID, "process-one", 55).Gone, "the id of one with the start of the other is nobody")
	reaches(t, r, fresh.ID, store.ExecutorOnline, "")
	require.Equal(t, 1, r.Online(3))
}

func TestAccounts(t *testing.T) {
	r, _, _ := newRegistry(t)
	x := beat(t, r, "process-one")
	reaches(t, r, x.ID, store.ExecutorOnline, "")
	for range 3 {
		r.Took(x.ID, 1, 100, 5, routing.Load{Handler: "work"})
	}
	r.Took(x.ID, 1, 101, 6, routing.Load{Handler: "work"})
	list, _, _ := r.Candidates(registry.Want{AppID: 3, JobID: 1, Handler: "work"})
	require.Equal(t, 2, list[0].Busy, "the same execution counts once")
	require.EqualValues(t, 2, list[0].Used)
	require.EqualValues(t, 6, list[0].LastUsed)
	list, _, _ = r.Candidates(registry.Want{AppID: 3, JobID: 2, Handler: "work"})
	require.Zero(t, list[0].Used, "of another job")
	r.Gave(x.ID, 100)
	r.Gave(x.ID, 100)
	list, _, _ = r.Candidates(registry.Want{AppID: 3, JobID: 1, Handler: "work", Avoid: []int64{x.ID}})
	require.Equal(t, 1, list[0].Busy)
	require.Equal(t, "refused_before", list[0].Barred)
	list, online, offered := r.Candidates(registry.Want{AppID: 3, JobID: 1, Handler: "other"})
	require.Equal(t, "no_handler", list[0].Barred)
	require.True(t, online)
	require.False(t, offered)
	_, err := r.Instance(4, fmt.Sprint(x.ID))
	require.ErrorIs(t, err, registry.ErrInstance, "another app's")
	require.ErrorIs(t, r.Remove(t.Context(), 4, x.ID, "process-one"), registry.ErrInstance)
	require.ErrorIs(t, r.Remove(t.Context(), 3, x.ID, "process-two"), registry.ErrInstance)
	require.NoError(t, r.Remove(t.Context(), 3, x.ID, "process-one"))
	reaches(t, r, x.ID, store.ExecutorOffline, registry.ReasonLeft)
}

// A restarted server knows whom to wait for.
func TestMembershipSurvivesARestart(t *testing.T) {
	r, n, s := newRegistry(t)
	ns := namespace(t, s)
	x := beat(t, r, "process-one")
	reaches(t, r, x.ID, store.ExecutorOnline, "")
	require.Eventually(t, func() bool {
		list, err := s.ExecutorsIn(t.Context(), ns.Bucket)
		return err == nil && len(list) == 1 && list[0].State == store.ExecutorOnline
	}, 10*time.Second, 5*time.Millisecond)
	require.NoError(t, r.Flush(t.Context()))
	again := registry.New(s, clock.NewManual(time.UnixMilli(1_796_000_100_000)), slog.New(slog.DiscardHandler), r.Settings(), n.probe, func() {})
	require.NoError(t, again.Load(t.Context(), ns.Bucket+1))
	require.False(t, again.Word(x.ID, "process-one", 55).Known, "those of another bucket are another server's")
	require.NoError(t, again.Load(t.Context(), ns.Bucket))
	w := again.Word(x.ID, "process-one", 55)
	require.True(t, w.Known)
	require.Zero(t, w.Beats, "nothing was heard since the start")
	require.False(t, w.Gone)
	require.Equal(t, x.ID, beat(t, again, "process-one").ID)
	again.Drop(ns.Bucket)
	require.False(t, again.Word(x.ID, "process-one", 55).Known)
}

// A server judges no executor of a bucket that is not its own: it does not hear of it.
func TestOnlyTheOwnerJudges(t *testing.T) {
	r, _, _ := newRegistry(t)
	x := beat(t, r, "process-one")
	reaches(t, r, x.ID, store.ExecutorOnline, "")
	r.RunOnce(t.Context(), time.Now().Add(time.Hour), func(int) bool { return false })
	reaches(t, r, x.ID, store.ExecutorOnline, "")
	r.RunOnce(t.Context(), time.Now().Add(time.Hour), ours)
	reaches(t, r, x.ID, store.ExecutorSuspect, registry.ReasonSilent)
}
