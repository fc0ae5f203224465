package api_test

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/gin-gonic/gin"
	"github.com/stretchr/testify/require"

	"github.com/ax-scheduler/ax/internal/store"
	"github.com/ax-scheduler/ax/server/api"
	"github.com/ax-scheduler/ax/server/axtest"
)

func TestMain(m *testing.M) { axtest.Main(m) }

// Who may do what, as people would say it. The table below says it for every operation.
const (
	everybody = "everybody"
	known     = "whoever is logged in"
	readers   = "read-only, auditor, developer, operator, namespace admin, platform admin"
	logs      = "read-only, developer, operator, namespace admin, platform admin"
	operators = "developer, operator, namespace admin, platform admin"
	keepers   = "operator, namespace admin, platform admin"
	authors   = "developer, namespace admin, platform admin"
	admins    = "namespace admin, platform admin"
	platform  = "platform admin"
	reviewers = "auditor, namespace admin, platform admin"
)

// world is what the operations are tried on.
type world struct {
	t         *testing.T
	s         *axtest.Server
	ns        *axtest.Namespace
	x, spare  *axtest.Executor
	job       string // stays as it is
	batch     string // has ended well
	execution string
	count     int
}

func (w *world) fresh() string {
	w.count++
	return fmt.Sprintf("fresh %d", w.count)
}

func (w *world) newJob() string { return w.ns.Job(axtest.Def{"name": w.fresh()}) }

// delayed is the path of something about a delayed task of its own.
func (w *world) delayed(rest string) string {
	a := w.s.Admin(w.t).Do(w.t, http.MethodPost, w.ns.Path("/jobs/"+w.job+"/delayed"), map[string]any{"delay": "1h"})
	var made struct {
		BatchID string `json:"batchId"`
	}
	a.Into(w.t, &made)
	return w.ns.Path("/delayed/" + made.BatchID + rest)
}

// person is the id of somebody who is nobody in particular.
func (w *world) person() string {
	name := "somebody-" + w.ns.Name
	admin := w.s.Admin(w.t)
	a := admin.Do(w.t, http.MethodPost, "/api/v1/users", map[string]any{"name": name})
	require.Contains(w.t, []int{http.StatusCreated, http.StatusConflict}, a.Status, a.Text())
	var users struct {
		Items []struct{ ID, Name string } `json:"items"`
	}
	admin.Get(w.t, "/api/v1/users", &users)
	for _, u := range users.Items {
		if u.Name == name {
			return u.ID
		}
	}
	require.Fail(w.t, "nobody is called "+name)
	return ""
}

func (w *world) calendar(name string) {
	a := w.ns.Client.Do(w.t, http.MethodPut, w.ns.Path("/calendars/"+name), map[string]any{"dates": []string{"01-01"}})
	require.Equal(w.t, http.StatusOK, a.Status, a.Text())
}

func (w *world) secret(name string) string {
	a := w.ns.Client.Do(w.t, http.MethodPut, w.ns.Path("/secrets/"+name), map[string]any{"value": "a secret value"})
	require.Equal(w.t, http.StatusOK, a.Status, a.Text())
	return w.ns.Path("/secrets/" + name)
}

// plain is a fresh name without blanks.
func (w *world) plain() string { return strings.ReplaceAll(w.fresh(), " ", "-") }

// limit makes sure that there is a limit, and returns its path.
func (w *world) limit(under, name string) string {
	a := w.s.Admin(w.t).Do(w.t, http.MethodPut, under+name, map[string]any{"max": 3})
	require.Contains(w.t, []int{http.StatusOK, http.StatusConflict}, a.Status, a.Text())
	return under + name
}

type operation struct {
	who     string
	status  int    // when it is allowed
	changes string // the action that the audit trail names; empty for a reader
	path    func(w *world) string
	body    func(w *world) any
}

