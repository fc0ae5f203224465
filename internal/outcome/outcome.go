// Package outcome is the one place where an execution or a batch ends.
//
// Everything that tells of an execution comes here as a report: the executor's answer to a
// dispatch, its result, the sweep's verdict that it is lost. Reports that have piled up are made
// durable together, one transaction per bucket under its fence; then retries go to package ready and
// whoever waits for the commit is answered.
package outcome

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/ax-scheduler/ax/internal/batch"
	"github.com/ax-scheduler/ax/internal/clock"
	"github.com/ax-scheduler/ax/internal/cluster"
	"github.com/ax-scheduler/ax/internal/job"
	"github.com/ax-scheduler/ax/internal/metric"
	"github.com/ax-scheduler/ax/internal/protocol"
	"github.com/ax-scheduler/ax/internal/ready"
	"github.com/ax-scheduler/ax/internal/registry"
	"github.com/ax-scheduler/ax/internal/schedule"
	"github.com/ax-scheduler/ax/internal/store"
)

// ErrNotOwner says that another replica owns the namespace's bucket, or nobody does
// right now: try again.
var ErrNotOwner = errors.New("this server does not own the namespace now: try again")

// ErrBusy says that too many reports wait for their commit: try again later.
var ErrBusy = errors.New("too many results are waiting to be written: try again later")

const (
	// queueLimit bounds the reports that wait for their commit.
	queueLimit = 100_000
	// groupLimit bounds one transaction.
	groupLimit = 2000
	// maxTries bounds the transactions that are too long for a report before its bucket is read again. Each had half of
	// what the one before had.
	maxTries = 4
	// linger is how long an acceptance may wait for the result of its execution, so that a short run
	// is written once and not twice. Nothing depends on the acceptance: until it is written the row
	// says that the execution may have been sent, and its executor knows.
	linger = 100 * time.Millisecond
	// maxMoves bounds the moves of one shard that are not its own fault.
	maxMoves = 30
	// maxLosses is how many executors may end while they run a shard: then it is what ends them, and it
	// is not sent to another one.
	maxLosses = 3
)

// Reasons that a batch or an event carries. The console has a sentence for each in
// both languages.
const (
	ReasonNoExecutor    = "no_executor"
	ReasonNoHandler     = "no_handler"
	ReasonFull          = "executor_full"
	ReasonDraining      = "executor_draining"
	ReasonLimit         = "limit"
	ReasonNoMatch       = "no_match"
	ReasonCapacity      = "no_capacity"
	ReasonExecutorLimit = "executor_limit"
	ReasonGone          = "executor_gone"
	ReasonUnheard       = "executor_does_not_know_it"
	ReasonLease         = "lease_lapsed"
	ReasonStale         = "newer_attempt_known"
	ReasonTimeout       = "timed_out"
	ReasonCancelled     = "cancelled_by_hand"
	ReasonCovered       = "covered_by_next"
	ReasonFailed        = "handler_failed"
	ReasonQuorum        = "quorum_met"
	ReasonShards        = "shards_failed"
	ReasonMoves         = "too_many_moves"
	ReasonWaitTimeout   = "waited_too_long"
	ReasonExecutorErr   = "executor_answer_not_understood"
	ReasonDatabase      = "database_unavailable"
	ReasonSecret        = "secret_missing" //nolint:gosec // the name of a reason
	ReasonRescheduled   = "rescheduled"
	ReasonJobDeleted    = "job_deleted"
	ReasonClock         = "clock_went_back"
	ReasonQuarantined   = "quarantined"
	ReasonJobDisabled   = "job_disabled"
	ReasonUnstopped     = "stop_unconfirmed"
)

// Report tells of one execution.
type Report struct {
	ExecutionID int64
	Event       batch.RunEvent
	Reason      string
	// Result is set when an executor reported the end.
	Result *protocol.Result
	// Avoid are the executors that a next attempt should not go to.
	Avoid []int64
	// NoRetry: the failure can not heal.
	NoRetry bool
	// Unconfirmed: the executor did not confirm that it stopped.
	Unconfirmed bool
	// Waited: when its executor was last heard of, it waited there, so it is not what ended that.
	Waited bool
	// SentAt is when the request left, for an acceptance or a result that came with one; 0 = not known.
	SentAt int64
	// From and App are the namespace and the app that the report must belong to; 0 and "" = not
	// checked (it comes from inside).
	From int64
	App  string
	// Under, when its Owner is set, is the fence under which the reporter took the execution from
	// memory. Has the bucket been read again since, memory holds the execution once more and will
	// report of it again: what this report would put there would be a second copy.
	Under store.Fence

	done func(answer string, err error)
	// tries counts the transactions that were too long for it.
	tries  int
	answer string
}

