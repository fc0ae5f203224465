package dispatch

import (
	"context"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/ax-scheduler/ax/internal/clock"
	"github.com/ax-scheduler/ax/internal/cluster"
	"github.com/ax-scheduler/ax/internal/egress"
	"github.com/ax-scheduler/ax/internal/job"
	"github.com/ax-scheduler/ax/internal/metric"
	"github.com/ax-scheduler/ax/internal/outcome"
	"github.com/ax-scheduler/ax/internal/protocol"
	"github.com/ax-scheduler/ax/internal/ready"
	"github.com/ax-scheduler/ax/internal/registry"
	"github.com/ax-scheduler/ax/internal/store"
	"github.com/ax-scheduler/ax/internal/storetest"
)

// A4, B5: the planned time is compared with ax time once more just before a request leaves. What became due
// before the clock went back is not sent, and is not lost either.
func TestNothingIsSentBeforeItsTime(t *testing.T) {
	const due = int64(1_796_000_000_000)
	var requests atomic.Int64
	executor := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		requests.Add(1)
		w.WriteHeader(http.StatusBadRequest)
	}))
	t.Cleanup(executor.Close)
	log := slog.New(slog.DiscardHandler)
	clk := clock.NewManual(time.UnixMilli(due))
	s := storetest.New(t)
	c := cluster.New(cluster.Config{Store: s, Replica: store.Replica{ID: "a"}, Log: log, Taken: func(context.Context, store.Fence) error { return nil }, Gone: func(store.Fence) {}})
	_, err := c.RunOnce(t.Context(), true)
	require.NoError(t, err)
	fence, ok := c.Fence(0)
	require.True(t, ok)
	rd := ready.New(clk.Now())
	reg := registry.New(s, clk, log, registry.Settings{Heartbeat: time.Second, ProbeDelay: time.Second, Lease: time.Minute}, nil, func() {})
	metrics := metric.New("test", "test")
	out := outcome.New(outcome.Config{Store: s, Cluster: c, Ready: rd, Registry: reg, Clock: clk, Metrics: metrics, Log: log, Planned: func() {}})
	key, _ := protocol.NewKey()
	keys := func(context.Context, int64, int64) (string, []protocol.Key, []egress.Rule, error) {
		return "one", []protocol.Key{key}, nil, nil
	}
	d := New(Config{Store: s, Cluster: c, Ready: rd, Registry: reg, Outcome: out, Clock: clk, Metrics: metrics, Log: log, Client: NewClient(egress.NewPolicy(nil, true), keys, clk), Settings: Settings{AckTimeout: time.Second}})
	worker := registry.Executor{Executor: store.Executor{ID: 7, NSID: 1, AppID: 1, AppName: "app", Address: executor.URL, StartID: "s"}}
	part := func() []delivery {
		b := &ready.Batch{ID: "10001-20260101000000", NS: 1, JobID: 10001, AppID: 1, Def: &job.Definition{}, Total: 1, DueAt: due}
		e := &ready.Execution{Batch: b, ID: 1, Attempt: 1, NotBefore: due, Bound: &ready.Bound{WorkerID: 7, Address: executor.URL, StartID: "s"}}
		return []delivery{{chosen: chosen{e: e, worker: worker}, fence: fence}}
	}
	for _, back := range []time.Duration{time.Millisecond, time.Second, 2 * time.Hour} {
		clk.Set(time.UnixMilli(due).Add(-back))
		d.deliver(t.Context(), part())
		require.Zero(t, requests.Load(), "%s before its time", back)
		next, ok := rd.Next()
		require.True(t, ok)
		require.LessOrEqual(t, next, due)
		waits := rd.TakeOut(func(*ready.Execution) bool { return true })
		require.Len(t, waits, 1, "it waits for its time")
		require.NotNil(t, waits[0].Bound, "and goes where its row says")
	}
	clk.Set(time.UnixMilli(due))
	d.deliver(t.Context(), part())
	require.EqualValues(t, 1, requests.Load(), "at its time it is sent")
}
