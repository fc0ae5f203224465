package ready

import (
	"cmp"
	"slices"
	"time"

	"github.com/ax-scheduler/ax/internal/quota"
)

// expireEvery is how often, in milliseconds, it is looked whether catch-ups that wait for an executor are too late.
const expireEvery = 1000

// ReasonMissedWindow is a catch-up's that found no start before its latest.
const ReasonMissedWindow = "missed_window"

// slotGrace is how late a start that the drain rates gave may be taken, in milliseconds. What is later,
// because this process stood still, gets a new one: else all that stood still would start at once.
const slotGrace = 250

// pacesMin is the number of paces from which on those that are not needed any more are dropped.
const pacesMin = 1000

// DrainKey is whose backlog: an app's or a job's; the other is 0.
type DrainKey struct {
	App, Job int64
}

// Drain is how a backlog is worked off.
type Drain struct {
	DrainKey
	// Rate is the starts in a second, 0 for no limit of an app. Of a job it is 0 unless somebody chose
	// another rate than the job's own.
	Rate   float64
	Paused bool
}

// SetDrain says how backlogs are worked off from now on. A backlog of which nothing was said has its job's
// rate and none of its app.
func (r *Ready) SetDrain(list ...Drain) {
	r.mu.Lock()
	defer r.mu.Unlock()
	resumed := false
	for _, d := range list {
		was := r.drains[d.DrainKey]
		if was == d {
			continue
		}
		r.drains[d.DrainKey] = d
		delete(r.paces, d.DrainKey)
		resumed = resumed || was.Paused && !d.Paused
		if was.Rate != d.Rate {
			// What has its start already gets another.
			for i, g := range r.slots {
				if len(g.list) > 0 && d.Of(g.list[0].Batch) && (!g.list[0].Batch.Admitted || g.slot > 0 && unbegun(g.list[0])) {
					r.slots[i] = group{}
					g.slot = 0
					for _, e := range g.list {
						e.NotBefore = min(e.NotBefore, r.now)
					}
					r.insertAt(g, g.list[0].NotBefore)
				}
			}
		}
	}
	if resumed {
		held := r.held
		r.held = nil
		for _, g := range held {
			r.insert(g)
		}
	}
	if len(r.filling) > 0 {
		r.fillAt = r.now // by other rates the next may be due sooner
	}
	r.Nudge()
}

// Of tells whether a batch is part of the backlog.
func (k DrainKey) Of(b *Batch) bool {
	return b.CatchUp && (k.App == 0 || k.App == b.AppID) && (k.Job == 0 || k.Job == b.JobID)
}

// JobRate is the drain rate of a job: what somebody chose, or its policy's.
func (r *Ready) JobRate(b *Batch) float64 {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.jobRate(b)
}

func (r *Ready) jobRate(b *Batch) float64 {
	return cmp.Or(r.drains[DrainKey{Job: b.JobID}].Rate, b.Def.Misfire.PerSecond())
}

// AppRate is the drain rate of an app; 0 = no limit.
func (r *Ready) AppRate(app int64) float64 {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.drains[DrainKey{App: app}].Rate
}

func (r *Ready) pace(k DrainKey, rate float64, now int64) *quota.Pace {
	p, ok := r.paces[k]
	if !ok {
		if len(r.paces) >= r.pacesMax {
			for k, p := range r.paces {
				if p.Idle(now) {
					delete(r.paces, k)
				}
			}
			r.pacesMax = max(2*len(r.paces), pacesMin)
		}
		p = quota.NewPace(rate)
		r.paces[k] = p
	}
	return p
}

// latest is the last moment at which a catch-up may start.
func latest(b *Batch) int64 {
	return b.DueAt + time.Duration(b.Def.Misfire.Window).Milliseconds()
}

// catchUp lets catch-ups in whose time has come, not more in a second than their job's and their app's
// drain rates say. The plan has spaced them already; here is where it holds, whoever planned and
// however long nobody could start anything.
func (r *Ready) catchUp(list []group, now int64, v *Verdicts) {
	if now-r.expiredAt >= expireEvery {
		r.expire(now)
	}
	for _, g := range r.overdue {
		v.Missed = append(v.Missed, Skip{g.list, ReasonMissedWindow})
	}
	r.overdue = nil
	slices.SortFunc(list, func(a, b group) int {
		return cmp.Or(cmp.Compare(a.list[0].NotBefore, b.list[0].NotBefore), cmp.Compare(a.list[0].ID, b.list[0].ID))
	})
	for _, g := range list {
		b := g.list[0].Batch
		if s := r.jobs[b.JobID]; s != nil {
			if _, active := s.active[b.ID]; active { // a further attempt
				r.enqueue(g, now)
				continue
			}
		}
		if now > latest(b) {
			v.Missed = append(v.Missed, Skip{g.list, ReasonMissedWindow})
			continue
		}
		job, app := DrainKey{Job: b.JobID}, DrainKey{App: b.AppID}
		if r.drains[job].Paused || r.drains[app].Paused {
			g.slot = 0
			r.held = append(r.held, g)
			continue
		}
		ofJob, ofApp := r.pace(job, r.jobRate(b), now), r.pace(app, r.drains[app].Rate, now)
		if g.slot == 0 || now-g.slot > slotGrace || !ofJob.May(now) || !ofApp.May(now) {
			ofJob.Forget(now)
			ofApp.Forget(now)
			at := quota.Together(now, ofJob, ofApp)
			if at > latest(b) {
				v.Missed = append(v.Missed, Skip{g.list, ReasonMissedWindow})
				continue
			}
			ofJob.Take(at)
			ofApp.Take(at)
			if g.slot = at; at > now || !ofJob.May(now) || !ofApp.May(now) {
				r.insertAt(g, max(at, now+1))
				continue
			}
		}
		r.admit(g, now, v)
	}
}

