package store

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"strings"

	"github.com/ax-scheduler/ax/internal/batch"
	"github.com/ax-scheduler/ax/sql/migrate"
)

// group is how many rows go into one statement: the knee of multi-row statements
// lies at 200 to 500.
const group = 400

// BatchRow is a new row of execution_batch with its executions.
type BatchRow struct {
	ID          string
	Day         int
	NS          int64
	JobID       int64
	JobVersion  int64
	TriggerNo   int // 0 = not computed by a schedule; does not take part in the firing's unique key
	TriggerKind string
	DueAt       int64
	PlannedFor  int64
	State       batch.State
	Priority    int
	Total       int
	Params      *string // nil = as the job says
	Event       *string
	Reason      string
	Detail      string
	MissedCount int64
	MissedLast  int64
	CreatedBy   string
	CreatedAt   int64
	// FinishedAt is the end of a batch that is final from the beginning; 0 = when it was made.
	FinishedAt int64
	// Key is the business key of a delayed task, "" = none.
	Key string
}

// ExecutionRow is a new row of execution_log.
type ExecutionRow struct {
	ID          int64
	Day         int
	NS          int64
	JobID       int64
	BatchID     string
	Shard       int
	Total       int
	Attempt     int
	Moves       int
	Status      batch.Run
	TriggerTime int64
	NotBefore   int64
	// Worker, when its ID is not 0, is the executor that was chosen beforehand: the execution may be
	// sent there without another write.
	Worker Worker
	// Series is the attempt behind which the present series of attempts began, Losses how many executors
	// ended while they ran the shard in it.
	Series int
	Losses int
}

// Tries is which attempt of its series it is that counts against the retry policy, from 1.
func (r ExecutionRow) Tries() int { return r.Attempt - r.Series - r.Moves }

// Worker is an executor that an execution is bound to.
type Worker struct {
	ID      int64
	Address string
	StartID string
}

// Who made a batch that no person asked for.
const (
	BySchedule = "schedule"
	// ByCatchUp: it was missed, and its job's misfire policy lets it run.
	ByCatchUp = "catch-up"
)

// CatchUp tells whether a batch is one of a backlog.
func (h BatchHead) CatchUp() bool { return h.TriggerNo > 0 && h.CreatedBy == ByCatchUp }

// InsertBatches writes new batches in groups. It returns the ids that were there already:
// those firings were made durable before, and are left as they are.
func (b *Bucket) InsertBatches(list []BatchRow) (existing map[string]bool, err error) {
	const columns = "batch_id, day, ns_id, bucket, job_id, job_version, trigger_no, trigger_kind, due_at, planned_for, state, version, priority, shard_total, shards_done, shards_failed, params, event, reason, reason_detail, missed_count, missed_last_at, created_by, created_at, finished_at, business_key"
	const width = 26
	size := func(r BatchRow) int { return sizeOf(r.Params, r.Event) }
	err = inGroups(list, size, func(part []BatchRow) error {
		args := make([]any, 0, len(part)*width)
		for _, r := range part {
			var no any
			var finished int64 // 0 = it has not
			if r.TriggerNo > 0 {
				no = r.TriggerNo
			}
			if r.State.Final() {
				finished = max(r.CreatedAt, r.FinishedAt)
			}
			if dueOf(r.ID) != r.DueAt {
				return fmt.Errorf("batch %s is due at %d: its id says another time", r.ID, r.DueAt)
			}
			args = append(args, r.ID, r.Day, r.NS, b.f.Bucket, r.JobID, r.JobVersion, no, r.TriggerKind, r.DueAt, r.PlannedFor, string(r.State), 1, r.Priority, r.Total, 0, 0,
				r.Params, r.Event, r.Reason, r.Detail, r.MissedCount, r.MissedLast, r.CreatedBy, r.CreatedAt, finished, r.Key)
		}
		res, err := b.tx.ExecContext(b.ctx, "INSERT INTO execution_batch ("+columns+") VALUES "+rows(len(part), width)+b.s.orIgnore("batch_id"), args...)
		if err != nil {
			return fmt.Errorf("insert batches: %w", err)
		}
		if n, _ := res.RowsAffected(); n == int64(len(part)) {
			return nil
		}
		// Some firing has its row: find out which of ours are not the ones just written. A row of ours carries our
		// created_at and has no execution yet. Neither alone would tell them apart: two readings of one trigger may
		// be of one millisecond, and what was missed never has an execution.
		ids := make([]string, 0, len(part))
		created := map[string]int64{}
		for _, r := range part {
			ids = append(ids, r.ID)
			created[r.ID] = r.CreatedAt
		}
		found, err := b.tx.QueryContext(b.ctx, "SELECT batch_id, created_at, EXISTS (SELECT 1 FROM execution_log e WHERE e.trigger_time = b.due_at AND e.batch_id = b.batch_id AND e.day = b.day) FROM execution_batch b WHERE "+b.s.inBatches(len(part)), keysOf(ids)...)
		if err != nil {
			return fmt.Errorf("find existing batches: %w", err)
		}
		ours := map[string]bool{}
		for found.Next() {
			var id string
			var at int64
			var begun bool
			if err := found.Scan(&id, &at, &begun); err != nil {
				_ = found.Close() //nolint:sqlclosecheck // a defer in a loop would keep them all open
				return err
			}
			if created[id] == at && !begun {
				ours[id] = true
			}
		}
		if err := errors.Join(found.Err(), found.Close()); err != nil {
			return err
		}
		if existing == nil {
			existing = map[string]bool{}
		}
		for _, r := range part {
			if !ours[r.ID] {
				existing[r.ID] = true
			}
		}
		return nil
	})
	return existing, err
}

