// Package cluster knows which buckets this replica owns, and where the others are: it announces the
// replica, takes buckets that are free, hands over what is more than its share, and gives everything back.
//
// Owning is a belief; the proof is the fence that every scheduling transaction checks.
// Whoever meets store.ErrFenced calls Lost. Which bucket belongs where is decided in plan.go; how a dead
// replica is noticed before its liveness expires, in watch.go.
package cluster

import (
	"context"
	"errors"
	"log/slog"
	"sort"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"

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
	// atOnce is how many buckets are taken up, or handed over, at a time.
	atOnce = 4
	// perLook is how many buckets are handed over before this replica looks again.
	perLook = 8
	// handOverLimit bounds how long a bucket that is handed over waits for what is in hand.
	handOverLimit = 500 * time.Millisecond
	// leaveLimit bounds the handing over of everything when this replica stops.
	leaveLimit = 15 * time.Second
)

// Config is what a Cluster needs. The functions are called from Run.
type Config struct {
	Store   *store.Store
	Replica store.Replica
	Log     *slog.Logger
	// Taken takes a bucket up: it loads what is open in it. It is called before the bucket counts as owned.
	Taken func(ctx context.Context, f store.Fence) error
	// Drained waits, until ctx ends, for what is in hand of a bucket that is handed over: nothing new is begun.
	Drained func(ctx context.Context, f store.Fence)
	// Gone is called when a bucket is not owned any more.
	Gone func(f store.Fence)
	// Moved tells another replica that it owns something new; nil = it finds out by itself.
	Moved func(p store.Peer)
}

// Cluster is this replica's view. It is safe for concurrent use.
type Cluster struct {
	Config
	wake chan struct{}

	mu      sync.RWMutex
	owned   map[int]store.Fence
	pending map[int]store.Fence      // taken in the database, not yet taken up
	closing map[int]bool             // owned, and about to be handed over: nothing new is begun
	past    [store.Buckets]int64     // the last epoch of each bucket that is certainly over for this replica
	since   [store.Buckets]time.Time // when each owned bucket was taken up last
	renewed time.Time                // monotonic reading before the last good renewal was sent
	dropped []store.Fence            // not owned any more, and still in memory
	settled bool                     // everything that was free has been taken up once
	view    store.Membership
	viewAt  time.Time
}

// New makes a cluster view.
func New(c Config) *Cluster {
	if c.Drained == nil {
		c.Drained = func(context.Context, store.Fence) {}
	}
	if c.Moved == nil {
		c.Moved = func(store.Peer) {}
	}
	return &Cluster{Config: c, wake: make(chan struct{}, 1), owned: map[int]store.Fence{}, pending: map[int]store.Fence{}, closing: map[int]bool{}}
}

// Self is this replica.
func (c *Cluster) Self() store.Replica { return c.Replica }

// Settled tells whether this replica has, since it started, looked at the buckets once and taken up what it took.
func (c *Cluster) Settled() bool {
	c.mu.RLock()
	defer c.mu.RUnlock()
	return c.settled
}

// View is who lived and who owned what when this replica looked last, and when that was.
func (c *Cluster) View() (store.Membership, time.Time) {
	c.mu.RLock()
	defer c.mu.RUnlock()
	return c.view, c.viewAt
}

// Owned lists the fences of the buckets in which this replica may begin something, by bucket. It is empty
// while the replica can not renew its liveness, and without those that are being handed over.
func (c *Cluster) Owned() []store.Fence {
	c.mu.RLock()
	defer c.mu.RUnlock()
	if c.stale() {
		return nil
	}
	out := make([]store.Fence, 0, len(c.owned))
	for _, f := range c.owned {
		if !c.closing[f.Bucket] {
			out = append(out, f)
		}
	}
	sort.Slice(out, func(i, j int) bool { return out[i].Bucket < out[j].Bucket })
	return out
}

