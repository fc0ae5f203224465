// Package sweep answers for what nobody answered: executions whose executor is gone or
// does not know them, whose lease has lapsed, that run too long or will not stop. It decides from
// the rows and from what registry heard; package outcome makes it true.
//
// The owner of bucket 0 also does what must be done once: partitions and retention.
package sweep

import (
	"context"
	"crypto/ed25519"
	"errors"
	"log/slog"
	"time"

	"github.com/ax-scheduler/ax/internal/audit"
	"github.com/ax-scheduler/ax/internal/batch"
	"github.com/ax-scheduler/ax/internal/clock"
	"github.com/ax-scheduler/ax/internal/cluster"
	"github.com/ax-scheduler/ax/internal/outcome"
	"github.com/ax-scheduler/ax/internal/ready"
	"github.com/ax-scheduler/ax/internal/registry"
	"github.com/ax-scheduler/ax/internal/store"
)

const (
	every = 2 * time.Second
	// settle is how old a dispatch must be before the sweep looks at it: its answer is on the way.
	settle = 5 * time.Second
	// unheard is how long an executor may fail to list an execution before it does not have it.
	unheard = 30 * time.Second
	// resend is how long dispatch repeats an unanswered request before the sweep decides.
	resend = 30 * time.Second
	// overrun is the grace beyond a time limit that the executor enforces by itself.
	overrun = 5 * time.Second
	// stopTimeout and stopCancel are how long a stop may stay unconfirmed before the execution is
	// ended without confirmation.
	stopTimeout = 30 * time.Second
	stopCancel  = 60 * time.Second
	// askAgain is how often an unconfirmed stop is repeated.
	askAgain = 15 * time.Second
	page     = 5000
	// tellEvery bounds how often a failing patrol is logged.
	tellEvery = 10 * time.Second
	// upkeepEvery is how often partitions and retention are looked after.
	upkeepEvery = 10 * time.Minute
	// sealEvery is how often audit entries get their place in the chain, digestEvery how often that is signed for.
	sealEvery   = 5 * time.Second
	digestEvery = time.Minute
	// movesKept is how long it is known which bucket moved when.
	movesKept = 30 * 24 * time.Hour
)

// Settings of the sweep.
type Settings struct {
	// Retention is how long history is kept. Default 720h (30 days).
	Retention time.Duration
	// OutputRetention is how long output is kept; not longer than history. Default 720h.
	OutputRetention time.Duration
}

// Sweep patrols.
type Sweep struct {
	store    *store.Store
	cluster  *cluster.Cluster
	registry *registry.Registry
	ready    *ready.Ready
	outcome  *outcome.Outcome
	clock    clock.Clock
	log      *slog.Logger
	settings Settings

	asked    map[int64]int64 // execution → when its stop was last repeated
	upkeepAt int64

	auditKey           ed25519.PrivateKey
	digested           func(d audit.Digest) error
	sealedAt, digestAt int64
	chain              store.Fence // under which the whole trail was looked through
	// waiting counts the lapsed leases that may not move yet, told when that was logged.
	waiting int
	told    time.Time
}

// Config is what a Sweep needs.
type Config struct {
	Store    *store.Store
	Cluster  *cluster.Cluster
	Registry *registry.Registry
	Ready    *ready.Ready
	Outcome  *outcome.Outcome
	Clock    clock.Clock
	Log      *slog.Logger
	Settings Settings
	// AuditKey signs what the audit trail was; Digested keeps a copy of that outside the database.
	AuditKey ed25519.PrivateKey
	Digested func(d audit.Digest) error
}

// New makes a Sweep.
func New(c Config) *Sweep {
	return &Sweep{store: c.Store, cluster: c.Cluster, registry: c.Registry, ready: c.Ready, outcome: c.Outcome, clock: c.Clock, log: c.Log, settings: c.Settings, auditKey: c.AuditKey, digested: c.Digested, asked: map[int64]int64{}}
}

// Run patrols until ctx ends.
func (s *Sweep) Run(ctx context.Context) error {
	tick := time.NewTicker(every)
	defer tick.Stop()
	var told time.Time
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
		}
		if err := s.RunOnce(ctx, clock.Millis(s.clock)); err != nil && ctx.Err() == nil && !errors.Is(err, outcome.ErrNotOwner) && time.Since(told) > tellEvery {
			told = time.Now()
			s.log.WarnContext(ctx, "sweep failed", slog.String("err", err.Error()))
		}
	}
}

