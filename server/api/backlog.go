package api

import (
	"cmp"
	"context"
	"net/http"
	"slices"

	"github.com/ax-scheduler/ax/internal/auth"
	"github.com/ax-scheduler/ax/internal/clock"
	"github.com/ax-scheduler/ax/internal/job"
	"github.com/ax-scheduler/ax/internal/outcome"
	"github.com/ax-scheduler/ax/internal/ready"
	"github.com/ax-scheduler/ax/internal/store"
	"github.com/ax-scheduler/ax/server/httpx"
)

const (
	// reasonDropped is a catch-up's that an operator gave up.
	reasonDropped = "dropped_by_operator"
	// backlogItems bounds the jobs that are listed; all are counted.
	backlogItems = 200
	// dropStep is how many executions end in one transaction.
	dropStep = 5000
)

type backlogView struct {
	Count int               `json:"count" doc:"catch-ups that have not started"`
	Jobs  int               `json:"jobs"`
	Items []backlogItemView `json:"items" doc:"by job, the largest first, at most 200"`
}

type backlogItemView struct {
	Job         string  `json:"job"`
	Name        string  `json:"name"`
	App         string  `json:"app"`
	Count       int     `json:"count"`
	Oldest      string  `json:"oldest" doc:"the planned time of the oldest"`
	Newest      string  `json:"newest"`
	Rate        float64 `json:"rate" doc:"starts in a second, as far as the job's drain rate goes"`
	AppRate     float64 `json:"appRate" doc:"starts in a second of all jobs of the app; 0 = no limit"`
	Paused      bool    `json:"paused"`
	ExpectedEnd *string `json:"expectedEnd" nullable:"true" doc:"when the last one starts; null while it is paused"`
}

type backlogInput struct {
	NamespacePath
	Job string `query:"job" maxLength:"20"`
	App string `query:"app" maxLength:"64"`
}

// BacklogBody names a backlog.
type BacklogBody struct {
	Job    string `json:"job,omitempty" maxLength:"20" doc:"the backlog of a job, or"`
	App    string `json:"app,omitempty" maxLength:"64" doc:"that of all jobs of an app"`
	DryRun bool   `json:"dryRun,omitempty" doc:"only count"`
}

type backlogChange struct {
	NamespacePath
	Body BacklogBody
}

type backlogSpeed struct {
	NamespacePath
	Body struct {
		BacklogBody
		Rate float64 `json:"rate" doc:"starts in a second; 0 = as the job or the app says"`
	}
}

type backlogChanged struct {
	Count  int     `json:"count" doc:"catch-ups that it concerns"`
	Jobs   int     `json:"jobs"`
	DryRun bool    `json:"dryRun"`
	Paused bool    `json:"paused"`
	Rate   float64 `json:"rate" doc:"what was chosen instead of the job's or the app's; 0 = nothing"`
}

func (a *API) backlogs() {
	const backlog = "/api/v1/namespaces/{namespace}/backlog"
	add(a, http.MethodGet, backlog, "getBacklog", "Missed firings that wait to be caught up with", atOwner.of(inNamespace(auth.JobRead)), a.getBacklog)
	add(a, http.MethodPost, backlog+"/pause", "pauseBacklog", "Start none of a backlog until it is resumed", inNamespace(auth.JobPause), a.pauseBacklog)
	add(a, http.MethodPost, backlog+"/resume", "resumeBacklog", "Go on with a backlog", inNamespace(auth.JobPause), a.resumeBacklog)
	add(a, http.MethodPost, backlog+"/speed", "speedBacklog", "Work a backlog off at another rate", inNamespace(auth.JobPause), a.speedBacklog)
	add(a, http.MethodPost, backlog+"/drop", "dropBacklog", "Give a backlog up: it is missed", inNamespace(auth.BatchCancel), a.dropBacklog)
}

// whose is whom a request about a backlog means.
type whose struct {
	key    ready.DrainKey
	scope  string
	object int64
	name   string
}

// of finds a job or an app; neither is every backlog of the namespace.
func (a *API) of(ctx context.Context, jobID, app string) (whose, error) {
	switch {
	case jobID != "" && app != "":
		return whose{}, httpx.Invalid(ctx, "one_of", "app", app, "Name a job or an app, not both.", "任务与应用只能填写一个。")
	case jobID != "":
		j, err := a.jobOf(ctx, jobID)
		return whose{ready.DrainKey{Job: j.ID}, store.ScopeJob, j.ID, j.Definition.Name}, err
	case app != "":
		if bad := job.ValidName("app", app); bad != nil {
			return whose{}, bad
		}
		found, err := a.app(ctx, nsOf(ctx).ID, app)
		return whose{ready.DrainKey{App: found.ID}, store.ScopeApp, found.ID, found.Name}, err
	}
	return whose{}, nil
}

