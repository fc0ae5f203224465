package store

import (
	"context"
	"crypto/sha256"
	"database/sql"
	"encoding/hex"
	"errors"
	"fmt"
	"math"
	"strings"

	"github.com/ax-scheduler/ax/sql/migrate"
)

// DelayedTask is a one-shot task that rests in its table until shortly before its time.
type DelayedTask struct {
	DueAt     int64
	ID        int64
	BatchID   string
	NS        int64
	JobID     int64
	Key       string // business key, "" = none
	Payload   *string
	CreatedBy string
	CreatedAt int64
}

const delayedColumns = "due_at, id, batch_id, ns_id, job_id, business_key, payload, created_by, created_at"

func scanDelayed(rows *sql.Rows) ([]DelayedTask, error) {
	defer func() { _ = rows.Close() }()
	var out []DelayedTask
	for rows.Next() {
		var d DelayedTask
		if err := rows.Scan(&d.DueAt, &d.ID, &d.BatchID, &d.NS, &d.JobID, &d.Key, &d.Payload, &d.CreatedBy, &d.CreatedAt); err != nil {
			return nil, err
		}
		out = append(out, d)
	}
	return out, rows.Err()
}

// statementBytes bounds the text of one statement, well below what servers take by default (16 MiB).
const statementBytes = 4 << 20

// inGroups calls f for parts of a list that fit into one statement.
func inGroups[T any](list []T, size func(T) int, f func(part []T) error) error {
	for start := 0; start < len(list); {
		end, bytes := start, 0
		for end < len(list) && end-start < group && (end == start || bytes+size(list[end]) <= statementBytes) {
			bytes += size(list[end])
			end++
		}
		if err := f(list[start:end]); err != nil {
			return err
		}
		start = end
	}
	return nil
}

func sizeOf(texts ...*string) int {
	n := 0
	for _, t := range texts {
		if t != nil {
			n += len(*t)
		}
	}
	return n
}

// InsertDelayed puts tasks into their table.
func (b *Bucket) InsertDelayed(list []DelayedTask) error {
	const width = 10
	return inGroups(list, func(d DelayedTask) int { return sizeOf(d.Payload) }, func(part []DelayedTask) error {
		args := make([]any, 0, len(part)*width)
		for _, d := range part {
			args = append(args, b.f.Bucket, d.DueAt, d.ID, d.BatchID, d.NS, d.JobID, d.Key, d.Payload, d.CreatedBy, d.CreatedAt)
		}
		if _, err := b.tx.ExecContext(b.ctx, "INSERT INTO delayed_task (bucket, "+delayedColumns+") VALUES "+rows(len(part), width), args...); err != nil {
			return fmt.Errorf("insert delayed tasks: %w", err)
		}
		return nil
	})
}

// TakeDelayed removes the tasks of the bucket that are due up to until, nearest first and at most
// limit, from their table and returns them: the caller makes them batches in the same transaction.
func (b *Bucket) TakeDelayed(until int64, limit int) ([]DelayedTask, error) {
	found, err := b.tx.QueryContext(b.ctx, "SELECT "+delayedColumns+" FROM delayed_task WHERE bucket = ? AND due_at <= ? ORDER BY due_at, id LIMIT ?", b.f.Bucket, until, limit)
	if err != nil {
		return nil, fmt.Errorf("read delayed tasks: %w", err)
	}
	list, err := scanDelayed(found)
	if err != nil || len(list) == 0 {
		return nil, err
	}
	// What was read is a range of the key: everything up to the last of them.
	last := list[len(list)-1]
	if _, err := b.tx.ExecContext(b.ctx, "DELETE FROM delayed_task WHERE bucket = ? AND (due_at < ? OR due_at = ? AND id <= ?)", b.f.Bucket, last.DueAt, last.DueAt, last.ID); err != nil {
		return nil, fmt.Errorf("remove delayed tasks: %w", err)
	}
	return list, nil
}

