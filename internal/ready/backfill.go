package ready

import (
	"cmp"
	"math"
	"slices"

	"github.com/ax-scheduler/ax/internal/quota"
)

// fill is one backfill of a job: its batches that have not started, in the order of their planned instants.
type fill struct {
	id    int64
	queue []group
}

// Late tells that a batch's planned instant has passed on purpose: what is on time goes first.
func (b *Batch) Late() bool { return b.CatchUp || b.Backfill != 0 }

// idle tells that nothing of a job is known any more.
func (s *jobState) idle() bool {
	return len(s.active) == 0 && len(s.waiting) == 0 && len(s.late) == 0 && len(s.fills) == 0
}

// ofBackfill counts the running batches of a backfill; of any with id 0.
func (s *jobState) ofBackfill(id int64) int {
	n := 0
	for _, a := range s.active {
		if a.Backfill != 0 && (id == 0 || a.Backfill == id) {
			n++
		}
	}
	return n
}

// behindBackfill tells that a firing finds no room only because of a backfill. It waits then, whatever the
// job's policy says of its own firings: nobody planned that a backfill costs one.
func (s *jobState) behindBackfill(limit int) bool {
	return len(s.waiting) == 0 && len(s.active)-s.ofBackfill(0) < limit
}

// backfill takes batches of backfills whose time has come.
func (r *Ready) backfill(list []group, now int64) {
	slices.SortFunc(list, func(a, b group) int { return cmp.Compare(a.list[0].ID, b.list[0].ID) })
	for _, g := range list {
		b := g.list[0].Batch
		if s := r.jobs[b.JobID]; s != nil {
			if _, active := s.active[b.ID]; active { // a further attempt
				r.enqueue(g, now)
				continue
			}
		}
		if b.Admitted {
			continue // it has ended since it was put here, as in admit
		}
		s := r.state(b.JobID)
		i := slices.IndexFunc(s.fills, func(f *fill) bool { return f.id == b.Backfill })
		if i < 0 {
			i = len(s.fills)
			s.fills = append(s.fills, &fill{id: b.Backfill})
		}
		s.fills[i].queue = append(s.fills[i].queue, g)
		r.filling[b.JobID] = true
		r.fillAt = now
	}
	if now < r.fillFrom {
		r.fillAt = now // the clock was turned back
	}
	r.fillFrom = now
	if r.fillAt > now {
		return
	}
	r.fillAt = math.MaxInt64
	for job := range r.filling {
		r.fill(job, now)
	}
}

// fill lets in what may start of a job's backfills: after all else of the job, within each backfill's own
// limit, the job's and the drain rates.
func (r *Ready) fill(jobID, now int64) (admitted bool) {
	s := r.jobs[jobID]
	if s == nil || len(s.fills) == 0 {
		delete(r.filling, jobID)
		return false
	}
	for _, f := range s.fills {
		for len(f.queue) > 0 {
			g := f.queue[0]
			b := g.list[0].Batch
			limit := b.Def.Concurrency.Max
			if len(s.waiting) > 0 || len(s.late) > 0 || limit > 0 && len(s.active) >= limit || s.ofBackfill(f.id) >= max(b.MaxActive, 1) {
				break // the end of a batch brings it here again
			}
			job, app := DrainKey{Job: b.JobID}, DrainKey{App: b.AppID}
			if r.drains[job].Paused || r.drains[app].Paused {
				break // SetDrain brings it here again
			}
			ofJob, ofApp := r.pace(job, r.jobRate(b), now), r.pace(app, r.drains[app].Rate, now)
			ofJob.Forget(now)
			ofApp.Forget(now)
			// Nothing is reserved ahead: a catch-up, which has a latest start, must find its place free.
			if at := quota.Together(now, ofJob, ofApp); at > now || !ofJob.May(now) || !ofApp.May(now) {
				r.fillAt = min(r.fillAt, max(at, now+1))
				break
			}
			ofJob.Take(now)
			ofApp.Take(now)
			f.queue = f.queue[1:]
			r.activate(s, g, now)
			admitted = true
		}
	}
	s.fills = slices.DeleteFunc(s.fills, func(f *fill) bool { return len(f.queue) == 0 })
	if len(s.fills) == 0 {
		delete(r.filling, jobID)
	}
	return admitted
}

// Backfilling counts the batches of a job's backfills that have not started; of one backfill unless id is 0.
func (r *Ready) Backfilling(jobID, id int64) int {
	r.mu.Lock()
	defer r.mu.Unlock()
	n := 0
	add := func(g group) {
		if len(g.list) == 0 {
			return
		}
		if b := g.list[0].Batch; b.JobID == jobID && b.Backfill != 0 && !b.Admitted && (id == 0 || b.Backfill == id) {
			n++
		}
	}
	for _, list := range [][]group{r.slots, r.early} {
		for _, g := range list {
			add(g)
		}
	}
	if s := r.jobs[jobID]; s != nil {
		for _, f := range s.fills {
			for _, g := range f.queue {
				add(g)
			}
		}
	}
	return n
}
