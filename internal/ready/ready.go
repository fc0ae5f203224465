// Package ready holds what this replica has to do next, in memory: executions whose time
// is ahead (in the wheel), executions that wait for their turn (one queue per namespace,
// ordered by score), and stops that executors have to be told of.
//
// It only reminds. Every execution in it has its row in the store before it comes here, and a
// new owner of a bucket fills its own from the rows. Packages trigger and outcome put things in,
// dispatch takes them out.
package ready

import (
	"encoding/json"
	"math"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/ax-scheduler/ax/internal/batch"
	"github.com/ax-scheduler/ax/internal/job"
	"github.com/ax-scheduler/ax/internal/quota"
	"github.com/ax-scheduler/ax/internal/routing"
	"github.com/ax-scheduler/ax/internal/schedule"
	"github.com/ax-scheduler/ax/internal/wheel"
)

// Batch is what the executions of one firing share.
type Batch struct {
	ID         string
	Day        int
	Bucket     int
	NS         int64
	JobID      int64
	JobVersion int64
	AppID      int64
	Def        *job.Definition
	TriggerNo  int
	Kind       string
	DueAt      int64
	PlannedFor int64
	Params     string
	// Event is the body that the executor gets, when it is short; EventBytes its length in any case. A
	// longer one is read when it is sent.
	Event      *string
	EventBytes int
	// Key is the business key of a delayed task, "" = none.
	Key      string
	Zone     string
	Priority int
	Total    int
	// Turn is the job's count of firings, from which round robin starts.
	Turn uint64
	// Spread is how far behind DueAt the job's jitter lets it start, in milliseconds.
	Spread int64
	// CatchUp says that it was missed and that its job's misfire policy lets it run all the same.
	CatchUp bool
	// Backfill is the backfill that it belongs to, 0 = none, and MaxActive how many of that may run at once.
	Backfill  int64
	MaxActive int
	// Admitted is set once the job's concurrency policy let it in.
	Admitted bool
	// Begun is set once one of its executions was taken; only known of what is late.
	Begun bool
}

// Asked tells whether somebody was promised that this very batch runs: a delayed task or an event. A
// job's overlap policy says what becomes of the firings of a schedule, of which the next one follows;
// what was asked for waits for its turn instead, however long.
func (b *Batch) Asked() bool {
	return b.Kind == string(schedule.Delayed) || b.Kind == string(schedule.Event)
}

// Ahead is how many firings wait for their time in memory.
func (r *Ready) Ahead() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return len(r.slots) - len(r.free)
}

// Load is what each of its executions counts for on an executor.
func (b *Batch) Load() routing.Load {
	return routing.Load{Handler: b.Def.Handler, Needs: b.Def.Resources.Needs()}
}

// choosy tells that its job asks for more than its handler: it may have to wait where others do not.
func (b *Batch) choosy() bool {
	return len(b.Def.Limits) > 0 || b.Def.Routing.Selector != "" || b.Def.Routing.Rule != "" || b.Def.Resources != job.Resources{}
}

// StartAt is when it should start: it is late from there on.
func (b *Batch) StartAt() int64 { return b.DueAt + b.Spread }

// Active is the batch as it counts against its job's limit.
func (b *Batch) Active() Active {
	return Active{BatchID: b.ID, Day: b.Day, Bucket: b.Bucket, NS: b.NS, JobID: b.JobID, Backfill: b.Backfill}
}

