package store

import (
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"

	"github.com/ax-scheduler/ax/internal/batch"
	"github.com/ax-scheduler/ax/internal/schedule"
)

// openPeriods ends the periods of a job's triggers that are in force and begins those of its new
// version, in the transaction of the change: what was in force when is what the ledger is checked by.
func (b *Bucket) openPeriods(j *Job) error {
	if err := b.closePeriods(j.ID, j.UpdatedAt); err != nil {
		return err
	}
	if !j.Enabled {
		return nil
	}
	for _, t := range j.Definition.Triggers {
		if t.Kind != schedule.Cron && t.Kind != schedule.FixedRate && t.Kind != schedule.Once {
			continue // its times are not known beforehand
		}
		spec, err := json.Marshal(t)
		if err != nil {
			return fmt.Errorf("trigger %d: %w", t.No, err)
		}
		if _, err := b.tx.ExecContext(b.ctx, "INSERT INTO trigger_period (job_id, no, from_at, until_at, ns_id, bucket, version, kind, spec) VALUES (?, ?, ?, 0, ?, ?, ?, ?, ?)",
			j.ID, t.No, j.UpdatedAt, j.NS, b.f.Bucket, j.Version, string(t.Kind), spec); err != nil {
			return fmt.Errorf("begin period of trigger %d: %w", t.No, err)
		}
	}
	return nil
}

func (b *Bucket) closePeriods(job, until int64) error {
	if _, err := b.tx.ExecContext(b.ctx, "UPDATE trigger_period SET until_at = ? WHERE job_id = ? AND until_at = 0", until, job); err != nil {
		return fmt.Errorf("end periods of job %d: %w", job, err)
	}
	return nil
}

// Broken ends the period of a trigger whose definition is not understood: nothing fires from there on.
func (b *Bucket) Broken(job int64, no int, until int64) error {
	if _, err := b.tx.ExecContext(b.ctx, "UPDATE trigger_period SET until_at = ? WHERE job_id = ? AND no = ? AND until_at = 0", until, job, no); err != nil {
		return fmt.Errorf("end period of trigger %d of job %d: %w", no, job, err)
	}
	return nil
}

// historyFrom names the value that says from when on history is whole, milliseconds.
const historyFrom = "history_from"

// markDropped notes, before history is dropped, from when on it is whole: from the first day that is kept,
// or from the end of a missed span that began on a day that goes.
func (s *Store) markDropped(ctx context.Context, beforeDay int) error {
	var last sql.NullInt64
	if err := s.read.QueryRowContext(ctx, "SELECT MAX(missed_last_at) FROM execution_batch WHERE day < ?", beforeDay).Scan(&last); err != nil {
		return unavailable(err)
	}
	from := max(int64(beforeDay)*dayMillis, last.Int64+1)
	was, err := s.HistoryFrom(ctx)
	if err != nil || was >= from {
		return err
	}
	return s.inTx(ctx, s.main, func(tx *sql.Tx) error {
		if _, err := tx.ExecContext(ctx, "DELETE FROM ax_value WHERE name = ?", historyFrom); err != nil {
			return err
		}
		if _, err := tx.ExecContext(ctx, "INSERT INTO ax_value (name, value) VALUES (?, ?)", historyFrom, strconv.FormatInt(from, 10)); err != nil {
			return err
		}
		_, err := tx.ExecContext(ctx, "DELETE FROM trigger_period WHERE until_at > 0 AND until_at < ?", from)
		return err
	})
}

const dayMillis = 24 * 60 * 60 * 1000

// HistoryFrom is the moment from which on history is whole: what is older may have been dropped.
func (s *Store) HistoryFrom(ctx context.Context) (int64, error) {
	v, err := s.Value(ctx, historyFrom)
	if errors.Is(err, ErrNotFound) {
		return 0, nil
	}
	if err != nil {
		return 0, err
	}
	return strconv.ParseInt(v, 10, 64)
}

// Period is a stretch of time, (From, Until], in which a trigger was in force. Until 0 = it still is.
type Period struct {
	JobID       int64
	No          int
	From, Until int64
	Bucket      int
	Version     int64
	Spec        schedule.Spec
}

// Fate is a batch's row as the ledger's check reads it.
type Fate struct {
	JobID       int64
	BatchID     string
	No          int // 0 = no schedule made it
	DueAt       int64
	State       batch.State
	MissedCount int64
	MissedLast  int64
}

// Ledger reads a database for the check: on SQLite and MySQL alike only reads.
type Ledger struct {
	s *Store
}

// Ledger gives the rows that the ledger's check looks at.
func (s *Store) Ledger() Ledger { return Ledger{s} }

// Cursors is, for each bucket, up to when every firing has its row.
func (l Ledger) Cursors(ctx context.Context) (map[int]int64, error) {
	rows, err := l.s.read.QueryContext(ctx, "SELECT bucket, cursor_at FROM bucket_lease")
	if err != nil {
		return nil, unavailable(err)
	}
	defer func() { _ = rows.Close() }()
	out := map[int]int64{}
	for rows.Next() {
		var bucket int
		var at int64
		if err := rows.Scan(&bucket, &at); err != nil {
			return nil, unavailable(err)
		}
		out[bucket] = at
	}
	return out, unavailable(rows.Err())
}

