package api

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"unicode/utf8"

	"github.com/danielgtaylor/huma/v2"

	"github.com/ax-scheduler/ax/internal/auth"
	"github.com/ax-scheduler/ax/internal/clock"
	"github.com/ax-scheduler/ax/internal/job"
	"github.com/ax-scheduler/ax/internal/message"
	"github.com/ax-scheduler/ax/internal/store"
	"github.com/ax-scheduler/ax/server/httpx"
)

// Bounds of a limit.
const (
	maxRunning = 1_000_000
	minStarts  = 0.0001
	maxStarts  = 10_000
)

// LimitBody is the part of a limit that somebody writes.
type LimitBody struct {
	App         string  `json:"app,omitempty" maxLength:"64" doc:"what it covers: all of an app; empty = the jobs that name it in limits"`
	Handler     string  `json:"handler,omitempty" doc:"of the app only this handler"`
	PerExecutor bool    `json:"perExecutor,omitempty" doc:"max is what each executor of the app may have, not all of them together"`
	Max         int     `json:"max,omitempty" doc:"executions at once, 1 to 1000000; 0 = no bound"`
	Rate        float64 `json:"rate,omitempty" doc:"starts in a second, 0.0001 to 10000; 0 = no bound"`
}

type limitView struct {
	Name string `json:"name"`
	LimitBody
	Running   int    `json:"running" doc:"executions under it that are at executors; of the platform: of the namespaces that the replica which is asked owns"`
	Waiting   int    `json:"waiting" doc:"executions under it that are due"`
	Jobs      int    `json:"jobs" doc:"how many name it"`
	Version   int64  `json:"version"`
	UpdatedAt string `json:"updatedAt"`
	UpdatedBy string `json:"updatedBy"`
}

type limitListInput struct {
	NamespacePath
	Page
}

type platformLimitListInput struct{ Page }

// LimitPath is a limit of a namespace.
type LimitPath struct {
	NamespacePath
	Name string `path:"name" maxLength:"64"`
}

// PlatformLimitPath is a limit of the platform.
type PlatformLimitPath struct {
	Name string `path:"name" maxLength:"64"`
}

type putLimit struct {
	LimitBody
	Version int64 `json:"version,omitempty" minimum:"0" doc:"the version that was read; 0 makes a new limit"`
}

type putLimitInput struct {
	LimitPath
	Body putLimit
}

type putPlatformLimitInput struct {
	PlatformLimitPath
	Body putLimit
}

type deleteLimitInput struct {
	LimitPath
	Version int64 `query:"version" doc:"the version that was read; 0 = whatever it is"`
}

type deletePlatformLimitInput struct {
	PlatformLimitPath
	Version int64 `query:"version" doc:"the version that was read; 0 = whatever it is"`
}

func (a *API) limits() {
	const limits = "/api/v1/namespaces/{namespace}/limits"
	read, write := atOwner.of(inNamespace(auth.LimitRead)), inNamespace(auth.LimitWrite)
	gone := func(op *huma.Operation) { op.DefaultStatus = http.StatusNoContent }
	add(a, http.MethodGet, limits, "listLimits", "Limits of a namespace", read, func(ctx context.Context, in *limitListInput) (*body[list[limitView]], error) {
		return a.listLimits(ctx, nsOf(ctx).ID, in.Page)
	})
	add(a, http.MethodGet, limits+"/{name}", "getLimit", "One limit", read, func(ctx context.Context, in *LimitPath) (*body[limitView], error) {
		return a.shownLimit(ctx, nsOf(ctx).ID, in.Name)
	})
	add(a, http.MethodPut, limits+"/{name}", "putLimit", "Make or replace a limit; it holds at once", write, func(ctx context.Context, in *putLimitInput) (*body[limitView], error) {
		return a.putLimit(ctx, nsOf(ctx), in.Name, in.Body)
	})
	add(a, http.MethodDelete, limits+"/{name}", "deleteLimit", "Delete a limit that no job names", write, func(ctx context.Context, in *deleteLimitInput) (*empty, error) {
		return nil, a.deleteLimit(ctx, nsOf(ctx), in.Name, in.Version)
	}, gone)

	const shared = "/api/v1/limits"
	platform := store.Namespace{Bucket: store.PlatformBucket}
	// Whoever may name one has to see which there are.
	readAll, writeAll := self(), onPlatform(auth.LimitWrite)
	add(a, http.MethodGet, shared, "listPlatformLimits", "Limits that jobs of every namespace may name, as platform/NAME", readAll, func(ctx context.Context, in *platformLimitListInput) (*body[list[limitView]], error) {
		return a.listLimits(ctx, 0, in.Page)
	})
	add(a, http.MethodGet, shared+"/{name}", "getPlatformLimit", "One limit of the platform", readAll, func(ctx context.Context, in *PlatformLimitPath) (*body[limitView], error) {
		return a.shownLimit(ctx, 0, in.Name)
	})
	add(a, http.MethodPut, shared+"/{name}", "putPlatformLimit", "Make or replace a limit of the platform; it holds within 2 s", writeAll, func(ctx context.Context, in *putPlatformLimitInput) (*body[limitView], error) {
		return a.putLimit(ctx, platform, in.Name, in.Body)
	})
	add(a, http.MethodDelete, shared+"/{name}", "deletePlatformLimit", "Delete a limit of the platform that no job names", writeAll, func(ctx context.Context, in *deletePlatformLimitInput) (*empty, error) {
		return nil, a.deleteLimit(ctx, platform, in.Name, in.Version)
	}, gone)
}