// InsertExecutions writes new executions in groups.
func (b *Bucket) InsertExecutions(list []ExecutionRow) error {
	const columns = "id, day, ns_id, bucket, job_id, batch_id, shard, shard_total, attempt, moves, status, epoch, trigger_time, not_before, worker_id, worker_address, worker_start_id, stop_reason, stop_confirmed, output_bytes, error, log_snapshot"
	const width = 22
	for start := 0; start < len(list); start += group {
		part := list[start:min(start+group, len(list))]
		args := make([]any, 0, len(part)*width)
		for _, r := range part {
			if dueOf(r.BatchID) != r.TriggerTime {
				return fmt.Errorf("execution of batch %s is due at %d: the id says another time", r.BatchID, r.TriggerTime)
			}
			args = append(args, r.ID, r.Day, r.NS, b.f.Bucket, r.JobID, r.BatchID, r.Shard, r.Total, r.Attempt, r.Moves, string(r.Status), b.f.Epoch, r.TriggerTime, r.NotBefore,
				r.Worker.ID, r.Worker.Address, r.Worker.StartID, "", 0, 0, "", "")
		}
		if _, err := b.tx.ExecContext(b.ctx, "INSERT INTO execution_log ("+columns+") VALUES "+rows(len(part), width), args...); err != nil {
			return fmt.Errorf("insert executions: %w", err)
		}
	}
	return b.setSeries(list)
}

// setSeries writes what only few new executions have: nearly all are first attempts.
func (b *Bucket) setSeries(list []ExecutionRow) error {
	type series struct{ series, losses int }
	alike := map[series][]int64{}
	for _, r := range list {
		if r.Series > 0 || r.Losses > 0 {
			k := series{r.Series, r.Losses}
			alike[k] = append(alike[k], r.ID)
		}
	}
	for k, ids := range alike {
		err := eachDay(ids, func(day int, part []int64) error {
			_, err := b.tx.ExecContext(b.ctx, "UPDATE execution_log SET series = ?, losses = ? WHERE day = ? AND id IN ("+marks(len(part))+")", append([]any{k.series, k.losses, day}, anys(part)...)...)
			return err
		})
		if err != nil {
			return fmt.Errorf("series of executions: %w", err)
		}
	}
	return nil
}

// SetCodes writes what handlers called their failures.
func (b *Bucket) SetCodes(codes map[string][]int64) error {
	for code, ids := range codes {
		err := eachDay(ids, func(day int, part []int64) error {
			_, err := b.tx.ExecContext(b.ctx, "UPDATE execution_log SET code = ? WHERE day = ? AND id IN ("+marks(len(part))+")", append([]any{code, day}, anys(part)...)...)
			return err
		})
		if err != nil {
			return fmt.Errorf("codes of executions: %w", err)
		}
	}
	return nil
}

// Execution is a row of execution_log as the engines read it.
type Execution struct {
	ID            int64
	Day           int
	NS            int64
	JobID         int64
	BatchID       string
	Shard         int
	Total         int
	Attempt       int
	Moves         int
	Status        batch.Run
	Epoch         int64
	TriggerTime   int64
	NotBefore     int64
	DispatchedAt  int64
	ActualTime    int64
	WorkerID      int64
	WorkerAddress string
	WorkerStartID string
	DeadlineAt    int64
	LeaseUntil    int64
	StopAskedAt   int64
	StopReason    string
	StopConfirmed bool
	Series        int
	Losses        int
}

// Tries is which attempt of its series it is that counts against the retry policy, from 1.
func (e Execution) Tries() int { return e.Attempt - e.Series - e.Moves }

// Lingers tells whether it has ended and its executor has not confirmed that it stopped.
func (e Execution) Lingers() bool { return e.Status.Final() && e.StopAskedAt > 0 && !e.StopConfirmed }

const executionColumns = "id, day, ns_id, job_id, batch_id, shard, shard_total, attempt, moves, status, epoch, trigger_time, not_before, dispatched_at, actual_time, worker_id, worker_address, worker_start_id, COALESCE(deadline_at, 0), lease_until, COALESCE(stop_asked_at, 0), stop_reason, stop_confirmed, series, losses"

