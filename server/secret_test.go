package main

import (
	"bytes"
	"context"
	"encoding/base64"
	"encoding/json"
	"io/fs"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/ax-scheduler/ax/internal/storetest"
	"github.com/ax-scheduler/ax/server/axtest"
)

type secretView struct {
	Name, Description, UpdatedBy string
	Version                      int64
	Jobs                         int
}

func writeSecret(t *testing.T, ns *axtest.Namespace, name, value string, version int64) secretView {
	t.Helper()
	a := ns.Client.Do(t, http.MethodPut, ns.Path("/secrets/"+name), map[string]any{"value": value, "version": version, "description": "of tests"})
	require.Equal(t, http.StatusOK, a.Status, a.Text())
	require.NotContains(t, a.Text(), value)
	var v secretView
	a.Into(t, &v)
	return v
}

// teller is an executor whose handler says the parameter "password" in every way that it can.
func teller(app *axtest.App) (x *axtest.Executor, given func(i int) string) {
	password := func(run axtest.Run) string {
		var p struct{ Password string }
		_ = json.Unmarshal([]byte(run.Params), &p)
		return p.Password
	}
	x = app.Offline(map[string]axtest.Handler{"work": func(_ context.Context, run axtest.Run) axtest.Result {
		value := password(run)
		result, _ := json.Marshal(map[string]string{"used": value})
		text := string(result)
		return axtest.Result{Message: "signed in with " + value, Result: &text}
	}})
	x.Open()
	x.Online()
	return x, func(i int) string { return password(x.Starts()[i].Run) }
}

// SEC-1, SEC-4, SEC-5, T-SEC-1: a secret reaches the handler of the job that names it and nobody else: not the API, the
// database, the log, the metrics, the audit trail, or the output and results of its runs, not even after it was changed.
func TestSecrets(t *testing.T) {
	axtest.Both(t, func(t *testing.T, o ...axtest.Option) {
		s := axtest.Start(t, append(o, axtest.Set("log-level", "debug"))...)
		ns, other := s.Namespace(t), s.Namespace(t)
		x, given := teller(ns.App("app"))
		const first, second = "flamingo\"one\" /密码+", "flamingo-two-9f3e"
		refused := func(method, path string, body any, status int, word string) {
			t.Helper()
			a := ns.Client.Do(t, method, ns.Path(path), body)
			require.Equal(t, status, a.Status, a.Text())
			require.Contains(t, a.Text(), word)
			require.NotContains(t, a.Text(), "flamingo")
		}
		v := writeSecret(t, ns, "db", first, 0)
		require.EqualValues(t, 1, v.Version)
		refused(http.MethodPut, "/secrets/db", map[string]any{"value": second}, http.StatusConflict, "exists")
		refused(http.MethodPut, "/secrets/db", map[string]any{"value": second, "version": 7}, http.StatusConflict, "stale_version")
		refused(http.MethodPut, "/secrets/short", map[string]any{"value": "12345"}, http.StatusUnprocessableEntity, "out_of_range")
		refused(http.MethodPut, "/secrets/slip", map[string]any{"value": "abcdefg\n"}, http.StatusUnprocessableEntity, "blank_at_end")
		refused(http.MethodPut, "/secrets/No", map[string]any{"value": "abcdefg"}, http.StatusUnprocessableEntity, "bad_name")
		for params, code := range map[string]string{`{"p":"${secret:gone}"}`: "unknown_secret", `${secret:}`: "bad_secret"} {
			refused(http.MethodPost, "/jobs", axtest.Def{"name": "x", "app": "app", "handler": "work", "params": params}, http.StatusUnprocessableEntity, code)
		}
		job := ns.Job(axtest.Def{"name": "uses", "params": `{"password":"${secret:db}","for":"${other}"}`})
		refused(http.MethodDelete, "/secrets/db", nil, http.StatusConflict, "uses ("+job+")")

		// Whoever may run a job gets no other secret by it than its own parameters name.
		writeSecret(t, ns, "more", "flamingo-not-of-the-job", 0)
		refused(http.MethodPost, "/jobs/"+job+"/trigger", map[string]any{"params": `{"password":"${secret:more}"}`}, http.StatusUnprocessableEntity, "secret_not_of_job")

		b := ns.Ended(ns.Trigger(job))
		require.Equal(t, "SUCCEEDED", b.State)
		require.Equal(t, first, given(0), "the handler has it")
		require.Equal(t, "signed in with ******", b.Executions[0].Message)
		require.JSONEq(t, `{"used":"******"}`, *b.Executions[0].Result)
		run := x.Starts()[0].Run
		x.Write(run, 1, "plain "+first+"\naddress ?p="+url.QueryEscape(first)+"\nheader "+base64.StdEncoding.EncodeToString([]byte(first))+"\n")
		require.Equal(t, "plain ******\naddress ?p=******\nheader ******\n", ns.Output(run.ExecutionID))

		// Another value: new runs get it, and what earlier ones were given stays hidden.
		require.EqualValues(t, 2, writeSecret(t, ns, "db", second, 1).Version)
		require.Equal(t, "SUCCEEDED", ns.Ended(ns.Trigger(job)).State)
		require.Equal(t, second, given(1))
		x.Write(run, 2, "late "+first+" "+second+"\n")
		require.Contains(t, ns.Output(run.ExecutionID), "late ****** ******\n")

		// A delayed task's payload comes from outside: what looks like a reference there is text.
		a := ns.Client.Do(t, http.MethodPost, ns.Path("/jobs/"+job+"/delayed"), map[string]any{"delay": "1ms", "payload": map[string]any{"x": "${secret:db}"}})
		require.Equal(t, http.StatusCreated, a.Status, a.Text())
		axtest.WaitFor(t, "it has run", func() bool { return len(x.Starts()) == 3 && x.TookAll() })
		last := x.Deliveries()[2]
		require.Contains(t, last.Raw, "${secret:db}", "the payload is as it came")

		require.Equal(t, http.StatusNotFound, other.Client.Do(t, http.MethodGet, other.Path("/secrets/db"), nil).Status)
		var list struct{ Items []secretView }
		ns.Client.Get(t, ns.Path("/secrets"), &list)
		require.Equal(t, []string{"db", "more"}, []string{list.Items[0].Name, list.Items[1].Name})
		require.Equal(t, []int{1, 0}, []int{list.Items[0].Jobs, list.Items[1].Jobs})

		// Nowhere else is a word of them.
		trail := s.Admin(t).Do(t, http.MethodGet, "/api/v1/audit/export?format=jsonl&namespace="+ns.Name, nil)
		require.Equal(t, http.StatusOK, trail.Status)
		require.Contains(t, trail.Text(), "secret.write")
		for what, text := range map[string]string{
			"the audit trail": trail.Text(), "the log": s.Log(), "the metrics": s.Admin(t).Do(t, http.MethodGet, "/metrics", nil).Text(),
			"the job": ns.Client.Do(t, http.MethodGet, ns.Path("/jobs/"+job), nil).Text(), "its versions": ns.Client.Do(t, http.MethodGet, ns.Path("/jobs/"+job+"/versions/1"), nil).Text(),
			"the run": ns.Client.Do(t, http.MethodGet, ns.Path("/batches/"+b.BatchID), nil).Text(),
		} {
			require.NotContains(t, text, "flamingo", what)
		}
		c := s.Config()
		if c.Database != "" {
			return
		}
		s.Stop()
		require.NoError(t, filepath.WalkDir(c.Data, func(path string, d fs.DirEntry, err error) error {
			if err != nil || d.IsDir() {
				return err
			}
			raw, err := os.ReadFile(path)
			require.NoError(t, err)
			require.False(t, bytes.Contains(raw, []byte("flamingo")), "%s has it", path)
			return nil
		}))
	})
}