// unbegun tells that an execution would be the beginning of a batch that drain rates hold back.
func unbegun(e *Execution) bool {
	return e.Batch.Late() && !e.Batch.Begun && e.Attempt == 1 && e.Moves == 0 && (e.Bound == nil || !e.Bound.Sent)
}

// tooLate tells that a catch-up that was let in has not begun at its latest start: nobody could take it in time.
func tooLate(e *Execution, now int64) bool {
	return e.Batch.CatchUp && unbegun(e) && now > latest(e.Batch)
}

// expire takes catch-ups out of their queues that are too late: the next Due says that they are missed.
func (r *Ready) expire(now int64) {
	r.expiredAt = now
	groups := map[*Batch]*group{}
	parted := false
	add := func(e *Execution) {
		g := groups[e.Batch]
		if g == nil {
			g = &group{}
			groups[e.Batch] = g
		}
		g.list = append(g.list, e)
	}
	for _, t := range r.tenants {
		for l, q := range t.lanes {
			if !l.late {
				continue
			}
			q.Remove(func(e *Execution) bool {
				late := tooLate(e, now)
				if late {
					add(e)
				}
				return late
			})
			if q.Len() == 0 {
				delete(t.lanes, l)
			}
		}
	}
	for b, g := range groups {
		parted = parted || len(g.list) < b.Total
	}
	if parted { // drain rates hold some of their shards back
		for _, e := range r.takeOut(func(e *Execution) bool { return groups[e.Batch] != nil }) {
			add(e)
		}
	}
	for _, g := range groups {
		r.overdue = append(r.overdue, *g)
	}
	if len(groups) > 0 {
		r.Nudge()
	}
}

// postpone gives a late batch, whose turn it is, another start when its drain rates do not let it begin now: what was
// let in while nobody could take it must not begin all at once when somebody can.
func (r *Ready) postpone(e *Execution, now int64) bool {
	if !unbegun(e) {
		return false
	}
	job, app := DrainKey{Job: e.Batch.JobID}, DrainKey{App: e.Batch.AppID}
	g := group{list: []*Execution{e}}
	if r.drains[job].Paused || r.drains[app].Paused {
		r.held = append(r.held, g)
		return true
	}
	ofJob, ofApp := r.pace(job, r.jobRate(e.Batch), now), r.pace(app, r.drains[app].Rate, now)
	if ofJob.May(now) && ofApp.May(now) {
		return false
	}
	g.slot = quota.Together(now+1, ofJob, ofApp)
	ofJob.Take(g.slot)
	ofApp.Take(g.slot)
	r.insertAt(g, g.slot)
	return true
}

// begun notes the beginning of a late batch.
func (r *Ready) begun(e *Execution, now int64) {
	if unbegun(e) {
		r.pace(DrainKey{Job: e.Batch.JobID}, r.jobRate(e.Batch), now).Started(now)
		r.pace(DrainKey{App: e.Batch.AppID}, r.drains[DrainKey{App: e.Batch.AppID}].Rate, now).Started(now)
	}
	e.Batch.Begun = true
}

// Owed is a catch-up that has not started.
type Owed struct {
	NS, AppID, JobID int64
	App, Job         string // names
	DueAt            int64
	StartAt          int64   // when it is planned to
	Rate             float64 // of the job
	Paused           bool
}

// Backlog lists the catch-ups of a bucket that have not started.
func (r *Ready) Backlog(bucket int) []Owed {
	r.mu.Lock()
	defer r.mu.Unlock()
	var out []Owed
	add := func(g group) {
		if len(g.list) == 0 || !g.list[0].Batch.CatchUp || g.list[0].Batch.Admitted || g.list[0].Batch.Bucket != bucket {
			return
		}
		b := g.list[0].Batch
		out = append(out, Owed{
			NS: b.NS, AppID: b.AppID, JobID: b.JobID, App: b.Def.App, Job: b.Def.Name, DueAt: b.DueAt, StartAt: g.at(), Rate: r.jobRate(b),
			Paused: r.drains[DrainKey{Job: b.JobID}].Paused || r.drains[DrainKey{App: b.AppID}].Paused,
		})
	}
	for _, list := range [][]group{r.slots, r.held, r.overdue, r.early} {
		for _, g := range list {
			add(g)
		}
	}
	for _, s := range r.jobs {
		for _, g := range s.late {
			add(g)
		}
	}
	return out
}
