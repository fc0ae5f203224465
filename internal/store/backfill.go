package store

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"slices"

	"github.com/ax-scheduler/ax/internal/batch"
)

// KindBackfill is the trigger kind of a backfill's batches.
const KindBackfill = "backfill"

// Backfill is one request to run a job for planned instants of the past.
type Backfill struct {
	ID         int64
	Day        int
	NS         int64
	JobID      int64
	JobVersion int64
	No         int // of the trigger
	From, To   int64
	Again      bool
	MaxActive  int
	KeyHash    string // "" = asked for without an idempotency key
	BodyHash   string
	// Answer is what was answered; "" until all its batches are made.
	Answer string
	By     string
	At     int64
}

// BackfillByKey finds the backfill that an idempotency key made. ErrNotFound: none.
func (b *Bucket) BackfillByKey(ns, job int64, keyHash string) (Backfill, error) {
	f := Backfill{NS: ns, JobID: job, KeyHash: keyHash}
	err := b.tx.QueryRowContext(b.ctx, "SELECT id, day, job_version, trigger_no, from_at, to_at, again, max_active, body_hash, COALESCE(answer, ''), created_by, created_at FROM backfill WHERE ns_id = ? AND job_id = ? AND key_hash = ?", ns, job, keyHash).
		Scan(&f.ID, &f.Day, &f.JobVersion, &f.No, &f.From, &f.To, &f.Again, &f.MaxActive, &f.BodyHash, &f.Answer, &f.By, &f.At)
	if errors.Is(err, sql.ErrNoRows) {
		return f, ErrNotFound
	}
	if err != nil {
		return f, fmt.Errorf("read backfill: %w", err)
	}
	return f, nil
}

// JobsThere says which of some jobs have not been deleted.
func (b *Bucket) JobsThere(ids ...int64) (map[int64]bool, error) {
	out := make(map[int64]bool, len(ids))
	for part := range slices.Chunk(ids, group) {
		rows, err := b.tx.QueryContext(b.ctx, "SELECT id FROM job_info WHERE id IN ("+marks(len(part))+")", anys(part)...)
		if err != nil {
			return nil, fmt.Errorf("look for jobs: %w", err)
		}
		found, err := scanAll[int64](rows)
		if err != nil {
			return nil, fmt.Errorf("look for jobs: %w", err)
		}
		for _, id := range found {
			out[id] = true
		}
	}
	return out, nil
}

// AddBackfill writes a new backfill.
func (b *Bucket) AddBackfill(f Backfill) error {
	var key any
	if f.KeyHash != "" {
		key = f.KeyHash
	}
	again := 0
	if f.Again {
		again = 1
	}
	if _, err := b.tx.ExecContext(b.ctx, "INSERT INTO backfill (id, day, ns_id, job_id, job_version, trigger_no, from_at, to_at, again, max_active, key_hash, body_hash, created_by, created_at) VALUES ("+marks(14)+")",
		f.ID, f.Day, f.NS, f.JobID, f.JobVersion, f.No, f.From, f.To, again, f.MaxActive, key, f.BodyHash, cut(f.By, 128), f.At); err != nil {
		return fmt.Errorf("add backfill: %w", err)
	}
	return nil
}

// BackfillDone keeps what a backfill answered: all its batches are made.
func (b *Bucket) BackfillDone(id int64, answer string) error {
	if _, err := b.tx.ExecContext(b.ctx, "UPDATE backfill SET answer = ? WHERE id = ?", answer, id); err != nil {
		return fmt.Errorf("end backfill: %w", err)
	}
	return nil
}

// BackfillBatch says which planned instant a batch of a backfill is for.
type BackfillBatch struct {
	BatchID    string
	Day        int
	NS         int64
	JobID      int64
	No         int
	PlannedFor int64
	Backfill   int64
	MaxActive  int
}

