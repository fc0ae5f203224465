package main

import (
	"encoding/json"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/ax-scheduler/ax/internal/storetest"
	"github.com/ax-scheduler/ax/server/axtest"
)

// fires asks the API for the next times of a trigger.
func fires(t *testing.T, ns *axtest.Namespace, from string, trigger map[string]any) axtest.Answer {
	t.Helper()
	return ns.Client.Do(t, http.MethodPost, ns.Path("/schedule/preview"), map[string]any{"triggers": []map[string]any{trigger}, "from": from, "count": 3})
}

// C235: the command line and the API take and refuse the same texts, for the same reason.
func TestC235AllEntrancesHaveOneParser(t *testing.T) {
	s := axtest.Start(t)
	ns := s.Namespace(t)
	for expr, code := range map[string]string{
		"0/10 * * * * ?": "", "0/10 * * * * ? ": "", "\t0/10 * * * * ?": "", "0/10 * * *\u00a0* ?": "bad_character", "0/10 * * * * ？": "bad_character", "0/10 * * * *": "unix_five_fields",
	} {
		exit, out := cronNext(t, "--expr", expr, "--zone", "UTC", "--from", "2026-01-01T00:00:00Z", "--json")
		a := fires(t, ns, "2026-01-01T00:00:00Z", map[string]any{"kind": "cron", "expr": expr, "zone": "UTC"})
		saved := ns.Client.Do(t, http.MethodPost, ns.Path("/jobs"), axtest.Def{"name": "same", "app": "app", "handler": "work", "triggers": []map[string]any{{"kind": "cron", "expr": expr, "zone": "UTC"}}})
		if code == "" {
			require.Zero(t, exit, expr)
			require.Equal(t, http.StatusOK, a.Status, a.Text())
			var cli struct {
				Fires []string `json:"fires"`
			}
			var api struct {
				Fires []struct {
					At string `json:"at"`
				} `json:"fires"`
			}
			require.NoError(t, json.Unmarshal([]byte(out), &cli))
			a.Into(t, &api)
			require.Len(t, api.Fires, len(cli.Fires))
			for i := range cli.Fires {
				require.Equal(t, cli.Fires[i], api.Fires[i].At)
			}
			require.NotContains(t, saved.Text(), "triggers[0].expr")
			continue
		}
		var refusal struct {
			Error struct {
				Code    string
				Message struct{ EN, ZH string }
			}
		}
		require.Equal(t, 2, exit, expr)
		require.NoError(t, json.Unmarshal([]byte(out), &refusal))
		require.Equal(t, code, refusal.Error.Code)
		for _, answer := range []axtest.Answer{a, saved} {
			require.Equal(t, http.StatusUnprocessableEntity, answer.Status, answer.Text())
			p := answer.Problem(t)
			found := false
			for _, e := range p.Errors {
				found = found || e.Code == code && e.Message.EN == refusal.Error.Message.EN && e.Message.ZH == refusal.Error.Message.ZH
			}
			require.True(t, found, answer.Text())
		}
	}
}

// C238: a cron expression with a year that is over has fired once, also after a restart, and says that it
// has no next time.
func TestC238AnExpressionOfOneMomentFiresOnce(t *testing.T) {
	axtest.Both(t, func(t *testing.T, o ...axtest.Option) {
		s := axtest.Start(t, o...)
		ns := s.Namespace(t)
		x := ns.App("app").Worker(axtest.Succeed)
		at := time.Now().UTC().Add(3 * time.Second).Truncate(time.Second)
		job := ns.Job(axtest.Def{"triggers": []map[string]any{{"kind": "cron", "expr": at.Format("5 4 15 2 1 ? 2006"), "zone": "UTC"}}})
		axtest.WaitFor(t, "the firing", func() bool { return len(x.Starts()) == 1 })
		require.Nil(t, ns.JobView(job).NextTriggerAt)
		s.Restart()
		axtest.Stays(t, 3*time.Second, "it ran once", func() bool { return len(x.Starts()) == 1 })
		require.Len(t, ns.Batches(job), 1)
		require.True(t, at.Equal(ns.Batches(job)[0].DueAt))
		require.Nil(t, ns.JobView(job).NextTriggerAt)
		s.LedgerClean(t)
	})
}

