package store

import (
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/ax-scheduler/ax/internal/schedule"
)

// DueTrigger is a trigger whose time has come, or nearly.
type DueTrigger struct {
	JobID         int64
	No            int
	NS            int64
	AppID         int64
	JobVersion    int64
	Spec          schedule.Spec
	EffectiveFrom int64
	Hint          int64
}

// DueTriggers lists enabled triggers of a bucket whose hint is at or before until, in
// the order of the index, up to limit.
func (s *Store) DueTriggers(ctx context.Context, bucket int, until int64, limit int) ([]DueTrigger, error) {
	return s.dueTriggers(ctx, "t.bucket = ? AND t.next_due_hint <= ? ORDER BY t.next_due_hint LIMIT ?", bucket, until, limit)
}

// DueTriggersOf lists those of one job.
func (s *Store) DueTriggersOf(ctx context.Context, job, until int64) ([]DueTrigger, error) {
	return s.dueTriggers(ctx, "t.job_id = ? AND t.next_due_hint <= ? ORDER BY t.next_due_hint", job, until)
}

func (s *Store) dueTriggers(ctx context.Context, where string, args ...any) ([]DueTrigger, error) {
	rows, err := s.sched.QueryContext(ctx, `SELECT t.job_id, t.no, t.ns_id, j.app_id, j.version, t.spec, t.effective_from, t.next_due_hint
		FROM job_trigger t JOIN job_info j ON j.id = t.job_id WHERE `+where, args...)
	if err != nil {
		return nil, unavailable(fmt.Errorf("read due triggers: %w", err))
	}
	defer func() { _ = rows.Close() }()
	var out []DueTrigger
	for rows.Next() {
		var d DueTrigger
		var spec []byte
		if err := rows.Scan(&d.JobID, &d.No, &d.NS, &d.AppID, &d.JobVersion, &spec, &d.EffectiveFrom, &d.Hint); err != nil {
			return nil, unavailable(err)
		}
		if err := json.Unmarshal(spec, &d.Spec); err != nil {
			return nil, fmt.Errorf("trigger %d of job %d: %w", d.No, d.JobID, err)
		}
		out = append(out, d)
	}
	return out, unavailable(rows.Err())
}

// NextHints is the earliest hint of each bucket that has one planned.
func (s *Store) NextHints(ctx context.Context) (map[int]int64, error) {
	return s.nextInBuckets(ctx, "job_trigger", "next_due_hint")
}

// nextInBuckets is the least value of a column in each bucket that has one.
func (s *Store) nextInBuckets(ctx context.Context, table, column string) (map[int]int64, error) {
	// One seek for each bucket: the table may hold millions.
	parts := make([]string, Buckets)
	for i := range parts {
		parts[i] = fmt.Sprintf("SELECT %d AS bucket, (SELECT MIN(%s) FROM %s WHERE bucket = %d) AS due_at", i, column, table, i)
	}
	found, err := s.sched.QueryContext(ctx, strings.Join(parts, " UNION ALL "))
	if err != nil {
		return nil, unavailable(fmt.Errorf("read what is next in %s: %w", table, err))
	}
	defer func() { _ = found.Close() }()
	out := map[int]int64{}
	for found.Next() {
		var bucket int
		var due sql.NullInt64
		if err := found.Scan(&bucket, &due); err != nil {
			return nil, unavailable(err)
		}
		if due.Valid {
			out[bucket] = due.Int64
		}
	}
	return out, unavailable(found.Err())
}

// Hint moves a trigger: its next due time (0 = nothing planned), and what it has fired last (0 = nothing).
type Hint struct {
	JobID   int64
	No      int
	From    int64 // the hint that was read; a trigger edited meanwhile is left alone
	Next    int64
	FiredAt int64
	// Quiet leaves the job's row alone: it fires again soon, and takes its row along then.
	Quiet bool
}

