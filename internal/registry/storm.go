package registry

import (
	"context"
	"log/slog"
	"sort"
	"time"

	"github.com/ax-scheduler/ax/internal/clock"
	"github.com/ax-scheduler/ax/internal/store"
)

// stormLeast is how many executors have to go at once before it can be a storm.
const stormLeast = 3

// storm is what is known of executors that go at once. When too large a share of them falls silent in a short
// time, the likeliest reason is the network or this server, and what they run goes on: removing them would start
// all of it once more elsewhere. So their removal is held until some of them report, others have come, or an
// operator says that they are really gone.
type storm struct {
	counts  map[int64]count     // of the last look, by app; 0 = all
	since   map[int64]time.Time // app → since when its executors are held; 0 = all apps
	allowed map[int64]time.Time // app → until when an operator lets them go
	moves   []time.Time         // when executions whose lease lapsed moved, within the last minute
	waiting int                 // how many of them could not at the last look
}

func newStorm() storm { return storm{since: map[int64]time.Time{}, allowed: map[int64]time.Time{}} }

// overrideFor is how long an operator's word counts.
const overrideFor = 10 * time.Minute

// count is how many executors are going or went within the window, of how many.
type count struct{ going, all int }

// rages tells whether they are too many to go at once.
func (c count) rages(share float64) bool {
	return share > 0 && share < 1 && c.going >= stormLeast && float64(c.going) > share*float64(c.all)
}

// tally counts the executors of each app, and under 0 those of all. r.mu is held.
func (r *Registry) tally(now time.Time) map[int64]count {
	out := map[int64]count{}
	for _, x := range r.byID {
		var c count
		switch x.State {
		case store.ExecutorOnline, store.ExecutorDrained:
			c = count{0, 1}
		case store.ExecutorSuspect:
			c = count{0, 1}
			if !x.unreached || now.Sub(x.BeatAt) > missedBeats*r.settings.Heartbeat {
				c.going = 1
			}
		case store.ExecutorOffline:
			// What is known to be gone is no sign of a storm, and neither is what came back as another process.
			if !x.Gone && !x.goneAt.IsZero() && now.Sub(x.goneAt) <= r.settings.StormWindow && r.byPlace[place{x.AppID, x.Address}] == x {
				c = count{1, 1}
			}
		}
		for _, app := range []int64{0, x.AppID} {
			sum := out[app]
			out[app] = count{sum.going + c.going, sum.all + c.all}
		}
	}
	return out
}

// mayGo tells whether a silent executor may be removed now, as the last look counted; else it is held. r.mu is held.
func (r *Registry) mayGo(x *Executor, now time.Time) bool {
	if now.Before(r.storm.allowed[x.AppID]) {
		return true
	}
	share := r.settings.StormShare
	x.held = r.storm.counts[x.AppID].rages(share) || r.storm.counts[0].rages(share)
	return !x.held
}

// weather counts who is going, notes where executors are held, and lets the rest go on. r.mu is held.
func (r *Registry) weather(ctx context.Context, now time.Time) {
	r.storm.counts = r.tally(now)
	held := map[int64]bool{}
	for _, x := range r.byID {
		if x.held && x.State == store.ExecutorSuspect {
			held[x.AppID] = true
		}
	}
	for app := range held {
		if _, ok := r.storm.since[app]; !ok {
			r.storm.since[app] = now
			r.log.ErrorContext(ctx, "too many executors went at once: their removal is held", slog.Int64("app_id", app))
		}
	}
	for app := range r.storm.since {
		if !held[app] {
			delete(r.storm.since, app)
			r.log.WarnContext(ctx, "executors that went at once are not held any more", slog.Int64("app_id", app))
		}
	}
	for app, until := range r.storm.allowed {
		if now.After(until) {
			delete(r.storm.allowed, app)
		}
	}
}

// Storm is an app whose executors went at once and are held.
type Storm struct {
	AppID   int64
	AppName string
	Since   int64 // ax time, milliseconds
	Held    int   // executors whose removal waits
	Going   int   // of the app: that are silent or went within the window
	All     int   // of the app
	Running int   // executions that are left alone for it
}