// C239: zone data are part of the binary: it is right in a place with no files at all.
func TestC239ZonesAreInTheBinary(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("only root may make a directory the root of a process")
	}
	root := t.TempDir()
	build := exec.Command("go", "build", "-o", filepath.Join(root, "ax-server"), ".")
	build.Env = append(os.Environ(), "CGO_ENABLED=0")
	out, err := build.CombinedOutput()
	require.NoError(t, err, string(out))
	empty := exec.Command("/ax-server", "cron", "next", "--expr", "0 0 8 * * ?", "--zone", "Asia/Shanghai", "--from", "2026-01-01T00:00:00Z", "-n", "1", "--json")
	empty.SysProcAttr, empty.Dir, empty.Env = &syscall.SysProcAttr{Chroot: root}, "/", []string{}
	out, err = empty.Output()
	require.NoError(t, err)
	require.JSONEq(t, `{"fires":["2026-01-02T08:00:00+08:00"],"warnings":[]}`, string(out))
}

// C240: the next time is one instant, whatever zone the server's machine is in.
func TestC240TheMachinesZoneDoesNotMatter(t *testing.T) {
	for name, options := range map[string]func(t *testing.T) []axtest.Option{
		"sqlite": func(*testing.T) []axtest.Option { return nil },
		"mysql":  func(t *testing.T) []axtest.Option { return []axtest.Option{axtest.Database(storetest.Database(t))} },
	} {
		t.Run(name, func(t *testing.T) { // not in parallel, since it changes the environment
			t.Setenv("TZ", "America/New_York")
			s := axtest.Start(t, append(options(t), axtest.Process())...)
			ns := s.Namespace(t)
			ns.App("app")
			job := ns.Job(axtest.Def{"triggers": []map[string]any{{"kind": "cron", "expr": "0 30 0 * * ?", "zone": "Asia/Shanghai"}}})
			want := *ns.JobView(job).NextTriggerAt
			due, err := time.Parse(time.RFC3339, want)
			require.NoError(t, err)
			require.Equal(t, "16:30:00", due.UTC().Format(time.TimeOnly))
			for _, zone := range []string{"Asia/Tokyo", "UTC"} {
				t.Setenv("TZ", zone)
				s.Restart()
				require.Equal(t, want, *ns.JobView(job).NextTriggerAt, zone)
			}
		})
	}
}

// C243: another zone counts at once, fires nothing by itself, and the audit says from which to which.
func TestC243AnotherZoneCountsAtOnce(t *testing.T) {
	axtest.Both(t, func(t *testing.T, o ...axtest.Option) {
		s := axtest.Start(t, o...)
		ns := s.Namespace(t)
		x := ns.App("app").Worker(axtest.Succeed)
		now := time.Now().UTC()
		// Twelve hours from now in both zones, so that the day's time is none of the test's.
		at := now.Add(12 * time.Hour)
		expr := at.Format("0 4 15 * * ?")
		def := axtest.Def{"name": "job", "app": "app", "handler": "work", "triggers": []map[string]any{{"no": 1, "kind": "cron", "expr": expr, "zone": "UTC"}}}
		job := ns.Job(axtest.Def{"triggers": []map[string]any{{"kind": "cron", "expr": expr, "zone": "UTC"}}})
		inUTC, err := time.Parse(time.RFC3339, *ns.JobView(job).NextTriggerAt)
		require.NoError(t, err)
		def["triggers"].([]map[string]any)[0]["zone"] = "Asia/Shanghai"
		def["version"] = ns.JobView(job).Version
		a := ns.Client.Do(t, http.MethodPut, ns.Path("/jobs/"+job), def)
		require.Equal(t, http.StatusOK, a.Status, a.Text())
		inShanghai, err := time.Parse(time.RFC3339, *ns.JobView(job).NextTriggerAt)
		require.NoError(t, err)
		require.Equal(t, 8*time.Hour, inUTC.Sub(inShanghai))
		axtest.Stays(t, 2*time.Second, "the edit fires nothing", func() bool { return len(x.Starts()) == 0 })
		entries := s.Audit(t, "namespace="+ns.Name+"&action=job.update")
		require.Len(t, entries, 1)
		require.Contains(t, string(entries[0].Before), `"UTC"`)
		require.Contains(t, string(entries[0].After), `"Asia/Shanghai"`)
	})
}