// Outcome ends things. It is safe for concurrent use.
type Outcome struct {
	store    *store.Store
	cluster  *cluster.Cluster
	ready    *ready.Ready
	registry *registry.Registry
	clock    clock.Clock
	metrics  *metric.Metrics
	log      *slog.Logger
	machine  *batch.Machine
	// planned is called when a fixed-delay trigger got its next due time.
	planned func()
	// ended is called after the commit for each batch that has ended.
	ended func(h store.BatchHead, state batch.State)
	drift func() time.Duration

	mu sync.Mutex
	// lingering are the executions that have ended unconfirmed, of the buckets that this replica owns.
	lingering map[int64]store.Lingering
	// driftNoted counts the executions that were marked in driftSpan.
	driftSpan  int64
	driftNoted int
	// recalls are buckets that were taken and of whose jobs nobody knows yet where they went before; taken tells of them.
	recalls []int
	taken   chan struct{}

	lanes   [batch.Buckets]*lane
	waiting atomic.Int64 // reports in the queues of all lanes
}

// Config is what an Outcome needs.
type Config struct {
	Store    *store.Store
	Cluster  *cluster.Cluster
	Ready    *ready.Ready
	Registry *registry.Registry
	Clock    clock.Clock
	Metrics  *metric.Metrics
	Log      *slog.Logger
	Planned  func()
	Ended    func(h store.BatchHead, state batch.State)
	// Drift is how far the database's clock is ahead of the host's while somebody should know; 0 = not.
	// nil = never.
	Drift func() time.Duration
}

const (
	// driftNotes bounds the executions that are marked in each driftSpan: a drift concerns all alike.
	driftNotes = 100
	driftSpan  = 30_000
)

// New makes an Outcome; Run makes it work.
func New(c Config) *Outcome {
	if c.Drift == nil {
		c.Drift = func() time.Duration { return 0 }
	}
	if c.Ended == nil {
		c.Ended = func(store.BatchHead, batch.State) {}
	}
	o := &Outcome{store: c.Store, cluster: c.Cluster, ready: c.Ready, registry: c.Registry, clock: c.Clock, metrics: c.Metrics, log: c.Log, machine: batch.NewMachine(), lingering: map[int64]store.Lingering{}, planned: c.Planned, ended: c.Ended, drift: c.Drift, taken: make(chan struct{}, 1)}
	for i := range o.lanes {
		o.lanes[i] = &lane{bucket: i, most: groupLimit, wake: make(chan struct{}, 1), flights: map[int64]flight{}}
	}
	return o
}

func (o *Outcome) write(ctx context.Context, l *lane, list []*Report) {
	bucket := l.bucket
	defer o.ready.Hold(bucket)()
	// Under the hold nobody reads the bucket's rows into memory, so this stays true until the end.
	f, ok := o.cluster.Fence(bucket)
	if !ok {
		finish(list, ErrNotOwner)
		return
	}
	outdated := list
	list = nil
	for _, r := range outdated {
		if r.Under.Owner != "" && r.Under != f {
			finish([]*Report{r}, ErrNotOwner)
			continue
		}
		list = append(list, r)
	}
	if len(list) == 0 {
		return
	}
	now := clock.Millis(o.clock)
	var p *pass
	in := func(known map[int64]flight) error {
		return o.store.InBucket(ctx, f, func(b *store.Bucket) error {
			p = &pass{o: o, b: b, ctx: ctx, now: now, bucket: bucket, closing: map[closing][]string{}, closeKnown: map[string]int{}, known: known}
			return p.run(list)
		})
	}
	var known map[int64]flight
	if o.drift() == 0 {
		known = l.trusted(list, f)
	}
	err := in(known)
	if errors.Is(err, store.ErrStale) && len(known) > 0 {
		// Some row is not as memory has it: somebody asked it to stop, say. Nothing was written; all are read.
		err = in(nil)
	}
	if errors.Is(err, store.ErrTooLong) && l.fewer(list) {
		o.waiting.Add(int64(len(list)))
		o.log.WarnContext(ctx, "database is slow: fewer reports in a transaction", slog.Int("bucket", bucket), slog.Int("count", len(list)))
		return
	}
	if err != nil {
		o.Failed(f, err)
		o.log.WarnContext(ctx, "reports not written", slog.Int("bucket", bucket), slog.Int("count", len(list)), slog.String("err", err.Error()))
		finish(list, err)
		return
	}
	l.landed(list)
	p.after()
	finish(list, nil)
}