// Execution is one attempt that waits.
type Execution struct {
	Batch     *Batch
	ID        int64
	Shard     int
	Attempt   int
	Moves     int
	NotBefore int64
	// ReadyAt is since when it waits for its turn.
	ReadyAt int64
	// Avoid are executors that it should not go to again: they refused it or could not be reached.
	Avoid []int64
	// Noted says that its waiting was made visible.
	Noted bool
	// Waits is what it waited for when it was looked at last, with the detail; "" = its turn.
	Waits, WaitsDetail string
	// Choice is how the executor that Bound names was chosen beforehand.
	Choice *routing.Choice
	// MostOnApp and MostOnHandler are what limits let one executor have at once; 0 = no bound.
	MostOnApp, MostOnHandler int
	// Bound is the executor that its row names already, nil = none.
	Bound *Bound
	// Retry says that it follows an attempt that failed, by its job's policy.
	Retry bool
	// Behind is an earlier attempt of its shard that may still run, 0 = none: two never overlap.
	Behind int64
}

// Request is what it wants of an executor.
func (e *Execution) Request() routing.Request {
	b := e.Batch
	d := b.Def
	r := routing.Request{
		Strategy: d.Routing.Strategy, Turn: b.Turn, Key: b.hashKey(), Shard: e.Shard, Total: b.Total, Selector: d.Routing.Selector, Rule: d.Routing.Rule, Needs: d.Resources.Needs(),
		JobID: b.JobID, JobName: d.Name, Handler: d.Handler, Params: b.Params, MostOnApp: e.MostOnApp, MostOnHandler: e.MostOnHandler,
	}
	if b.Total > 1 && d.Routing.Strategy != routing.Broadcast {
		// The shards of a batch are placed one by one, not all at the same executor.
		r.Turn += uint64(e.Shard)
		r.Key += "/" + strconv.Itoa(e.Shard)
	}
	return r
}

// hashKey is what consistentHash places: the value of a field of the parameters, or the
// job when there is none. The field is named plainly or by its path: userId, $.user.id.
func (b *Batch) hashKey() string {
	if b.Def.Routing.HashKey != "" && b.Def.Routing.Strategy == routing.ConsistentHash {
		value := json.RawMessage(b.Params)
		for field := range strings.SplitSeq(strings.TrimPrefix(b.Def.Routing.HashKey, "$."), ".") {
			var object map[string]json.RawMessage
			if json.Unmarshal(value, &object) != nil {
				value = nil
				break
			}
			value = object[field]
		}
		if len(value) > 0 {
			return string(value)
		}
	}
	return strconv.FormatInt(b.JobID, 10)
}

// Bound is an executor that an execution's row names.
type Bound struct {
	WorkerID int64
	Address  string
	StartID  string
	// Sent: a former owner may have sent it there. Then it can go nowhere else: only that executor
	// knows whether it has it. Else the executor was only chosen beforehand.
	Sent bool
}

// Skip is a firing that the job's concurrency policy decided against.
type Skip struct {
	Executions []*Execution
	Reason     string
}

// Stop asks that one execution be stopped.
type Stop struct {
	WorkerID    int64
	ExecutionID int64
	BatchID     string
	Bucket      int
	Reason      string
}

// Verdicts is what admission decided: the caller makes it durable.
type Verdicts struct {
	Skips []Skip
	// Missed are catch-ups that found no start before their latest.
	Missed []Skip
	// Cover lists running batches that have to make room.
	Cover []Active
	// Crowded are jobs whose queue is nearly full: soon firings will be skipped.
	Crowded []Crowd
}

// crowdedAt is how many per cent of a job's queue are taken when somebody is told.
const crowdedAt = 80

// Crowd is a job with many batches that wait for others of it.
type Crowd struct {
	JobID         int64
	Job           string
	Waiting, Most int
}

// Active is a batch that counts against its job's limit.
type Active struct {
	BatchID string
	Day     int
	Bucket  int
	NS      int64
	JobID   int64
	// Backfill is the backfill that it belongs to, 0 = none.
	Backfill int64
	// Lingers says that it has ended and its executor did not confirm that it stopped.
	Lingers bool
}

// Reasons of a skip. The console has a sentence for each in both languages.
const (
	ReasonStillRunning = "overlap_running"
	ReasonQueueFull    = "overlap_queue_full"
	ReasonCovered      = "overlap_covered"
)