func scanExecutions(rows *sql.Rows) ([]Execution, error) {
	defer func() { _ = rows.Close() }()
	var out []Execution
	for rows.Next() {
		var e Execution
		if err := rows.Scan(&e.ID, &e.Day, &e.NS, &e.JobID, &e.BatchID, &e.Shard, &e.Total, &e.Attempt, &e.Moves, &e.Status, &e.Epoch, &e.TriggerTime, &e.NotBefore,
			&e.DispatchedAt, &e.ActualTime, &e.WorkerID, &e.WorkerAddress, &e.WorkerStartID, &e.DeadlineAt, &e.LeaseUntil, &e.StopAskedAt, &e.StopReason, &e.StopConfirmed, &e.Series, &e.Losses); err != nil {
			return nil, err
		}
		out = append(out, e)
	}
	return out, rows.Err()
}

// byDay splits ids by the day that each carries, so that every statement names its
// partition.
func byDay(ids []int64) map[int][]int64 {
	days := map[int][]int64{}
	for _, id := range ids {
		d := batch.ExecutionDay(id)
		days[d] = append(days[d], id)
	}
	return days
}

// eachDay runs f for the ids of each day in groups.
func eachDay(ids []int64, f func(day int, part []int64) error) error {
	for day, list := range byDay(ids) {
		for start := 0; start < len(list); start += group {
			if err := f(day, list[start:min(start+group, len(list))]); err != nil {
				return err
			}
		}
	}
	return nil
}

// Where rows are named by their ids, "+bucket" keeps SQLite from reading all of the bucket by its index instead.

// Executions reads executions of this bucket by id. Ids that do not exist are left out.
func (b *Bucket) Executions(ids []int64) (map[int64]Execution, error) {
	out := make(map[int64]Execution, len(ids))
	err := eachDay(ids, func(day int, part []int64) error {
		rows, err := b.tx.QueryContext(b.ctx, "SELECT "+executionColumns+" FROM execution_log WHERE day = ? AND +bucket = ? AND id IN ("+marks(len(part))+")", append([]any{day, b.f.Bucket}, anys(part)...)...)
		if err != nil {
			return fmt.Errorf("read executions: %w", err)
		}
		list, err := scanExecutions(rows)
		for _, e := range list {
			out[e.ID] = e
		}
		return err
	})
	return out, err
}

// Assignment says that an execution goes to an executor.
type Assignment struct {
	ID      int64
	BatchID string
	Worker  int64
	Address string
	StartID string
}

// Assign records which executor each execution goes to, before anything is sent, and
// puts their batches in DISPATCHING. It returns the ids that were not SCHEDULED any more: they
// must not be sent; the value is true for those that do not exist at all.
func (b *Bucket) Assign(list []Assignment, now int64) (refused map[int64]bool, err error) {
	type worker struct {
		id      int64
		address string
		startID string
	}
	perWorker := map[worker][]int64{}
	batches := map[string]int{}
	total := 0
	for _, a := range list {
		w := worker{a.Worker, a.Address, a.StartID}
		perWorker[w] = append(perWorker[w], a.ID)
		batches[a.BatchID] = batch.ExecutionDay(a.ID)
		total++
	}
	guard := b.s.machine.RunsTaking(batch.RunAssign)
	changed := int64(0)
	for w, ids := range perWorker {
		err := eachDay(ids, func(day int, part []int64) error {
			args := []any{string(batch.RunDispatching), w.id, w.address, w.startID, now, b.f.Epoch, day}
			args = append(args, anys(guard)...)
			args = append(args, anys(part)...)
			res, err := b.tx.ExecContext(b.ctx, "UPDATE execution_log SET status = ?, worker_id = ?, worker_address = ?, worker_start_id = ?, dispatched_at = ?, epoch = ? WHERE day = ? AND status IN ("+marks(len(guard))+") AND id IN ("+marks(len(part))+")", args...)
			if err != nil {
				return err
			}
			n, err := res.RowsAffected()
			changed += n
			return err
		})
		if err != nil {
			return nil, fmt.Errorf("assign executions: %w", err)
		}
	}
	if changed != int64(total) {
		// Some were withdrawn meanwhile. Only those that now carry this very assignment are ours.
		ids := make([]int64, 0, total)
		for _, a := range list {
			ids = append(ids, a.ID)
		}
		rows, err := b.Executions(ids)
		if err != nil {
			return nil, err
		}
		refused = map[int64]bool{}
		for _, a := range list {
			if r, ok := rows[a.ID]; !ok || r.Status != batch.RunDispatching || r.DispatchedAt != now || r.WorkerID != a.Worker {
				refused[a.ID] = !ok
			}
		}
	}
	return refused, b.advanceBatches(batches, batch.EventAssign, "")
}

// advanceBatches applies one event to many batches, each guarded by its state. Batches
// whose state does not take the event are left alone. set may add assignments such as
// "started_at = COALESCE(NULLIF(started_at, 0), 5)".
func (b *Bucket) advanceBatches(batches map[string]int, e batch.Event, set string, setArgs ...any) error {
	_, err := b.advance(batches, e, set, setArgs...)
	return err
}

