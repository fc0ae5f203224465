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
	// DrainedAt, when it is not 0, is since when an operator keeps its address from new work.
	DrainedAt   int64
	DrainedBy   string
	DrainReason string
}

// TableName is gorm's.
func (Executor) TableName() string { return "executor" }

// ExecutorChange is what is to be written of an executor: its state, and the rest if Whole.
type ExecutorChange struct {
	*Executor
	Whole bool
	// Anew: although the row at its address may be of the same process, it gets a new id, since what had
	// that id was given up.
	Anew bool
}

// SaveExecutors writes what is known of executors, all in one transaction, and tells how many statements
// that took. One with ID 0 is a new process: it gets an id, and the row of an earlier process at its address goes;
// an operator's drain of the address stays. A process that another server knew keeps its id: what it runs goes on.
// One that was given up gets a new one. No two new ones may have the same app and address.
func (s *Store) SaveExecutors(ctx context.Context, list []ExecutorChange) (statements int, err error) {
	err = s.inTx(ctx, s.main, func(tx *sql.Tx) error {
		statements = 0
		var whole []*Executor
		var fresh []ExecutorChange
		var states [][]any
		for _, c := range list {
			switch {
			case c.ID == 0:
				fresh = append(fresh, c)
			case c.Whole:
				whole = append(whole, c.Executor)
			default:
				states = append(states, []any{c.ID, c.State, c.Reason, c.ChangedAt})
			}
		}
		for start := 0; start < len(fresh); start += group {
			part := fresh[start:min(start+group, len(fresh))]
			known, n, err := s.insertExecutors(ctx, tx, part)
			if err != nil {
				return err
			}
			whole, statements = append(whole, known...), statements+n
		}
		for _, e := range whole {
			if _, err := tx.ExecContext(ctx, "UPDATE executor SET state = ?, reason = ?, labels = ?, handlers = ?, cpu = ?, memory_mb = ?, slots = ?, sdk = ?, changed_at = ? WHERE id = ?", e.State, e.Reason, e.Labels, e.Handlers, e.CPU, e.MemoryMB, e.Slots, e.SDK, e.ChangedAt, e.ID); err != nil {
				return fmt.Errorf("update executor: %w", err)
			}
		}
		b := &Bucket{s: s, tx: tx, ctx: ctx}
		if _, err := b.updateEach("executor", []string{"id"}, []string{"new_state", "why", "at"}, "state = v.new_state, reason = v.why, changed_at = v.at", "", states); err != nil {
			return fmt.Errorf("update executors: %w", err)
		}
		statements += len(whole) + (len(states)+group-1)/group
		return nil
	})
	return statements, err
}