// Failed draws the consequence of a scheduling transaction that did not succeed: a
// bucket whose fence was refused is let go, another error leaves open what the database holds, so the
// bucket is read again.
func (o *Outcome) Failed(f store.Fence, err error) {
	if errors.Is(err, store.ErrFenced) {
		o.metrics.StaleFences.WithLabelValues("bucket").Inc()
		o.cluster.Lost(f)
		return
	}
	o.cluster.Reload(f)
}

func finish(list []*Report, err error) {
	for _, r := range list {
		r.done(r.answer, err)
	}
}

// closing is how a group of batches ends.
type closing struct {
	event        batch.Event
	reason       string
	detail       string
	done, failed int
}

// pass is one transaction's work.
type pass struct {
	o      *Outcome
	b      *store.Bucket
	ctx    context.Context //nolint:containedctx // lives only inside one transaction
	now    int64
	bucket int

	known map[int64]flight // executions whose rows are not read
	rows  map[int64]store.Execution
	heads map[string]store.BatchHead

	accepted   []store.Accepted
	unassign   []int64
	endings    []store.Ending
	endKnown   []store.Ending // of executions whose rows were not read
	events     []store.EventRow
	inserts    []store.ExecutionRow
	retries    []retry
	gave       [][2]int64 // executor and execution: accounts to relieve
	requeue    []requeued
	closing    map[closing][]string
	closeKnown map[string]int // batches of one shard whose execution is among endKnown
	closed     []closedBatch
	counted    map[string]*count
	planned    bool
	codes      map[string][]int64
	lingers    []store.Lingering // ended unconfirmed
	stopped    []int64           // lingered, and are known to have stopped
}

type retry struct {
	row    store.ExecutionRow
	avoid  []int64
	behind int64
}

type requeued struct {
	row   store.Execution
	avoid []int64
}

type closedBatch struct {
	head  store.BatchHead
	state batch.State
}

type count struct {
	known        bool
	done, failed int
	timedOut     bool
	cancelled    bool
	reason       string
	detail       string
}

func (p *pass) run(list []*Report) error {
	ids := make([]int64, 0, len(list))
	for _, r := range list {
		if _, ok := p.known[r.ExecutionID]; !ok {
			ids = append(ids, r.ExecutionID)
		}
	}
	var err error
	if p.rows, err = p.b.Executions(ids); err != nil {
		return err
	}
	batches := map[string]int{}
	for _, row := range p.rows {
		batches[row.BatchID] = row.Day
	}
	if p.heads, err = p.b.Heads(batches); err != nil {
		return err
	}
	for id, x := range p.known {
		p.rows[id], p.heads[x.head.ID] = x.row, x.head
	}
	p.counted = map[string]*count{}
	for _, r := range list {
		if err := p.take(r); err != nil {
			return err
		}
	}
	if err := p.conclude(); err != nil {
		return err
	}
	return p.write()
}

// take decides on one report.
func (p *pass) take(r *Report) error {
	row, ok := p.rows[r.ExecutionID]
	if !ok || r.From != 0 && row.NS != r.From || r.Result != nil && r.Result.BatchID != row.BatchID {
		r.answer = protocol.Unknown
		return nil
	}
	if r.App != "" {
		// A key speaks for its own app only, whatever ids it names.
		app, err := p.app(row)
		if err != nil {
			return err
		}
		if app != r.App {
			r.answer = protocol.Unknown
			return nil
		}
	}
	r.answer = protocol.Recorded
	if row.Status.Final() {
		p.late(r, row)
		return nil
	}
	event := r.Event
	if r.Result != nil && r.Result.State == string(batch.RunCancelled) && row.StopReason == ReasonTimeout {
		event = batch.RunTimeOut // it was the time limit that stopped it
	}
	to, err := p.o.machine.NextRun(row.Status, event)
	if err != nil {
		r.answer = protocol.Late
		p.event(row, "refused_transition", fmt.Sprintf("%s in %s", event, row.Status))
		return nil
	}
	if event == batch.RunAccept || event == batch.RunSee {
		p.accepted = append(p.accepted, store.Accepted{ID: row.ID, BatchID: row.BatchID, SentAt: r.SentAt})
		if event == batch.RunAccept {
			p.drift(row)
		}
		row.Status = to
		p.rows[row.ID] = row
		return nil
	}
	if event == batch.RunUnassign {
		p.unassign = append(p.unassign, row.ID)
		p.requeue = append(p.requeue, requeued{row, r.Avoid})
		p.gave = append(p.gave, [2]int64{row.WorkerID, row.ID})
		row.Status = to
		p.rows[row.ID] = row
		p.event(row, "not_delivered", r.Reason)
		return nil
	}
	if r.Result != nil && row.ActualTime == 0 {
		p.drift(row) // its acceptance came with its result
	}
	return p.end(r, row, to)
}

