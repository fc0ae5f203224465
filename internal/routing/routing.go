// Package routing decides which executor runs an execution, and says why.
//
// It sees candidates that package registry holds for alive and knows nothing of
// networks. What may not run it is filtered out (state, labels, address, capacity, rule), a strategy
// orders the rest; the caller takes the first.
package routing

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"maps"
	"slices"
	"sort"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/ax-scheduler/ax/internal/filter"
	"github.com/ax-scheduler/ax/internal/message"
)

// Why an executor is passed over. The console has a sentence for each in both languages.
const (
	BarSuspect  = "suspect"
	BarDraining = "draining"
	BarOffline  = "not_online"
	BarHandler  = "no_handler"
	BarFull     = "full"
	BarBefore   = "refused_before"
	BarLimit    = "executor_limit"
	BarSelector = "selector_not_met"
	BarRule     = "rule_not_met"
	BarRuleErr  = "rule_failed"
	BarRuleTime = "rule_too_slow"
	BarCPU      = "too_little_cpu"
	BarMemory   = "too_little_memory"
	BarSlots    = "too_few_slots"
)

// Bars lists every reason why an executor is passed over.
func Bars() []string {
	return []string{BarSuspect, BarDraining, BarOffline, BarHandler, BarFull, BarBefore, BarLimit, BarSelector, BarRule, BarRuleErr, BarRuleTime, BarCPU, BarMemory, BarSlots}
}

// Passing tells whether a reason is one of the moment, which an executor that is barred for it may be over
// in a second: its load, not what it is.
func Passing(bar string) bool {
	switch bar {
	case BarSuspect, BarFull, BarBefore, BarLimit, BarCPU, BarMemory, BarSlots, BarRuleTime:
		return true
	}
	return false
}

// Needs is what one execution takes of its executor, as its job declares it; 0 = not declared.
type Needs struct {
	CPUMilli int64 // thousandths of a core
	MemoryMB int64
	Slots    int
}

// Any tells whether anything is declared.
func (n Needs) Any() bool { return n != Needs{} }

// Load is what an execution counts for on the executor that has it.
type Load struct {
	Handler string
	Needs
}

// Candidate is an executor as routing sees it.
type Candidate struct {
	ID      int64
	Address string
	Labels  map[string]string
	Slots   int // capacity: how many executions it takes at once, queue included
	Busy    int // how many of ours it has
	Same    int // how many of those are of the handler that is asked for
	// What it registered, and what the executions that it has declared of that.
	CPUMilli, MemoryMB  int64
	UsedCPU, UsedMemory int64
	UsedSlots           int
	// Used and LastUsed are this job's: how often and when it last went there.
	Used     int64
	LastUsed int64 // milliseconds, 0 = never
	// Barred says why it may not be taken now ("" = it may).
	Barred string
}

// Request is what one execution wants.
type Request struct {
	Strategy string
	Turn     uint64 // this job's count of firings so far; round robin and random start from it
	Key      string // what consistentHash places
	Shard    int
	Total    int
	Selector string
	Rule     string
	Needs    Needs
	// MostOnApp and MostOnHandler bound what one executor may have at once of all and of this handler; 0 = no bound.
	MostOnApp, MostOnHandler int
	// What a rule sees of the job.
	JobID   int64
	JobName string
	Handler string
	Params  string
}

// Choice is a decision: the candidates in the order of preference, and those that were filtered out with the reason.
type Choice struct {
	Order    []int64
	Filtered map[int64]string
	details  map[int64]string
	ranks    map[int64]float64
}

// Sum counts those that were filtered out by reason, such as "full 2, selector_not_met 1".
func (c Choice) Sum() string {
	counts := map[string]int{}
	for _, bar := range c.Filtered {
		counts[bar]++
	}
	var parts []string
	for _, bar := range slices.Sorted(maps.Keys(counts)) {
		parts = append(parts, bar+" "+strconv.Itoa(counts[bar]))
	}
	return strings.Join(parts, ", ")
}

// Strategy orders executors. To add one, write it in a file of its own and hand it to New.
type Strategy struct {
	Name string
	// Text says in a sentence what it does.
	Text message.Text
	// Order returns the free candidates, best first. They come sorted by id, that is by the order of
	// registration, which is stable over restarts of the server, and may be changed in place.
	Order func(r Request, free []Candidate) []Candidate
	// Term is the number by which it orders, for explanations; nil when there is none.
	Term func(r Request, c Candidate) float64
	// TermName names that number.
	TermName string
	// Loads says that it looks at load or use, so that it may choose otherwise a second later.
	Loads bool
}

// Router holds the strategies. It is safe for concurrent use.
type Router struct {
	table map[string]Strategy
	names []string

	mu        sync.RWMutex
	selectors map[string]*Selector
	rules     map[string]*filter.Rule
}

const (
	// maxCompiled bounds the selectors and the rules that are kept compiled.
	maxCompiled = 10_000
	// ruleTime bounds the evaluation of a rule on all candidates of one execution.
	ruleTime = 5 * time.Millisecond
)

