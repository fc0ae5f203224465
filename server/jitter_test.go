package main

import (
	"net/http"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/ax-scheduler/ax/server/axtest"
)

// Twenty triggers that are due together start one after another, none early. A job that is edited after
// they were due loses and doubles none; one that is switched off then says of each that it was missed.
func TestJitterSpreadsAndAnEditLosesNothing(t *testing.T) {
	axtest.Both(t, func(t *testing.T, o ...axtest.Option) {
		s := axtest.Start(t, o...)
		ns := s.Namespace(t)
		x := ns.App("app").Worker(axtest.Succeed)
		const jitter = 8 * time.Second
		due := time.Now().Add(4 * time.Second).Truncate(time.Millisecond)
		def := func(name string) axtest.Def {
			triggers := make([]map[string]any, 20)
			for i := range triggers {
				triggers[i] = map[string]any{"kind": "fixedRate", "every": "1h", "anchor": due.Format(time.RFC3339Nano), "jitter": jitter.String()}
			}
			return axtest.Def{"name": name, "app": "app", "handler": "work", "triggers": triggers, "concurrency": policy("allow", 0)}
		}
		edited, stopped := ns.Job(def("edited")), ns.Job(def("stopped"))
		axtest.WaitFor(t, "they are due", func() bool { return time.Now().After(due.Add(500 * time.Millisecond)) })
		// The triggers get new numbers, as those of somebody who writes a job anew.
		changed := def("edited")
		changed["version"] = ns.JobView(edited).Version
		a := ns.Client.Do(t, http.MethodPut, ns.Path("/jobs/"+edited), changed)
		require.Equal(t, http.StatusOK, a.Status, a.Text())
		a = ns.Client.Do(t, http.MethodPost, ns.Path("/jobs/"+stopped+"/disable"), nil)
		require.Equal(t, http.StatusOK, a.Status, a.Text())
		at := time.Now()

		for _, id := range []string{edited, stopped} {
			axtest.WaitFor(t, "each has its end", func() bool {
				n := 0
				for _, b := range ns.Batches(id) {
					if b.Final() {
						n++
					}
				}
				return n == 20
			})
		}
		ended := map[string]string{}
		later := 0
		for _, b := range ns.Batches(edited) {
			require.True(t, due.Equal(b.DueAt), "the due time is the planned one")
			require.Equal(t, "SUCCEEDED", b.State, b.Code())
		}
		missed := 0
		for _, b := range ns.Batches(stopped) {
			ended[b.BatchID] = b.State
			if b.State == "MISSED" {
				missed++
				require.Equal(t, "missed_paused", b.Code())
			}
		}
		starts := map[int64]bool{}
		for _, start := range x.Starts() {
			require.False(t, start.At.Before(due), "early")
			starts[start.At.UnixMilli()/100] = true
			if start.At.After(at) {
				later++
				require.NotEqual(t, "MISSED", ended[start.Run.BatchID])
			}
		}
		require.NotZero(t, missed, "the job was switched off before all had started")
		require.NotZero(t, later, "the job was edited before all had started")
		require.Greater(t, len(starts), 5, "they are spread")
		axtest.NothingTwice(t, x)
		s.LedgerClean(t)
	})
}

// A firing that waits for its start is not late when the server comes back after its due time.
func TestJitterIsNotLateness(t *testing.T) {
	axtest.Both(t, func(t *testing.T, o ...axtest.Option) {
		s := axtest.Start(t, o...)
		ns := s.Namespace(t)
		ns.App("app").Worker(axtest.Succeed)
		due := time.Now().Add(3 * time.Second).Truncate(time.Millisecond)
		triggers := make([]map[string]any, 20)
		for i := range triggers {
			triggers[i] = map[string]any{"kind": "fixedRate", "every": "1h", "anchor": due.Format(time.RFC3339Nano), "jitter": "25s"}
		}
		id := ns.Job(axtest.Def{"triggers": triggers, "concurrency": policy("allow", 0), "misfire": map[string]any{"policy": "skip"}})
		s.Stop()
		axtest.WaitFor(t, "the due time is long past", func() bool { return time.Now().After(due.Add(8 * time.Second)) })
		s.Again()
		axtest.WaitFor(t, "each has its end", func() bool {
			n := 0
			for _, b := range ns.Batches(id) {
				if b.Final() {
					n++
				}
			}
			return n == 20
		})
		states := map[string]int{}
		for _, b := range ns.Batches(id) {
			states[b.State]++
		}
		require.NotZero(t, states["SUCCEEDED"], "those that still had to start: %v", states)
		require.NotZero(t, states["MISSED"], "those whose start was long past: %v", states)
		s.LedgerClean(t)
	})
}
