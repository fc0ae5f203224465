package trigger

import (
	"context"
	"errors"
	"time"

	"github.com/ax-scheduler/ax/internal/batch"
	"github.com/ax-scheduler/ax/internal/clock"
	"github.com/ax-scheduler/ax/internal/outcome"
	"github.com/ax-scheduler/ax/internal/ready"
	"github.com/ax-scheduler/ax/internal/schedule"
	"github.com/ax-scheduler/ax/internal/store"
)

// restAhead is how long before their time resting tasks are taken from their table.
const restAhead = 30 * time.Second

// restRoom times the firings that may wait in memory is where taking tasks from their table pauses: after a
// long stop millions may be overdue.
const restRoom = 4

// resting are the delayed tasks that rest in their table.
type resting struct{ t *Trigger }

func (r resting) next(ctx context.Context) (map[int]int64, error) { return r.t.store.NextDelayed(ctx) }
func (r resting) ahead() time.Duration                            { return restAhead }

// slack: what is due within a second is taken together.
func (r resting) slack() (slack, pace time.Duration) { return time.Second, time.Second }

// open takes one page of tasks from their table and makes them batches, in one transaction.
func (r resting) open(ctx context.Context, f store.Fence, now int64) (more bool, err error) {
	t := r.t
	if t.ready.Ahead()+t.ready.Len() > restRoom*t.near {
		return false, nil // what has piled up goes first; the next look comes soon
	}
	defer t.ready.Hold(f.Bucket)()
	var add []*ready.Execution
	err = t.store.InBucket(ctx, f, func(b *store.Bucket) error {
		add = nil
		tasks, err := b.TakeDelayed(now+restAhead.Milliseconds(), pageLimit)
		if err != nil || len(tasks) == 0 {
			more = false
			return err
		}
		more = len(tasks) == pageLimit
		jobs, err := b.JobHeads(tasks)
		if err != nil {
			return err
		}
		xs := make([]firing, 0, len(tasks))
		var gone []store.BatchRow
		var keys []store.KeyEnd
		for _, d := range tasks {
			j, ok := jobs[d.JobID]
			if !ok {
				row := ended(d, outcome.ReasonJobDeleted, "", now)
				gone, keys = append(gone, row), append(keys, freed(d, now)...)
				continue
			}
			def, err := t.store.Definition(ctx, j.ID, j.Version)
			if err != nil {
				return err
			}
			xs = append(xs, t.fresh(f, j, def, schedule.Delayed, d.BatchID, d.DueAt, nil, d.Payload, d.Key, d.CreatedBy, d.CreatedAt))
		}
		if _, err := b.InsertBatches(gone); err != nil {
			return err
		}
		if err := b.EndKeys(keys); err != nil {
			return err
		}
		add, err = t.insert(b, xs)
		return err
	})
	if err != nil {
		t.outcome.Failed(f, err)
		return false, err
	}
	t.ready.Add(add...)
	return more, nil
}

// ended is the row of a task that was called off while it rested.
func ended(d store.DelayedTask, reason, detail string, now int64) store.BatchRow {
	_, day, _ := batch.ParseID(d.BatchID)
	return store.BatchRow{
		ID: d.BatchID, Day: day, NS: d.NS, JobID: d.JobID, TriggerKind: string(schedule.Delayed), DueAt: d.DueAt, PlannedFor: d.DueAt, State: batch.Cancelled, Total: 1,
		Event: d.Payload, Reason: reason, Detail: detail, CreatedBy: d.CreatedBy, CreatedAt: d.CreatedAt, FinishedAt: now, Key: d.Key,
	}
}

func freed(d store.DelayedTask, now int64) []store.KeyEnd {
	if d.Key == "" {
		return nil
	}
	return []store.KeyEnd{{NS: d.NS, JobID: d.JobID, Scope: store.ScopeDelayed, Hash: store.KeyHash(d.Key), BatchID: d.BatchID, EndedAt: now, Free: true}}
}

