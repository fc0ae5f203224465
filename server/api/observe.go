package api

import (
	"context"
	"encoding/json"
	"net/http"

	"github.com/ax-scheduler/ax/internal/auth"
	"github.com/ax-scheduler/ax/internal/batch"
	"github.com/ax-scheduler/ax/internal/clock"
	"github.com/ax-scheduler/ax/internal/store"
	"github.com/ax-scheduler/ax/server/httpx"
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

type actorView struct {
	Type string `json:"type"`
	ID   string `json:"id"`
	Name string `json:"name"`
}

type objectView struct {
	Type string `json:"type"`
	ID   string `json:"id"`
	Name string `json:"name"`
}

type auditView struct {
	ID        string           `json:"id"`
	At        string           `json:"at"`
	Namespace string           `json:"namespace" doc:"empty = the platform"`
	Actor     actorView        `json:"actor"`
	IP        string           `json:"ip"`
	Action    string           `json:"action"`
	Object    objectView       `json:"object"`
	Outcome   string           `json:"outcome"`
	RequestID string           `json:"requestId"`
	Before    *json.RawMessage `json:"before,omitempty"`
	After     *json.RawMessage `json:"after,omitempty"`
	Diff      []diffView       `json:"diff"`
}

type diffView struct {
	Op    string           `json:"op"`
	Path  string           `json:"path"`
	From  *json.RawMessage `json:"from,omitempty"`
	Value *json.RawMessage `json:"value,omitempty"`
}

type auditInput struct {
	Page
	Namespace string `query:"namespace" maxLength:"64"`
	Actor     string `query:"actor" maxLength:"128"`
	Action    string `query:"action" maxLength:"64"`
	Object    string `query:"object" maxLength:"128" doc:"id or name"`
	From      string `query:"from"`
	To        string `query:"to"`
}

func (a *API) observe() {
	add(a, http.MethodGet, "/api/v1/namespaces/{namespace}/summary", "summary", "How a namespace is doing", atOwner.of(inNamespace(auth.JobRead)), a.summary)
	add(a, http.MethodGet, "/api/v1/audit", "listAudit", "The audit trail of the namespaces where I may read it, newest first", self(), a.listAudit)
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
func (a *API) listAudit(ctx context.Context, in *auditInput) (*body[list[auditView]], error) {
	p := httpx.CallerOf(ctx).Principal
	all, err := a.Store.Namespaces(ctx)
	if err != nil {
		return nil, err
	}
	f := store.AuditFilter{Actor: in.Actor, Action: in.Action, Object: in.Object, Limit: in.Limit + 1, NS: []int64{}}
	name := map[int64]string{}
	for _, n := range all {
		name[n.ID] = n.Name
		if a.Auth.Allowed(p, n.ID, auth.AuditRead) && (in.Namespace == "" || in.Namespace == n.Name) {
			f.NS = append(f.NS, n.ID)
		}
	}
	if a.Auth.Allowed(p, 0, auth.AuditRead) && in.Namespace == "" {
		f.NS = append(f.NS, 0)
	}
	if in.Namespace != "" && len(f.NS) == 0 {
		return nil, store.ErrNotFound
	}
	if f.From, err = parseTime(ctx, "from", in.From); err != nil {
		return nil, err
	}
	if f.To, err = parseTime(ctx, "to", in.To); err != nil {
		return nil, err
	}
	if err := openCursor(ctx, in.Cursor, &f.Before); err != nil {
		return nil, err
	}
	rows, err := a.Store.AuditTrail(ctx, f)
	if err != nil {
		return nil, err
	}
	out := list[auditView]{Items: []auditView{}}
	if len(rows) > in.Limit {
		rows = rows[:in.Limit]
		out.NextCursor = cursor(rows[len(rows)-1].ID)
	}
	for _, e := range rows {
		v := auditView{
			ID: id(e.ID), At: stamp(e.At), Namespace: name[e.NSID], Actor: actorView{e.ActorType, e.ActorID, e.ActorName}, IP: e.IP, Action: e.Action,
			Object: objectView{e.ObjectType, e.ObjectID, e.ObjectName}, Outcome: e.Outcome, RequestID: e.RequestID, Before: raw(e.BeforeJSON), After: raw(e.AfterJSON), Diff: []diffView{},
		}
		if e.DiffJSON != nil {
			_ = json.Unmarshal([]byte(*e.DiffJSON), &v.Diff)
		}
		out.Items = append(out.Items, v)
	}
	return &body[list[auditView]]{out}, nil
}

func raw(s *string) *json.RawMessage {
	if s == nil {
		return nil
	}
	r := json.RawMessage(*s)
	return &r
}