// stale tells whether this replica has not renewed its liveness for so long that another may have taken over.
func (c *Cluster) stale() bool { return doubts && time.Since(c.renewed) > trust }

// Fence returns the fence of a bucket; ok is false when this replica does not own it. A bucket that is
// being handed over still has one: what was begun is finished.
func (c *Cluster) Fence(bucket int) (f store.Fence, ok bool) {
	c.mu.RLock()
	defer c.mu.RUnlock()
	if c.stale() {
		return f, false
	}
	f, ok = c.owned[bucket]
	return f, ok
}

// Leads tells whether this replica may begin something in a bucket: it owns it and is not handing it over.
func (c *Cluster) Leads(bucket int) bool {
	c.mu.RLock()
	defer c.mu.RUnlock()
	_, ok := c.owned[bucket]
	return ok && !c.closing[bucket] && !c.stale()
}

// Alone tells whether this replica held a bucket when it looked last, and knew of no other that lives: whatever
// the database is doing now, nobody else has taken it.
func (c *Cluster) Alone(bucket int) bool {
	c.mu.RLock()
	defer c.mu.RUnlock()
	for _, p := range c.view.Peers {
		if p.Alive && p.ID != c.Replica.ID {
			return false
		}
	}
	_, ok := c.owned[bucket]
	return ok && !c.closing[bucket]
}

// awaitFor is how long Await waits: a server that starts again after a crash owns its
// buckets once the old owner's liveness has expired.
const awaitFor = TTL + time.Second

// Await returns the fence of a bucket like Fence, and waits a little for this replica to become its
// owner, so that a person's change right after a start is not refused.
func (c *Cluster) Await(ctx context.Context, bucket int) (f store.Fence, ok bool) {
	c.until(ctx, func() bool {
		f, ok = c.Fence(bucket)
		return ok || c.gave(bucket)
	})
	return f, ok
}

// gave tells whether this replica has handed a bucket to one that lives: it will not get it back soon.
func (c *Cluster) gave(bucket int) bool {
	c.mu.RLock()
	defer c.mu.RUnlock()
	if c.past[bucket] == 0 || len(c.view.Leases) <= bucket {
		return false
	}
	owner := c.view.Leases[bucket].Owner
	return owner != c.Replica.ID && c.view.Alive(owner)
}

// Leader finds who acts for a bucket: this replica (self), or a peer that lives, as it is known now. It waits a
// little while nobody does. ok is false when nobody was found.
func (c *Cluster) Leader(ctx context.Context, bucket int) (peer store.Peer, self, ok bool) {
	c.until(ctx, func() bool {
		if c.Leads(bucket) {
			self, ok = true, true
			return true
		}
		peer, ok = c.peerOf(bucket)
		return ok
	})
	return peer, self, ok
}

// peerOf is the other replica that owns a bucket, if it lives.
func (c *Cluster) peerOf(bucket int) (store.Peer, bool) {
	c.mu.RLock()
	defer c.mu.RUnlock()
	if len(c.view.Leases) <= bucket {
		return store.Peer{}, false
	}
	p, ok := c.view.Peer(c.view.Leases[bucket].Owner)
	return p, ok && p.Alive && p.ID != c.Replica.ID
}

// until waits for done, for at most awaitFor.
func (c *Cluster) until(ctx context.Context, done func() bool) {
	if done() {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, awaitFor)
	defer cancel()
	const every = 25 * time.Millisecond
	tick := time.NewTicker(every)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
			if done() {
				return
			}
		}
	}
}

// Lost lets a bucket go whose fence was refused by the database. The next look clears it from memory.
func (c *Cluster) Lost(f store.Fence) {
	c.mu.Lock()
	held, ok := c.owned[f.Bucket]
	if ok = ok && held.Epoch == f.Epoch; ok {
		delete(c.owned, f.Bucket)
		c.past[f.Bucket] = max(c.past[f.Bucket], f.Epoch)
		c.dropped = append(c.dropped, f)
	}
	c.mu.Unlock()
	if ok {
		c.Log.Warn("bucket lost", slog.Int("bucket", f.Bucket), slog.Int64("epoch", f.Epoch))
		c.Nudge()
	}
}

