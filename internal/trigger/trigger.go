// Package trigger turns due triggers into batches, early: it looks one window ahead and
// makes every firing in it durable under the bucket's fence, so that at the planned instant nothing
// but memory and the network is asked.
//
// A trigger source only makes a batch; all after that is one path (package ready, then dispatch).
package trigger

import (
	"context"
	"errors"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/ax-scheduler/ax/internal/batch"
	"github.com/ax-scheduler/ax/internal/clock"
	"github.com/ax-scheduler/ax/internal/cluster"
	"github.com/ax-scheduler/ax/internal/job"
	"github.com/ax-scheduler/ax/internal/metric"
	"github.com/ax-scheduler/ax/internal/outcome"
	"github.com/ax-scheduler/ax/internal/ready"
	"github.com/ax-scheduler/ax/internal/routing"
	"github.com/ax-scheduler/ax/internal/schedule"
	"github.com/ax-scheduler/ax/internal/store"
)

// Window is how far ahead firings are made durable.
const Window = time.Second

const (
	// pageLimit bounds the triggers of one transaction.
	pageLimit = 500
	// firingLimit bounds the firings of one trigger in one pass; the rest follows in the next.
	firingLimit = 1000
	// missedLimit bounds how many missed firings are counted in one pass. It is more than any policy
	// lets run, so that each pass brings the trigger further.
	missedLimit = 200_000
	// idle is the longest sleep: a trigger that another replica edited is seen after that.
	idle = 5 * time.Second
	// dedupeFor is how long an idempotency key is remembered.
	dedupeFor = 24 * time.Hour
	// tellEvery bounds how often a failing pass is logged.
	tellEvery = 10 * time.Second
	// maxCompiled bounds the compiled schedules kept in memory.
	maxCompiled = 50_000
)

// Trigger opens batches.
type Trigger struct {
	store    *store.Store
	cluster  *cluster.Cluster
	ready    *ready.Ready
	outcome  *outcome.Outcome
	clock    clock.Clock
	metrics  *metric.Metrics
	log      *slog.Logger
	foresee  func(e *ready.Execution) *ready.Bound
	eligible func(b *ready.Batch) int
	wake     chan struct{}

	near    int
	sources []source
	asks    [batch.Buckets]asks
	opening [batch.Buckets]atomic.Bool // what is due in it is being made durable
	slots   chan struct{}

	mu       sync.Mutex
	compiled map[[3]int64]*schedule.Schedule // job, version, trigger number
	turns    map[int64]uint64
	shown    map[int64]int64 // by job: the firing that its row says it had last, for those that fire often
	pass     passed
}

// Config is what a Trigger needs.
type Config struct {
	Store   *store.Store
	Cluster *cluster.Cluster
	Ready   *ready.Ready
	Outcome *outcome.Outcome
	Clock   clock.Clock
	Metrics *metric.Metrics
	Log     *slog.Logger
	// Near is how many firings may wait in memory before delayed tasks that are due within ten minutes
	// rest in their table too.
	Near int
	// Foresee chooses an execution's executor beforehand; nil when none can be named.
	Foresee func(e *ready.Execution) *ready.Bound
	// Eligible counts the executors that may run a batch.
	Eligible func(b *ready.Batch) int
}

// New makes a Trigger; Run makes it work.
func New(c Config) *Trigger {
	t := &Trigger{store: c.Store, cluster: c.Cluster, ready: c.Ready, outcome: c.Outcome, clock: c.Clock, metrics: c.Metrics, log: c.Log, foresee: c.Foresee, eligible: c.Eligible, near: c.Near, slots: make(chan struct{}, atOnce), wake: make(chan struct{}, 1), compiled: map[[3]int64]*schedule.Schedule{}, turns: map[int64]uint64{}, shown: map[int64]int64{}}
	t.sources = []source{scheduled{t}, resting{t}}
	return t
}

// Nudge makes the loop look now: a trigger was written.
func (t *Trigger) Nudge() {
	select {
	case t.wake <- struct{}{}:
	default:
	}
}

// Run looks ahead until ctx ends.
func (t *Trigger) Run(ctx context.Context) error {
	timer := time.NewTimer(0)
	defer timer.Stop()
	var told time.Time
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-timer.C:
		case <-t.wake:
		}
		started := time.Now()
		next, err := t.once(ctx, clock.Millis(t.clock), patience)
		if err != nil && ctx.Err() == nil && time.Since(told) > tellEvery {
			told = time.Now()
			t.log.WarnContext(ctx, "trigger pass failed", slog.String("err", err.Error()))
		}
		if took := time.Since(started); took > Window/2 {
			// What is due may be late by then: the database was slow.
			t.log.WarnContext(ctx, "trigger pass slow", slog.Duration("took", took))
		}
		timer.Reset(next)
	}
}

