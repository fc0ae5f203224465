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
	// slew bounds how fast the offset follows: 1 ms a sample keeps ax time from jumping.
	slew = 50 * time.Millisecond
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
}

type sample struct {
	offset, rtt time.Duration
}

// New makes a clock that follows source. Until the first sample it is the host's.
func New(source func(ctx context.Context) (time.Time, error), log *slog.Logger) *Referenced {
	return &Referenced{source: source, log: log, base: time.Now()}
}

// Now is ax time.
func (r *Referenced) Now() time.Time {
	// time.Since uses the monotonic reading: a step of the host's clock does not move ax time.
	elapsed := time.Since(r.base)
	r.mu.RLock()
	defer r.mu.RUnlock()
	return r.base.Round(0).Add(elapsed + r.offset)
}

// Drift is how far the database's clock is ahead of the host's, and the size of a step of the
// database's clock that is not being followed (0 = none).
func (r *Referenced) Drift() (drift, refused time.Duration) {
	r.mu.RLock()
	defer r.mu.RUnlock()
	return r.drift, r.refused
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
	if r.started {
		// Host and monotonic clock agree with the old offset, the database does not: its clock
		// was stepped. A large step is followed only when the host's clock says the same.
		if step := s.offset - r.offset; step.Abs() > maxStep && drift.Abs() > maxStep {
			if r.refused == 0 {
				r.log.WarnContext(ctx, "database clock stepped and is not followed until the host clock agrees", slog.Duration("step", step))
			}
			r.refused = step
			return
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
	switch {
	case !r.started:
		r.offset = s.offset
	default:
		r.offset += min(max(best.offset-r.offset, -slew), slew)
	}
	r.started = true
	if drift.Abs() > DriftWarn {
		r.log.WarnContext(ctx, "host clock and database clock differ", slog.Duration("drift", drift))
	}
	r.drift = drift
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
