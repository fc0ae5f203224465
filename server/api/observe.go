package api

import (
	"context"
	"encoding/json"
	"net/http"

	"github.com/ax-scheduler/ax/internal/auth"
	"github.com/ax-scheduler/ax/internal/batch"
	"github.com/ax-scheduler/ax/internal/clock"
	"github.com/ax-scheduler/ax/internal/store"
)

type summaryView struct {
	Jobs            int64    `json:"jobs"`
	JobsEnabled     int64    `json:"jobsEnabled"`
	Running         int64    `json:"running"`
	Queued          int64    `json:"queued" doc:"due and waiting for an executor or their turn"`
	Succeeded1h     int64    `json:"succeeded1h"`
	Failed1h        int64    `json:"failed1h"`
	Missed1h        int64    `json:"missed1h"`
	Skipped1h       int64    `json:"skipped1h"`
	ExecutorsOnline int      `json:"executorsOnline"`
	ExecutorsTotal  int      `json:"executorsTotal"`
	TriggerErrorP99 *float64 `json:"triggerErrorP99Ms" nullable:"true" doc:"of this server since its start, upper bound of the histogram's bucket"`
}

func (a *API) observe() {
	add(a, http.MethodGet, "/api/v1/namespaces/{namespace}/summary", "summary", "How a namespace is doing", atOwner.of(inNamespace(auth.JobRead)), a.summary)
}

func (a *API) summary(ctx context.Context, _ *NamespacePath) (*body[summaryView], error) {
	ns := nsOf(ctx).ID
	var v summaryView
	var err error
	if v.Jobs, v.JobsEnabled, err = a.Store.CountJobs(ctx, ns); err != nil {
		return nil, err
	}
	counts, err := a.Store.CountBatches(ctx, ns, a.since(), clock.Millis(a.Clock))
	if err != nil {
		return nil, err
	}
	for _, c := range counts {
		switch batch.State(c.State) {
		case batch.Succeeded:
			v.Succeeded1h += c.Count
		case batch.Failed, batch.TimedOut:
			v.Failed1h += c.Count
		case batch.Missed:
			v.Missed1h += c.Count
		case batch.Skipped:
			v.Skipped1h += c.Count
		case batch.Dispatching, batch.Running, batch.Unknown:
			v.Running += c.Count
		case batch.Delayed, batch.Ready, batch.Waiting:
			v.Queued += c.Count
		case batch.Cancelled:
		}
	}
	for _, x := range a.Registry.List(ns) {
		if x.State == store.ExecutorOffline {
			continue
		}
		v.ExecutorsTotal++
		if x.State == store.ExecutorOnline {
			v.ExecutorsOnline++
		}
	}
	if p99, ok := a.Metrics.LatenessQuantile(0.99); ok {
		ms := p99 * 1000
		v.TriggerErrorP99 = &ms
	}
	return &body[summaryView]{v}, nil
}

// listAudit shows entries of the namespaces where the caller has the right to read them;
// the platform's own entries need the right on the platform.

func raw(s *string) *json.RawMessage {
	if s == nil {
		return nil
	}
	r := json.RawMessage(*s)
	return &r
}