// drift marks an execution that started while the clocks differed.
func (p *pass) drift(row store.Execution) {
	d := p.o.drift()
	if d == 0 {
		return
	}
	p.o.mu.Lock()
	defer p.o.mu.Unlock()
	if span := p.now / driftSpan; span != p.o.driftSpan {
		p.o.driftSpan, p.o.driftNoted = span, 0
	}
	if p.o.driftNoted++; p.o.driftNoted <= driftNotes {
		p.event(row, "clock_drift", fmt.Sprintf("database clock minus host clock: %s", d))
	}
}

// app is the app of an execution's job, as its batch is pinned to it.
func (p *pass) app(row store.Execution) (string, error) {
	head := p.heads[row.BatchID]
	def, err := p.o.store.Definition(p.ctx, row.JobID, head.JobVersion)
	if err != nil {
		return "", fmt.Errorf("definition of job %d version %d: %w", row.JobID, head.JobVersion, err)
	}
	return def.App, nil
}

// late keeps what came after the end: nothing changes by it.
func (p *pass) late(r *Report, row store.Execution) {
	if r.Result == nil {
		return // the inside view was behind
	}
	p.gave = append(p.gave, [2]int64{row.WorkerID, row.ID})
	if row.Lingers() {
		// It would not stop and kept its place until now.
		p.stopped = append(p.stopped, row.ID)
		row.StopConfirmed = true
		p.rows[row.ID] = row
		p.event(row, "stop_confirmed", "its executor reported "+r.Result.State)
	}
	if string(row.Status) == r.Result.State {
		r.answer = protocol.Repeated
		p.o.metrics.Duplicates.WithLabelValues("result").Inc()
		return
	}
	r.answer = protocol.Late
	p.o.metrics.StaleFences.WithLabelValues("result").Inc()
	p.event(row, "late_result", fmt.Sprintf("%s after %s: %s", r.Result.State, row.Status, r.Result.Message))
}

func (p *pass) event(row store.Execution, kind, detail string) {
	p.events = append(p.events, store.EventRow{NS: row.NS, Day: row.Day, BatchID: row.BatchID, ExecutionID: row.ID, At: p.now, Kind: kind, Detail: detail})
}

// end writes the end of an attempt and decides what follows for its shard.
func (p *pass) end(r *Report, row store.Execution, to batch.Run) error {
	e := store.Ending{ID: row.ID, Status: to, Duration: -1, StopConfirmed: row.StopAskedAt > 0 && !r.Unconfirmed && r.Reason != ReasonLease}
	noRetry := r.NoRetry
	if res := r.Result; res != nil {
		e.Error, e.Result, e.Duration, e.Waited, e.PeakMemoryMB, e.SentAt = "", res.Result, max(res.DurationMs, 0), max(res.WaitedMs, 0), res.PeakMemoryMB, r.SentAt
		if to != batch.RunSucceeded || res.Message != "" {
			e.Error = clip(res.Message, 4000)
		}
		noRetry = noRetry || res.NoRetry
		if to != batch.RunSucceeded && job.ValidCode(res.Code) {
			if p.codes == nil {
				p.codes = map[string][]int64{}
			}
			p.codes[res.Code] = append(p.codes[res.Code], row.ID)
		}
	} else {
		e.Error = r.Reason
	}
	if _, known := p.known[row.ID]; known {
		p.endKnown = append(p.endKnown, e)
	} else {
		p.endings = append(p.endings, e)
	}
	switch {
	case row.WorkerID == 0:
	case r.Unconfirmed:
		p.lingers = append(p.lingers, store.Lingering{ExecutionID: row.ID, NS: row.NS, JobID: row.JobID, BatchID: row.BatchID, Shard: row.Shard, WorkerID: row.WorkerID, StartID: row.WorkerStartID, Since: p.now})
		p.event(row, "stop_unconfirmed", "it may still run; its place is kept until its executor says that it has stopped, or is gone")
	default:
		p.gave = append(p.gave, [2]int64{row.WorkerID, row.ID})
	}
	row.Status, row.StopConfirmed = to, e.StopConfirmed
	p.rows[row.ID] = row

	head, ok := p.heads[row.BatchID]
	if !ok {
		return fmt.Errorf("execution %d has no batch %s", row.ID, row.BatchID)
	}
	c := p.counted[row.BatchID]
	if c == nil {
		_, known := p.known[row.ID]
		c = &count{known: known}
		p.counted[row.BatchID] = c
	}
	if to == batch.RunSucceeded {
		c.done++
		return nil
	}
	next, reason, err := p.next(r, row, head, to, noRetry)
	if err != nil {
		return err
	}
	if next != nil {
		if r.Unconfirmed {
			next.behind = row.ID
		}
		p.retries = append(p.retries, *next)
		p.event(row, "retry", fmt.Sprintf("attempt %d follows at %s: %s", next.row.Attempt, time.UnixMilli(next.row.NotBefore).UTC().Format(time.RFC3339Nano), reason))
		return nil
	}
	c.done++
	c.failed++
	c.reason, c.detail = reason, e.Error
	c.timedOut = c.timedOut || to == batch.RunTimedOut
	c.cancelled = c.cancelled || to == batch.RunCancelled
	return nil
}

