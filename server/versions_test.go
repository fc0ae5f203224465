package main

import (
	"net/http"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/ax-scheduler/ax/server/axtest"
)

type versionList struct {
	Items []struct {
		Version         int64
		Author, Comment string
	}
	NextCursor string
}

type oneVersion struct {
	Version, Against int64
	Comment          string
	Definition       map[string]any
	Changes          []struct {
		Op, Path string
		From     any `json:"from"`
		Value    any `json:"value"`
	}
}

// M10: every save is a version with its author and why; any two can be compared, and an earlier one brought back.
func TestVersions(t *testing.T) {
	axtest.Both(t, func(t *testing.T, o ...axtest.Option) {
		s := axtest.Start(t, o...)
		ns := s.Namespace(t)
		x := ns.App("app").Worker(axtest.Succeed)
		a := ns.Client.Do(t, http.MethodPut, ns.Path("/calendars/holidays"), map[string]any{"dates": []string{"01-01"}})
		require.Equal(t, http.StatusOK, a.Status, a.Text())
		first := axtest.Def{
			"name": "报表", "handler": "work", "params": `{"day":1}`, "comment": "the beginning", "timeout": "1m30s", "enabled": true,
			"triggers": []map[string]any{{"kind": "cron", "expr": "0 0 3 * * ?", "zone": "Asia/Shanghai", "calendars": []string{"holidays"}, "jitter": "5m"}, {"kind": "fixedRate", "every": "1h"}},
			"retry":    map[string]any{"max": 2, "rules": []map[string]any{{"codes": []string{"busy"}, "do": "now"}}}, "routing": map[string]any{"strategy": "shardingBroadcast", "perExecutor": 2},
		}
		id := ns.Job(first)
		path := func(rest string) string { return ns.Path("/jobs/" + id + rest) }
		ran := ns.Trigger(id)
		ns.Ended(ran)
		second := map[string]any{"name": "report", "app": "app", "handler": "work", "params": `{"day":2}`, "version": 1, "comment": "simpler", "triggers": []map[string]any{{"no": 1, "kind": "cron", "expr": "0 0 4 * * ?", "zone": "Asia/Shanghai"}}}
		a = ns.Client.Do(t, http.MethodPut, path(""), second)
		require.Equal(t, http.StatusOK, a.Status, a.Text())

		var list versionList
		ns.Client.Get(t, path("/versions"), &list)
		require.Len(t, list.Items, 2)
		require.Equal(t, []string{"simpler", "the beginning"}, []string{list.Items[0].Comment, list.Items[1].Comment})
		require.Equal(t, "admin", list.Items[0].Author)
		ns.Client.Get(t, path("/versions?limit=1"), &list)
		require.Equal(t, "2", list.NextCursor)
		ns.Client.Get(t, path("/versions?limit=1&before=2"), &list)
		require.Equal(t, int64(1), list.Items[0].Version)
		require.Empty(t, list.NextCursor)

		version := func(query string) (v oneVersion) {
			t.Helper()
			ns.Client.Get(t, path("/versions/"+query), &v)
			return v
		}
		v := version("2")
		require.Equal(t, int64(1), v.Against)
		changed := map[string]string{}
		for _, c := range v.Changes {
			changed[c.Path] = c.Op
		}
		require.Equal(t, "replace", changed["/name"])
		require.Equal(t, "replace", changed["/params"])
		require.Contains(t, changed, "/triggers")
		require.NotContains(t, changed, "/handler")
		require.Empty(t, version("2?against=2").Changes)
		require.Equal(t, int64(2), version("1?against=2").Against)
		require.Empty(t, version("1").Changes, "nothing was before")
		require.Equal(t, http.StatusNotFound, ns.Client.Do(t, http.MethodGet, path("/versions/3"), nil).Status)
		require.Equal(t, "against", ns.Client.Do(t, http.MethodGet, path("/versions/2?against=9"), nil).Problem(t).Errors[0].Field)

		// Back: a new version that says what the first one said, and is pinned to like any other.
		require.Equal(t, "stale_version", ns.Client.Do(t, http.MethodPost, path("/rollback"), map[string]any{"to": 1, "version": 1}).Problem(t).Code)
		require.Equal(t, "to", ns.Client.Do(t, http.MethodPost, path("/rollback"), map[string]any{"to": 7, "version": 2}).Problem(t).Errors[0].Field)
		a = ns.Client.Do(t, http.MethodPost, path("/rollback"), map[string]any{"to": 1, "version": 2})
		require.Equal(t, http.StatusOK, a.Status, a.Text())
		back := version("3?against=1")
		require.Empty(t, back.Changes, "it is the same in everything")
		require.Equal(t, "version 1 again", back.Comment)
		require.True(t, ns.JobView(id).Enabled)
		entry := s.Audit(t, "namespace="+ns.Name+"&action=job.update")[0]
		require.Contains(t, string(entry.After), "报表")
		again := ns.Trigger(id)
		ns.Ended(again)
		var seen []string
		for _, d := range x.Starts() {
			seen = append(seen, d.Run.Params)
		}
		require.NotContains(t, seen, `{"day":2}`)

		// What it names must still be there.
		a = ns.Client.Do(t, http.MethodPost, path("/rollback"), map[string]any{"to": 2, "version": 3})
		require.Equal(t, http.StatusOK, a.Status, a.Text())
		require.Equal(t, http.StatusNoContent, ns.Client.Do(t, http.MethodDelete, ns.Path("/calendars/holidays"), nil).Status)
		p := ns.Client.Do(t, http.MethodPost, path("/rollback"), map[string]any{"to": 1, "version": 4}).Problem(t)
		require.Equal(t, http.StatusUnprocessableEntity, p.Status)
		require.Contains(t, p.Errors[0].Field, "triggers[0].calendars")
		require.Equal(t, int64(4), ns.JobView(id).Version, "nothing was changed")
	})
}
