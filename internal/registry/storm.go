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
	since   map[int64]time.Time // app → since when its executors are held; 0 = all apps
	allowed map[int64]time.Time // app → until when an operator lets them go
	moves   []time.Time         // when executions whose lease lapsed moved, within the last minute
	waiting int                 // how many of them could not at the last look
}

func newStorm() storm { return storm{since: map[int64]time.Time{}, allowed: map[int64]time.Time{}} }

// overrideFor is how long an operator's word counts.
const overrideFor = 10 * time.Minute

// tally counts the executors of an app (0 = of all) that are going or went within the window, and all.
func (r *Registry) tally(app int64, now time.Time) (going, all int) {
	for _, x := range r.byID {
		if app != 0 && x.AppID != app {
			continue
		}
		went := !x.Gone && !x.goneAt.IsZero() && now.Sub(x.goneAt) <= r.settings.StormWindow
		suspect := x.State == store.ExecutorSuspect && (!x.unreached || now.Sub(x.BeatAt) > missedBeats*r.settings.Heartbeat)
		switch {
		case x.State == store.ExecutorOffline && went && !r.replaced(x):
			going++
			all++
		case suspect:
			going++
			all++
		case x.State == store.ExecutorOnline, x.State == store.ExecutorDrained, x.State == store.ExecutorSuspect:
			all++
		}
	}
	return going, all
}

// replaced tells whether a later process has come to an executor's address.
func (r *Registry) replaced(x *Executor) bool { return r.byPlace[place{x.AppID, x.Address}] != x }

// storms tells whether too many of an app's executors, or of all, go at once. r.mu is held.
func (r *Registry) storms(app int64, now time.Time) bool {
	if r.settings.StormShare <= 0 || r.settings.StormShare >= 1 {
		return false
	}
	going, all := r.tally(app, now)
	return going >= stormLeast && float64(going) > r.settings.StormShare*float64(all)
}

// mayGo tells whether a silent executor may be removed now; else it is held. r.mu is held.
func (r *Registry) mayGo(x *Executor, now time.Time) bool {
	if now.Before(r.storm.allowed[x.AppID]) {
		return true
	}
	x.held = r.storms(x.AppID, now) || r.storms(0, now)
	return !x.held
}

// weather notes where executors are held, and lets the rest go on. r.mu is held.
func (r *Registry) weather(ctx context.Context, now time.Time) {
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
			s.Going, s.All = r.tally(x.AppID, now)
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
