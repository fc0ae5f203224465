package ledger_test

import (
	"context"
	"database/sql"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/ax-scheduler/ax/internal/batch"
	"github.com/ax-scheduler/ax/internal/job"
	"github.com/ax-scheduler/ax/internal/ledger"
	"github.com/ax-scheduler/ax/internal/schedule"
	"github.com/ax-scheduler/ax/internal/store"
	"github.com/ax-scheduler/ax/internal/storetest"
)

// begin is when the jobs of these tests are made: a day's midnight in UTC, in milliseconds.
const begin = int64(1_796_083_200_000)

// world is a database with a job that fires every ten seconds.
type world struct {
	t     testing.TB
	s     *store.Store
	db    *sql.DB
	fence store.Fence
	job   store.Job
}

// each runs f on SQLite and on MariaDB, with a connection of its own to break something by.
func each(t *testing.T, f func(t *testing.T, w *world)) {
	t.Helper()
	t.Run("sqlite", func(t *testing.T) { f(t, newWorld(t, store.Config{Dir: t.TempDir(), AuditKey: storetest.AuditKey()})) })
	t.Run("mysql", func(t *testing.T) {
		f(t, newWorld(t, store.Config{DSN: storetest.Database(t), AuditKey: storetest.AuditKey()}))
	})
}

func newWorld(t testing.TB, c store.Config) *world {
	t.Helper()
	s, err := store.Open(c)
	require.NoError(t, err)
	t.Cleanup(func() { _ = s.Close() })
	require.NoError(t, s.Migrate(t.Context()))
	db := storetest.SQL(t, c.DSN, c.Dir)
	t.Cleanup(func() { _ = db.Close() })
	w := &world{t: t, s: s, db: db}
	require.NoError(t, s.Announce(t.Context(), store.Replica{ID: "a"}, 50*time.Second))
	fences, err := s.TakeFree(t.Context(), "a")
	require.NoError(t, err)
	w.fence = fences[3]
	return w
}

func (w *world) in(f func(b *store.Bucket) error) {
	w.t.Helper()
	require.NoError(w.t, w.s.InBucket(context.Background(), w.fence, f))
}

func entry() *store.AuditEntry {
	return &store.AuditEntry{At: begin, ActorType: "user", Action: "job.create", ObjectType: "job", Outcome: "success"}
}

func (w *world) create(every time.Duration) {
	w.job = store.Job{NS: 1, AppID: 1, Enabled: true, LastTriggerNo: 1, CreatedAt: begin, UpdatedAt: begin, UpdatedBy: "test", Definition: job.Definition{
		Name: "job", App: "app", Handler: "work", Triggers: []schedule.Spec{{No: 1, Kind: schedule.FixedRate, Every: schedule.Duration(every), Zone: "UTC"}},
	}}
	w.in(func(b *store.Bucket) error {
		b.MoveCursor(begin)
		return b.CreateJob(&w.job, map[int]int64{1: begin + every.Milliseconds()}, entry())
	})
}

func (w *world) row(due int64, state batch.State) store.BatchRow {
	return store.BatchRow{
		ID: batch.ID(w.job.ID, time.UnixMilli(due).UTC(), 1), Day: batch.Day(due), NS: 1, JobID: w.job.ID, JobVersion: 1, TriggerNo: 1, TriggerKind: "fixedRate", DueAt: due, PlannedFor: due,
		State: state, Total: 1, CreatedBy: store.BySchedule, CreatedAt: due - 1000,
	}
}

// fire writes firings that succeeded, and moves trigger and cursor to the last one.
func (w *world) fire(from, to, step int64) {
	var rows []store.BatchRow
	var executions []store.ExecutionRow
	for at := from; at <= to; at += step {
		r := w.row(at, batch.Succeeded)
		rows = append(rows, r)
		executions = append(executions, store.ExecutionRow{Day: r.Day, NS: 1, JobID: r.JobID, BatchID: r.ID, Total: 1, Attempt: 1, Status: batch.RunSucceeded, TriggerTime: at, NotBefore: at})
	}
	w.write(rows, executions, to, step)
}

