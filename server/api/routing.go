package api

import (
	"context"
	"errors"
	"fmt"
	"net/http"

	"github.com/ax-scheduler/ax/internal/auth"
	"github.com/ax-scheduler/ax/internal/clock"
	"github.com/ax-scheduler/ax/internal/job"
	"github.com/ax-scheduler/ax/internal/ready"
	"github.com/ax-scheduler/ax/internal/registry"
	"github.com/ax-scheduler/ax/internal/routing"
	"github.com/ax-scheduler/ax/internal/store"
	"github.com/ax-scheduler/ax/server/httpx"
)

// Where an explanation comes from.
const (
	choiceWritten    = "written"    // kept with the execution: it waited, or its first choice could not have it
	choiceRemembered = "remembered" // in the memory of the server that chose, for a while
	choiceNow        = "now"        // computed again, from the executors of now
)

type candidateView struct {
	Executor executorRef        `json:"executor"`
	Place    int                `json:"place" doc:"in the order of preference, from 1; 0 = passed over"`
	Chosen   bool               `json:"chosen"`
	Reason   *reasonView        `json:"reason,omitempty" doc:"why it was passed over"`
	Terms    map[string]float64 `json:"terms,omitempty" doc:"the numbers that ordered it"`
}

type choiceView struct {
	Source     string          `json:"source" enum:"written,remembered,now"`
	Strategy   string          `json:"strategy"`
	WaitedMs   int64           `json:"waitedMs" doc:"for its turn, before the choice"`
	Candidates []candidateView `json:"candidates" doc:"in the order of preference, then those that were passed over"`
	More       int             `json:"more" doc:"candidates that are not listed"`
}

type shardView struct {
	Shard    int          `json:"shard"`
	Executor *executorRef `json:"executor,omitempty"`
}

type simulationView struct {
	ShardTotal int         `json:"shardTotal"`
	Shards     []shardView `json:"shards" doc:"where each would go now; at most 200"`
	Choice     choiceView  `json:"choice" doc:"of the first shard"`
}

type simulateInput struct {
	JobPath
	Body *struct {
		Params *paramText `json:"params,omitempty" doc:"default: the job's"`
	}
}

type simulateNewInput struct {
	NamespacePath
	Body struct {
		Job JobBody `json:"job" doc:"as it would be saved"`
	}
}

func (a *API) routing() {
	add(a, http.MethodPost, "/api/v1/namespaces/{namespace}/jobs/{id}/routing/simulate", "simulateRouting", "Which executors a job would run on now, without running it", inNamespace(auth.JobRead), a.simulate)
	add(a, http.MethodPost, "/api/v1/namespaces/{namespace}/routing/simulate", "simulateNewRouting", "The same for a definition that is not saved", inNamespace(auth.JobRead), a.simulateNew)
}

// choice explains why an execution went where it went. kept is the explanation that was written with it, if any.
func (a *API) choice(ctx context.Context, e store.Attempt, kept string) (*choiceView, error) {
	if e.WorkerID == 0 {
		return nil, nil //nolint:nilnil // nothing was chosen yet
	}
	source := choiceWritten
	explanation, err := routing.ParseExplanation(kept)
	if kept == "" || err != nil {
		var known bool
		source = choiceRemembered
		if explanation, known = a.Explain(e.ID); !known {
			source = choiceNow
			if explanation, err = a.chooseAgain(ctx, e); errors.Is(err, store.ErrNotFound) {
				return nil, nil //nolint:nilnil // the definition is gone, and with it what could be said
			} else if err != nil {
				return nil, err
			}
		}
	}
	v := viewOfChoice(explanation, source, e.WorkerID)
	return &v, nil
}

// chooseAgain computes a choice from the executors of now.
func (a *API) chooseAgain(ctx context.Context, e store.Attempt) (routing.Explanation, error) {
	ns := nsOf(ctx)
	heads, err := a.Store.BatchHeads(ctx, map[string]int{e.BatchID: e.Day})
	if err != nil {
		return routing.Explanation{}, err
	}
	head, ok := heads[e.BatchID]
	if !ok {
		return routing.Explanation{}, store.ErrNotFound
	}
	b, err := a.Outcome.Batch(ctx, head, ns.Bucket)
	if err != nil {
		return routing.Explanation{}, err
	}
	request, candidates := a.offer(&ready.Execution{Batch: b, Shard: e.Shard})
	return a.Router.Explain(request, candidates, a.Router.Pick(request, candidates)), nil
}

