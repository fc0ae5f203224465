package outcome

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strconv"
	"time"

	"github.com/ax-scheduler/ax/internal/batch"
	"github.com/ax-scheduler/ax/internal/clock"
	"github.com/ax-scheduler/ax/internal/job"
	"github.com/ax-scheduler/ax/internal/ready"
	"github.com/ax-scheduler/ax/internal/routing"
	"github.com/ax-scheduler/ax/internal/store"
)

// clockSkew is how far the ax time of two owners may lie apart.
const clockSkew = 500

// newPass starts the work of one transaction.
func (o *Outcome) newPass(ctx context.Context, b *store.Bucket, bucket int) *pass {
	return &pass{o: o, b: b, ctx: ctx, now: clock.Millis(o.clock), bucket: bucket, closing: map[closing][]string{}}
}

// Cancel ends a batch by hand or for the sake of the next one (reason). What waits is
// cancelled at once, retries included; what runs is asked to stop, and the batch ends when its
// executors have confirmed. batch.ErrNotAllowed: it has ended already. The audit entry, when there
// is one, is written in the same transaction.
func (o *Outcome) Cancel(ctx context.Context, bucket int, id, reason string, entry *store.AuditEntry) error {
	_, day, ok := batch.ParseID(id)
	if !ok {
		return store.ErrNotFound
	}
	f, ok := o.cluster.Fence(bucket)
	if !ok {
		return ErrNotOwner
	}
	defer o.ready.Hold(bucket)()
	// What memory lets go of has not been sent and can be cancelled at once. Of the rest nobody knows
	// but its executor.
	taken := o.ready.TakeOut(func(e *ready.Execution) bool { return e.Batch.ID == id && (e.Bound == nil || !e.Bound.Sent) })
	unsent := make(map[int64]bool, len(taken))
	for _, e := range taken {
		unsent[e.ID] = true
	}
	by := ""
	if entry != nil {
		by = entry.ActorName
	}
	var p *pass
	var stops []ready.Stop
	err := o.store.InBucket(ctx, f, func(b *store.Bucket) error {
		stops = nil
		p = o.newPass(ctx, b, bucket)
		heads, err := b.Heads(map[string]int{id: day})
		if err != nil {
			return err
		}
		head, ok := heads[id]
		if !ok {
			return store.ErrNotFound
		}
		if head.State.Final() {
			return &batch.EndedError{State: head.State}
		}
		shards, err := b.LatestAttempts(id, day)
		if err != nil {
			return err
		}
		var reports []*Report
		var running []int64
		for _, row := range shards {
			switch {
			case row.Status.Final():
			case row.Status == batch.RunScheduled && (unsent[row.ID] || row.WorkerID == 0):
				reports = append(reports, &Report{ExecutionID: row.ID, Event: batch.RunCancel, Reason: reason})
			default:
				running = append(running, row.ID)
				stops = append(stops, ready.Stop{WorkerID: row.WorkerID, ExecutionID: row.ID, BatchID: id, Bucket: bucket, Reason: reason})
			}
		}
		if err := p.run(reports); err != nil {
			return err
		}
		if err := b.Stopping(running, reason, by, p.now); err != nil {
			return err
		}
		if err := b.AddEvents([]store.EventRow{{NS: head.NS, Day: day, BatchID: id, At: p.now, Kind: "cancel_asked", Detail: reason}}); err != nil {
			return err
		}
		if entry != nil {
			return b.Audit(entry)
		}
		return nil
	})
	if err != nil {
		o.ready.Add(taken...)
		if !errors.Is(err, batch.ErrNotAllowed) && !errors.Is(err, store.ErrNotFound) {
			o.Failed(f, err)
		}
		return err
	}
	p.after()
	o.ready.AskStop(stops...)
	return nil
}

