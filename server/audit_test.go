package main

import (
	"bytes"
	"context"
	"database/sql"
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/ax-scheduler/ax/internal/storetest"
	"github.com/ax-scheduler/ax/server/axtest"
	"github.com/ax-scheduler/ax/server/cli"
)

type trail struct {
	Intact                               bool
	Entries, Unsealed, Unsigned, Digests int64
	First                                *finding
	Findings                             []finding
}

type finding struct {
	Seq          int64
	ID           string
	Kind, Detail string
}

// verifyTrail runs ax-server audit verify.
func verifyTrail(t *testing.T, s *axtest.Server, args ...string) (code int, v trail) {
	t.Helper()
	var out, errOut bytes.Buffer
	c := s.Config()
	code = cli.Run(context.Background(), append([]string{"audit", "verify", "--json", "--data", c.Data, "--database", c.Database}, args...), strings.NewReader(""), &out, &errOut)
	require.NotEqual(t, 2, code, errOut.String())
	require.NoError(t, json.Unmarshal(out.Bytes(), &v), out.String())
	return code, v
}

// T-AUD-2: whatever is edited, deleted, inserted or swapped behind ax's back, verify names it.
func TestTheAuditTrailShowsWhatWasAltered(t *testing.T) {
	axtest.Both(t, func(t *testing.T, o ...axtest.Option) {
		s := axtest.Start(t, o...)
		ns := s.Namespace(t)
		ns.App("app")
		for i := range 8 {
			ns.Job(axtest.Def{"name": fmt.Sprint("job ", i)})
		}
		code, v := verifyTrail(t, s)
		require.Equal(t, 0, code, "%+v", v)
		axtest.WaitUpTo(t, 2*axtest.Patience, "all is sealed and signed for", func() bool {
			_, v = verifyTrail(t, s)
			return v.Intact && v.Entries > 10 && v.Unsealed == 0 && v.Digests > 0
		})
		sealed := v
		s.Stop()
		code, v = verifyTrail(t, s)
		require.Equal(t, 0, code, "%+v", v)
		require.GreaterOrEqual(t, v.Entries, sealed.Entries)
		require.Less(t, v.Unsigned, v.Entries)

		c := s.Config()
		db := storetest.SQL(t, c.Database, c.Data)
		t.Cleanup(func() { _ = db.Close() })
		// The database itself refuses.
		for _, table := range []string{"audit_log", "audit_seal", "audit_digest"} {
			_, err := db.ExecContext(t.Context(), "DELETE FROM "+table)
			require.ErrorContains(t, err, "append-only")
		}
		_, err := db.ExecContext(t.Context(), "UPDATE audit_log SET actor_name = 'nobody'")
		require.ErrorContains(t, err, "append-only")
		// Who may drop that can change the rows.
		for _, table := range []string{"audit_log", "audit_seal", "audit_digest"} {
			for _, what := range []string{"update", "delete"} {
				_, err := db.ExecContext(t.Context(), "DROP TRIGGER "+table+"_no_"+what)
				require.NoError(t, err)
			}
		}
		ids := placesOf(t, db)
		do := func(statement string, args ...any) {
			t.Helper()
			_, err := db.ExecContext(t.Context(), statement, args...)
			require.NoError(t, err, statement)
		}
		columns := "id, at, ns_id, actor_type, actor_id, actor_name, ip, request_id, action, object_type, object_id, object_name, outcome, before_json, after_json, diff_json, mac"
		do("CREATE TABLE kept AS SELECT * FROM audit_log")
		do("CREATE TABLE kept_seal AS SELECT * FROM audit_seal")
		do("CREATE TABLE kept_digest AS SELECT * FROM audit_digest")
		restore := func() {
			do("DELETE FROM audit_log")
			do("INSERT INTO audit_log (" + columns + ") SELECT " + columns + " FROM kept")
			do("DELETE FROM audit_seal")
			do("INSERT INTO audit_seal SELECT * FROM kept_seal")
			do("DELETE FROM audit_digest")
			do("INSERT INTO audit_digest SELECT * FROM kept_digest")
		}
		victim := ids[4]
		for _, c := range []struct {
			what  string
			alter func()
			kind  string
			id    string // the first altered entry; "" = of a digest or a place
		}{
			{"an actor", func() { do("UPDATE audit_log SET actor_name = 'nobody' WHERE id = ?", victim) }, "altered", victim},
			{"a time", func() { do("UPDATE audit_log SET at = at + 1 WHERE id = ?", victim) }, "altered", victim},
			{"what was before", func() { do("UPDATE audit_log SET after_json = '{}' WHERE id = ?", victim) }, "altered", victim},
			{"an authentication code", func() { do("UPDATE audit_log SET mac = ? WHERE id = ?", strings.Repeat("0", 64), victim) }, "altered", victim},
			{"a deletion", func() { do("DELETE FROM audit_log WHERE id = ?", victim) }, "removed", victim},
			{"a deletion with its place", func() {
				do("DELETE FROM audit_log WHERE id = ?", victim)
				do("DELETE FROM audit_seal WHERE audit_id = ?", victim)
			}, "broken", ids[5]},
			{"two swapped", func() {
				do("UPDATE audit_seal SET audit_id = 1 WHERE audit_id = ?", victim)
				do("UPDATE audit_seal SET audit_id = ? WHERE audit_id = ?", victim, ids[5])
				do("UPDATE audit_seal SET audit_id = ? WHERE audit_id = 1", ids[5])
			}, "broken", ids[5]},
			{"an insertion", func() {
				do("INSERT INTO audit_log (" + columns + ") SELECT 77, " + strings.TrimPrefix(columns, "id, ") + " FROM kept WHERE id = " + victim)
			}, "inserted", "77"},
			{"the end cut off, from what was signed last", func() {
				const last = "(SELECT * FROM (SELECT MAX(last_seq) FROM kept_digest) x)"
				do("DELETE FROM audit_log WHERE id IN (SELECT audit_id FROM kept_seal WHERE seq >= " + last + ")")
				do("DELETE FROM audit_seal WHERE seq >= " + last)
				do("DELETE FROM audit_digest WHERE last_seq >= " + last)
			}, "removed", ""},
			{"a digest", func() { do("UPDATE audit_digest SET root = ? WHERE no = 1", strings.Repeat("0", 64)) }, "forged", ""},
		} {
			c.alter()
			code, v := verifyTrail(t, s)
			require.Equal(t, 1, code, c.what)
			kinds := map[string]bool{}
			for _, f := range v.Findings {
				kinds[f.Kind] = true
			}
			require.True(t, kinds[c.kind], "%s: %+v", c.what, v.Findings)
			require.Equal(t, c.id, v.First.ID, "%s: %+v", c.what, v.Findings)
			restore()
			code, v = verifyTrail(t, s)
			require.Equal(t, 0, code, "%+v", v)
		}

		// Offline, from an export.
		var out, errOut bytes.Buffer
		require.Equal(t, 0, cli.Run(t.Context(), []string{"audit", "export", "--data", c.Data, "--database", c.Database}, strings.NewReader(""), &out, &errOut), errOut.String())
		var key bytes.Buffer
		require.Equal(t, 0, cli.Run(t.Context(), []string{"audit", "key", "--data", c.Data}, strings.NewReader(""), &key, &errOut), errOut.String())
		elsewhere := t.TempDir()
		file := filepath.Join(elsewhere, "trail.jsonl")
		offline := func(text string) (int, trail) {
			require.NoError(t, os.WriteFile(file, []byte(text), 0o600))
			var out, errOut bytes.Buffer
			code := cli.Run(t.Context(), []string{"audit", "verify", "--json", "--data", elsewhere, "--file", file, "--public-key", strings.TrimSpace(key.String())}, strings.NewReader(""), &out, &errOut)
			var v trail
			require.NoError(t, json.Unmarshal(out.Bytes(), &v), out.String()+errOut.String())
			return code, v
		}
		code, v = offline(out.String())
		require.Equal(t, 0, code, "%+v", v)
		require.GreaterOrEqual(t, v.Entries, sealed.Entries)
		code, v = offline(strings.Replace(out.String(), "job 3", "job 4", 1))
		require.Equal(t, 1, code)
		require.Equal(t, "broken", v.First.Kind)

		// It goes on where it ended.
		s.Again()
		ns.Client = s.Admin(t)
		ns.Job(axtest.Def{"name": "afterwards"})
		axtest.WaitUpTo(t, 2*axtest.Patience, "the new entries are sealed", func() bool {
			code, v = verifyTrail(t, s)
			return code == 0 && v.Unsealed == 0 && v.Entries > sealed.Entries
		})
	})
}

