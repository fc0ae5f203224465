package dispatch

import (
	"context"
	"log/slog"
	"sync"

	"github.com/ax-scheduler/ax/internal/ready"
	"github.com/ax-scheduler/ax/internal/routing"
)

const (
	// rememberedChoices bounds the latest choices that are kept in memory, and rememberedWidth the candidates of each.
	rememberedChoices = 4096
	rememberedWidth   = 64
	// keptPerSecond bounds the explanations that are written in a second: when all waits, one like the other tells
	// the same, and the database has enough to do.
	keptPerSecond = 100
	// explanationBytes is how long a written explanation may be.
	explanationBytes = 3900
)

// remembered is a choice as memory keeps it: what is needed to explain it, without the executors' own data.
type remembered struct {
	id       int64
	strategy string
	choice   *routing.Choice
	waited   int64
}

// reasons are the latest choices.
type reasons struct {
	mu     sync.Mutex
	ring   []remembered
	oldest int
	place  map[int64]int

	second, kept int64
}

func (d *Dispatch) remember(e *ready.Execution, choice *routing.Choice, waited int64) {
	if choice == nil || len(choice.Order)+len(choice.Filtered) > rememberedWidth {
		return
	}
	r := &d.reasons
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.place == nil {
		r.place = make(map[int64]int, rememberedChoices)
		r.ring = make([]remembered, rememberedChoices)
	}
	delete(r.place, r.ring[r.oldest].id)
	r.ring[r.oldest] = remembered{e.ID, e.Batch.Def.Routing.Strategy, choice, waited}
	r.place[e.ID] = r.oldest
	r.oldest = (r.oldest + 1) % rememberedChoices
}

// explained remembers a choice, tells it where somebody listens, and returns the explanation that is to be kept for
// good: of an execution that waited, or whose first choice could not have it.
func (d *Dispatch) explained(e *ready.Execution, request routing.Request, candidates []routing.Candidate, choice routing.Choice, now int64) string {
	waited := now - e.ReadyAt
	d.remember(e, &choice, waited)
	debug := d.log.Enabled(context.Background(), slog.LevelDebug)
	keep := waited >= noteAfter
	for _, bar := range choice.Filtered {
		keep = keep || routing.Passing(bar)
	}
	if keep = keep && d.reasons.mayKeep(now/1000); !keep && !debug {
		return ""
	}
	explanation := d.router.Explain(request, candidates, choice)
	explanation.WaitedMs = waited
	if debug {
		d.log.Debug("executor chosen", slog.String("batch_id", e.Batch.ID), slog.Int64("execution_id", e.ID), slog.Any("choice", explanation))
	}
	if !keep {
		return ""
	}
	text, err := explanation.Keep(explanationBytes)
	if err != nil {
		return ""
	}
	return text
}

// mayKeep counts what is written in a second.
func (r *reasons) mayKeep(second int64) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	if second != r.second {
		r.second, r.kept = second, 0
	}
	r.kept++
	return r.kept <= keptPerSecond
}

// Explain tells how the executor of an execution was chosen, if that was lately.
func (d *Dispatch) Explain(execution int64) (routing.Explanation, bool) {
	d.reasons.mu.Lock()
	i, ok := d.reasons.place[execution]
	var m remembered
	if ok {
		m = d.reasons.ring[i]
	}
	d.reasons.mu.Unlock()
	if !ok {
		return routing.Explanation{}, false
	}
	var candidates []routing.Candidate
	add := func(id int64) {
		c := routing.Candidate{ID: id}
		if x, known := d.registry.Executor(id); known {
			c.Address = x.Address
		}
		candidates = append(candidates, c)
	}
	for _, id := range m.choice.Order {
		add(id)
	}
	for id := range m.choice.Filtered {
		add(id)
	}
	out := d.router.Explain(routing.Request{Strategy: m.strategy}, candidates, *m.choice)
	for i := range out.Candidates {
		out.Candidates[i].Terms = nil // those of then are not known any more
	}
	out.WaitedMs = m.waited
	return out, true
}
