// Package clock is ax time: the monotonic clock of this process plus an offset to the
// database's clock, so that every replica means the same instant.
//
// Nothing in ax that schedules asks the host's clock. Signatures do, since the other
// side has no other reference.
package clock

import (
	"context"
	"log/slog"
	"sync"
	"time"
)

// Clock tells ax time. It is safe for concurrent use.
type Clock interface {
	Now() time.Time
}

// Millis is ax time in milliseconds since the epoch.
func Millis(c Clock) int64 { return c.Now().UnixMilli() }

// Settings of a Referenced clock; not for operators.
const (
	sampleEvery = 10 * time.Second
	keep        = 8
	// maxStep is the largest change of the database's clock that is followed while the host's
	// clock does not agree: a database that fails over may bring another host's time.
	maxStep = 5 * time.Second
	// slew bounds how far one sample moves ax time.
	slew = 50 * time.Millisecond
	// warnEvery bounds how often one thing is logged.
	warnEvery = 30 * time.Second
	// DriftWarn is the drift between host and database above which a warning is logged (B5).
	DriftWarn = 500 * time.Millisecond
)

// Referenced follows the database's clock.
type Referenced struct {
	source func(ctx context.Context) (time.Time, error)
	log    *slog.Logger
	base   time.Time // host time with its monotonic reading

	mu      sync.RWMutex
	offset  time.Duration // ax time = host monotonic + offset
	samples []sample
	started bool
	drift   time.Duration
	refused time.Duration // a step that is not followed, 0 = none
	steps   int64         // large steps that were followed
	warned  map[string]time.Duration
}

type sample struct {
	offset, rtt time.Duration
}

// New makes a clock that follows source. Until the first sample it is the host's.
func New(source func(ctx context.Context) (time.Time, error), log *slog.Logger) *Referenced {
	return &Referenced{source: source, log: log, base: time.Now(), warned: map[string]time.Duration{}}
}

// Now is ax time.
func (r *Referenced) Now() time.Time {
	// time.Since uses the monotonic reading: a step of the host's clock does not move ax time.
	elapsed := time.Since(r.base)
	r.mu.RLock()
	defer r.mu.RUnlock()
	return r.base.Round(0).Add(elapsed + r.offset)
}

// Status is what the clocks say of each other.
type Status struct {
	// Drift is how far the database's clock is ahead of the host's.
	Drift time.Duration
	// Refused is a step of the database's clock that is not followed until the host's agrees, 0 = none.
	Refused time.Duration
	// Steps counts large steps that were followed: database and host agreed, and ax time did not.
	Steps int64
}

// Alarm says that somebody should look at the clocks.
func (s Status) Alarm() bool { return s.Drift.Abs() > DriftWarn || s.Refused != 0 }

// Status is the last sample's.
func (r *Referenced) Status() Status {
	r.mu.RLock()
	defer r.mu.RUnlock()
	return Status{Drift: r.drift, Refused: r.refused, Steps: r.steps}
}

// Run samples until ctx ends.
func (r *Referenced) Run(ctx context.Context) error {
	tick := time.NewTicker(sampleEvery)
	defer tick.Stop()
	for {
		if err := r.Sample(ctx); err != nil && ctx.Err() == nil {
			r.log.DebugContext(ctx, "clock sample failed", slog.String("err", err.Error()))
		}
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
		}
	}
}

// Sample reads the database's clock once between two readings of the monotonic clock.
func (r *Referenced) Sample(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, 2*time.Second)
	defer cancel()
	before := time.Since(r.base)
	at, err := r.source(ctx)
	after := time.Since(r.base)
	if err != nil {
		return err
	}
	middle := before + (after-before)/2
	r.add(ctx, sample{offset: at.Sub(r.base.Round(0).Add(middle)), rtt: after - before}, at.Sub(time.Now().Round(0)))
	return nil
}

func (r *Referenced) add(ctx context.Context, s sample, drift time.Duration) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.drift = drift
	if drift.Abs() > DriftWarn {
		r.warn(ctx, "host clock and database clock differ", slog.Duration("drift", drift))
	}
	if r.started {
		if step := s.offset - r.offset; step.Abs() > maxStep {
			if drift.Abs() > maxStep {
				// Host and monotonic clock agree with the old offset, the database does not: its clock was
				// stepped, or it is another host's by now.
				r.warn(ctx, "database clock stepped and is not followed until the host clock agrees", slog.Duration("step", step))
				r.refused = step
				return
			}
			// Database and host agree, and the monotonic clock stood still (a host that slept) or both were
			// set right. Creeping there would take hours.
			r.warn(ctx, "ax time stepped with the clocks of database and host", slog.Duration("step", step))
			r.offset, r.samples = s.offset, r.samples[:0]
			r.steps++
		}
	}
	r.refused = 0
	r.samples = append(r.samples, s)
	if len(r.samples) > keep {
		r.samples = r.samples[1:]
	}
	best := r.samples[0]
	for _, c := range r.samples {
		if c.rtt < best.rtt {
			best = c
		}
	}
	if r.started {
		r.offset += min(max(best.offset-r.offset, -slew), slew)
	} else {
		r.offset = s.offset
	}
	r.started = true
}

// warn logs, but one thing not more often than every thirty seconds.
func (r *Referenced) warn(ctx context.Context, what string, value slog.Attr) {
	at := time.Since(r.base)
	if last, ok := r.warned[what]; ok && at-last < warnEvery {
		return
	}
	r.warned[what] = at
	r.log.WarnContext(ctx, what, value) //nolint:sloglint // one of three constants
}

// Manual is a clock that tests turn.
type Manual struct {
	mu sync.Mutex
	at time.Time
}

// NewManual makes a clock that stands at at.
func NewManual(at time.Time) *Manual { return &Manual{at: at} }

// Now is where the clock stands.
func (m *Manual) Now() time.Time {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.at
}

// Advance turns the clock by d, which may be negative.
func (m *Manual) Advance(d time.Duration) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.at = m.at.Add(d)
}

// Set turns the clock to at.
func (m *Manual) Set(at time.Time) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.at = at
}
