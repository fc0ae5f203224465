// Package trigger turns due triggers into batches, early: it looks one window ahead and
// makes every firing in it durable under the bucket's fence, so that at the planned instant nothing
// but memory and the network is asked.
//
// A trigger source only makes a batch; all after that is one path (package ready, then dispatch).
package trigger

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"time"

	"github.com/ax-scheduler/ax/internal/batch"
	"github.com/ax-scheduler/ax/internal/clock"
	"github.com/ax-scheduler/ax/internal/cluster"
	"github.com/ax-scheduler/ax/internal/job"
	"github.com/ax-scheduler/ax/internal/metric"
	"github.com/ax-scheduler/ax/internal/outcome"
	"github.com/ax-scheduler/ax/internal/ready"
	"github.com/ax-scheduler/ax/internal/registry"
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
	registry *registry.Registry
	outcome  *outcome.Outcome
	clock    clock.Clock
	metrics  *metric.Metrics
	log      *slog.Logger
	foresee  func(e *ready.Execution) *ready.Bound
	wake     chan struct{}

	mu       sync.Mutex
	compiled map[[3]int64]*schedule.Schedule // job, version, trigger number
	turns    map[int64]uint64
	pass     passed
}

// Config is what a Trigger needs.
type Config struct {
	Store    *store.Store
	Cluster  *cluster.Cluster
	Ready    *ready.Ready
	Registry *registry.Registry
	Outcome  *outcome.Outcome
	Clock    clock.Clock
	Metrics  *metric.Metrics
	Log      *slog.Logger
	// Foresee chooses an execution's executor beforehand; nil when none can be named.
	Foresee func(e *ready.Execution) *ready.Bound
}

