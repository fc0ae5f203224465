package ready

import (
	"slices"

	"github.com/ax-scheduler/ax/internal/job"
	"github.com/ax-scheduler/ax/internal/quota"
)

// Limit bounds how many executions of what it covers may run at once, or start in a second.
type Limit struct {
	NS   int64 // 0 = of the platform
	Name string
	// AppID and Handler are what it covers: all of an app, or one handler of it. AppID 0: the jobs that name it.
	AppID   int64
	Handler string
	// PerExecutor says that Max is what each executor may have, not all of them together.
	PerExecutor bool
	Max         int     // 0 = no bound
	Rate        float64 // starts in a second; 0 = no bound
}

// limitKey names a limit.
type limitKey struct {
	ns   int64
	name string
}

// limit is a limit with what it has seen.
type limit struct {
	Limit
	bucket int
	pace   *quota.Pace
	// Of a limit of the platform: which namespaces wait for it, as of which pass, and who was let in when.
	waiting map[int64]uint64
	served  map[int64]uint64
	starts  uint64
}

func (l *limit) key() limitKey { return limitKey{l.NS, l.Name} }

// account is what runs, by what limits may cover. It is kept whether there is a limit or not, so that one that is
// made later is right at once.
type account struct {
	app     map[int64]int
	handler map[lane]int // app and handler alone are set
	named   map[limitKey]int
	held    map[int64]*Batch // execution → its batch
}

func newAccount() account {
	return account{app: map[int64]int{}, handler: map[lane]int{}, named: map[limitKey]int{}, held: map[int64]*Batch{}}
}

func (a *account) add(b *Batch, n int) {
	count(a.app, b.AppID, n)
	count(a.handler, lane{app: b.AppID, handler: b.Def.Handler}, n)
	for _, name := range b.Def.Limits {
		count(a.named, named(b.NS, name), n)
	}
}

func count[K comparable](m map[K]int, k K, n int) {
	if m[k] += n; m[k] == 0 {
		delete(m, k)
	}
}

// named is the limit that a job of a namespace means by a name.
func named(ns int64, name string) limitKey {
	if len(name) > len(job.SharedLimit) && name[:len(job.SharedLimit)] == job.SharedLimit {
		return limitKey{0, name[len(job.SharedLimit):]}
	}
	return limitKey{ns, name}
}

func (a *account) running(l *limit) int {
	switch {
	case l.AppID == 0:
		return a.named[l.key()]
	case l.Handler == "":
		return a.app[l.AppID]
	}
	return a.handler[lane{app: l.AppID, handler: l.Handler}]
}

// SetLimits replaces the limits of a bucket. What runs stays counted. takenUp says that this
// replica begins to answer for them: a rate begins with a pause, since nobody here knows of the last start.
func (r *Ready) SetLimits(bucket int, list []Limit, now int64, takenUp bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	was := map[limitKey]*limit{}
	for k, l := range r.limits {
		if l.bucket == bucket {
			was[k] = l
			delete(r.limits, k)
		}
	}
	for _, x := range list {
		l := &limit{Limit: x, bucket: bucket, waiting: map[int64]uint64{}, served: map[int64]uint64{}}
		old := was[l.key()]
		switch {
		case old != nil && old.Rate == x.Rate && !takenUp:
			l.pace = old.pace
		default:
			l.pace = quota.NewPace(x.Rate)
			if old != nil || takenUp {
				l.pace.Take(now)
				l.pace.Started(now)
			}
		}
		if old != nil {
			l.served, l.starts = old.served, old.starts
		}
		r.limits[l.key()] = l
	}
	r.covers = map[int64][]*limit{}
	for _, l := range r.limits {
		if l.AppID != 0 {
			r.covers[l.AppID] = append(r.covers[l.AppID], l)
		}
	}
	r.Nudge()
}

// covering lists the limits that an execution of a batch is under.
func (r *Ready) covering(b *Batch) []*limit {
	if len(r.limits) == 0 {
		return nil
	}
	var out []*limit
	for _, l := range r.covers[b.AppID] {
		if l.Handler == "" || l.Handler == b.Def.Handler {
			out = append(out, l)
		}
	}
	for _, name := range b.Def.Limits {
		if l := r.limits[named(b.NS, name)]; l != nil {
			out = append(out, l)
		}
	}
	return out
}

