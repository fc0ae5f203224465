package main

import (
	"cmp"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/ax-scheduler/ax/internal/storetest"
	"github.com/ax-scheduler/ax/server/axtest"
)

type backfilled struct {
	ID        string `json:"id"`
	DryRun    bool   `json:"dryRun"`
	Trigger   int    `json:"trigger"`
	From      string `json:"from"`
	To        string `json:"to"`
	MaxActive int    `json:"maxActive"`
	Planned   int    `json:"planned"`
	Made      []struct{ PlannedFor, BatchID string }
	LeftOut   []struct{ PlannedFor, BatchID, Reason string }
}

func backfillPath(ns *axtest.Namespace, job string) string {
	return ns.Path("/jobs/" + job + "/backfill")
}

func backfill(t *testing.T, ns *axtest.Namespace, job string, body map[string]any) (v backfilled) {
	t.Helper()
	a := ns.Client.Do(t, http.MethodPost, backfillPath(ns, job), body)
	require.Equal(t, http.StatusOK, a.Status, a.Text())
	a.Into(t, &v)
	return v
}

func minutely(zone string) map[string]any {
	return map[string]any{"kind": "cron", "expr": "0 * * * * ?", "dialect": "quartz", "zone": zone}
}

// june is n minutes from the first of June 2024 on, in UTC.
func june(n int, more map[string]any) map[string]any {
	from := time.Date(2024, 6, 1, 0, 0, 0, 0, time.UTC)
	out := map[string]any{"from": from.Format(time.RFC3339), "to": from.Add(time.Duration(n) * time.Minute).Format(time.RFC3339)}
	maps.Copy(out, more)
	return out
}

// perInstant counts the executors' starts by planned instant.
func perInstant(starts []axtest.Started) map[int64]int {
	out := map[int64]int{}
	for _, s := range starts {
		out[s.Run.PlannedFor]++
	}
	return out
}

func allDone(ns *axtest.Namespace, job string, n int, state string) func() bool {
	return func() bool {
		done := 0
		for _, b := range ns.Batches(job) {
			if b.Trigger == "backfill" && b.State == state {
				done++
			}
		}
		return done == n
	}
}

// M6: each planned instant of the range runs once, one after another in their order; the same key has no second
// effect and the same answer, and what has run is left out without one.
func TestBackfill(t *testing.T) {
	axtest.Both(t, func(t *testing.T, o ...axtest.Option) {
		s := axtest.Start(t, o...)
		ns := s.Namespace(t)
		x := ns.App("app").Worker(axtest.For(20 * time.Millisecond))
		job := ns.Job(axtest.Def{"triggers": []map[string]any{minutely("America/New_York")}, "misfire": map[string]any{"rate": 1000}, "concurrency": policy("skip", 5), "enabled": false})
		ask := june(6, map[string]any{"idempotencyKey": "june"})

		dry := backfill(t, ns, job, june(6, map[string]any{"dryRun": true, "idempotencyKey": "june"}))
		require.True(t, dry.DryRun)
		require.Len(t, dry.Made, 6)
		require.Equal(t, "2024-05-31T20:00:00-04:00", dry.Made[0].PlannedFor, "in the trigger's zone")
		require.Empty(t, dry.Made[0].BatchID)
		require.Empty(t, ns.Batches(job), "a dry run makes nothing")

		first := backfill(t, ns, job, ask)
		require.Equal(t, 6, first.Planned)
		require.Len(t, first.Made, 6)
		require.Empty(t, first.LeftOut)
		require.Equal(t, 1, first.MaxActive)
		require.Equal(t, first, backfill(t, ns, job, ask), "the same while it runs")
		for _, m := range first.Made {
			require.Equal(t, "SUCCEEDED", ns.Ended(m.BatchID).State)
		}
		starts := x.Starts()
		require.Len(t, starts, 6)
		require.Equal(t, 1, axtest.Most(starts), "one after another")
		require.True(t, slices.IsSortedFunc(starts, func(a, b axtest.Started) int { return cmp.Compare(a.Run.PlannedFor, b.Run.PlannedFor) }), "in the order of their instants")
		require.Equal(t, "America/New_York", starts[0].Run.Zone)
		require.Equal(t, "backfill", starts[0].Run.Trigger)
		require.Equal(t, time.Date(2024, 6, 1, 0, 0, 0, 0, time.UTC).UnixMilli(), starts[0].Run.PlannedFor)
		require.Equal(t, first, backfill(t, ns, job, ask), "the same afterwards")

		// The header is the key as well.
		req, err := http.NewRequest(http.MethodPost, s.URL()+backfillPath(ns, job), strings.NewReader(`{"from":"2024-06-01T00:00:00Z","to":"2024-06-01T00:06:00Z"}`))
		require.NoError(t, err)
		req.Header.Set("Content-Type", "application/json")
		req.Header.Set("Authorization", "Bearer "+ns.Client.Token)
		req.Header.Set("Idempotency-Key", "june")
		res, err := (&http.Client{Timeout: 10 * time.Second}).Do(req)
		require.NoError(t, err)
		require.NoError(t, res.Body.Close())
		require.Equal(t, http.StatusOK, res.StatusCode)
		a := ns.Client.Do(t, http.MethodPost, backfillPath(ns, job), june(7, map[string]any{"idempotencyKey": "june"}))
		require.Equal(t, http.StatusConflict, a.Status)
		require.Equal(t, "key_reused", a.Problem(t).Code)

		left := backfill(t, ns, job, june(7, nil))
		require.Len(t, left.Made, 1)
		require.Len(t, left.LeftOut, 6)
		require.Equal(t, "succeeded", left.LeftOut[0].Reason)
		require.Equal(t, first.Made[0].BatchID, left.LeftOut[0].BatchID)
		ns.Ended(left.Made[0].BatchID)

		again := backfill(t, ns, job, june(7, map[string]any{"again": true, "maxActive": 5}))
		require.Len(t, again.Made, 7)
		axtest.WaitFor(t, "all have run again", allDone(ns, job, 14, "SUCCEEDED"))
		require.Len(t, x.Starts(), 14)
		require.Greater(t, axtest.Most(x.Starts()), 1, "up to maxActive at once")
		require.LessOrEqual(t, axtest.Most(x.Starts()), 5)
		axtest.NothingTwice(t, x)
		s.LedgerClean(t)
		require.NotEmpty(t, s.Audit(t, "action=job.run"))
	})
}