func operations() map[string]operation {
	at := func(rest string) func(*world) string { return func(w *world) string { return w.ns.Path(rest) } }
	ofJob := func(rest string) func(*world) string {
		return func(w *world) string { return w.ns.Path("/jobs/" + w.job + rest) }
	}
	fixed := func(path string) func(*world) string { return func(*world) string { return path } }
	nothing := func(*world) any { return map[string]any{} }
	const jobs = "/api/v1/namespaces/{namespace}/jobs"
	const delayed = "/api/v1/namespaces/{namespace}/delayed"
	const limits = "/api/v1/namespaces/{namespace}/limits"
	const calendars = "/api/v1/namespaces/{namespace}/calendars"
	const secrets = "/api/v1/namespaces/{namespace}/secrets"
	const batches = "/api/v1/namespaces/{namespace}/batches"
	const executions = "/api/v1/namespaces/{namespace}/executions"
	return map[string]operation{
		"POST /api/v1/auth/login": {who: everybody, status: 200, changes: "login.success", path: fixed("/api/v1/auth/login"), body: func(*world) any {
			return map[string]any{"username": "admin", "password": axtest.Password}
		}},
		"POST /api/v1/auth/refresh": {who: everybody, status: 401, path: fixed("/api/v1/auth/refresh")},
		"POST /api/v1/auth/logout":  {who: everybody, status: 204, path: fixed("/api/v1/auth/logout")},
		"POST /api/v1/setup": {who: everybody, status: 410, path: fixed("/api/v1/setup"), body: func(*world) any {
			return map[string]any{"token": "axb_none", "username": "second", "password": axtest.Password}
		}},
		"GET /api/v1/meta": {who: everybody, status: 200, path: fixed("/api/v1/meta")},

		"GET /api/v1/me":                                  {who: known, status: 200, path: fixed("/api/v1/me")},
		"GET /api/v1/namespaces":                          {who: known, status: 200, path: fixed("/api/v1/namespaces")},
		"GET /api/v1/audit":                               {who: known, status: 200, path: fixed("/api/v1/audit")},
		"GET /api/v1/audit/export":                        {who: platform, status: 200, changes: "audit.export", path: fixed("/api/v1/audit/export")},
		"GET /api/v1/namespaces/{namespace}/audit/export": {who: reviewers, status: 200, changes: "audit.export", path: at("/audit/export?format=csv")},

		"GET /api/v1/users": {who: platform, status: 200, path: fixed("/api/v1/users")},
		"POST /api/v1/users": {who: platform, status: 201, changes: "user.create", path: fixed("/api/v1/users"), body: func(w *world) any {
			return map[string]any{"name": w.plain()}
		}},
		"PUT /api/v1/users/{id}": {who: platform, status: 200, changes: "user.update", path: func(w *world) string { return "/api/v1/users/" + w.person() }, body: func(w *world) any {
			return map[string]any{"displayName": w.fresh()}
		}},
		"POST /api/v1/users/{id}/reset-password":     {who: platform, status: 200, changes: "user.update", path: func(w *world) string { return "/api/v1/users/" + w.person() + "/reset-password" }, body: nothing},
		"GET /api/v1/namespaces/{namespace}/members": {who: readers, status: 200, path: at("/members")},
		"PUT /api/v1/namespaces/{namespace}/members/{user}": {who: admins, status: 200, changes: "member.update", path: func(w *world) string {
			w.person()
			return w.ns.Path("/members/somebody-" + w.ns.Name)
		}, body: func(*world) any { return map[string]any{"role": "read-only"} }},
		"DELETE /api/v1/namespaces/{namespace}/members/{user}": {who: admins, status: 204, changes: "member.delete", path: func(w *world) string {
			w.person()
			path := w.ns.Path("/members/somebody-" + w.ns.Name)
			require.Equal(w.t, http.StatusOK, w.s.Admin(w.t).Do(w.t, http.MethodPut, path, map[string]any{"role": "operator"}).Status)
			return path
		}},
		"PUT /api/v1/me/password": {who: known, status: 422, path: fixed("/api/v1/me/password"), body: func(*world) any {
			return map[string]any{"current": "not this one", "password": "a password that is long enough"}
		}},
		"GET /api/v1/me/sessions":         {who: known, status: 200, path: fixed("/api/v1/me/sessions")},
		"DELETE /api/v1/me/sessions/{id}": {who: known, status: 404, path: fixed("/api/v1/me/sessions/none")},

		"GET /api/v1/system": {who: platform, status: 200, path: fixed("/api/v1/system")},
		"POST /api/v1/system/replicas/{replica}/drain": {who: platform, status: 200, changes: "system.update", path: func(w *world) string {
			// One that is gone: whoever drains it changes nothing for the others here.
			require.NoError(w.t, w.s.Store().Announce(w.t.Context(), store.Replica{ID: "gone"}, -time.Minute))
			return "/api/v1/system/replicas/gone/drain"
		}},
		"POST /api/v1/system/replicas/{replica}/resume": {who: platform, status: 200, changes: "system.update", path: func(w *world) string {
			require.NoError(w.t, w.s.Store().Announce(w.t.Context(), store.Replica{ID: "gone"}, -time.Minute))
			return "/api/v1/system/replicas/gone/resume"
		}},
		"POST /api/v1/system/buckets/{bucket}/move": {who: platform, status: 200, changes: "system.update", path: fixed("/api/v1/system/buckets/7/move"), body: func(w *world) any {
			m, err := w.s.Store().Membership(w.t.Context())
			require.NoError(w.t, err)
			return map[string]any{"to": m.Leases[7].Owner}
		}},

		"POST /api/v1/namespaces": {who: platform, status: 201, changes: "namespace.create", path: fixed("/api/v1/namespaces"), body: func(w *world) any {
			return map[string]any{"name": strings.ReplaceAll(w.fresh(), " ", "-")}
		}},
		"PUT /api/v1/namespaces/{namespace}/egress": {who: platform, status: 200, changes: "egress.update", path: at("/egress"), body: func(w *world) any {
			w.count++
			return map[string]any{"allow": []string{fmt.Sprintf("10.0.0.%d:80", w.count%250)}}
		}},
		"GET /api/v1/namespaces/{namespace}/apps": {who: readers, status: 200, path: at("/apps")},
		"POST /api/v1/namespaces/{namespace}/apps": {who: admins, status: 201, changes: "app.create", path: at("/apps"), body: func(w *world) any {
			return map[string]any{"name": strings.ReplaceAll(w.fresh(), " ", "-")}
		}},

		"GET /api/v1/namespaces/{namespace}/apps/{app}/keys": {who: admins, status: 200, path: at("/apps/app/keys")},
		"POST /api/v1/namespaces/{namespace}/apps/{app}/keys": {who: admins, status: 201, changes: "appkey.rotate", path: func(w *world) string {
			name := w.plain()
			w.ns.App(name)
			return w.ns.Path("/apps/" + name + "/keys")
		}, body: nothing},
		"DELETE /api/v1/namespaces/{namespace}/apps/{app}/keys/{id}": {who: admins, status: 204, changes: "appkey.delete", path: func(w *world) string {
			name := w.plain()
			w.ns.App(name)
			keys := w.ns.Path("/apps/" + name + "/keys")
			var list struct{ Items []struct{ ID string } }
			w.s.Admin(w.t).Get(w.t, keys, &list)
			require.Equal(w.t, http.StatusCreated, w.s.Admin(w.t).Do(w.t, http.MethodPost, keys, map[string]any{}).Status)
			return keys + "/" + list.Items[0].ID
		}},

		"PUT /api/v1/namespaces/{namespace}/apps/{app}": {who: admins, status: 200, changes: "app.create", path: at("/apps/app"), body: func(w *world) any {
			w.count++
			return map[string]any{"drainRate": w.count}
		}},
		"GET /api/v1/namespaces/{namespace}/backlog": {who: readers, status: 200, path: at("/backlog")},
		"POST /api/v1/namespaces/{namespace}/backlog/pause": {who: operators, status: 200, changes: "job.pause", path: at("/backlog/pause"), body: func(w *world) any {
			return map[string]any{"job": w.job}
		}},
		"POST /api/v1/namespaces/{namespace}/backlog/resume": {who: operators, status: 200, changes: "job.pause", path: at("/backlog/resume"), body: func(w *world) any {
			return map[string]any{"job": w.job}
		}},
		"POST /api/v1/namespaces/{namespace}/backlog/speed": {who: operators, status: 200, changes: "job.pause", path: at("/backlog/speed"), body: func(*world) any {
			return map[string]any{"app": "app", "rate": 7}
		}},
		"POST /api/v1/namespaces/{namespace}/backlog/drop": {who: operators, status: 200, changes: "batch.cancel", path: at("/backlog/drop"), body: func(w *world) any {
			return map[string]any{"job": w.job}
		}},

		"GET " + limits:                {who: readers, status: 200, path: at("/limits")},
		"GET " + limits + "/{name}":    {who: readers, status: 200, path: func(w *world) string { return w.limit(w.ns.Path("/limits/"), "steady") }},
		"PUT " + limits + "/{name}":    {who: keepers, status: 200, changes: "limit.write", path: func(w *world) string { return w.ns.Path("/limits/" + w.plain()) }, body: func(*world) any { return map[string]any{"max": 3} }},
		"DELETE " + limits + "/{name}": {who: keepers, status: 204, changes: "limit.write", path: func(w *world) string { return w.limit(w.ns.Path("/limits/"), w.plain()) }},
		"GET /api/v1/limits":           {who: known, status: 200, path: fixed("/api/v1/limits")},
		"GET /api/v1/limits/{name}":    {who: known, status: 200, path: func(w *world) string { return w.limit("/api/v1/limits/", "steady") }},
		"PUT /api/v1/limits/{name}":    {who: platform, status: 200, changes: "limit.write", path: func(w *world) string { return "/api/v1/limits/" + w.plain() }, body: func(*world) any { return map[string]any{"max": 3} }},
		"DELETE /api/v1/limits/{name}": {who: platform, status: 204, changes: "limit.write", path: func(w *world) string { return w.limit("/api/v1/limits/", w.plain()) }},

		"POST " + jobs + "/{id}/routing/simulate": {who: readers, status: 200, path: ofJob("/routing/simulate"), body: nothing},
		"POST /api/v1/namespaces/{namespace}/routing/simulate": {who: readers, status: 200, path: at("/routing/simulate"), body: func(*world) any {
			return map[string]any{"job": map[string]any{"name": "unsaved", "app": "app", "handler": "work"}}
		}},
		"GET " + jobs: {who: readers, status: 200, path: at("/jobs")},
		"POST " + jobs: {who: authors, status: 201, changes: "job.create", path: at("/jobs"), body: func(w *world) any {
			return map[string]any{"name": w.fresh(), "app": "app", "handler": "work"}
		}},
		"GET " + jobs + "/{id}": {who: readers, status: 200, path: ofJob("")},
		"PUT " + jobs + "/{id}": {who: authors, status: 200, changes: "job.update", path: ofJob(""), body: func(w *world) any {
			return map[string]any{"name": "steady", "app": "app", "handler": "work", "description": w.fresh(), "version": w.ns.JobView(w.job).Version}
		}},
		"DELETE " + jobs + "/{id}": {who: authors, status: 204, changes: "job.delete", path: func(w *world) string { return w.ns.Path("/jobs/" + w.newJob()) }},
		"POST " + jobs + "/{id}/enable": {who: operators, status: 200, changes: "job.pause", path: func(w *world) string {
			return w.ns.Path("/jobs/" + w.ns.Job(axtest.Def{"name": w.fresh(), "enabled": false}) + "/enable")
		}, body: nothing},
		"POST " + jobs + "/{id}/disable": {who: operators, status: 200, changes: "job.pause", path: func(w *world) string { return w.ns.Path("/jobs/" + w.newJob() + "/disable") }, body: nothing},
		"POST " + jobs + "/{id}/backfill": {who: operators, status: 200, changes: "job.run", path: func(w *world) string {
			return w.ns.Path("/jobs/" + w.ns.Job(axtest.Def{"name": w.fresh(), "triggers": []map[string]any{{"kind": "cron", "expr": "0 * * * * ?", "dialect": "quartz", "zone": "UTC"}}}) + "/backfill")
		}, body: func(*world) any {
			return map[string]any{"from": "2024-06-01T00:00:00Z", "to": "2024-06-01T00:10:00Z"}
		}},
		"POST " + jobs + "/{id}/backfill/cancel": {who: operators, status: 200, changes: "batch.cancel", path: func(w *world) string { return w.ns.Path("/jobs/" + w.newJob() + "/backfill/cancel") }, body: nothing},
		"POST " + jobs + "/{id}/trigger":         {who: operators, status: 200, changes: "job.run", path: func(w *world) string { return w.ns.Path("/jobs/" + w.newJob() + "/trigger") }, body: nothing},
		"POST /api/v1/namespaces/{namespace}/schedule/preview": {who: readers, status: 200, path: at("/schedule/preview"), body: func(*world) any {
			return map[string]any{"triggers": []map[string]any{{"kind": "cron", "expr": "0 0 8 * * ?"}}}
		}},

		"POST " + jobs + "/{id}/delayed": {who: operators, status: 201, changes: "job.run", path: func(w *world) string { return w.ns.Path("/jobs/" + w.newJob() + "/delayed") }, body: func(*world) any {
			return map[string]any{"delay": "1h"}
		}},
		"POST " + jobs + "/{id}/delayed/bulk": {who: operators, status: 200, changes: "job.run", path: func(w *world) string { return w.ns.Path("/jobs/" + w.newJob() + "/delayed/bulk") }, body: func(*world) any {
			return []map[string]any{{"delay": "1h"}}
		}},
		"GET /api/v1/namespaces/{namespace}/tokens": {who: admins, status: 200, path: at("/tokens")},
		"POST /api/v1/namespaces/{namespace}/tokens": {who: admins, status: 201, changes: "token.create", path: at("/tokens"), body: func(w *world) any {
			return map[string]any{"name": w.fresh(), "scopes": []string{"events.send"}}
		}},
		"DELETE /api/v1/namespaces/{namespace}/tokens/{id}": {who: admins, status: 204, changes: "token.delete", path: func(w *world) string {
			var made struct {
				ID string `json:"id"`
			}
			w.s.Admin(w.t).Do(w.t, http.MethodPost, w.ns.Path("/tokens"), map[string]any{"name": w.fresh(), "scopes": []string{"events.send"}}).Into(w.t, &made)
			return w.ns.Path("/tokens/" + made.ID)
		}},
		"GET " + delayed:                     {who: readers, status: 200, path: at("/delayed")},
		"GET " + delayed + "/{batchId}":      {who: readers, status: 200, path: func(w *world) string { return w.delayed("") }},
		"POST " + delayed + "/{batchId}/run": {who: operators, status: 200, changes: "job.run", path: func(w *world) string { return w.delayed("/run") }},
		"POST " + delayed + "/{batchId}/reschedule": {who: operators, status: 200, changes: "job.run", path: func(w *world) string { return w.delayed("/reschedule") }, body: func(*world) any {
			return map[string]any{"delay": "2h"}
		}},
		"POST /api/v1/tasks/{taskId}/events": {who: operators, status: 202, changes: "event.create", path: func(w *world) string {
			return "/api/v1/tasks/" + w.ns.Job(axtest.Def{"name": w.fresh(), "triggers": []map[string]any{{"kind": "event"}}}) + "/events"
		}, body: nothing},
		"GET " + calendars:             {who: readers, status: 200, path: at("/calendars")},
		"GET " + calendars + "/{name}": {who: readers, status: 200, path: at("/calendars/steady")},
		"PUT " + calendars + "/{name}": {who: authors, status: 200, changes: "calendar.write", path: func(w *world) string { return w.ns.Path("/calendars/" + strings.ReplaceAll(w.fresh(), " ", "-")) }, body: func(*world) any {
			return map[string]any{"dates": []string{"01-01"}}
		}},
		"DELETE " + calendars + "/{name}": {who: authors, status: 204, changes: "calendar.write", path: func(w *world) string {
			name := strings.ReplaceAll(w.fresh(), " ", "-")
			w.calendar(name)
			return w.ns.Path("/calendars/" + name)
		}},
		"POST " + calendars + "/{name}/import": {who: authors, status: 200, changes: "calendar.write", path: at("/calendars/steady/import"), body: func(w *world) any {
			w.count++
			return map[string]any{"ics": fmt.Sprintf("BEGIN:VCALENDAR\r\nVERSION:2.0\r\nPRODID:x\r\nBEGIN:VEVENT\r\nUID:1\r\nDTSTAMP:20260101T000000Z\r\nDTSTART;VALUE=DATE:20260501\r\nSUMMARY:%d\r\nEND:VEVENT\r\nEND:VCALENDAR\r\n", w.count)}
		}},
		"GET " + calendars + "/{name}/days": {who: readers, status: 200, path: at("/calendars/steady/days?year=2026")},

		"GET " + secrets:                {who: readers, status: 200, path: at("/secrets")},
		"GET " + secrets + "/{name}":    {who: readers, status: 200, path: at("/secrets/steady")},
		"PUT " + secrets + "/{name}":    {who: authors, status: 200, changes: "secret.write", path: func(w *world) string { return w.ns.Path("/secrets/" + w.plain()) }, body: func(*world) any { return map[string]any{"value": "a secret value"} }},
		"DELETE " + secrets + "/{name}": {who: authors, status: 204, changes: "secret.write", path: func(w *world) string { return w.secret(w.plain()) }},

		"GET " + jobs + "/{id}/versions":           {who: readers, status: 200, path: ofJob("/versions")},
		"GET " + jobs + "/{id}/versions/{version}": {who: readers, status: 200, path: ofJob("/versions/1")},
		"POST " + jobs + "/{id}/rollback": {who: authors, status: 200, changes: "job.update", path: ofJob("/rollback"), body: func(w *world) any {
			return map[string]any{"to": 1, "version": w.ns.JobView(w.job).Version}
		}},

		"GET " + batches:                {who: readers, status: 200, path: at("/batches")},
		"GET " + batches + "/{batchId}": {who: readers, status: 200, path: func(w *world) string { return w.ns.Path("/batches/" + w.batch) }},
		"POST " + batches + "/{batchId}/cancel": {who: operators, status: 202, changes: "batch.cancel", path: func(w *world) string {
			id := w.ns.Trigger(w.ns.Job(axtest.Def{"name": w.fresh(), "handler": "long"}))
			return w.ns.Path("/batches/" + id + "/cancel")
		}},
		"POST " + batches + "/{batchId}/retry": {who: operators, status: 202, changes: "batch.retry", path: func(w *world) string {
			id := w.ns.Trigger(w.ns.Job(axtest.Def{"name": w.fresh(), "handler": "fail", "retry": map[string]any{"max": 0}}))
			w.ns.Ended(id)
			return w.ns.Path("/batches/" + id + "/retry")
		}},
		"GET " + executions:                           {who: readers, status: 200, path: at("/executions")},
		"GET " + executions + "/{id}":                 {who: readers, status: 200, path: func(w *world) string { return w.ns.Path("/executions/" + w.execution) }},
		"GET " + executions + "/{id}/output":          {who: logs, status: 200, path: func(w *world) string { return w.ns.Path("/executions/" + w.execution + "/output") }},
		"GET " + executions + "/{id}/output/download": {who: logs, status: 200, path: func(w *world) string { return w.ns.Path("/executions/" + w.execution + "/output/download") }},
		"GET " + executions + "/{id}/output/stream":   {who: logs, status: 200, path: func(w *world) string { return w.ns.Path("/executions/" + w.execution + "/output/stream") }},
		"GET " + executions + "/{id}/stream":          {who: logs, status: 200, path: func(w *world) string { return w.ns.Path("/executions/" + w.execution + "/stream") }},
		"POST /api/v1/namespaces/{namespace}/executors/{id}/drain": {who: keepers, status: 200, changes: "executor.pause", path: func(w *world) string { return w.ns.Path("/executors/" + w.spare.Instance() + "/drain") }, body: func(w *world) any {
			return map[string]any{"reason": w.fresh()}
		}},
		"POST /api/v1/namespaces/{namespace}/executors/{id}/undrain": {who: keepers, status: 200, changes: "executor.pause", path: func(w *world) string { return w.ns.Path("/executors/" + w.spare.Instance() + "/undrain") }},
		"GET /api/v1/namespaces/{namespace}/executors/storm":         {who: readers, status: 200, path: at("/executors/storm")},
		"POST /api/v1/namespaces/{namespace}/executors/storm/release": {who: keepers, status: 200, changes: "executor.pause", path: at("/executors/storm/release"), body: func(w *world) any {
			return map[string]any{"app": "spare", "reason": w.fresh()}
		}},
		"GET /api/v1/namespaces/{namespace}/executors": {who: readers, status: 200, path: at("/executors")},
		"GET /api/v1/namespaces/{namespace}/summary":   {who: readers, status: 200, path: at("/summary")},
	}
}

