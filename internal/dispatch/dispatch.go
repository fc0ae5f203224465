// Package dispatch sends ready executions to executors. It is the only client to them.
//
// It takes ready executions in order of score, lets routing choose among the executors that
// registry holds for alive, makes the choice durable, posts the requests (many executions in one,
// a few at a time per executor) and reports the answers. What an answer means is not its business:
// that is package outcome.
package dispatch

import (
	"context"
	"errors"
	"log/slog"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/ax-scheduler/ax/internal/batch"
	"github.com/ax-scheduler/ax/internal/clock"
	"github.com/ax-scheduler/ax/internal/cluster"
	"github.com/ax-scheduler/ax/internal/job"
	"github.com/ax-scheduler/ax/internal/metric"
	"github.com/ax-scheduler/ax/internal/outcome"
	"github.com/ax-scheduler/ax/internal/protocol"
	"github.com/ax-scheduler/ax/internal/ready"
	"github.com/ax-scheduler/ax/internal/registry"
	"github.com/ax-scheduler/ax/internal/routing"
	"github.com/ax-scheduler/ax/internal/store"
)

// Settings of dispatch.
type Settings struct {
	// AckTimeout bounds one POST to an executor, connecting included. It is not the job's own
	// timeout: an executor answers as soon as it has queued the run. Default 3s.
	AckTimeout time.Duration
	// ExecutorWait is how long an execution waits for an executor of its app to come before the
	// attempt fails with the reason no_executor. Default 5s.
	ExecutorWait time.Duration
	// WaitLimit is how long an execution may wait for its turn before it fails. Default 30m.
	WaitLimit time.Duration
	// PerRequest bounds the executions of one request to an executor: 50 to 200 cost least each.
	// Default 100.
	PerRequest int
}

const (
	// passLimit bounds what one pass takes, so that its transaction stays short.
	passLimit = 2000
	// again is how soon a pass that left something waiting looks again.
	again = 250 * time.Millisecond
	// noteAfter is the wait after which READY and its reason are written.
	noteAfter = 1000
)

// Dispatch moves work to executors.
type Dispatch struct {
	store    *store.Store
	cluster  *cluster.Cluster
	ready    *ready.Ready
	registry *registry.Registry
	outcome  *outcome.Outcome
	router   *routing.Router
	clock    clock.Clock
	metrics  *metric.Metrics
	log      *slog.Logger
	client   *Client
	fill     func(ctx context.Context, b *ready.Batch) (string, error)
	noSecret func(err error) bool
	settings Settings
	origin   string // "[ax-<port>]" of the dispatch line

	mu       sync.Mutex
	skips    []ready.Skip // decided and not yet written
	skipping bool
	senders  map[int64]*sender
	active   sync.WaitGroup
	reasons  reasons
	// unsent counts the executions of each bucket that senders have; passing says that a pass has some.
	unsent  [batch.Buckets]atomic.Int64
	passing [batch.Buckets]atomic.Bool
	// writing says that what an earlier pass chose in a bucket is not durable yet.
	writing [batch.Buckets]atomic.Bool
}

// Config is what a Dispatch needs.
type Config struct {
	Store    *store.Store
	Cluster  *cluster.Cluster
	Ready    *ready.Ready
	Registry *registry.Registry
	Outcome  *outcome.Outcome
	Router   *routing.Router
	Clock    clock.Clock
	Metrics  *metric.Metrics
	Log      *slog.Logger
	Client   *Client
	// Fill puts secrets into the parameters of a batch; an error for which NoSecret is true says that one of them can not
	// be had, any other that they could not be read now. nil: parameters are sent as they are.
	Fill     func(ctx context.Context, b *ready.Batch) (string, error)
	NoSecret func(err error) bool
	Settings Settings
	Port     int
}

// New makes a Dispatch; Run makes it work.
func New(c Config) *Dispatch {
	if c.Fill == nil {
		c.Fill = func(_ context.Context, b *ready.Batch) (string, error) { return b.Params, nil }
	}
	if c.NoSecret == nil {
		c.NoSecret = func(error) bool { return false }
	}
	return &Dispatch{
		store: c.Store, cluster: c.Cluster, ready: c.Ready, registry: c.Registry, outcome: c.Outcome, router: c.Router, clock: c.Clock, metrics: c.Metrics, log: c.Log,
		client: c.Client, fill: c.Fill, noSecret: c.NoSecret, settings: c.Settings, origin: "[ax-" + strconv.Itoa(c.Port) + "]", senders: map[int64]*sender{},
	}
}