type group struct {
	list []*Execution
	// slot is the start that the drain rates have given to a catch-up; 0 = none yet.
	slot int64
}

// at is when it may go.
func (g group) at() int64 { return max(g.list[0].NotBefore, g.slot) }

type jobState struct {
	active  map[string]Active
	waiting []group
	// late are catch-ups that wait for each other: they are never skipped because of one of their own.
	late []group
	// fills are the backfills that have batches left, oldest first.
	fills   []*fill
	covered bool
}

// lane is a queue of what finds the same executors: one for each handler of an app, and one of its own for a job
// that asks for more, so that what nobody can take now holds up nothing else. Catch-ups have lanes that go second.
type lane struct {
	app     int64
	handler string
	job     int64
	late    bool
}

// lane is where an execution of a batch waits for its turn.
func (b *Batch) lane() lane {
	l := lane{app: b.AppID, handler: b.Def.Handler, late: b.Late()}
	if b.choosy() {
		l.job = b.JobID
	}
	return l
}

// onTime is the lane that catch-ups stand behind.
func (l lane) onTime() lane {
	l.late = false
	return l
}

type tenant struct {
	lanes map[lane]*quota.Queue[*Execution]
}

// Ready is safe for concurrent use.
type Ready struct {
	mu      sync.Mutex
	wheel   *wheel.Wheel
	slots   []group // values of the wheel point here
	free    []uint32
	jobs    map[int64]*jobState
	tenants map[int64]*tenant
	order   []int64 // namespaces in turn
	stops   []Stop
	wake    chan struct{}

	now    int64   // of the last Due
	early  []group // what the wheel gave out before its time, since the clock went back
	drains map[DrainKey]Drain
	paces  map[DrainKey]*quota.Pace
	// pacesMax is the size at which idle paces are dropped.
	pacesMax int
	held     []group // catch-ups whose drain is paused
	overdue  []group // catch-ups that were let in too late, or taken by nobody in time
	// expiredAt is when it was looked last for catch-ups that wait in vain.
	expiredAt int64
	// filling are the jobs with backfills, fillAt when the drain rates let the next of them start, and
	// fillFrom when that was looked at last.
	filling          map[int64]bool
	fillAt, fillFrom int64

	limits  map[limitKey]*limit
	covers  map[int64][]*limit // app → those that cover it or a handler of it
	account account
	turn    uint64
	limitAt int64 // when the rate of a limit lets the next one start, 0 = nothing waits for a rate
	// contended says that something waits for a limit.
	contended bool

	holds [batch.Buckets]sync.Mutex
}

// Hold keeps everybody else who holds it from changing a bucket's rows and this memory
// apart: between the commit of new rows and their coming here nobody must look for them. It is taken
// before the bucket's transaction.
func (r *Ready) Hold(bucket int) (release func()) {
	r.holds[bucket].Lock()
	return r.holds[bucket].Unlock
}

// New makes an empty one whose wheel starts at now.
func New(now time.Time) *Ready {
	return &Ready{wheel: wheel.New(now.UnixMilli()), jobs: map[int64]*jobState{}, tenants: map[int64]*tenant{}, wake: make(chan struct{}, 1), drains: map[DrainKey]Drain{}, paces: map[DrainKey]*quota.Pace{}, pacesMax: pacesMin, filling: map[int64]bool{}, fillAt: math.MaxInt64, limits: map[limitKey]*limit{}, account: newAccount()}
}

// Wake signals that there may be something to do earlier than Next said.
func (r *Ready) Wake() <-chan struct{} { return r.wake }

// Nudge makes Wake fire.
func (r *Ready) Nudge() {
	select {
	case r.wake <- struct{}{}:
	default:
	}
}

