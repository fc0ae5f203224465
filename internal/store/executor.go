package store

import (
	"context"
	"database/sql"
	"errors"
	"fmt"

	"github.com/ax-scheduler/ax/internal/batch"
)

// Executor states.
const (
	ExecutorPending = "PENDING" // registered, its address is not yet proven
	ExecutorOnline  = "ONLINE"
	ExecutorSuspect = "SUSPECT"  // three heartbeats missed: no new work
	ExecutorOffline = "OFFLINE"  // left, or removed after a failed probe
	ExecutorDrained = "DRAINING" // said that it takes no new work
	ExecutorRefused = "REFUSED"  // its address may not or can not be reached
)

// Executor is one process of an app, as it is remembered.
type Executor struct {
	ID           int64 `gorm:"primaryKey;autoIncrement:false"`
	NSID         int64 `gorm:"column:ns_id"`
	AppID        int64
	AppName      string
	Address      string
	StartID      string
	State        string
	Reason       string
	Labels       string // JSON object
	Handlers     string // JSON array of {name, kind}
	CPU          int    `gorm:"column:cpu"`
	MemoryMB     int64  `gorm:"column:memory_mb"`
	Slots        int
	SDK          string `gorm:"column:sdk"`
	RegisteredAt int64
	ChangedAt    int64
}

// TableName is gorm's.
func (Executor) TableName() string { return "executor" }

// SaveExecutor writes what is known of an executor. A new start id on an address is a
// new executor with a new id; the caller sets ID 0 for it, and the old row is replaced. A process that
// another server knew keeps its id: what it runs goes on. One that was given up gets a new one.
func (s *Store) SaveExecutor(ctx context.Context, e *Executor) error {
	return s.inTx(ctx, s.main, func(tx *sql.Tx) error {
		if e.ID == 0 {
			err := tx.QueryRowContext(ctx, "SELECT id, registered_at FROM executor WHERE app_id = ? AND address = ? AND start_id = ? AND state <> ?", e.AppID, e.Address, e.StartID, ExecutorOffline).Scan(&e.ID, &e.RegisteredAt)
			if err != nil && !errors.Is(err, sql.ErrNoRows) {
				return fmt.Errorf("find executor: %w", err)
			}
		}
		if e.ID == 0 {
			id, err := s.sequence(ctx, tx, "executor")
			if err != nil {
				return fmt.Errorf("executor id: %w", err)
			}
			if _, err := tx.ExecContext(ctx, "DELETE FROM executor WHERE app_id = ? AND address = ?", e.AppID, e.Address); err != nil {
				return fmt.Errorf("replace executor: %w", err)
			}
			e.ID = id
			_, err = tx.ExecContext(ctx, `INSERT INTO executor (id, ns_id, app_id, app_name, address, start_id, state, reason, labels, handlers, cpu, memory_mb, slots, sdk, registered_at, changed_at)
				VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)`, e.ID, e.NSID, e.AppID, e.AppName, e.Address, e.StartID, e.State, e.Reason, e.Labels, e.Handlers, e.CPU, e.MemoryMB, e.Slots, e.SDK, e.RegisteredAt, e.ChangedAt)
			if err != nil {
				return fmt.Errorf("insert executor: %w", err)
			}
			return nil
		}
		_, err := tx.ExecContext(ctx, "UPDATE executor SET state = ?, reason = ?, labels = ?, handlers = ?, cpu = ?, memory_mb = ?, slots = ?, sdk = ?, changed_at = ? WHERE id = ?", e.State, e.Reason, e.Labels, e.Handlers, e.CPU, e.MemoryMB, e.Slots, e.SDK, e.ChangedAt, e.ID)
		if err != nil {
			return fmt.Errorf("update executor: %w", err)
		}
		return nil
	})
}

// ExecutorsIn lists the executors that are remembered of the namespaces in a bucket.
func (s *Store) ExecutorsIn(ctx context.Context, bucket int) ([]Executor, error) {
	var out []Executor
	err := s.gr.WithContext(ctx).Where("ns_id IN (SELECT id FROM namespace WHERE bucket = ?)", bucket).Order("id").Find(&out).Error
	return out, unavailable(err)
}

// Executor finds a remembered executor of an app by its id, or, with id 0, by its address and process. ErrNotFound: it is not
// remembered, or was given up.
func (s *Store) Executor(ctx context.Context, app, id int64, address, startID string) (Executor, error) {
	q := s.gr.WithContext(ctx).Where("app_id = ? AND state <> ?", app, ExecutorOffline)
	if id != 0 {
		q = q.Where("id = ?", id)
	} else {
		q = q.Where("address = ? AND start_id = ?", address, startID)
	}
	var out []Executor
	if err := q.Limit(1).Find(&out).Error; err != nil {
		return Executor{}, unavailable(err)
	}
	if len(out) == 0 {
		return Executor{}, ErrNotFound
	}
	return out[0], nil
}

// ForgetExecutors deletes executors that have been offline since before.
func (s *Store) ForgetExecutors(ctx context.Context, before int64) error {
	_, err := s.main.ExecContext(ctx, "DELETE FROM executor WHERE state = ? AND changed_at < ?", ExecutorOffline, before)
	return unavailable(err)
}

// Chunk is a piece of an execution's output.
type Chunk struct {
	ExecutionID int64
	NS          int64
	Seq         int64
	Text        string
	Progress    int // -1 = unchanged
}

// ErrGap says that an output chunk does not follow the last one.
var ErrGap = errors.New("output chunk out of order")

// ErrQuota says that an execution may not write more output.
var ErrQuota = errors.New("output quota reached")