func newWorld(t *testing.T, s *axtest.Server) *world {
	t.Helper()
	w := &world{t: t, s: s, ns: s.Namespace(t)}
	w.x = w.ns.App("app").Executor(map[string]axtest.Handler{"work": axtest.Succeed, "fail": axtest.Fail, "long": axtest.UntilStopped})
	w.spare = w.ns.App("spare").Worker(axtest.Succeed)
	w.job = w.ns.Job(axtest.Def{"name": "steady"})
	w.calendar("steady")
	w.secret("steady")
	w.batch = w.ns.Trigger(w.job)
	w.execution = w.ns.Ended(w.batch).Executions[0].ID
	return w
}

// An operation that is missing in the table fails the test: its rights would go untested.
func TestEveryOperationIsInTheTable(t *testing.T) {
	t.Parallel()
	_, declared := api.New(gin.New(), api.Config{Version: "1"})
	rules := api.Rules(declared)
	for name, rule := range rules {
		op, ok := operations()[name]
		require.True(t, ok, "operation %s (%s) is not in the table", name, rule)
		switch op.who {
		case everybody:
			require.Equal(t, "public", rule, name)
		case known:
			require.Equal(t, "self", rule, name)
		case platform:
			require.True(t, strings.HasPrefix(rule, "platform "), name)
		default:
			// Where the path names no namespace the operation looks at the job's.
			require.True(t, strings.HasPrefix(rule, "namespace ") || name == "POST /api/v1/tasks/{taskId}/events" && rule == "self", name)
		}
	}
	for name := range operations() {
		require.Contains(t, rules, name, "the table has an operation that is not there")
	}
}

