// Package api is the HTTP API of the console and of programs: operations declared with their
// permission, thin functions behind them.
//
// Plain reads and edits go to the store; what moves an execution goes through an engine. Every
// change is written together with its audit entry.
package api

import (
	"cmp"
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/danielgtaylor/huma/v2"
	"github.com/danielgtaylor/huma/v2/adapters/humagin"
	"github.com/gin-gonic/gin"

	"github.com/ax-scheduler/ax/internal/appkey"
	"github.com/ax-scheduler/ax/internal/audit"
	"github.com/ax-scheduler/ax/internal/auth"
	"github.com/ax-scheduler/ax/internal/clock"
	"github.com/ax-scheduler/ax/internal/cluster"
	"github.com/ax-scheduler/ax/internal/filter"
	"github.com/ax-scheduler/ax/internal/job"
	"github.com/ax-scheduler/ax/internal/message"
	"github.com/ax-scheduler/ax/internal/metric"
	"github.com/ax-scheduler/ax/internal/outcome"
	"github.com/ax-scheduler/ax/internal/ready"
	"github.com/ax-scheduler/ax/internal/registry"
	"github.com/ax-scheduler/ax/internal/routing"
	"github.com/ax-scheduler/ax/internal/secret"
	"github.com/ax-scheduler/ax/internal/store"
	"github.com/ax-scheduler/ax/internal/trigger"
	"github.com/ax-scheduler/ax/server/httpx"
	"github.com/ax-scheduler/ax/server/peer"
)

// Config is what the API needs.
type Config struct {
	Store    *store.Store
	Auth     *auth.Auth
	Ring     *appkey.Ring
	Cluster  *cluster.Cluster
	Peers    *peer.Peers
	Registry *registry.Registry
	Ready    *ready.Ready
	Trigger  *trigger.Trigger
	Outcome  *outcome.Outcome
	Router   *routing.Router
	Clock    clock.Clock
	// ClockStatus is what the clocks of database and host say of each other.
	ClockStatus func() clock.Status
	// Secrets seals what jobs use and nobody reads.
	Secrets *secret.Keeper
	// Explain tells how the executor of an execution was chosen, if that was lately.
	Explain func(execution int64) (routing.Explanation, bool)
	Metrics *metric.Metrics
	Log     *slog.Logger
	Output  *Output
	Version string
	Commit  string
	Console bool
	Demo    bool
	// Secure says that browsers reach the server over TLS, so cookies are marked so.
	Secure bool
}

// API serves the console and programs.
type API struct {
	Config
	huma huma.API

	turns    [store.Buckets]chan struct{} // who edits the definitions of a bucket's namespaces holds its place
	makersMu sync.Mutex                   // guards the two below
	makers   map[string]time.Time         // who makes delayed tasks or events for which job → when that had its last audit entry
	filters  map[string]*filter.Filter
}

// scope says what a permission is asked for.
type scope string

const (
	scopePublic    scope = "public"    // nobody is asked
	scopeSelf      scope = "self"      // anybody who is logged in
	scopeNamespace scope = "namespace" // the namespace of the path
	scopePlatform  scope = "platform"
)

// rule is an operation's authorisation, declared with it.
type rule struct {
	scope      scope
	permission auth.Permission
	// programs says that tokens of programs may ask, too. Where a permission is named it is
	// theirs to have; with scopeSelf the operation looks at their rights by itself.
	programs bool
	// where says which replica answers.
	where where
}

// where is which replica answers an operation. What changes something in a namespace is the business of the
// owner of its bucket, and so is what only its memory knows.
type where string

const (
	byMethod where = ""         // in a namespace the owner, except for GET
	anywhere where = "anywhere" // the replica that is asked
	atOwner  where = "owner"    // the owner, for GET too
	atJobs   where = "job"      // the owner of the namespace of the job in the path's taskId
)

const ruleKey = "ax-rule"

func public() map[string]any { return map[string]any{ruleKey: rule{scope: scopePublic}} }
func self() map[string]any   { return map[string]any{ruleKey: rule{scope: scopeSelf}} }
func selfOrProgram() map[string]any {
	return map[string]any{ruleKey: rule{scope: scopeSelf, programs: true}}
}