// What a schedule has fired is known to a backfill, and one that waits is not made a second time.
func TestABackfillLeavesOutWhatIsThere(t *testing.T) {
	axtest.Both(t, func(t *testing.T, o ...axtest.Option) {
		s := axtest.Start(t, o...)
		ns := s.Namespace(t)
		x := ns.App("app").Worker(axtest.Succeed)
		job := ns.Job(axtest.Def{"triggers": every("1s")})
		begun := time.Now().Add(-time.Second).Truncate(time.Second)
		axtest.WaitFor(t, "some have run", func() bool { return len(x.Starts()) >= 3 })
		disable(t, ns, job)
		axtest.WaitFor(t, "none is open", func() bool {
			return !slices.ContainsFunc(ns.Batches(job), func(b axtest.Batch) bool { return !b.Final() })
		})
		ran := len(x.Starts())
		to := time.Now()
		v := backfill(t, ns, job, map[string]any{"from": begun.Add(-3 * time.Second).Format(time.RFC3339), "to": to.Format(time.RFC3339Nano)})
		require.Len(t, v.LeftOut, ran)
		require.NotEmpty(t, v.Made)
		axtest.WaitFor(t, "the others have run", allDone(ns, job, len(v.Made), "SUCCEEDED"))
		for at, n := range perInstant(x.Starts()) {
			require.Equal(t, 1, n, "%d", at)
		}
		s.LedgerClean(t)
	})
}