// forget clears from memory what is not owned any more. Only RunOnce calls it, which also takes up: what was
// taken up anew meanwhile would be cleared otherwise.
func (c *Cluster) forget() {
	c.mu.Lock()
	list := c.dropped
	c.dropped = nil
	c.mu.Unlock()
	for _, f := range list {
		c.Gone(f)
	}
}

// Nudge makes this replica look now.
func (c *Cluster) Nudge() {
	select {
	case c.wake <- struct{}{}:
	default:
	}
}

// Run announces, watches and takes until ctx ends; then it gives back what is left. Announcing has a
// loop of its own: taking up a large bucket must not cost the liveness.
func (c *Cluster) Run(ctx context.Context) error {
	// Its lock is held until it has left: whoever gets it before that would take it for dead.
	watching, unwatch := context.WithCancel(context.WithoutCancel(ctx))
	var watch, loops sync.WaitGroup
	watch.Go(func() { c.watch(watching) })
	loops.Go(func() { c.every(ctx, renewEvery, "announcing failed", nil, c.Renew) })
	loops.Go(func() {
		c.every(ctx, lookEvery, "looking after buckets failed", c.wake, func(ctx context.Context) error {
			_, err := c.RunOnce(ctx, false)
			return err
		})
	})
	loops.Wait()
	if err := c.release(context.WithoutCancel(ctx)); err != nil {
		// Nothing is lost by it: the others take over when the liveness has expired.
		c.Log.WarnContext(ctx, "buckets not given back", slog.String("err", err.Error()))
	}
	unwatch()
	watch.Wait()
	return nil
}

func (c *Cluster) every(ctx context.Context, wait time.Duration, failed string, wake <-chan struct{}, do func(context.Context) error) {
	tick := time.NewTicker(wait)
	defer tick.Stop()
	told := ""
	for {
		err := do(ctx)
		switch {
		case err == nil:
			told = ""
		case ctx.Err() == nil && !errors.Is(err, store.ErrUnavailable) && told != err.Error():
			told = err.Error()
			c.Log.ErrorContext(ctx, failed, slog.String("err", told)) //nolint:sloglint // one of two constants
		}
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		case <-wake:
		}
	}
}

// Renew announces this replica once.
func (c *Cluster) Renew(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, TTL)
	defer cancel()
	before := time.Now()
	if err := c.Store.Announce(ctx, c.Replica, TTL); err != nil {
		return err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.renewed.IsZero() && c.stale() {
		// For a while nothing could be acted for, and what came in then was dropped: everything is
		// read again.
		for _, f := range c.owned {
			c.again(f)
		}
	}
	c.renewed = before
	return nil
}

// RunOnce announces this replica (when renew is set), looks who owns what, takes what is free and belongs
// here, takes it up, and hands over what belongs elsewhere. It returns how many buckets are owned afterwards.
func (c *Cluster) RunOnce(ctx context.Context, renew bool) (int, error) {
	if renew {
		if err := c.Renew(ctx); err != nil {
			return len(c.Owned()), err
		}
	}
	c.mu.RLock()
	// Before the first announcement nobody could tell that this replica lives.
	unknown := c.renewed.IsZero()
	c.mu.RUnlock()
	if unknown {
		return 0, nil
	}
	limited, cancel := context.WithTimeout(ctx, TTL)
	defer cancel()
	m, err := c.look(limited)
	c.forget()
	if err != nil {
		return len(c.Owned()), err
	}
	want := plan(m)
	var free []int
	for _, l := range m.Leases {
		if want[l.Bucket] == c.Replica.ID && l.Owner != c.Replica.ID && !m.Alive(l.Owner) {
			free = append(free, l.Bucket)
		}
	}
	if len(free) > 0 {
		fences, err := c.Store.TakeFree(limited, c.Replica.ID, free...)
		c.mu.Lock()
		for _, f := range fences {
			c.adopt(f)
		}
		c.mu.Unlock()
		if err != nil {
			// What was taken although the answer was lost shows at the next look.
			return len(c.Owned()), err
		}
	}
	err = c.takeUp(ctx)
	c.handOver(ctx, m, want)
	return len(c.Owned()), err
}