// RunOnce makes everything durable that the sources hold up to now (ax time, milliseconds) and their
// time ahead, in the buckets that this replica owns, and returns how long it may sleep.
func (t *Trigger) RunOnce(ctx context.Context, now int64) (sleep time.Duration, err error) {
	return t.once(ctx, now, time.Hour)
}

// patience is how long a pass waits for slow buckets before it looks after the others again.
const patience = Window / 8

// atOnce bounds the buckets that are worked on at a time.
const atOnce = 8

func (t *Trigger) once(ctx context.Context, now int64, patience time.Duration) (sleep time.Duration, err error) {
	owned := t.cluster.Owned()
	if len(owned) == 0 {
		return cluster.TTL / 10, nil
	}
	t.mu.Lock()
	t.pass.at(now)
	t.mu.Unlock()
	sleep = idle
	var errs error
	for _, s := range t.sources {
		span, err := t.look(ctx, s, owned, now, patience)
		sleep, errs = min(sleep, span), errors.Join(errs, err)
		if errors.Is(err, store.ErrUnavailable) {
			break // the others would only say the same
		}
	}
	return sleep, errs
}

// firing is a trigger's due time that becomes a batch.
type firing struct {
	row       store.BatchRow
	batch     *ready.Batch
	notBefore int64
}

// open makes one page of due triggers of a bucket durable; more says that there is another.
func (t *Trigger) open(ctx context.Context, f store.Fence, now int64) (more bool, err error) {
	due, err := t.store.DueTriggers(ctx, f.Bucket, now+Window.Milliseconds(), pageLimit)
	if err != nil || len(due) == 0 {
		return false, err
	}
	return t.fire(ctx, f, due, now, len(due) < pageLimit)
}

// Settle makes durable what a job's triggers owe up to now, before somebody changes them: what they have
// not fired yet would have no fate.
func (t *Trigger) Settle(ctx context.Context, jobID int64, bucket int, now int64) error {
	f, ok := t.cluster.Await(ctx, bucket)
	if !ok {
		return outcome.ErrNotOwner
	}
	for {
		due, err := t.store.DueTriggersOf(ctx, jobID, now)
		if err != nil || len(due) == 0 {
			return err
		}
		if _, err = t.fire(ctx, f, due, now, false); err != nil {
			return err
		}
	}
}

// fire makes durable what some triggers of a bucket are due for. all says that no others are due, so that
// the cursor may move when nothing of these is left; more says that something is.
func (t *Trigger) fire(ctx context.Context, f store.Fence, due []store.DueTrigger, now int64, all bool) (more bool, err error) {
	until := now + Window.Milliseconds()
	var firings []firing
	var missed []store.BatchRow
	hints := make([]store.Hint, 0, len(due))
	var broken []store.DueTrigger
	drain := t.drain(f.Bucket)
	for _, d := range due {
		got, gone, hint, err := t.plan(ctx, f, d, drain, now, until)
		if err != nil {
			// One broken definition must not stop the others.
			t.log.ErrorContext(ctx, "trigger not understood", slog.Int64("job_id", d.JobID), slog.Int("trigger", d.No), slog.String("err", err.Error()))
			hints = append(hints, store.Hint{JobID: d.JobID, No: d.No, From: d.Hint})
			broken = append(broken, d)
			continue
		}
		hint.Quiet = t.quiet(hint)
		firings, missed, hints = append(firings, got...), append(missed, gone...), append(hints, hint)
		more = more || hint.Next > 0 && hint.Next <= until
	}
	defer t.ready.Hold(f.Bucket)()
	var add []*ready.Execution
	err = t.store.InBucket(ctx, f, func(b *store.Bucket) error {
		add = add[:0]
		// The triggers were read before the bucket was locked: somebody may have switched a job off
		// in between, and was told so.
		edited, err := b.MoveHints(hints)
		if err != nil {
			return err
		}
		for _, d := range broken {
			if err := b.Broken(d.JobID, d.No, d.Hint-1); err != nil {
				return err
			}
		}
		stays := func(r store.BatchRow) bool { return !edited[store.TriggerKey{JobID: r.JobID, No: r.TriggerNo}] }
		batches := make([]store.BatchRow, 0, len(firings)+len(missed))
		for _, x := range firings {
			if stays(x.row) {
				batches = append(batches, x.row)
			}
		}
		for _, r := range missed {
			if stays(r) {
				batches = append(batches, r)
			}
		}
		existing, err := b.InsertBatches(batches)
		if err != nil {
			return err
		}
		var rows []store.ExecutionRow
		for _, x := range firings {
			if !stays(x.row) {
				continue
			}
			if existing[x.row.ID] {
				t.metrics.Duplicates.WithLabelValues("firing").Inc()
				continue
			}
			rows, add = t.executions(x, rows, add)
		}
		first := b.TakeSequence(len(rows))
		for i := range rows {
			rows[i].ID = batch.ExecutionID(rows[i].Day, f.Bucket, first+int64(i))
			add[i].ID = rows[i].ID
		}
		if err := b.InsertExecutions(rows); err != nil {
			return err
		}
		if all && !more {
			b.MoveCursor(until)
		}
		return nil
	})
	if err != nil {
		t.outcome.Failed(f, err)
		return false, err
	}
	for range firings {
		t.metrics.Fates.WithLabelValues("planned", "").Inc()
	}
	for _, m := range missed {
		t.metrics.Fates.WithLabelValues("missed", m.Reason).Add(float64(m.MissedCount))
	}
	t.ready.Add(add...)
	t.showed(hints)
	return more || !all, nil
}

