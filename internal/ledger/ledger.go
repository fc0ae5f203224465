// Package ledger checks that every planned firing has exactly one fate. It computes the plan from the
// periods in which triggers were in force and compares it with the rows; it only reads, and may run
// beside a server.
//
// What the plan says comes from package schedule, as when it was fired; what became of it is read from
// the store. Nothing else of the scheduler is asked.
package ledger

import (
	"cmp"
	"context"
	"fmt"
	"math"
	"slices"
	"time"

	"github.com/ax-scheduler/ax/internal/batch"
	"github.com/ax-scheduler/ax/internal/schedule"
	"github.com/ax-scheduler/ax/internal/store"
)

// What can be wrong.
const (
	Gap     = "gap"     // planned, and there is no row
	Double  = "double"  // two rows of one firing, or a row inside a missed span
	Count   = "count"   // a missed span that counts other than it covers
	Early   = "early"   // started before it was due
	Twice   = "twice"   // a shard that succeeded twice
	Open    = "open"    // the batch has ended and an execution of it has not
	Stuck   = "stuck"   // the batch has not ended and all its executions have
	Orphan  = "orphan"  // an execution without a batch
	Unclear = "unclear" // a specification that is not understood
)

const (
	// maxFound is how many findings are kept; all are counted.
	maxFound = 10_000
	// fresh is how far behind the cursor a trigger may be that was just written.
	fresh   = 10_000
	forever = int64(math.MaxInt64)
	// page is how many jobs are read at a time.
	page = 500
)

// Finding is one thing that is wrong. Firings that follow each other are one.
type Finding struct {
	Kind    string
	JobID   int64
	No      int // the trigger, 0 = not known
	BatchID string
	From    int64 // the first planned instant, milliseconds
	To      int64 // the last
	Count   int64 // firings
	Detail  string
}

// Report is what a check found.
type Report struct {
	From, To   int64 // what was looked at; From is later than asked for when older history was dropped
	Jobs       int
	Batches    int64
	Planned    int64
	Executions int64
	Found      []Finding
	// Counts are the findings by kind, those included that Found has no room for.
	Counts map[string]int64
}

// Clean says that nothing was found.
func (r Report) Clean() bool { return len(r.Counts) == 0 }

// Options narrow a check. Zero fields do not.
type Options struct {
	From, To int64
	Job      int64
	// Progress is told how many jobs were looked at, of how many.
	Progress func(done, total int)
}

// Check compares the plan with the rows, up to where each bucket says that it is complete.
func Check(ctx context.Context, s *store.Store, o Options) (Report, error) {
	l := s.Ledger()
	to := cmp.Or(o.To, forever)
	r := Report{From: o.From, To: o.To, Counts: map[string]int64{}}
	// First of all, so that what is written meanwhile lies behind it.
	cursors, err := l.Cursors(ctx)
	if err != nil {
		return r, err
	}
	dropped, err := s.HistoryFrom(ctx)
	if err != nil {
		return r, err
	}
	r.From = max(r.From, dropped)
	jobs := []int64{o.Job}
	if o.Job == 0 {
		if jobs, err = l.Jobs(ctx); err != nil {
			return r, err
		}
	}
	for done := 0; done < len(jobs); {
		part := jobs[done:min(done+page, len(jobs))]
		looked, err := look(ctx, l, part, r.From, to, cursors)
		if err != nil {
			return r, fmt.Errorf("jobs %d to %d: %w", part[0], part[len(part)-1], err)
		}
		for _, j := range looked {
			if len(j.found) > 0 {
				// The rows are read after one another, and somebody may have changed the job in between: what is
				// wrong is wrong the second time too.
				again, err := look(ctx, l, []int64{j.id}, r.From, to, cursors)
				if err != nil {
					return r, fmt.Errorf("job %d: %w", j.id, err)
				}
				first := j.found
				j = again[0]
				j.found = slices.DeleteFunc(j.found, func(f Finding) bool { return !slices.ContainsFunc(first, f.same) })
			}
			r.Jobs++
			r.Batches += j.batches
			r.Planned += j.planned
			r.Executions += j.executions
			for _, f := range j.found {
				r.Counts[f.Kind]++
				if len(r.Found) < maxFound {
					r.Found = append(r.Found, f)
				}
			}
		}
		if done += len(part); o.Progress != nil {
			o.Progress(done, len(jobs))
		}
	}
	return r, nil
}