// CancelUnsent ends a batch of which nothing has been sent yet, and runs also in the same transaction:
// what is to happen in its place. batch.ErrNotAllowed: it has been sent, or has ended.
func (o *Outcome) CancelUnsent(ctx context.Context, bucket int, id, reason, detail string, also func(b *store.Bucket) error) error {
	_, day, ok := batch.ParseID(id)
	if !ok {
		return store.ErrNotFound
	}
	f, ok := o.cluster.Await(ctx, bucket)
	if !ok {
		return ErrNotOwner
	}
	defer o.ready.Hold(bucket)()
	taken := o.ready.TakeOut(func(e *ready.Execution) bool { return e.Batch.ID == id && (e.Bound == nil || !e.Bound.Sent) })
	var p *pass
	err := o.store.InBucket(ctx, f, func(b *store.Bucket) error {
		p = o.newPass(ctx, b, bucket)
		heads, err := b.Heads(map[string]int{id: day})
		if err != nil {
			return err
		}
		head, ok := heads[id]
		if !ok {
			return store.ErrNotFound
		}
		if head.State.Final() || len(taken) < head.Total {
			return fmt.Errorf("batch is %s: %w", head.State, batch.ErrNotAllowed)
		}
		reports := make([]*Report, len(taken))
		for i, e := range taken {
			reports[i] = &Report{ExecutionID: e.ID, Event: batch.RunCancel, Reason: reason}
		}
		if err := p.run(reports); err != nil {
			return err
		}
		if err := b.AddEvents([]store.EventRow{{NS: head.NS, Day: day, BatchID: id, At: p.now, Kind: reason, Detail: detail}}); err != nil {
			return err
		}
		return also(b)
	})
	if err != nil {
		o.ready.Add(taken...)
		if !errors.Is(err, batch.ErrNotAllowed) && !errors.Is(err, store.ErrNotFound) {
			o.Failed(f, err)
		}
		return err
	}
	p.after()
	return nil
}

// Retry tries the failed shards of a batch that has ended again, by hand: each gets a new
// attempt with a full budget of retries; shards that succeeded are left alone. It returns how many
// shards are tried again. batch.ErrNotAllowed: it has not ended, or every shard succeeded.
func (o *Outcome) Retry(ctx context.Context, bucket int, id string, entry *store.AuditEntry) (int, error) {
	_, day, ok := batch.ParseID(id)
	if !ok {
		return 0, store.ErrNotFound
	}
	f, ok := o.cluster.Await(ctx, bucket)
	if !ok {
		return 0, ErrNotOwner
	}
	defer o.ready.Hold(bucket)()
	var head store.BatchHead
	var rows []store.ExecutionRow
	behind := map[int]int64{}
	now := clock.Millis(o.clock)
	err := o.store.InBucket(ctx, f, func(b *store.Bucket) error {
		rows = nil
		heads, err := b.Heads(map[string]int{id: day})
		if err != nil {
			return err
		}
		var found bool
		if head, found = heads[id]; !found {
			return store.ErrNotFound
		}
		shards, err := b.LatestAttempts(id, day)
		if err != nil {
			return err
		}
		for _, s := range shards {
			if s.Status == batch.RunSucceeded {
				continue
			}
			if s.Lingers() {
				behind[s.Shard] = s.ID
			}
			rows = append(rows, store.ExecutionRow{
				Day: day, NS: s.NS, JobID: s.JobID, BatchID: id, Shard: s.Shard, Total: s.Total, Attempt: s.Attempt + 1, Series: s.Attempt,
				Status: batch.RunScheduled, TriggerTime: s.TriggerTime, NotBefore: now,
			})
		}
		if head.State == batch.Succeeded && len(rows) == 0 {
			return fmt.Errorf("every shard has succeeded: %w", batch.ErrNotAllowed)
		}
		if err := b.AdvanceBatch(head, batch.EventReopen, "retried_by_hand", ""); err != nil {
			return err
		}
		if err := b.Reopened(head, len(rows)); err != nil {
			return err
		}
		if err := b.EndKeys(appendKey(nil, head.NS, head.JobID, head.Key, id, store.Forever, true)); err != nil {
			return err
		}
		first := b.TakeSequence(len(rows))
		for i := range rows {
			rows[i].ID = batch.ExecutionID(day, bucket, first+int64(i))
		}
		if err := b.InsertExecutions(rows); err != nil {
			return err
		}
		if err := b.AddEvents([]store.EventRow{{NS: head.NS, Day: day, BatchID: id, At: now, Kind: "retry_by_hand", Detail: strconv.Itoa(len(rows)) + " shards"}}); err != nil {
			return err
		}
		return b.Audit(entry)
	})
	if err != nil {
		if !errors.Is(err, batch.ErrNotAllowed) && !errors.Is(err, store.ErrNotFound) && !errors.Is(err, store.ErrStale) {
			o.Failed(f, err)
		}
		return 0, err
	}
	shared, err := o.Batch(ctx, head, bucket)
	if err != nil {
		o.reload(bucket)
		return len(rows), nil //nolint:nilerr // the rows are durable; the bucket is read again
	}
	shared.Admitted = true
	o.ready.Active(shared.Active())
	list := make([]*ready.Execution, len(rows))
	for i, r := range rows {
		list[i] = &ready.Execution{Batch: shared, ID: r.ID, Shard: r.Shard, Attempt: r.Attempt, Moves: r.Moves, NotBefore: now, Behind: behind[r.Shard]}
	}
	o.ready.Add(list...)
	return len(rows), nil
}

