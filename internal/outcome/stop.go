package outcome

import (
	"context"
	"errors"
	"log/slog"
	"strconv"

	"github.com/ax-scheduler/ax/internal/batch"
	"github.com/ax-scheduler/ax/internal/clock"
	"github.com/ax-scheduler/ax/internal/ready"
	"github.com/ax-scheduler/ax/internal/store"
)

// Acknowledged notes that an executor took the wish to stop executions: it was asked, and has not
// stopped them yet.
func (o *Outcome) Acknowledged(ctx context.Context, executions []int64) error {
	buckets := map[int][]int64{}
	for _, id := range executions {
		b := batch.ExecutionBucket(id)
		buckets[b] = append(buckets[b], id)
	}
	for bucket, ids := range buckets {
		f, ok := o.cluster.Fence(bucket)
		if !ok {
			return ErrNotOwner
		}
		if err := o.store.InBucket(ctx, f, func(b *store.Bucket) error { return b.Acknowledged(ids, clock.Millis(o.clock)) }); err != nil {
			o.Failed(f, err)
			return err
		}
	}
	return nil
}

// linger keeps the places of executions that have ended and may still run: on their executor, which
// has not been relieved, and of their job.
func (o *Outcome) linger(bucket int, list []store.Lingering) {
	if len(list) == 0 {
		return
	}
	o.mu.Lock()
	for _, l := range list {
		o.lingering[l.ExecutionID] = l
	}
	o.mu.Unlock()
	for _, l := range list {
		o.ready.Active(ready.Active{BatchID: place(l.ExecutionID), Bucket: bucket, NS: l.NS, JobID: l.JobID, Lingers: true})
	}
}

// place is the name under which an execution that lingers counts against its job's limit. It is no
// batch's id.
func place(execution int64) string { return "lingering/" + strconv.FormatInt(execution, 10) }

// unlinger gives the places up.
func (o *Outcome) unlinger(ids []int64, now int64) {
	for _, id := range ids {
		o.mu.Lock()
		l, ok := o.lingering[id]
		delete(o.lingering, id)
		o.mu.Unlock()
		if ok {
			o.registry.Gave(l.WorkerID, id)
			o.ready.Discharge(id)
			o.ready.Ended(l.JobID, place(id), now)
		}
	}
}

// Lingers tells whether an execution has ended and may still run.
func (o *Outcome) Lingers(execution int64) bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	_, ok := o.lingering[execution]
	return ok
}

// Lingering lists the executions of a bucket that have ended and may still run.
func (o *Outcome) Lingering(bucket int) []store.Lingering {
	o.mu.Lock()
	defer o.mu.Unlock()
	var out []store.Lingering
	for id, l := range o.lingering {
		if batch.ExecutionBucket(id) == bucket {
			out = append(out, l)
		}
	}
	return out
}

// Release gives up the places of executions of a bucket that lingered. confirmed: they are known not to
// run any more; else nobody will ever know.
func (o *Outcome) Release(ctx context.Context, bucket int, list []store.Lingering, confirmed bool, why string) error {
	f, ok := o.cluster.Fence(bucket)
	if !ok {
		return ErrNotOwner
	}
	now := clock.Millis(o.clock)
	ids := make([]int64, len(list))
	events := make([]store.EventRow, len(list))
	kind := "stop_confirmed"
	if !confirmed {
		kind = "stop_given_up"
	}
	for i, l := range list {
		ids[i] = l.ExecutionID
		events[i] = store.EventRow{NS: l.NS, Day: batch.ExecutionDay(l.ExecutionID), BatchID: l.BatchID, ExecutionID: l.ExecutionID, At: now, Kind: kind, Detail: why}
	}
	err := o.store.InBucket(ctx, f, func(b *store.Bucket) error {
		if err := b.Unlinger(ids, confirmed, now); err != nil {
			return err
		}
		return b.AddEvents(events)
	})
	if err != nil {
		o.Failed(f, err)
		return err
	}
	o.unlinger(ids, now)
	o.log.InfoContext(ctx, "places of executions that would not stop are free", slog.Int("bucket", bucket), slog.Int("count", len(ids)), slog.String("why", why))
	return nil
}

type shardOf struct {
	batch string
	shard int
}

// takeUpLingering remembers the executions of a bucket that have ended and may still run, and tells
// which of them each shard has to wait for.
func (o *Outcome) takeUpLingering(ctx context.Context, bucket int) (map[shardOf]int64, error) {
	list, err := o.store.LingeringIn(ctx, bucket)
	if err != nil {
		return nil, err
	}
	o.mu.Lock()
	for id := range o.lingering {
		if batch.ExecutionBucket(id) == bucket {
			delete(o.lingering, id)
		}
	}
	o.mu.Unlock()
	ids := make(map[string]int, len(list))
	for _, l := range list {
		ids[l.BatchID] = batch.ExecutionDay(l.ExecutionID)
	}
	heads, err := o.store.BatchHeads(ctx, ids)
	if err != nil {
		return nil, err
	}
	shards := make(map[shardOf]int64, len(list))
	for _, l := range list {
		shards[shardOf{l.BatchID, l.Shard}] = l.ExecutionID
		b, err := o.Batch(ctx, heads[l.BatchID], bucket)
		if errors.Is(err, store.ErrNotFound) {
			continue // its definition is gone with its history
		}
		if err != nil {
			return nil, err
		}
		o.registry.Took(l.WorkerID, l.JobID, l.ExecutionID, l.Since, b.Load())
		o.ready.Charge(b, l.ExecutionID)
	}
	o.linger(bucket, list)
	return shards, nil
}

// CancelRetries ends, inside a transaction, retries that wait and were taken out of package ready, and
// returns what has to be done after its commit: their shards stay as they failed.
func (o *Outcome) CancelRetries(ctx context.Context, b *store.Bucket, bucket int, retries []*ready.Execution, reason string) (after func(), err error) {
	if len(retries) == 0 {
		return func() {}, nil
	}
	p := o.newPass(ctx, b, bucket)
	reports := make([]*Report, len(retries))
	for i, e := range retries {
		reports[i] = &Report{ExecutionID: e.ID, Event: batch.RunCancel, Reason: reason}
	}
	if err := p.run(reports); err != nil {
		return nil, err
	}
	return p.after, nil
}