// A job that fires again within oftenFor has its last and next trigger time written once in showEvery only: who looks
// at its row finds them at most so old, and after a crash they are right with the next firing. That is a tenth of
// what a firing costs the database.
const (
	oftenFor  = 10 * time.Second
	showEvery = 5 * time.Second
)

func (t *Trigger) quiet(h store.Hint) bool {
	if h.Next == 0 || h.FiredAt == 0 || h.Next-h.FiredAt > oftenFor.Milliseconds() {
		return false
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	at, ok := t.shown[h.JobID]
	return ok && h.FiredAt >= at && h.FiredAt-at < showEvery.Milliseconds()
}

// showed remembers whose rows were written.
func (t *Trigger) showed(hints []store.Hint) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if len(t.shown) >= maxCompiled {
		clear(t.shown)
	}
	for _, h := range hints {
		if !h.Quiet && h.FiredAt > 0 && h.Next-h.FiredAt <= oftenFor.Milliseconds() {
			t.shown[h.JobID] = h.FiredAt
		}
	}
}

// executions appends the shards of a firing.
func (t *Trigger) executions(x firing, rows []store.ExecutionRow, add []*ready.Execution) ([]store.ExecutionRow, []*ready.Execution) {
	for shard := range x.row.Total {
		rows = append(rows, store.ExecutionRow{
			Day: x.row.Day, NS: x.row.NS, JobID: x.row.JobID, BatchID: x.row.ID, Shard: shard, Total: x.row.Total, Attempt: 1,
			Status: batch.RunScheduled, TriggerTime: x.row.DueAt, NotBefore: x.notBefore,
		})
		e := &ready.Execution{Batch: x.batch, Shard: shard, Attempt: 1, NotBefore: x.notBefore}
		// What is late may have to wait for another one, and who is there when jitter lets a firing start shows then.
		if x.batch.Late() || x.batch.Spread > 0 {
			add = append(add, e)
			continue
		}
		if e.Bound = t.foresee(e); e.Bound != nil {
			rows[len(rows)-1].Worker = store.Worker{ID: e.Bound.WorkerID, Address: e.Bound.Address, StartID: e.Bound.StartID}
		}
		add = append(add, e)
	}
	return rows, add
}

// plan computes what a trigger fires up to until, what it has missed, and its next hint.
func (t *Trigger) plan(ctx context.Context, f store.Fence, d store.DueTrigger, drain *drain, now, until int64) (got []firing, gone []store.BatchRow, hint store.Hint, err error) {
	hint = store.Hint{JobID: d.JobID, No: d.No, From: d.Hint}
	def, err := t.store.Definition(ctx, d.JobID, d.JobVersion)
	if err != nil {
		return nil, nil, hint, err
	}
	s, err := t.schedule(d)
	if err != nil {
		return nil, nil, hint, err
	}
	fire := func(at int64, state batch.State, reason string) firing {
		return t.firing(f, d, def, s, at, now, state, reason)
	}
	if d.Spec.Kind == schedule.FixedDelay {
		// The next one is planned when this one has ended.
		hint.FiredAt = d.Hint
		return []firing{fire(d.Hint, batch.Delayed, "")}, nil, hint, nil
	}
	// A firing that jitter starts later is not late before that.
	late := func(at int64) bool { return missed(s.Start(d.JobID, d.No, time.UnixMilli(at)).UnixMilli(), now) }
	var behind []int64
	older := false
	at := d.Hint - 1
	for n := 0; ; n++ {
		next, ok := s.Next(time.UnixMilli(at))
		if !ok {
			break // never again: the hint stays empty
		}
		if next.UnixMilli() > until || len(got) >= firingLimit || n >= missedLimit {
			hint.Next = next.UnixMilli()
			older = late(hint.Next)
			break
		}
		at = next.UnixMilli()
		hint.FiredAt = at
		if late(at) {
			behind = append(behind, at)
			continue
		}
		got = append(got, fire(at, batch.Delayed, ""))
	}
	if len(behind) > 0 {
		job, app, err := drain.of(ctx, d, def)
		if err != nil {
			return nil, nil, hint, err
		}
		fated, err := t.store.Fated(ctx, d.JobID, d.No, behind[0], behind[len(behind)-1])
		if err != nil {
			return nil, nil, hint, err
		}
		run, spans, rest := settle(debt{policy: def.Misfire, behind: behind, fated: fated, more: older, now: now, jump: t.jumped(), job: job, app: app})
		if rest > 0 {
			hint.Next, hint.FiredAt = rest, 0
			if len(spans) > 0 {
				hint.FiredAt = spans[len(spans)-1].last
			}
		}
		caught := make([]firing, 0, len(run)+len(got))
		for _, c := range run {
			x := fire(c.at, batch.Delayed, c.reason)
			x.notBefore, x.batch.Spread, x.batch.CatchUp, x.row.CreatedBy = c.notBefore, 0, true, store.ByCatchUp
			caught = append(caught, x)
		}
		got = append(caught, got...)
		for _, m := range spans {
			row := fire(m.first, batch.Missed, m.reason).row
			row.MissedCount, row.MissedLast, row.Total = m.count, m.last, 1
			gone = append(gone, row)
		}
	}
	return got, gone, hint, nil
}