// RunOnce looks at everything that is out at executors, in the buckets that this replica
// owns, at now (ax time, milliseconds).
func (s *Sweep) RunOnce(ctx context.Context, now int64) error {
	owned := s.cluster.Owned()
	if len(owned) == 0 {
		return nil
	}
	buckets := make([]int, len(owned))
	for i, f := range owned {
		buckets[i] = f.Bucket
	}
	rows, err := s.store.OpenIn(ctx, buckets, []batch.Run{batch.RunDispatching, batch.RunRunning, batch.RunStopping, batch.RunUnknown}, now-settle.Milliseconds(), page)
	if err != nil {
		return err
	}
	perBucket := map[int][]store.Execution{}
	for _, row := range rows {
		b := batch.ExecutionBucket(row.ID)
		perBucket[b] = append(perBucket[b], row)
	}
	var errs error
	s.waiting = 0
	for _, f := range owned {
		errs = errors.Join(errs, s.release(ctx, f.Bucket, now))
		if len(perBucket[f.Bucket]) > 0 {
			errs = errors.Join(errs, s.look(ctx, f, perBucket[f.Bucket], now))
		}
		if f.Bucket == 0 && now-s.upkeepAt >= upkeepEvery.Milliseconds() {
			s.upkeepAt = now
			errs = errors.Join(errs, s.upkeep(ctx, now))
		}
		if f.Bucket == 0 && (now-s.sealedAt >= sealEvery.Milliseconds() || now < s.sealedAt) {
			s.sealedAt = now
			errs = errors.Join(errs, s.seal(ctx, f, now))
		}
	}
	s.registry.Waiting(s.waiting)
	if s.waiting > 0 && time.Since(s.told) > tellEvery {
		s.told = time.Now()
		s.log.ErrorContext(ctx, "too many leases lapse at once: the rest waits for its executors", slog.Int("waiting", s.waiting))
	}
	return errs
}

// seal gives audit entries their place in the chain and signs for it now and then.
func (s *Sweep) seal(ctx context.Context, f store.Fence, now int64) error {
	for more := true; more; {
		err := s.store.InBucket(ctx, f, func(b *store.Bucket) (err error) {
			more, err = b.Seal(now, s.chain != f)
			return err
		})
		if err != nil {
			s.outcome.Failed(f, err)
			return err
		}
	}
	s.chain = f
	if now-s.digestAt < digestEvery.Milliseconds() && now >= s.digestAt {
		return nil
	}
	s.digestAt = now
	var d audit.Digest
	var made bool
	err := s.store.InBucket(ctx, f, func(b *store.Bucket) (err error) {
		d, made, err = b.Digest(s.auditKey, now)
		return err
	})
	if err != nil {
		s.outcome.Failed(f, err)
		return err
	}
	if !made {
		return nil
	}
	return s.digested(d)
}

func (s *Sweep) look(ctx context.Context, f store.Fence, rows []store.Execution, now int64) error {
	lease := s.registry.Settings().Lease.Milliseconds()
	var reports []*outcome.Report
	var renew []store.Renewal
	var overdue []store.Execution
	var again []ready.Stop
	for _, row := range rows {
		word := s.registry.Word(row.WorkerID, row.WorkerStartID, row.ID)
		if v := s.judge(row, word, now, s.cluster.HeldFor(f.Bucket).Milliseconds()); v != nil {
			if v.Reason == outcome.ReasonLease && !s.registry.Move(row.WorkerID, time.Now()) {
				s.waiting++
				continue
			}
			reports = append(reports, v)
			delete(s.asked, row.ID)
			continue
		}
		if word.Lists {
			if row.Status == batch.RunUnknown || row.Status == batch.RunDispatching {
				reports = append(reports, &outcome.Report{ExecutionID: row.ID, Event: batch.RunSee})
			}
			if row.LeaseUntil-now < lease/2 && row.Status != batch.RunDispatching {
				renew = append(renew, store.Renewal{ID: row.ID, LeaseUntil: now + lease})
			}
			if row.Status == batch.RunRunning && word.RanMs > 0 {
				limit, err := s.limit(ctx, row)
				if err != nil {
					return err
				}
				if limit > 0 && word.RanMs+word.SilentFor.Milliseconds() > limit+overrun.Milliseconds() {
					overdue = append(overdue, row)
				}
			}
		}
		if row.Status == batch.RunStopping && now-max(s.asked[row.ID], row.StopAskedAt) >= askAgain.Milliseconds() {
			s.asked[row.ID] = now
			again = append(again, ready.Stop{WorkerID: row.WorkerID, ExecutionID: row.ID, BatchID: row.BatchID, Bucket: f.Bucket, Reason: row.StopReason})
		}
	}
	s.outcome.Report(reports...)
	s.ready.AskStop(again...)
	var errs error
	if len(renew) > 0 {
		if err := s.store.InBucket(ctx, f, func(b *store.Bucket) error { return b.Renew(renew) }); err != nil {
			s.outcome.Failed(f, err)
			errs = errors.Join(errs, err)
		}
	}
	if len(overdue) > 0 {
		errs = errors.Join(errs, s.outcome.Stop(ctx, f.Bucket, overdue, outcome.ReasonTimeout))
	}
	return errs
}