// Run dispatches until ctx ends, then waits for the requests on their way.
func (d *Dispatch) Run(ctx context.Context) error {
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		select {
		case <-ctx.Done():
			d.active.Wait()
			return nil
		case <-timer.C:
		case <-d.ready.Wake():
		}
		left, err := d.RunOnce(ctx, clock.Millis(d.clock))
		if err != nil && ctx.Err() == nil {
			d.log.WarnContext(ctx, "dispatch pass failed", slog.String("err", err.Error()))
		}
		timer.Reset(d.pause(left))
	}
}

// pause is how long nothing needs to be done.
func (d *Dispatch) pause(left bool) time.Duration {
	wait := time.Minute
	if next, ok := d.ready.Next(); ok {
		// Up to the next millisecond boundary: one nanosecond early would be a pass for nothing.
		wait = min(wait, time.UnixMilli(next).Sub(d.clock.Now()))
	}
	if left {
		wait = min(wait, again)
	}
	return max(wait, 0)
}

// chosen is an execution with the executor that takes it.
type chosen struct {
	e      *ready.Execution
	worker registry.Executor
	// because is the explanation that is kept with it, "" = none.
	because string
}

// InHand counts what is on its way to executors of a bucket's executions, and has not been answered.
func (d *Dispatch) InHand(bucket int) int64 {
	n := d.unsent[bucket].Load()
	if d.passing[bucket].Load() || d.writing[bucket].Load() {
		n++
	}
	return n
}