// Add puts executions in. Those of one batch that are due together must stand together
// in the list.
func (r *Ready) Add(list ...*Execution) {
	if len(list) == 0 {
		return
	}
	r.mu.Lock()
	for start := 0; start < len(list); {
		end := start + 1
		for end < len(list) && list[end].Batch == list[start].Batch && list[end].NotBefore == list[start].NotBefore {
			end++
		}
		r.insert(group{list: list[start:end:end]})
		start = end
	}
	r.mu.Unlock()
	r.Nudge()
}

func (r *Ready) insert(g group) { r.insertAt(g, g.list[0].NotBefore) }

func (r *Ready) insertAt(g group, at int64) {
	var slot uint32
	if n := len(r.free); n > 0 {
		slot = r.free[n-1]
		r.free = r.free[:n-1]
		r.slots[slot] = g
	} else {
		slot = uint32(len(r.slots))
		r.slots = append(r.slots, g)
	}
	r.wheel.Insert(at, uint64(slot))
}

// Next is the next moment at which Due has something to do; ok is false when nothing waits in the wheel.
func (r *Ready) Next() (ms int64, ok bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	ms, ok = r.wheel.Next()
	for _, g := range r.early {
		if at := g.at(); !ok || at < ms {
			ms, ok = at, true
		}
	}
	if len(r.filling) > 0 && r.fillAt != math.MaxInt64 && (!ok || r.fillAt < ms) {
		ms, ok = r.fillAt, true
	}
	if r.limitAt > 0 && (!ok || r.limitAt < ms) {
		ms, ok = r.limitAt, true
	}
	return ms, ok
}

// Due moves what is due at now from the wheel to the queues, as far as each job's
// concurrency policy lets it.
func (r *Ready) Due(now int64) Verdicts {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.now = now
	var v Verdicts
	var late, fills []group
	due := r.early
	r.early = nil
	for _, value := range r.wheel.Advance(now, nil) {
		slot := uint32(value)
		due = append(due, r.slots[slot])
		r.slots[slot] = group{}
		r.free = append(r.free, slot)
	}
	for _, g := range due {
		switch {
		case len(g.list) == 0:
		case g.at() > now:
			// The wheel does not go back when the clock does, and takes for due what lies before its time.
			r.early = append(r.early, g)
		case g.list[0].Batch.CatchUp:
			late = append(late, g)
		case g.list[0].Batch.Backfill != 0:
			fills = append(fills, g)
		default:
			r.admit(g, now, &v)
		}
	}
	// Catch-ups last: firings that are on time go first.
	r.catchUp(late, now, &v)
	r.backfill(fills, now)
	return v
}

func (r *Ready) state(jobID int64) *jobState {
	s, ok := r.jobs[jobID]
	if !ok {
		s = &jobState{active: map[string]Active{}}
		r.jobs[jobID] = s
	}
	return s
}

