package store

import (
	"context"
	"database/sql"
	"errors"
	"strings"

	"github.com/ax-scheduler/ax/internal/batch"
)

// Batch is a row of execution_batch as the console shows it.
type Batch struct {
	ID          string
	Day         int
	NS          int64
	JobID       int64
	JobName     string
	AppName     string
	JobVersion  int64
	TriggerNo   int
	TriggerKind string
	DueAt       int64
	PlannedFor  int64
	State       batch.State
	Priority    int
	ShardTotal  int
	ShardsDone  int
	ShardsFail  int
	Params      *string
	Event       *string
	Key         string // business key of a delayed task
	Reason      string
	Detail      string
	MissedCount int64
	MissedLast  int64
	CreatedBy   string
	CreatedAt   int64
	StartedAt   int64
	FinishedAt  int64
}

const batchColumns = "b.batch_id, b.day, b.ns_id, b.job_id, COALESCE(j.name, ''), COALESCE(j.app_name, ''), b.job_version, COALESCE(b.trigger_no, 0), b.trigger_kind, b.due_at, b.planned_for, b.state, b.priority, b.shard_total, b.shards_done, b.shards_failed, b.params, b.event, b.business_key, b.reason, b.reason_detail, b.missed_count, b.missed_last_at, b.created_by, b.created_at, b.started_at, b.finished_at"

func scanBatch(row interface{ Scan(...any) error }) (Batch, error) {
	var v Batch
	err := row.Scan(&v.ID, &v.Day, &v.NS, &v.JobID, &v.JobName, &v.AppName, &v.JobVersion, &v.TriggerNo, &v.TriggerKind, &v.DueAt, &v.PlannedFor, &v.State, &v.Priority, &v.ShardTotal, &v.ShardsDone, &v.ShardsFail,
		&v.Params, &v.Event, &v.Key, &v.Reason, &v.Detail, &v.MissedCount, &v.MissedLast, &v.CreatedBy, &v.CreatedAt, &v.StartedAt, &v.FinishedAt)
	return v, err
}

// HistoryFilter narrows lists of batches and executions. Zero fields do not filter.
type HistoryFilter struct {
	Job      int64
	States   []string
	From, To int64 // due at
	// After is where the page before ended: due time and id.
	AfterDue int64
	AfterID  string
	Limit    int
}

// Batches lists a namespace's batches, latest due first, paged by key.
func (s *Store) Batches(ctx context.Context, ns int64, f HistoryFilter) ([]Batch, error) {
	where, args := []string{"b.ns_id = ?"}, []any{ns}
	if f.Job != 0 {
		where, args = append(where, "b.job_id = ?"), append(args, f.Job)
	}
	if len(f.States) > 0 {
		where, args = append(where, "b.state IN ("+marks(len(f.States))+")"), append(args, anys(f.States)...)
	}
	if f.From > 0 {
		// The day bounds the partitions that are looked at.
		where, args = append(where, "b.due_at >= ?", "b.day >= ?"), append(args, f.From, batch.Day(f.From))
	}
	if f.To > 0 {
		where, args = append(where, "b.due_at < ?", "b.day <= ?"), append(args, f.To, batch.Day(f.To))
	}
	if f.AfterID != "" {
		where, args = append(where, "(b.due_at < ? OR (b.due_at = ? AND b.batch_id < ?))"), append(args, f.AfterDue, f.AfterDue, f.AfterID)
	}
	rows, err := s.read.QueryContext(ctx, "SELECT "+batchColumns+" FROM execution_batch b LEFT JOIN job_info j ON j.id = b.job_id WHERE "+strings.Join(where, " AND ")+" ORDER BY b.due_at DESC, b.batch_id DESC LIMIT ?", append(args, f.Limit)...)
	if err != nil {
		return nil, unavailable(err)
	}
	defer func() { _ = rows.Close() }()
	var out []Batch
	for rows.Next() {
		v, err := scanBatch(rows)
		if err != nil {
			return nil, unavailable(err)
		}
		out = append(out, v)
	}
	return out, unavailable(rows.Err())
}

// Batch reads one batch of a namespace.
func (s *Store) Batch(ctx context.Context, ns int64, id string) (Batch, error) {
	_, day, ok := batch.ParseID(id)
	if !ok {
		return Batch{}, ErrNotFound
	}
	v, err := scanBatch(s.read.QueryRowContext(ctx, "SELECT "+batchColumns+" FROM execution_batch b LEFT JOIN job_info j ON j.id = b.job_id WHERE b.ns_id = ? AND b.due_at = ? AND b.batch_id = ? AND b.day = ?", ns, dueOf(id), id, day))
	if errors.Is(err, sql.ErrNoRows) {
		return v, ErrNotFound
	}
	return v, unavailable(err)
}