// T-TEN-5, T-AUD-1: every operation as everybody, and one audit entry for each change.
func TestRightsOfEveryOperation(t *testing.T) {
	t.Parallel()
	s := axtest.Start(t)
	w := newWorld(t, s)
	other := s.Namespace(t)
	out := s.User(t, "leaver", "", w.ns.Name, "admin")
	logOut(t, s, "leaver")
	people := map[string]*axtest.Client{
		"nobody":          s.Anonymous(),
		"garbled token":   s.As("abc.def.ghi"),
		"altered token":   s.As(s.Admin(t).Token[:len(s.Admin(t).Token)-6] + "AAAAAA"),
		"logged out":      out,
		"read-only":       s.User(t, "reader", "", w.ns.Name, "read-only"),
		"auditor":         s.User(t, "auditor", "", w.ns.Name, "auditor"),
		"developer":       s.User(t, "developer", "", w.ns.Name, "developer"),
		"operator":        s.User(t, "operator", "", w.ns.Name, "operator"),
		"namespace admin": s.User(t, "chief", "", w.ns.Name, "admin"),
		"platform admin":  s.Admin(t),
		"stranger":        s.User(t, "stranger", "", other.Name, "admin"),
	}
	unknown := []string{"nobody", "garbled token", "altered token", "logged out"}
	for name, op := range operations() {
		t.Run(name, func(t *testing.T) {
			method, pattern, _ := strings.Cut(name, " ")
			inNamespace := strings.Contains(pattern, "{namespace}") || strings.Contains(pattern, "{taskId}")
			for who, client := range people {
				want := http.StatusForbidden
				switch {
				case op.who == everybody:
					want = op.status
				case slices.Contains(unknown, who):
					want = http.StatusUnauthorized
				case op.who == known, slices.Contains(strings.Split(op.who, ", "), who):
					want = op.status
				case who == "stranger" && inNamespace && op.who != platform:
					want = http.StatusNotFound
				}
				var body any
				if op.body != nil {
					body = op.body(w)
				}
				a := client.Do(t, method, op.path(w), body)
				require.Equal(t, want, a.Status, "%s: %s", who, a.Text())
				if a.Status >= 400 {
					p := a.Problem(t)
					require.Equal(t, a.Header.Get("X-Request-Id"), p.RequestID, who)
					require.NotEmpty(t, p.Code, who)
				}
				entries, denied := 0, 0
				for _, e := range s.Audit(t, "") {
					if e.RequestID != a.Header.Get("X-Request-Id") {
						continue
					}
					if e.Outcome == "denied" {
						denied++
						require.Contains(t, []int{http.StatusForbidden, http.StatusNotFound}, a.Status, who)
						require.Equal(t, "operation", e.Object.Type, who)
						continue
					}
					entries++
					require.Equal(t, op.changes, e.Action, who)
				}
				require.LessOrEqual(t, denied, 1, "%s: an attempt has at most one entry", who)
				switch {
				case op.changes == "login.success": // told of the session, which has no request
				case op.changes != "" && want == op.status:
					require.Equal(t, 1, entries, "%s: a change has one entry", who)
				default:
					require.Zero(t, entries, "%s: what changed nothing is no change in the trail", who)
				}
			}
		})
	}
}