// TriggerKey names one trigger of a job.
type TriggerKey struct {
	JobID int64
	No    int
}

// MoveHints writes the next due times of triggers and, from them, the job's last and
// next trigger time, where the hint is not quiet. It returns the triggers that were edited, switched off or deleted since they
// were read: they are left alone, and what was planned by the old reading must not be fired.
func (b *Bucket) MoveHints(list []Hint) (edited map[TriggerKey]bool, err error) {
	values := make([][]any, len(list))
	next := make(map[TriggerKey]int64, len(list))
	for i, h := range list {
		var at any
		if h.Next > 0 {
			at = h.Next
		}
		values[i] = []any{h.JobID, h.No, h.From, at}
		next[TriggerKey{h.JobID, h.No}] = h.Next
	}
	// A hint moves on in any case, so a row that was touched was changed.
	changed, err := b.updateEach("job_trigger", []string{"job_id", "no"}, []string{"was", "planned"}, "next_due_hint = v.planned", "t.next_due_hint = v.was", values)
	if err != nil {
		return nil, err
	}
	if changed != int64(len(list)) {
		if edited, err = b.editedTriggers(list, next); err != nil {
			return nil, err
		}
	}
	fired := map[int64]int64{}
	for _, h := range list {
		if !h.Quiet && !edited[TriggerKey{h.JobID, h.No}] {
			fired[h.JobID] = max(fired[h.JobID], h.FiredAt)
		}
	}
	return edited, b.refreshNext(fired)
}

// editedTriggers finds which triggers do not carry the hint that was just written.
func (b *Bucket) editedTriggers(list []Hint, next map[TriggerKey]int64) (map[TriggerKey]bool, error) {
	edited := make(map[TriggerKey]bool)
	for _, h := range list {
		edited[TriggerKey{h.JobID, h.No}] = true
	}
	for start := 0; start < len(list); start += group {
		part := list[start:min(start+group, len(list))]
		jobs := make([]any, len(part))
		for i, h := range part {
			jobs[i] = h.JobID
		}
		found, err := b.tx.QueryContext(b.ctx, "SELECT job_id, no, COALESCE(next_due_hint, 0) FROM job_trigger WHERE job_id IN ("+marks(len(jobs))+")", jobs...)
		if err != nil {
			return nil, fmt.Errorf("read triggers: %w", err)
		}
		for found.Next() {
			var k TriggerKey
			var at int64
			if err := found.Scan(&k.JobID, &k.No, &at); err != nil {
				_ = found.Close() //nolint:sqlclosecheck // a defer in a loop would keep them all open
				return nil, err
			}
			if want, ours := next[k]; ours && want == at {
				delete(edited, k)
			}
		}
		if err := errors.Join(found.Err(), found.Close()); err != nil {
			return nil, err
		}
	}
	return edited, nil
}

// refreshNext writes jobs' next trigger times from their triggers, and when they fired last, if that
// is not 0.
func (b *Bucket) refreshNext(fired map[int64]int64) error {
	values := make([][]any, 0, len(fired))
	for job, at := range fired {
		values = append(values, []any{job, at})
	}
	const set = "next_trigger_time = (SELECT MIN(x.next_due_hint) FROM job_trigger x WHERE x.job_id = v.id), last_trigger_time = CASE WHEN v.fired > 0 THEN v.fired ELSE last_trigger_time END"
	_, err := b.updateEach("job_info", []string{"id"}, []string{"fired"}, set, "", values)
	return err
}