func (w *world) write(rows []store.BatchRow, executions []store.ExecutionRow, to, step int64) {
	const page = 2000
	for len(rows) > 0 || len(executions) > 0 {
		n, m := min(page, len(rows)), min(page, len(executions))
		part, runs := rows[:n], executions[:m]
		rows, executions = rows[n:], executions[m:]
		w.in(func(b *store.Bucket) error {
			if _, err := b.InsertBatches(part); err != nil {
				return err
			}
			first := b.TakeSequence(len(runs))
			for i := range runs {
				runs[i].ID = batch.ExecutionID(runs[i].Day, w.fence.Bucket, first+int64(i))
			}
			b.MoveCursor(to)
			return b.InsertExecutions(runs)
		})
	}
	w.exec("UPDATE job_trigger SET next_due_hint = ? WHERE job_id = ?", to+step, w.job.ID)
	w.in(func(b *store.Bucket) error { b.MoveCursor(to); return nil })
}

func (w *world) exec(query string, args ...any) {
	w.t.Helper()
	_, err := w.db.ExecContext(context.Background(), query, args...)
	require.NoError(w.t, err)
}

func (w *world) check(o ledger.Options) ledger.Report {
	w.t.Helper()
	r, err := ledger.Check(context.Background(), w.s, o)
	require.NoError(w.t, err)
	return r
}

// only is the one finding that there is.
func (w *world) only(kind string) ledger.Finding {
	w.t.Helper()
	r := w.check(ledger.Options{})
	require.Equal(w.t, map[string]int64{kind: 1}, r.Counts, "%+v", r.Found)
	require.Equal(w.t, w.job.ID, r.Found[0].JobID)
	return r.Found[0]
}

const ten = int64(10_000)

func TestAWholeLedgerIsClean(t *testing.T) {
	each(t, func(t *testing.T, w *world) {
		w.create(10 * time.Second)
		w.fire(begin+ten, begin+100*ten, ten)
		r := w.check(ledger.Options{})
		require.True(t, r.Clean(), "%+v", r.Found)
		require.EqualValues(t, 100, r.Planned)
		require.EqualValues(t, 100, r.Batches)
		require.EqualValues(t, 100, r.Executions)
		// A part of it.
		r = w.check(ledger.Options{From: begin + 20*ten, To: begin + 29*ten, Job: w.job.ID})
		require.True(t, r.Clean(), "%+v", r.Found)
		require.EqualValues(t, 10, r.Planned)
	})
}