func logOut(t *testing.T, s *axtest.Server, name string) {
	t.Helper()
	a := s.Anonymous().Do(t, http.MethodPost, "/api/v1/auth/login", map[string]any{"username": name, "password": axtest.Password})
	require.Equal(t, http.StatusOK, a.Status)
	cookie, _, _ := strings.Cut(a.Header.Get("Set-Cookie"), ";")
	req, err := http.NewRequestWithContext(context.Background(), http.MethodPost, s.URL()+"/api/v1/auth/logout", nil)
	require.NoError(t, err)
	req.Header.Set("Cookie", cookie)
	res, err := http.DefaultClient.Do(req)
	require.NoError(t, err)
	require.NoError(t, res.Body.Close())
	require.Equal(t, http.StatusNoContent, res.StatusCode)
	// The rights of a second ago are gone within two.
	axtest.WaitFor(t, "the log-out is known", func() bool {
		return s.As(tokenOf(t, a)).Do(t, http.MethodGet, "/api/v1/me", nil).Status == http.StatusUnauthorized
	})
}

func tokenOf(t *testing.T, a axtest.Answer) string {
	t.Helper()
	var out struct{ AccessToken string }
	a.Into(t, &out)
	return out.AccessToken
}

// C388, T-TEN-2: an id of another namespace is answered like one that does not exist.
func TestIdsOfAnotherNamespaceAreNotThere(t *testing.T) {
	t.Parallel()
	s := axtest.Start(t)
	mine, theirs := newWorld(t, s), newWorld(t, s)
	me := s.User(t, "me", "", mine.ns.Name, "admin")
	running := theirs.ns.Trigger(theirs.ns.Job(axtest.Def{"name": "long", "handler": "long"}))
	theirs.ns.Reaches(running, "RUNNING")
	before := theirs.ns.JobView(theirs.job)
	for name, op := range operations() {
		method, pattern, _ := strings.Cut(name, " ")
		foreign, none := theirs.job, "999999999"
		switch {
		case strings.Contains(pattern, "/executions/{id}"):
			foreign, none = theirs.execution, "4503599627370496"
		case strings.Contains(pattern, "{batchId}"):
			foreign, none = running, "99999-20261201080000"
		case strings.HasSuffix(pattern, "/keys/{id}"):
			var keys struct{ Items []struct{ ID string } }
			s.Admin(t).Get(t, theirs.ns.Path("/apps/app/keys"), &keys)
			foreign = keys.Items[0].ID
		case strings.HasSuffix(pattern, "/tokens/{id}"):
			var made struct {
				ID string `json:"id"`
			}
			s.Admin(t).Do(t, http.MethodPost, theirs.ns.Path("/tokens"), map[string]any{"name": theirs.fresh(), "scopes": []string{"events.send"}}).Into(t, &made)
			foreign = made.ID
		case !strings.Contains(pattern, "{id}"), strings.HasPrefix(pattern, "/api/v1/users/"): // people are of no namespace
			continue
		}
		var body any
		if op.body != nil {
			body = op.body(mine)
		}
		ask := func(id string) string {
			path := strings.NewReplacer("{namespace}", mine.ns.Name, "{id}", id, "{batchId}", id, "{version}", "1", "{app}", "app").Replace(pattern)
			a := me.Do(t, method, path, body)
			require.Equal(t, http.StatusNotFound, a.Status, "%s %s: %s", method, path, a.Text())
			return strings.ReplaceAll(a.Text(), a.Header.Get("X-Request-Id"), "")
		}
		require.Equal(t, ask(none), ask(foreign), name)
		// In their namespace I am nobody.
		path := strings.NewReplacer("{namespace}", theirs.ns.Name, "{id}", foreign, "{batchId}", foreign, "{version}", "1", "{app}", "app").Replace(pattern)
		require.Equal(t, http.StatusNotFound, me.Do(t, method, path, body).Status, name)
	}
	require.Equal(t, before, theirs.ns.JobView(theirs.job))
	require.Equal(t, "RUNNING", theirs.ns.Batch(running).State)
	a := me.Do(t, http.MethodGet, mine.ns.Path("/batches?job="+theirs.job), nil)
	require.Equal(t, http.StatusOK, a.Status)
	require.NotContains(t, a.Text(), running)
	a = me.Do(t, http.MethodGet, "/api/v1/audit?namespace="+theirs.ns.Name, nil)
	require.Equal(t, http.StatusNotFound, a.Status, a.Text())
}

