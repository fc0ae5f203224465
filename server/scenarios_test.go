package main

import (
	"encoding/json"
	"net/http"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/ax-scheduler/ax/server/axtest"
)

// C238: a cron of one instant runs once, and then says plainly that there is no next.
func TestC238ACronOfOneInstantRunsOnce(t *testing.T) {
	axtest.Both(t, func(t *testing.T, o ...axtest.Option) {
		s := axtest.Start(t, o...)
		ns := s.Namespace(t)
		x := ns.App("app").Worker(axtest.Succeed)
		at := time.Now().UTC().Add(4 * time.Second)
		job := ns.Job(axtest.Def{"triggers": []map[string]any{{"kind": "cron", "dialect": "quartz", "zone": "UTC", "expr": at.Format("5 4 15 2 1 ? 2006")}}})
		require.NotNil(t, ns.JobView(job).NextTriggerAt)
		axtest.WaitFor(t, "it has run", func() bool { return len(x.Starts()) == 1 })
		axtest.WaitFor(t, "no next", func() bool { return ns.JobView(job).NextTriggerAt == nil })
		s.Restart()
		axtest.Stays(t, 3*time.Second, "once", func() bool { return len(x.Starts()) == 1 })
		require.Nil(t, ns.JobView(job).NextTriggerAt)
		s.LedgerClean(t)
	})
}

// C243: another zone moves the next firing at once, and the edit itself fires nothing.
func TestC243AnotherZoneMovesTheNextFiring(t *testing.T) {
	t.Parallel()
	s := axtest.Start(t)
	ns := s.Namespace(t)
	x := ns.App("app").Worker(axtest.Succeed)
	daily := func(zone string) []map[string]any {
		return []map[string]any{{"kind": "cron", "dialect": "quartz", "zone": zone, "expr": "0 0 9 * * ?"}}
	}
	job := ns.Job(axtest.Def{"triggers": daily("UTC")})
	hour := func() int {
		at, err := time.Parse(time.RFC3339, *ns.JobView(job).NextTriggerAt)
		require.NoError(t, err)
		return at.UTC().Hour()
	}
	require.Equal(t, 9, hour())
	a := ns.Client.Do(t, http.MethodPut, ns.Path("/jobs/"+job), map[string]any{"name": "job", "app": "app", "handler": "work", "version": ns.JobView(job).Version, "triggers": daily("Asia/Shanghai")})
	require.Equal(t, http.StatusOK, a.Status, a.Text())
	require.Equal(t, 1, hour())
	axtest.Stays(t, 2*time.Second, "the edit fires nothing", func() bool { return len(x.Starts()) == 0 })
	entries, err := json.Marshal(s.Audit(t, "action=job.update"))
	require.NoError(t, err)
	require.Contains(t, string(entries), "UTC")
	require.Contains(t, string(entries), "Asia/Shanghai")
}

// C245: the executor gets the planned instant and the job's zone, and so the planned date, the same on a retry.
func TestC245ThePlannedDateIsThatOfTheJobsZone(t *testing.T) {
	t.Parallel()
	s := axtest.Start(t)
	ns := s.Namespace(t)
	x := ns.App("app").Worker(axtest.Fail)
	job := ns.Job(axtest.Def{
		"triggers": []map[string]any{{"kind": "cron", "dialect": "quartz", "zone": "America/Mexico_City", "expr": "0 30 23 * * ?"}}, "enabled": false,
		"retry": map[string]any{"max": 1, "backoff": "fixed", "initial": "1s"},
	})
	v := backfill(t, ns, job, map[string]any{"from": "2026-03-01", "to": "2026-03-02"})
	require.Len(t, v.Made, 1)
	ns.Ended(v.Made[0].BatchID)
	require.Len(t, x.Starts(), 2)
	for _, r := range x.Starts() {
		zone, err := time.LoadLocation(r.Run.Zone)
		require.NoError(t, err)
		require.Equal(t, "2026-03-01 23:30", time.UnixMilli(r.Run.PlannedFor).In(zone).Format("2006-01-02 15:04"), "attempt %d", r.Run.Attempt)
	}
}