// next decides whether the shard is tried again: the attempt that follows, or nil and the
// reason why there is none.
func (p *pass) next(r *Report, row store.Execution, head store.BatchHead, to batch.Run, noRetry bool) (*retry, string, error) {
	if head.State.Final() {
		return nil, ReasonCancelled, nil
	}
	n := store.ExecutionRow{
		Day: row.Day, NS: row.NS, JobID: row.JobID, BatchID: row.BatchID, Shard: row.Shard, Total: row.Total, Attempt: row.Attempt + 1, Moves: row.Moves,
		Status: batch.RunScheduled, TriggerTime: row.TriggerTime, NotBefore: p.now, Series: row.Series, Losses: row.Losses,
	}
	avoid := r.Avoid
	if row.StopReason == ReasonCancelled || row.StopReason == ReasonCovered {
		return nil, row.StopReason, nil // somebody wanted it to end; however it ended, it stays ended
	}
	switch to { //nolint:exhaustive // a run that failed or timed out goes on to the retry policy below; the others do not get here
	case batch.RunCancelled:
		if r.Reason != "" {
			return nil, r.Reason, nil
		}
		return nil, ReasonCancelled, nil
	case batch.RunRejected:
		reason := r.Reason
		if r.Result != nil {
			reason = ReasonDraining
		}
		if reason == ReasonNoExecutor {
			break // waiting for an executor was the attempt
		}
		if noRetry {
			return nil, reason, nil
		}
		if row.Moves >= maxMoves {
			return nil, ReasonMoves, nil
		}
		n.Moves++
		n.NotBefore += min(int64(200)<<min(row.Moves, 5), 5000)
		return &retry{row: n, avoid: avoid}, reason, nil
	case batch.RunLost:
		if r.Reason == ReasonGone && !r.Waited {
			if n.Losses++; n.Losses >= maxLosses {
				p.o.log.ErrorContext(p.ctx, "executors end while they run this: it is not sent to another one", slog.Int64("job_id", row.JobID), slog.String("batch_id", row.BatchID), slog.Int("shard", row.Shard), slog.Int("executors", n.Losses))
				p.o.metrics.Quarantined.Inc()
				p.event(row, ReasonQuarantined, fmt.Sprintf("%d executors ended while they ran it", n.Losses))
				return nil, ReasonQuarantined, nil
			}
		}
		if row.Moves >= maxMoves {
			return nil, ReasonMoves, nil
		}
		n.Moves++
		return &retry{row: n, avoid: []int64{row.WorkerID}}, r.Reason, nil
	}
	reason := r.Reason
	switch {
	case to == batch.RunTimedOut:
		reason = ReasonTimeout
	case reason == "":
		reason = ReasonFailed
	}
	code := reason
	if r.Result != nil && r.Result.Code != "" {
		code = r.Result.Code
	}
	if noRetry {
		p.event(row, "not_retried", "its handler said that it can not heal")
		return nil, reason, nil
	}
	def, err := p.o.store.Definition(p.ctx, head.JobID, head.JobVersion)
	if err != nil {
		return nil, "", fmt.Errorf("definition of job %d version %d: %w", head.JobID, head.JobVersion, err)
	}
	policy := def.RetryOf(schedule.Kind(head.Kind))
	then := policy.Rule(code)
	wait, again := policy.Delay(row.Tries(), rand.Float64())
	switch {
	case then == job.DoNever:
		p.event(row, "not_retried", "the job's rule for "+code+" says never")
		return nil, reason, nil
	case !again:
		return nil, reason, nil
	case then == job.DoNow:
		wait = 0
	}
	n.NotBefore += wait.Milliseconds()
	if len(avoid) == 0 {
		avoid = []int64{row.WorkerID} // elsewhere, when there is another executor
	}
	return &retry{row: n, avoid: avoid}, reason, nil
}

