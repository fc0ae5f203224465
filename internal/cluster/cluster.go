// Package cluster knows which buckets this replica owns: it announces the replica, takes
// buckets that are free and gives them back.
//
// Owning is a belief; the proof is the fence that every scheduling transaction checks.
// Whoever meets store.ErrFenced calls Lost.
package cluster

import (
	"context"
	"errors"
	"log/slog"
	"sort"
	"sync"
	"time"

	"github.com/ax-scheduler/ax/internal/store"
)

// Timing of the replica's liveness (database time).
const (
	TTL        = 3 * time.Second
	renewEvery = 500 * time.Millisecond
	lookEvery  = 250 * time.Millisecond
	// takeUpLimit bounds the reading of one bucket's open executions.
	takeUpLimit = time.Minute
	// trust is the part of TTL for which the holder believes in its own renewal.
	trust = TTL * 8 / 10
)

// Cluster is this replica's view. It is safe for concurrent use.
type Cluster struct {
	store   *store.Store
	replica store.Replica
	log     *slog.Logger
	// taken is called with each new fence before the bucket counts as owned.
	taken func(ctx context.Context, f store.Fence) error
	// gone is called when a bucket is not owned any more.
	gone func(f store.Fence)

	mu       sync.RWMutex
	owned    map[int]store.Fence
	pending  map[int]store.Fence      // taken in the database, not yet taken up
	since    [store.Buckets]time.Time // when each owned bucket was taken up last
	renewed  time.Time                // monotonic reading before the last good renewal was sent
	draining bool
	settled  bool // everything that was free has been taken up once
}

// Settled tells whether this replica has taken up, since it started, whatever was free.
func (c *Cluster) Settled() bool {
	c.mu.RLock()
	defer c.mu.RUnlock()
	return c.settled
}

// New makes a cluster view. taken takes up a bucket (loads what is open in it) and gone
// lets go of it; both are called from Run.
func New(s *store.Store, r store.Replica, log *slog.Logger, taken func(ctx context.Context, f store.Fence) error, gone func(f store.Fence)) *Cluster {
	return &Cluster{store: s, replica: r, log: log, taken: taken, gone: gone, owned: map[int]store.Fence{}, pending: map[int]store.Fence{}}
}

// Owned lists the fences of the buckets that this replica may act for, by bucket. It is empty
// while the replica can not renew its liveness.
func (c *Cluster) Owned() []store.Fence {
	c.mu.RLock()
	defer c.mu.RUnlock()
	if time.Since(c.renewed) > trust {
		return nil
	}
	out := make([]store.Fence, 0, len(c.owned))
	for _, f := range c.owned {
		out = append(out, f)
	}
	sort.Slice(out, func(i, j int) bool { return out[i].Bucket < out[j].Bucket })
	return out
}

// Fence returns the fence of a bucket; ok is false when this replica does not own it.
func (c *Cluster) Fence(bucket int) (f store.Fence, ok bool) {
	c.mu.RLock()
	defer c.mu.RUnlock()
	if time.Since(c.renewed) > trust {
		return f, false
	}
	f, ok = c.owned[bucket]
	return f, ok
}

// awaitFor is how long Await waits: a server that starts again after a crash owns its
// buckets once the old owner's liveness has expired.
const awaitFor = TTL + time.Second

// Await returns the fence of a bucket like Fence, and waits a little for this replica to become its
// owner, so that a person's change right after a start is not refused.
func (c *Cluster) Await(ctx context.Context, bucket int) (f store.Fence, ok bool) {
	if f, ok = c.Fence(bucket); ok {
		return f, ok
	}
	ctx, cancel := context.WithTimeout(ctx, awaitFor)
	defer cancel()
	tick := time.NewTicker(lookEvery / 5)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return c.Fence(bucket)
		case <-tick.C:
			if f, ok = c.Fence(bucket); ok {
				return f, ok
			}
		}
	}
}

// Lost lets a bucket go whose fence was refused by the database.
func (c *Cluster) Lost(f store.Fence) {
	c.mu.Lock()
	held, ok := c.owned[f.Bucket]
	if ok && held.Epoch == f.Epoch {
		delete(c.owned, f.Bucket)
	} else {
		ok = false
	}
	c.mu.Unlock()
	if ok {
		c.log.Warn("bucket lost", slog.Int("bucket", f.Bucket), slog.Int64("epoch", f.Epoch))
		c.gone(f)
	}
}

// Run announces and takes until ctx ends; then it gives everything back. Announcing has a
// loop of its own: taking up a large bucket must not cost the liveness.
func (c *Cluster) Run(ctx context.Context) error {
	var loops sync.WaitGroup
	loops.Go(func() { c.every(ctx, renewEvery, "announcing failed", c.Renew) })
	loops.Go(func() {
		c.every(ctx, lookEvery, "looking after buckets failed", func(ctx context.Context) error {
			_, err := c.RunOnce(ctx, false)
			return err
		})
	})
	loops.Wait()
	return c.leave(context.WithoutCancel(ctx))
}

