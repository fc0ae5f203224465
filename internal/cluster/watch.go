package cluster

import (
	"context"
	"errors"
	"log/slog"
	"math"
	"slices"
	"sync"
	"time"

	"github.com/ax-scheduler/ax/internal/store"
)

// A replica holds a lock of the database by a connection of its own, and its neighbours wait for that lock.
// When the process dies its connections close, the database frees the lock, and whoever waited knows of the
// death in milliseconds, long before the liveness expires. This only triggers a takeover: what makes it safe
// is the epoch. Where the database has no such locks, the liveness remains.
const (
	neighbours = 2 // each death is noticed by this many
	lockWait   = 5 * time.Second
	lockPause  = 250 * time.Millisecond
	lockCheck  = time.Second
	// blocked is the least wait that counts as one: then somebody held the lock when it began.
	blocked = 20 * time.Millisecond
	// unrenewed is how long a replica whose lock is free may go without announcing itself: whoever starts
	// after the death of another has not waited for its lock.
	unrenewed = 2*renewEvery + 200*time.Millisecond
)

func lockOf(id string) string { return "ax:" + id }

// watch holds this replica's lock and waits for those of its neighbours until ctx ends.
func (c *Cluster) watch(ctx context.Context) {
	if !c.Store.HasLocks() {
		return
	}
	var loops sync.WaitGroup
	defer loops.Wait()
	loops.Go(func() { c.hold(ctx) })
	waits := map[string]context.CancelFunc{}
	tick := time.NewTicker(lookEvery)
	defer tick.Stop()
	for {
		m, _ := c.View()
		near := nearest(m, c.Replica.ID)
		for id, stop := range waits {
			if !slices.Contains(near, id) {
				stop()
				delete(waits, id)
			}
		}
		for _, id := range near {
			if waits[id] != nil {
				continue
			}
			waiting, stop := context.WithCancel(ctx)
			waits[id] = stop
			loops.Go(func() { c.wait(waiting, id) })
		}
		select {
		case <-ctx.Done():
			for _, stop := range waits {
				stop()
			}
			return
		case <-tick.C:
		}
	}
}

// nearest are the living replicas that come after me in the circle of their ids.
func nearest(m store.Membership, me string) []string {
	var ids []string
	for _, p := range m.Peers {
		if p.Alive && p.ID != me {
			ids = append(ids, p.ID)
		}
	}
	slices.Sort(ids)
	at, _ := slices.BinarySearch(ids, me)
	ids = append(ids[at:], ids[:at]...)
	return ids[:min(neighbours, len(ids))]
}

// hold keeps this replica's lock.
func (c *Cluster) hold(ctx context.Context) {
	for ctx.Err() == nil {
		limited, cancel := context.WithTimeout(ctx, lockCheck)
		lock, err := c.Store.Lock(limited, lockOf(c.Replica.ID), 0)
		cancel()
		if err != nil {
			pause(ctx, lockPause)
			continue
		}
		for ctx.Err() == nil {
			pause(ctx, renewEvery)
			limited, cancel := context.WithTimeout(ctx, lockCheck)
			err := lock.Held(limited)
			cancel()
			if err != nil {
				break
			}
		}
		lock.Free()
	}
}

// wait waits for the lock of a neighbour until ctx ends, and says that it has died when it gets it.
func (c *Cluster) wait(ctx context.Context, id string) {
	var freeSince time.Time
	var renewal int64
	for ctx.Err() == nil {
		began := time.Now()
		limited, cancel := context.WithTimeout(ctx, 2*lockWait)
		lock, err := c.Store.Lock(limited, lockOf(id), lockWait)
		cancel()
		waited := time.Since(began)
		if err == nil {
			lock.Free()
		}
		m, _ := c.View()
		p, known := m.Peer(id)
		switch {
		case ctx.Err() != nil || !known:
			return
		case errors.Is(err, store.ErrLocked):
			freeSince = time.Time{}
			continue
		case err != nil:
			freeSince = time.Time{}
		case waited >= blocked:
			c.died(ctx, p, math.MaxInt64)
		case freeSince.IsZero() || p.ExpiresAt != renewal:
			freeSince, renewal = time.Now(), p.ExpiresAt
		case time.Since(freeSince) >= unrenewed:
			c.died(ctx, p, renewal)
			freeSince = time.Time{}
		}
		pause(ctx, lockPause)
	}
}

// died ends the liveness of a replica that was seen to die, and makes everybody look.
func (c *Cluster) died(ctx context.Context, p store.Peer, seen int64) {
	limited, cancel := context.WithTimeout(ctx, lockCheck)
	defer cancel()
	expired, err := c.Store.Expire(limited, p.ID, seen)
	if err != nil || !expired {
		return
	}
	c.Log.WarnContext(ctx, "replica died", slog.String("replica", p.ID), slog.String("address", p.AdvertiseAddr))
	c.Nudge()
	m, _ := c.View()
	for _, other := range m.Peers {
		if other.Alive && other.ID != p.ID && other.ID != c.Replica.ID {
			c.Moved(other)
		}
	}
}

func pause(ctx context.Context, span time.Duration) {
	timer := time.NewTimer(span)
	defer timer.Stop()
	select {
	case <-ctx.Done():
	case <-timer.C:
	}
}