func (a *API) viewOfLimit(l store.Limit) limitView {
	use := a.Ready.LimitUse(l.NS, l.Name)
	return limitView{
		Name: l.Name, LimitBody: LimitBody{App: l.AppName, Handler: l.Handler, PerExecutor: l.PerExecutor, Max: l.Max, Rate: l.Rate},
		Running: use.Running, Waiting: use.Waiting, Jobs: l.Jobs, Version: l.Version, UpdatedAt: stamp(l.UpdatedAt), UpdatedBy: l.UpdatedBy,
	}
}

func (a *API) listLimits(ctx context.Context, ns int64, p Page) (*body[list[limitView]], error) {
	after := ""
	if err := openCursor(ctx, p.Cursor, &after); err != nil {
		return nil, err
	}
	all, err := a.Store.Limits(ctx, ns, after, p.Limit+1)
	if err != nil {
		return nil, err
	}
	out := list[limitView]{Items: []limitView{}}
	if len(all) > p.Limit {
		all = all[:p.Limit]
		out.NextCursor = cursor(all[len(all)-1].Name)
	}
	for _, l := range all {
		out.Items = append(out.Items, a.viewOfLimit(l))
	}
	return &body[list[limitView]]{out}, nil
}

func (a *API) limit(ctx context.Context, ns int64, name string) (store.Limit, error) {
	if job.ValidName("name", name) != nil {
		return store.Limit{}, store.ErrNotFound
	}
	return a.Store.Limit(ctx, ns, name)
}

func (a *API) shownLimit(ctx context.Context, ns int64, name string) (*body[limitView], error) {
	l, err := a.limit(ctx, ns, name)
	if err != nil {
		return nil, err
	}
	return &body[limitView]{a.viewOfLimit(l)}, nil
}

// checkLimit says what is wrong with a limit.
func checkLimit(b LimitBody, platform bool) []*message.Invalid {
	var bad []*message.Invalid
	refuse := func(code, field, token, en, zh string) {
		bad = append(bad, &message.Invalid{Code: code, Field: field, Token: token, Message: message.Text{EN: en, ZH: zh}})
	}
	if b.Max < 0 || b.Max > maxRunning {
		refuse("out_of_range", "max", fmt.Sprint(b.Max), fmt.Sprintf("%d is out of range 0-%d.", b.Max, maxRunning), fmt.Sprintf("%d 超出范围 0-%d。", b.Max, maxRunning))
	}
	if b.Rate != 0 && !(b.Rate >= minStarts && b.Rate <= maxStarts) {
		refuse("out_of_range", "rate", fmt.Sprint(b.Rate), fmt.Sprintf("%v is out of range %v-%v starts a second.", b.Rate, minStarts, maxStarts), fmt.Sprintf("%v 超出范围：每秒启动 %v-%v 次。", b.Rate, minStarts, maxStarts))
	}
	if b.Max == 0 && b.Rate == 0 {
		refuse("required", "max", "0", "Set max, rate or both: a limit without either bounds nothing.", "请设置 max 或 rate：两者都没有的限额不起作用。")
	}
	if n := utf8.RuneCountInString(b.Handler); n > job.MaxHandler {
		refuse("too_long", "handler", "", fmt.Sprintf("At most %d characters; got %d.", job.MaxHandler, n), fmt.Sprintf("最多 %d 个字符，当前 %d 个。", job.MaxHandler, n))
	}
	switch {
	case platform && b.App != "":
		refuse("not_allowed", "app", b.App, "A limit of the platform covers the jobs that name it; leave the app out.", "平台限额针对引用它的任务，请勿填写应用。")
	case b.App == "" && b.Handler != "":
		refuse("required", "app", "", "Say of which app the handler is.", "请填写处理器所属的应用。")
	case b.App == "" && b.PerExecutor:
		refuse("required", "app", "", "Say of which app the executors are.", "请填写执行器所属的应用。")
	case b.PerExecutor && (b.Rate != 0 || b.Max == 0):
		refuse("not_allowed", "rate", fmt.Sprint(b.Rate), "A limit of each executor bounds what it has at once: set max and leave rate out.", "按执行器的限额只限制同时运行数：请设置 max，不要设置 rate。")
	}
	return bad
}