// RemoveDelayed removes one task from its table and returns it; ErrNotFound when it does not rest there.
func (b *Bucket) RemoveDelayed(ns int64, batchID string) (DelayedTask, error) {
	found, err := b.tx.QueryContext(b.ctx, "SELECT "+delayedColumns+" FROM delayed_task WHERE batch_id = ? AND ns_id = ? AND bucket = ?", batchID, ns, b.f.Bucket)
	if err != nil {
		return DelayedTask{}, fmt.Errorf("read delayed task: %w", err)
	}
	list, err := scanDelayed(found)
	if err != nil {
		return DelayedTask{}, err
	}
	if len(list) == 0 {
		return DelayedTask{}, ErrNotFound
	}
	if _, err := b.tx.ExecContext(b.ctx, "DELETE FROM delayed_task WHERE bucket = ? AND due_at = ? AND id = ?", b.f.Bucket, list[0].DueAt, list[0].ID); err != nil {
		return DelayedTask{}, fmt.Errorf("remove delayed task: %w", err)
	}
	return list[0], nil
}

// JobHeads reads version and app of the jobs of some tasks; jobs that were deleted are left out.
func (b *Bucket) JobHeads(list []DelayedTask) (map[int64]Job, error) {
	seen := map[int64]bool{}
	var ids []any
	for _, d := range list {
		if !seen[d.JobID] {
			seen[d.JobID] = true
			ids = append(ids, d.JobID)
		}
	}
	found, err := b.tx.QueryContext(b.ctx, "SELECT id, ns_id, app_id, version FROM job_info WHERE id IN ("+marks(len(ids))+")", ids...)
	if err != nil {
		return nil, fmt.Errorf("read jobs: %w", err)
	}
	defer func() { _ = found.Close() }()
	out := map[int64]Job{}
	for found.Next() {
		j := Job{Bucket: b.f.Bucket}
		if err := found.Scan(&j.ID, &j.NS, &j.AppID, &j.Version); err != nil {
			return nil, err
		}
		out[j.ID] = j
	}
	return out, found.Err()
}

// NextDelayed is when the nearest resting task of each bucket is due.
func (s *Store) NextDelayed(ctx context.Context) (map[int]int64, error) {
	return s.nextInBuckets(ctx, "delayed_task", "due_at")
}

// Delayed reads one resting task of a namespace; ErrNotFound when it does not rest.
func (s *Store) Delayed(ctx context.Context, ns int64, batchID string) (DelayedTask, error) {
	found, err := s.read.QueryContext(ctx, "SELECT "+delayedColumns+" FROM delayed_task WHERE batch_id = ? AND ns_id = ?", batchID, ns)
	if err != nil {
		return DelayedTask{}, unavailable(err)
	}
	list, err := scanDelayed(found)
	if err != nil {
		return DelayedTask{}, unavailable(err)
	}
	if len(list) == 0 {
		return DelayedTask{}, ErrNotFound
	}
	return list[0], nil
}

// DelayedFilter selects delayed tasks.
type DelayedFilter struct {
	Job      int64
	BatchID  string // the one that a business key stands for
	States   []string
	From, To int64 // due at or after, due before
	// AfterDue and AfterID are the last of the page before.
	AfterDue int64
	AfterID  string
	Limit    int
}

func (f DelayedFilter) where(table string) (string, []any) {
	where, args := "", []any{}
	add := func(text string, values ...any) {
		where, args = where+" AND "+strings.ReplaceAll(text, "t.", table+"."), append(args, values...)
	}
	if f.Job != 0 {
		add("t.job_id = ?", f.Job)
	}
	if f.BatchID != "" {
		add("t.due_at = ?", dueOf(f.BatchID))
		add("t.batch_id = ?", f.BatchID)
	}
	if f.From > 0 {
		add("t.due_at >= ?", f.From)
	}
	if f.To > 0 {
		add("t.due_at < ?", f.To)
	}
	if f.AfterID != "" {
		add("(t.due_at > ? OR t.due_at = ? AND t.batch_id > ?)", f.AfterDue, f.AfterDue, f.AfterID)
	}
	return where, args
}