// Attempt is a row of execution_log as the console shows it.
type Attempt struct {
	ID            int64
	Day           int
	NS            int64
	JobID         int64
	JobName       string
	BatchID       string
	Shard         int
	ShardTotal    int
	Attempt       int
	Moves         int
	Status        batch.Run
	TriggerTime   int64
	NotBefore     int64
	DispatchedAt  int64
	ActualTime    int64
	FinishedAt    int64
	WorkerID      int64
	WorkerAddress string
	Duration      sql.NullInt64
	Waited        sql.NullInt64
	PeakMemoryMB  int64 // 0 = not known
	Error         string
	Result        *string
	Progress      sql.NullInt64
	OutputBytes   int64
	StopAskedAt   int64
	StopReason    string
	StopConfirmed bool
	StopAskedBy   string // "" = ax itself
	StopTakenAt   int64  // its executor acknowledged the wish
	StopGoneAt    int64  // it is known since then not to run any more; 0 although confirmed: since its end
	Code          string
}

const attemptColumns = "e.id, e.day, e.ns_id, e.job_id, COALESCE(j.name, ''), e.batch_id, e.shard, e.shard_total, e.attempt, e.moves, e.status, e.trigger_time, e.not_before, e.dispatched_at, e.actual_time, e.finished_at, e.worker_id, e.worker_address, NULLIF(e.duration, -1), NULLIF(e.waited, -1), COALESCE(e.peak_memory_mb, 0), e.error, e.result, e.progress, e.output_bytes, COALESCE(e.stop_asked_at, 0), e.stop_reason, e.stop_confirmed, e.stop_asked_by, COALESCE(e.stop_acknowledged_at, 0), COALESCE(e.stop_confirmed_at, 0), e.code"

func scanAttempts(rows *sql.Rows) ([]Attempt, error) {
	defer func() { _ = rows.Close() }()
	var out []Attempt
	for rows.Next() {
		var a Attempt
		if err := rows.Scan(&a.ID, &a.Day, &a.NS, &a.JobID, &a.JobName, &a.BatchID, &a.Shard, &a.ShardTotal, &a.Attempt, &a.Moves, &a.Status, &a.TriggerTime, &a.NotBefore, &a.DispatchedAt, &a.ActualTime, &a.FinishedAt,
			&a.WorkerID, &a.WorkerAddress, &a.Duration, &a.Waited, &a.PeakMemoryMB, &a.Error, &a.Result, &a.Progress, &a.OutputBytes, &a.StopAskedAt, &a.StopReason, &a.StopConfirmed, &a.StopAskedBy, &a.StopTakenAt, &a.StopGoneAt, &a.Code); err != nil {
			return nil, unavailable(err)
		}
		out = append(out, a)
	}
	return out, unavailable(rows.Err())
}

// Attempts lists a batch's executions by shard and attempt.
func (s *Store) Attempts(ctx context.Context, ns int64, batchID string) ([]Attempt, error) {
	_, day, ok := batch.ParseID(batchID)
	if !ok {
		return nil, ErrNotFound
	}
	rows, err := s.read.QueryContext(ctx, "SELECT "+attemptColumns+" FROM execution_log e LEFT JOIN job_info j ON j.id = e.job_id WHERE e.ns_id = ? AND e.trigger_time = ? AND e.batch_id = ? AND e.day = ? ORDER BY e.shard, e.attempt LIMIT 10000", ns, dueOf(batchID), batchID, day)
	if err != nil {
		return nil, unavailable(err)
	}
	return scanAttempts(rows)
}

// Attempt reads one execution of a namespace.
func (s *Store) Attempt(ctx context.Context, ns, id int64) (Attempt, error) {
	rows, err := s.read.QueryContext(ctx, "SELECT "+attemptColumns+" FROM execution_log e LEFT JOIN job_info j ON j.id = e.job_id WHERE e.ns_id = ? AND e.id = ? AND e.day = ?", ns, id, batch.ExecutionDay(id))
	if err != nil {
		return Attempt{}, unavailable(err)
	}
	list, err := scanAttempts(rows)
	if err != nil {
		return Attempt{}, err
	}
	if len(list) == 0 {
		return Attempt{}, ErrNotFound
	}
	return list[0], nil
}

