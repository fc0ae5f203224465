package api

import (
	"context"
	"net/http"

	"github.com/ax-scheduler/ax/internal/auth"
	"github.com/ax-scheduler/ax/internal/clock"
	"github.com/ax-scheduler/ax/internal/registry"
	"github.com/ax-scheduler/ax/internal/store"
	"github.com/ax-scheduler/ax/server/httpx"
)

type handlerView struct {
	Name string `json:"name"`
	Kind string `json:"kind"`
}

type executorView struct {
	ID             string            `json:"id"`
	App            string            `json:"app"`
	Address        string            `json:"address"`
	State          string            `json:"state" enum:"PENDING,ONLINE,SUSPECT,OFFLINE,DRAINING,REFUSED"`
	Reason         *reasonView       `json:"reason,omitempty"`
	HeartbeatAgeMs int64             `json:"heartbeatAgeMs"`
	Labels         map[string]string `json:"labels"`
	CPU            int               `json:"cpu"`
	MemoryMB       int64             `json:"memoryMB"`
	Slots          int               `json:"slots"`
	Running        int               `json:"running" doc:"executions that it was given and has not reported"`
	Handlers       []handlerView     `json:"handlers"`
	SDK            string            `json:"sdk"`
	RegisteredAt   string            `json:"registeredAt"`
	StartID        string            `json:"startId"`
	Drain          *drainView        `json:"drain,omitempty" doc:"there while an operator keeps it from new work"`
}

type drainView struct {
	At     string `json:"at"`
	By     string `json:"by"`
	Reason string `json:"reason"`
}

type stormView struct {
	App     string `json:"app"`
	Since   string `json:"since"`
	Held    int    `json:"held" doc:"silent executors whose removal waits"`
	Going   int    `json:"going" doc:"executors of the app that are silent or were removed within the window"`
	All     int    `json:"all" doc:"executors of the app"`
	Running int    `json:"running" doc:"executions that are left to them meanwhile"`
}

type stormsView struct {
	Items []stormView `json:"items" doc:"apps too many of whose executors went at once: they are not removed, and what they run is not started elsewhere"`
	// Redispatch is of this server, over all namespaces.
	Redispatch redispatchView `json:"redispatch"`
}

type redispatchView struct {
	Limit   int `json:"limit" doc:"how many executions whose lease lapsed move in a minute; 0 = no limit"`
	Waiting int `json:"waiting" doc:"how many wait because of the limit"`
}

// ExecutorPath is an executor of a namespace.
type ExecutorPath struct {
	NamespacePath
	ID string `path:"id" maxLength:"20"`
}

type drainInput struct {
	ExecutorPath
	Body struct {
		Reason string `json:"reason" minLength:"1" maxLength:"500" doc:"why; shown to everybody who looks"`
	}
}

type letGoInput struct {
	NamespacePath
	Body struct {
		App    string `json:"app" maxLength:"64"`
		Reason string `json:"reason" minLength:"1" maxLength:"500" doc:"how it is known that they are gone"`
	}
}

type letGoView struct {
	Released int `json:"released" doc:"executors that were held"`
}

type executorsInput struct {
	NamespacePath
	App   string `query:"app" maxLength:"64"`
	State string `query:"state" enum:"PENDING,ONLINE,SUSPECT,OFFLINE,DRAINING,REFUSED"`
}

func (a *API) executors() {
	const executors = "/api/v1/namespaces/{namespace}/executors"
	add(a, http.MethodGet, executors, "listExecutors", "Executors of a namespace", atOwner.of(inNamespace(auth.ExecutorRead)), a.listExecutors)
	add(a, http.MethodPost, executors+"/{id}/drain", "drainExecutor", "Keep an executor's address from new work; what it runs goes on", inNamespace(auth.ExecutorPause), a.drainExecutor)
	add(a, http.MethodPost, executors+"/{id}/undrain", "undrainExecutor", "Let an executor work again", inNamespace(auth.ExecutorPause), a.undrainExecutor)
	add(a, http.MethodGet, executors+"/storm", "listStorms", "Apps too many of whose executors went at once", atOwner.of(inNamespace(auth.ExecutorRead)), a.listStorms)
	add(a, http.MethodPost, executors+"/storm/release", "releaseStorm", "Say that an app's silent executors are really gone", inNamespace(auth.ExecutorPause), a.releaseStorm)
}