func inNamespace(p auth.Permission) map[string]any {
	return map[string]any{ruleKey: rule{scope: scopeNamespace, permission: p}}
}

func onPlatform(p auth.Permission) map[string]any {
	return map[string]any{ruleKey: rule{scope: scopePlatform, permission: p}}
}

// of is the metadata of an operation that is answered there.
func (w where) of(metadata map[string]any) map[string]any {
	r, _ := metadata[ruleKey].(rule)
	r.where = w
	return map[string]any{ruleKey: r}
}

const (
	maxBody = 1 << 20
	bearer  = "Bearer "
)

// New declares the API on r. It panics when an operation lacks its rule: a route that nobody
// guards must not be served.
func New(r *gin.Engine, c Config) (*API, huma.API) {
	a := &API{Config: c, makers: map[string]time.Time{}, filters: map[string]*filter.Filter{}}
	for i := range a.turns {
		a.turns[i] = make(chan struct{}, 1)
	}
	hooks()
	config := huma.DefaultConfig("ax", c.Version)
	config.Info.Description = "Jobs, batches and executions of ax. Ids are strings, times RFC 3339, durations as in \"5s\". Errors are RFC 9457 problems in the language of Accept-Language (en, zh)."
	config.OpenAPIPath, config.DocsPath, config.SchemasPath = "/api/openapi", "", ""
	config.CreateHooks = nil // no $schema links in bodies
	config.RejectUnknownQueryParameters = true
	config.Components.SecuritySchemes = map[string]*huma.SecurityScheme{"bearer": {Type: "http", Scheme: "bearer"}}
	api := humagin.New(r, config)
	api.UseMiddleware(a.authorize(api))
	a.huma = api
	a.identity()
	a.people()
	a.tenants()
	a.appKeys()
	a.jobs()
	a.calendars()
	a.secrets()
	a.routing()
	a.limits()
	a.backlogs()
	a.delayed()
	a.programTokens()
	a.backfills()
	a.history()
	a.observe()
	a.audit()
	a.system()
	a.executors()
	return a, api
}

// hooks sets huma's hooks, which it has once for the whole process.
var hooks = sync.OnceFunc(func() { //nolint:gochecknoglobals // huma keeps them in globals of its own
	huma.NewError = func(status int, msg string, errs ...error) huma.StatusError {
		return httpx.FromHuma(context.Background(), status, msg, errs...)
	}
	huma.NewErrorWithContext = func(ctx huma.Context, status int, msg string, errs ...error) huma.StatusError {
		for _, err := range errs {
			if p, ok := httpx.Map(ctx.Context(), err); ok {
				return p
			}
		}
		return httpx.FromHuma(ctx.Context(), status, msg, errs...)
	}
	huma.DefaultArrayNullable = false // lists are empty, never null
})

// add declares an operation: method and path, an id, a sentence, its rule.
func add[I, O any](a *API, method, path, id, summary string, metadata map[string]any, f func(context.Context, *I) (*O, error), change ...func(*huma.Operation)) {
	op := huma.Operation{Method: method, Path: path, OperationID: id, Summary: summary, Metadata: metadata, MaxBodyBytes: maxBody, BodyReadTimeout: 15 * time.Second}
	r, ok := metadata[ruleKey].(rule)
	if !ok || r.scope == "" || (r.permission == "") != (r.scope == scopePublic || r.scope == scopeSelf) {
		panic("operation " + id + " has no permission")
	}
	if r.scope != scopePublic {
		op.Security = []map[string][]string{{"bearer": {}}}
		op.Errors = []int{http.StatusUnauthorized, http.StatusForbidden, http.StatusNotFound, http.StatusUnprocessableEntity, http.StatusServiceUnavailable}
	}
	for _, c := range change {
		c(&op)
	}
	huma.Register(a.huma, op, func(ctx context.Context, in *I) (*O, error) {
		out, err := f(ctx, in)
		if err == nil {
			return out, nil
		}
		p, known := httpx.Map(ctx, err)
		if !known && ctx.Err() == nil {
			a.Log.ErrorContext(ctx, "request failed", slog.String("operation", id), slog.String("request_id", httpx.CallerOf(ctx).RequestID), slog.String("err", err.Error()))
		}
		return nil, p
	})
}