// New makes a Trigger; Run makes it work.
func New(c Config) *Trigger {
	return &Trigger{store: c.Store, cluster: c.Cluster, ready: c.Ready, registry: c.Registry, outcome: c.Outcome, clock: c.Clock, metrics: c.Metrics, log: c.Log, foresee: c.Foresee, wake: make(chan struct{}, 1), compiled: map[[3]int64]*schedule.Schedule{}, turns: map[int64]uint64{}}
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
		next, err := t.RunOnce(ctx, clock.Millis(t.clock))
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

// RunOnce makes everything durable that is due up to now (ax time, milliseconds) + Window in the
// buckets that this replica owns, and returns how long it may sleep.
func (t *Trigger) RunOnce(ctx context.Context, now int64) (sleep time.Duration, err error) {
	sleep = idle
	owned := t.cluster.Owned()
	if len(owned) == 0 {
		return cluster.TTL / 10, nil
	}
	hints, err := t.store.NextHints(ctx)
	if err != nil {
		return Window / 4, err
	}
	until := now + Window.Milliseconds()
	t.mu.Lock()
	t.pass.at(now)
	t.mu.Unlock()
	var errs error
	worked := false
	for _, f := range owned {
		hint, planned := hints[f.Bucket]
		if !planned || hint > until {
			continue
		}
		worked = true
		for more := true; more; {
			if more, err = t.open(ctx, f, now); err != nil {
				errs = errors.Join(errs, fmt.Errorf("bucket %d: %w", f.Bucket, err))
				sleep = Window / 4
			}
		}
		if errors.Is(err, store.ErrUnavailable) {
			return sleep, errs // the other buckets would only say the same
		}
	}
	if worked {
		if hints, err = t.store.NextHints(ctx); err != nil {
			return Window / 4, errors.Join(errs, err)
		}
	}
	for _, f := range owned {
		if hint, planned := hints[f.Bucket]; planned {
			// Half a window of slack, so that a firing is durable well before its time, and what is
			// due within one window goes in one transaction.
			sleep = min(sleep, max(time.Duration(hint-now)*time.Millisecond-Window/2, Window/20))
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
	return more || !all, nil
}

// executions appends the shards of a firing.
func (t *Trigger) executions(x firing, rows []store.ExecutionRow, add []*ready.Execution) ([]store.ExecutionRow, []*ready.Execution) {
	for shard := range x.row.Total {
		rows = append(rows, store.ExecutionRow{
			Day: x.row.Day, NS: x.row.NS, JobID: x.row.JobID, BatchID: x.row.ID, Shard: shard, Total: x.row.Total, Attempt: 1,
			Status: batch.RunScheduled, TriggerTime: x.row.DueAt, NotBefore: x.notBefore,
		})
		e := &ready.Execution{Batch: x.batch, Shard: shard, Attempt: 1, NotBefore: x.notBefore}
		// What is late may have to wait for another one.
		if x.batch.Late() {
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
			older = missed(hint.Next, now)
			break
		}
		at = next.UnixMilli()
		hint.FiredAt = at
		if missed(at, now) {
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
		run, spans, rest := settle(debt{policy: def.Misfire, behind: behind, more: older, now: now, jump: t.jumped(), job: job, app: app})
		if rest > 0 {
			hint.Next, hint.FiredAt = rest, spans[len(spans)-1].last
		}
		caught := make([]firing, 0, len(run)+len(got))
		for _, c := range run {
			x := fire(c.at, batch.Delayed, c.reason)
			x.notBefore, x.batch.CatchUp, x.row.CreatedBy = c.notBefore, true, store.ByCatchUp
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
		TriggerNo: d.No, Kind: string(d.Spec.Kind), DueAt: at, PlannedFor: at, Params: def.Params, Zone: s.Zone().String(), Priority: def.Priority, Total: t.total(def, d.AppID), Turn: t.turn(d.JobID, at),
	}
	return firing{batch: b, notBefore: at, row: store.BatchRow{
		ID: b.ID, Day: b.Day, NS: b.NS, JobID: b.JobID, JobVersion: b.JobVersion, TriggerNo: d.No, TriggerKind: b.Kind, DueAt: at, PlannedFor: at, State: state,
		Priority: b.Priority, Total: b.Total, Reason: reason, CreatedBy: store.BySchedule, CreatedAt: now,
	}}
}

// total freezes the number of shards: one for each executor that takes work now. With
// none there is one shard, which then says that there is no executor.
func (t *Trigger) total(def *job.Definition, appID int64) int {
	if def.Routing.Strategy != routing.Broadcast {
		return 1
	}
	return max(t.registry.Online(appID), 1)
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

// Ask is a batch that somebody wants now.
type Ask struct {
	Job    store.Job
	Kind   schedule.Kind
	Params *string
	By     string
	// Key makes the ask idempotent for 24 hours; "" = it is not.
	Key   string
	Entry *store.AuditEntry
}

// ErrKeyReused says that an idempotency key was used for something else before.
var ErrKeyReused = errors.New("this idempotency key was used with other parameters")

// Fire opens a batch now. The same Key with the same parameters answers the batch that it
// made first. What it returns is durable.
func (t *Trigger) Fire(ctx context.Context, a Ask) (batchID string, err error) {
	f, ok := t.cluster.Await(ctx, a.Job.Bucket)
	if !ok {
		return "", outcome.ErrNotOwner
	}
	now := clock.Millis(t.clock)
	def, err := t.store.Definition(ctx, a.Job.ID, a.Job.Version)
	if err != nil {
		return "", err
	}
	zone := outcome.ZoneOf(def, 0)
	location, err := schedule.ParseZone(zone)
	if err != nil {
		return "", err
	}
	var tail [4]byte
	_, _ = rand.Read(tail[:])
	id := batch.FreshID(a.Job.ID, time.UnixMilli(now).In(location), hex.EncodeToString(tail[:]))
	params := def.Params
	if a.Params != nil {
		params = *a.Params
	}
	x := firing{
		notBefore: now,
		batch: &ready.Batch{
			ID: id, Day: batch.Day(now), Bucket: f.Bucket, NS: a.Job.NS, JobID: a.Job.ID, JobVersion: a.Job.Version, AppID: a.Job.AppID, Def: def, Kind: string(a.Kind),
			DueAt: now, PlannedFor: now, Params: params, Zone: zone, Priority: def.Priority, Total: t.total(def, a.Job.AppID), Turn: t.turn(a.Job.ID, now),
		},
	}
	x.row = store.BatchRow{
		ID: id, Day: x.batch.Day, NS: a.Job.NS, JobID: a.Job.ID, JobVersion: a.Job.Version, TriggerKind: string(a.Kind), DueAt: now, PlannedFor: now, State: batch.Delayed,
		Priority: def.Priority, Total: x.batch.Total, Params: a.Params, CreatedBy: a.By, CreatedAt: now,
	}
	defer t.ready.Hold(f.Bucket)()
	var add []*ready.Execution
	err = t.store.InBucket(ctx, f, func(b *store.Bucket) error {
		add = nil
		if a.Key != "" {
			body := hash("")
			if a.Params != nil {
				body = hash("p" + *a.Params)
			}
			existing, was, err := b.Dedupe(a.Job.NS, a.Job.ID, "trigger", hash(a.Key), body, id, now, now+dedupeFor.Milliseconds())
			if err != nil {
				return err
			}
			if existing != "" {
				if was != body {
					return ErrKeyReused
				}
				batchID = existing
				return nil
			}
		}
		batchID = id
		if _, err := b.InsertBatches([]store.BatchRow{x.row}); err != nil {
			return err
		}
		var rows []store.ExecutionRow
		rows, add = t.executions(x, nil, nil)
		first := b.TakeSequence(len(rows))
		for i := range rows {
			rows[i].ID = batch.ExecutionID(rows[i].Day, f.Bucket, first+int64(i))
			add[i].ID = rows[i].ID
		}
		if err := b.InsertExecutions(rows); err != nil {
			return err
		}
		return b.Audit(a.Entry)
	})
	if err != nil {
		if !errors.Is(err, ErrKeyReused) {
			t.outcome.Failed(f, err)
		}
		return "", err
	}
	t.ready.Add(add...)
	return batchID, nil
}

// hash is how a key is kept: keys may be long and say things.
func hash(s string) string {
	sum := sha256.Sum256([]byte(strings.TrimSpace(s)))
	return hex.EncodeToString(sum[:])
}