func (r *Ready) admit(g group, now int64, v *Verdicts) {
	b := g.list[0].Batch
	s := r.state(b.JobID)
	if _, active := s.active[b.ID]; active {
		r.enqueue(g, now)
		return
	}
	if b.Admitted {
		// It has ended since it was put here: a former owner had sent it, and its result was faster
		// than its turn. Let in again it would count as active for ever.
		if s.idle() {
			delete(r.jobs, b.JobID)
		}
		return
	}
	limit := b.Def.Concurrency.Max
	free := b.Def.Concurrency.Policy == job.OverlapAllow && limit == 0 || len(s.active) < limit && len(s.waiting) == 0
	if b.CatchUp {
		if free && len(s.late) == 0 {
			r.activate(s, g, now)
		} else {
			s.late = append(s.late, g)
		}
		return
	}
	if free {
		r.activate(s, g, now)
		return
	}
	if b.Asked() || s.behindBackfill(limit) {
		s.waiting = append(s.waiting, g)
		return
	}
	switch b.Def.Concurrency.Policy {
	case job.OverlapQueueOne:
		if len(s.waiting) > 0 {
			v.Skips = append(v.Skips, Skip{g.list, ReasonQueueFull})
			return
		}
		s.waiting = append(s.waiting, g)
	case job.OverlapQueueAll, job.OverlapAllow:
		most := b.Def.Concurrency.QueueOf()
		if len(s.waiting) >= most {
			v.Skips = append(v.Skips, Skip{g.list, ReasonQueueFull})
			return
		}
		s.waiting = append(s.waiting, g)
		if len(s.waiting) == max(most*crowdedAt/100, 1) {
			v.Crowded = append(v.Crowded, Crowd{b.JobID, b.Def.Name, len(s.waiting), most})
		}
	case job.OverlapCover:
		kept := s.waiting[:0]
		for _, w := range s.waiting {
			if w.list[0].Batch.Asked() {
				kept = append(kept, w)
				continue
			}
			v.Skips = append(v.Skips, Skip{w.list, ReasonCovered})
		}
		s.waiting = append(kept, g)
		if !s.covered {
			s.covered = true
			for _, a := range s.active {
				if a.Backfill == 0 { // it does not make room for the job's firings, nor they for it
					v.Cover = append(v.Cover, a)
				}
			}
		}
	default:
		v.Skips = append(v.Skips, Skip{g.list, ReasonStillRunning})
	}
}

func (r *Ready) activate(s *jobState, g group, now int64) {
	b := g.list[0].Batch
	s.active[b.ID] = b.Active()
	b.Admitted = true
	r.enqueue(g, now)
}

func (r *Ready) enqueue(g group, now int64) {
	for _, e := range g.list {
		t, ok := r.tenants[e.Batch.NS]
		if !ok {
			t = &tenant{lanes: map[lane]*quota.Queue[*Execution]{}}
			r.tenants[e.Batch.NS] = t
			r.order = append(r.order, e.Batch.NS)
		}
		l := e.Batch.lane()
		q, ok := t.lanes[l]
		if !ok {
			q = &quota.Queue[*Execution]{}
			t.lanes[l] = q
		}
		if e.ReadyAt == 0 {
			e.ReadyAt = now
		}
		submit := e.Batch.StartAt()
		if l.late {
			submit = e.NotBefore // the order that the policy chose, not that of what is oldest
		}
		q.Push(quota.Entry[*Execution]{Level: e.Batch.Priority, SubmitAt: submit, ReadyAt: e.ReadyAt, Value: e})
	}
}

// Active counts a batch as running, for a new owner that finds it so.
func (r *Ready) Active(a Active) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.state(a.JobID).active[a.BatchID] = a
}

// Ended tells that a batch is final, so that the next one of its job may start.
func (r *Ready) Ended(jobID int64, batchID string, now int64) {
	r.mu.Lock()
	s, ok := r.jobs[jobID]
	if !ok {
		r.mu.Unlock()
		return
	}
	delete(s.active, batchID)
	admitted := false
	for len(s.waiting) > 0 {
		g := s.waiting[0]
		b := g.list[0].Batch
		if b.ID == batchID { // it was cancelled while it waited
			s.waiting = s.waiting[1:]
			continue
		}
		limit := b.Def.Concurrency.Max
		if limit > 0 && len(s.active) >= limit {
			break
		}
		s.waiting = s.waiting[1:]
		r.activate(s, g, now)
		admitted = true
	}
	for len(s.late) > 0 && len(s.waiting) == 0 {
		g := s.late[0]
		b := g.list[0].Batch
		if limit := b.Def.Concurrency.Max; b.ID != batchID && limit > 0 && len(s.active) >= limit {
			break
		}
		s.late = s.late[1:]
		switch {
		case b.ID == batchID: // it was cancelled while it waited
		case now > latest(b):
			r.overdue = append(r.overdue, g)
			admitted = true
		default:
			r.activate(s, g, now)
			admitted = true
		}
	}
	if len(s.active) == 0 {
		s.covered = false
	}
	admitted = r.fill(jobID, now) || admitted || len(s.fills) > 0
	if s.idle() {
		delete(r.jobs, jobID)
	}
	r.mu.Unlock()
	if admitted {
		r.Nudge()
	}
}