// nsOf is the namespace that authorize found in the path.
type nsKey struct{}

func nsOf(ctx context.Context) store.Namespace {
	n, _ := ctx.Value(nsKey{}).(store.Namespace)
	return n
}

// authorize reads who asks, looks at the operation's rule and nothing else, and denies
// by default. A namespace that is not there and one that the caller may not see are answered alike.
func (a *API) authorize(api huma.API) func(huma.Context, func(huma.Context)) {
	return func(hc huma.Context, next func(huma.Context)) {
		caller := httpx.CallerOf(hc.Context())
		caller.Language = hc.Header("Accept-Language")
		unsure := false // rights could not be read for too long to say anything
		token, bearing := strings.CutPrefix(hc.Header("Authorization"), bearer)
		if bearing {
			principal, err := a.Auth.Verify(token)
			switch {
			case err == nil:
				caller.Principal, caller.Known = principal, true
			case errors.Is(err, store.ErrUnavailable):
				unsure = true
			}
		}
		ctx := httpx.WithCaller(hc.Context(), caller)
		deny := func(status int, code, en, zh string) {
			p := httpx.NewProblem(ctx, status, code, message.Text{EN: en, ZH: zh})
			_ = huma.WriteErr(api, huma.WithContext(hc, ctx), status, "", p)
		}
		r, ok := hc.Operation().Metadata[ruleKey].(rule)
		if !ok {
			deny(http.StatusForbidden, "forbidden", "Not allowed.", "没有权限。")
			return
		}
		if unsure || r.scope != scopePublic && hc.Method() != http.MethodGet && !a.Auth.Fresh() {
			deny(http.StatusServiceUnavailable, "rights_unknown", "Rights could not be read from the database for a while, so nothing may be changed now; try again.", "暂时无法从数据库读取权限，当前不允许修改，请稍后重试。")
			return
		}
		if r.scope != scopePublic && !caller.Known {
			deny(http.StatusUnauthorized, "bad_token", "Log in again.", "请重新登录。")
			return
		}
		refused := func(ns int64) {
			e := &store.AuditEntry{
				At: clock.Millis(a.Clock), NSID: ns, ActorType: "user", ActorID: strconv.FormatInt(caller.Principal.UserID, 10), ActorName: caller.Principal.Name, IP: caller.IP, RequestID: caller.RequestID,
				Action: cmp.Or(string(r.permission), "self"), ObjectType: "operation", ObjectID: hc.Operation().OperationID,
			}
			if id := caller.Principal.TokenID; id != 0 {
				e.ActorType, e.ActorID = "token", strconv.FormatInt(id, 10)
			}
			a.Auth.Denied(ctx, e)
		}
		if caller.Principal.TokenID != 0 && r.scope != scopePublic && !r.programs {
			refused(0)
			deny(http.StatusForbidden, "forbidden", "A token of a program is not for this.", "程序令牌不能用于此操作。")
			return
		}
		switch r.scope {
		case scopePlatform:
			if !a.Auth.Allowed(caller.Principal, 0, r.permission) {
				refused(0)
				deny(http.StatusForbidden, "forbidden", "This needs the right "+string(r.permission)+" on the platform.", "需要平台权限 "+string(r.permission)+"。")
				return
			}
		case scopeNamespace:
			// A text that can be no name is not looked up.
			ns, err := store.Namespace{}, store.ErrNotFound
			if name := hc.Param("namespace"); job.ValidName("namespace", name) == nil {
				ns, err = a.Store.NamespaceByName(ctx, name)
			}
			if err != nil && !errors.Is(err, store.ErrNotFound) {
				p, _ := httpx.Map(ctx, err)
				_ = huma.WriteErr(api, huma.WithContext(hc, ctx), p.Status, "", p)
				return
			}
			if err != nil || !a.Auth.Allowed(caller.Principal, ns.ID, auth.NamespaceRead) {
				if err == nil {
					refused(ns.ID) // somebody of another namespace: those of this one should know
				}
				deny(http.StatusNotFound, "not_found", "There is no such namespace.", "没有这个命名空间。")
				return
			}
			if !a.Auth.Allowed(caller.Principal, ns.ID, r.permission) {
				refused(ns.ID)
				deny(http.StatusForbidden, "forbidden", "This needs the right "+string(r.permission)+" in the namespace.", "需要该命名空间的权限 "+string(r.permission)+"。")
				return
			}
			ctx = context.WithValue(ctx, nsKey{}, ns)
		case scopePublic, scopeSelf:
		}
		if bucket, owned := a.bucketOf(ctx, hc, r); owned {
			here, err := a.sendOn(ctx, hc, bucket)
			if err != nil {
				p, _ := httpx.Map(ctx, err)
				for name, values := range p.GetHeaders() {
					hc.SetHeader(name, values[0])
				}
				_ = huma.WriteErr(api, huma.WithContext(hc, ctx), p.Status, "", p)
				return
			}
			if !here {
				return // the owner has answered
			}
		}
		next(huma.WithContext(hc, ctx))
	}
}