// AttemptList lists a namespace's executions, latest trigger time first, paged by key.
// AfterID of the filter is the decimal id of the last one of the page before.
func (s *Store) AttemptList(ctx context.Context, ns int64, f HistoryFilter, afterID int64) ([]Attempt, error) {
	where, args := []string{"e.ns_id = ?"}, []any{ns}
	if f.Job != 0 {
		where, args = append(where, "e.job_id = ?"), append(args, f.Job)
	}
	if len(f.States) > 0 {
		where, args = append(where, "e.status IN ("+marks(len(f.States))+")"), append(args, anys(f.States)...)
	}
	if f.From > 0 {
		where, args = append(where, "e.trigger_time >= ?", "e.day >= ?"), append(args, f.From, batch.Day(f.From))
	}
	if f.To > 0 {
		where, args = append(where, "e.trigger_time < ?", "e.day <= ?"), append(args, f.To, batch.Day(f.To))
	}
	if afterID > 0 {
		where, args = append(where, "(e.trigger_time < ? OR (e.trigger_time = ? AND e.id < ?))"), append(args, f.AfterDue, f.AfterDue, afterID)
	}
	rows, err := s.read.QueryContext(ctx, "SELECT "+attemptColumns+" FROM execution_log e LEFT JOIN job_info j ON j.id = e.job_id WHERE "+strings.Join(where, " AND ")+" ORDER BY e.trigger_time DESC, e.id DESC LIMIT ?", append(args, f.Limit)...)
	if err != nil {
		return nil, unavailable(err)
	}
	return scanAttempts(rows)
}

// BatchEvent is a row of execution_event.
type BatchEvent struct {
	ExecutionID int64
	At          int64
	Kind        string
	Detail      string
}

// BatchEvents lists the deviations of a batch in order, at most 1000.
func (s *Store) BatchEvents(ctx context.Context, ns int64, batchID string) ([]BatchEvent, error) {
	_, day, ok := batch.ParseID(batchID)
	if !ok {
		return nil, ErrNotFound
	}
	rows, err := s.read.QueryContext(ctx, "SELECT execution_id, at, kind, detail FROM execution_event WHERE ns_id = ? AND batch_id = ? AND day = ? ORDER BY at, id LIMIT 1000", ns, batchID, day)
	if err != nil {
		return nil, unavailable(err)
	}
	defer func() { _ = rows.Close() }()
	var out []BatchEvent
	for rows.Next() {
		var e BatchEvent
		if err := rows.Scan(&e.ExecutionID, &e.At, &e.Kind, &e.Detail); err != nil {
			return nil, unavailable(err)
		}
		out = append(out, e)
	}
	return out, unavailable(rows.Err())
}

// Recent is a batch in a job's strip of last results.
type Recent struct {
	BatchID string
	State   string
	DueAt   int64
}

// RecentBatches reads the last n batches of each of some jobs, latest first.
func (s *Store) RecentBatches(ctx context.Context, ns int64, jobs []int64, n int) (map[int64][]Recent, error) {
	out := make(map[int64][]Recent, len(jobs))
	for _, id := range jobs {
		rows, err := s.read.QueryContext(ctx, "SELECT batch_id, state, due_at FROM execution_batch WHERE job_id = ? AND ns_id = ? ORDER BY due_at DESC, batch_id DESC LIMIT ?", id, ns, n)
		if err != nil {
			return nil, unavailable(err)
		}
		for rows.Next() {
			var r Recent
			if err := rows.Scan(&r.BatchID, &r.State, &r.DueAt); err != nil {
				_ = rows.Close() //nolint:sqlclosecheck // a defer in a loop would keep them all open
				return nil, unavailable(err)
			}
			out[id] = append(out[id], r)
		}
		if err := errors.Join(rows.Err(), rows.Close()); err != nil {
			return nil, unavailable(err)
		}
	}
	return out, nil
}

// StateCount is how many batches of a namespace are in a state.
type StateCount struct {
	State string
	Count int64
}

// CountBatches counts a namespace's batches by state that were due since from, at most
// 100 000 of them.
func (s *Store) CountBatches(ctx context.Context, ns, from, to int64) ([]StateCount, error) {
	rows, err := s.read.QueryContext(ctx, "SELECT state, COUNT(*) FROM (SELECT state FROM execution_batch WHERE ns_id = ? AND day >= ? AND due_at >= ? AND due_at < ? LIMIT 100000) x GROUP BY state", ns, batch.Day(from), from, to)
	if err != nil {
		return nil, unavailable(err)
	}
	defer func() { _ = rows.Close() }()
	var out []StateCount
	for rows.Next() {
		var c StateCount
		if err := rows.Scan(&c.State, &c.Count); err != nil {
			return nil, unavailable(err)
		}
		out = append(out, c)
	}
	return out, unavailable(rows.Err())
}

// CountJobs counts a namespace's jobs.
func (s *Store) CountJobs(ctx context.Context, ns int64) (all, enabled int64, err error) {
	err = s.read.QueryRowContext(ctx, "SELECT COUNT(*), COALESCE(SUM(CASE WHEN status = 'enabled' THEN 1 ELSE 0 END), 0) FROM job_info WHERE ns_id = ?", ns).Scan(&all, &enabled)
	return all, enabled, unavailable(err)
}