// Skip ends firings that their job's concurrency policy decided against.
func (o *Outcome) Skip(ctx context.Context, skips []ready.Skip) error {
	return o.unstarted(ctx, skips, batch.EventSkip, "skipped")
}

// Miss ends catch-ups that found no start in time.
func (o *Outcome) Miss(ctx context.Context, missed []ready.Skip) error {
	return o.unstarted(ctx, missed, batch.EventMiss, "missed")
}

// unstarted ends firings that will not start.
func (o *Outcome) unstarted(ctx context.Context, skips []ready.Skip, event batch.Event, fate string) error {
	state := batch.Skipped
	if event == batch.EventMiss {
		state = batch.Missed
	}
	buckets := map[int][]ready.Skip{}
	for _, s := range skips {
		b := s.Executions[0].Batch.Bucket
		buckets[b] = append(buckets[b], s)
	}
	var errs error
	for bucket, list := range buckets {
		f, ok := o.cluster.Fence(bucket)
		if !ok {
			continue // the new owner decides again
		}
		now := clock.Millis(o.clock)
		planned := false
		release := o.ready.Hold(bucket)
		err := o.store.InBucket(ctx, f, func(b *store.Bucket) error {
			reasons := map[string]map[string]int{}
			var endings []store.Ending
			var ids []int64
			var keys []store.KeyEnd
			for _, s := range list {
				for _, e := range s.Executions {
					ids = append(ids, e.ID)
				}
			}
			rows, err := b.Executions(ids)
			if err != nil {
				return err
			}
			for _, s := range list {
				head := s.Executions[0].Batch
				if rows[s.Executions[0].ID].Status != batch.RunScheduled {
					continue // it was sent before, or withdrawn: memory is behind
				}
				if reasons[s.Reason] == nil {
					reasons[s.Reason] = map[string]int{}
				}
				reasons[s.Reason][head.ID] = head.Day
				keys = appendKey(keys, head.NS, head.JobID, head.Key, head.ID, now, false)
				if head.Kind == "fixedDelay" && head.TriggerNo > 0 {
					// Nothing will end that could plan the next one.
					again, err := b.SetFixedDelay(head.JobID, head.TriggerNo, now)
					if err != nil {
						return err
					}
					planned = planned || again
				}
				for _, e := range s.Executions {
					// Why is said by the batch. The row does not grow: skipping must cost less than running.
					endings = append(endings, store.Ending{ID: e.ID, Status: batch.RunCancelled, Duration: -1})
				}
			}
			if err := b.End(endings, now); err != nil {
				return err
			}
			if err := b.EndKeys(keys); err != nil {
				return err
			}
			for reason, batches := range reasons {
				if err := b.EndBatches(batches, event, reason, "", 0, 0, now); err != nil {
					return err
				}
			}
			return nil
		})
		release()
		if err != nil {
			o.Failed(f, err)
			errs = errors.Join(errs, err)
			continue
		}
		for _, s := range list {
			head := s.Executions[0].Batch
			if head.Admitted { // it had its turn and found no executor
				o.ready.Ended(head.JobID, head.ID, now)
			}
			o.metrics.Fates.WithLabelValues(fate, s.Reason).Inc()
			o.ended(store.BatchHead{ID: head.ID, Day: head.Day, NS: head.NS, JobID: head.JobID, JobVersion: head.JobVersion, Kind: head.Kind, TriggerNo: head.TriggerNo}, state)
		}
		if planned {
			o.planned()
		}
	}
	return errs
}