// advance is advanceBatches, and tells how many took the event.
func (b *Bucket) advance(batches map[string]int, e batch.Event, set string, setArgs ...any) (changed int64, err error) {
	// One statement per (from, to, day): the new state depends on the old one.
	targets := map[batch.State][]batch.State{}
	for _, from := range b.s.machine.StatesTaking(e) {
		to, err := b.s.machine.Next(from, e)
		if err != nil {
			return 0, err
		}
		if from == to && set == "" {
			continue
		}
		targets[to] = append(targets[to], from)
	}
	if set != "" {
		set = ", " + set
	}
	err = eachBatch(batches, func(day int, part []string) error {
		for _, to := range b.s.stateOrder(targets, e) {
			from := targets[to]
			args := append([]any{string(to)}, setArgs...)
			args = append(args, day)
			args = append(args, anys(from)...)
			args = append(args, keysOf(part)...)
			res, err := b.tx.ExecContext(b.ctx, "UPDATE execution_batch SET state = ?, version = version + 1"+set+" WHERE day = ? AND state IN ("+marks(len(from))+") AND "+b.s.inBatches(len(part)), args...)
			if err != nil {
				return fmt.Errorf("batches %s: %w", e, err)
			}
			n, err := res.RowsAffected()
			if err != nil {
				return err
			}
			changed += n
		}
		return nil
	})
	return changed, err
}

// stateOrder sorts the target states so that a batch that one statement has moved is
// not moved again by the next: a target that is itself a source of another target comes last.
func (s *Store) stateOrder(targets map[batch.State][]batch.State, _ batch.Event) []batch.State {
	var first, last []batch.State
	for to := range targets {
		source := false
		for other, froms := range targets {
			if other == to {
				continue
			}
			for _, f := range froms {
				source = source || f == to
			}
		}
		if source {
			last = append(last, to)
		} else {
			first = append(first, to)
		}
	}
	return append(first, last...)
}

// Accepted is one execution that its executor took.
type Accepted struct {
	ID      int64
	BatchID string
	SentAt  int64 // when the request left; 0 = not known
}

// Accept records that executors took executions: RUNNING, with lease and, where the
// state was being asked for, its end. Rows that have moved on (a result came first) are left.
func (b *Bucket) Accept(list []Accepted, now, leaseUntil int64) error {
	batches := map[string]int{}
	values := make([][]any, len(list))
	for i, a := range list {
		sentAt := a.SentAt
		if sentAt == 0 {
			sentAt = now
		}
		batches[a.BatchID] = batch.ExecutionDay(a.ID)
		values[i] = []any{a.ID, batch.ExecutionDay(a.ID), sentAt}
	}
	from := quoted(batch.RunScheduled, batch.RunDispatching, batch.RunUnknown)
	set := fmt.Sprintf("status = '%s', dispatched_at = COALESCE(NULLIF(dispatched_at, 0), v.sent_at), actual_time = COALESCE(NULLIF(actual_time, 0), %d), lease_until = %d", batch.RunRunning, now, leaseUntil)
	if _, err := b.updateEach("execution_log", []string{"id", "day"}, []string{"sent_at"}, set, "t.status IN ("+from+")", values); err != nil {
		return fmt.Errorf("accept executions: %w", err)
	}
	// What it waited for is over; why it is late (a misfire) stays.
	return b.advanceBatches(batches, batch.EventStart, "started_at = COALESCE(NULLIF(started_at, 0), ?), reason = "+waitingIsOver, now)
}

// waitingIsOver keeps of a batch's reason what is still true once it has started.
const waitingIsOver = "CASE WHEN reason LIKE 'waiting%' OR reason = 'retry_waits' THEN '' ELSE reason END"

// quoted lists states for a statement. They are constants of this program.
func quoted(states ...batch.Run) string {
	list := make([]string, len(states))
	for i, s := range states {
		list[i] = "'" + string(s) + "'"
	}
	return strings.Join(list, ", ")
}

// Unassign takes executions back whose request certainly did not reach the executor.
func (b *Bucket) Unassign(ids []int64, batches map[string]int) error {
	err := eachDay(ids, func(day int, part []int64) error {
		args := append([]any{string(batch.RunScheduled), day, string(batch.RunDispatching), string(batch.RunUnknown)}, anys(part)...)
		_, err := b.tx.ExecContext(b.ctx, "UPDATE execution_log SET status = ?, worker_id = 0, worker_address = '', worker_start_id = '', dispatched_at = 0 WHERE day = ? AND status IN (?, ?) AND id IN ("+marks(len(part))+")", args...)
		return err
	})
	if err != nil {
		return fmt.Errorf("unassign executions: %w", err)
	}
	return b.advanceBatches(batches, batch.EventUnassign, "")
}