// Placement is what Take's caller did with an execution.
type Placement int

// Placements.
const (
	Taken   Placement = iota // it is the caller's now
	Blocked                  // nobody can take it now: leave its lane alone for this pass
	Dropped                  // it is the caller's, and goes to no executor
)

// Take offers what waits, one namespace after the other and in each by score, until
// max were taken or everything that is left is blocked. limit names the limit that keeps it from starting now,
// "" = none: then it may not be Taken. place is called under the lock and must not call back.
func (r *Ready) Take(now int64, most int, place func(e *Execution, limit string) Placement) (taken int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.limitAt, r.contended = 0, false
	for {
		r.turn++
		t := &turn{no: r.turn, blocked: map[lane]bool{}, claimed: map[claim]bool{}, reserved: map[claim]int{}}
		n := r.round(now, most-taken, t, place)
		taken += n
		// Who let another namespace go first may go when that has gone.
		if n == 0 || !t.unfair || taken >= most {
			break
		}
	}
	if len(r.order) > 1 { // the next pass begins with the next namespace
		r.order = append(r.order[1:], r.order[0])
	}
	return taken
}

func (r *Ready) round(now int64, most int, t *turn, place func(e *Execution, limit string) Placement) (taken int) {
	for progress := true; progress && taken < most; {
		progress = false
		for _, ns := range r.order {
			if taken >= most {
				break
			}
			l, ok := best(r.tenants[ns], t.blocked, now)
			if !ok {
				continue
			}
			q := r.tenants[ns].lanes[l]
			head, _ := q.Peek(now)
			e := head.Value
			if tooLate(e, now) {
				r.expire(now)
				progress = true
				continue
			}
			if r.postpone(e, now) {
				q.Pop(now)
				progress = true
				if q.Len() == 0 {
					delete(r.tenants[ns].lanes, l)
				}
				continue
			}
			limit := r.kept(e, t, now)
			switch place(e, limit) {
			case Blocked:
				t.blocked[l.onTime()] = true // for catch-ups too: they must not take the place that is waited for
				progress = true              // another lane of this namespace may go
				continue
			case Taken:
				r.begun(e, now)
				r.started(e, now)
			case Dropped:
			}
			q.Pop(now)
			taken++
			progress = true
			if q.Len() == 0 {
				delete(r.tenants[ns].lanes, l)
			}
		}
	}
	return taken
}

// best is the lane whose head goes next: by score, and a catch-up only when nothing that is on time can go.
func best(t *tenant, blocked map[lane]bool, now int64) (next lane, ok bool) {
	top := 0.0
	for l, q := range t.lanes {
		if blocked[l.onTime()] {
			continue
		}
		e, found := q.Peek(now)
		if !found {
			continue
		}
		s := quota.Score(e.Level, e.SubmitAt, e.ReadyAt, now)
		if !ok || next.late && !l.late || next.late == l.late && s > top {
			next, top, ok = l, s, true
		}
	}
	return next, ok
}

// Waiting is how many executions wait for their turn in a namespace.
func (r *Ready) Waiting(ns int64) int {
	r.mu.Lock()
	defer r.mu.Unlock()
	n := 0
	if t, ok := r.tenants[ns]; ok {
		for _, q := range t.lanes {
			n += q.Len()
		}
	}
	return n
}

// Len is how many executions wait for their turn, over all namespaces.
func (r *Ready) Len() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	n := 0
	for _, t := range r.tenants {
		for _, q := range t.lanes {
			n += q.Len()
		}
	}
	return n
}