// A token of a program does what it was made for, in its namespace, until it is revoked or over, and
// nothing else anywhere.
func TestATokenSendsEventsAndNothingElse(t *testing.T) {
	t.Parallel()
	s := axtest.Start(t)
	w, other := newWorld(t, s), newWorld(t, s)
	event := axtest.Def{"name": "event", "triggers": []map[string]any{{"kind": "event"}}}
	mine, theirs := w.ns.Job(event), other.ns.Job(event)
	var made struct {
		ID    string `json:"id"`
		Token string `json:"token"`
	}
	s.Admin(t).Do(t, http.MethodPost, w.ns.Path("/tokens"), map[string]any{"name": "shop", "scopes": []string{"events.send"}}).Into(t, &made)
	program := s.As(made.Token)
	send := func(c *axtest.Client, job string) int {
		return c.Do(t, http.MethodPost, "/api/v1/tasks/"+job+"/events", map[string]any{}).Status
	}
	require.Equal(t, http.StatusAccepted, send(program, mine))
	require.Equal(t, http.StatusNotFound, send(program, theirs))
	slip := made.Token[:len(made.Token)-1] + "0"
	if slip == made.Token {
		slip = made.Token[:len(made.Token)-1] + "1"
	}
	require.Equal(t, http.StatusUnauthorized, send(s.As(slip), mine))
	for name, op := range operations() {
		if name == "POST /api/v1/tasks/{taskId}/events" || op.who == everybody {
			continue
		}
		method, _, _ := strings.Cut(name, " ")
		var body any
		if op.body != nil {
			body = op.body(w)
		}
		require.Equal(t, http.StatusForbidden, program.Do(t, method, op.path(w), body).Status, name)
	}
	found := false
	for _, e := range s.Audit(t, "") {
		require.NotContains(t, fmt.Sprint(e), made.Token)
		found = found || e.Action == "event.create" && e.Actor.Name == "shop"
	}
	require.True(t, found, "the trail names it")
	raw, err := s.Store().Tokens(t.Context(), 0)
	require.NoError(t, err)
	require.NotContains(t, fmt.Sprint(raw), made.Token)
	require.Equal(t, http.StatusNoContent, s.Admin(t).Do(t, http.MethodDelete, w.ns.Path("/tokens/"+made.ID), nil).Status)
	require.Equal(t, http.StatusUnauthorized, send(program, mine), "it is revoked")
	for _, bad := range []map[string]any{{"name": "", "scopes": []string{"events.send"}}, {"name": "x", "scopes": []string{"everything"}}, {"name": "x", "scopes": []string{}}, {"name": "x", "scopes": []string{"events.send"}, "life": "9000h"}, {"name": "x", "scopes": []string{"events.send"}, "life": "-1h"}} {
		require.Equal(t, http.StatusUnprocessableEntity, s.Admin(t).Do(t, http.MethodPost, w.ns.Path("/tokens"), bad).Status, "%v", bad)
	}
}