// Whole tells whether the database has what the check needs: an older build's has not.
func (l Ledger) Whole(ctx context.Context) error {
	var n int64
	err := l.s.read.QueryRowContext(ctx, "SELECT COUNT(*) FROM (SELECT 1 FROM trigger_period LIMIT 1) x").Scan(&n)
	return unavailable(err)
}

// Jobs lists the jobs that have periods or history, by id.
func (l Ledger) Jobs(ctx context.Context) ([]int64, error) {
	rows, err := l.s.read.QueryContext(ctx, "SELECT DISTINCT job_id FROM trigger_period UNION SELECT DISTINCT job_id FROM execution_batch ORDER BY job_id")
	if err != nil {
		return nil, unavailable(fmt.Errorf("read jobs: %w", err))
	}
	return scanAll[int64](rows)
}

// JobTrigger names a trigger.
type JobTrigger struct {
	JobID int64
	No    int
}

// Hints are the next planned instants of the triggers of the jobs from low to high; a trigger without one
// has nothing planned.
func (l Ledger) Hints(ctx context.Context, low, high int64) (map[JobTrigger]int64, error) {
	rows, err := l.s.read.QueryContext(ctx, "SELECT job_id, no, next_due_hint FROM job_trigger WHERE job_id >= ? AND job_id <= ? AND next_due_hint IS NOT NULL", low, high)
	if err != nil {
		return nil, unavailable(err)
	}
	defer func() { _ = rows.Close() }()
	out := map[JobTrigger]int64{}
	for rows.Next() {
		var k JobTrigger
		var at int64
		if err := rows.Scan(&k.JobID, &k.No, &at); err != nil {
			return nil, unavailable(err)
		}
		out[k] = at
	}
	return out, unavailable(rows.Err())
}

// Periods lists the periods of the jobs from low to high, by job, trigger and time.
func (l Ledger) Periods(ctx context.Context, low, high int64) ([]Period, error) {
	rows, err := l.s.read.QueryContext(ctx, "SELECT job_id, no, from_at, until_at, bucket, version, spec FROM trigger_period WHERE job_id >= ? AND job_id <= ? ORDER BY job_id, no, from_at, version", low, high)
	if err != nil {
		return nil, unavailable(fmt.Errorf("read periods: %w", err))
	}
	defer func() { _ = rows.Close() }()
	var out []Period
	for rows.Next() {
		var p Period
		var spec []byte
		if err := rows.Scan(&p.JobID, &p.No, &p.From, &p.Until, &p.Bucket, &p.Version, &spec); err != nil {
			return nil, unavailable(err)
		}
		if err := json.Unmarshal(spec, &p.Spec); err != nil {
			return nil, fmt.Errorf("period of trigger %d of job %d: %w", p.No, p.JobID, err)
		}
		out = append(out, p)
	}
	return out, unavailable(rows.Err())
}

// Fates gives the batches of the jobs from low to high that are about a time in [from, to], by job and due
// time, to f.
func (l Ledger) Fates(ctx context.Context, low, high, from, to int64, f func(Fate)) error {
	rows, err := l.s.read.QueryContext(ctx, `SELECT job_id, batch_id, COALESCE(trigger_no, 0), due_at, state, missed_count, missed_last_at FROM execution_batch
		WHERE job_id >= ? AND job_id <= ? AND due_at <= ? AND (due_at >= ? OR missed_last_at >= ?) ORDER BY job_id, due_at, batch_id`, low, high, to, from, from)
	if err != nil {
		return unavailable(fmt.Errorf("read firings: %w", err))
	}
	defer func() { _ = rows.Close() }()
	for rows.Next() {
		var x Fate
		if err := rows.Scan(&x.JobID, &x.BatchID, &x.No, &x.DueAt, &x.State, &x.MissedCount, &x.MissedLast); err != nil {
			return unavailable(err)
		}
		f(x)
	}
	return unavailable(rows.Err())
}

// Start is an execution as the ledger's check reads it, with its batch's state ("" = it has no batch).
type Start struct {
	ID, JobID  int64
	BatchID    string
	Shard      int
	Status     batch.Run
	DueAt      int64
	ActualTime int64
	BatchState batch.State
}

// Starts gives the executions of the batches, due in [from, to], of the jobs from low to high, those of one
// shard together, to f.
func (l Ledger) Starts(ctx context.Context, low, high, from, to int64, f func(Start)) error {
	rows, err := l.s.read.QueryContext(ctx, `SELECT e.id, e.job_id, e.batch_id, e.shard, e.status, e.trigger_time, e.actual_time, COALESCE(b.state, '')
		FROM execution_log e LEFT JOIN execution_batch b ON b.due_at = e.trigger_time AND b.batch_id = e.batch_id AND b.day = e.day WHERE e.job_id >= ? AND e.job_id <= ? AND e.trigger_time >= ? AND e.trigger_time <= ? ORDER BY e.job_id, e.batch_id, e.shard`, low, high, from, to)
	if err != nil {
		return unavailable(fmt.Errorf("read executions: %w", err))
	}
	defer func() { _ = rows.Close() }()
	for rows.Next() {
		var x Start
		if err := rows.Scan(&x.ID, &x.JobID, &x.BatchID, &x.Shard, &x.Status, &x.DueAt, &x.ActualTime, &x.BatchState); err != nil {
			return unavailable(err)
		}
		f(x)
	}
	return unavailable(rows.Err())
}