// named is of for a change, which needs a job or an app.
func (a *API) named(ctx context.Context, b BacklogBody) (whose, error) {
	if b.Job == "" && b.App == "" {
		return whose{}, httpx.Invalid(ctx, "required", "job", "", "Name a job (its id) or an app.", "请填写任务编号或应用名称。")
	}
	return a.of(ctx, b.Job, b.App)
}

// owed lists what waits, of one job, one app or the whole namespace. Only the bucket's owner knows.
func (a *API) owed(ctx context.Context, w whose) ([]ready.Owed, error) {
	ns := nsOf(ctx)
	if _, ok := a.Cluster.Await(ctx, ns.Bucket); !ok {
		return nil, outcome.ErrNotOwner
	}
	return slices.DeleteFunc(a.Ready.Backlog(ns.Bucket), func(o ready.Owed) bool {
		return o.NS != ns.ID || w.key.Job != 0 && o.JobID != w.key.Job || w.key.App != 0 && o.AppID != w.key.App
	}), nil
}

func (a *API) getBacklog(ctx context.Context, in *backlogInput) (*body[backlogView], error) {
	w, err := a.of(ctx, in.Job, in.App)
	if err != nil {
		return nil, err
	}
	list, err := a.owed(ctx, w)
	if err != nil {
		return nil, err
	}
	type sum struct {
		ready.Owed
		count       int
		oldest, end int64
		newest      int64
	}
	jobs := map[int64]*sum{}
	for _, o := range list {
		s := jobs[o.JobID]
		if s == nil {
			s = &sum{Owed: o, oldest: o.DueAt, newest: o.DueAt}
			jobs[o.JobID] = s
		}
		s.count++
		s.oldest, s.newest, s.end = min(s.oldest, o.DueAt), max(s.newest, o.DueAt), max(s.end, o.StartAt)
	}
	out := backlogView{Count: len(list), Jobs: len(jobs), Items: []backlogItemView{}}
	sums := make([]*sum, 0, len(jobs))
	for _, s := range jobs {
		sums = append(sums, s)
	}
	slices.SortFunc(sums, func(a, b *sum) int { return cmp.Or(cmp.Compare(b.count, a.count), cmp.Compare(a.JobID, b.JobID)) })
	now := clock.Millis(a.Clock)
	for _, s := range sums[:min(len(sums), backlogItems)] {
		v := backlogItemView{
			Job: id(s.JobID), Name: s.Job, App: s.App, Count: s.count, Oldest: stamp(s.oldest), Newest: stamp(s.newest), Rate: s.Rate, AppRate: a.Ready.AppRate(s.AppID), Paused: s.Paused,
		}
		if !s.Paused {
			v.ExpectedEnd = at(max(s.end, now))
		}
		out.Items = append(out.Items, v)
	}
	return &body[backlogView]{out}, nil
}

// control changes what is said about a backlog, durably, and then in memory.
func (a *API) control(ctx context.Context, b BacklogBody, change func(w whose, c *store.Control) error) (*body[backlogChanged], error) {
	w, err := a.named(ctx, b)
	if err != nil {
		return nil, err
	}
	list, err := a.owed(ctx, w)
	if err != nil {
		return nil, err
	}
	out := backlogChanged{Count: len(list), Jobs: jobsIn(list), DryRun: b.DryRun}
	ns := nsOf(ctx)
	told := func(c store.Control) map[string]any {
		return map[string]any{"backlog": map[string]any{"paused": c.Paused, "rate": c.Rate, "count": len(list)}}
	}
	err = a.inBucket(ctx, ns.Bucket, func(t *store.Bucket) error {
		before, err := t.Control(ns.ID, w.scope, w.object)
		if err != nil {
			return err
		}
		after := before
		after.By, after.At = httpx.CallerOf(ctx).Principal.Name, clock.Millis(a.Clock)
		if err := change(w, &after); err != nil {
			return err
		}
		out.Paused, out.Rate = after.Paused, after.Rate
		if b.DryRun {
			return nil
		}
		entry, err := a.entry(ctx, auth.JobPause, w.scope, w.object, w.name, told(before), told(after))
		if err != nil {
			return err
		}
		if err := t.SetControl(after); err != nil {
			return err
		}
		return t.Audit(entry)
	})
	if err != nil || b.DryRun {
		return &body[backlogChanged]{out}, err
	}
	return &body[backlogChanged]{out}, a.Outcome.LoadDrains(ctx, ns.Bucket)
}

func jobsIn(list []ready.Owed) int {
	seen := map[int64]bool{}
	for _, o := range list {
		seen[o.JobID] = true
	}
	return len(seen)
}

func (a *API) pauseBacklog(ctx context.Context, in *backlogChange) (*body[backlogChanged], error) {
	return a.control(ctx, in.Body, func(_ whose, c *store.Control) error {
		c.Paused = true
		return nil
	})
}