func (f Finding) same(o Finding) bool {
	return f.Kind == o.Kind && f.No == o.No && f.BatchID == o.BatchID && f.From == o.From
}

// job is one job that is looked at.
type job struct {
	id, from int64
	plans    map[int]*plan
	found    []Finding

	open      map[string]store.Fate // batches that have not ended
	working   map[string]bool       // batches with an open execution
	last      store.Start
	succeeded int // of the shard of last

	batches, planned, executions int64
}

// plan walks through the planned instants of one trigger.
type plan struct {
	periods []period
	at      int64 // the next planned instant
	more    bool
	covered int64 // up to here there are rows
	limit   int64 // up to here the plan is known
}

type period struct {
	from, until int64
	schedule    *schedule.Schedule
}

// next moves to the first planned instant after at.
func (p *plan) next(at int64) {
	for len(p.periods) > 0 {
		first := p.periods[0]
		if next, ok := first.schedule.Next(time.UnixMilli(max(at, first.from))); ok && next.UnixMilli() <= first.until {
			p.at, p.more = next.UnixMilli(), true
			return
		}
		p.periods = p.periods[1:]
	}
	p.more = false
}

// look reads the rows of some jobs, which are those between the first and the last, in their order.
func look(ctx context.Context, l store.Ledger, ids []int64, from, to int64, cursors map[int]int64) ([]*job, error) {
	low, high := ids[0], ids[len(ids)-1]
	jobs := make([]*job, len(ids))
	byID := make(map[int64]*job, len(ids))
	for i, id := range ids {
		jobs[i] = &job{id: id, from: from, plans: map[int]*plan{}, open: map[string]store.Fate{}, working: map[string]bool{}}
		byID[id] = jobs[i]
	}
	periods, err := l.Periods(ctx, low, high)
	if err != nil {
		return nil, err
	}
	hints, err := l.Hints(ctx, low, high)
	if err != nil {
		return nil, err
	}
	for _, p := range periods {
		if j := byID[p.JobID]; j != nil {
			hint, ok := hints[store.JobTrigger{JobID: p.JobID, No: p.No}]
			j.inForce(p, min(to, cursors[p.Bucket]), hint, ok)
		}
	}
	for _, j := range jobs {
		for _, p := range j.plans {
			p.next(from - 1)
		}
	}
	// A job that was made meanwhile may lie between the others.
	err = l.Fates(ctx, low, high, from, to, func(f store.Fate) {
		if j := byID[f.JobID]; j != nil {
			j.row(f)
		}
	})
	if err != nil {
		return nil, err
	}
	for _, j := range jobs {
		for _, no := range numbers(j.plans) {
			j.missing(no, j.plans[no], forever)
		}
	}
	err = l.Starts(ctx, low, high, from, to, func(x store.Start) {
		if j := byID[x.JobID]; j != nil {
			j.start(x)
		}
	})
	if err != nil {
		return nil, err
	}
	for _, j := range jobs {
		j.stuck()
	}
	return jobs, ctx.Err()
}

// inForce adds a period, up to limit or to its end.
func (j *job) inForce(p store.Period, limit, hint int64, planned bool) {
	if p.Until > 0 {
		limit = min(limit, p.Until)
	} else if planned && hint > limit-fresh {
		// Written a moment ago, and its bucket's next pass has not seen it yet.
		limit = min(limit, hint-1)
	}
	s, err := schedule.Compile(p.Spec)
	if err != nil {
		j.add(Finding{Kind: Unclear, No: p.No, From: p.From, To: limit, Detail: err.Error()})
		return
	}
	of := j.plans[p.No]
	if of == nil {
		of = &plan{}
		j.plans[p.No] = of
	}
	of.periods = append(of.periods, period{from: max(p.From, j.from-1), until: limit, schedule: s})
	of.limit = max(of.limit, limit)
}