// Fields that nobody declared are refused and named, in every body.
func TestUnknownFieldsAreRefused(t *testing.T) {
	t.Parallel()
	s := axtest.Start(t)
	w := newWorld(t, s)
	for name, op := range operations() {
		// An event is whatever its sender writes, and tasks of a bulk call are a list.
		if op.body == nil || strings.HasSuffix(name, "/events") || strings.HasSuffix(name, "/bulk") {
			continue
		}
		raw, err := json.Marshal(op.body(w))
		require.NoError(t, err)
		var body map[string]any
		require.NoError(t, json.Unmarshal(raw, &body))
		body["surprise"] = 1
		method, _, _ := strings.Cut(name, " ")
		a := s.Admin(t).Do(t, method, op.path(w), body)
		require.Equal(t, http.StatusUnprocessableEntity, a.Status, "%s: %s", name, a.Text())
		p := a.Problem(t)
		require.Len(t, p.Errors, 1, name)
		require.Equal(t, "unknown_field", p.Errors[0].Code, name)
		require.Equal(t, "surprise", p.Errors[0].Field, name)
	}
	a := s.Admin(t).Do(t, http.MethodGet, w.ns.Path("/jobs?surprise=1"), nil)
	require.Equal(t, http.StatusUnprocessableEntity, a.Status, a.Text())
	for _, field := range []string{"id", "createdAt", "updatedBy", "nsId", "bucket"} {
		a := s.Admin(t).Do(t, http.MethodPost, w.ns.Path("/jobs"), map[string]any{"name": "mass", "app": "app", "handler": "work", field: "1"})
		require.Equal(t, http.StatusUnprocessableEntity, a.Status, "%s: %s", field, a.Text())
	}
	for _, raw := range []string{`{"name":`, `[]`, `{"name":1,"app":"app","handler":"work"}`, "\xff\xfe"} {
		a := s.Admin(t).Do(t, http.MethodPost, w.ns.Path("/jobs"), []byte(raw))
		require.Contains(t, []int{http.StatusBadRequest, http.StatusUnprocessableEntity}, a.Status, raw)
		require.NotEmpty(t, a.Problem(t).Code)
	}
	a = s.Admin(t).Do(t, http.MethodPost, w.ns.Path("/jobs"), []byte(`{"name":"`+strings.Repeat("x", 2<<20)+`"}`))
	require.Equal(t, http.StatusRequestEntityTooLarge, a.Status)
}