// Stop asks executions that have run too long to stop.
func (o *Outcome) Stop(ctx context.Context, bucket int, rows []store.Execution, reason string) error {
	f, ok := o.cluster.Fence(bucket)
	if !ok {
		return ErrNotOwner
	}
	ids := make([]int64, len(rows))
	stops := make([]ready.Stop, len(rows))
	events := make([]store.EventRow, len(rows))
	now := clock.Millis(o.clock)
	for i, row := range rows {
		ids[i] = row.ID
		stops[i] = ready.Stop{WorkerID: row.WorkerID, ExecutionID: row.ID, BatchID: row.BatchID, Bucket: bucket, Reason: reason}
		events[i] = store.EventRow{NS: row.NS, Day: row.Day, BatchID: row.BatchID, ExecutionID: row.ID, At: now, Kind: "stop_asked", Detail: reason}
	}
	err := o.store.InBucket(ctx, f, func(b *store.Bucket) error {
		if err := b.Stopping(ids, reason, "", now); err != nil {
			return err
		}
		return b.AddEvents(events)
	})
	if err != nil {
		o.Failed(f, err)
		return err
	}
	o.ready.AskStop(stops...)
	return nil
}

// LoadDrains tells package ready how the backlogs of a bucket are worked off.
func (o *Outcome) LoadDrains(ctx context.Context, bucket int) error {
	list, err := o.store.Drains(ctx, bucket)
	if err != nil {
		return err
	}
	drains := make([]ready.Drain, len(list))
	for i, d := range list {
		drains[i] = ready.Drain{Rate: d.Rate, Paused: d.Paused}
		if d.Scope == store.ScopeApp {
			drains[i].App = d.ObjectID
		} else {
			drains[i].Job = d.ObjectID
		}
	}
	o.ready.SetDrain(drains...)
	return nil
}

// LoadLimits tells package ready the limits of a bucket. takenUp says that this replica begins to answer for it.
func (o *Outcome) LoadLimits(ctx context.Context, bucket int, takenUp bool) error {
	list, err := o.store.LimitsOf(ctx, bucket)
	if err != nil {
		return err
	}
	limits := make([]ready.Limit, len(list))
	for i, l := range list {
		limits[i] = ready.Limit{NS: l.NS, Name: l.Name, AppID: l.AppID, Handler: l.Handler, PerExecutor: l.PerExecutor, Max: l.Max, Rate: l.Rate}
	}
	o.ready.SetLimits(bucket, limits, clock.Millis(o.clock), takenUp)
	return nil
}

// watchEvery is how soon every replica heeds a limit that was changed at another.
const watchEvery = 2 * time.Second

// Watch follows what moves outside the buckets' own transactions until ctx ends: changes of limits, of the platform and
// of the buckets that this replica owns, and where the jobs of buckets that were taken went before.
func (o *Outcome) Watch(ctx context.Context) error {
	tick := time.NewTicker(watchEvery)
	defer tick.Stop()
	seen := int64(-1)
	for {
		seen = o.watchLimits(ctx, seen)
		o.recall(ctx)
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
		case <-o.taken:
		}
	}
}

// watchLimits reads limits anew when the number of changes is not the one that was seen, and returns what it is.
func (o *Outcome) watchLimits(ctx context.Context, seen int64) int64 {
	changed, err := o.store.LimitsChanged(ctx)
	if err != nil || changed == seen {
		return seen // the next look is soon
	}
	err = o.LoadLimits(ctx, store.PlatformBucket, seen < 0)
	for _, f := range o.cluster.Owned() {
		err = errors.Join(err, o.LoadLimits(ctx, f.Bucket, false))
	}
	if err != nil {
		if ctx.Err() == nil {
			o.log.WarnContext(ctx, "limits not read", slog.String("err", err.Error()))
		}
		return seen
	}
	return changed
}

// recall reads where the jobs of taken buckets went before, for the strategies that look at that. Nothing waits for it.
func (o *Outcome) recall(ctx context.Context) {
	o.mu.Lock()
	buckets := o.recalls
	o.recalls = nil
	o.mu.Unlock()
	for _, bucket := range buckets {
		uses, err := o.store.RecentUses(ctx, bucket, []string{routing.LeastUsed, routing.LeastRecent}, clock.Millis(o.clock))
		if err != nil {
			if ctx.Err() == nil {
				o.log.WarnContext(ctx, "use of executors not read", slog.Int("bucket", bucket), slog.String("err", err.Error()))
			}
			continue
		}
		o.registry.Recall(uses)
	}
}