// Two clients without a key at the same moment: each planned instant is backfilled once.
func TestTwoBackfillsAtOnce(t *testing.T) {
	axtest.Both(t, func(t *testing.T, o ...axtest.Option) {
		s := axtest.Start(t, o...)
		ns := s.Namespace(t)
		x := ns.App("app").Worker(axtest.Succeed)
		job := ns.Job(axtest.Def{"triggers": []map[string]any{minutely("UTC")}, "misfire": map[string]any{"rate": 1000}, "enabled": false})
		var wait sync.WaitGroup
		answers := make([]axtest.Answer, 6)
		for i := range answers {
			wait.Go(func() {
				more := map[string]any{}
				if i >= 3 {
					more["idempotencyKey"] = "shared"
				}
				answers[i], _ = ns.Client.Try(http.MethodPost, backfillPath(ns, job), june(40, more))
			})
		}
		wait.Wait()
		made := map[string]string{}
		var withKey []backfilled
		for i, a := range answers {
			require.Equal(t, http.StatusOK, a.Status, a.Text())
			var v backfilled
			a.Into(t, &v)
			require.Equal(t, 40, len(v.Made)+len(v.LeftOut))
			if i >= 3 {
				withKey = append(withKey, v)
			}
			for _, m := range v.Made {
				if other, ok := made[m.PlannedFor]; ok {
					require.Equal(t, other, m.BatchID, "%s has two batches", m.PlannedFor)
				}
				made[m.PlannedFor] = m.BatchID
			}
		}
		require.Len(t, made, 40)
		require.Equal(t, withKey[0], withKey[1])
		require.Equal(t, withKey[0], withKey[2])
		axtest.WaitFor(t, "all have run", allDone(ns, job, 40, "SUCCEEDED"))
		for at, n := range perInstant(x.Starts()) {
			require.Equal(t, 1, n, "%d", at)
		}
		s.LedgerClean(t)
	})
}

// A server that is killed in the middle goes on, and the key still answers the same.
func TestABackfillSurvivesKill(t *testing.T) {
	axtest.Both(t, func(t *testing.T, o ...axtest.Option) {
		const n = 60
		s := axtest.Start(t, append(o, axtest.Process())...)
		ns := s.Namespace(t)
		x := ns.App("app").Worker(axtest.For(10 * time.Millisecond))
		job := ns.Job(axtest.Def{"triggers": []map[string]any{minutely("UTC")}, "misfire": map[string]any{"rate": 1000}, "concurrency": policy("skip", 3), "enabled": false})
		ask := june(n, map[string]any{"idempotencyKey": "k", "maxActive": 3})
		first := backfill(t, ns, job, ask)
		require.Len(t, first.Made, n)
		axtest.WaitFor(t, "it has begun", func() bool { return len(x.Starts()) >= 10 })
		s.Kill()
		require.Less(t, len(x.Starts()), n, "it was killed in the middle")
		s.Again()
		axtest.WaitUpTo(t, 2*axtest.Patience, "all have run", allDone(ns, job, n, "SUCCEEDED"))
		require.Equal(t, first, backfill(t, ns, job, ask))
		require.Len(t, perInstant(x.Starts()), n)
		require.LessOrEqual(t, axtest.Most(x.Starts()), 3, "no more at once than before")
		for at, n := range perInstant(x.Starts()) {
			require.Equal(t, 1, n, "%d", at)
		}
		axtest.NothingTwice(t, x)
		s.LedgerClean(t)
	})
}

// A crash between the transactions of one backfill: the same key makes what is missing, and nothing twice.
func TestABackfillGoesOnAfterACrash(t *testing.T) {
	axtest.Both(t, func(t *testing.T, o ...axtest.Option) {
		const n = 700
		s := axtest.Start(t, o...)
		ns := s.Namespace(t)
		x := ns.App("app").Worker(axtest.Succeed)
		job := ns.Job(axtest.Def{"triggers": []map[string]any{minutely("UTC")}, "misfire": map[string]any{"rate": 1000}, "concurrency": policy("skip", 20), "enabled": false})
		pause := ns.Client.Do(t, http.MethodPost, ns.Path("/backlog/pause"), map[string]any{"job": job})
		require.Equal(t, http.StatusOK, pause.Status, pause.Text())
		ask := june(n, map[string]any{"idempotencyKey": "k", "maxActive": 20})
		first := backfill(t, ns, job, ask)
		require.Len(t, first.Made, n)
		s.Stop()
		// What a crash after the first transaction leaves.
		c := s.Config()
		db := storetest.SQL(t, c.Database, c.Data)
		defer func() { _ = db.Close() }()
		for _, m := range first.Made[500:] {
			for _, table := range []string{"execution_log", "execution_batch", "backfill_batch"} {
				res, err := db.ExecContext(t.Context(), "DELETE FROM "+table+" WHERE batch_id = ?", m.BatchID)
				require.NoError(t, err)
				gone, err := res.RowsAffected()
				require.NoError(t, err)
				require.EqualValues(t, 1, gone)
			}
		}
		_, err := db.ExecContext(t.Context(), "UPDATE backfill SET answer = NULL")
		require.NoError(t, err)
		s.Again()
		second := backfill(t, ns, job, ask)
		require.Equal(t, first.ID, second.ID)
		require.Equal(t, first.Made[:500], second.Made[:500])
		require.Len(t, second.Made, n)
		require.Empty(t, second.LeftOut)
		require.Equal(t, second, backfill(t, ns, job, ask))
		require.Empty(t, x.Starts(), "it is paused")
		pause = ns.Client.Do(t, http.MethodPost, ns.Path("/backlog/resume"), map[string]any{"job": job})
		require.Equal(t, http.StatusOK, pause.Status, pause.Text())
		axtest.WaitUpTo(t, 2*axtest.Patience, "all have run", allDone(ns, job, n, "SUCCEEDED"))
		require.Len(t, perInstant(x.Starts()), n)
		require.Len(t, x.Starts(), n)
		s.LedgerClean(t)
	})
}

