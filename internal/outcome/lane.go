package outcome

import (
	"context"
	"slices"
	"sync"
	"time"

	"github.com/ax-scheduler/ax/internal/batch"
	"github.com/ax-scheduler/ax/internal/ready"
	"github.com/ax-scheduler/ax/internal/schedule"
	"github.com/ax-scheduler/ax/internal/store"
)

// lane is what waits for the transactions of one bucket, and what is known of its executions on their way. Each bucket has
// its own: one whose transaction is slow holds up no other.
type lane struct {
	bucket int
	wake   chan struct{}

	mu      sync.Mutex
	queue   []*Report
	acks    []ack // acceptances, oldest first
	writing bool
	// most bounds the reports of the next transaction: less than groupLimit while the database is too slow for that.
	most    int
	flights map[int64]flight // by execution
}

// ack is an acceptance that waits for its result.
type ack struct {
	report *Report
	at     time.Time
}

// flight is an execution that leaves for its executor, as memory knows it. If it succeeds and has no result, which nearly
// all do, its end needs no reading: see trusted.
type flight struct {
	fence store.Fence
	app   string
	row   store.Execution
	head  store.BatchHead
}

// Sent tells of executions that leave for an executor.
func (o *Outcome) Sent(f store.Fence, worker int64, list ...*ready.Execution) {
	l := o.lanes[f.Bucket]
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, e := range list {
		b := e.Batch
		// Of other shards, of a key and of a delay that counts from the end, a batch's end has more to say.
		if b.Total != 1 || b.Key != "" || b.Kind == string(schedule.FixedDelay) {
			continue
		}
		l.flights[e.ID] = flight{
			fence: f, app: b.Def.App,
			row: store.Execution{
				ID: e.ID, Day: b.Day, NS: b.NS, JobID: b.JobID, BatchID: b.ID, Shard: e.Shard, Total: b.Total, Attempt: e.Attempt, Status: batch.RunDispatching,
				TriggerTime: b.DueAt, WorkerID: worker,
			},
			head: store.BatchHead{
				ID: b.ID, Day: b.Day, NS: b.NS, JobID: b.JobID, JobVersion: b.JobVersion, TriggerNo: b.TriggerNo, Kind: b.Kind, DueAt: b.DueAt, PlannedFor: b.PlannedFor, State: batch.Dispatching, Total: b.Total,
			},
		}
	}
}

// Forget drops what is known of a bucket's executions on their way.
func (o *Outcome) Forget(bucket int) {
	l := o.lanes[bucket]
	l.mu.Lock()
	defer l.mu.Unlock()
	clear(l.flights)
}

// fewer puts reports back at the head of the queue whose transaction took so long that nothing of it was written: the next
// one has half of them. It refuses when that has been tried often enough: the database does not answer at all.
func (l *lane) fewer(list []*Report) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, r := range list {
		if r.tries++; r.tries > maxTries {
			return false
		}
	}
	l.most = max(min(l.most, len(list))/2, 1)
	l.queue = append(slices.Clip(list), l.queue...)
	return true
}

// landed forgets executions that have been reported of, once that is written.
func (l *lane) landed(list []*Report) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(list) >= l.most {
		l.most = min(2*l.most, groupLimit)
	}
	for _, r := range list {
		if r.Event != batch.RunAccept && r.Event != batch.RunSee {
			delete(l.flights, r.ExecutionID)
		}
	}
}

// trusted are the flights of reports that may be written unread: plain successes of executions that were sent under this
// fence. That their rows are as memory has them is checked where they are written.
func (l *lane) trusted(list []*Report, f store.Fence) map[int64]flight {
	l.mu.Lock()
	defer l.mu.Unlock()
	var out map[int64]flight
	seen := make(map[int64]bool, len(list))
	for _, r := range list {
		again := seen[r.ExecutionID]
		seen[r.ExecutionID] = true
		fl, ok := l.flights[r.ExecutionID]
		if again || !ok {
			delete(out, r.ExecutionID)
			continue
		}
		res := r.Result
		if fl.fence != f || r.Event != batch.RunSucceed || res == nil || res.Result != nil || res.BatchID != fl.row.BatchID || r.From != 0 && r.From != fl.row.NS || r.App != "" && r.App != fl.app {
			continue
		}
		if out == nil {
			out = make(map[int64]flight, len(list))
		}
		out[r.ExecutionID] = fl
	}
	return out
}

// Report hands in reports without waiting for their commit.
func (o *Outcome) Report(list ...*Report) {
	for _, r := range list {
		r.done = func(string, error) {}
	}
	// Reports from inside are bounded by what is in flight and must not be dropped.
	o.push(list, true)
}