// Storms lists a namespace's apps whose executors are held.
func (r *Registry) Storms(ns int64) []Storm {
	r.mu.RLock()
	defer r.mu.RUnlock()
	now := time.Now()
	apps := map[int64]*Storm{}
	for _, x := range r.byID {
		if x.NSID != ns || !x.held || x.State != store.ExecutorSuspect {
			continue
		}
		s := apps[x.AppID]
		if s == nil {
			s = &Storm{AppID: x.AppID, AppName: x.AppName, Since: clock.Millis(r.clock)}
			if since, ok := r.storm.since[x.AppID]; ok {
				s.Since -= now.Sub(since).Milliseconds()
			}
			s.Going, s.All = r.storm.counts[x.AppID].going, r.storm.counts[x.AppID].all
			apps[x.AppID] = s
		}
		s.Held++
		s.Running += x.Busy
	}
	out := make([]Storm, 0, len(apps))
	for _, s := range apps {
		out = append(out, *s)
	}
	sort.Slice(out, func(i, j int) bool { return out[i].AppName < out[j].AppName })
	return out
}

// Held counts the executors whose removal is held, for metrics.
func (r *Registry) Held() int {
	r.mu.RLock()
	defer r.mu.RUnlock()
	n := 0
	for _, x := range r.byID {
		if x.held && x.State == store.ExecutorSuspect {
			n++
		}
	}
	return n
}

// LetGo is an operator's word that an app's silent executors are really gone: they are removed at their
// next failed probe, for ten minutes from now on. It returns how many were held.
func (r *Registry) LetGo(appID int64) int {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.storm.allowed[appID] = time.Now().Add(overrideFor)
	n := 0
	for _, x := range r.byID {
		if x.AppID == appID && x.held && x.State == store.ExecutorSuspect {
			x.held = false
			n++
		}
	}
	return n
}

// Drain keeps an executor from new work, or lets it work again, on an operator's word (e.DrainedAt 0). It holds for
// its address, over restarts of it and of this server. What it runs goes on.
func (r *Registry) Drain(ctx context.Context, e store.Executor, entry *store.AuditEntry) error {
	if err := r.store.DrainExecutor(ctx, e, entry); err != nil {
		return err
	}
	r.mu.Lock()
	x, ok := r.byID[e.ID]
	if ok {
		x.DrainedAt, x.DrainedBy, x.DrainReason = e.DrainedAt, e.DrainedBy, e.DrainReason
	}
	r.mu.Unlock()
	if e.DrainedAt == 0 {
		r.changed()
	}
	return nil
}

// Move tells whether one more execution whose lease has lapsed may be sent to another executor: nobody knows
// whether the one that had it still runs it, so many of them at once are more likely a fault of the network. What
// an operator lets go may.
func (r *Registry) Move(worker int64, now time.Time) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.settings.Redispatch == 0 {
		return true
	}
	if x, ok := r.byID[worker]; ok && now.Before(r.storm.allowed[x.AppID]) {
		return true
	}
	s := &r.storm
	for len(s.moves) > 0 && now.Sub(s.moves[0]) >= time.Minute {
		s.moves = s.moves[1:]
	}
	if len(s.moves) >= r.settings.Redispatch {
		return false
	}
	s.moves = append(s.moves, now)
	return true
}

// Waiting notes how many executions whose lease has lapsed may not move yet.
func (r *Registry) Waiting(n int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.storm.waiting = n
}

// Redispatch tells the limit of Move and how many wait for it.
func (r *Registry) Redispatch() (limit, waiting int) {
	r.mu.RLock()
	defer r.mu.RUnlock()
	return r.settings.Redispatch, r.storm.waiting
}

// Closed tells whether an executor must not be sent anything new, although it was chosen: it drains, or left.
func (r *Registry) Closed(id int64) bool {
	r.mu.RLock()
	defer r.mu.RUnlock()
	x, ok := r.byID[id]
	return ok && (x.DrainedAt > 0 || x.State == store.ExecutorDrained || x.State == store.ExecutorOffline)
}