func (a *API) listExecutors(ctx context.Context, in *executorsInput) (*body[list[executorView]], error) {
	out := list[executorView]{Items: []executorView{}}
	for _, x := range a.Registry.List(nsOf(ctx).ID) {
		state, _ := x.Shown()
		if in.App != "" && x.AppName != in.App || in.State != "" && state != in.State {
			continue
		}
		out.Items = append(out.Items, a.viewOfExecutor(x))
	}
	return &body[list[executorView]]{out}, nil
}

func (a *API) viewOfExecutor(x registry.Executor) executorView {
	state, reason := x.Shown()
	v := executorView{
		ID: id(x.ID), App: x.AppName, Address: x.Address, State: state, Reason: reasonOf(reason, x.DrainReason), Labels: x.Labels, CPU: x.CPU, MemoryMB: x.MemoryMB, Slots: x.Slots, Running: x.Busy,
		Handlers: []handlerView{}, SDK: x.SDK, RegisteredAt: stamp(x.RegisteredAt), StartID: x.StartID, HeartbeatAgeMs: x.Age().Milliseconds(),
	}
	if x.State == store.ExecutorOffline {
		// It is not heard of any more; what is known is when that was noticed.
		v.HeartbeatAgeMs = max(clock.Millis(a.Clock)-x.ChangedAt, 0)
	}
	if v.Labels == nil {
		v.Labels = map[string]string{}
	}
	for _, h := range x.Handlers {
		v.Handlers = append(v.Handlers, handlerView{h.Name, h.Kind})
	}
	if x.DrainedAt > 0 {
		v.Drain = &drainView{At: stamp(x.DrainedAt), By: x.DrainedBy, Reason: x.DrainReason}
	}
	return v
}

func (a *API) drainExecutor(ctx context.Context, in *drainInput) (*body[executorView], error) {
	return a.drain(ctx, in.ID, clock.Millis(a.Clock), in.Body.Reason)
}

func (a *API) undrainExecutor(ctx context.Context, in *ExecutorPath) (*body[executorView], error) {
	return a.drain(ctx, in.ID, 0, "")
}

// drain keeps an executor from new work since a moment, or lets it work again (0).
func (a *API) drain(ctx context.Context, text string, since int64, reason string) (*body[executorView], error) {
	n, err := parseID(text)
	if err != nil {
		return nil, err
	}
	x, ok := a.Registry.Executor(n)
	if !ok || x.NSID != nsOf(ctx).ID {
		return nil, store.ErrNotFound
	}
	told := func(e store.Executor) map[string]any {
		return map[string]any{"drained": e.DrainedAt > 0, "reason": e.DrainReason}
	}
	e := x.Executor
	e.DrainedAt, e.DrainedBy, e.DrainReason = since, "", reason
	if since > 0 {
		e.DrainedBy = httpx.CallerOf(ctx).Principal.Name
	}
	entry, err := a.entry(ctx, auth.ExecutorPause, "executor", x.ID, x.Address, told(x.Executor), told(e))
	if err != nil {
		return nil, err
	}
	if err := a.Registry.Drain(ctx, e, entry); err != nil {
		return nil, err
	}
	if x, ok = a.Registry.Executor(n); !ok {
		return nil, store.ErrNotFound
	}
	return &body[executorView]{a.viewOfExecutor(x)}, nil
}

func (a *API) listStorms(ctx context.Context, _ *NamespacePath) (*body[stormsView], error) {
	out := stormsView{Items: []stormView{}}
	for _, s := range a.Registry.Storms(nsOf(ctx).ID) {
		out.Items = append(out.Items, stormView{App: s.AppName, Since: stamp(s.Since), Held: s.Held, Going: s.Going, All: s.All, Running: s.Running})
	}
	out.Redispatch.Limit, out.Redispatch.Waiting = a.Registry.Redispatch()
	return &body[stormsView]{out}, nil
}

func (a *API) releaseStorm(ctx context.Context, in *letGoInput) (*body[letGoView], error) {
	app, err := a.Store.AppByName(ctx, nsOf(ctx).ID, in.Body.App)
	if err != nil {
		return nil, err
	}
	entry, err := a.entry(ctx, auth.ExecutorPause, "app", app.ID, app.Name, nil, map[string]any{"storm": "released", "reason": in.Body.Reason})
	if err != nil {
		return nil, err
	}
	if err := a.Store.Audit(ctx, entry); err != nil {
		return nil, err
	}
	return &body[letGoView]{letGoView{a.Registry.LetGo(app.ID)}}, nil
}
