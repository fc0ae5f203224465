package trigger

import (
	"cmp"
	"context"
	"slices"
	"time"

	"github.com/ax-scheduler/ax/internal/job"
	"github.com/ax-scheduler/ax/internal/quota"
	"github.com/ax-scheduler/ax/internal/ready"
	"github.com/ax-scheduler/ax/internal/store"
)

// Reasons of firings whose time passed before anybody could fire them.
const (
	ReasonMisfireOnce = "misfire_once"
	ReasonMisfireAll  = "misfire_all"
	ReasonMissed      = "missed_while_down"
	ReasonMissedClock = "missed_clock"
)

// jump is a stretch of ax time that never was: the clock was turned forward over it, and what was
// planned in it was missed because of the clock and not because anything was down. The zero jump is none.
type jump struct {
	from, to int64 // (from, to]
}

func (j jump) over(at int64) bool { return at > j.from && at <= j.to }

// missed tells whether a firing is so late that the policy decides; below that it runs as usual.
func missed(at, now int64) bool { return at <= now-job.MisfireAfter.Milliseconds() }

// debt is what a trigger has missed and what is known for judging it.
type debt struct {
	policy job.Misfire
	behind []int64 // planned instants, ascending, all of them late
	// fated are the instants between these that have their rows already: what somebody's edit makes to be planned once more.
	fated []store.Stretch
	// more says that there are newer ones that are late too, so that not even the newest of these is
	// the newest.
	more bool
	now  int64
	jump jump
	// The drain rates of the job and of its app, with what they have given away already.
	job, app *quota.Pace
}

// catchUp is a missed firing that is let run.
type catchUp struct {
	at        int64
	notBefore int64
	reason    string
}

// span is missed firings that follow each other and have one reason: one row.
type span struct {
	first, last int64
	count       int64
	reason      string
}

// settle applies a misfire policy. Every instant of behind that is before rest and not fated is in exactly one
// catchUp or one span, and no span reaches over a fated one; those from rest on (0 = there are none) can only be judged together with the newer
// ones that more speaks of. run is in the order of starting.
func settle(d debt) (run []catchUp, spans []span, rest int64) {
	d.behind = slices.DeleteFunc(slices.Clone(d.behind), func(at int64) bool {
		return slices.ContainsFunc(d.fated, func(s store.Stretch) bool { return at >= s.First && at <= s.Last })
	})
	oldest := d.now - time.Duration(d.policy.Window).Milliseconds()
	may := 0 // how many of the newest the policy lets run
	switch d.policy.Policy {
	case job.MisfireOnce:
		may = 1
	case job.MisfireAll:
		// The newest Max of them: the downstream wants the latest state.
		may = d.policy.Max
	}
	behind := d.behind
	if d.more {
		// Any of the newest may still be pushed out by newer ones.
		cut := max(len(behind)-may, 0)
		if cut < len(behind) {
			rest = behind[cut]
		}
		behind, may = behind[:cut], 0
	}
	first := max(len(behind)-may, 0)
	for first < len(behind) && behind[first] < oldest {
		first++
	}
	fate := make([]string, len(behind)) // why it is missed; "" = it runs
	for i := range first {
		fate[i] = ReasonMissed
		if d.jump.over(behind[i]) {
			fate[i] = ReasonMissedClock
		}
	}
	reason := ReasonMisfireAll
	if d.policy.Policy == job.MisfireOnce {
		reason = ReasonMisfireOnce
	}
	order := make([]int, 0, len(behind)-first)
	for i := first; i < len(behind); i++ {
		order = append(order, i)
	}
	if d.policy.Order == job.OrderNewest {
		slices.Reverse(order)
	}
	window := time.Duration(d.policy.Window).Milliseconds()
	for _, i := range order {
		at := quota.Together(d.now, d.job, d.app)
		if at > behind[i]+window {
			// The rates leave it no start in time; the next one may have one.
			fate[i] = ready.ReasonMissedWindow
			continue
		}
		d.job.Take(at)
		d.app.Take(at)
		run = append(run, catchUp{at: behind[i], notBefore: at, reason: reason})
	}
	for i, at := range behind {
		if fate[i] == "" {
			continue
		}
		apart := func(s store.Stretch) bool { return i > 0 && s.First < at && s.Last > behind[i-1] }
		if n := len(spans); n > 0 && i > 0 && fate[i-1] == fate[i] && !slices.ContainsFunc(d.fated, apart) {
			spans[n-1].last = at
			spans[n-1].count++
			continue
		}
		spans = append(spans, span{first: at, last: at, count: 1, reason: fate[i]})
	}
	slices.SortStableFunc(run, func(a, b catchUp) int { return cmp.Compare(a.notBefore, b.notBefore) })
	return run, spans, rest
}

// passed remembers when the last pass was, by ax time and by the clock that nobody can turn.
type passed struct {
	ax   int64
	host time.Time
	jump jump
}

// at notes a pass. When ax time has gone further than time did, the stretch between was never there.
func (p *passed) at(now int64) {
	if !p.host.IsZero() {
		expected := p.ax + time.Since(p.host).Milliseconds()
		if now-expected > job.MisfireAfter.Milliseconds()/2 {
			p.jump = jump{from: expected, to: now}
		}
	}
	p.ax, p.host = now, time.Now()
}

// jumped is the last stretch that the clock jumped over.
func (t *Trigger) jumped() jump {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.pass.jump
}

// drain is what one pass over a bucket knows of its backlog: it is asked for only when something was missed.
type drain struct {
	t      *Trigger
	bucket int
	known  bool
	jobs   map[int64]*quota.Pace
	apps   map[int64]*quota.Pace
	owed   map[int64][]int64 // job → planned starts of its backlog
	owedBy map[int64][]int64 // app → the same
}

func (t *Trigger) drain(bucket int) *drain {
	return &drain{t: t, bucket: bucket, jobs: map[int64]*quota.Pace{}, apps: map[int64]*quota.Pace{}, owed: map[int64][]int64{}, owedBy: map[int64][]int64{}}
}

// of is what a job and its app have given away already, by what waits in memory: after a takeover that was
// read from the rows.
func (d *drain) of(ctx context.Context, trigger store.DueTrigger, def *job.Definition) (ofJob, ofApp *quota.Pace, err error) {
	if !d.known {
		if err := d.t.outcome.LoadDrains(ctx, d.bucket); err != nil {
			return nil, nil, err
		}
		for _, o := range d.t.ready.Backlog(d.bucket) {
			d.owed[o.JobID] = append(d.owed[o.JobID], o.StartAt)
			d.owedBy[o.AppID] = append(d.owedBy[o.AppID], o.StartAt)
		}
		d.known = true
	}
	ofJob, ok := d.jobs[trigger.JobID]
	if !ok {
		ofJob = paced(d.t.ready.JobRate(&ready.Batch{JobID: trigger.JobID, Def: def}), d.owed[trigger.JobID])
		d.jobs[trigger.JobID] = ofJob
	}
	ofApp, ok = d.apps[trigger.AppID]
	if !ok {
		ofApp = paced(d.t.ready.AppRate(trigger.AppID), d.owedBy[trigger.AppID])
		d.apps[trigger.AppID] = ofApp
	}
	return ofJob, ofApp, nil
}

func paced(rate float64, starts []int64) *quota.Pace {
	p := quota.NewPace(rate)
	for _, at := range starts {
		p.Take(at)
	}
	return p
}