// New makes a router with every strategy, and further ones. One that has the name of another takes its place.
func New(further ...Strategy) *Router {
	r := &Router{table: map[string]Strategy{}, selectors: map[string]*Selector{}, rules: map[string]*filter.Rule{}}
	for _, s := range append(strategies(), further...) {
		r.table[s.Name] = s
	}
	for name := range r.table {
		r.names = append(r.names, name)
	}
	sort.Strings(r.names)
	return r
}

// Strategies lists the names, sorted.
func (r *Router) Strategies() []string { return r.names }

// Steady tells whether a request is answered the same a second earlier: nothing in it looks at
// load or use.
func (r *Router) Steady(req Request) bool {
	return !r.table[req.Strategy].Loads && req.Rule == "" && !req.Needs.Any() && req.MostOnApp == 0 && req.MostOnHandler == 0
}

// Pick orders the candidates for one execution, best first. An empty order means
// that nobody can take it now; Filtered then says why for each candidate. The candidates
// may come in any order and are not changed. An unknown strategy orders like roundRobin.
func (r *Router) Pick(req Request, candidates []Candidate) Choice {
	free := make([]Candidate, 0, len(candidates))
	choice := Choice{}
	judge, done := r.judge(req)
	defer done()
	for _, c := range candidates {
		bar, detail, rank, ranked := c.Barred, "", 0.0, false
		if bar == "" {
			bar, detail, rank, ranked = judge(c)
		}
		if bar != "" {
			if choice.Filtered == nil {
				choice.Filtered = map[int64]string{}
			}
			choice.Filtered[c.ID] = bar
			if detail != "" {
				if choice.details == nil {
					choice.details = map[int64]string{}
				}
				choice.details[c.ID] = detail
			}
			continue
		}
		if ranked {
			if choice.ranks == nil {
				choice.ranks = map[int64]float64{}
			}
			choice.ranks[c.ID] = rank
		}
		free = append(free, c)
	}
	if len(free) == 0 {
		return choice
	}
	slices.SortFunc(free, func(a, b Candidate) int { return cmp.Compare(a.ID, b.ID) })
	free = r.strategy(req.Strategy).Order(req, free)
	if choice.ranks != nil {
		// The rule's number first; the strategy orders equals.
		slices.SortStableFunc(free, func(a, b Candidate) int { return cmp.Compare(choice.ranks[b.ID], choice.ranks[a.ID]) })
	}
	choice.Order = make([]int64, len(free))
	for i, c := range free {
		choice.Order[i] = c.ID
	}
	return choice
}

func (r *Router) strategy(name string) Strategy {
	if s, ok := r.table[name]; ok {
		return s
	}
	return r.table[RoundRobin]
}

// judge makes the filter of a request: why an executor is passed over, and the rank that a rule gives it. What it
// made is let go by done.
func (r *Router) judge(req Request) (f func(c Candidate) (bar, detail string, rank float64, ranked bool), done func()) {
	selector := r.selector(req.Selector)
	rule := r.rule(req.Rule)
	var ctx context.Context
	var job map[string]any
	var params any
	done = func() {}
	if rule != nil {
		ctx, done = context.WithTimeout(context.Background(), ruleTime)
		job = map[string]any{"id": req.JobID, "name": req.JobName, "handler": req.Handler}
		if json.Unmarshal([]byte(req.Params), &params) != nil {
			params = req.Params
		}
	}
	return func(c Candidate) (string, string, float64, bool) {
		if selector != nil {
			if unmet, ok := selector.Matches(c); !ok {
				return BarSelector, unmet, 0, false
			}
		}
		switch {
		case req.MostOnApp > 0 && c.Busy >= req.MostOnApp, req.MostOnHandler > 0 && c.Same >= req.MostOnHandler:
			return BarLimit, "", 0, false
		case req.Needs.CPUMilli > c.CPUMilli-c.UsedCPU && req.Needs.CPUMilli > 0:
			return BarCPU, "", 0, false
		case req.Needs.MemoryMB > c.MemoryMB-c.UsedMemory && req.Needs.MemoryMB > 0:
			return BarMemory, "", 0, false
		case req.Needs.Slots > c.Slots-c.UsedSlots && req.Needs.Slots > 0:
			return BarSlots, "", 0, false
		}
		if rule == nil {
			return "", "", 0, false
		}
		if ctx.Err() != nil {
			return BarRuleTime, "", 0, false
		}
		v, err := rule.Judge(ctx, map[string]any{"executor": sight(c), "job": job, "params": params, "shard": int64(req.Shard), "total": int64(req.Total)})
		switch {
		case err != nil && ctx.Err() != nil:
			return BarRuleTime, "", 0, false
		case err != nil:
			return BarRuleErr, strings.TrimPrefix(err.Error(), filter.ErrFailed.Error()+": "), 0, false
		case !v.Passes:
			return BarRule, "", 0, false
		}
		return "", "", v.Rank, v.Ranks
	}, done
}