// RunOnce moves what is due at now (ax time, milliseconds) to executors. left says that
// something waits that may go soon.
func (d *Dispatch) RunOnce(ctx context.Context, now int64) (left bool, err error) {
	defer func() {
		for i := range d.passing {
			d.passing[i].Store(false)
		}
	}()
	verdicts := d.ready.Due(now)
	var errs error
	d.skip(ctx, verdicts.Skips)
	if len(verdicts.Missed) > 0 {
		errs = errors.Join(errs, d.outcome.Miss(ctx, verdicts.Missed))
	}
	for _, c := range verdicts.Crowded {
		d.log.WarnContext(ctx, "queue of a job nearly full", slog.Int64("job_id", c.JobID), slog.String("job", c.Job), slog.Int("waiting", c.Waiting), slog.Int("most", c.Most))
	}
	for _, a := range verdicts.Cover {
		if err := d.outcome.Cancel(ctx, a.Bucket, a.BatchID, outcome.ReasonCovered, nil); err != nil && !errors.Is(err, batch.ErrNotAllowed) && !errors.Is(err, store.ErrNotFound) {
			errs = errors.Join(errs, err)
		}
	}
	d.stop(ctx, d.ready.Stops())

	var picked, sendable, lost []chosen
	var refused []*outcome.Report
	var later []*ready.Execution
	var expired []ready.Skip
	waiting := map[int]map[why]map[string]int{} // bucket → reason → batches to note
	taken := d.ready.Take(now, passLimit, func(e *ready.Execution, limit string) ready.Placement {
		f, ok := d.cluster.Fence(e.Batch.Bucket)
		if !ok || !d.cluster.Leads(e.Batch.Bucket) || d.writing[e.Batch.Bucket].Load() {
			return ready.Blocked
		}
		d.passing[e.Batch.Bucket].Store(true)
		if e.Behind != 0 {
			if d.outcome.Lingers(e.Behind) && now-e.ReadyAt < d.waitLimit(e).Milliseconds() {
				// An earlier attempt may still run: two of one shard never overlap.
				if !e.Noted {
					e.Noted = true
					why{reason: outcome.ReasonUnstopped}.note(waiting, e)
				}
				later = append(later, e)
				return ready.Dropped
			}
			if d.outcome.Lingers(e.Behind) {
				refused = append(refused, &outcome.Report{ExecutionID: e.ID, Under: f, Event: batch.RunReject, Reason: outcome.ReasonUnstopped, NoRetry: true})
				return ready.Dropped
			}
			e.Behind, e.ReadyAt, e.Noted = 0, now, false // waiting for an executor begins now
		}
		if e.Bound != nil && limit == "" {
			worker, good := d.registry.Takes(e.Bound.WorkerID, e.Bound.StartID, e.Batch.Def.Handler)
			switch {
			case e.Bound.Sent && good:
				sendable = append(sendable, chosen{e: e, worker: worker})
				return ready.Taken
			case e.Bound.Sent && now-e.ReadyAt < resendFor.Milliseconds() && !d.registry.Word(e.Bound.WorkerID, e.Bound.StartID, e.ID).Gone:
				// Its executor is silent for the moment, and may have it or not: it is asked when it is back.
				later = append(later, e)
				return ready.Taken
			case e.Bound.Sent:
				// Its executor is silent or gone: the sweep decides, once the row says that it was sent.
				lost = append(lost, chosen{e: e, worker: registry.Executor{Executor: store.Executor{ID: e.Bound.WorkerID, Address: e.Bound.Address, StartID: e.Bound.StartID}}})
				return ready.Taken
			case good:
				d.registry.Took(worker.ID, e.Batch.JobID, e.ID, now, e.Batch.Load())
				d.remember(e, e.Choice, 0)
				sendable = append(sendable, chosen{e: e, worker: worker})
				return ready.Taken
			}
			e.Bound = nil // chosen beforehand, and not there any more: choose anew
		}
		var c chosen
		w, final := why{outcome.ReasonLimit, limit}, false
		if limit == "" {
			c, w, final = d.pick(e, now)
		} else if now-e.ReadyAt >= d.waitLimit(e).Milliseconds() {
			w, final = why{outcome.ReasonWaitTimeout, limit}, true
		}
		switch {
		case w.reason == "":
			picked = append(picked, c)
			return ready.Taken
		case final && w.reason == outcome.ReasonWaitTimeout && e.Batch.Def.Wait.Do == job.WaitSkip && e.Batch.Total == 1 && e.Attempt == 1:
			expired = append(expired, ready.Skip{Executions: []*ready.Execution{e}, Reason: w.reason})
			return ready.Dropped
		case final:
			refused = append(refused, &outcome.Report{ExecutionID: e.ID, Under: f, Event: batch.RunReject, Reason: w.reason, NoRetry: w.reason == outcome.ReasonNoHandler || w.reason == outcome.ReasonWaitTimeout})
			return ready.Dropped
		}
		e.Waits, e.WaitsDetail = "waiting_"+w.reason, w.detail
		if !e.Noted && now-e.ReadyAt >= noteAfter {
			e.Noted = true
			w.note(waiting, e)
		}
		return ready.Blocked
	})
	for _, e := range later {
		e.NotBefore = now + again.Milliseconds()
	}
	d.ready.Add(later...)
	d.skip(ctx, expired)
	if len(refused) > 0 {
		d.outcome.Report(refused...)
	}
	d.sendBound(ctx, sendable)
	d.write(ctx, waiting, picked, lost, now)
	return d.ready.Len() > 0 || taken == passLimit, errs
}