func (a *API) resumeBacklog(ctx context.Context, in *backlogChange) (*body[backlogChanged], error) {
	return a.control(ctx, in.Body, func(_ whose, c *store.Control) error {
		c.Paused = false
		return nil
	})
}

func (a *API) speedBacklog(ctx context.Context, in *backlogSpeed) (*body[backlogChanged], error) {
	return a.control(ctx, in.Body.BacklogBody, func(w whose, c *store.Control) error {
		most := job.MaxRate
		if w.scope == store.ScopeApp {
			most = job.MaxAppRate
		}
		if in.Body.Rate != 0 {
			if bad := job.ValidRate("rate", in.Body.Rate, job.MinRate, most); bad != nil {
				return bad
			}
		}
		c.Rate = in.Body.Rate
		return nil
	})
}

func (a *API) dropBacklog(ctx context.Context, in *backlogChange) (*body[backlogChanged], error) {
	w, err := a.named(ctx, in.Body)
	if err != nil {
		return nil, err
	}
	list, err := a.owed(ctx, w)
	if err != nil {
		return nil, err
	}
	out := backlogChanged{Count: len(list), Jobs: jobsIn(list), DryRun: in.Body.DryRun}
	if in.Body.DryRun {
		return &body[backlogChanged]{out}, nil
	}
	ns := nsOf(ctx)
	fence, release, err := a.held(ctx, ns.Bucket)
	if err != nil {
		return nil, err
	}
	defer release()
	late := a.backlogOf(w.key)
	batches := batchesOf(late)
	out.Count = len(batches)
	entry, err := a.entry(ctx, auth.BatchCancel, w.scope, w.object, w.name, map[string]any{"backlog": map[string]any{"count": len(batches)}}, map[string]any{"backlog": map[string]any{"count": 0}})
	if err != nil {
		a.Ready.Add(late...)
		return nil, err
	}
	by := httpx.CallerOf(ctx).Principal.Name
	err = a.inSteps(ctx, fence, late, func(t *store.Bucket, part []*ready.Execution, first bool) error {
		if err := t.Miss(batchesOf(part), idsOf(part), reasonDropped, by, clock.Millis(a.Clock)); err != nil || !first {
			return err
		}
		return t.Audit(entry)
	}, func(part []*ready.Execution) {
		a.Metrics.Fates.WithLabelValues("missed", reasonDropped).Add(float64(len(batchesOf(part))))
	})
	if err != nil {
		return nil, err
	}
	return &body[backlogChanged]{out}, nil
}

// inSteps ends what was taken out of memory, a transaction for each few thousand; first says which may write
// what belongs to all. What is left after an error goes back. done is called after each commit.
func (a *API) inSteps(ctx context.Context, fence store.Fence, list []*ready.Execution, end func(t *store.Bucket, part []*ready.Execution, first bool) error, done func(part []*ready.Execution)) error {
	for first := true; first || len(list) > 0; first = false {
		n := min(dropStep, len(list))
		for n < len(list) && list[n].Batch == list[n-1].Batch {
			n++ // a batch ends in one transaction with all its shards
		}
		part := list[:n]
		if err := a.under(ctx, fence, func(t *store.Bucket) error { return end(t, part, first) }); err != nil {
			a.Ready.Add(list...)
			return err
		}
		done(part)
		list = list[n:]
	}
	return nil
}

type appRateInput struct {
	NamespacePath
	App  string `path:"app" maxLength:"64"`
	Body struct {
		DrainRate float64 `json:"drainRate" doc:"missed firings of all its jobs that are started in a second, 0 to 10000; 0 = no limit"`
	}
}

func (a *API) setAppRate(ctx context.Context, in *appRateInput) (*body[AppView], error) {
	ns := nsOf(ctx)
	if job.ValidName("app", in.App) != nil {
		return nil, store.ErrNotFound
	}
	app, err := a.Store.AppByName(ctx, ns.ID, in.App)
	if err != nil {
		return nil, err
	}
	if bad := job.ValidRate("drainRate", in.Body.DrainRate, 0, job.MaxAppRate); bad != nil {
		return nil, bad
	}
	before := AppView{Name: app.Name, Protocol: app.Protocol, CreatedAt: stamp(app.CreatedAt), DrainRate: app.DrainRate}
	after := before
	after.DrainRate = in.Body.DrainRate
	entry, err := a.entry(ctx, auth.AppCreate, "app", app.ID, app.Name, before, after)
	if err != nil {
		return nil, err
	}
	if err := a.Store.SetAppRate(ctx, app, in.Body.DrainRate, entry); err != nil {
		return nil, err
	}
	return &body[AppView]{after}, a.Outcome.LoadDrains(ctx, ns.Bucket)
}