// look reads the membership, takes note of it, and brings what this replica believes in line with it.
func (c *Cluster) look(ctx context.Context) (store.Membership, error) {
	m, err := c.Store.Membership(ctx)
	if err != nil {
		return m, err
	}
	var lost []store.Fence
	c.mu.Lock()
	c.view, c.viewAt = m, time.Now()
	for _, l := range m.Leases {
		held, ok := c.owned[l.Bucket]
		if !ok {
			held, ok = c.pending[l.Bucket]
		}
		switch mine := l.Owner == c.Replica.ID; {
		case doubts && ok && (l.Epoch > held.Epoch || l.Epoch == held.Epoch && !mine):
			// Somebody else took it: better to know now than at the next write.
			if _, owned := c.owned[l.Bucket]; owned {
				lost = append(lost, held)
			}
			delete(c.pending, l.Bucket)
			if mine {
				c.past[l.Bucket] = max(c.past[l.Bucket], held.Epoch)
			}
		case !ok && mine && l.Epoch > c.past[l.Bucket]:
			// Handed over by another replica, or taken by a transaction whose answer was lost.
			c.adopt(store.Fence{Bucket: l.Bucket, Owner: c.Replica.ID, Epoch: l.Epoch})
		}
	}
	c.mu.Unlock()
	for _, f := range lost {
		c.Lost(f)
	}
	return m, nil
}

// adopt takes note of a bucket that the database says is this replica's.
func (c *Cluster) adopt(f store.Fence) {
	if f.Epoch > c.past[f.Bucket] {
		c.pending[f.Bucket] = f
	}
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
	var group errgroup.Group
	group.SetLimit(atOnce)
	for _, f := range list {
		group.Go(func() error {
			limited, cancel := context.WithTimeout(ctx, takeUpLimit)
			defer cancel()
			err := c.Taken(limited, f)
			c.mu.Lock()
			defer c.mu.Unlock()
			switch {
			case errors.Is(err, store.ErrFenced):
				delete(c.pending, f.Bucket)
				return nil
			case err != nil:
				return err
			case c.pending[f.Bucket] == f:
				delete(c.pending, f.Bucket)
				c.owned[f.Bucket], c.since[f.Bucket] = f, time.Now()
			}
			return nil
		})
	}
	if err := group.Wait(); err != nil {
		return err
	}
	if len(list) > 0 {
		c.Log.InfoContext(ctx, "buckets taken", slog.Int("count", len(list)))
	}
	c.mu.Lock()
	c.settled = true
	c.mu.Unlock()
	return nil
}

// handOver gives the buckets away that want says belong to another replica that lives, a few at a time.
func (c *Cluster) handOver(ctx context.Context, m store.Membership, want map[int]string) {
	me, _ := m.Peer(c.Replica.ID)
	var given atomic.Int64
	var group errgroup.Group
	group.SetLimit(atOnce)
	begun := 0
	for _, l := range m.Leases {
		to, ok := m.Peer(want[l.Bucket])
		if !ok || to.ID == c.Replica.ID || !to.Alive {
			continue
		}
		if begun == perLook {
			c.Nudge() // what died meanwhile must not wait for the rest
			break
		}
		c.mu.Lock()
		f, owned := c.owned[l.Bucket]
		if owned = owned && f.Epoch == l.Epoch && !c.stale(); owned {
			c.closing[l.Bucket] = true
		}
		c.mu.Unlock()
		if !owned {
			continue
		}
		begun++
		reason := store.MoveBalance
		switch {
		case me.Draining != store.NotDraining:
			reason = store.MoveDrain
		case l.PinnedTo == to.ID:
			reason = store.MoveAsked
		}
		group.Go(func() error {
			if c.giveOne(ctx, f, to.ID, reason) {
				given.Add(1)
				c.Moved(to)
			}
			return nil
		})
	}
	_ = group.Wait()
	if n := given.Load(); n > 0 {
		c.Log.InfoContext(ctx, "buckets handed over", slog.Int64("count", n))
	}
}

