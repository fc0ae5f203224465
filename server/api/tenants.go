package api

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"strings"
	"unicode/utf8"

	"github.com/danielgtaylor/huma/v2"

	"github.com/ax-scheduler/ax/internal/auth"
	"github.com/ax-scheduler/ax/internal/clock"
	"github.com/ax-scheduler/ax/internal/egress"
	"github.com/ax-scheduler/ax/internal/job"
	"github.com/ax-scheduler/ax/internal/protocol"
	"github.com/ax-scheduler/ax/internal/store"
	"github.com/ax-scheduler/ax/server/httpx"
)

type namespaceView struct {
	Name        string   `json:"name"`
	DisplayName string   `json:"displayName"`
	CreatedAt   string   `json:"createdAt"`
	Egress      []string `json:"egress" doc:"address ranges and ports that executors may have; a server that listens on loopback allows loopback besides"`
}

func namespaceOf(n store.Namespace) namespaceView {
	v := namespaceView{Name: n.Name, DisplayName: n.DisplayName, CreatedAt: stamp(n.CreatedAt), Egress: []string{}}
	_ = json.Unmarshal([]byte(n.Egress), &v.Egress)
	return v
}

type namespaceInput struct {
	Body struct {
		Name        string `json:"name" maxLength:"64"`
		DisplayName string `json:"displayName,omitempty" maxLength:"128"`
	}
}

// NamespacePath is the namespace of a path.
type NamespacePath struct {
	Namespace string `path:"namespace" maxLength:"64"`
}

type egressInput struct {
	NamespacePath
	Body struct {
		Allow []string `json:"allow" maxItems:"100" doc:"such as 10.0.0.0/8:9000-9999; * is every port"`
	}
}

// AppView is an app.
type AppView struct {
	Name      string `json:"name"`
	Protocol  string `json:"protocol"`
	CreatedAt string `json:"createdAt"`
	Executors struct {
		Online int `json:"online"`
		Total  int `json:"total"`
	} `json:"executors"`
	Jobs      int64   `json:"jobs"`
	DrainRate float64 `json:"drainRate" doc:"missed firings of all its jobs that are started in a second; 0 = no limit"`
}

type createdAppView struct {
	AppView
	Key string `json:"key" doc:"shown once; executors sign with it"`
}

type appInput struct {
	NamespacePath
	Body struct {
		Name     string `json:"name" maxLength:"64"`
		Protocol string `json:"protocol,omitempty" enum:"ax" default:"ax"`
		// DrainRate is a pointer since 0 is a choice.
		DrainRate *float64 `json:"drainRate,omitempty" doc:"missed firings of all its jobs that are started in a second, 0 to 10000; 0 = no limit; default 100"`
	}
}

func created(op *huma.Operation) { op.DefaultStatus = http.StatusCreated }

func (a *API) tenants() {
	add(a, http.MethodGet, "/api/v1/namespaces", "listNamespaces", "Namespaces that I may see", self(), a.listNamespaces)
	add(a, http.MethodPost, "/api/v1/namespaces", "createNamespace", "Make a namespace", onPlatform(auth.NamespaceCreate), a.createNamespace, created)
	add(a, http.MethodPut, "/api/v1/namespaces/{namespace}/egress", "setEgress", "Say which addresses a namespace's executors may have", onPlatform(auth.EgressUpdate), a.setEgress)
	add(a, http.MethodGet, "/api/v1/namespaces/{namespace}/apps", "listApps", "Apps of a namespace", atOwner.of(inNamespace(auth.AppRead)), a.listApps)
	add(a, http.MethodPut, "/api/v1/namespaces/{namespace}/apps/{app}", "updateApp", "Say how fast what an app's jobs missed is caught up with", inNamespace(auth.AppCreate), a.setAppRate)
	add(a, http.MethodPost, "/api/v1/namespaces/{namespace}/apps", "createApp", "Make an app; its key is shown once", inNamespace(auth.AppCreate), a.createApp, created)
}

func (a *API) listNamespaces(ctx context.Context, _ *empty) (*body[list[namespaceView]], error) {
	all, err := a.Store.Namespaces(ctx)
	if err != nil {
		return nil, err
	}
	out := list[namespaceView]{Items: []namespaceView{}}
	p := httpx.CallerOf(ctx).Principal
	for _, n := range all {
		if a.Auth.Allowed(p, n.ID, auth.NamespaceRead) {
			out.Items = append(out.Items, namespaceOf(n))
		}
	}
	return &body[list[namespaceView]]{out}, nil
}