// Doubt marks executions of a former owner as UNKNOWN until their executor reports.
func (b *Bucket) Doubt(ids []int64, batches map[string]int) error {
	from := b.s.machine.RunsTaking(batch.RunUnsure)
	err := eachDay(ids, func(day int, part []int64) error {
		args := append([]any{string(batch.RunUnknown), day}, anys(from)...)
		args = append(args, anys(part)...)
		_, err := b.tx.ExecContext(b.ctx, "UPDATE execution_log SET status = ? WHERE day = ? AND status IN ("+marks(len(from))+") AND id IN ("+marks(len(part))+")", args...)
		return err
	})
	if err != nil {
		return fmt.Errorf("doubt executions: %w", err)
	}
	return b.advanceBatches(batches, batch.EventUnsure, "")
}

// Ending is the end of one execution.
type Ending struct {
	ID            int64
	Status        batch.Run
	Error         string
	Result        *string
	Duration      int64 // -1 = not known
	Waited        int64
	PeakMemoryMB  int64
	StopConfirmed bool
	SentAt        int64 // when the request left; 0 = not known
}

// End ends executions that were read in this transaction. Those that end alike go in one statement.
func (b *Bucket) End(list []Ending, now int64) error {
	type alike struct {
		status    batch.Run
		confirmed bool
	}
	ran := map[alike][][]any{}
	type still struct {
		alike
		err string
	}
	unrun := map[still][]int64{}
	for _, e := range list {
		k := alike{e.Status, e.StopConfirmed}
		switch {
		case e.Result != nil:
			// It may be long: each in its own statement.
			if _, err := b.ended([][]any{e.values()}, k.status, k.confirmed, e.Result, "", now); err != nil {
				return err
			}
		case e.Duration < 0: // it did not run, or nobody knows for how long
			unrun[still{k, e.Error}] = append(unrun[still{k, e.Error}], e.ID)
		default:
			ran[k] = append(ran[k], e.values())
		}
	}
	for k, values := range ran {
		if _, err := b.ended(values, k.status, k.confirmed, nil, "", now); err != nil {
			return err
		}
	}
	for k, ids := range unrun {
		err := eachDay(ids, func(day int, part []int64) error {
			_, err := b.tx.ExecContext(b.ctx, "UPDATE execution_log SET status = ?, finished_at = ?, error = ?, stop_confirmed = ? WHERE day = ? AND id IN ("+marks(len(part))+")", append([]any{string(k.status), now, k.err, k.confirmed, day}, anys(part)...)...)
			return err
		})
		if err != nil {
			return fmt.Errorf("end executions: %w", err)
		}
	}
	return nil
}

// values is an ending as ended takes it.
func (e Ending) values() []any {
	return []any{e.ID, batch.ExecutionDay(e.ID), e.Duration, e.Waited, e.SentAt, e.PeakMemoryMB, e.Error}
}

// ended writes ends that are alike, of executions that ran. Where a result was faster than the answer to its request, that is
// the start.
func (b *Bucket) ended(values [][]any, status batch.Run, confirmed bool, result *string, where string, now int64) (changed int64, err error) {
	set := fmt.Sprintf("status = '%s', finished_at = %d, duration = v.ran, waited = v.stood, peak_memory_mb = v.peak, error = v.word, actual_time = COALESCE(NULLIF(actual_time, 0), %d - v.ran), dispatched_at = COALESCE(NULLIF(dispatched_at, 0), NULLIF(v.sent_at, 0), not_before)", status, now, now)
	if confirmed {
		set += ", stop_confirmed = 1"
	}
	columns := []string{"ran", "stood", "sent_at", "peak", "word"}
	if result != nil {
		columns, set = append(columns, "outcome"), set+", result = v.outcome"
		values[0] = append(values[0], *result)
	}
	if changed, err = b.updateEach("execution_log", []string{"id", "day"}, columns, set, where, values); err != nil {
		return changed, fmt.Errorf("end executions: %w", err)
	}
	return changed, nil
}

// EndKnown ends executions that succeeded without a result, and their batches, each of one shard, without their having
// been read in this transaction. ErrStale: one of them is not on its way (any more), or its batch is not.
func (b *Bucket) EndKnown(list []Ending, batches map[string]int, now int64) error {
	if len(list) == 0 {
		return nil
	}
	values := make([][]any, len(list))
	for i, e := range list {
		values[i] = e.values()
	}
	changed, err := b.ended(values, batch.RunSucceeded, false, nil, "t.status IN ("+quoted(batch.RunScheduled, batch.RunDispatching, batch.RunRunning)+")", now)
	if err != nil {
		return err
	}
	ended, err := b.endBatches(batches, batch.EventSucceed, "", "", 1, 0, now)
	if err != nil {
		return err
	}
	if changed != int64(len(list)) || ended != int64(len(batches)) {
		return ErrStale
	}
	return nil
}

