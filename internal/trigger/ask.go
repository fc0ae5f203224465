package trigger

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/ax-scheduler/ax/internal/batch"
	"github.com/ax-scheduler/ax/internal/clock"
	"github.com/ax-scheduler/ax/internal/job"
	"github.com/ax-scheduler/ax/internal/outcome"
	"github.com/ax-scheduler/ax/internal/ready"
	"github.com/ax-scheduler/ax/internal/schedule"
	"github.com/ax-scheduler/ax/internal/store"
)

const (
	// NearFor is up to which delay a delayed task goes into memory at once, if there is room.
	NearFor = 10 * time.Minute
	// askLimit bounds the asks of one bucket that wait for their commit.
	askLimit = 50_000
	// askGroup is how many asks one transaction takes.
	askGroup = 2000
	// askTimeout bounds one transaction with the wait for its bucket.
	askTimeout = 10 * time.Second
)

// Ask is a batch that somebody wants: now (by hand, for an event) or at an instant (a delayed task).
type Ask struct {
	Job    store.Job
	Kind   schedule.Kind
	DueAt  int64 // ax time in milliseconds; what has passed, and 0, is now
	Params *string
	Event  *string // JSON that the executor gets
	By     string
	// Key makes the ask idempotent for 24 hours; "" = it is not. Body is what a repetition must be
	// equal in.
	Key  string
	Body string
	// BusinessKey, when not "", is refused while a task of the job with the same one is not final, and for
	// Keep beyond its end.
	BusinessKey string
	Keep        time.Duration
	// Entry is the audit entry of the ask; nil when something else is its audit.
	Entry *store.AuditEntry
}

// Answer is the batch of an ask, or why there is none.
type Answer struct {
	BatchID string
	DueAt   int64 // 0 when the batch was there already
	Err     error
}

// ErrKeyReused says that an idempotency key was used for something else before.
var ErrKeyReused = errors.New("this idempotency key was used for another request")

// ErrBusy says that too many asks wait for their commit: try again later.
var ErrBusy = errors.New("too many requests are waiting to be written: try again later")

// TakenError says that a business key is taken.
type TakenError struct{ BatchID string }

// Error tells by which batch.
func (e *TakenError) Error() string { return "a task with this key exists: " + e.BatchID }

// asks are those of one bucket that wait for their commit.
type asks struct {
	mu      sync.Mutex
	waiting []*asked
	n       int
	writing bool
}

// asked are the asks of one call.
type asked struct {
	list    []Ask
	answers []Answer
	done    chan error
}

// Ask opens one batch. What it returns is durable.
func (t *Trigger) Ask(ctx context.Context, a Ask) (Answer, error) {
	answers, err := t.AskAll(ctx, a.Job.Bucket, []Ask{a})
	if err != nil {
		return Answer{}, err
	}
	return answers[0], answers[0].Err
}