// giveOne hands one bucket over: what is in hand is finished, then the database says whose it is, and then
// it is forgotten here. Between the first and the last nothing is begun in it by anybody.
func (c *Cluster) giveOne(ctx context.Context, f store.Fence, to, reason string) bool {
	limited, cancel := context.WithTimeout(ctx, handOverLimit)
	c.Drained(limited, f)
	cancel()
	limited, cancel = context.WithTimeout(context.WithoutCancel(ctx), TTL)
	defer cancel()
	err := c.Store.HandOver(limited, f, to, reason)
	c.mu.Lock()
	delete(c.closing, f.Bucket)
	held, ok := c.owned[f.Bucket]
	ok = ok && held.Epoch == f.Epoch
	if err != nil && !errors.Is(err, store.ErrFenced) {
		// Whether it was written is not known: it is not acted for until the next look tells.
		if ok {
			c.again(held)
		}
		c.mu.Unlock()
		return false
	}
	if ok {
		delete(c.owned, f.Bucket)
	}
	c.past[f.Bucket] = max(c.past[f.Bucket], f.Epoch)
	if err == nil && len(c.view.Leases) > f.Bucket {
		leases := append([]store.Lease(nil), c.view.Leases...)
		leases[f.Bucket].Owner, leases[f.Bucket].Epoch = to, f.Epoch+1
		c.view.Leases = leases
	}
	c.mu.Unlock()
	if ok {
		c.Gone(f)
	}
	return err == nil
}

// Drain hands everything over to the others before this replica stops. It returns when nothing is left,
// when there is nobody to take it, or after a while.
func (c *Cluster) Drain(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, leaveLimit)
	defer cancel()
	if err := c.Store.SetDraining(ctx, c.Replica.ID, store.Leaving, nil); err != nil {
		c.Log.WarnContext(ctx, "leaving could not be announced", slog.String("err", err.Error()))
		return
	}
	tick := time.NewTicker(lookEvery / 10)
	defer tick.Stop()
	for {
		m, _ := c.View()
		self, _ := m.Peer(c.Replica.ID)
		if self.Draining == store.Leaving {
			others := false
			for _, p := range m.Peers {
				others = others || p.Alive && p.ID != c.Replica.ID && p.Draining != store.Leaving
			}
			c.mu.RLock()
			left := len(c.owned) + len(c.pending)
			c.mu.RUnlock()
			if left == 0 || !others {
				return
			}
		}
		c.Nudge()
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
	}
}

// release gives back what is left and removes the replica.
func (c *Cluster) release(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, TTL)
	defer cancel()
	c.mu.Lock()
	owned := c.owned
	c.owned = map[int]store.Fence{}
	m := c.view
	c.mu.Unlock()
	var err error
	for _, f := range owned {
		c.Gone(f)
		if err == nil {
			err = c.Store.Release(ctx, f)
		}
	}
	if err == nil {
		err = c.Store.Leave(ctx, c.Replica.ID)
	}
	if err == nil && len(owned) > 0 {
		for _, p := range m.Peers {
			if p.Alive && p.ID != c.Replica.ID {
				c.Moved(p)
			}
		}
	}
	return err
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