// AppendOutput stores chunks of one execution in order. It returns the next sequence
// number that is wanted. Chunks that are stored already are passed over; ErrGap: a chunk is
// missing before these; ErrQuota: maxBytes is reached (a mark was stored once).
func (s *Store) AppendOutput(ctx context.Context, ns, executionID int64, day int, chunks []Chunk, maxBytes, now int64) (next int64, err error) {
	outErr := error(nil)
	err = s.inTx(ctx, s.main, func(tx *sql.Tx) error {
		outErr = nil
		var total int64
		var status string
		lock := " FOR UPDATE"
		if s.dialect == "sqlite" {
			lock = ""
		}
		// The row of the execution orders two writers of the same output.
		err := tx.QueryRowContext(ctx, "SELECT output_bytes, status FROM execution_log WHERE id = ? AND day = ? AND ns_id = ?"+lock, executionID, day, ns).Scan(&total, &status)
		if errors.Is(err, sql.ErrNoRows) {
			return ErrNotFound
		}
		if err != nil {
			return err
		}
		var last int64
		if err := tx.QueryRowContext(ctx, "SELECT COALESCE(MAX(seq), 0) FROM execution_output WHERE execution_id = ?", executionID).Scan(&last); err != nil {
			return err
		}
		progress := -1
		var tail string
		for _, c := range chunks {
			if c.Seq <= last {
				continue
			}
			if c.Seq != last+1 {
				outErr = ErrGap
				break
			}
			text := c.Text
			if total >= maxBytes {
				outErr = ErrQuota
				break
			}
			if total+int64(len(text)) > maxBytes {
				text = cut(text, int(max(maxBytes-total, 64)))
				text += "\n[ax: output quota reached, the rest was not kept]\n"
			}
			if _, err := tx.ExecContext(ctx, "INSERT INTO execution_output (execution_id, seq, ns_id, byte_from, byte_len, text, created_at) VALUES (?, ?, ?, ?, ?, ?, ?)", executionID, c.Seq, ns, total, len(text), text, now); err != nil {
				return err
			}
			total += int64(len(text))
			last = c.Seq
			tail += text //nolint:modernize // a handful of chunks; its end is cut below
			if c.Progress >= 0 {
				progress = c.Progress
			}
		}
		next = last + 1
		if tail == "" && progress < 0 {
			return nil
		}
		set, args := "output_bytes = ?", []any{total}
		if progress >= 0 {
			set, args = set+", progress = ?", append(args, progress)
		}
		const snapshot = 4096
		if tail != "" {
			var old string
			if len(tail) < snapshot {
				if err := tx.QueryRowContext(ctx, "SELECT log_snapshot FROM execution_log WHERE id = ? AND day = ?", executionID, day).Scan(&old); err != nil {
					return err
				}
			}
			set, args = set+", log_snapshot = ?", append(args, lastBytes(old+tail, snapshot))
		}
		_, err = tx.ExecContext(ctx, "UPDATE execution_log SET "+set+" WHERE id = ? AND day = ?", append(args, executionID, day)...)
		return err
	})
	if err != nil {
		return 0, err
	}
	return next, outErr
}

// lastBytes keeps the end of text, from a character's border.
func lastBytes(text string, n int) string {
	if len(text) <= n {
		return text
	}
	start := len(text) - n
	for start < len(text) && text[start]&0xC0 == 0x80 {
		start++
	}
	return text[start:]
}

// Output reads an execution's output from a byte offset, at most limit bytes and at
// least one whole chunk's rest. next is the offset to go on from.
func (s *Store) Output(ctx context.Context, ns, executionID, offset int64, limit int) (text string, next int64, err error) {
	rows, err := s.read.QueryContext(ctx, "SELECT byte_from, text FROM execution_output WHERE execution_id = ? AND ns_id = ? AND byte_from + byte_len > ? ORDER BY seq LIMIT 200", executionID, ns, offset)
	if err != nil {
		return "", offset, unavailable(err)
	}
	defer func() { _ = rows.Close() }()
	next = offset
	var b []byte
	for rows.Next() {
		var from int64
		var chunk string
		if err := rows.Scan(&from, &chunk); err != nil {
			return "", offset, unavailable(err)
		}
		if from > next { // cannot be: chunks have no holes
			break
		}
		part := chunk[min(next-from, int64(len(chunk))):]
		if room := limit - len(b); len(part) > room {
			if len(b) > 0 {
				break
			}
			end := room
			for end < len(part) && end > 0 && part[end]&0xC0 == 0x80 {
				end--
			}
			part = part[:end]
		}
		b = append(b, part...)
		next += int64(len(part))
		if len(b) >= limit {
			break
		}
	}
	return string(b), next, unavailable(rows.Err())
}

// AppOf is the name of the app that an execution of a namespace belongs to, as its batch is
// pinned to it.
func (s *Store) AppOf(ctx context.Context, ns, executionID int64) (string, error) {
	var job, version int64
	err := s.read.QueryRowContext(ctx, "SELECT b.job_id, b.job_version FROM execution_log e JOIN execution_batch b ON b.due_at = e.trigger_time AND b.batch_id = e.batch_id AND b.day = e.day WHERE e.id = ? AND e.day = ? AND e.ns_id = ?", executionID, batch.ExecutionDay(executionID), ns).Scan(&job, &version)
	if errors.Is(err, sql.ErrNoRows) {
		return "", ErrNotFound
	}
	if err != nil {
		return "", unavailable(err)
	}
	def, err := s.Definition(ctx, job, version)
	if err != nil {
		return "", err
	}
	return def.App, nil
}