// T-AUD-4: what can not be audited is not done.
func TestWhatCanNotBeAuditedIsNotDone(t *testing.T) {
	axtest.Both(t, func(t *testing.T, o ...axtest.Option) {
		s := axtest.Start(t, o...)
		ns := s.Namespace(t)
		ns.App("app")
		kept := ns.Job(axtest.Def{"name": "kept"})
		c := s.Config()
		db := storetest.SQL(t, c.Database, c.Data)
		t.Cleanup(func() { _ = db.Close() })
		refuse(t, db, c.Database == "")
		for _, change := range []struct{ method, path string }{
			{http.MethodPost, "/jobs"}, {http.MethodDelete, "/jobs/" + kept}, {http.MethodPost, "/jobs/" + kept + "/disable"}, {http.MethodPost, "/jobs/" + kept + "/trigger"}, {http.MethodPost, "/apps"},
		} {
			a := ns.Client.Do(t, change.method, ns.Path(change.path), map[string]any{"name": "lost", "app": "app", "handler": "work", "protocol": "ax"})
			require.GreaterOrEqual(t, a.Status, 400, change.path+" "+a.Text())
		}
		require.Equal(t, http.StatusOK, ns.Client.Do(t, http.MethodGet, ns.Path("/jobs/"+kept), nil).Status, "reads go on")
		require.True(t, ns.JobView(kept).Enabled)
		var jobs struct {
			Items []struct{ Name string } `json:"items"`
		}
		ns.Client.Get(t, ns.Path("/jobs"), &jobs)
		require.Len(t, jobs.Items, 1)
		require.Empty(t, ns.Batches(kept))
		_, err := db.ExecContext(t.Context(), "DROP TRIGGER refuse")
		require.NoError(t, err)
		ns.Job(axtest.Def{"name": "again"})
	})
}

// refuse makes the database take no audit entries.
func refuse(t *testing.T, db *sql.DB, sqlite bool) {
	t.Helper()
	statement := "CREATE TRIGGER refuse BEFORE INSERT ON audit_log FOR EACH ROW SIGNAL SQLSTATE '45000' SET MESSAGE_TEXT = 'no room'"
	if sqlite {
		statement = "CREATE TRIGGER refuse BEFORE INSERT ON audit_log BEGIN SELECT RAISE(ABORT, 'no room'); END"
	}
	_, err := db.ExecContext(t.Context(), statement)
	require.NoError(t, err)
}

// placesOf lists the entries of the chain in its order.
func placesOf(t *testing.T, db *sql.DB) (ids []string) {
	t.Helper()
	rows, err := db.QueryContext(t.Context(), "SELECT audit_id FROM audit_seal ORDER BY seq")
	require.NoError(t, err)
	defer func() { _ = rows.Close() }()
	for rows.Next() {
		var id string
		require.NoError(t, rows.Scan(&id))
		ids = append(ids, id)
	}
	require.NoError(t, rows.Err())
	return ids
}