// Limited tells whether a batch is under any limit: then nobody knows beforehand when and where it may go.
func (r *Ready) Limited(b *Batch) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return len(r.covering(b)) > 0
}

// claim is a limit as those of one namespace wait for it.
type claim struct {
	ns int64
	limitKey
}

// reserveAfter is the wait, in milliseconds, from which on what needs several limits at once keeps a place for itself
// in those that have room: else those that need only one of them could take it in turns for ever. Before that, nothing
// stays unused.
const reserveAfter = 60_000

// turn is one look at all that waits.
type turn struct {
	no      uint64
	blocked map[lane]bool
	// claimed are limits that something older waits for; reserved the places that something older keeps.
	claimed  map[claim]bool
	reserved map[claim]int
	// unfair says that somebody had to let another namespace go first.
	unfair bool
}

// kept says which limit keeps an execution from starting now; "" = none does. All that it needs is taken at once or
// not at all, so nobody waits for one limit with another in hand, and what waits for a limit is not overtaken there.
func (r *Ready) kept(e *Execution, t *turn, now int64) (by string) {
	b := e.Batch
	list := r.covering(b)
	if e.MostOnApp, e.MostOnHandler = 0, 0; len(list) == 0 {
		return ""
	}
	for _, l := range list {
		if l.PerExecutor {
			most := &e.MostOnApp
			if l.Handler != "" {
				most = &e.MostOnHandler
			}
			if *most == 0 || l.Max < *most {
				*most = l.Max
			}
		}
	}
	if _, has := r.account.held[e.ID]; has || e.Bound != nil && e.Bound.Sent {
		return "" // it may be there already
	}
	free := list[:0:0]
	for _, l := range list {
		if l.PerExecutor {
			continue
		}
		if r.room(l, b.NS, t, now) {
			free = append(free, l)
			continue
		}
		by = l.Name
		r.contended = true
		t.claimed[claim{b.NS, l.key()}] = true
		if l.NS == 0 {
			l.waiting[b.NS] = t.no
		}
	}
	if by != "" && now-e.ReadyAt >= reserveAfter {
		for _, l := range free {
			t.reserved[claim{b.NS, l.key()}]++
		}
	}
	return by
}

// room tells whether a limit lets one more of a namespace start now.
func (r *Ready) room(l *limit, ns int64, t *turn, now int64) bool {
	c := claim{ns, l.key()}
	switch {
	case t.claimed[c], l.Max > 0 && r.account.running(l)+t.reserved[c] >= l.Max:
		return false
	case l.Rate > 0 && (l.pace.Free(now) > now || !l.pace.May(now)):
		if at := max(l.pace.Free(now), now+1); r.limitAt == 0 || at < r.limitAt {
			r.limitAt = at
		}
		return false
	case l.NS == 0 && l.behind(ns, t.no):
		t.unfair = true
		return false
	}
	return true
}

// behind tells whether another namespace waits that was let in longer ago.
func (l *limit) behind(ns int64, no uint64) bool {
	for other, seen := range l.waiting {
		if seen+1 < no {
			delete(l.waiting, other)
			continue
		}
		if other != ns && l.served[other] < l.served[ns] {
			return true
		}
	}
	return false
}

// started counts an execution that goes to an executor.
func (r *Ready) started(e *Execution, now int64) {
	if !r.charge(e.Batch, e.ID) {
		return
	}
	for _, l := range r.covering(e.Batch) {
		if l.Rate > 0 {
			l.pace.Forget(now)
			l.pace.Take(now)
			l.pace.Started(now)
		}
		if l.NS == 0 {
			l.starts++
			l.served[e.Batch.NS] = l.starts
			delete(l.waiting, e.Batch.NS)
		}
	}
}

func (r *Ready) charge(b *Batch, execution int64) bool {
	if _, has := r.account.held[execution]; has {
		return false
	}
	r.account.held[execution] = b
	r.account.add(b, 1)
	return true
}

// Charge counts an execution as running, for a new owner that finds it so. Counting it again changes nothing.
func (r *Ready) Charge(b *Batch, execution int64) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.charge(b, execution)
}

