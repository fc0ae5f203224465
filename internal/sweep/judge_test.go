package sweep

import (
	"log/slog"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/ax-scheduler/ax/internal/batch"
	"github.com/ax-scheduler/ax/internal/clock"
	"github.com/ax-scheduler/ax/internal/outcome"
	"github.com/ax-scheduler/ax/internal/registry"
	"github.com/ax-scheduler/ax/internal/store"
)

const now = int64(1_796_000_000_000)

// What becomes of an execution from which nobody has heard the end.
func TestJudge(t *testing.T) {
	ago := func(d time.Duration) int64 { return now - d.Milliseconds() }
	in := func(d time.Duration) int64 { return now + d.Milliseconds() }
	r := registry.New(nil, clock.NewManual(time.UnixMilli(now)), slog.New(slog.DiscardHandler), registry.Settings{Heartbeat: 10 * time.Second, ProbeDelay: 15 * time.Second, Lease: 10 * time.Minute}, nil, func() {})
	s := New(Config{Registry: r})
	lists := registry.Word{Known: true, Beats: 5, Lists: true}
	knows := registry.Word{Known: true, Beats: 5}
	tests := []struct {
		name   string
		row    store.Execution
		word   registry.Word
		event  batch.RunEvent // empty = it is left alone
		reason string
	}{
		{"it runs and its executor says so", store.Execution{Status: batch.RunRunning, DispatchedAt: ago(time.Hour), LeaseUntil: in(time.Minute)}, lists, "", ""},
		{"its process is gone", store.Execution{Status: batch.RunRunning, DispatchedAt: ago(time.Minute), LeaseUntil: in(time.Minute)}, registry.Word{Known: true, Gone: true}, batch.RunLose, outcome.ReasonGone},
		{"its executor was forgotten", store.Execution{Status: batch.RunUnknown, DispatchedAt: ago(time.Minute), LeaseUntil: in(time.Minute)}, registry.Word{Gone: true}, batch.RunLose, outcome.ReasonGone},
		{"its executor does not list it, but not for long", store.Execution{Status: batch.RunRunning, DispatchedAt: ago(20 * time.Second), LeaseUntil: in(time.Minute)}, knows, "", ""},
		{"its executor never listed it", store.Execution{Status: batch.RunRunning, DispatchedAt: ago(31 * time.Second), LeaseUntil: in(time.Minute)}, knows, batch.RunLose, outcome.ReasonUnheard},
		{"its executor was heard only once since the start", store.Execution{Status: batch.RunUnknown, DispatchedAt: ago(time.Hour), LeaseUntil: in(time.Minute)}, registry.Word{Known: true, Beats: 1}, "", ""},
		{"its request is still being repeated", store.Execution{Status: batch.RunDispatching, DispatchedAt: ago(29 * time.Second)}, knows, "", ""},
		{"its request was given up", store.Execution{Status: batch.RunDispatching, DispatchedAt: ago(31 * time.Second)}, knows, batch.RunLose, outcome.ReasonUnheard},
		{"its executor is silent and the lease runs", store.Execution{Status: batch.RunRunning, DispatchedAt: ago(time.Hour), LeaseUntil: in(time.Second)}, registry.Word{Known: true, SilentFor: time.Hour}, "", ""},
		{"its executor is silent and the lease is over", store.Execution{Status: batch.RunRunning, DispatchedAt: ago(time.Hour), LeaseUntil: ago(time.Second)}, registry.Word{Known: true, SilentFor: time.Hour}, batch.RunLose, outcome.ReasonLease},
		{"the lease is over and the executor lists it", store.Execution{Status: batch.RunRunning, DispatchedAt: ago(time.Hour), LeaseUntil: ago(time.Second)}, lists, "", ""},
		{"it was never acknowledged by somebody who is silent", store.Execution{Status: batch.RunDispatching, DispatchedAt: ago(11 * time.Minute)}, registry.Word{Known: true}, batch.RunLose, outcome.ReasonLease},
		{"a stop by hand that is not confirmed yet", store.Execution{Status: batch.RunStopping, StopReason: outcome.ReasonCancelled, StopAskedAt: ago(59 * time.Second), DispatchedAt: ago(time.Hour), LeaseUntil: in(time.Minute)}, lists, "", ""},
		{"a stop by hand that is never confirmed", store.Execution{Status: batch.RunStopping, StopReason: outcome.ReasonCancelled, StopAskedAt: ago(61 * time.Second), DispatchedAt: ago(time.Hour), LeaseUntil: in(time.Minute)}, lists, batch.RunCancel, outcome.ReasonCancelled},
		{"a time limit that is not confirmed yet", store.Execution{Status: batch.RunStopping, StopReason: outcome.ReasonTimeout, StopAskedAt: ago(29 * time.Second), DispatchedAt: ago(time.Hour), LeaseUntil: in(time.Minute)}, lists, "", ""},
		{"a time limit that is never confirmed", store.Execution{Status: batch.RunStopping, StopReason: outcome.ReasonTimeout, StopAskedAt: ago(31 * time.Second), DispatchedAt: ago(time.Hour), LeaseUntil: in(time.Minute)}, lists, batch.RunTimeOut, outcome.ReasonTimeout},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			tt.row.ID, tt.row.WorkerID = 5, 7
			got := s.judge(tt.row, tt.word, now, time.Hour.Milliseconds())
			if tt.event == "" {
				require.Nil(t, got)
				return
			}
			require.NotNil(t, got)
			require.EqualValues(t, 5, got.ExecutionID)
			require.Equal(t, tt.event, got.Event)
			require.Equal(t, tt.reason, got.Reason)
			require.Equal(t, tt.event != batch.RunLose, got.Unconfirmed, "an end without the executor's word is not confirmed")
			if tt.event == batch.RunLose {
				require.Equal(t, []int64{7}, got.Avoid)
			}
		})
	}
}

// What a former owner had sent is sent again by the new one: its patience begins with the takeover.
func TestPatienceBeginsAnewWithATakeover(t *testing.T) {
	r := registry.New(nil, clock.NewManual(time.UnixMilli(now)), slog.New(slog.DiscardHandler), registry.Settings{Heartbeat: time.Second, ProbeDelay: time.Second, Lease: time.Minute}, nil, func() {})
	s := New(Config{Registry: r})
	row := store.Execution{ID: 5, WorkerID: 7, Status: batch.RunDispatching, DispatchedAt: now - time.Hour.Milliseconds()}
	word := registry.Word{Known: true, Beats: 5}
	require.Nil(t, s.judge(row, word, now, (29*time.Second).Milliseconds()))
	require.NotNil(t, s.judge(row, word, now, (31*time.Second).Milliseconds()))
}