// T-SEC-2: a sealed value that was changed, or copied from another namespace, opens nowhere: the run is rejected and says
// why, and is not tried again.
func TestASecretThatDoesNotOpen(t *testing.T) {
	axtest.Both(t, func(t *testing.T, o ...axtest.Option) {
		s := axtest.Start(t, o...)
		ns, other := s.Namespace(t), s.Namespace(t)
		x := ns.App("app").Worker(axtest.Succeed)
		writeSecret(t, ns, "db", "a value of ours", 0)
		writeSecret(t, other, "db", "a value of theirs", 0)
		job := ns.Job(axtest.Def{"params": "${secret:db}", "retry": retries(2)})
		c := s.Config()
		db := storetest.SQL(t, c.Database, c.Data)
		t.Cleanup(func() { _ = db.Close() })
		row := func(n *axtest.Namespace) int64 {
			r, err := s.Store().NamespaceByName(t.Context(), n.Name)
			require.NoError(t, err)
			return r.ID
		}
		var theirs, ours string
		require.NoError(t, db.QueryRowContext(t.Context(), "SELECT sealed FROM secret WHERE ns_id = ?", row(other)).Scan(&theirs))
		require.NoError(t, db.QueryRowContext(t.Context(), "SELECT sealed FROM secret WHERE ns_id = ?", row(ns)).Scan(&ours))
		flipped := []byte(ours)
		flipped[len(flipped)-3] ^= 1
		for _, bad := range []string{theirs, string(flipped)} {
			_, err := db.ExecContext(t.Context(), "UPDATE secret SET sealed = ? WHERE ns_id = ?", bad, row(ns))
			require.NoError(t, err)
			b := ns.Ended(ns.Trigger(job))
			require.Equal(t, "FAILED", b.State)
			require.Len(t, b.Executions, 1, "it can not heal")
			require.Equal(t, "secret_missing", b.Executions[0].Reason.Code)
		}
		require.Empty(t, x.Deliveries())
		_, err := db.ExecContext(t.Context(), "UPDATE secret SET sealed = ? WHERE ns_id = ?", ours, row(ns))
		require.NoError(t, err)
		require.Equal(t, "SUCCEEDED", ns.Ended(ns.Trigger(job)).State)
		require.Equal(t, "a value of ours", x.Starts()[0].Run.Params)
		require.Equal(t, http.StatusOK, ns.Client.Do(t, http.MethodPut, ns.Path("/jobs/"+job), axtest.Def{"name": "job", "app": "app", "handler": "work", "version": 1}).Status)
		a := ns.Client.Do(t, http.MethodDelete, ns.Path("/secrets/db?version=1"), nil)
		require.Equal(t, http.StatusNoContent, a.Status, a.Text())
		s.LedgerClean(t)
	})
}