// Discharge tells that executions have ended, or did not go to an executor after all.
func (r *Ready) Discharge(executions ...int64) {
	r.mu.Lock()
	nudge := false
	for _, id := range executions {
		if b, has := r.account.held[id]; has {
			delete(r.account.held, id)
			r.account.add(b, -1)
			nudge = r.contended
		}
	}
	r.mu.Unlock()
	if nudge {
		r.Nudge()
	}
}

// Use is what a limit has running and waiting.
type Use struct{ Running, Waiting int }

// LimitUse tells how a limit is used.
func (r *Ready) LimitUse(ns int64, name string) Use {
	r.mu.Lock()
	defer r.mu.Unlock()
	l := r.limits[limitKey{ns, name}]
	if l == nil {
		return Use{}
	}
	u := Use{Running: r.account.running(l)}
	for _, t := range r.tenants {
		for _, q := range t.lanes {
			q.Each(func(e quota.Entry[*Execution]) {
				if r.under(l, e.Value.Batch) {
					u.Waiting++
				}
			})
		}
	}
	return u
}

// under tells whether a batch is under a limit.
func (r *Ready) under(l *limit, b *Batch) bool { return slices.Contains(r.covering(b), l) }

// Place is where something waits.
type Place struct {
	// Position among Of that wait for the same, from 1; 1 is next.
	Position, Of int
	// Reason is a code, with its detail.
	Reason, Detail string
	Since          int64 // milliseconds
}

// Reasons of a wait. The console has a sentence for each in both languages.
const (
	// ReasonOverlap: an earlier batch of the job runs. ReasonUnstopped: one has ended, and nobody confirmed that it stopped.
	ReasonOverlap   = "waiting_overlap"
	ReasonUnstopped = "waiting_batch_unstopped"
	ReasonTurn      = "waiting_turn"
	ReasonLimit     = "waiting_limit"
)

// Waits tells what a batch waits for, and how many are before it; false when it does not wait here.
func (r *Ready) Waits(jobID int64, batchID string, now int64) (Place, bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if s := r.jobs[jobID]; s != nil {
		for i, g := range s.waiting {
			if b := g.list[0].Batch; b.ID == batchID {
				p := Place{Position: i + 1, Of: len(s.waiting), Reason: ReasonOverlap, Since: g.list[0].NotBefore}
				for _, a := range s.active {
					if a.Lingers {
						p.Reason = ReasonUnstopped
					}
				}
				return p, true
			}
		}
	}
	for _, t := range r.tenants {
		for _, q := range t.lanes {
			var mine *quota.Entry[*Execution]
			q.Each(func(e quota.Entry[*Execution]) {
				if e.Value.Batch.ID == batchID && (mine == nil || e.Value.Shard < mine.Value.Shard) {
					mine = &e
				}
			})
			if mine != nil {
				return r.place(t, *mine, now), true
			}
		}
	}
	return Place{}, false
}

// place counts who goes before an entry: of the same namespace what is under one of the same limits when a limit is
// what keeps it, else what waits in the same lane.
func (r *Ready) place(t *tenant, mine quota.Entry[*Execution], now int64) Place {
	b := mine.Value.Batch
	p := Place{Reason: ReasonTurn, Since: mine.ReadyAt}
	at := b.lane()
	// The head of the lane is what was looked at; what keeps it keeps all behind it.
	if head, ok := t.lanes[at].Peek(now); ok && head.Value.Waits != "" {
		p.Reason, p.Detail = head.Value.Waits, head.Value.WaitsDetail
	}
	score := quota.Score(mine.Level, mine.SubmitAt, mine.ReadyAt, now)
	var same []*limit
	if p.Reason == ReasonLimit {
		same = r.covering(b)
	}
	for l, q := range t.lanes {
		q.Each(func(e quota.Entry[*Execution]) {
			competes := l.onTime() == at.onTime()
			for _, x := range same {
				competes = competes || r.under(x, e.Value.Batch)
			}
			if !competes || e.Value == mine.Value {
				return
			}
			p.Of++
			s := quota.Score(e.Level, e.SubmitAt, e.ReadyAt, now)
			// Catch-ups go last; of equals, those whose row is older go first.
			switch late := l.late; {
			case late != at.late:
				if at.late {
					p.Position++
				}
			case s > score, s == score && e.Value.ID < mine.Value.ID:
				p.Position++
			}
		})
	}
	p.Position++
	p.Of++
	return p
}