// What is left of a backfill can be cancelled, counted first; what runs goes on.
func TestCancelBackfill(t *testing.T) {
	axtest.Both(t, func(t *testing.T, o ...axtest.Option) {
		s := axtest.Start(t, o...)
		ns := s.Namespace(t)
		x := ns.App("app").Worker(axtest.UntilStopped)
		job := ns.Job(axtest.Def{"triggers": []map[string]any{minutely("UTC")}, "enabled": false})
		v := backfill(t, ns, job, june(20, nil))
		axtest.WaitFor(t, "the first runs", func() bool { return len(x.Starts()) == 1 })
		cancel := func(body map[string]any) (out struct{ Count int }) {
			t.Helper()
			a := ns.Client.Do(t, http.MethodPost, backfillPath(ns, job)+"/cancel", body)
			require.Equal(t, http.StatusOK, a.Status, a.Text())
			a.Into(t, &out)
			return out
		}
		require.Equal(t, 19, cancel(map[string]any{"dryRun": true}).Count)
		require.Equal(t, 19, cancel(map[string]any{}).Count)
		require.Zero(t, cancel(map[string]any{}).Count)
		require.True(t, allDone(ns, job, 19, "CANCELLED")())
		require.Equal(t, "backfill_cancelled", ns.Batch(v.Made[7].BatchID).Code())
		require.Equal(t, "RUNNING", ns.Reaches(v.Made[0].BatchID, "RUNNING").State)
		// What was cancelled has not run: it may be asked for again, what runs may not.
		next := backfill(t, ns, job, june(20, nil))
		require.Len(t, next.Made, 19)
		require.Equal(t, "open", next.LeftOut[0].Reason)
		// With its job the rest goes.
		a := ns.Client.Do(t, http.MethodDelete, ns.Path("/jobs/"+job), nil)
		require.Equal(t, http.StatusNoContent, a.Status, a.Text())
		require.Len(t, x.Starts(), 1)
		s.LedgerClean(t)
	})
}