// Record hands in reports and waits until they are durable. It returns an answer for each in
// order (protocol.Recorded, Repeated, Late, Unknown), or the error because of which some are not durable.
func (o *Outcome) Record(ctx context.Context, list []*Report) ([]string, error) {
	answers := make([]string, len(list))
	errs := make(chan error, len(list))
	for i, r := range list {
		r.done = func(answer string, err error) {
			answers[i] = answer
			errs <- err
		}
	}
	if o.waiting.Load()+int64(len(list)) > queueLimit {
		return nil, ErrBusy
	}
	o.push(list, false)
	for range list {
		select {
		case err := <-errs:
			if err != nil {
				return nil, err
			}
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
	return answers, nil
}

// push queues reports. Acceptances wait for the results of their executions, if they may.
func (o *Outcome) push(list []*Report, mayWait bool) {
	for _, r := range list {
		l := o.lanes[batch.ExecutionBucket(r.ExecutionID)]
		l.mu.Lock()
		if mayWait && r.Event == batch.RunAccept {
			l.acks = append(l.acks, ack{r, time.Now()})
		} else {
			l.queue = append(l.queue, r)
			o.waiting.Add(1)
		}
		l.mu.Unlock()
		l.nudge()
	}
}

func (l *lane) nudge() {
	select {
	case l.wake <- struct{}{}:
	default:
	}
}

// Run writes reports until ctx ends, then what is left once more.
func (o *Outcome) Run(ctx context.Context) error {
	var lanes sync.WaitGroup
	for _, l := range o.lanes {
		lanes.Go(func() { o.run(ctx, l) })
	}
	lanes.Wait()
	return nil
}

func (o *Outcome) run(ctx context.Context, l *lane) {
	look := time.NewTimer(time.Hour)
	defer look.Stop()
	for {
		select {
		case <-ctx.Done():
			last, cancel := context.WithTimeout(context.WithoutCancel(ctx), 3*time.Second)
			defer cancel()
			for o.pass(last, l, time.Now().Add(linger)) {
			}
			return
		case <-l.wake:
		case <-look.C:
		}
		for o.pass(ctx, l, time.Now()) && ctx.Err() == nil {
		}
		look.Reset(l.patience())
	}
}

// patience is how long no acceptance has waited long enough.
func (l *lane) patience() time.Duration {
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(l.acks) == 0 {
		return time.Hour // the next one wakes the loop
	}
	return max(linger-time.Since(l.acks[0].at), 0)
}

// pass writes what has piled up at the host's time now, and tells whether that was anything.
func (o *Outcome) pass(ctx context.Context, l *lane, now time.Time) bool {
	part, queued := l.take(now)
	if len(part) == 0 {
		return false
	}
	o.waiting.Add(-int64(queued))
	o.write(ctx, l, part)
	l.mu.Lock()
	l.writing = false
	l.mu.Unlock()
	return true
}

// take takes the reports that one pass writes, at the host's time now; queued says how many were in the queue.
func (l *lane) take(now time.Time) (part []*Report, queued int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	n := min(len(l.queue), l.most)
	part = l.queue[:n:n]
	l.queue = l.queue[n:]
	if len(l.queue) == 0 {
		l.queue = nil
	}
	defer func() { l.writing = len(part) > 0 }()
	if len(l.acks) == 0 {
		return part, n
	}
	results := make(map[int64]*Report, len(part))
	for _, r := range part {
		if r.Result != nil {
			results[r.ExecutionID] = r
		}
	}
	kept := l.acks[:0]
	for _, a := range l.acks {
		switch r := results[a.report.ExecutionID]; {
		case r != nil:
			r.SentAt = a.report.SentAt // the result says all that the acceptance would
		case now.Sub(a.at) >= linger:
			part = append(part, a.report)
		default:
			kept = append(kept, a)
		}
	}
	clear(l.acks[len(kept):])
	l.acks = kept
	return part, n
}

// InHand counts the reports of a bucket's executions that wait for their commit. Acceptances that wait for a result are
// written at the next pass instead: the bucket is about to be handed over.
func (o *Outcome) InHand(bucket int) (n int) {
	l := o.lanes[bucket]
	l.mu.Lock()
	for i := range l.acks {
		l.acks[i].at = time.Time{}
	}
	n = len(l.acks) + len(l.queue)
	if l.writing {
		n++
	}
	l.mu.Unlock()
	if n > 0 {
		l.nudge()
	}
	return n
}