// sight is what a rule sees of an executor.
func sight(c Candidate) map[string]any {
	labels := c.Labels
	if labels == nil {
		labels = map[string]string{}
	}
	return map[string]any{
		"id": c.ID, "address": c.Address, "host": hostOf(c.Address), "labels": labels, "slots": int64(c.Slots), "busy": int64(c.Busy), "cpu": float64(c.CPUMilli) / 1000, "memoryMB": c.MemoryMB,
		"freeCpu": float64(c.CPUMilli-c.UsedCPU) / 1000, "freeMemoryMB": c.MemoryMB - c.UsedMemory, "freeSlots": int64(c.Slots - c.UsedSlots), "used": c.Used, "lastUsed": c.LastUsed,
	}
}

// selector returns a selector, compiled; nil when there is none. Definitions are checked when they are saved, so
// one that is not understood is of another release: it lets nobody pass.
func (r *Router) selector(text string) *Selector {
	if text == "" {
		return nil
	}
	return kept(r, r.selectors, text, func() *Selector {
		s, bad := ParseSelector(text)
		if bad != nil {
			return &Selector{terms: []term{{key: text, op: "in"}}}
		}
		return s
	})
}

func (r *Router) rule(text string) *filter.Rule {
	if text == "" {
		return nil
	}
	return kept(r, r.rules, text, func() *filter.Rule {
		rule, bad := filter.CompileRule(text)
		if bad != nil {
			rule, _ = filter.CompileRule("false")
		}
		return rule
	})
}

// kept returns what was made of a text before, or makes it.
func kept[T any](r *Router, table map[string]T, text string, make func() T) T {
	r.mu.RLock()
	v, ok := table[text]
	r.mu.RUnlock()
	if ok {
		return v
	}
	v = make()
	r.mu.Lock()
	defer r.mu.Unlock()
	if len(table) >= maxCompiled {
		clear(table)
	}
	table[text] = v
	return v
}

// CheckSelector refuses a selector that is not understood; nil when it is.
func CheckSelector(text string) *message.Invalid {
	_, bad := ParseSelector(text)
	return bad
}

// CheckRule refuses a rule that is not understood; nil when it is.
func CheckRule(text string) *message.Invalid {
	_, bad := filter.CompileRule(text)
	return bad
}

// Judged is one candidate in an explanation.
type Judged struct {
	ID      int64  `json:"id"`
	Address string `json:"address"`
	// Place is its place in the order of preference, from 1; 0 = it was filtered out.
	Place int `json:"place,omitempty"`
	// Barred is why it was filtered out, with what exactly was not met.
	Barred string `json:"barred,omitempty"`
	Detail string `json:"detail,omitempty"`
	// Terms are the numbers that ordered it.
	Terms map[string]float64 `json:"terms,omitempty"`
}

// Explanation says how a choice came about.
type Explanation struct {
	Strategy   string   `json:"strategy"`
	Candidates []Judged `json:"candidates"`
	// More is how many candidates were left out of the list.
	More int `json:"more,omitempty"`
	// WaitedMs is how long it waited for its turn.
	WaitedMs int64 `json:"waitedMs,omitempty"`
}

// Explain puts a choice of Pick, for the same request and candidates, into an explanation: those that were free in
// the order of preference, then the others.
func (r *Router) Explain(req Request, candidates []Candidate, choice Choice) Explanation {
	s := r.strategy(req.Strategy)
	places := make(map[int64]int, len(choice.Order))
	for i, id := range choice.Order {
		places[id] = i + 1
	}
	out := Explanation{Strategy: s.Name, Candidates: make([]Judged, 0, len(candidates))}
	for _, c := range candidates {
		j := Judged{ID: c.ID, Address: c.Address, Place: places[c.ID], Barred: choice.Filtered[c.ID], Detail: choice.details[c.ID]}
		if j.Place > 0 {
			if s.Term != nil {
				j.Terms = map[string]float64{s.TermName: s.Term(req, c)}
			}
			if rank, ok := choice.ranks[c.ID]; ok {
				if j.Terms == nil {
					j.Terms = map[string]float64{}
				}
				j.Terms["rule"] = rank
			}
		}
		out.Candidates = append(out.Candidates, j)
	}
	slices.SortFunc(out.Candidates, func(a, b Judged) int {
		switch {
		case a.Place == 0 && b.Place == 0:
			return cmp.Compare(a.ID, b.ID)
		case a.Place == 0:
			return 1
		case b.Place == 0:
			return -1
		}
		return cmp.Compare(a.Place, b.Place)
	})
	return out
}

// Keep encodes an explanation in at most limit bytes: of many candidates the last ones are left out.
func (e Explanation) Keep(limit int) (string, error) {
	all := e.Candidates
	for n := min(len(all), 50); n >= 0; n-- {
		e.Candidates, e.More = all[:n], len(all)-n
		raw, err := json.Marshal(e)
		if err != nil {
			return "", err
		}
		if len(raw) <= limit {
			return string(raw), nil
		}
	}
	return "", errors.New("an explanation does not fit")
}

// ParseExplanation reads what Keep made.
func ParseExplanation(text string) (Explanation, error) {
	var e Explanation
	err := json.Unmarshal([]byte(text), &e)
	return e, err
}