// conclude decides which batches have ended with this pass.
func (p *pass) conclude() error {
	waiting := map[string]bool{}
	for _, r := range p.retries {
		waiting[r.row.BatchID] = true
	}
	for id, c := range p.counted {
		head := p.heads[id]
		if c.done == 0 {
			if head.Total == 1 && waiting[id] {
				to, err := p.o.machine.Next(head.State, batch.EventRetry)
				if err == nil && to != head.State {
					if err := p.b.AdvanceBatch(head, batch.EventRetry, "retry_waits", ""); err != nil && !errors.Is(err, store.ErrStale) {
						return err
					}
				}
			}
			continue
		}
		if head.Done+c.done < head.Total {
			if err := p.b.CountShards(id, head.Day, c.done, c.failed); err != nil {
				return err
			}
			continue
		}
		k := closing{event: batch.EventSucceed, done: c.done, failed: c.failed}
		state := batch.Succeeded
		if failed := head.FailedN + c.failed; failed > 0 {
			if head.Total > 1 {
				// The shards that ended before count too.
				if err := p.earlier(head, c); err != nil {
					return err
				}
			}
			k.event, state = batch.EventFail, batch.Failed
			enough, err := p.enough(head, failed)
			if err != nil {
				return err
			}
			switch {
			case enough && !c.cancelled:
				k.event, state = batch.EventSucceed, batch.Succeeded
			case c.cancelled:
				k.event, state = batch.EventCancel, batch.Cancelled
			case c.timedOut && failed == 1:
				k.event, state = batch.EventTimeOut, batch.TimedOut
			}
			k.reason, k.detail = c.reason, clip(c.detail, 500)
			switch {
			case state == batch.Succeeded:
				k.reason, k.detail = ReasonQuorum, fmt.Sprintf("%d of %d: %s", head.Total-failed, head.Total, clip(c.detail, 400))
			case head.Total > 1 && state != batch.Cancelled:
				k.reason, k.detail = ReasonShards, fmt.Sprintf("%d of %d: %s", failed, head.Total, clip(c.detail, 400))
			}
		}
		if c.known {
			p.closeKnown[id] = head.Day
		} else {
			p.closing[k] = append(p.closing[k], id)
		}
		p.closed = append(p.closed, closedBatch{head, state})
	}
	return nil
}

// enough tells whether so many shards of a batch succeeded that it counts as a success.
func (p *pass) enough(head store.BatchHead, failed int) (bool, error) {
	if head.Total == 1 {
		return false, nil
	}
	def, err := p.o.store.Definition(p.ctx, head.JobID, head.JobVersion)
	if err != nil {
		return false, fmt.Errorf("definition of job %d version %d: %w", head.JobID, head.JobVersion, err)
	}
	return def.Routing.Enough(head.Total-failed, head.Total), nil
}

// earlier looks at the shards of a batch that ended in transactions before this one.
func (p *pass) earlier(head store.BatchHead, c *count) error {
	shards, err := p.b.LatestAttempts(head.ID, head.Day)
	if err != nil {
		return err
	}
	for _, row := range shards {
		if row.Status == batch.RunCancelled || row.StopReason == ReasonCancelled || row.StopReason == ReasonCovered {
			c.cancelled = true
			if c.reason == "" {
				c.reason = row.StopReason
			}
		}
		c.timedOut = c.timedOut || row.Status == batch.RunTimedOut
	}
	if c.cancelled && c.reason == "" {
		c.reason = ReasonCancelled
	}
	if c.detail == "" {
		c.detail, err = p.b.ShardError(head.ID, head.Day)
	}
	return err
}