// BatchHead is a batch as outcome reads it before it decides.
type BatchHead struct {
	ID         string
	Day        int
	NS         int64
	JobID      int64
	JobVersion int64
	TriggerNo  int
	Kind       string
	DueAt      int64
	PlannedFor int64
	State      batch.State
	Version    int64
	Priority   int
	Total      int
	Done       int
	FailedN    int
	Params     *string
	Event      *string // only when it is short: see EventBytes
	EventBytes int     // the length of the event, read or not
	Key        string
	CreatedBy  string
	CreatedAt  int64
}

// ShortEvent is up to how many bytes an event is kept in memory while its batch waits. A longer one is
// read when it is sent: a hundred thousand tasks of 64 kB would not fit.
const ShortEvent = 256

const headColumns = "batch_id, day, ns_id, job_id, job_version, COALESCE(trigger_no, 0), trigger_kind, due_at, planned_for, state, version, priority, shard_total, shards_done, shards_failed, params, CASE WHEN OCTET_LENGTH(event) <= 256 THEN event END, COALESCE(OCTET_LENGTH(event), 0), business_key, created_by, created_at"

func scanHeads(rows *sql.Rows, out map[string]BatchHead) error {
	defer func() { _ = rows.Close() }()
	for rows.Next() {
		var h BatchHead
		if err := rows.Scan(&h.ID, &h.Day, &h.NS, &h.JobID, &h.JobVersion, &h.TriggerNo, &h.Kind, &h.DueAt, &h.PlannedFor, &h.State, &h.Version, &h.Priority, &h.Total, &h.Done, &h.FailedN, &h.Params, &h.Event, &h.EventBytes, &h.Key, &h.CreatedBy, &h.CreatedAt); err != nil {
			return err
		}
		out[h.ID] = h
	}
	return rows.Err()
}

// Heads reads batches of this bucket. Ids that do not exist are left out.
func (b *Bucket) Heads(ids map[string]int) (map[string]BatchHead, error) {
	out := make(map[string]BatchHead, len(ids))
	err := eachBatch(ids, func(day int, part []string) error {
		rows, err := b.tx.QueryContext(b.ctx, "SELECT "+headColumns+" FROM execution_batch WHERE day = ? AND +bucket = ? AND "+b.s.inBatches(len(part)), append([]any{day, b.f.Bucket}, keysOf(part)...)...)
		if err != nil {
			return err
		}
		return scanHeads(rows, out)
	})
	if err != nil {
		return nil, fmt.Errorf("read batches: %w", err)
	}
	return out, nil
}

// EndBatches applies a final event to batches. All that end alike go in one statement;
// done and failed count the shards that ended with it.
func (b *Bucket) EndBatches(batches map[string]int, e batch.Event, reason, detail string, done, failed int, now int64) error {
	_, err := b.endBatches(batches, e, reason, detail, done, failed, now)
	return err
}

func (b *Bucket) endBatches(batches map[string]int, e batch.Event, reason, detail string, done, failed int, now int64) (changed int64, err error) {
	set, args := "shards_done = shards_done + ?, shards_failed = shards_failed + ?, finished_at = ?", []any{done, failed, now}
	// A result can be here before the answer to the request that started it.
	switch e { //nolint:exhaustive // the other events end what did not run
	case batch.EventSucceed, batch.EventFail, batch.EventTimeOut:
		set += ", started_at = COALESCE(NULLIF(started_at, 0), (SELECT MIN(NULLIF(l.actual_time, 0)) FROM execution_log l WHERE l.trigger_time = execution_batch.due_at AND l.batch_id = execution_batch.batch_id AND l.day = execution_batch.day), 0)"
		if reason == "" {
			set += ", reason = " + waitingIsOver
		}
	}
	if reason != "" {
		set, args = set+", reason = ?, reason_detail = ?", append(args, reason, detail)
	}
	return b.advance(batches, e, set, args...)
}

// CountShards moves a batch's counters without ending it.
func (b *Bucket) CountShards(id string, day, done, failed int) error {
	_, err := b.tx.ExecContext(b.ctx, "UPDATE execution_batch SET shards_done = shards_done + ?, shards_failed = shards_failed + ?, version = version + 1 WHERE day = ? AND "+oneBatch, done, failed, day, dueOf(id), id)
	if err != nil {
		return fmt.Errorf("count shards of %s: %w", id, err)
	}
	return nil
}

// AdvanceBatch applies one event to one batch, guarded by its state and version.
// ErrStale means that it has changed; nothing was written.
func (b *Bucket) AdvanceBatch(h BatchHead, e batch.Event, reason, detail string) error {
	to, err := b.s.machine.Next(h.State, e)
	if err != nil {
		return err
	}
	finished := ""
	if !to.Final() && h.State.Final() {
		finished = ", finished_at = 0"
	}
	res, err := b.tx.ExecContext(b.ctx, "UPDATE execution_batch SET state = ?, version = version + 1, reason = ?, reason_detail = ?"+finished+" WHERE day = ? AND "+oneBatch+" AND version = ?", string(to), reason, detail, h.Day, h.DueAt, h.ID, h.Version)
	if err != nil {
		return fmt.Errorf("batch %s %s: %w", h.ID, e, err)
	}
	if n, _ := res.RowsAffected(); n == 0 {
		return ErrStale
	}
	return nil
}