// row takes a batch.
func (j *job) row(f store.Fate) {
	j.batches++
	if !f.State.Final() && f.State.Valid() {
		j.open[f.BatchID] = f
	}
	if f.No > 0 {
		j.fate(f)
	}
}

func numbers(plans map[int]*plan) []int {
	out := make([]int, 0, len(plans))
	for no := range plans {
		out = append(out, no)
	}
	slices.Sort(out)
	return out
}

func (j *job) add(f Finding) {
	f.JobID = j.id
	j.found = append(j.found, f)
}

// missing notes the planned instants before upTo that have no row, as one finding.
func (j *job) missing(no int, p *plan, upTo int64) {
	f := Finding{Kind: Gap, No: no}
	for p.more && p.at < upTo {
		if f.Count == 0 {
			f.From = p.at
		}
		f.To = p.at
		f.Count++
		j.planned++
		p.next(p.at)
	}
	if f.Count > 0 {
		j.add(f)
	}
}

// fate strikes a row from the plan of its trigger.
func (j *job) fate(f store.Fate) {
	p := j.plans[f.No]
	if p == nil {
		p = &plan{} // of before there were periods
		j.plans[f.No] = p
	}
	last := max(f.DueAt, f.MissedLast)
	if f.DueAt <= p.covered {
		j.add(Finding{Kind: Double, No: f.No, BatchID: f.BatchID, From: f.DueAt, To: min(last, p.covered), Count: 1})
	}
	j.missing(f.No, p, f.DueAt)
	n, known := int64(0), p.more && p.at == f.DueAt
	for p.more && p.at <= last {
		n++
		j.planned++
		p.next(p.at)
	}
	// A span that reaches out of what is looked at can not be counted.
	if f.State == batch.Missed && f.MissedCount > 0 && known && last <= p.limit && n != f.MissedCount {
		j.add(Finding{Kind: Count, No: f.No, BatchID: f.BatchID, From: f.DueAt, To: last, Count: n, Detail: fmt.Sprintf("the row says %d", f.MissedCount)})
	}
	p.covered = max(p.covered, last)
}

// start takes an execution.
func (j *job) start(x store.Start) {
	j.executions++
	f := Finding{BatchID: x.BatchID, From: x.DueAt, To: x.DueAt, Count: 1, Detail: fmt.Sprintf("execution %d", x.ID)}
	if x.BatchID != j.last.BatchID || x.Shard != j.last.Shard {
		j.succeeded = 0
	}
	j.last = x
	if x.Status == batch.RunSucceeded {
		if j.succeeded++; j.succeeded == 2 {
			f.Kind = Twice
			j.add(f)
		}
	}
	if x.ActualTime > 0 && x.ActualTime < x.DueAt {
		early := f
		early.Kind = Early
		early.Detail += fmt.Sprintf(", %d ms early", x.DueAt-x.ActualTime)
		j.add(early)
	}
	if x.Status.Final() || !x.Status.Valid() {
		return
	}
	j.working[x.BatchID] = true
	switch {
	case x.BatchState == "":
		f.Kind = Orphan
		j.add(f)
	case x.BatchState.Final():
		f.Kind = Open
		j.add(f)
	}
}

// stuck notes the batches that have not ended and in which nothing is open.
func (j *job) stuck() {
	for id, f := range j.open {
		if !j.working[id] && f.DueAt >= j.from {
			j.add(Finding{Kind: Stuck, No: f.No, BatchID: id, From: f.DueAt, To: f.DueAt, Count: 1, Detail: "the batch is " + string(f.State)})
		}
	}
}