// bucketOf is the bucket whose owner answers an operation; owned is false for one that any replica answers.
func (a *API) bucketOf(ctx context.Context, hc huma.Context, r rule) (bucket int, owned bool) {
	switch r.where {
	case atJobs:
		id, err := parseID(hc.Param("taskId"))
		if err != nil {
			return 0, false
		}
		j, err := a.Store.JobByID(ctx, id)
		return j.Bucket, err == nil // the operation says what is wrong
	case byMethod:
		return nsOf(ctx).Bucket, r.scope == scopeNamespace && hc.Method() != http.MethodGet
	case atOwner:
		return nsOf(ctx).Bucket, true
	case anywhere:
	}
	return 0, false
}

// routeFor is how long the owner of a bucket is looked for: longer than a takeover takes.
const routeFor = cluster.TTL + 2*time.Second

// sendOn sends an operation on to the owner of a bucket, which asks for the caller's rights once more. here
// says that it is this replica.
func (a *API) sendOn(ctx context.Context, hc huma.Context, bucket int) (here bool, err error) {
	if a.Cluster.Leads(bucket) {
		return true, nil
	}
	g := humagin.Unwrap(hc)
	op := hc.Operation()
	g.Request.Body = http.MaxBytesReader(g.Writer, g.Request.Body, op.MaxBodyBytes)
	_ = http.NewResponseController(g.Writer).SetReadDeadline(time.Now().Add(op.BodyReadTimeout))
	c := httpx.CallerOf(ctx)
	here, err = a.Peers.Route(g.Writer, g.Request, peer.Request{Bucket: bucket, Wait: routeFor, Repeatable: hc.Method() == http.MethodGet, IP: c.IP, RequestID: c.RequestID})
	switch {
	case errors.Is(err, peer.ErrNobody):
		return false, outcome.ErrNotOwner
	case errors.Is(err, peer.ErrUnknown):
		return false, httpx.NewProblem(ctx, http.StatusServiceUnavailable, "owner_lost", message.Text{
			EN: "The server that acts for this namespace stopped answering in the middle: whether this was carried out is not known. Read it again, or repeat it with the same Idempotency-Key.",
			ZH: "负责该命名空间的服务器中途失去响应，无法确定操作是否已执行。请重新读取后确认，或使用相同的 Idempotency-Key 重试。",
		})
	case errors.Is(err, peer.ErrBody):
		return false, httpx.NewProblem(ctx, http.StatusRequestEntityTooLarge, "too_large", message.Text{EN: "The body could not be read, or is too long.", ZH: "请求体无法读取或过长。"})
	}
	return here, err
}