// Reopened resets the counters of a batch whose failed shards are tried again.
func (b *Bucket) Reopened(h BatchHead, shards int) error {
	_, err := b.tx.ExecContext(b.ctx, "UPDATE execution_batch SET shards_done = shards_done - ?, shards_failed = shards_failed - ? WHERE day = ? AND "+oneBatch, shards, min(shards, h.FailedN), h.Day, h.DueAt, h.ID)
	if err != nil {
		return fmt.Errorf("reopen %s: %w", h.ID, err)
	}
	return nil
}

// LatestAttempts reads the newest attempt of each shard of a batch.
func (b *Bucket) LatestAttempts(id string, day int) ([]Execution, error) {
	rows, err := b.tx.QueryContext(b.ctx, "SELECT "+executionColumns+" FROM execution_log e WHERE day = ? AND trigger_time = ? AND batch_id = ? AND attempt = (SELECT MAX(x.attempt) FROM execution_log x WHERE x.day = e.day AND x.trigger_time = e.trigger_time AND x.batch_id = e.batch_id AND x.shard = e.shard) ORDER BY shard", day, dueOf(id), id)
	if err != nil {
		return nil, fmt.Errorf("read attempts of %s: %w", id, err)
	}
	return scanExecutions(rows)
}

// ShardError is what the first shard of a batch that ended badly says of it; "" when none does.
func (b *Bucket) ShardError(id string, day int) (string, error) {
	var text string
	err := b.tx.QueryRowContext(b.ctx, "SELECT error FROM execution_log WHERE day = ? AND trigger_time = ? AND batch_id = ? AND status IN ("+quoted(batch.RunFailed, batch.RunTimedOut, batch.RunRejected, batch.RunLost)+") AND error <> '' ORDER BY shard, attempt DESC LIMIT 1", day, dueOf(id), id).Scan(&text)
	if errors.Is(err, sql.ErrNoRows) {
		return "", nil
	}
	if err != nil {
		return "", fmt.Errorf("error of a shard of %s: %w", id, err)
	}
	return text, nil
}

// Stopping records that a stop was asked for, and by whom ("" = by ax).
func (b *Bucket) Stopping(ids []int64, reason, by string, now int64) error {
	from := b.s.machine.RunsTaking(batch.RunAskStop)
	return eachDay(ids, func(day int, part []int64) error {
		args := append([]any{string(batch.RunStopping), now, reason, cut(by, 128), day}, anys(from)...)
		args = append(args, anys(part)...)
		_, err := b.tx.ExecContext(b.ctx, "UPDATE execution_log SET status = ?, stop_asked_at = COALESCE(stop_asked_at, ?), stop_reason = ?, stop_asked_by = ? WHERE day = ? AND status IN ("+marks(len(from))+") AND id IN ("+marks(len(part))+")", args...)
		if err != nil {
			return fmt.Errorf("ask executions to stop: %w", err)
		}
		return nil
	})
}

// Renewal is a lease, and a deadline unless that is 0, that a heartbeat brought.
type Renewal struct {
	ID         int64
	LeaseUntil int64
	DeadlineAt int64
}

// Renew writes leases. Executions that have ended are left alone. Those that end alike and have no
// deadline go in one statement, since nearly all do.
func (b *Bucket) Renew(list []Renewal) error {
	plain := map[int64][]int64{}
	for _, r := range list {
		if r.DeadlineAt == 0 {
			plain[r.LeaseUntil] = append(plain[r.LeaseUntil], r.ID)
		}
	}
	for until, ids := range plain {
		err := eachDay(ids, func(day int, part []int64) error {
			args := append([]any{until, day, string(batch.RunRunning), string(batch.RunStopping), string(batch.RunUnknown)}, anys(part)...)
			_, err := b.tx.ExecContext(b.ctx, "UPDATE execution_log SET lease_until = ? WHERE day = ? AND status IN (?, ?, ?) AND id IN ("+marks(len(part))+")", args...)
			return err
		})
		if err != nil {
			return fmt.Errorf("renew leases: %w", err)
		}
	}
	for _, r := range list {
		if r.DeadlineAt == 0 {
			continue
		}
		args := []any{r.LeaseUntil, r.DeadlineAt, batch.ExecutionDay(r.ID), r.ID, string(batch.RunRunning), string(batch.RunStopping), string(batch.RunUnknown)}
		if _, err := b.tx.ExecContext(b.ctx, "UPDATE execution_log SET lease_until = ?, deadline_at = ? WHERE day = ? AND id = ? AND status IN (?, ?, ?)", args...); err != nil {
			return fmt.Errorf("renew lease of execution %d: %w", r.ID, err)
		}
	}
	return nil
}

// KindRouted is the event that keeps why an executor was chosen.
const KindRouted = "routed"

