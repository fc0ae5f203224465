// Package auth knows who somebody is and what he may do.
//
// People log in with a password and hold two tokens: a short access token that says only
// who they are, and a refresh token that is used once. What they may do is not in a token:
// it is read from a snapshot of roles and memberships, which every server renews within
// two seconds of a change. Routes name the permission they ask for; package store keeps
// the rows, and package seal the keys that sign.
package auth

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/casbin/casbin/v2"

	"github.com/ax-scheduler/ax/internal/clock"
	"github.com/ax-scheduler/ax/internal/metric"
	"github.com/ax-scheduler/ax/internal/seal"
	"github.com/ax-scheduler/ax/internal/store"
)

// Errors that callers tell apart.
var (
	// ErrCredentials: no such user, wrong password, or suspended; which one is not told.
	ErrCredentials = errors.New("name or password is wrong")
	// ErrBusy: too many passwords are being checked at once; try again in a few seconds.
	ErrBusy = errors.New("too many logins at once")
	// ErrToken: the token is not ours, damaged, expired, used up or revoked.
	ErrToken = errors.New("token is not valid")
	// ErrSetupDone: there is a user already, so setup is over.
	ErrSetupDone = errors.New("setup is done already")
)

// ThrottledError refuses a login because of failures before it. To the outside it reads as
// ErrCredentials does; only RetryAfter differs.
type ThrottledError struct {
	// RetryAfter is how long to wait; at least a second, at most 15 minutes.
	RetryAfter time.Duration
}

// Error is the sentence of ErrCredentials.
func (e *ThrottledError) Error() string { return ErrCredentials.Error() }

// Is makes a ThrottledError an ErrCredentials to whoever does not look closer.
func (e *ThrottledError) Is(target error) bool { return target == ErrCredentials }

// Principal is somebody who proved who he is.
type Principal struct {
	UserID      int64
	Name        string
	DisplayName string
	// AuthVersion is raised when the user logs out, is suspended or changes his password. A
	// Principal of an older version has no rights.
	AuthVersion int64
	// Session names the login that the token descends from; "" outside a session.
	Session string
	// TokenID names the token of a program; 0 for a person. A program has the rights of its token and no others.
	TokenID int64
}

// Config is what Auth works with. All fields are needed.
type Config struct {
	Store   *store.Store
	Sealer  *seal.Sealer
	Clock   clock.Clock
	Metrics *metric.Metrics
	Log     *slog.Logger
}

// Auth answers who somebody is and what he may do. It is safe for concurrent use.
type Auth struct {
	store   *store.Store
	sealer  *seal.Sealer
	clock   clock.Clock
	metrics *metric.Metrics
	log     *slog.Logger
	// elapsed is monotonic: how old a snapshot is has nothing to do with the time of day.
	elapsed func() time.Duration

	keys     atomic.Pointer[keys]
	snapshot atomic.Pointer[snapshot]
	checked  atomic.Int64 // elapsed when the snapshot was last known to be current

	loading  sync.Mutex // guards the fields below
	adapter  *adapter
	enforcer *casbin.Enforcer
	failing  bool

	failures sampler
	denials  sampler
}

// New makes an Auth. Load must succeed before anybody can log in.
func New(c Config) *Auth {
	start := time.Now()
	return &Auth{
		store: c.Store, sealer: c.Sealer, clock: c.Clock, metrics: c.Metrics, log: c.Log, elapsed: func() time.Duration { return time.Since(start) },
		failures: sampler{action: "login.failure", outcome: outcomeFailure, most: auditedFailures}, denials: sampler{action: "denied", outcome: outcomeDenied, most: auditedDenials},
	}
}

// Load reads the keys that sign tokens, making them on a new database, and the first snapshot
// of rights. Two servers that start at once use the same keys.
func (a *Auth) Load(ctx context.Context) error {
	k, err := loadKeys(ctx, a.store, a.sealer)
	if err != nil {
		return err
	}
	a.keys.Store(k)
	return a.Sync(ctx)
}