func (p *pass) write() error {
	if len(p.accepted) > 0 {
		if err := p.b.Accept(p.accepted, p.now, p.now+p.o.registry.Settings().Lease.Milliseconds()); err != nil {
			return err
		}
	}
	if len(p.unassign) > 0 {
		batches := map[string]int{}
		for _, r := range p.requeue {
			batches[r.row.BatchID] = r.row.Day
		}
		if err := p.b.Unassign(p.unassign, batches); err != nil {
			return err
		}
	}
	if err := p.b.End(p.endings, p.now); err != nil {
		return err
	}
	if err := p.b.EndKnown(p.endKnown, p.closeKnown, p.now); err != nil {
		return err
	}
	if err := p.b.SetCodes(p.codes); err != nil {
		return err
	}
	if err := p.b.Linger(p.lingers); err != nil {
		return err
	}
	if err := p.b.Unlinger(p.stopped, true, p.now); err != nil {
		return err
	}
	for k, ids := range p.closing {
		batches := make(map[string]int, len(ids))
		for _, id := range ids {
			batches[id] = p.heads[id].Day
		}
		if err := p.b.EndBatches(batches, k.event, k.reason, k.detail, k.done, k.failed, p.now); err != nil {
			return err
		}
	}
	if len(p.retries) > 0 {
		first := p.b.TakeSequence(len(p.retries))
		for i := range p.retries {
			r := &p.retries[i].row
			r.ID = batch.ExecutionID(r.Day, p.bucket, first+int64(i))
			p.inserts = append(p.inserts, *r)
		}
		if err := p.b.InsertExecutions(p.inserts); err != nil {
			return err
		}
	}
	for _, c := range p.closed {
		if c.head.Kind == "fixedDelay" && c.head.TriggerNo > 0 {
			planned, err := p.b.SetFixedDelay(c.head.JobID, c.head.TriggerNo, p.now)
			if err != nil {
				return err
			}
			p.planned = p.planned || planned
		}
	}
	var keys []store.KeyEnd
	for _, c := range p.closed {
		// A task that was called off before it began leaves its key to the next one at once.
		unbegun := c.head.State == batch.Delayed || c.head.State == batch.Ready || c.head.State == batch.Waiting
		keys = appendKey(keys, c.head.NS, c.head.JobID, c.head.Key, c.head.ID, p.now, c.state == batch.Cancelled && unbegun)
	}
	if err := p.b.EndKeys(keys); err != nil {
		return err
	}
	return p.b.AddEvents(p.events)
}

// appendKey appends the end of a batch's business key, if it has one: from then on its window counts.
func appendKey(list []store.KeyEnd, ns, job int64, key, batchID string, endedAt int64, free bool) []store.KeyEnd {
	if key == "" {
		return list
	}
	return append(list, store.KeyEnd{NS: ns, JobID: job, Scope: store.ScopeDelayed, Hash: store.KeyHash(key), BatchID: batchID, EndedAt: endedAt, Free: free})
}

// after tells memory what has been committed.
func (p *pass) after() {
	for _, g := range p.gave {
		p.o.registry.Gave(g[0], g[1])
		p.o.ready.Discharge(g[1])
	}
	// What lingers takes its place before its batch gives it up.
	p.o.linger(p.bucket, p.lingers)
	p.o.unlinger(p.stopped, p.now)
	for _, c := range p.closed {
		p.o.ready.Ended(c.head.JobID, c.head.ID, p.now)
		p.o.metrics.Transitions.WithLabelValues(string(c.state)).Inc()
		p.o.ended(c.head, c.state)
		if c.state != batch.Succeeded && c.state != batch.Cancelled {
			if def, err := p.o.store.Definition(p.ctx, c.head.JobID, c.head.JobVersion); err == nil {
				p.o.metrics.Failures.WithLabelValues(def.App).Inc()
			}
		}
	}
	if p.planned {
		p.o.planned()
	}
	var again []*ready.Execution
	for _, r := range p.retries {
		e, err := p.o.Waiting(p.ctx, p.heads[r.row.BatchID], p.bucket, store.Execution{
			ID: r.row.ID, Shard: r.row.Shard, Attempt: r.row.Attempt, Moves: r.row.Moves, NotBefore: r.row.NotBefore, JobID: r.row.JobID, NS: r.row.NS, BatchID: r.row.BatchID, Day: r.row.Day, Series: r.row.Series,
		}, r.avoid)
		if err != nil {
			p.o.log.ErrorContext(p.ctx, "retry not queued", slog.Int64("execution_id", r.row.ID), slog.String("err", err.Error()))
			p.o.reload(p.bucket)
			return
		}
		e.Behind = r.behind
		again = append(again, e)
	}
	for _, r := range p.requeue {
		e, err := p.o.Waiting(p.ctx, p.heads[r.row.BatchID], p.bucket, r.row, r.avoid)
		if err != nil {
			p.o.log.ErrorContext(p.ctx, "execution not queued", slog.Int64("execution_id", r.row.ID), slog.String("err", err.Error()))
			p.o.reload(p.bucket)
			return
		}
		e.NotBefore = p.now
		again = append(again, e)
	}
	p.o.ready.Add(again...)
}