// C401: a refusal has the same code in every language, and quotes what was written unchanged.
func TestProblemsSpeakTheCallersLanguage(t *testing.T) {
	t.Parallel()
	s := axtest.Start(t)
	w := newWorld(t, s)
	problems := map[string]axtest.Problem{}
	for _, language := range []string{"zh-CN,zh;q=0.9", "en", "fr", ""} {
		c := *s.Admin(t)
		c.Language = language
		a := c.Do(t, http.MethodPost, w.ns.Path("/jobs"), map[string]any{"name": "bad", "app": "app", "handler": "work", "triggers": []map[string]any{{"kind": "cron", "expr": "0 0 25 * * ?"}}})
		require.Equal(t, http.StatusUnprocessableEntity, a.Status, a.Text())
		problems[language] = a.Problem(t)
	}
	zh, en := problems["zh-CN,zh;q=0.9"], problems["en"]
	require.NotEqual(t, en.Detail, zh.Detail)
	require.Equal(t, en.Detail, problems["fr"].Detail)
	require.Equal(t, en.Detail, problems[""].Detail)
	for _, p := range problems {
		require.Equal(t, "invalid", p.Code)
		require.Len(t, p.Errors, 1)
		require.Equal(t, en.Errors[0].Code, p.Errors[0].Code)
		require.Contains(t, p.Errors[0].Field, "triggers[0].expr")
		require.Equal(t, "25", p.Errors[0].Token)
		require.NotEmpty(t, p.Errors[0].Message.ZH)
		require.NotEqual(t, p.Errors[0].Message.EN, p.Errors[0].Message.ZH)
	}
}

// An edit says which version it read; one that read an old one changes nothing.
func TestAStaleVersionIsAConflict(t *testing.T) {
	t.Parallel()
	s := axtest.Start(t)
	w := newWorld(t, s)
	id := w.newJob()
	v := w.ns.JobView(id).Version
	edit := func(version int64, description string) axtest.Answer {
		return s.Admin(t).Do(t, http.MethodPut, w.ns.Path("/jobs/"+id), map[string]any{"name": "edited", "app": "app", "handler": "work", "description": description, "version": version})
	}
	require.Equal(t, http.StatusOK, edit(v, "first").Status)
	a := edit(v, "second")
	require.Equal(t, http.StatusConflict, a.Status)
	require.Equal(t, "stale_version", a.Problem(t).Code)
	require.Equal(t, "first", w.ns.JobView(id).Description)
	for _, ask := range []struct{ method, path string }{{http.MethodPost, "/disable"}, {http.MethodPost, "/enable"}} {
		a := s.Admin(t).Do(t, ask.method, w.ns.Path("/jobs/"+id+ask.path), map[string]any{"version": v})
		require.Equal(t, http.StatusConflict, a.Status, ask.path)
	}
	a = s.Admin(t).Do(t, http.MethodDelete, w.ns.Path(fmt.Sprintf("/jobs/%s?version=%d", id, v)), nil)
	require.Equal(t, http.StatusConflict, a.Status)
	a = s.Admin(t).Do(t, http.MethodDelete, w.ns.Path(fmt.Sprintf("/jobs/%s?version=%d", id, v+1)), nil)
	require.Equal(t, http.StatusNoContent, a.Status, a.Text())
}

// C389: what somebody wrote comes back as text, whatever it looks like.
func TestMarkupIsText(t *testing.T) {
	t.Parallel()
	const markup = `<script>alert("1")</script><img src=x onerror=alert(1)>`
	s := axtest.Start(t)
	w := newWorld(t, s)
	id := w.ns.Job(axtest.Def{"name": markup, "description": markup, "params": markup})
	for _, path := range []string{"/jobs/" + id, "/jobs", "/jobs?q=%3Cscript%3E"} {
		a := s.Admin(t).Do(t, http.MethodGet, w.ns.Path(path), nil)
		require.Equal(t, http.StatusOK, a.Status)
		require.Equal(t, "application/json", a.Header.Get("Content-Type"), path)
		require.Equal(t, "nosniff", a.Header.Get("X-Content-Type-Options"), path)
		require.Contains(t, a.Text(), "alert", path)
	}
	v := w.ns.JobView(id)
	require.Equal(t, markup, v.Name)
	require.Equal(t, markup, v.Description)
	require.Equal(t, markup, v.Params)
	found := false
	for _, e := range s.Audit(t, "namespace="+w.ns.Name+"&action=job.create") {
		found = found || e.Object.Name == markup
	}
	require.True(t, found, "the trail has it unchanged")
	// A refusal quotes it as data too.
	a := s.Admin(t).Do(t, http.MethodPost, w.ns.Path("/apps"), map[string]any{"name": markup})
	require.Equal(t, http.StatusUnprocessableEntity, a.Status)
	require.Equal(t, markup[:20], a.Problem(t).Errors[0].Token[:20])
}

// C394: no answer gives a key away.
func TestKeysAreShownOnce(t *testing.T) {
	t.Parallel()
	s := axtest.Start(t)
	w := newWorld(t, s)
	app := w.ns.App("secretive")
	require.True(t, strings.HasPrefix(app.Key, "axk_"))
	for name, op := range operations() {
		if method, _, _ := strings.Cut(name, " "); method == http.MethodGet {
			require.NotContains(t, s.Admin(t).Do(t, method, op.path(w), nil).Text(), app.Key[4:], name)
		}
	}
	for _, e := range s.Audit(t, "") {
		require.NotContains(t, string(e.After)+string(e.Before), app.Key[4:])
		require.NotContains(t, string(e.After)+string(e.Before), axtest.Password)
	}
	require.NotContains(t, s.Log(), app.Key[4:])
	require.NotContains(t, s.Log(), axtest.Password)
}