func (a *API) putLimit(ctx context.Context, ns store.Namespace, name string, b putLimit) (*body[limitView], error) {
	if bad := job.ValidName("name", name); bad != nil {
		return nil, bad
	}
	b.App, b.Handler = strings.TrimSpace(b.App), strings.TrimSpace(b.Handler)
	if bad := checkLimit(b.LimitBody, ns.ID == 0); len(bad) > 0 {
		return nil, &job.InvalidError{Fields: bad}
	}
	l := store.Limit{NS: ns.ID, Bucket: ns.Bucket, Name: name, Handler: b.Handler, PerExecutor: b.PerExecutor, Max: b.Max, Rate: b.Rate, UpdatedAt: clock.Millis(a.Clock), UpdatedBy: httpx.CallerOf(ctx).Principal.Name}
	if b.App != "" {
		app, err := a.app(ctx, ns.ID, b.App)
		if err != nil {
			return nil, err
		}
		l.AppID, l.AppName = app.ID, app.Name
	}
	var before any
	if b.Version != 0 {
		old, err := a.limit(ctx, ns.ID, name)
		if err != nil {
			return nil, err
		}
		before = a.viewOfLimit(old).LimitBody
	}
	entry, err := a.limitEntry(ctx, ns, name, before, b.LimitBody)
	if err != nil {
		return nil, err
	}
	err = a.Store.WriteLimit(ctx, &l, b.Version, entry)
	if errors.Is(err, store.ErrInUse) {
		return nil, a.limitInUse(ctx, ns.ID, name)
	}
	if err != nil {
		return nil, err
	}
	if err := a.heedLimits(ctx, ns); err != nil {
		return nil, err
	}
	return a.shownLimit(ctx, ns.ID, name)
}

func (a *API) limitEntry(ctx context.Context, ns store.Namespace, name string, before, after any) (*store.AuditEntry, error) {
	entry, err := a.entry(ctx, auth.LimitWrite, "limit", 0, name, before, after)
	if err != nil {
		return nil, err
	}
	entry.ObjectID = name
	if ns.ID == 0 {
		entry.ObjectID = job.SharedLimit + name
	}
	return entry, nil
}

// heedLimits makes a change hold here at once; other replicas notice it within two seconds.
func (a *API) heedLimits(ctx context.Context, ns store.Namespace) error {
	if ns.ID != 0 {
		if _, owns := a.Cluster.Fence(ns.Bucket); !owns {
			return nil
		}
	}
	return a.Outcome.LoadLimits(ctx, ns.Bucket, false)
}

func (a *API) limitInUse(ctx context.Context, ns int64, name string) error {
	users, err := a.Store.LimitUsers(ctx, ns, name, maxNamed)
	if err != nil {
		return err
	}
	names := make([]string, len(users))
	for i, id := range users {
		names[i] = fmt.Sprint(id)
	}
	return httpx.NewProblem(ctx, http.StatusConflict, "limit_in_use", message.Text{
		EN: "Jobs name this limit; take it out of them first: " + strings.Join(names, ", ") + ".", ZH: "有任务引用此限额，请先从任务中移除：" + strings.Join(names, "、") + "。",
	})
}

func (a *API) deleteLimit(ctx context.Context, ns store.Namespace, name string, version int64) error {
	l, err := a.limit(ctx, ns.ID, name)
	if err != nil {
		return err
	}
	if version != 0 && version != l.Version {
		return store.ErrStale
	}
	entry, err := a.limitEntry(ctx, ns, name, a.viewOfLimit(l).LimitBody, nil)
	if err != nil {
		return err
	}
	err = a.Store.DeleteLimit(ctx, ns.ID, name, l.Version, entry)
	if errors.Is(err, store.ErrInUse) {
		return a.limitInUse(ctx, ns.ID, name)
	}
	if err != nil {
		return err
	}
	return a.heedLimits(ctx, ns)
}