func (o *Outcome) reload(bucket int) {
	if f, ok := o.cluster.Fence(bucket); ok {
		o.cluster.Reload(f)
	}
}

// Waiting makes the form in which package ready holds an execution, from its rows.
func (o *Outcome) Waiting(ctx context.Context, h store.BatchHead, bucket int, row store.Execution, avoid []int64) (*ready.Execution, error) {
	b, err := o.Batch(ctx, h, bucket)
	if err != nil {
		return nil, err
	}
	return &ready.Execution{Batch: b, ID: row.ID, Shard: row.Shard, Attempt: row.Attempt, Moves: row.Moves, NotBefore: row.NotBefore, Avoid: avoid, Retry: row.Tries() > 1}, nil
}

// Batch makes the form in which package ready holds a batch, from its row.
func (o *Outcome) Batch(ctx context.Context, h store.BatchHead, bucket int) (*ready.Batch, error) {
	def, err := o.store.Definition(ctx, h.JobID, h.JobVersion)
	if err != nil {
		return nil, fmt.Errorf("definition of job %d version %d: %w", h.JobID, h.JobVersion, err)
	}
	app, err := o.store.AppByName(ctx, h.NS, def.App)
	if err != nil && !errors.Is(err, store.ErrNotFound) {
		return nil, fmt.Errorf("app %s: %w", def.App, err)
	}
	b := &ready.Batch{
		ID: h.ID, Day: h.Day, Bucket: bucket, NS: h.NS, JobID: h.JobID, JobVersion: h.JobVersion, AppID: app.ID, Def: def, TriggerNo: h.TriggerNo, Kind: h.Kind,
		DueAt: h.DueAt, PlannedFor: h.PlannedFor, Params: def.Params, Event: h.Event, EventBytes: h.EventBytes, Key: h.Key, Zone: ZoneOf(def, h.TriggerNo), Priority: h.Priority, Total: h.Total, Turn: uint64(h.DueAt / 1000), CatchUp: h.CatchUp(),
	}
	if h.Params != nil {
		b.Params = *h.Params
	}
	if h.Kind == store.KindBackfill {
		of, err := o.store.BackfillOf(ctx, h.ID)
		if err != nil {
			return nil, err
		}
		b.Backfill, b.MaxActive, b.Zone = of.Backfill, of.MaxActive, ZoneOf(def, of.No)
	}
	return b, nil
}

// ZoneOf is the zone of a job's trigger, or the job's first, or the default.
func ZoneOf(def *job.Definition, no int) string {
	zone := "Asia/Shanghai"
	for i, t := range def.Triggers {
		if i == 0 || t.No == no {
			if t.Zone != "" {
				zone = t.Zone
			}
			if t.No == no {
				break
			}
		}
	}
	return zone
}

// FromResult makes the report of an executor's result.
func FromResult(ns int64, app string, r protocol.Result) (*Report, bool) {
	id, err := strconv.ParseInt(r.ExecutionID, 10, 64)
	if err != nil || id <= 0 {
		return nil, false
	}
	events := map[string]batch.RunEvent{
		"SUCCEEDED": batch.RunSucceed, "FAILED": batch.RunFail, "TIMED_OUT": batch.RunTimeOut, "CANCELLED": batch.RunCancel, "REJECTED": batch.RunReject,
	}
	event, ok := events[r.State]
	if !ok {
		return nil, false
	}
	return &Report{ExecutionID: id, Event: event, Result: &r, From: ns, App: app}, true
}

func clip(s string, n int) string {
	if len(s) <= n {
		return s
	}
	end := n
	for end > 0 && s[end]&0xC0 == 0x80 {
		end--
	}
	return s[:end] + "…"
}