// RestingTasks lists a namespace's tasks that rest in their table, nearest first.
func (s *Store) RestingTasks(ctx context.Context, ns int64, f DelayedFilter) ([]DelayedTask, error) {
	where, args := f.where("delayed_task")
	found, err := s.read.QueryContext(ctx, "SELECT "+delayedColumns+" FROM delayed_task WHERE ns_id = ?"+where+" ORDER BY due_at, batch_id LIMIT ?", append(append([]any{ns}, args...), f.Limit)...)
	if err != nil {
		return nil, unavailable(err)
	}
	list, err := scanDelayed(found)
	return list, unavailable(err)
}

// DelayedBatches lists a namespace's batches of delayed tasks, nearest first.
func (s *Store) DelayedBatches(ctx context.Context, ns int64, f DelayedFilter) ([]Batch, error) {
	where, args := f.where("b")
	if len(f.States) > 0 {
		where, args = where+" AND b.state IN ("+marks(len(f.States))+")", append(args, anys(f.States)...)
	}
	found, err := s.read.QueryContext(ctx, "SELECT "+batchColumns+" FROM execution_batch b LEFT JOIN job_info j ON j.id = b.job_id WHERE b.ns_id = ? AND b.trigger_kind = 'delayed'"+where+" ORDER BY b.due_at, b.batch_id LIMIT ?", append(append([]any{ns}, args...), f.Limit)...)
	if err != nil {
		return nil, unavailable(err)
	}
	defer func() { _ = found.Close() }()
	var out []Batch
	for found.Next() {
		v, err := scanBatch(found)
		if err != nil {
			return nil, unavailable(err)
		}
		out = append(out, v)
	}
	return out, unavailable(found.Err())
}

// ScopeDelayed is the scope of the business keys of delayed tasks.
const ScopeDelayed = "delayed"

// KeyHash is how a key is kept: keys may be long and say things.
func KeyHash(key string) string {
	sum := sha256.Sum256([]byte(key))
	return hex.EncodeToString(sum[:])
}

// Forever is the expiry of a key whose batch has not ended.
const Forever = math.MaxInt64 / 2

// DedupeKey is a key that stands for a batch.
type DedupeKey struct {
	NS        int64
	JobID     int64
	Scope     string
	Hash      string
	BodyHash  string
	BatchID   string
	ExpiresAt int64
	WindowMs  int64 // kept beyond the end of the batch
}

// Keys reads which of some keys of a job are taken at now.
func (b *Bucket) Keys(ns, job int64, scope string, hashes []string, now int64) (map[string]DedupeKey, error) {
	out := map[string]DedupeKey{}
	for start := 0; start < len(hashes); start += group {
		part := hashes[start:min(start+group, len(hashes))]
		found, err := b.tx.QueryContext(b.ctx, "SELECT key_hash, body_hash, batch_id, expires_at, window_ms FROM dedupe_key WHERE ns_id = ? AND job_id = ? AND scope = ? AND key_hash IN ("+marks(len(part))+") AND expires_at > ?", append(append([]any{ns, job, scope}, anys(part)...), now)...)
		if err != nil {
			return nil, fmt.Errorf("read dedupe keys: %w", err)
		}
		for found.Next() {
			k := DedupeKey{NS: ns, JobID: job, Scope: scope}
			if err := found.Scan(&k.Hash, &k.BodyHash, &k.BatchID, &k.ExpiresAt, &k.WindowMs); err != nil {
				_ = found.Close() //nolint:sqlclosecheck // a defer in a loop would keep them all open
				return nil, err
			}
			out[k.Hash] = k
		}
		if err := errors.Join(found.Err(), found.Close()); err != nil {
			return nil, err
		}
	}
	return out, nil
}