// SetFixedDelay plans the next firing of a fixed-delay trigger, unless the job was
// switched off or the trigger changed meanwhile.
func (b *Bucket) SetFixedDelay(job int64, no int, finishedAt int64) (planned bool, err error) {
	var raw []byte
	err = b.tx.QueryRowContext(b.ctx, "SELECT spec FROM job_trigger WHERE job_id = ? AND no = ? AND kind = ? AND enabled = 1", job, no, string(schedule.FixedDelay)).Scan(&raw)
	if errors.Is(err, sql.ErrNoRows) {
		return false, nil
	}
	if err != nil {
		return false, fmt.Errorf("read trigger %d of job %d: %w", no, job, err)
	}
	var spec schedule.Spec
	if err := json.Unmarshal(raw, &spec); err != nil {
		return false, fmt.Errorf("trigger %d of job %d: %w", no, job, err)
	}
	s, err := schedule.Compile(spec)
	if err != nil {
		return false, fmt.Errorf("trigger %d of job %d: %w", no, job, err)
	}
	var next *int64 // NULL after the trigger's end: it never fires again
	if due, ok := s.AfterRun(time.UnixMilli(finishedAt)); ok {
		at := due.UnixMilli()
		next = &at
	}
	if _, err := b.tx.ExecContext(b.ctx, "UPDATE job_trigger SET next_due_hint = ? WHERE job_id = ? AND no = ?", next, job, no); err != nil {
		return false, fmt.Errorf("plan trigger %d of job %d: %w", no, job, err)
	}
	return next != nil, b.refreshNext(map[int64]int64{job: 0})
}

// Withdraw deletes batches that are planned and have certainly not been sent: memory
// has let go of them before. So an edit or a pause leaves nothing behind.
func (b *Bucket) Withdraw(batches map[string]int) error {
	return eachBatch(batches, func(day int, part []string) error {
		args := append([]any{day, b.f.Bucket}, keysOf(part)...)
		for _, statement := range []string{"DELETE FROM execution_log WHERE day = ? AND +bucket = ? AND " + b.s.ofBatches(len(part)), "DELETE FROM execution_batch WHERE day = ? AND +bucket = ? AND " + b.s.inBatches(len(part))} {
			if _, err := b.tx.ExecContext(b.ctx, statement, args...); err != nil {
				return fmt.Errorf("withdraw: %w", err)
			}
		}
		return nil
	})
}

// SweepDedupe deletes de-duplication keys that have expired, a few thousand at a time.
func (s *Store) SweepDedupe(ctx context.Context, now int64) error {
	if s.dialect == "sqlite" {
		_, err := s.main.ExecContext(ctx, "DELETE FROM dedupe_key WHERE expires_at < ?", now)
		return unavailable(err)
	}
	_, err := s.main.ExecContext(ctx, "DELETE FROM dedupe_key WHERE expires_at < ? LIMIT 5000", now)
	return unavailable(err)
}

// Stretch is planned instants of a trigger that have their row: one instant, or a span of missed ones.
type Stretch struct{ First, Last int64 }

// Fated lists, in their order, what of a trigger's instants from one to another has its row.
func (s *Store) Fated(ctx context.Context, job int64, no int, from, to int64) ([]Stretch, error) {
	before, err := s.stretches(ctx, "due_at < ? ORDER BY due_at DESC LIMIT 1", job, no, from) // a span may begin before
	if err != nil {
		return nil, err
	}
	within, err := s.stretches(ctx, "due_at >= ? AND due_at <= ? ORDER BY due_at", job, no, from, to)
	if err != nil {
		return nil, err
	}
	return slices.DeleteFunc(append(before, within...), func(x Stretch) bool { return x.Last < from }), nil
}

func (s *Store) stretches(ctx context.Context, where string, args ...any) (out []Stretch, err error) {
	rows, err := s.sched.QueryContext(ctx, "SELECT due_at, missed_last_at FROM execution_batch WHERE job_id = ? AND trigger_no = ? AND "+where, args...)
	if err != nil {
		return nil, unavailable(err)
	}
	defer func() { _ = rows.Close() }()
	for rows.Next() {
		var x Stretch
		if err := rows.Scan(&x.First, &x.Last); err != nil {
			return nil, unavailable(err)
		}
		x.Last = max(x.First, x.Last)
		out = append(out, x)
	}
	return out, unavailable(rows.Err())
}