// skip makes skips durable beside the passes: what is to be sent does not wait for it. Those that pile up
// meanwhile go together.
func (d *Dispatch) skip(ctx context.Context, list []ready.Skip) {
	if len(list) == 0 {
		return
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	d.skips = append(d.skips, list...)
	if d.skipping {
		return
	}
	d.skipping = true
	d.active.Go(func() {
		for {
			d.mu.Lock()
			part := d.skips
			d.skips = nil
			d.skipping = len(part) > 0
			d.mu.Unlock()
			if len(part) == 0 {
				return
			}
			if err := d.outcome.Skip(context.WithoutCancel(ctx), part); err != nil {
				d.log.WarnContext(ctx, "skips not written", slog.Int("count", len(part)), slog.String("err", err.Error()))
			}
		}
	})
}

// why is what an execution waits for, or why it is refused.
type why struct {
	reason string // "" = nothing
	detail string
}

// pick chooses the executor for an execution. A reason says why none can take
// it now; final means that waiting longer is no use.
func (d *Dispatch) pick(e *ready.Execution, now int64) (c chosen, w why, final bool) {
	b := e.Batch
	want := registry.Want{AppID: b.AppID, JobID: b.JobID, Handler: b.Def.Handler, Avoid: e.Avoid}
	request := e.Request()
	candidates, online, offered := d.registry.Candidates(want)
	choice := d.router.Pick(request, candidates)
	if len(choice.Order) == 0 && len(e.Avoid) > 0 && offered {
		// Only executors that failed it before are left: better there than not at all.
		e.Avoid, want.Avoid = nil, nil
		candidates, online, offered = d.registry.Candidates(want)
		choice = d.router.Pick(request, candidates)
	}
	wait := time.Duration(now-e.ReadyAt) * time.Millisecond
	for _, id := range choice.Order {
		if worker, ok := d.registry.Executor(id); ok {
			d.registry.Took(id, b.JobID, e.ID, now, b.Load())
			return chosen{e, worker, d.explained(e, request, candidates, choice, now)}, why{}, false
		}
	}
	switch {
	case !online:
		return c, why{reason: outcome.ReasonNoExecutor}, wait >= d.settings.ExecutorWait
	case !offered:
		return c, why{reason: outcome.ReasonNoHandler}, wait >= d.settings.ExecutorWait
	}
	if wait >= d.waitLimit(e) {
		return c, why{reason: outcome.ReasonWaitTimeout, detail: choice.Sum()}, true
	}
	return c, why{lacking(choice), choice.Sum()}, false
}

// waitLimit is how long an execution whose turn has come may wait for an executor.
func (d *Dispatch) waitLimit(e *ready.Execution) time.Duration {
	if limit := time.Duration(e.Batch.Def.Wait.Limit); limit > 0 {
		return limit
	}
	return d.settings.WaitLimit
}

// lacking is what would have to change so that somebody takes it, in one word: of several the one that is
// likely to pass first.
func lacking(choice routing.Choice) string {
	has := map[string]bool{}
	for _, bar := range choice.Filtered {
		has[bar] = true
	}
	switch {
	case has[routing.BarFull], has[routing.BarBefore]:
		return outcome.ReasonFull
	case has[routing.BarLimit]:
		return outcome.ReasonExecutorLimit
	case has[routing.BarCPU], has[routing.BarMemory], has[routing.BarSlots]:
		return outcome.ReasonCapacity
	case has[routing.BarSelector], has[routing.BarRule], has[routing.BarRuleErr], has[routing.BarRuleTime]:
		return outcome.ReasonNoMatch
	}
	return outcome.ReasonFull
}

func (w why) note(waiting map[int]map[why]map[string]int, e *ready.Execution) {
	b := e.Batch
	if waiting[b.Bucket] == nil {
		waiting[b.Bucket] = map[why]map[string]int{}
	}
	if waiting[b.Bucket][w] == nil {
		waiting[b.Bucket][w] = map[string]int{}
	}
	waiting[b.Bucket][w][b.ID] = b.Day
}

// writePatience is how long a pass waits for its writes. A bucket whose rows somebody holds must not make the others
// late: it is passed over until its writes have ended.
const writePatience = 20 * time.Millisecond

// write makes durable what a pass chose, each bucket by itself, and sends it.
func (d *Dispatch) write(ctx context.Context, waiting map[int]map[why]map[string]int, picked, lost []chosen, now int64) {
	type part struct {
		waiting      map[why]map[string]int
		picked, lost []chosen
	}
	buckets := map[int]*part{}
	of := func(bucket int) *part {
		if buckets[bucket] == nil {
			buckets[bucket] = &part{}
		}
		return buckets[bucket]
	}
	for bucket, reasons := range waiting {
		of(bucket).waiting = reasons
	}
	for _, c := range picked {
		p := of(c.e.Batch.Bucket)
		p.picked = append(p.picked, c)
	}
	for _, c := range lost {
		p := of(c.e.Batch.Bucket)
		p.lost = append(p.lost, c)
	}
	if len(buckets) == 0 {
		return
	}
	ended := make(chan struct{}, len(buckets))
	var left atomic.Bool // the pass went on without them
	for bucket, p := range buckets {
		d.writing[bucket].Store(true)
		d.active.Go(func() {
			err := errors.Join(d.assign(ctx, p.picked, now, true), d.assign(ctx, p.lost, now, false))
			if p.waiting != nil {
				err = errors.Join(err, d.noteWaiting(ctx, map[int]map[why]map[string]int{bucket: p.waiting}))
			}
			if err != nil && ctx.Err() == nil {
				d.log.WarnContext(ctx, "choices not written", slog.Int("bucket", bucket), slog.String("err", err.Error()))
			}
			d.writing[bucket].Store(false)
			ended <- struct{}{}
			if left.Load() {
				d.ready.Nudge() // what waits in it was passed over
			}
		})
	}
	timer := time.NewTimer(writePatience)
	defer timer.Stop()
	for range buckets {
		select {
		case <-ended:
		case <-timer.C:
			left.Store(true)
			return
		}
	}
}

// noteWaiting makes it visible what batches wait for.
func (d *Dispatch) noteWaiting(ctx context.Context, waiting map[int]map[why]map[string]int) error {
	var errs error
	for bucket, reasons := range waiting {
		f, ok := d.cluster.Fence(bucket)
		if !ok {
			continue
		}
		err := d.store.InBucket(ctx, f, func(b *store.Bucket) error {
			for w, batches := range reasons {
				if err := b.Wait(batches, "waiting_"+w.reason, w.detail); err != nil {
					return err
				}
			}
			return nil
		})
		if err != nil {
			d.outcome.Failed(f, err)
			errs = errors.Join(errs, err)
		}
	}
	return errs
}

// sendBound hands executions to the senders whose rows name their executor already: no
// write is needed, so the database is not in the way between the planned instant and the network.
func (d *Dispatch) sendBound(ctx context.Context, list []chosen) {
	perWorker := map[int64][]delivery{}
	for _, c := range list {
		if f, ok := d.cluster.Fence(c.e.Batch.Bucket); ok {
			perWorker[c.worker.ID] = append(perWorker[c.worker.ID], delivery{c, f})
			continue
		}
		d.gave(c)
	}
	for worker, deliveries := range perWorker {
		d.send(ctx, worker, deliveries)
	}
}

// Foresee chooses the executor of an execution that will be due soon, so that the choice can be
// written with its row. nil: none can be named, the strategy wants to see the load at the instant, or
// the firing may have to wait for another: a row that names an executor and whose time has passed counts
// as sent after a crash.
func (d *Dispatch) Foresee(e *ready.Execution) *ready.Bound {
	c := e.Batch.Def.Concurrency
	unlimited := c.Policy == job.OverlapAllow && c.Max == 0
	request := e.Request()
	if !d.router.Steady(request) || !unlimited && (c.Policy != job.OverlapSkip || e.Batch.Asked()) || d.ready.Limited(e.Batch) {
		return nil
	}
	candidates, _, _ := d.registry.Candidates(registry.Want{AppID: e.Batch.AppID, JobID: e.Batch.JobID, Handler: e.Batch.Def.Handler})
	choice := d.router.Pick(request, candidates)
	for _, id := range choice.Order {
		if worker, ok := d.registry.Executor(id); ok {
			e.Choice = &choice
			return &ready.Bound{WorkerID: worker.ID, Address: worker.Address, StartID: worker.StartID}
		}
	}
	return nil
}

// Eligible counts the executors that may run a batch, however busy they are.
func (d *Dispatch) Eligible(b *ready.Batch) int {
	candidates, _, _ := d.registry.Candidates(registry.Want{AppID: b.AppID, JobID: b.JobID, Handler: b.Def.Handler})
	choice := d.router.Pick((&ready.Execution{Batch: b}).Request(), candidates)
	n := len(choice.Order)
	for _, bar := range choice.Filtered {
		if bar != routing.BarSuspect && routing.Passing(bar) {
			n++
		}
	}
	return n
}

// assign makes choices durable, bucket by bucket, and hands them to the senders if they
// are to be sent.
func (d *Dispatch) assign(ctx context.Context, picked []chosen, now int64, send bool) error {
	buckets := map[int][]chosen{}
	for _, c := range picked {
		buckets[c.e.Batch.Bucket] = append(buckets[c.e.Batch.Bucket], c)
	}
	var errs error
	for bucket, list := range buckets {
		f, ok := d.cluster.Fence(bucket)
		if !ok {
			d.giveBack(list)
			continue
		}
		assignments := make([]store.Assignment, len(list))
		var events []store.EventRow
		for i, c := range list {
			if c.because != "" {
				b := c.e.Batch
				events = append(events, store.EventRow{NS: b.NS, Day: b.Day, BatchID: b.ID, ExecutionID: c.e.ID, At: now, Kind: store.KindRouted, Detail: c.because})
			}
			assignments[i] = store.Assignment{ID: c.e.ID, BatchID: c.e.Batch.ID, Worker: c.worker.ID, Address: c.worker.Address, StartID: c.worker.StartID}
		}
		var gone map[int64]bool
		release := d.ready.Hold(bucket)
		err := d.store.InBucket(ctx, f, func(b *store.Bucket) error {
			var err error
			if gone, err = b.Assign(assignments, now); err != nil {
				return err
			}
			return b.AddEvents(events)
		})
		release()
		if err != nil {
			// What the database holds now is not known: the bucket is read again and gives
			// these back, or knows them as assigned.
			d.giveBack(list)
			d.outcome.Failed(f, err)
			errs = errors.Join(errs, err)
			continue
		}
		perWorker := map[int64][]delivery{}
		for _, c := range list {
			if withdrawn, refused := gone[c.e.ID]; refused {
				d.gave(c)
				if withdrawn {
					d.ready.Ended(c.e.Batch.JobID, c.e.Batch.ID, now)
				}
				continue
			}
			perWorker[c.worker.ID] = append(perWorker[c.worker.ID], delivery{c, f})
		}
		if !send {
			continue
		}
		for worker, deliveries := range perWorker {
			d.send(ctx, worker, deliveries)
		}
	}
	return errs
}

func (d *Dispatch) giveBack(list []chosen) {
	for _, c := range list {
		d.gave(c)
	}
}

// gave takes an execution off the accounts: it is not where it was to go.
func (d *Dispatch) gave(c chosen) {
	d.registry.Gave(c.worker.ID, c.e.ID)
	d.ready.Discharge(c.e.ID)
}

// stop tells executors to stop executions, each in its own request, and does not wait.
func (d *Dispatch) stop(ctx context.Context, stops []ready.Stop) {
	perWorker := map[int64][]ready.Stop{}
	for _, s := range stops {
		perWorker[s.WorkerID] = append(perWorker[s.WorkerID], s)
	}
	for id, list := range perWorker {
		worker, ok := d.registry.Executor(id)
		if !ok {
			continue // the sweep ends them: their executor is not known any more
		}
		d.active.Go(func() {
			refs := make([]protocol.Ref, len(list))
			for i, s := range list {
				refs[i] = protocol.Ref{BatchID: s.BatchID, ExecutionID: strconv.FormatInt(s.ExecutionID, 10), Reason: s.Reason}
			}
			ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), d.settings.AckTimeout)
			defer cancel()
			answers, err := d.client.Kill(ctx, worker.Executor, refs)
			if err != nil {
				// Its next heartbeat is answered with what to stop.
				d.log.WarnContext(ctx, "stop not delivered", slog.String("executor", worker.Address), slog.String("err", err.Error()))
				return
			}
			if err := d.outcome.Acknowledged(ctx, acknowledged(list, answers)); err != nil {
				d.log.WarnContext(ctx, "acknowledged stops not noted", slog.String("executor", worker.Address), slog.String("err", err.Error()))
			}
		})
	}
}

// acknowledged lists the executions that an executor said it will stop. Only what was asked for counts.
func acknowledged(stops []ready.Stop, answers []protocol.Answer) []int64 {
	said := make(map[string]string, len(answers))
	for _, a := range answers {
		said[a.ExecutionID] = a.Answer
	}
	var out []int64
	for _, s := range stops {
		if said[strconv.FormatInt(s.ExecutionID, 10)] == protocol.Asked {
			out = append(out, s.ExecutionID)
		}
	}
	return out
}