func TestABackfillIsRefused(t *testing.T) {
	t.Parallel()
	s := axtest.Start(t)
	ns := s.Namespace(t)
	ns.App("app").Worker(axtest.Succeed)
	byHand := ns.Job(axtest.Def{"name": "by hand"})
	one := ns.Job(axtest.Def{"name": "one", "triggers": []map[string]any{minutely("Asia/Shanghai")}, "enabled": false})
	two := ns.Job(axtest.Def{"name": "two", "triggers": []map[string]any{minutely("UTC"), minutely("Asia/Shanghai"), {"kind": "fixedDelay", "every": "1h"}}, "enabled": false})
	day := func(n int) string { return time.Now().AddDate(0, 0, n).Format(time.DateOnly) }
	for name, c := range map[string]struct {
		job               string
		from, to          any
		more              map[string]any
		code, field, says string
	}{
		"no range":            {one, "", "", nil, "required", "from", "2026-11-30"},
		"no time":             {one, "yesterday", "2024-06-01", nil, "bad_time", "from", "offset"},
		"no such day":         {one, "2024-06-01", "2024-06-31", nil, "bad_time", "to", "offset"},
		"without an offset":   {one, "2024-06-01T00:00:00", "2024-06-02", nil, "bad_time", "from", "offset"},
		"the wrong way round": {one, "2024-06-02", "2024-06-01", nil, "out_of_order", "to", "after"},
		"empty":               {one, "2024-06-01", "2024-06-01", nil, "out_of_order", "to", "after"},
		"in the future":       {one, day(-1), day(2), nil, "in_future", "to", "not be after now"},
		"before time":         {one, "1901-01-01", "2024-06-01", nil, "out_of_range", "from", "1970"},
		"too many":            {one, "2024-06-01", "2024-06-02", nil, "too_many", "to", "2024-06-01T16:40:00+08:00"},
		"no planned instants": {byHand, "2024-06-01", "2024-06-02", nil, "not_planned", "trigger", "by hand"},
		"unknown trigger":     {one, "2024-06-01", "2024-06-02", map[string]any{"trigger": 7}, "unknown_trigger", "trigger", "can be: 1"},
		"several triggers":    {two, "2024-06-01", "2024-06-02", nil, "required", "trigger", "1, 2"},
		"a delay has no plan": {two, "2024-06-01", "2024-06-02", map[string]any{"trigger": 3}, "not_planned", "trigger", "fixedDelay"},
		"too many at once":    {one, "2024-06-01", "2024-06-02", map[string]any{"maxActive": 21}, "out_of_range", "maxActive", "1 to 20"},
		"fewer than one":      {one, "2024-06-01", "2024-06-02", map[string]any{"maxActive": -1}, "out_of_range", "maxActive", "1 to 20"},
		"an unknown field":    {one, "2024-06-01", "2024-06-02", map[string]any{"overlap": true}, "unknown_field", "overlap", "no such field"},
		"a number for a time": {one, 5, "2024-06-02", nil, "not_understood", "from", ""},
	} {
		t.Run(name, func(t *testing.T) {
			body := map[string]any{"from": c.from, "to": c.to}
			maps.Copy(body, c.more)
			a := ns.Client.Do(t, http.MethodPost, backfillPath(ns, c.job), body)
			require.Equal(t, http.StatusUnprocessableEntity, a.Status, a.Text())
			p := a.Problem(t)
			require.NotEmpty(t, p.Errors, a.Text())
			require.Equal(t, c.code, p.Errors[0].Code, a.Text())
			require.Equal(t, c.field, p.Errors[0].Field)
			require.Contains(t, p.Errors[0].Message.EN, c.says)
			require.NotEmpty(t, p.Errors[0].Message.ZH)
			require.NotEqual(t, p.Errors[0].Message.EN, p.Errors[0].Message.ZH)
		})
	}
	a := ns.Client.Do(t, http.MethodPost, backfillPath(ns, "999999"), june(1, nil))
	require.Equal(t, http.StatusNotFound, a.Status)
	for _, job := range []string{byHand, one, two} {
		require.Empty(t, ns.Batches(job), fmt.Sprint("nothing was made of ", job))
	}
}

// A job that is deleted while its backfill is being made gets no more of it.
func TestABackfillOfAJobThatIsDeletedMeanwhile(t *testing.T) {
	axtest.Both(t, func(t *testing.T, o ...axtest.Option) {
		s := axtest.Start(t, o...)
		ns := s.Namespace(t)
		ns.App("app")
		job := ns.Job(axtest.Def{"triggers": []map[string]any{minutely("UTC")}, "enabled": false})
		c := s.Config()
		db := storetest.SQL(t, c.Database, c.Data)
		t.Cleanup(func() { _ = db.Close() })
		// As if it were deleted as soon as the first part is there.
		statement := "CREATE TRIGGER gone AFTER INSERT ON backfill FOR EACH ROW DELETE FROM job_info WHERE id = NEW.job_id"
		if c.Database == "" {
			statement = "CREATE TRIGGER gone AFTER INSERT ON backfill BEGIN DELETE FROM job_info WHERE id = NEW.job_id; END"
		}
		_, err := db.ExecContext(t.Context(), statement)
		require.NoError(t, err)
		a := ns.Client.Do(t, http.MethodPost, backfillPath(ns, job), june(1000, nil))
		require.Equal(t, http.StatusNotFound, a.Status, a.Text())
		var made int
		require.NoError(t, db.QueryRowContext(t.Context(), "SELECT COUNT(*) FROM execution_batch WHERE job_id = "+job).Scan(&made))
		require.Equal(t, 500, made, "the first part, which the deletion would call off")
	})
}
