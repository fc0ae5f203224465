package main

import (
	"encoding/csv"
	"encoding/json"
	"net/http"
	"net/url"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/ax-scheduler/ax/server/axtest"
)

// AUD-7: the trail can be narrowed by what a reviewer asks for, and taken away in three formats; that is in the trail too.
func TestTheAuditTrailIsReviewed(t *testing.T) {
	axtest.Both(t, func(t *testing.T, o ...axtest.Option) {
		s := axtest.Start(t, o...)
		ns, other := s.Namespace(t), s.Namespace(t)
		ns.App("app")
		other.App("app")
		id := ns.Job(axtest.Def{"name": "=HYPERLINK(1)"})
		other.Job(axtest.Def{"name": "theirs"})
		reviewer := s.User(t, "reviewer", "", ns.Name, "auditor")
		entries := s.Audit(t, "namespace="+ns.Name+"&action=job.create")
		require.Len(t, entries, 1)
		one := entries[0]
		for query, want := range map[string]int{
			"requestId=" + one.RequestID:             1,
			"outcome=success&action=job.create":      1,
			"outcome=failure&action=job.create":      0,
			"ip=127.0.0.1&action=job.create":         1,
			"ip=203.0.113.1":                         0,
			"requestId=" + url.QueryEscape("没有"):     0,
			"object=" + id + "&action=job.create":    1,
			"actor=admin&requestId=" + one.RequestID: 1,
		} {
			var page struct{ Items []json.RawMessage }
			reviewer.Get(t, "/api/v1/audit?namespace="+ns.Name+"&"+query, &page)
			require.Len(t, page.Items, want, query)
		}
		export := func(c *axtest.Client, path string) axtest.Answer {
			t.Helper()
			return c.Do(t, http.MethodGet, path, nil)
		}
		require.Equal(t, http.StatusForbidden, export(reviewer, "/api/v1/audit/export").Status)
		require.Equal(t, http.StatusNotFound, export(reviewer, other.Path("/audit/export")).Status)
		lines := export(reviewer, ns.Path("/audit/export"))
		require.Equal(t, http.StatusOK, lines.Status)
		n := 0
		for line := range strings.Lines(lines.Text()) {
			var v struct{ Namespace string }
			require.NoError(t, json.Unmarshal([]byte(line), &v), line)
			require.Equal(t, ns.Name, v.Namespace)
			n++
		}
		require.Greater(t, n, 2)
		require.NotContains(t, lines.Text(), "theirs")
		table, err := csv.NewReader(strings.NewReader(export(reviewer, ns.Path("/audit/export?format=csv&action=job.create")).Text())).ReadAll()
		require.NoError(t, err)
		require.Len(t, table, 2)
		require.Equal(t, "'=HYPERLINK(1)", table[1][10], "no formula for whoever opens it")
		log := export(reviewer, ns.Path("/audit/export?format=syslog&action=job.create")).Text()
		require.True(t, strings.HasPrefix(log, "<110>1 20"), log)
		require.Equal(t, 1, strings.Count(log, "\n"))
		require.Equal(t, http.StatusUnprocessableEntity, export(reviewer, ns.Path("/audit/export?format=xml")).Status)
		all := export(s.Admin(t), "/api/v1/audit/export").Text()
		require.Contains(t, all, "theirs")
		require.Len(t, s.Audit(t, "namespace="+ns.Name+"&action=audit.export"), 3)
	})
}

// AUD-1: who asks for what is not theirs has an entry, also when it is another's namespace. Of very many in a minute the rest is
// counted: nobody fills the trail.
func TestDeniedAttemptsAreInTheTrail(t *testing.T) {
	axtest.Both(t, func(t *testing.T, o ...axtest.Option) {
		s := axtest.Start(t, o...)
		ns, other := s.Namespace(t), s.Namespace(t)
		ns.App("app")
		job := ns.Job(axtest.Def{})
		reader, stranger := s.User(t, "reader", "", ns.Name, "read-only"), s.User(t, "stranger", "", other.Name, "admin")
		a := reader.Do(t, http.MethodDelete, ns.Path("/jobs/"+job), nil)
		require.Equal(t, http.StatusForbidden, a.Status)
		b := stranger.Do(t, http.MethodGet, ns.Path("/jobs"), nil)
		require.Equal(t, http.StatusNotFound, b.Status)
		c := reader.Do(t, http.MethodPost, "/api/v1/users", map[string]any{})
		require.Equal(t, http.StatusForbidden, c.Status)
		want := map[string]string{a.Header.Get("X-Request-Id"): "reader job.delete deleteJob " + ns.Name, b.Header.Get("X-Request-Id"): "stranger job.read listJobs " + ns.Name, c.Header.Get("X-Request-Id"): "reader user.create createUser "}
		got := map[string]string{}
		for _, e := range s.Audit(t, "outcome=denied") {
			got[e.RequestID] = strings.Join([]string{e.Actor.Name, e.Action, e.Object.ID, e.Namespace}, " ")
		}
		require.Equal(t, want, got)
		const more = 200
		for range more {
			require.Equal(t, http.StatusForbidden, reader.Do(t, http.MethodDelete, ns.Path("/jobs/"+job), nil).Status)
		}
		s.Restart() // what was only counted is told at the end
		entries, counted := 0, 0
		for _, e := range s.Audit(t, "outcome=denied") {
			var v struct{ Count int }
			if len(e.After) > 0 {
				require.NoError(t, json.Unmarshal(e.After, &v))
			}
			if counted += v.Count; v.Count == 0 {
				entries++
			}
		}
		require.Equal(t, more+3, entries+counted)
		require.Positive(t, counted)
		require.LessOrEqual(t, entries, 2*60, "at most sixty a minute, and the minute may have turned")
	})
}