// entry makes the audit entry of a change by the caller.
func (a *API) entry(ctx context.Context, action auth.Permission, kind string, id int64, name string, before, after any) (*store.AuditEntry, error) {
	c := httpx.CallerOf(ctx)
	b, f, d, err := audit.Tell(before, after)
	if err != nil {
		return nil, err
	}
	ns := nsOf(ctx)
	e := &store.AuditEntry{
		At: clock.Millis(a.Clock), NSID: ns.ID, ActorType: "user", ActorID: strconv.FormatInt(c.Principal.UserID, 10), ActorName: c.Principal.Name, IP: c.IP, RequestID: c.RequestID,
		Action: string(action), ObjectType: kind, ObjectName: name, Outcome: "success", BeforeJSON: b, AfterJSON: f, DiffJSON: d,
	}
	if id != 0 {
		e.ObjectID = strconv.FormatInt(id, 10)
	}
	if c.Principal.TokenID != 0 {
		e.ActorType, e.ActorID = "token", strconv.FormatInt(c.Principal.TokenID, 10)
	}
	if a.Auth.ActsAsPlatform(c.Principal, ns.ID, action) {
		e.ActorType = "platform_admin"
	}
	return e, nil
}

// at is a stored time in JSON: null for none.
func at(ms int64) *string {
	if ms == 0 {
		return nil
	}
	s := stamp(ms)
	return &s
}

func stamp(ms int64) string { return time.UnixMilli(ms).UTC().Format("2006-01-02T15:04:05.000Z07:00") }

func id(n int64) string { return strconv.FormatInt(n, 10) }

// parseID reads an id from a path; a text that is none finds nothing.
func parseID(s string) (int64, error) {
	n, err := strconv.ParseInt(s, 10, 64)
	if err != nil || n <= 0 {
		return 0, store.ErrNotFound
	}
	return n, nil
}

// parseTime reads an optional RFC 3339 query parameter.
func parseTime(ctx context.Context, field, s string) (int64, error) {
	if s == "" {
		return 0, nil
	}
	t, err := time.Parse(time.RFC3339, s)
	if err != nil {
		return 0, httpx.Invalid(ctx, "bad_time", field, s, "Write a time such as 2026-11-30T08:00:00Z.", "请写时间，例如 2026-11-30T08:00:00Z。")
	}
	return t.UnixMilli(), nil
}

// cursor is where a page ended, opaque to callers.
func cursor(parts ...any) string {
	raw, _ := json.Marshal(parts) //nolint:errchkjson // numbers and strings
	return base64.RawURLEncoding.EncodeToString(raw)
}

// openCursor reads a cursor into the places; a cursor that was not made here is refused.
func openCursor(ctx context.Context, s string, places ...any) error {
	if s == "" {
		return nil
	}
	bad := httpx.Invalid(ctx, "bad_cursor", "cursor", s, "Take the cursor from nextCursor of the page before.", "请使用上一页返回的 nextCursor。")
	raw, err := base64.RawURLEncoding.DecodeString(s)
	if err != nil {
		return bad
	}
	var parts []json.RawMessage
	if json.Unmarshal(raw, &parts) != nil || len(parts) != len(places) {
		return bad
	}
	for i := range parts {
		if json.Unmarshal(parts[i], places[i]) != nil {
			return bad
		}
	}
	return nil
}

// Page are the parameters of every list.
type Page struct {
	Cursor string `query:"cursor" doc:"nextCursor of the page before"`
	Limit  int    `query:"limit" default:"50" minimum:"1" maximum:"200"`
}

// list is every list's answer.
type list[T any] struct {
	Items      []T    `json:"items"`
	NextCursor string `json:"nextCursor" doc:"empty on the last page"`
}

type body[T any] struct {
	Body T
}

// ClientIP is the address of the peer, without its port.
func ClientIP(remote string) string {
	host, _, err := net.SplitHostPort(remote)
	if err != nil {
		return remote
	}
	return host
}

// Rules lists every operation with its rule, for the tests of rights.
func Rules(api huma.API) map[string]string {
	out := map[string]string{}
	for path, item := range api.OpenAPI().Paths {
		for method, op := range map[string]*huma.Operation{http.MethodGet: item.Get, http.MethodPost: item.Post, http.MethodPut: item.Put, http.MethodDelete: item.Delete} {
			if op == nil {
				continue
			}
			r, _ := op.Metadata[ruleKey].(rule)
			out[method+" "+path] = strings.TrimSpace(fmt.Sprintf("%s %s", r.scope, r.permission))
		}
	}
	return out
}