// AskAll opens batches of one bucket, each on its own: an ask that is refused does not keep the others
// from being made. What piled up while the last transaction ran goes into the next one together, whoever asked. When ctx
// ends, what was asked may still be made.
func (t *Trigger) AskAll(ctx context.Context, bucket int, list []Ask) ([]Answer, error) {
	q := &t.asks[bucket]
	a := &asked{list: list, answers: make([]Answer, len(list)), done: make(chan error, 1)}
	q.mu.Lock()
	if q.n+len(list) > askLimit {
		q.mu.Unlock()
		return nil, ErrBusy
	}
	q.waiting, q.n = append(q.waiting, a), q.n+len(list)
	if !q.writing {
		q.writing = true
		go t.write(bucket)
	}
	q.mu.Unlock()
	select {
	case err := <-a.done:
		return a.answers, err
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// write makes what waits in a bucket durable until nothing does.
func (t *Trigger) write(bucket int) {
	q := &t.asks[bucket]
	for {
		q.mu.Lock()
		if len(q.waiting) == 0 {
			q.writing = false
			q.mu.Unlock()
			return
		}
		n, taken := 0, 0
		for taken < len(q.waiting) && (taken == 0 || n+len(q.waiting[taken].list) <= askGroup) {
			n += len(q.waiting[taken].list)
			taken++
		}
		part := q.waiting[:taken:taken]
		q.waiting, q.n = q.waiting[taken:], q.n-n
		q.mu.Unlock()
		ctx, cancel := context.WithTimeout(context.Background(), askTimeout)
		err := t.commit(ctx, bucket, part)
		cancel()
		for _, a := range part {
			a.done <- err
		}
	}
}

// item is an ask on its way to its rows.
type item struct {
	ask    *Ask
	answer *Answer
	x      firing
}

// commit makes some asks durable in one transaction.
func (t *Trigger) commit(ctx context.Context, bucket int, part []*asked) error {
	f, ok := t.cluster.Await(ctx, bucket)
	if !ok {
		return outcome.ErrNotOwner
	}
	now := clock.Millis(t.clock)
	var items []*item
	for _, a := range part {
		for i := range a.list {
			it := &item{ask: &a.list[i], answer: &a.answers[i]}
			*it.answer = Answer{}
			if it.x, it.answer.Err = t.asked(ctx, f, it.ask, now); it.answer.Err == nil {
				items = append(items, it)
			}
		}
	}
	defer t.ready.Hold(bucket)()
	var add []*ready.Execution
	var soon bool
	err := t.store.InBucket(ctx, f, func(b *store.Bucket) error {
		fresh, err := t.unknown(b, items, now)
		if err != nil {
			return err
		}
		xs := make([]firing, len(fresh))
		for i, it := range fresh {
			xs[i] = it.x
			if it.ask.Entry == nil {
				continue
			}
			if err := b.Audit(it.ask.Entry); err != nil {
				return err
			}
		}
		add, soon, err = t.place(b, xs, now)
		return err
	})
	if err != nil {
		t.outcome.Failed(f, err)
		return err
	}
	t.ready.Add(add...)
	if soon {
		t.Nudge()
	}
	return nil
}

// asked makes the batch of an ask.
func (t *Trigger) asked(ctx context.Context, f store.Fence, a *Ask, now int64) (firing, error) {
	def, err := t.store.Definition(ctx, a.Job.ID, a.Job.Version)
	if err != nil {
		return firing{}, err
	}
	location, err := schedule.ParseZone(outcome.ZoneOf(def, 0))
	if err != nil {
		return firing{}, err
	}
	due := max(a.DueAt, now)
	// 64 bits: with half of them a hundred thousand tasks of one job that are due at one millisecond had
	// the same id twice, more often than not.
	var tail [8]byte
	_, _ = rand.Read(tail[:])
	id := batch.FreshID(a.Job.ID, time.UnixMilli(due).In(location), hex.EncodeToString(tail[:]))
	return t.fresh(f, a.Job, def, a.Kind, id, due, a.Params, a.Event, a.BusinessKey, a.By, now), nil
}

// fresh is the form of a batch that no schedule planned.
func (t *Trigger) fresh(f store.Fence, j store.Job, def *job.Definition, kind schedule.Kind, id string, due int64, params, event *string, key, by string, createdAt int64) firing {
	_, day, _ := batch.ParseID(id)
	b := &ready.Batch{
		ID: id, Day: day, Bucket: f.Bucket, NS: j.NS, JobID: j.ID, JobVersion: j.Version, AppID: j.AppID, Def: def, Kind: string(kind),
		DueAt: due, PlannedFor: due, Params: def.Params, Key: key, Zone: outcome.ZoneOf(def, 0), Priority: def.Priority, Turn: t.turn(j.ID, due),
	}
	if params != nil {
		b.Params = *params
	}
	b.Total = t.Total(b)
	if event != nil {
		b.EventBytes = len(*event)
		if b.EventBytes <= store.ShortEvent {
			b.Event = event
		}
	}
	return firing{batch: b, notBefore: due, row: store.BatchRow{
		ID: id, Day: day, NS: j.NS, JobID: j.ID, JobVersion: j.Version, TriggerKind: string(kind), DueAt: due, PlannedFor: due, State: batch.Delayed,
		Priority: def.Priority, Total: b.Total, Params: params, Event: event, Key: key, CreatedBy: by, CreatedAt: createdAt,
	}}
}

// keyed are the keys of one job in one scope.
type keyed struct {
	ns, job int64
	scope   string
}

// unknown answers the asks whose keys are known already, writes the keys of the others and returns those.
func (t *Trigger) unknown(b *store.Bucket, items []*item, now int64) ([]*item, error) {
	scope := func(it *item) keyed { return keyed{it.ask.Job.NS, it.ask.Job.ID, askScope(it.ask.Kind)} }
	business := func(it *item) keyed { return keyed{it.ask.Job.NS, it.ask.Job.ID, store.ScopeDelayed} }
	hashes := map[keyed][]string{}
	jobs := map[int64]bool{}
	for _, it := range items {
		jobs[it.ask.Job.ID] = true
	}
	// Since a call read its job somebody may have deleted it, and with it what waited of it: nothing may follow.
	there, err := b.JobsThere(slices.Collect(maps.Keys(jobs))...)
	if err != nil {
		return nil, err
	}
	for _, it := range items {
		*it.answer = Answer{}
		if it.ask.Key != "" {
			hashes[scope(it)] = append(hashes[scope(it)], store.KeyHash(it.ask.Key))
		}
		if it.ask.BusinessKey != "" {
			hashes[business(it)] = append(hashes[business(it)], store.KeyHash(it.ask.BusinessKey))
		}
	}
	taken := map[keyed]map[string]store.DedupeKey{}
	for k, list := range hashes {
		known, err := b.Keys(k.ns, k.job, k.scope, list, now)
		if err != nil {
			return nil, err
		}
		taken[k] = known
	}
	var fresh []*item
	var put []store.DedupeKey
	for _, it := range items {
		if !there[it.ask.Job.ID] {
			it.answer.Err = store.ErrNotFound
			continue
		}
		own := store.DedupeKey{NS: it.ask.Job.NS, JobID: it.ask.Job.ID, BatchID: it.x.row.ID}
		var write []store.DedupeKey
		if it.ask.Key != "" {
			k := own
			k.Scope, k.Hash, k.BodyHash, k.ExpiresAt = askScope(it.ask.Kind), store.KeyHash(it.ask.Key), store.KeyHash(it.ask.Body), now+dedupeFor.Milliseconds()
			if known, ok := taken[scope(it)][k.Hash]; ok {
				if known.BodyHash != k.BodyHash {
					it.answer.Err = ErrKeyReused
				} else {
					it.answer.BatchID = known.BatchID
				}
				continue
			}
			write = append(write, k)
		}
		if it.ask.BusinessKey != "" {
			k := own
			k.Scope, k.Hash, k.ExpiresAt, k.WindowMs = store.ScopeDelayed, store.KeyHash(it.ask.BusinessKey), store.Forever, it.ask.Keep.Milliseconds()
			if known, ok := taken[business(it)][k.Hash]; ok {
				it.answer.Err = &TakenError{known.BatchID}
				continue
			}
			write = append(write, k)
		}
		for _, k := range write {
			taken[keyed{k.NS, k.JobID, k.Scope}][k.Hash] = k
		}
		put = append(put, write...)
		it.answer.BatchID, it.answer.DueAt = it.x.row.ID, it.x.row.DueAt
		fresh = append(fresh, it)
	}
	return fresh, b.PutKeys(put)
}

func askScope(kind schedule.Kind) string { return "ask_" + string(kind) }

// place writes batches that are asked for: what is near, and what there is room for, with its executions,
// which it returns for memory; the rest into the table where delayed tasks rest. soon says that some of
// those will have to be taken from there before the loop would look.
func (t *Trigger) place(b *store.Bucket, list []firing, now int64) (add []*ready.Execution, soon bool, err error) {
	room := t.near - t.ready.Ahead()
	var rest []store.DelayedTask
	var near []firing
	for _, x := range list {
		wait := time.Duration(x.row.DueAt-now) * time.Millisecond
		if x.batch.Kind == string(schedule.Delayed) && wait > Window && (wait > NearFor || room <= 0) {
			rest = append(rest, store.DelayedTask{
				DueAt: x.row.DueAt, ID: b.TakeSequence(1), BatchID: x.row.ID, NS: x.row.NS, JobID: x.row.JobID, Key: x.row.Key, Payload: x.row.Event, CreatedBy: x.row.CreatedBy, CreatedAt: x.row.CreatedAt,
			})
			soon = soon || wait < restAhead+idle
			continue
		}
		room--
		near = append(near, x)
	}
	if err := b.InsertDelayed(rest); err != nil {
		return nil, false, err
	}
	add, err = t.insert(b, near)
	return add, soon, err
}

// insert writes new batches with their executions and returns these for memory.
func (t *Trigger) insert(b *store.Bucket, list []firing) ([]*ready.Execution, error) {
	batches := make([]store.BatchRow, len(list))
	for i, x := range list {
		batches[i] = x.row
	}
	existing, err := b.InsertBatches(batches)
	if err != nil {
		return nil, err
	}
	var rows []store.ExecutionRow
	var add []*ready.Execution
	for _, x := range list {
		if existing[x.row.ID] {
			t.metrics.Duplicates.WithLabelValues("firing").Inc()
			continue
		}
		rows, add = t.executions(x, rows, add)
	}
	first := b.TakeSequence(len(rows))
	for i := range rows {
		rows[i].ID = batch.ExecutionID(rows[i].Day, b.Fence().Bucket, first+int64(i))
		add[i].ID = rows[i].ID
	}
	return add, b.InsertExecutions(rows)
}
