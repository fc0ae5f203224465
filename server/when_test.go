package main

import (
	"bytes"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/ax-scheduler/ax/server/axtest"
	"github.com/ax-scheduler/ax/server/cli"
)

// A trigger of kind once fires at its instant, on both databases, and has one row in the ledger.
func TestOnceFiresOnce(t *testing.T) {
	axtest.Both(t, func(t *testing.T, o ...axtest.Option) {
		s := axtest.Start(t, o...)
		ns := s.Namespace(t)
		x := ns.App("app").Worker(axtest.Succeed)
		at := time.Now().Add(2 * time.Second).Truncate(time.Millisecond)
		job := ns.Job(axtest.Def{"name": "single", "triggers": []map[string]any{{"kind": "once", "at": at.Format(time.RFC3339Nano)}}})
		beat := ns.Job(axtest.Def{"name": "beat", "triggers": every("1s"), "concurrency": policy("allow", 0)})
		var view struct {
			Triggers []struct {
				At time.Time `json:"at"`
			} `json:"triggers"`
			NextTriggerAt *time.Time `json:"nextTriggerAt"`
		}
		ns.Client.Get(t, ns.Path("/jobs/"+job), &view)
		require.True(t, at.Equal(view.Triggers[0].At), "the instant keeps its milliseconds: %s, %s", at, view.Triggers[0].At)
		axtest.WaitFor(t, "firings after the single one", func() bool {
			later := 0
			for _, b := range ns.Batches(beat) {
				if b.DueAt.After(at.Add(time.Second)) && b.State == "SUCCEEDED" {
					later++
				}
			}
			return later >= 2
		})
		list := ns.Batches(job)
		require.Len(t, list, 1)
		require.Equal(t, "once", list[0].Trigger)
		require.True(t, at.Equal(list[0].DueAt))
		single := 0
		for _, start := range x.Starts() {
			if start.Run.BatchID == list[0].BatchID {
				single++
				require.False(t, start.At.Before(at), "early")
			}
		}
		require.Equal(t, 1, single)
		ns.Client.Get(t, ns.Path("/jobs/"+job), &view)
		require.Nil(t, view.NextTriggerAt, "it never fires again")
		s.LedgerClean(t)

		a := ns.Client.Do(t, http.MethodPost, ns.Path("/jobs"), axtest.Def{"name": "late", "app": "app", "handler": "work", "triggers": []map[string]any{{"kind": "once", "at": at.Format(time.RFC3339Nano)}}})
		require.GreaterOrEqual(t, a.Status, 400)
		require.Contains(t, a.Text(), "triggers[0].at")
		require.Contains(t, a.Text(), "schedule_over")
	})
}

// A fixed delay begins at its start, and after its end nothing is planned.
func TestFixedDelayHasStartAndEnd(t *testing.T) {
	axtest.Both(t, func(t *testing.T, o ...axtest.Option) {
		s := axtest.Start(t, o...)
		ns := s.Namespace(t)
		ns.App("app").Worker(axtest.Succeed)
		start := time.Now().Add(2 * time.Second).Truncate(time.Millisecond)
		end := start.Add(1500 * time.Millisecond)
		job := ns.Job(axtest.Def{"triggers": []map[string]any{{"kind": "fixedDelay", "every": "300ms", "start": start.Format(time.RFC3339Nano), "end": end.Format(time.RFC3339Nano)}}})
		axtest.WaitFor(t, "the last firing", func() bool {
			var view struct {
				NextTriggerAt *time.Time `json:"nextTriggerAt"`
			}
			ns.Client.Get(t, ns.Path("/jobs/"+job), &view)
			list := ns.Batches(job)
			for _, b := range list {
				if b.State != "SUCCEEDED" {
					return false
				}
			}
			return len(list) > 0 && view.NextTriggerAt == nil && time.Now().After(end)
		})
		list := ns.Batches(job)
		require.Greater(t, len(list), 1)
		first := list[0].DueAt
		for _, b := range list {
			require.False(t, b.DueAt.After(end), "%s is after the end %s", b.DueAt, end)
			if b.DueAt.Before(first) {
				first = b.DueAt
			}
		}
		require.True(t, start.Equal(first), "the first is due at the start: %s, %s", start, first)
	})
}

// cronNext calls the command line.
func cronNext(t *testing.T, args ...string) (code int, out string) {
	t.Helper()
	var stdout, stderr bytes.Buffer
	code = cli.Run(t.Context(), append([]string{"cron", "next"}, args...), strings.NewReader(""), &stdout, &stderr)
	return code, stdout.String()
}

// cron next knows start and end, and refuses what is no time.
func TestCronNextHasStartAndEnd(t *testing.T) {
	next := func(args ...string) (code int, out string) {
		return cronNext(t, append([]string{"--expr", "@every 1h", "--zone", "UTC", "--from", "2026-01-01T00:00:00Z", "-n", "5", "--json"}, args...)...)
	}
	code, out := next("--start", "2026-01-05T00:00:07Z", "--end", "2026-01-05T02:00:00Z")
	require.Equal(t, 0, code)
	require.JSONEq(t, `{"fires":["2026-01-05T00:00:07Z","2026-01-05T01:00:07Z"],"warnings":[]}`, out)
	for flag, text := range map[string]string{"start": "tomorrow", "end": "2026-01-05"} {
		code, out = next("--"+flag, text)
		require.Equal(t, 2, code)
		require.Contains(t, out, `"code":"bad_time","field":"`+flag+`"`)
	}
	code, out = next("--start", "2026-01-05T00:00:00Z", "--end", "2026-01-04T00:00:00Z")
	require.Equal(t, 2, code)
	require.Contains(t, out, `"code":"end_before_start","field":"end"`)
}