func TestWhatIsWrongIsFound(t *testing.T) {
	last := begin + 100*ten
	for name, c := range map[string]struct {
		kind     string
		breakIt  func(w *world)
		from, to int64
		count    int64
	}{
		"a row that is gone": {ledger.Gap, func(w *world) {
			w.exec("DELETE FROM execution_log WHERE trigger_time = ?", begin+50*ten)
			w.exec("DELETE FROM execution_batch WHERE due_at = ?", begin+50*ten)
		}, begin + 50*ten, begin + 50*ten, 1},
		"rows that are gone one after the other are one gap": {ledger.Gap, func(w *world) {
			w.exec("DELETE FROM execution_log WHERE trigger_time BETWEEN ? AND ?", begin+50*ten, begin+59*ten)
			w.exec("DELETE FROM execution_batch WHERE due_at BETWEEN ? AND ?", begin+50*ten, begin+59*ten)
		}, begin + 50*ten, begin + 59*ten, 10},
		"the last row": {ledger.Gap, func(w *world) {
			w.exec("DELETE FROM execution_log WHERE trigger_time = ?", last)
			w.exec("DELETE FROM execution_batch WHERE due_at = ?", last)
		}, last, last, 1},
		"a trigger that stands still": {ledger.Gap, func(w *world) { w.in(func(b *store.Bucket) error { b.MoveCursor(last + 5*ten); return nil }) }, last + ten, last + 5*ten, 5},
		"a second row of one firing": {ledger.Double, func(w *world) {
			r := w.row(begin+50*ten, batch.Succeeded)
			w.exec("UPDATE execution_batch SET due_at = ? WHERE batch_id = ?", begin+50*ten+1, r.ID) // the unique key would refuse it
			r.ID += ".again"
			w.in(func(b *store.Bucket) error { _, err := b.InsertBatches([]store.BatchRow{r}); return err })
			w.exec("UPDATE execution_batch SET missed_last_at = due_at + 1 WHERE batch_id = ?", r.ID)
		}, begin + 50*ten + 1, begin + 50*ten + 1, 1},
		"a missed span over a row": {ledger.Double, func(w *world) {
			r := w.row(begin+40*ten-1, batch.Missed)
			r.MissedCount, r.MissedLast = 1, begin+40*ten
			w.in(func(b *store.Bucket) error { _, err := b.InsertBatches([]store.BatchRow{r}); return err })
		}, begin + 40*ten, begin + 40*ten, 1},
		"a missed span that counts wrong": {ledger.Count, func(w *world) {
			w.exec("DELETE FROM execution_log WHERE trigger_time BETWEEN ? AND ?", begin+50*ten, begin+59*ten)
			w.exec("DELETE FROM execution_batch WHERE due_at BETWEEN ? AND ?", begin+50*ten, begin+59*ten)
			r := w.row(begin+50*ten, batch.Missed)
			r.MissedCount, r.MissedLast = 9, begin+59*ten
			w.in(func(b *store.Bucket) error { _, err := b.InsertBatches([]store.BatchRow{r}); return err })
		}, begin + 50*ten, begin + 59*ten, 10},
		"a start before its time": {ledger.Early, func(w *world) {
			w.exec("UPDATE execution_log SET actual_time = trigger_time - 1 WHERE trigger_time = ?", begin+50*ten)
		}, begin + 50*ten, begin + 50*ten, 1},
		"a shard that succeeded twice": {ledger.Twice, func(w *world) {
			r := w.row(begin+50*ten, batch.Succeeded)
			w.in(func(b *store.Bucket) error {
				id := batch.ExecutionID(r.Day, w.fence.Bucket, b.TakeSequence(1))
				return b.InsertExecutions([]store.ExecutionRow{{ID: id, Day: r.Day, NS: 1, JobID: r.JobID, BatchID: r.ID, Total: 1, Attempt: 2, Status: batch.RunSucceeded, TriggerTime: r.DueAt, NotBefore: r.DueAt}})
			})
		}, begin + 50*ten, begin + 50*ten, 1},
		"an execution that is open in a batch that has ended": {ledger.Open, func(w *world) {
			w.exec("UPDATE execution_log SET status = 'RUNNING' WHERE trigger_time = ?", begin+50*ten)
		}, begin + 50*ten, begin + 50*ten, 1},
		"a batch that is open with nothing in it": {ledger.Stuck, func(w *world) {
			w.exec("UPDATE execution_batch SET state = 'RUNNING' WHERE due_at = ?", begin+50*ten)
		}, begin + 50*ten, begin + 50*ten, 1},
	} {
		t.Run(name, func(t *testing.T) {
			each(t, func(t *testing.T, w *world) {
				w.create(10 * time.Second)
				w.fire(begin+ten, last, ten)
				require.True(t, w.check(ledger.Options{}).Clean())
				c.breakIt(w)
				f := w.only(c.kind)
				require.Equal(t, c.from, f.From)
				require.Equal(t, c.to, f.To)
				require.Equal(t, c.count, f.Count)
			})
		})
	}
}