// AddBackfillBatches writes what the batches of a backfill are for.
func (b *Bucket) AddBackfillBatches(list []BackfillBatch) error {
	const width = 9
	for start := 0; start < len(list); start += group {
		part := list[start:min(start+group, len(list))]
		args := make([]any, 0, len(part)*width)
		for _, r := range part {
			args = append(args, r.BatchID, dueOf(r.BatchID), r.Day, r.NS, r.JobID, r.No, r.PlannedFor, r.Backfill, r.MaxActive)
		}
		if _, err := b.tx.ExecContext(b.ctx, "INSERT INTO backfill_batch (batch_id, due_at, day, ns_id, job_id, trigger_no, planned_for, backfill_id, max_active) VALUES "+rows(len(part), width), args...); err != nil {
			return fmt.Errorf("add batches of a backfill: %w", err)
		}
	}
	return nil
}

// BackfillOf reads what a batch of a backfill is for.
func (s *Store) BackfillOf(ctx context.Context, batchID string) (BackfillBatch, error) {
	f := BackfillBatch{BatchID: batchID}
	err := s.sched.QueryRowContext(ctx, "SELECT day, ns_id, job_id, trigger_no, planned_for, backfill_id, max_active FROM backfill_batch WHERE batch_id = ?", batchID).
		Scan(&f.Day, &f.NS, &f.JobID, &f.No, &f.PlannedFor, &f.Backfill, &f.MaxActive)
	if errors.Is(err, sql.ErrNoRows) {
		return f, ErrNotFound
	}
	if err != nil {
		return f, unavailable(fmt.Errorf("read backfill of %s: %w", batchID, err))
	}
	return f, nil
}

// Instant is a batch that was made for a planned instant.
type Instant struct {
	PlannedFor int64
	BatchID    string
	State      batch.State
	Backfill   int64 // 0 = its trigger fired it
}

// Instants lists the batches, fired or of backfills, for planned instants of a trigger; planned is ascending.
func (b *Bucket) Instants(job int64, no int, planned []int64) ([]Instant, error) {
	var out []Instant
	for start := 0; start < len(planned); start += group {
		part := planned[start:min(start+group, len(planned))]
		args := append([]any{job, no}, anys(part)...)
		args = append(args, job, no)
		args = append(args, anys(part)...)
		// A firing is due when it is planned, and its day follows from that.
		found, err := b.tx.QueryContext(b.ctx, "SELECT due_at, batch_id, state, 0 FROM execution_batch WHERE job_id = ? AND trigger_no = ? AND due_at IN ("+marks(len(part))+`)
			UNION ALL SELECT f.planned_for, f.batch_id, e.state, f.backfill_id FROM backfill_batch f JOIN execution_batch e ON e.due_at = f.due_at AND e.batch_id = f.batch_id AND e.day = f.day
			WHERE f.job_id = ? AND f.trigger_no = ? AND f.planned_for IN (`+marks(len(part))+")", args...)
		if err != nil {
			return nil, fmt.Errorf("read batches of planned instants: %w", err)
		}
		for found.Next() {
			var i Instant
			if err := found.Scan(&i.PlannedFor, &i.BatchID, &i.State, &i.Backfill); err != nil {
				_ = found.Close() //nolint:sqlclosecheck // a defer in a loop would keep them all open
				return nil, err
			}
			out = append(out, i)
		}
		if err := errors.Join(found.Err(), found.Close()); err != nil {
			return nil, err
		}
	}
	return out, nil
}

// Cancel ends batches that have not started, with all their executions: CANCELLED.
func (b *Bucket) Cancel(batches map[string]int, executions []int64, reason, detail string, now int64) error {
	return b.unstarted(batches, executions, batch.EventCancel, reason, detail, now)
}

// dropBackfills deletes what is known of backfills before a day, in steps; their batches are gone.
func (s *Store) dropBackfills(ctx context.Context, beforeDay int) (total int64, err error) {
	const step = 2000
	for table, key := range map[string]string{"backfill": "id", "backfill_batch": "batch_id"} {
		for n := int64(step); n == step; {
			// MySQL takes no LIMIT right within IN.
			res, err := s.main.ExecContext(ctx, "DELETE FROM "+table+" WHERE "+key+" IN (SELECT "+key+" FROM (SELECT "+key+" FROM "+table+" WHERE day < ? LIMIT ?) x)", beforeDay, step)
			if err != nil {
				return total, unavailable(fmt.Errorf("drop backfills: %w", err))
			}
			n, _ = res.RowsAffected()
			total += n
		}
	}
	return total, nil
}