// insertExecutors gives new processes their rows. known are those that have one already.
func (s *Store) insertExecutors(ctx context.Context, tx *sql.Tx, list []ExecutorChange) (known []*Executor, statements int, err error) {
	places := make([]any, 0, 2*len(list))
	for _, e := range list {
		places = append(places, e.AppID, e.Address)
	}
	found, err := tx.QueryContext(ctx, "SELECT id, app_id, address, start_id, state, registered_at, drained_at, drained_by, drain_reason FROM executor WHERE (app_id, address) IN ("+rows(len(list), 2)+")", places...)
	if err != nil {
		return nil, 0, fmt.Errorf("find executors: %w", err)
	}
	defer func() { _ = found.Close() }()
	type place struct {
		app     int64
		address string
	}
	before := map[place]Executor{}
	for found.Next() {
		var e Executor
		if err := found.Scan(&e.ID, &e.AppID, &e.Address, &e.StartID, &e.State, &e.RegisteredAt, &e.DrainedAt, &e.DrainedBy, &e.DrainReason); err != nil {
			return nil, 0, fmt.Errorf("find executors: %w", err)
		}
		before[place{e.AppID, e.Address}] = e
	}
	if err := found.Err(); err != nil {
		return nil, 0, fmt.Errorf("find executors: %w", err)
	}
	statements = 1
	var fresh []ExecutorChange
	var gone []any
	for _, e := range list {
		old, ok := before[place{e.AppID, e.Address}]
		if ok {
			e.DrainedAt, e.DrainedBy, e.DrainReason = old.DrainedAt, old.DrainedBy, old.DrainReason
		}
		if ok && old.StartID == e.StartID && old.State != ExecutorOffline && !e.Anew {
			e.ID, e.RegisteredAt = old.ID, old.RegisteredAt
			known = append(known, e.Executor)
			continue
		}
		if ok {
			gone = append(gone, old.ID)
		}
		fresh = append(fresh, e)
	}
	if len(fresh) == 0 {
		return known, statements, nil
	}
	id, err := s.sequenceBlock(ctx, tx, "executor", int64(len(fresh)))
	if err != nil {
		return nil, 0, fmt.Errorf("executor ids: %w", err)
	}
	if len(gone) > 0 {
		if _, err := tx.ExecContext(ctx, "DELETE FROM executor WHERE id IN ("+marks(len(gone))+")", gone...); err != nil {
			return nil, 0, fmt.Errorf("replace executors: %w", err)
		}
	}
	const width = 19
	args := make([]any, 0, len(fresh)*width)
	for i, e := range fresh {
		e.ID = id + int64(i)
		args = append(args, e.ID, e.NSID, e.AppID, e.AppName, e.Address, e.StartID, e.State, e.Reason, e.Labels, e.Handlers, e.CPU, e.MemoryMB, e.Slots, e.SDK, e.RegisteredAt, e.ChangedAt, e.DrainedAt, e.DrainedBy, e.DrainReason)
	}
	if _, err := tx.ExecContext(ctx, "INSERT INTO executor (id, ns_id, app_id, app_name, address, start_id, state, reason, labels, handlers, cpu, memory_mb, slots, sdk, registered_at, changed_at, drained_at, drained_by, drain_reason) VALUES "+rows(len(fresh), width), args...); err != nil {
		return nil, 0, fmt.Errorf("insert executors: %w", err)
	}
	return known, statements + 4, nil
}

// DrainExecutor writes that an operator keeps an executor from new work, or lets it work again (DrainedAt 0).
func (s *Store) DrainExecutor(ctx context.Context, e Executor, entry *AuditEntry) error {
	return s.inTx(ctx, s.main, func(tx *sql.Tx) error {
		res, err := tx.ExecContext(ctx, "UPDATE executor SET drained_at = ?, drained_by = ?, drain_reason = ? WHERE id = ? AND ns_id = ?", e.DrainedAt, cut(e.DrainedBy, 128), cut(e.DrainReason, 512), e.ID, e.NSID)
		if err != nil {
			return fmt.Errorf("drain executor: %w", err)
		}
		if n, _ := res.RowsAffected(); n == 0 {
			return ErrNotFound
		}
		return s.audit(ctx, tx, entry)
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

// ForgetExecutors deletes executors that have been offline since before. What an operator drained stays.
func (s *Store) ForgetExecutors(ctx context.Context, before int64) error {
	_, err := s.main.ExecContext(ctx, "DELETE FROM executor WHERE state = ? AND changed_at < ? AND drained_at = 0", ExecutorOffline, before)
	return unavailable(err)
}

// AppOf is the name of the app that an execution of a namespace belongs to, as its batch is
// pinned to it, and its job.
func (s *Store) AppOf(ctx context.Context, ns, executionID int64) (app string, job int64, err error) {
	var version int64
	err = s.read.QueryRowContext(ctx, "SELECT b.job_id, b.job_version FROM execution_log e JOIN execution_batch b ON b.due_at = e.trigger_time AND b.batch_id = e.batch_id AND b.day = e.day WHERE e.id = ? AND e.day = ? AND e.ns_id = ?", executionID, batch.ExecutionDay(executionID), ns).Scan(&job, &version)
	if errors.Is(err, sql.ErrNoRows) {
		return "", 0, ErrNotFound
	}
	if err != nil {
		return "", 0, unavailable(err)
	}
	def, err := s.Definition(ctx, job, version)
	if err != nil {
		return "", 0, err
	}
	return def.App, job, nil
}