// C245: the executor gets the planned instant and the zone of the job, the same on a retry, so that the
// date of the work is not that of somebody's machine.
func TestC245ThePlannedDateIsThatOfTheJobsZone(t *testing.T) {
	axtest.Both(t, func(t *testing.T, o ...axtest.Option) {
		s := axtest.Start(t, o...)
		ns := s.Namespace(t)
		x := ns.App("app").Worker(axtest.Fail)
		job := ns.Job(axtest.Def{
			"triggers": []map[string]any{{"kind": "cron", "expr": "* * * * * ?", "zone": "America/Mexico_City"}},
			"retry":    map[string]any{"max": 1, "backoff": "fixed", "initial": "100ms"}, "concurrency": policy("allow", 0),
		})
		axtest.WaitFor(t, "a retry", func() bool {
			for _, start := range x.Starts() {
				if start.Run.Attempt == 2 {
					return true
				}
			}
			return false
		})
		disable(t, ns, job)
		planned := map[string]int64{}
		for _, start := range x.Starts() {
			run := start.Run
			require.Equal(t, "America/Mexico_City", run.Zone)
			require.Equal(t, run.DueAt, run.PlannedFor)
			if was, ok := planned[run.BatchID]; ok {
				require.Equal(t, was, run.PlannedFor, "attempt %d", run.Attempt)
			}
			planned[run.BatchID] = run.PlannedFor
			loc, err := time.LoadLocation(run.Zone)
			require.NoError(t, err)
			require.Contains(t, run.BatchID, time.UnixMilli(run.PlannedFor).In(loc).Format("20060102150405"))
		}
	})
}

// C340, C341: a time weeks ahead is kept through restarts, and nothing runs before it.
func TestC340TimesFarAhead(t *testing.T) {
	axtest.Both(t, func(t *testing.T, o ...axtest.Option) {
		s := axtest.Start(t, o...)
		ns := s.Namespace(t)
		x := ns.App("app").Worker(axtest.Succeed)
		want := map[string]time.Time{}
		for name, ahead := range map[string]time.Duration{"bits": 2_147_483_648 * time.Millisecond, "month": 30 * 24 * time.Hour, "two": 60 * 24 * time.Hour, "year": 400 * 24 * time.Hour} {
			at := time.Now().Add(ahead).Truncate(time.Millisecond)
			want[ns.Job(axtest.Def{"name": name, "triggers": []map[string]any{{"kind": "once", "at": at.Format(time.RFC3339Nano)}}})] = at
		}
		for range 2 {
			s.Restart()
			for job, at := range want {
				next, err := time.Parse(time.RFC3339, *ns.JobView(job).NextTriggerAt)
				require.NoError(t, err)
				require.True(t, at.Equal(next), "%s, not %s", next, at)
			}
		}
		axtest.Stays(t, 2*time.Second, "nothing runs", func() bool { return len(x.Starts()) == 0 })
	})
}

// C343: a single firing survives a kill. It is on time when the server is back before it, and once, as
// a catch-up, when the server is back after it.
func TestC343OnceSurvivesAKill(t *testing.T) {
	axtest.Both(t, func(t *testing.T, o ...axtest.Option) {
		s := axtest.Start(t, append(o, axtest.Process())...)
		ns := s.Namespace(t)
		x := ns.App("app").Worker(axtest.Succeed)
		once := func(name string, ahead time.Duration) (string, time.Time) {
			at := time.Now().Add(ahead).Truncate(time.Millisecond)
			return ns.Job(axtest.Def{"name": name, "triggers": []map[string]any{{"kind": "once", "at": at.Format(time.RFC3339Nano)}}}), at
		}
		during, dueDuring := once("during", 3*time.Second)
		after, dueAfter := once("after", 25*time.Second)
		s.Kill()
		axtest.WaitFor(t, "its time while nobody is there", func() bool { return time.Now().After(dueDuring.Add(3 * time.Second)) })
		s.Again()
		axtest.WaitUpTo(t, 2*axtest.Patience, "both", func() bool { return len(x.Starts()) >= 2 })
		axtest.Stays(t, 2*time.Second, "each once", func() bool { return len(x.Starts()) == 2 })
		for job, at := range map[string]time.Time{during: dueDuring, after: dueAfter} {
			list := ns.Batches(job)
			require.Len(t, list, 1)
			require.True(t, at.Equal(list[0].DueAt))
		}
		for _, start := range x.Starts() {
			require.False(t, start.At.Before(time.UnixMilli(start.Run.DueAt)), "early")
		}
		s.LedgerClean(t)
	})
}