// eachOpen gives the open executions of a bucket to f, a page at a time.
func (o *Outcome) eachOpen(ctx context.Context, bucket int, f func(rows []store.Execution) error) error {
	const page = 2000
	for _, state := range batch.Runs() {
		if state.Final() {
			continue
		}
		var after store.Place
		for {
			rows, err := o.store.Open(ctx, bucket, state, after, page)
			if err != nil {
				return err
			}
			if len(rows) > 0 {
				last := rows[len(rows)-1]
				after = store.Place{NotBefore: last.NotBefore, ID: last.ID}
				if err := f(rows); err != nil {
					return err
				}
			}
			if len(rows) < page {
				break
			}
		}
	}
	return nil
}

// TakeUp fills memory with what is open in a bucket that this replica has taken: what
// waits goes to package ready, what an executor may be running is UNKNOWN until it reports.
func (o *Outcome) TakeUp(ctx context.Context, f store.Fence) error {
	defer o.ready.Hold(f.Bucket)()
	o.ready.Drop(f.Bucket)
	o.Forget(f.Bucket)
	if err := o.LoadDrains(ctx, f.Bucket); err != nil {
		return err
	}
	if err := o.LoadLimits(ctx, f.Bucket, true); err != nil {
		return err
	}
	lingering, err := o.takeUpLingering(ctx, f.Bucket)
	if err != nil {
		return err
	}
	shared := map[string]*ready.Batch{}
	var waiting []*ready.Execution
	var doubt []int64
	doubted := map[string]int{}
	err = o.eachOpen(ctx, f.Bucket, func(rows []store.Execution) error {
		ids := map[string]int{}
		for _, row := range rows {
			ids[row.BatchID] = row.Day
		}
		heads, err := o.store.BatchHeads(ctx, ids)
		if err != nil {
			return err
		}
		again := map[string]int{}
		for _, row := range rows {
			if row.Status == batch.RunScheduled && row.Attempt > 1 {
				again[row.BatchID] = row.Day
			}
		}
		last, err := o.store.LastWorkers(ctx, again)
		if err != nil {
			return err
		}
		for _, row := range rows {
			head, ok := heads[row.BatchID]
			if !ok || !row.Status.Valid() || !head.State.Valid() {
				continue // a state of a newer release: left alone
			}
			b := shared[row.BatchID]
			if b == nil {
				if b, err = o.Batch(ctx, head, f.Bucket); errors.Is(err, store.ErrNotFound) {
					o.log.ErrorContext(ctx, "open execution without a definition", slog.Int64("execution_id", row.ID), slog.Int64("job_id", row.JobID))
					continue
				} else if err != nil {
					return err
				}
				shared[row.BatchID] = b
			}
			b.Begun = b.Begun || row.Attempt > 1 || row.Status != batch.RunScheduled || !head.State.Unstarted()
			if !b.Admitted && (head.State != batch.Delayed || row.Attempt > 1 || row.Status != batch.RunScheduled) {
				b.Admitted = true
				o.ready.Active(b.Active())
			}
			if row.Status == batch.RunScheduled {
				e := &ready.Execution{Batch: b, ID: row.ID, Shard: row.Shard, Attempt: row.Attempt, Moves: row.Moves, NotBefore: row.NotBefore, Retry: row.Tries() > 1, Behind: lingering[shardOf{row.BatchID, row.Shard}]}
				if worker, ok := last[row.BatchID][row.Shard]; ok && row.Attempt > 1 {
					e.Avoid = []int64{worker}
				}
				if row.Attempt == 1 && row.Moves == 0 && b.TriggerNo > 0 && !b.CatchUp {
					b.Spread = max(row.NotBefore-b.DueAt, 0)
				}
				if row.WorkerID != 0 {
					// From its time on the former owner may have sent it.
					e.Bound = &ready.Bound{WorkerID: row.WorkerID, Address: row.WorkerAddress, StartID: row.WorkerStartID, Sent: row.NotBefore <= clock.Millis(o.clock)+clockSkew}
					if e.Bound.Sent {
						b.Admitted = true
						o.ready.Active(b.Active())
						o.ready.Charge(b, row.ID)
					}
				}
				waiting = append(waiting, e)
				continue
			}
			o.registry.Took(row.WorkerID, row.JobID, row.ID, row.DispatchedAt, b.Load())
			o.ready.Charge(b, row.ID)
			if row.Status == batch.RunStopping {
				o.ready.AskStop(ready.Stop{WorkerID: row.WorkerID, ExecutionID: row.ID, BatchID: row.BatchID, Bucket: f.Bucket, Reason: row.StopReason})
				continue
			}
			if row.LeaseUntil == 0 {
				// It was assigned, and nobody knows whether the request arrived: it is sent again.
				waiting = append(waiting, &ready.Execution{
					Batch: b, ID: row.ID, Shard: row.Shard, Attempt: row.Attempt, Moves: row.Moves, NotBefore: row.NotBefore,
					Bound: &ready.Bound{WorkerID: row.WorkerID, Address: row.WorkerAddress, StartID: row.WorkerStartID, Sent: true},
				})
			}
			if row.Status != batch.RunUnknown {
				doubt = append(doubt, row.ID)
				doubted[row.BatchID] = row.Day
			}
		}
		return nil
	})
	if err != nil {
		return err
	}
	if len(doubt) > 0 {
		if err := o.store.InBucket(ctx, f, func(b *store.Bucket) error { return b.Doubt(doubt, doubted) }); err != nil {
			return err
		}
	}
	o.mu.Lock()
	o.recalls = append(o.recalls, f.Bucket)
	o.mu.Unlock()
	select {
	case o.taken <- struct{}{}:
	default:
	}
	o.ready.Add(waiting...)
	if len(waiting) > 0 {
		o.log.InfoContext(ctx, "open executions taken up", slog.Int("bucket", f.Bucket), slog.Int("waiting", len(waiting)))
	}
	return nil
}