// Run looks each second whether rights changed, and sweeps what logins left behind, until ctx
// ends. While the database can not be read, the old rights stay in force; see Fresh.
func (a *Auth) Run(ctx context.Context) error {
	tick := time.NewTicker(pollEvery)
	defer tick.Stop()
	var swept time.Duration
	for {
		select {
		case <-ctx.Done():
			// What was not yet told is told now, although ctx has ended.
			last, cancel := context.WithTimeout(context.WithoutCancel(ctx), settleTimeout)
			defer cancel()
			a.tellSuppressed(last, true)
			return nil
		case <-tick.C:
		}
		_ = a.Sync(ctx) // Sync logs; the next tick tries again
		a.tellSuppressed(ctx, false)
		if now := a.elapsed(); now-swept > sweepEvery {
			swept = now
			if err := a.store.SweepThrottle(ctx, clock.Millis(a.clock)-throttleKeep.Milliseconds(), knownBucket, clock.Millis(a.clock)-knownKeep.Milliseconds()); err != nil && ctx.Err() == nil {
				a.log.WarnContext(ctx, "login throttle not swept", slog.String("err", err.Error()))
			}
		}
	}
}

// Sync makes the snapshot as new as the database is now. It costs one small read when nothing
// changed. When it fails the old snapshot stays. Call it after a change of users or members,
// and before acts that must not happen on rights of a second ago.
func (a *Auth) Sync(ctx context.Context) error {
	a.loading.Lock()
	defer a.loading.Unlock()
	err := a.sync(ctx)
	switch {
	case err != nil && ctx.Err() == nil && !a.failing:
		a.failing = true
		a.log.ErrorContext(ctx, "rights not read, the old ones stay in force", slog.String("err", err.Error()))
	case err == nil && a.failing:
		a.failing = false
		a.log.InfoContext(ctx, "rights read again")
	}
	return err
}

func (a *Auth) sync(ctx context.Context) error {
	// The age counts from before the read, so that a slow answer is not taken for a new one.
	at := a.elapsed()
	// The version is read before the rows: a change in between is loaded twice, and never missed.
	version, err := a.store.AuthzVersion(ctx)
	if err != nil {
		return fmt.Errorf("read authorisation version: %w", err)
	}
	if old := a.snapshot.Load(); old != nil && old.version == version {
		a.checked.Store(int64(at))
		return nil
	}
	users, err := a.store.Users(ctx)
	if err != nil {
		return fmt.Errorf("read users: %w", err)
	}
	members, err := a.store.Members(ctx)
	if err != nil {
		return fmt.Errorf("read members: %w", err)
	}
	rows, odd := groupings(users, members)
	if odd > 0 {
		a.log.WarnContext(ctx, "roles that do not exist give no rights", slog.Int("rows", odd))
	}
	if a.enforcer == nil {
		a.adapter = &adapter{rows: rows}
		if a.enforcer, err = newEnforcer(a.adapter); err != nil {
			a.enforcer = nil
			return err
		}
	} else {
		a.adapter.rows = rows
		if err := a.enforcer.LoadPolicy(); err != nil {
			return fmt.Errorf("load policy: %w", err)
		}
	}
	next, err := newSnapshot(a.enforcer, users, version)
	if err != nil {
		return err
	}
	tokens, err := a.store.Tokens(ctx, 0)
	if err != nil {
		return fmt.Errorf("read tokens: %w", err)
	}
	next.programs = newPrograms(tokens)
	a.snapshot.Store(next)
	a.checked.Store(int64(at))
	return nil
}

// age is how long ago the snapshot was known to be current.
func (a *Auth) age() time.Duration { return a.elapsed() - time.Duration(a.checked.Load()) }

// Fresh tells whether the snapshot was current within the last 30 s. A server that is not
// fresh is not ready and must refuse changes.
func (a *Auth) Fresh() bool { return a.snapshot.Load() != nil && a.age() <= freshFor }

// newID is 128 bits of chance in hex.
func newID() string {
	var b [16]byte
	_, _ = rand.Read(b[:])
	return hex.EncodeToString(b[:])
}