// PutKeys writes keys that are free: expired ones of the same name give way.
func (b *Bucket) PutKeys(list []DedupeKey) error {
	const width = 8
	conflict := " ON DUPLICATE KEY UPDATE body_hash = VALUES(body_hash), batch_id = VALUES(batch_id), expires_at = VALUES(expires_at), window_ms = VALUES(window_ms)"
	if b.s.dialect == migrate.SQLite {
		conflict = " ON CONFLICT DO UPDATE SET body_hash = excluded.body_hash, batch_id = excluded.batch_id, expires_at = excluded.expires_at, window_ms = excluded.window_ms"
	}
	for start := 0; start < len(list); start += group {
		part := list[start:min(start+group, len(list))]
		args := make([]any, 0, len(part)*width)
		for _, k := range part {
			args = append(args, k.NS, k.JobID, k.Scope, k.Hash, k.BodyHash, k.BatchID, k.ExpiresAt, k.WindowMs)
		}
		if _, err := b.tx.ExecContext(b.ctx, "INSERT INTO dedupe_key (ns_id, job_id, scope, key_hash, body_hash, batch_id, expires_at, window_ms) VALUES "+rows(len(part), width)+conflict, args...); err != nil {
			return fmt.Errorf("write dedupe keys: %w", err)
		}
	}
	return nil
}

// KeyEnd says from when on a key of a batch counts down.
type KeyEnd struct {
	NS      int64
	JobID   int64
	Scope   string
	Hash    string
	BatchID string
	// EndedAt is the end of the batch; the key expires its window later. Forever holds it.
	EndedAt int64
	// Free lets it go at once.
	Free bool
}

// EndKeys sets the expiry of keys. One that stands for another batch by now is left alone.
func (b *Bucket) EndKeys(list []KeyEnd) error {
	values := make([][]any, len(list))
	for i, k := range list {
		keep := 1
		if k.Free {
			keep = 0
		}
		values[i] = []any{k.NS, k.JobID, k.Scope, k.Hash, k.BatchID, k.EndedAt, keep}
	}
	_, err := b.updateEach("dedupe_key", []string{"ns_id", "job_id", "scope", "key_hash"}, []string{"batch", "ended_at", "keep"}, "expires_at = v.ended_at + v.keep * window_ms", "t.batch_id = v.batch", values)
	return err
}

// Key reads which batch a key stands for; "" when it is free.
func (s *Store) Key(ctx context.Context, ns, job int64, scope, hash string, now int64) (batchID string, err error) {
	err = s.read.QueryRowContext(ctx, "SELECT batch_id FROM dedupe_key WHERE ns_id = ? AND job_id = ? AND scope = ? AND key_hash = ? AND expires_at > ?", ns, job, scope, hash, now).Scan(&batchID)
	if errors.Is(err, sql.ErrNoRows) {
		return "", nil
	}
	return batchID, unavailable(err)
}

// BatchTexts reads the events of batches, whose texts are not kept in memory while they wait.
func (s *Store) BatchTexts(ctx context.Context, batches map[string]int) (map[string]string, error) {
	out := make(map[string]string, len(batches))
	err := eachBatch(batches, func(day int, part []string) error {
		found, err := s.sched.QueryContext(ctx, "SELECT batch_id, event FROM execution_batch WHERE day = ? AND event IS NOT NULL AND "+s.inBatches(len(part)), append([]any{day}, keysOf(part)...)...)
		if err != nil {
			return fmt.Errorf("read events: %w", err)
		}
		defer func() { _ = found.Close() }()
		for found.Next() {
			var id, text string
			if err := found.Scan(&id, &text); err != nil {
				return err
			}
			out[id] = text
		}
		return found.Err()
	})
	return out, unavailable(err)
}
