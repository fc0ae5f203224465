package main

import (
	"bytes"
	"context"
	"encoding/json"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/ax-scheduler/ax/internal/storetest"
	"github.com/ax-scheduler/ax/server/axtest"
	"github.com/ax-scheduler/ax/server/cli"
)

// M1: ax-server ledger check beside a running server: nothing to find, then what somebody broke.
func TestLedgerCheck(t *testing.T) {
	axtest.Both(t, func(t *testing.T, o ...axtest.Option) {
		s := axtest.Start(t, o...)
		ns := s.Namespace(t)
		x := ns.App("app").Worker(axtest.Succeed)
		job := ns.Job(axtest.Def{"name": "busy", "triggers": every("1s"), "concurrency": policy("allow", 0)})
		c := s.Config()
		check := func(args ...string) (code int, out, errOut string) {
			var stdout, stderr bytes.Buffer
			args = append([]string{"ledger", "check", "--data", c.Data, "--database", c.Database}, args...)
			code = cli.Run(context.Background(), args, strings.NewReader(""), &stdout, &stderr)
			return code, stdout.String(), stderr.String()
		}
		for len(x.Starts()) < 5 {
			code, out, errOut := check()
			require.Equal(t, 0, code, out+errOut)
			require.Contains(t, out, "clean;")
			axtest.Pause(200 * time.Millisecond)
		}
		db := storetest.SQL(t, c.Database, c.Data)
		t.Cleanup(func() { _ = db.Close() })
		gone := x.Starts()[2].Run
		for _, table := range []string{"execution_log", "execution_batch"} {
			_, err := db.ExecContext(t.Context(), "DELETE FROM "+table+" WHERE batch_id = ?", gone.BatchID)
			require.NoError(t, err)
		}
		code, out, _ := check("--json")
		require.Equal(t, 1, code, out)
		var v struct {
			Clean    bool
			Counts   map[string]int
			Findings []struct {
				Kind, Job, From, To string
				Trigger, Count      int
			}
		}
		require.NoError(t, json.Unmarshal([]byte(out), &v), out)
		require.False(t, v.Clean)
		require.Equal(t, map[string]int{"gap": 1}, v.Counts)
		require.Equal(t, job, v.Findings[0].Job)
		require.Equal(t, 1, v.Findings[0].Trigger)
		at, err := time.Parse(time.RFC3339, v.Findings[0].From)
		require.NoError(t, err)
		require.Equal(t, gone.DueAt, at.UnixMilli())
		code, out, _ = check("--job", job)
		require.Equal(t, 1, code)
		require.Contains(t, out, "gap     job "+job+" trigger 1")
		// Another stretch of time.
		code, out, errOut := check("--from", at.Add(500*time.Millisecond).Format(time.RFC3339Nano))
		require.Equal(t, 0, code, out+errOut)

		for _, bad := range [][]string{{"--from", "yesterday"}, {"--job", "busy"}, {"--from", "2026-01-02T00:00:00Z", "--to", "2026-01-01T00:00:00Z"}, {"--database", "postgres://x"}, {"more"}} {
			code, _, errOut := check(bad...)
			require.Equal(t, 2, code, "%v: %s", bad, errOut)
			require.NotEmpty(t, errOut)
		}
	})
	var stdout, stderr bytes.Buffer
	require.Equal(t, 2, cli.Run(t.Context(), []string{"ledger", "check", "--data", t.TempDir()}, strings.NewReader(""), &stdout, &stderr))
	require.Contains(t, stderr.String(), "there is no database in")
}