// Extension asks for more time.
type Extension struct {
	ExecutionID int64
	NS          int64
	App         string
	ExtendMs    int64
}

// Extend renews leases and moves deadlines: ExtendMs more than the time that is left or
// was given. It returns the deadlines (0 = no limit) of the executions that are open in their namespace.
func (o *Outcome) Extend(ctx context.Context, asks []Extension) (map[int64]int64, error) {
	out := map[int64]int64{}
	buckets := map[int][]Extension{}
	for _, a := range asks {
		b := batch.ExecutionBucket(a.ExecutionID)
		buckets[b] = append(buckets[b], a)
	}
	for bucket, list := range buckets {
		f, ok := o.cluster.Fence(bucket)
		if !ok {
			return nil, ErrNotOwner
		}
		now := clock.Millis(o.clock)
		lease := o.registry.Settings().Lease.Milliseconds()
		err := o.store.InBucket(ctx, f, func(b *store.Bucket) error {
			ids := make([]int64, len(list))
			for i, a := range list {
				ids[i] = a.ExecutionID
			}
			rows, err := b.Executions(ids)
			if err != nil {
				return err
			}
			batches := map[string]int{}
			for _, row := range rows {
				batches[row.BatchID] = row.Day
			}
			heads, err := b.Heads(batches)
			if err != nil {
				return err
			}
			var renew []store.Renewal
			for _, a := range list {
				row, ok := rows[a.ExecutionID]
				if !ok || row.NS != a.NS || row.Status.Final() {
					continue
				}
				def, err := o.store.Definition(ctx, row.JobID, heads[row.BatchID].JobVersion)
				if err != nil {
					return err
				}
				if def.App != a.App {
					continue
				}
				deadline := row.DeadlineAt
				if a.ExtendMs > 0 {
					if deadline == 0 {
						if limit := durationMillis(def); limit > 0 {
							deadline = max(row.ActualTime, row.DispatchedAt) + limit
						}
					}
					if deadline > 0 {
						deadline = max(deadline, now) + a.ExtendMs
					}
				}
				out[a.ExecutionID] = deadline
				renew = append(renew, store.Renewal{ID: a.ExecutionID, LeaseUntil: max(now+lease, deadline), DeadlineAt: deadline})
			}
			return b.Renew(renew)
		})
		if err != nil {
			o.Failed(f, err)
			return nil, err
		}
	}
	return out, nil
}

func durationMillis(def *job.Definition) int64 { return time.Duration(def.Timeout).Milliseconds() }