// AskStop notes that executors have to be told to stop something.
func (r *Ready) AskStop(list ...Stop) {
	if len(list) == 0 {
		return
	}
	r.mu.Lock()
	r.stops = append(r.stops, list...)
	r.mu.Unlock()
	r.Nudge()
}

// Stops takes the stops that were asked for.
func (r *Ready) Stops() []Stop {
	r.mu.Lock()
	defer r.mu.Unlock()
	out := r.stops
	r.stops = nil
	return out
}

// TakeOut takes out what waits and says yes to want, wherever it waits. What it returns
// has not been handed to Take's caller and will not be, so it has certainly not been sent.
func (r *Ready) TakeOut(want func(*Execution) bool) []*Execution {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.takeOut(want)
}

func (r *Ready) takeOut(want func(*Execution) bool) []*Execution {
	var out []*Execution
	part := func(g group) group {
		kept := g.list[:0:0]
		for _, e := range g.list {
			if want(e) {
				out = append(out, e)
			} else {
				kept = append(kept, e)
			}
		}
		return group{list: kept, slot: g.slot}
	}
	parts := func(list []group) []group {
		kept := list[:0]
		for _, g := range list {
			if g = part(g); len(g.list) > 0 {
				kept = append(kept, g)
			}
		}
		return kept
	}
	for i := range r.slots {
		if len(r.slots[i].list) > 0 {
			r.slots[i] = part(r.slots[i])
		}
	}
	for id, s := range r.jobs {
		s.waiting, s.late = parts(s.waiting), parts(s.late)
		for _, f := range s.fills {
			f.queue = parts(f.queue)
		}
		s.fills = slices.DeleteFunc(s.fills, func(f *fill) bool { return len(f.queue) == 0 })
		if s.idle() {
			delete(r.jobs, id)
		}
	}
	r.held, r.overdue, r.early = parts(r.held), parts(r.overdue), parts(r.early)
	for _, t := range r.tenants {
		for l, q := range t.lanes {
			q.Remove(func(e *Execution) bool {
				if want(e) {
					out = append(out, e)
					return true
				}
				return false
			})
			if q.Len() == 0 {
				delete(t.lanes, l)
			}
		}
	}
	return out
}

// Drop forgets everything of a bucket: another replica owns it, or its rows have to be
// read again.
func (r *Ready) Drop(bucket int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for i := range r.slots {
		if l := r.slots[i].list; len(l) > 0 && l[0].Batch.Bucket == bucket {
			// The wheel's entry stays and meets an empty group when it is due.
			r.slots[i] = group{list: nil}
		}
	}
	for id, s := range r.jobs {
		for b, a := range s.active {
			if a.Bucket == bucket {
				delete(s.active, b)
			}
		}
		s.waiting, s.late = without(s.waiting, bucket), without(s.late, bucket)
		for _, f := range s.fills {
			f.queue = without(f.queue, bucket)
		}
		s.fills = slices.DeleteFunc(s.fills, func(f *fill) bool { return len(f.queue) == 0 })
		if s.idle() {
			delete(r.jobs, id)
		}
	}
	r.held, r.overdue, r.early = without(r.held, bucket), without(r.overdue, bucket), without(r.early, bucket)
	for id, b := range r.account.held {
		if b.Bucket == bucket {
			delete(r.account.held, id)
			r.account.add(b, -1)
		}
	}
	for ns, t := range r.tenants {
		for l, q := range t.lanes {
			if e, ok := q.Peek(0); ok && e.Value.Batch.Bucket == bucket {
				delete(t.lanes, l)
			}
		}
		if len(t.lanes) == 0 {
			delete(r.tenants, ns)
			for i, o := range r.order {
				if o == ns {
					r.order = append(r.order[:i], r.order[i+1:]...)
					break
				}
			}
		}
	}
}

func without(list []group, bucket int) []group {
	return slices.DeleteFunc(list, func(g group) bool { return g.list[0].Batch.Bucket == bucket })
}