// EventRow is a deviation worth keeping.
type EventRow struct {
	NS          int64
	Day         int
	BatchID     string
	ExecutionID int64
	At          int64
	Kind        string
	Detail      string
}

// AddEvents appends events.
func (b *Bucket) AddEvents(list []EventRow) error {
	const width = 8
	for start := 0; start < len(list); start += group {
		part := list[start:min(start+group, len(list))]
		args := make([]any, 0, len(part)*width)
		for _, r := range part {
			args = append(args, TimedID(r.At), r.Day, r.NS, r.BatchID, r.ExecutionID, r.At, r.Kind, cut(r.Detail, 4000))
		}
		if _, err := b.tx.ExecContext(b.ctx, "INSERT INTO execution_event (id, day, ns_id, batch_id, execution_id, at, kind, detail) VALUES "+rows(len(part), width), args...); err != nil {
			return fmt.Errorf("add events: %w", err)
		}
	}
	return nil
}

// Place is where a page of open executions ended.
type Place struct{ NotBefore, ID int64 }

// Open lists the executions of a bucket in a state that is not final, earliest first, after a place, up to limit: what a
// new owner has to take up. It reads along the index, so that a page costs the same however many there are.
func (s *Store) Open(ctx context.Context, bucket int, state batch.Run, after Place, limit int) ([]Execution, error) {
	rows, err := s.sched.QueryContext(ctx, "SELECT "+executionColumns+" FROM execution_log"+s.openIndex()+" WHERE bucket = ? AND status = ? AND not_before >= ? AND (not_before > ? OR id > ?) ORDER BY not_before, id LIMIT ?",
		bucket, string(state), after.NotBefore, after.NotBefore, after.ID, limit)
	if err != nil {
		return nil, unavailable(fmt.Errorf("read open executions: %w", err))
	}
	list, err := scanExecutions(rows)
	return list, unavailable(err)
}

// openIndex tells the planner which index finds what is open: it would rather walk the table, which grows with history,
// while what is open stays little.
func (s *Store) openIndex() string {
	if s.dialect == migrate.SQLite {
		return " INDEXED BY ix_execution_log_open"
	}
	return " FORCE INDEX (ix_execution_log_open)"
}

// OpenIn lists executions of some buckets in the given states that were sent before sentBefore.
func (s *Store) OpenIn(ctx context.Context, buckets []int, states []batch.Run, sentBefore int64, limit int) ([]Execution, error) {
	args := append(anys(buckets), anys(states)...)
	args = append(args, sentBefore, limit)
	rows, err := s.sched.QueryContext(ctx, "SELECT "+executionColumns+" FROM execution_log"+s.openIndex()+" WHERE bucket IN ("+marks(len(buckets))+") AND status IN ("+marks(len(states))+") AND dispatched_at > 0 AND dispatched_at < ? ORDER BY not_before, id LIMIT ?", args...)
	if err != nil {
		return nil, unavailable(fmt.Errorf("read running executions: %w", err))
	}
	list, err := scanExecutions(rows)
	return list, unavailable(err)
}

// BatchHeads reads batches by id outside a transaction.
func (s *Store) BatchHeads(ctx context.Context, ids map[string]int) (map[string]BatchHead, error) {
	out := make(map[string]BatchHead, len(ids))
	err := eachBatch(ids, func(day int, part []string) error {
		rows, err := s.sched.QueryContext(ctx, "SELECT "+headColumns+" FROM execution_batch WHERE day = ? AND "+s.inBatches(len(part)), append([]any{day}, keysOf(part)...)...)
		if err != nil {
			return err
		}
		return scanHeads(rows, out)
	})
	return out, unavailable(err)
}

// cut shortens text to at most n bytes on a character's border, with a mark.
func cut(text string, n int) string {
	if len(text) <= n {
		return text
	}
	const mark = "… [cut]"
	end := n - len(mark)
	for end > 0 && text[end]&0xC0 == 0x80 {
		end--
	}
	return strings.ToValidUTF8(text[:end], "\uFFFD") + mark
}

// ToStop tells which of the executions that an executor of an app runs have ended or
// are to be stopped, so that the answer to its heartbeat can say so.
func (s *Store) ToStop(ctx context.Context, ns int64, ids []int64) ([]Execution, error) {
	var out []Execution
	err := eachDay(ids, func(day int, part []int64) error {
		var open []any
		for _, r := range batch.Runs() {
			if !r.Final() && r != batch.RunStopping {
				open = append(open, string(r))
			}
		}
		args := append([]any{day, ns}, open...)
		args = append(args, anys(part)...)
		rows, err := s.read.QueryContext(ctx, "SELECT "+executionColumns+" FROM execution_log WHERE day = ? AND ns_id = ? AND status NOT IN ("+marks(len(open))+") AND id IN ("+marks(len(part))+")", args...)
		if err != nil {
			return err
		}
		list, err := scanExecutions(rows)
		out = append(out, list...)
		return err
	})
	return out, unavailable(err)
}