// release gives up the places of executions that have ended unconfirmed and are known by now not to run
// any more, or of which nobody will ever know.
func (s *Sweep) release(ctx context.Context, bucket int, now int64) error {
	why := map[string][]store.Lingering{}
	for _, l := range s.outcome.Lingering(bucket) {
		word := s.registry.Word(l.WorkerID, l.StartID, l.ExecutionID)
		age := now - l.Since
		switch {
		case word.Gone:
			why[stoppedGone] = append(why[stoppedGone], l)
		case word.Known && word.Beats >= 2 && !word.Lists && word.SilentFor.Milliseconds() < age:
			why[stoppedUnlisted] = append(why[stoppedUnlisted], l)
		case age > s.registry.Settings().Lease.Milliseconds() && word.SilentFor > s.registry.Settings().Lease:
			why[stoppedNever] = append(why[stoppedNever], l)
		}
	}
	var errs error
	for text, list := range why {
		errs = errors.Join(errs, s.outcome.Release(ctx, bucket, list, text != stoppedNever, text))
	}
	return errs
}

// Why an execution that would not stop gives its place up.
const (
	stoppedGone     = "its executor's process is gone"
	stoppedUnlisted = "its executor does not run it any more"
	stoppedNever    = "its executor was not heard of for a whole lease"
)

// judge ends an execution for which nobody will answer any more; nil leaves it. held is how
// long, in milliseconds, this replica has answered for its bucket: what a former owner had sent is
// sent again by this one, so patience begins anew.
func (s *Sweep) judge(row store.Execution, word registry.Word, now, held int64) *outcome.Report {
	lost := func(reason string) *outcome.Report {
		return &outcome.Report{ExecutionID: row.ID, Event: batch.RunLose, Reason: reason, Avoid: []int64{row.WorkerID}, Waited: word.Lists && word.RanMs < 0}
	}
	age := min(now-row.DispatchedAt, held)
	if word.Gone {
		return lost(outcome.ReasonGone)
	}
	if word.Known && word.Beats >= 2 && !word.Lists {
		patience := unheard
		if row.Status == batch.RunDispatching {
			patience = resend
		}
		if age > max(patience, 3*s.registry.Settings().Heartbeat).Milliseconds() {
			return lost(outcome.ReasonUnheard)
		}
	}
	if row.Status == batch.RunStopping {
		since := now - row.StopAskedAt
		switch {
		case row.StopReason == outcome.ReasonTimeout && since > stopTimeout.Milliseconds():
			return &outcome.Report{ExecutionID: row.ID, Event: batch.RunTimeOut, Reason: outcome.ReasonTimeout, Unconfirmed: true}
		case row.StopReason != outcome.ReasonTimeout && since > stopCancel.Milliseconds():
			return &outcome.Report{ExecutionID: row.ID, Event: batch.RunCancel, Reason: row.StopReason, Unconfirmed: true}
		}
	}
	if row.LeaseUntil > 0 && row.LeaseUntil < now && !word.Lists && !word.Held {
		return lost(outcome.ReasonLease)
	}
	// Dispatched and never acknowledged, by an executor that can not be reached: no lease was given.
	if row.LeaseUntil == 0 && !word.Lists && !word.Held && age > max(s.registry.Settings().Lease, resend).Milliseconds() {
		return lost(outcome.ReasonLease)
	}
	return nil
}

// limit is the job's time limit in milliseconds, 0 = none.
func (s *Sweep) limit(ctx context.Context, row store.Execution) (int64, error) {
	heads, err := s.store.BatchHeads(ctx, map[string]int{row.BatchID: row.Day})
	if err != nil {
		return 0, err
	}
	head, ok := heads[row.BatchID]
	if !ok {
		return 0, nil
	}
	def, err := s.store.Definition(ctx, head.JobID, head.JobVersion)
	if errors.Is(err, store.ErrNotFound) {
		return 0, nil
	}
	if err != nil {
		return 0, err
	}
	limit := time.Duration(def.Timeout).Milliseconds()
	if row.DeadlineAt > 0 {
		limit = max(limit, row.DeadlineAt-row.ActualTime) // it was given more time
	}
	return limit, nil
}

// upkeep makes partitions and drops what retention lets go.
func (s *Sweep) upkeep(ctx context.Context, now int64) error {
	stray, err := s.store.KeepPartitions(ctx, now)
	if stray > 0 {
		s.log.WarnContext(ctx, "history rows outside every day's partition", slog.Int64("count", stray))
	}
	before := batch.Day(now - s.settings.Retention.Milliseconds())
	dropped, dropErr := s.store.DropHistory(ctx, before)
	if dropped > 0 {
		s.log.InfoContext(ctx, "history dropped", slog.Int64("count", dropped), slog.Int("before_day", before))
	}
	_, outErr := s.store.DropOutput(ctx, batch.Day(now-s.settings.OutputRetention.Milliseconds()))
	return errors.Join(err, dropErr, outErr, s.store.ForgetOutputUsed(ctx, batch.Day(now)-1), s.store.ForgetExecutors(ctx, now-24*time.Hour.Milliseconds()), s.store.SweepDedupe(ctx, now), s.store.ForgetMoves(ctx, now-movesKept.Milliseconds(), now-time.Hour.Milliseconds()))
}