func (t *Trigger) firing(f store.Fence, d store.DueTrigger, def *job.Definition, s *schedule.Schedule, at, now int64, state batch.State, reason string) firing {
	local := time.UnixMilli(at).In(s.Zone())
	b := &ready.Batch{
		ID: batch.ID(d.JobID, local, d.No), Day: batch.Day(at), Bucket: f.Bucket, NS: d.NS, JobID: d.JobID, JobVersion: d.JobVersion, AppID: d.AppID, Def: def,
		TriggerNo: d.No, Kind: string(d.Spec.Kind), DueAt: at, PlannedFor: at, Params: def.Params, Zone: s.Zone().String(), Priority: def.Priority, Turn: t.turn(d.JobID, at),
	}
	b.Total = t.Total(b)
	b.Spread = s.Start(d.JobID, d.No, time.UnixMilli(at)).UnixMilli() - at
	return firing{batch: b, notBefore: b.StartAt(), row: store.BatchRow{
		ID: b.ID, Day: b.Day, NS: b.NS, JobID: b.JobID, JobVersion: b.JobVersion, TriggerNo: d.No, TriggerKind: b.Kind, DueAt: at, PlannedFor: at, State: state,
		Priority: b.Priority, Total: b.Total, Reason: reason, CreatedBy: store.BySchedule, CreatedAt: now,
	}}
}

// Total is the number of shards that a batch is frozen to: what the job says, or so many for each executor that may run it now. With
// none there is one shard, which then says that there is no executor.
func (t *Trigger) Total(b *ready.Batch) int {
	r := b.Def.Routing
	switch {
	case r.Shards > 0:
		return r.Shards
	case r.Strategy != routing.Broadcast:
		return 1
	}
	return min(max(t.eligible(b)*max(r.PerExecutor, 1), 1), job.MaxShards)
}

// turn counts a job's firings, for the strategies that take turns. After a restart it goes
// on from the clock, so that not every job begins again at the first executor.
func (t *Trigger) turn(jobID, at int64) uint64 {
	t.mu.Lock()
	defer t.mu.Unlock()
	n, ok := t.turns[jobID]
	if !ok {
		n = uint64(at/1000) + uint64(jobID) // jobs that are due together begin at different executors
	}
	t.turns[jobID] = n + 1
	return n
}

func (t *Trigger) schedule(d store.DueTrigger) (*schedule.Schedule, error) {
	key := [3]int64{d.JobID, d.JobVersion, int64(d.No)}
	t.mu.Lock()
	s, ok := t.compiled[key]
	t.mu.Unlock()
	if ok {
		return s, nil
	}
	s, err := schedule.Compile(d.Spec)
	if err != nil {
		return nil, err
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if len(t.compiled) >= maxCompiled {
		t.compiled = map[[3]int64]*schedule.Schedule{}
	}
	t.compiled[key] = s
	return s, nil
}

// Hints computes the next due time of each trigger of a definition after now, for a job
// that is written. effective is the instant from which the triggers count.
func Hints(def *job.Definition, effective int64) (map[int]int64, error) {
	hints := map[int]int64{}
	for _, spec := range def.Triggers {
		s, err := schedule.Compile(spec)
		if err != nil {
			return nil, err
		}
		if spec.Kind == schedule.FixedDelay {
			if at, ok := s.AfterRun(time.UnixMilli(effective)); ok {
				hints[spec.No] = at.UnixMilli()
			}
			continue
		}
		if at, ok := s.Next(time.UnixMilli(effective)); ok {
			hints[spec.No] = at.UnixMilli()
		}
	}
	return hints, nil
}