func (a *API) createNamespace(ctx context.Context, in *namespaceInput) (*body[namespaceView], error) {
	if bad := job.ValidName("name", in.Body.Name); bad != nil {
		return nil, bad
	}
	if strings.TrimSpace(in.Body.DisplayName) == "" {
		in.Body.DisplayName = in.Body.Name
	}
	if !utf8.ValidString(in.Body.DisplayName) {
		return nil, httpx.Invalid(ctx, "not_utf8", "displayName", "", "This is not valid UTF-8 text.", "不是有效的 UTF-8 文本。")
	}
	n := store.Namespace{Name: in.Body.Name, DisplayName: in.Body.DisplayName, Egress: "[]", CreatedAt: clock.Millis(a.Clock)}
	entry, err := a.entry(ctx, auth.NamespaceCreate, "namespace", 0, n.Name, nil, namespaceOf(n))
	if err != nil {
		return nil, err
	}
	if err := a.Store.CreateNamespace(ctx, &n, entry); err != nil {
		return nil, err
	}
	return &body[namespaceView]{namespaceOf(n)}, nil
}

func (a *API) setEgress(ctx context.Context, in *egressInput) (*body[namespaceView], error) {
	n, err := a.Store.NamespaceByName(ctx, in.Namespace)
	if err != nil {
		return nil, err
	}
	rules, err := egress.ParseRules(in.Body.Allow)
	if err != nil {
		return nil, err
	}
	allow := make([]string, len(rules))
	for i, r := range rules {
		allow[i] = r.String()
	}
	before := namespaceOf(n)
	after := before
	after.Egress = allow
	entry, err := a.entry(ctx, auth.EgressUpdate, "namespace", n.ID, n.Name, before, after)
	if err != nil {
		return nil, err
	}
	entry.NSID = n.ID
	if err := a.Store.SetEgress(ctx, n, allow, entry); err != nil {
		return nil, err
	}
	return &body[namespaceView]{after}, nil
}

func (a *API) listApps(ctx context.Context, _ *NamespacePath) (*body[list[AppView]], error) {
	apps, err := a.Store.Apps(ctx, nsOf(ctx).ID)
	if err != nil {
		return nil, err
	}
	executors := a.Registry.List(nsOf(ctx).ID)
	out := list[AppView]{Items: []AppView{}}
	for _, app := range apps {
		v := AppView{Name: app.Name, Protocol: app.Protocol, CreatedAt: stamp(app.CreatedAt), Jobs: app.Jobs, DrainRate: app.DrainRate}
		for _, x := range executors {
			if x.AppID != app.ID || x.State == store.ExecutorOffline {
				continue
			}
			v.Executors.Total++
			if x.State == store.ExecutorOnline {
				v.Executors.Online++
			}
		}
		out.Items = append(out.Items, v)
	}
	return &body[list[AppView]]{out}, nil
}

func (a *API) createApp(ctx context.Context, in *appInput) (*body[createdAppView], error) {
	if bad := job.ValidName("name", in.Body.Name); bad != nil {
		return nil, bad
	}
	ns := nsOf(ctx)
	app := store.App{NSID: ns.ID, Name: in.Body.Name, Protocol: "ax", DrainRate: job.DefaultAppRate, CreatedAt: clock.Millis(a.Clock)}
	if in.Body.DrainRate != nil {
		app.DrainRate = *in.Body.DrainRate
		if bad := job.ValidRate("drainRate", app.DrainRate, 0, job.MaxAppRate); bad != nil {
			return nil, bad
		}
	}
	key, text := protocol.NewKey()
	v := createdAppView{Key: text}
	v.Name, v.Protocol, v.CreatedAt = app.Name, app.Protocol, stamp(app.CreatedAt)
	v.DrainRate = app.DrainRate
	entry, err := a.entry(ctx, auth.AppCreate, "app", 0, app.Name, nil, v.AppView)
	if err != nil {
		return nil, err
	}
	if err := a.Store.CreateApp(ctx, &app, func(appID int64) (string, error) { return a.Ring.Seal(ns.ID, appID, key) }, entry); err != nil {
		return nil, err
	}
	return &body[createdAppView]{v}, nil
}

// app finds an app by name for a job; the error names the job's field.
func (a *API) app(ctx context.Context, ns int64, name string) (store.App, error) {
	app, err := a.Store.AppByName(ctx, ns, name)
	if errors.Is(err, store.ErrNotFound) {
		return app, httpx.Invalid(ctx, "unknown_app", "app", name, "There is no app of this name in the namespace; create it first.", "该命名空间没有此应用，请先创建。")
	}
	return app, err
}