func (a *API) offer(e *ready.Execution) (routing.Request, []routing.Candidate) {
	candidates, _, _ := a.Registry.Candidates(registry.Want{AppID: e.Batch.AppID, JobID: e.Batch.JobID, Handler: e.Batch.Def.Handler})
	return e.Request(), candidates
}

func viewOfChoice(e routing.Explanation, source string, chosen int64) choiceView {
	v := choiceView{Source: source, Strategy: e.Strategy, WaitedMs: e.WaitedMs, More: e.More, Candidates: []candidateView{}}
	for _, c := range e.Candidates {
		v.Candidates = append(v.Candidates, candidateView{Executor: executorRef{id(c.ID), c.Address}, Place: c.Place, Chosen: c.ID == chosen, Reason: barOf(c.Barred, c.Detail), Terms: c.Terms})
	}
	return v
}

func (a *API) simulate(ctx context.Context, in *simulateInput) (*body[simulationView], error) {
	j, err := a.jobOf(ctx, in.ID)
	if err != nil {
		return nil, err
	}
	params := j.Definition.Params
	if in.Body != nil && in.Body.Params != nil {
		params = string(*in.Body.Params)
	}
	if len(params) > job.MaxParams {
		return nil, httpx.Invalid(ctx, "too_long", "params", "", fmt.Sprintf("At most %d bytes; got %d.", job.MaxParams, len(params)), fmt.Sprintf("最多 %d 字节，当前 %d 字节。", job.MaxParams, len(params)))
	}
	return &body[simulationView]{a.simulated(j.Definition, j.ID, j.AppID, params)}, nil
}

func (a *API) simulateNew(ctx context.Context, in *simulateNewInput) (*body[simulationView], error) {
	d, _, err := a.definition(ctx, in.Body.Job, 0)
	if err != nil {
		return nil, err
	}
	app, err := a.app(ctx, nsOf(ctx).ID, d.App)
	if err != nil {
		return nil, err
	}
	return &body[simulationView]{a.simulated(d, 0, app.ID, d.Params)}, nil
}

// maxSimulated bounds the shards that a simulation lists.
const maxSimulated = 200

// simulated chooses as dispatch would for a firing at this moment, shard after shard.
func (a *API) simulated(d job.Definition, jobID, appID int64, params string) simulationView {
	b := &ready.Batch{JobID: jobID, AppID: appID, Def: &d, Params: params, Turn: uint64(clock.Millis(a.Clock) / 1000)}
	b.Total = a.Trigger.Total(b)
	v := simulationView{ShardTotal: b.Total, Shards: []shardView{}}
	_, candidates := a.offer(&ready.Execution{Batch: b})
	load := b.Load()
	for shard := range min(b.Total, maxSimulated) {
		request := (&ready.Execution{Batch: b, Shard: shard}).Request()
		choice := a.Router.Pick(request, candidates)
		if shard == 0 {
			chosen := int64(0)
			if len(choice.Order) > 0 {
				chosen = choice.Order[0]
			}
			v.Choice = viewOfChoice(a.Router.Explain(request, candidates, choice), choiceNow, chosen)
		}
		one := shardView{Shard: shard}
		if len(choice.Order) > 0 {
			for i := range candidates {
				c := &candidates[i]
				if c.ID != choice.Order[0] {
					continue
				}
				one.Executor = &executorRef{id(c.ID), c.Address}
				// The next shard finds this one there.
				c.Busy, c.Same, c.Used = c.Busy+1, c.Same+1, c.Used+1
				c.UsedCPU, c.UsedMemory, c.UsedSlots = c.UsedCPU+load.CPUMilli, c.UsedMemory+load.MemoryMB, c.UsedSlots+max(load.Slots, 1)
			}
		}
		v.Shards = append(v.Shards, one)
	}
	return v
}