// CancelResting calls off a task that rests in its table. store.ErrNotFound: it does not rest there (any
// more): it is a batch.
func (t *Trigger) CancelResting(ctx context.Context, bucket int, ns int64, batchID string, entry *store.AuditEntry) error {
	f, ok := t.cluster.Await(ctx, bucket)
	if !ok {
		return outcome.ErrNotOwner
	}
	defer t.ready.Hold(bucket)()
	now := clock.Millis(t.clock)
	err := t.store.InBucket(ctx, f, func(b *store.Bucket) error {
		d, err := b.RemoveDelayed(ns, batchID)
		if err != nil {
			return err
		}
		if _, err := b.InsertBatches([]store.BatchRow{ended(d, outcome.ReasonCancelled, "", now)}); err != nil {
			return err
		}
		if err := b.EndKeys(freed(d, now)); err != nil {
			return err
		}
		return b.Audit(entry)
	})
	if err != nil && !errors.Is(err, store.ErrNotFound) {
		t.outcome.Failed(f, err)
	}
	return err
}

// Reschedule moves a delayed task that has not been sent to another time (what has passed is now). The
// planned time is part of a batch's id, so the task goes on under a new one, which it returns; the old one is
// CANCELLED and names it. The business key goes along. batch.ErrNotAllowed: it has been sent, or has ended.
func (t *Trigger) Reschedule(ctx context.Context, j store.Job, old store.Batch, dueAt int64, by string, entry *store.AuditEntry) (Answer, error) {
	f, ok := t.cluster.Await(ctx, j.Bucket)
	if !ok {
		return Answer{}, outcome.ErrNotOwner
	}
	now := clock.Millis(t.clock)
	x, err := t.asked(ctx, f, &Ask{Job: j, Kind: schedule.Delayed, DueAt: dueAt, Event: old.Event, By: by, BusinessKey: old.Key}, now)
	if err != nil {
		return Answer{}, err
	}
	id := x.row.ID
	var add []*ready.Execution
	var soon bool
	follow := func(b *store.Bucket) error {
		if old.Key != "" {
			// The window of the key is that of the key that was.
			hash := store.KeyHash(old.Key)
			known, err := b.Keys(j.NS, j.ID, store.ScopeDelayed, []string{hash}, 0)
			if err != nil {
				return err
			}
			if err := b.PutKeys([]store.DedupeKey{{NS: j.NS, JobID: j.ID, Scope: store.ScopeDelayed, Hash: hash, BatchID: id, ExpiresAt: store.Forever, WindowMs: known[hash].WindowMs}}); err != nil {
				return err
			}
		}
		var err error
		if add, soon, err = t.place(b, []firing{x}, now); err != nil {
			return err
		}
		return b.Audit(entry)
	}
	err = t.moveResting(ctx, f, old.NS, old.ID, id, now, follow)
	if errors.Is(err, store.ErrNotFound) {
		err = t.outcome.CancelUnsent(ctx, j.Bucket, old.ID, outcome.ReasonRescheduled, id, follow)
	}
	if err != nil {
		return Answer{}, err
	}
	t.ready.Add(add...)
	if soon {
		t.Nudge()
	}
	return Answer{BatchID: id, DueAt: x.row.DueAt}, nil
}

func (t *Trigger) moveResting(ctx context.Context, f store.Fence, ns int64, batchID, next string, now int64, follow func(b *store.Bucket) error) error {
	defer t.ready.Hold(f.Bucket)()
	err := t.store.InBucket(ctx, f, func(b *store.Bucket) error {
		d, err := b.RemoveDelayed(ns, batchID)
		if err != nil {
			return err
		}
		if _, err := b.InsertBatches([]store.BatchRow{ended(d, outcome.ReasonRescheduled, next, now)}); err != nil {
			return err
		}
		return follow(b)
	})
	if err != nil && !errors.Is(err, store.ErrNotFound) {
		t.outcome.Failed(f, err)
	}
	return err
}