func (c *Cluster) every(ctx context.Context, wait time.Duration, failed string, do func(context.Context) error) {
	tick := time.NewTicker(wait)
	defer tick.Stop()
	for {
		if err := do(ctx); err != nil && ctx.Err() == nil && !errors.Is(err, store.ErrUnavailable) {
			c.log.ErrorContext(ctx, failed, slog.String("err", err.Error())) //nolint:sloglint // one of two constants
		}
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
	}
}

// Renew announces this replica once.
func (c *Cluster) Renew(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, TTL)
	defer cancel()
	before := time.Now()
	if err := c.store.Announce(ctx, c.replica, TTL); err != nil {
		return err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.renewed.IsZero() && time.Since(c.renewed) > trust {
		// For a while nothing could be acted for, and what came in then was dropped: everything is
		// read again.
		for _, f := range c.owned {
			c.again(f)
		}
	}
	c.renewed = before
	return nil
}

// RunOnce announces this replica (when renew is set), takes what is free and takes it up. It returns how
// many buckets are owned afterwards.
func (c *Cluster) RunOnce(ctx context.Context, renew bool) (int, error) {
	if renew {
		if err := c.Renew(ctx); err != nil {
			return len(c.Owned()), err
		}
	}
	c.mu.RLock()
	all := len(c.owned)+len(c.pending) == store.Buckets
	// Before the first announcement nobody could tell that this replica lives.
	idle := c.draining || c.renewed.IsZero()
	c.mu.RUnlock()
	if idle {
		return 0, nil
	}
	if !all {
		limited, cancel := context.WithTimeout(ctx, TTL)
		fences, err := c.store.TakeFree(limited, c.replica.ID)
		cancel()
		c.mu.Lock()
		for _, f := range fences {
			c.pending[f.Bucket] = f
		}
		c.mu.Unlock()
		if err != nil {
			return len(c.Owned()), err
		}
	}
	err := c.takeUp(ctx)
	return len(c.Owned()), err
}

// takeUp loads what is open in each bucket that was taken. A bucket that can not be
// loaded stays pending and is tried again: it is not acted for before that.
func (c *Cluster) takeUp(ctx context.Context) error {
	c.mu.RLock()
	list := make([]store.Fence, 0, len(c.pending))
	for _, f := range c.pending {
		list = append(list, f)
	}
	c.mu.RUnlock()
	sort.Slice(list, func(i, j int) bool { return list[i].Bucket < list[j].Bucket })
	for _, f := range list {
		limited, cancel := context.WithTimeout(ctx, takeUpLimit)
		err := c.taken(limited, f)
		cancel()
		if errors.Is(err, store.ErrFenced) {
			c.mu.Lock()
			delete(c.pending, f.Bucket)
			c.mu.Unlock()
			continue
		}
		if err != nil {
			return err
		}
		c.mu.Lock()
		delete(c.pending, f.Bucket)
		c.owned[f.Bucket], c.since[f.Bucket] = f, time.Now()
		c.mu.Unlock()
	}
	if len(list) > 0 {
		c.log.InfoContext(ctx, "buckets taken", slog.Int("count", len(list)))
	}
	c.mu.Lock()
	c.settled = true
	c.mu.Unlock()
	return nil
}

// leave gives every bucket back and removes the replica.
func (c *Cluster) leave(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, TTL)
	defer cancel()
	c.mu.Lock()
	c.draining = true
	owned := c.owned
	c.owned = map[int]store.Fence{}
	c.mu.Unlock()
	var errs error
	for _, f := range owned {
		c.gone(f)
		errs = errors.Join(errs, c.store.Release(ctx, f))
	}
	return errors.Join(errs, c.store.Leave(ctx, c.replica.ID))
}

// Reload makes this replica read a bucket again before it acts for it: a transaction
// ended in a way that leaves open what the database holds.
func (c *Cluster) Reload(f store.Fence) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if held, ok := c.owned[f.Bucket]; ok && held.Epoch == f.Epoch {
		c.again(held)
	}
}

// again makes an owned bucket one that is to be read.
func (c *Cluster) again(f store.Fence) {
	delete(c.owned, f.Bucket)
	f.Round++
	c.pending[f.Bucket] = f
}

// HeldFor is how long this replica has owned a bucket since it read its rows; 0 when it does not.
func (c *Cluster) HeldFor(bucket int) time.Duration {
	c.mu.RLock()
	defer c.mu.RUnlock()
	if _, ok := c.owned[bucket]; !ok {
		return 0
	}
	return time.Since(c.since[bucket])
}
