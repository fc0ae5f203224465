package main

import (
	"bytes"
	"encoding/json"
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

// cron next says what a clock change does to a firing, in both languages, in JSON and in print.
func TestCronNextHasNotes(t *testing.T) {
	args := []string{"--expr", "0 30 2 * * ?", "--zone", "America/New_York", "--from", "2026-03-07T12:00:00-05:00", "-n", "2"}
	code, out := cronNext(t, append(args, "--json")...)
	require.Zero(t, code)
	var answer struct {
		Fires []string
		Notes []struct {
			At      string
			Message struct{ EN, ZH string }
		}
	}
	require.NoError(t, json.Unmarshal([]byte(out), &answer))
	require.Equal(t, []string{"2026-03-08T03:00:00-04:00", "2026-03-09T02:30:00-04:00"}, answer.Fires)
	require.Len(t, answer.Notes, 1)
	require.Equal(t, answer.Fires[0], answer.Notes[0].At)
	require.Equal(t, "02:30 does not exist on this day; runs at 03:00 (policy: run once)", answer.Notes[0].Message.EN)
	require.Contains(t, answer.Notes[0].Message.ZH, "不存在 02:30")

	var stdout, stderr bytes.Buffer
	require.Zero(t, cli.Run(t.Context(), append([]string{"cron", "next"}, args...), strings.NewReader(""), &stdout, &stderr))
	require.Equal(t, "2026-03-08T03:00:00-04:00 Sunday\n2026-03-09T02:30:00-04:00 Monday\n", stdout.String())
	require.Contains(t, stderr.String(), "2026-03-08T03:00:00-04:00: 02:30 does not exist")
}