// C257: what was not in force is not missing: a pause, an edit to another rate, a deletion.
func TestWhatWasNotInForceIsNotMissing(t *testing.T) {
	each(t, func(t *testing.T, w *world) {
		w.create(10 * time.Second)
		w.fire(begin+ten, begin+20*ten, ten)
		change := func(at int64, edit func(j *store.Job)) {
			w.job.UpdatedAt = at
			edit(&w.job)
			w.in(func(b *store.Bucket) error { return b.UpdateJob(&w.job, w.job.Version, map[int]int64{}, entry()) })
		}
		change(begin+20*ten+1, func(j *store.Job) { j.Enabled = false })
		w.in(func(b *store.Bucket) error { b.MoveCursor(begin + 50*ten); return nil })
		require.True(t, w.check(ledger.Options{}).Clean())
		change(begin+50*ten, func(j *store.Job) { j.Enabled = true })
		w.fire(begin+51*ten, begin+60*ten, ten)
		require.True(t, w.check(ledger.Options{}).Clean())
		change(begin+60*ten, func(j *store.Job) { j.Definition.Triggers[0].Every = schedule.Duration(20 * time.Second) })
		w.fire(begin+62*ten, begin+80*ten, 2*ten)
		r := w.check(ledger.Options{})
		require.True(t, r.Clean(), "%+v", r.Found)
		require.EqualValues(t, 20+10+10, r.Planned)
		// A missing firing is found in each of the periods.
		w.exec("DELETE FROM execution_log WHERE trigger_time IN (?, ?, ?)", begin+5*ten, begin+55*ten, begin+70*ten)
		w.exec("DELETE FROM execution_batch WHERE due_at IN (?, ?, ?)", begin+5*ten, begin+55*ten, begin+70*ten)
		require.Equal(t, map[string]int64{ledger.Gap: 3}, w.check(ledger.Options{}).Counts)
		w.in(func(b *store.Bucket) error { return b.DeleteJob(w.job, begin+80*ten, entry()) })
		w.in(func(b *store.Bucket) error { b.MoveCursor(begin + 200*ten); return nil })
		require.Equal(t, map[string]int64{ledger.Gap: 3}, w.check(ledger.Options{}).Counts, "and after the job is gone")
	})
}

// What retention has dropped is not missing, not even where a missed span reaches from what is gone into what is kept.
func TestWhatRetentionDroppedIsNotMissing(t *testing.T) {
	each(t, func(t *testing.T, w *world) {
		const hour = 3600_000
		w.create(time.Hour)
		w.fire(begin+hour, begin+20*hour, hour)
		span := w.row(begin+21*hour, batch.Missed)
		span.MissedCount, span.MissedLast = 10, begin+30*hour
		w.write([]store.BatchRow{span}, nil, begin+30*hour, hour)
		w.fire(begin+31*hour, begin+60*hour, hour)
		require.True(t, w.check(ledger.Options{}).Clean())
		_, err := w.s.KeepPartitions(t.Context(), begin)
		require.NoError(t, err)
		_, err = w.s.DropHistory(t.Context(), batch.Day(begin)+1)
		require.NoError(t, err)
		var n int
		require.NoError(t, w.db.QueryRowContext(t.Context(), "SELECT COUNT(*) FROM execution_batch").Scan(&n))
		require.Equal(t, 30, n, "the first day is gone")
		r := w.check(ledger.Options{})
		require.True(t, r.Clean(), "%+v", r.Found)
		require.EqualValues(t, 30, r.Planned)
		w.exec("DELETE FROM execution_log WHERE trigger_time = ?", begin+31*hour)
		w.exec("DELETE FROM execution_batch WHERE due_at = ?", begin+31*hour)
		require.Equal(t, begin+31*hour, w.only(ledger.Gap).From, "what is kept is checked")
	})
}

func BenchmarkCheck(b *testing.B) {
	const firings = 200_000
	for name, c := range map[string]func() store.Config{
		"sqlite": func() store.Config { return store.Config{Dir: b.TempDir()} },
		"mysql":  func() store.Config { return store.Config{DSN: storetest.Database(b)} },
	} {
		b.Run(name, func(b *testing.B) {
			w := newWorld(b, c())
			w.create(time.Second)
			w.fire(begin+1000, begin+firings*1000, 1000)
			for b.Loop() {
				r := w.check(ledger.Options{})
				require.True(b, r.Clean(), fmt.Sprint(r.Found))
				require.EqualValues(b, firings, r.Planned)
			}
			b.ReportMetric(float64(firings)*float64(b.N)/b.Elapsed().Seconds(), "firings/s")
		})
	}
}
