package api

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/danielgtaylor/huma/v2"

	"github.com/ax-scheduler/ax/internal/auth"
	"github.com/ax-scheduler/ax/internal/clock"
	"github.com/ax-scheduler/ax/internal/job"
	"github.com/ax-scheduler/ax/internal/message"
	"github.com/ax-scheduler/ax/internal/outcome"
	"github.com/ax-scheduler/ax/internal/ready"
	"github.com/ax-scheduler/ax/internal/schedule"
	"github.com/ax-scheduler/ax/internal/store"
	"github.com/ax-scheduler/ax/internal/trigger"
	"github.com/ax-scheduler/ax/server/httpx"
)

type triggerBody struct {
	No          int      `json:"no,omitempty" doc:"given once by the server; leave out for a new trigger"`
	Kind        string   `json:"kind" doc:"cron, fixedRate, fixedDelay, once or event"`
	Expr        string   `json:"expr,omitempty" maxLength:"255"`
	Dialect     string   `json:"dialect,omitempty" doc:"quartz (default), unix or descriptor"`
	Zone        string   `json:"zone,omitempty" maxLength:"64" doc:"default Asia/Shanghai"`
	ClockChange string   `json:"clockChange,omitempty" doc:"once (default), skip, both or quartz"`
	Every       string   `json:"every,omitempty" doc:"such as 5s"`
	Anchor      string   `json:"anchor,omitempty" doc:"a point of the grid of fixedRate"`
	At          string   `json:"at,omitempty" doc:"the only firing of once, with its offset"`
	Start       string   `json:"start,omitempty" doc:"nothing fires before it; also the anchor of fixedRate where none is given"`
	End         string   `json:"end,omitempty" doc:"nothing fires after it"`
	Calendars   []string `json:"calendars,omitempty" maxItems:"5" doc:"names of calendars; what any of them covers is left out"`
	Jitter      string   `json:"jitter,omitempty" doc:"spreads the starts over so much time behind the due time; 0s (default) to less than 24h"`
	Filter      string   `json:"filter,omitempty" doc:"of event only: a condition in CEL on event, such as event.amount > 100.0"`
}

type routingBody struct {
	Strategy string `json:"strategy,omitempty" doc:"default roundRobin"`
	HashKey  string `json:"hashKey,omitempty" maxLength:"128" doc:"field of the parameters that consistentHash places"`
	Selector string `json:"selector,omitempty" doc:"by labels and addresses: zone in (a, b), gpu, !spot, cores > 8, address in (10.0.16.0/24); all of them must hold"`
	Rule     string `json:"rule,omitempty" doc:"CEL on executor, job, params, shard and total: true or false lets an executor pass, a number ranks it, highest first"`
	// Pointers, so that an explicit 0 is refused and not taken for the default.
	Shards      *int `json:"shards,omitempty" minimum:"1" maximum:"5000" doc:"a fixed number of shards, whatever executors there are"`
	PerExecutor *int `json:"perExecutor,omitempty" minimum:"1" maximum:"100" doc:"of shardingBroadcast without shards: how many shards each executor gets; default 1"`
	Quorum      *int `json:"quorum,omitempty" minimum:"1" maximum:"100" doc:"per cent of the shards that must succeed; default 100"`
}

type resourcesBody struct {
	CPU      float64 `json:"cpu,omitempty" doc:"cores that one execution takes; 0 = not declared"`
	MemoryMB int64   `json:"memoryMB,omitempty"`
	Slots    int     `json:"slots,omitempty" doc:"of the executor's pool; when declared it waits here until they are free, not in the executor's queue"`
}

type retryBody struct {
	Max     *int   `json:"max,omitempty" doc:"extra attempts, 0 to 100; default 3"`
	Backoff string `json:"backoff,omitempty" doc:"exponential (default) or fixed"`
	Initial string `json:"initial,omitempty" doc:"default 1s"`
	// Jitter is a pointer so that an explicit 0 is not taken for the default.
	Jitter *int            `json:"jitter,omitempty" doc:"by how many percent of itself a wait grows at most, 0 to 100; default 10"`
	Steps  []string        `json:"steps,omitempty" maxItems:"100" doc:"the waits, one per extra attempt, instead of the above"`
	Rules  []retryRuleBody `json:"rules,omitempty" maxItems:"20" doc:"what becomes of attempts that ended with certain codes; the first that fits counts"`
}

type retryRuleBody struct {
	Codes []string `json:"codes" maxItems:"50" doc:"codes that handlers fail with, or reasons such as timed_out; a * at the end stands for anything"`
	Do    string   `json:"do" doc:"never: it is not tried again; now: the next attempt follows at once"`
}

type waitBody struct {
	Limit string `json:"limit,omitempty" doc:"how long an execution whose turn has come may wait for an executor; 0s = as the server's setting says (default 30m)"`
	Do    string `json:"do,omitempty" doc:"fail (default), or skip: a firing that was not sent at all is recorded as skipped"`
}

type concurrencyBody struct {
	Policy string `json:"policy,omitempty" doc:"skip (default), queueOne, queueAll, cover or allow"`
	Max    int    `json:"max,omitempty" doc:"default 1; with allow 0 = no limit"`
	Queue  *int   `json:"queue,omitempty" minimum:"1" maximum:"10000" doc:"with queueAll and allow: how many batches may wait, what is too much is skipped; default 1000"`
}

type misfireBody struct {
	Policy string `json:"policy,omitempty" doc:"once (default), skip or all"`
	Window string `json:"window,omitempty" doc:"latest start; default 1h"`
	Max    int    `json:"max,omitempty" doc:"default 100"`
	Order  string `json:"order,omitempty" doc:"which start first: oldest (default) or newest"`
	// Rate is a pointer so that an explicit 0 is refused and not taken for the default.
	Rate *float64 `json:"rate,omitempty" doc:"missed firings started in a second, 0.01 to 1000; default 10"`
}

// JobBody is the part of a job that somebody writes.
type JobBody struct {
	Name        string           `json:"name"`
	App         string           `json:"app"`
	Handler     string           `json:"handler"`
	Description string           `json:"description,omitempty"`
	Triggers    []triggerBody    `json:"triggers,omitempty"`
	Params      paramText        `json:"params,omitempty"`
	Routing     *routingBody     `json:"routing,omitempty"`
	Retry       *retryBody       `json:"retry,omitempty"`
	Timeout     string           `json:"timeout,omitempty" doc:"0s = no limit (default)"`
	Wait        *waitBody        `json:"wait,omitempty"`
	Concurrency *concurrencyBody `json:"concurrency,omitempty"`
	Misfire     *misfireBody     `json:"misfire,omitempty"`
	Priority    int              `json:"priority,omitempty" doc:"0 (default) to 5"`
	Resources   *resourcesBody   `json:"resources,omitempty"`
	Limits      []string         `json:"limits,omitempty" maxItems:"10" doc:"names of limits that its executions share with those of other jobs"`
	Enabled     *bool            `json:"enabled,omitempty" doc:"default true"`
	Comment     string           `json:"comment,omitempty" maxLength:"500" doc:"why; kept with this version"`
}

// paramText is a job's parameters: a text, which is JSON by convention. A JSON value that is
// not a string is taken as its text, so that nobody has to write JSON inside JSON.
type paramText string

// UnmarshalJSON reads a string or any other JSON value.
func (p *paramText) UnmarshalJSON(raw []byte) error {
	if string(raw) == "null" {
		return nil
	}
	if raw[0] == '"' {
		return json.Unmarshal(raw, (*string)(p))
	}
	var compact bytes.Buffer
	if err := json.Compact(&compact, raw); err != nil {
		return err
	}
	*p = paramText(compact.String())
	return nil
}

// Schema is huma's: any JSON value.
func (paramText) Schema(huma.Registry) *huma.Schema {
	return &huma.Schema{Description: "text, JSON by convention, at most 64 KiB; a JSON value that is not a string is kept as its text"}
}

type resultView struct {
	BatchID string `json:"batchId"`
	State   string `json:"state" enum:"WAITING,DELAYED,READY,DISPATCHING,RUNNING,UNKNOWN,SUCCEEDED,FAILED,TIMED_OUT,CANCELLED,SKIPPED,MISSED"`
	DueAt   string `json:"dueAt"`
}

// The policies as they are in force: every field is there.
type (
	routingView struct {
		Strategy string `json:"strategy"`
		HashKey  string `json:"hashKey"`
		Selector string `json:"selector"`
		Rule     string `json:"rule"`
		// As somebody wrote them: left out when nobody did.
		Shards      int `json:"shards,omitempty"`
		PerExecutor int `json:"perExecutor,omitempty"`
		Quorum      int `json:"quorum,omitempty"`
	}
	retryView struct {
		Max     int             `json:"max"`
		Backoff string          `json:"backoff"`
		Initial string          `json:"initial"`
		Jitter  int             `json:"jitter"`
		Steps   []string        `json:"steps,omitempty"`
		Rules   []retryRuleBody `json:"rules,omitempty"`
	}
	waitView struct {
		Limit string `json:"limit" doc:"0s = as the server's setting says"`
		Do    string `json:"do"`
	}
	concurrencyView struct {
		Policy string `json:"policy"`
		Max    int    `json:"max"`
		Queue  int    `json:"queue,omitempty"`
	}
	misfireView struct {
		Policy string  `json:"policy"`
		Window string  `json:"window"`
		Max    int     `json:"max"`
		Order  string  `json:"order"`
		Rate   float64 `json:"rate"`
	}
)

type jobView struct {
	ID            string          `json:"id"`
	Name          string          `json:"name"`
	App           string          `json:"app"`
	Handler       string          `json:"handler"`
	Description   string          `json:"description"`
	Triggers      []triggerBody   `json:"triggers"`
	Params        string          `json:"params"`
	Routing       routingView     `json:"routing"`
	Retry         retryView       `json:"retry"`
	Timeout       string          `json:"timeout"`
	Wait          waitView        `json:"wait"`
	Concurrency   concurrencyView `json:"concurrency"`
	Misfire       misfireView     `json:"misfire"`
	Priority      int             `json:"priority"`
	Resources     resourcesBody   `json:"resources"`
	Limits        []string        `json:"limits"`
	Enabled       bool            `json:"enabled"`
	Version       int64           `json:"version"`
	CreatedAt     string          `json:"createdAt"`
	UpdatedAt     string          `json:"updatedAt"`
	UpdatedBy     string          `json:"updatedBy"`
	NextTriggerAt *string         `json:"nextTriggerAt" nullable:"true"`
	LastTriggerAt *string         `json:"lastTriggerAt" nullable:"true"`
	ScheduleText  message.Text    `json:"scheduleText"`
	LastBatches   []resultView    `json:"lastBatches" doc:"newest first, at most 20"`
}

type jobListInput struct {
	NamespacePath
	Page
	Text  string `query:"q" maxLength:"128" doc:"part of the name, the handler or the id"`
	App   string `query:"app" maxLength:"64"`
	State string `query:"state" enum:"enabled,disabled"`
}

// JobPath is a job of a namespace.
type JobPath struct {
	NamespacePath
	ID string `path:"id" maxLength:"20"`
}

type createJobInput struct {
	NamespacePath
	Body JobBody
}

type updateJobInput struct {
	JobPath
	Body struct {
		JobBody
		Version int64 `json:"version" doc:"the version that was read"`
	}
}

type deleteJobInput struct {
	JobPath
	Version int64 `query:"version" doc:"the version that was read; 0 = whatever it is"`
}

type switchJobInput struct {
	JobPath
	Body *struct {
		Version int64 `json:"version,omitempty" doc:"the version that was read; 0 = whatever it is"`
	}
}

type triggerJobInput struct {
	JobPath
	Body *struct {
		Params         *paramText `json:"params,omitempty"`
		IdempotencyKey string     `json:"idempotencyKey,omitempty" maxLength:"256" doc:"the same key within 24 h answers the same batch"`
	}
}

type batchIDView struct {
	BatchID string `json:"batchId"`
}

type previewInput struct {
	NamespacePath
	Body struct {
		JobID    string        `json:"jobId,omitempty" maxLength:"20" doc:"the job that the triggers are of: the starts that jitter gives them are then told to the instant"`
		Triggers []triggerBody `json:"triggers" maxItems:"20"`
		From     string        `json:"from,omitempty" doc:"RFC 3339; default now"`
		Count    int           `json:"count,omitempty" minimum:"0" maximum:"100" doc:"default 10"`
	}
}

type fireView struct {
	At      string        `json:"at" doc:"with the offset of the trigger's zone"`
	Trigger int           `json:"trigger"`
	Note    *message.Text `json:"note,omitempty"`
}

type warningView struct {
	Code    string       `json:"code"`
	Trigger int          `json:"trigger"`
	Message message.Text `json:"message"`
}

type previewView struct {
	Fires    []fireView    `json:"fires"`
	Warnings []warningView `json:"warnings"`
}

func (a *API) jobs() {
	const jobs = "/api/v1/namespaces/{namespace}/jobs"
	add(a, http.MethodGet, jobs, "listJobs", "Jobs of a namespace", inNamespace(auth.JobRead), a.listJobs)
	add(a, http.MethodPost, jobs, "createJob", "Make a job", inNamespace(auth.JobCreate), a.createJob, created)
	add(a, http.MethodGet, jobs+"/{id}", "getJob", "One job", inNamespace(auth.JobRead), a.getJob)
	add(a, http.MethodPut, jobs+"/{id}", "updateJob", "Replace a job's definition", inNamespace(auth.JobUpdate), a.updateJob)
	add(a, http.MethodDelete, jobs+"/{id}", "deleteJob", "Delete a job; its history stays", inNamespace(auth.JobDelete), a.deleteJob, func(op *huma.Operation) { op.DefaultStatus = http.StatusNoContent })
	add(a, http.MethodPost, jobs+"/{id}/enable", "enableJob", "Let a job fire", inNamespace(auth.JobPause), a.enableJob)
	add(a, http.MethodPost, jobs+"/{id}/disable", "disableJob", "Stop a job from firing; what runs goes on", inNamespace(auth.JobPause), a.disableJob)
	add(a, http.MethodPost, jobs+"/{id}/trigger", "triggerJob", "Run a job now", inNamespace(auth.JobRun), a.triggerJob)
	a.versions()
	add(a, http.MethodPost, "/api/v1/namespaces/{namespace}/schedule/preview", "previewSchedule", "The next firings of triggers", anywhere.of(inNamespace(auth.JobRead)), a.preview)
}

// reader collects refusals of a body's texts, so that one answer names them all.
type reader struct {
	bad []*message.Invalid
}

func (r *reader) duration(field, s string) schedule.Duration {
	if s == "" {
		return 0
	}
	d, err := time.ParseDuration(s)
	if err != nil {
		r.bad = append(r.bad, &message.Invalid{Code: "bad_duration", Field: field, Token: s, Suggestion: "5s", Message: message.Text{
			EN: fmt.Sprintf("%q is not a duration; write a number and a unit (ms, s, m, h), such as 5s or 1h30m.", s), ZH: fmt.Sprintf("“%s” 不是时长；请写数字加单位（ms、s、m、h），例如 5s 或 1h30m。", s),
		}})
	}
	return schedule.Duration(d)
}

func (r *reader) time(field, s string) *time.Time {
	if s == "" {
		return nil
	}
	t, err := time.Parse(time.RFC3339, s)
	if err != nil {
		r.bad = append(r.bad, &message.Invalid{Code: "bad_time", Field: field, Token: s, Message: message.Text{
			EN: "Write a time with its offset, such as 2026-11-30T08:00:00+08:00.", ZH: "请写带时区偏移的时间，例如 2026-11-30T08:00:00+08:00。",
		}})
		return nil
	}
	return &t
}

func (r *reader) triggers(list []triggerBody) []schedule.Spec {
	out := make([]schedule.Spec, len(list))
	for i, t := range list {
		at := fmt.Sprintf("triggers[%d].", i)
		out[i] = schedule.Spec{
			No: t.No, Kind: schedule.Kind(t.Kind), Expr: t.Expr, Dialect: t.Dialect, Zone: strings.TrimSpace(t.Zone), ClockChange: t.ClockChange, Filter: strings.TrimSpace(t.Filter),
			Every: r.duration(at+"every", t.Every), Anchor: r.time(at+"anchor", t.Anchor), At: r.time(at+"at", t.At), Start: r.time(at+"start", t.Start), End: r.time(at+"end", t.End), Jitter: r.duration(at+"jitter", t.Jitter), Calendars: t.Calendars,
		}
	}
	return out
}

// definition reads a body. used is the highest trigger number that the job ever gave.
func (a *API) definition(ctx context.Context, b JobBody, used int) (d job.Definition, last int, err error) {
	r := &reader{}
	number := func(n *int) int {
		if n == nil {
			return 0
		}
		return *n
	}
	d = job.Definition{
		Name: b.Name, App: b.App, Handler: b.Handler, Description: b.Description, Params: string(b.Params), Priority: b.Priority, Limits: b.Limits, Retry: job.Retry{Max: job.DefaultRetries, Jitter: job.DefaultJitter},
		Triggers: r.triggers(b.Triggers), Timeout: r.duration("timeout", b.Timeout),
	}
	if b.Routing != nil {
		d.Routing = job.Routing{
			Strategy: b.Routing.Strategy, HashKey: b.Routing.HashKey, Selector: strings.TrimSpace(b.Routing.Selector), Rule: strings.TrimSpace(b.Routing.Rule),
			Shards: number(b.Routing.Shards), PerExecutor: number(b.Routing.PerExecutor), Quorum: number(b.Routing.Quorum),
		}
	}
	if b.Resources != nil {
		d.Resources = job.Resources{CPU: b.Resources.CPU, MemoryMB: b.Resources.MemoryMB, Slots: b.Resources.Slots}
	}
	if b.Retry != nil {
		if b.Retry.Max != nil {
			d.Retry.Max = *b.Retry.Max
		}
		if b.Retry.Jitter != nil {
			d.Retry.Jitter = *b.Retry.Jitter
		}
		for _, rule := range b.Retry.Rules {
			d.Retry.Rules = append(d.Retry.Rules, job.RetryRule{Codes: rule.Codes, Do: rule.Do})
		}
		d.Retry.Backoff, d.Retry.Initial = b.Retry.Backoff, r.duration("retry.initial", b.Retry.Initial)
		for i, s := range b.Retry.Steps {
			d.Retry.Steps = append(d.Retry.Steps, r.duration(fmt.Sprintf("retry.steps[%d]", i), s))
		}
	}
	if b.Wait != nil {
		d.Wait = job.Wait{Limit: r.duration("wait.limit", b.Wait.Limit), Do: b.Wait.Do}
	}
	if b.Concurrency != nil {
		d.Concurrency = job.Concurrency{Policy: b.Concurrency.Policy, Max: b.Concurrency.Max, Queue: number(b.Concurrency.Queue)}
	}
	if b.Misfire != nil {
		d.Misfire = job.Misfire{Policy: b.Misfire.Policy, Window: r.duration("misfire.window", b.Misfire.Window), Max: b.Misfire.Max, Order: b.Misfire.Order}
		if b.Misfire.Rate != nil {
			if p := job.ValidRate("misfire.rate", *b.Misfire.Rate, job.MinRate, job.MaxRate); p != nil {
				r.bad = append(r.bad, p)
			}
			d.Misfire.Rate = *b.Misfire.Rate
		}
	}
	for i, t := range d.Triggers {
		if t.No > used || t.No < 0 {
			r.bad = append(r.bad, &message.Invalid{Code: "trigger_number", Field: fmt.Sprintf("triggers[%d].no", i), Token: strconv.Itoa(t.No), Message: message.Text{
				EN: "Trigger numbers are given by the server; leave it out for a new trigger.", ZH: "触发器编号由服务器分配；新触发器请不要填写编号。",
			}})
			d.Triggers[i].No = 0
		}
	}
	if err := a.resolve(ctx, d.Triggers); err != nil {
		return d, 0, err
	}
	if p, err := a.secretsThere(ctx, d.Params); err != nil {
		return d, 0, err
	} else if p != nil {
		r.bad = append(r.bad, p)
	}
	last = d.Normalize(used)
	err = d.Validate(a.Clock.Now(), a.Router.Strategies())
	if invalid, ok := errors.AsType[*job.InvalidError](err); ok {
		r.bad = append(r.bad, invalid.Fields...)
	}
	if len(r.bad) > 0 {
		return d, last, &job.InvalidError{Fields: unique(r.bad)}
	}
	return d, last, err
}

// unique keeps the first refusal of each field: a text that is no duration is not also
// out of range.
func unique(list []*message.Invalid) []*message.Invalid {
	seen := map[string]bool{}
	out := list[:0:0]
	for _, f := range list {
		if !seen[f.Field] {
			seen[f.Field] = true
			out = append(out, f)
		}
	}
	return out
}

func (a *API) view(j store.Job, recent []store.Recent) jobView {
	d := j.Definition
	v := jobView{
		ID: id(j.ID), Name: d.Name, App: d.App, Handler: d.Handler, Description: d.Description, Params: d.Params, Timeout: d.Timeout.String(), Priority: d.Priority, Enabled: j.Enabled, Version: j.Version,
		CreatedAt: stamp(j.CreatedAt), UpdatedAt: stamp(j.UpdatedAt), UpdatedBy: j.UpdatedBy, NextTriggerAt: at(j.NextTriggerAt), LastTriggerAt: at(j.LastTriggerAt),
		Routing: routingView{
			Strategy: d.Routing.Strategy, HashKey: d.Routing.HashKey, Selector: d.Routing.Selector, Rule: d.Routing.Rule, Shards: d.Routing.Shards, PerExecutor: d.Routing.PerExecutor, Quorum: d.Routing.Quorum,
		},
		Resources:   resourcesBody{CPU: d.Resources.CPU, MemoryMB: d.Resources.MemoryMB, Slots: d.Resources.Slots},
		Limits:      append([]string{}, d.Limits...),
		Retry:       retryView{Max: d.Retry.Max, Backoff: d.Retry.Backoff, Jitter: d.Retry.Jitter},
		Wait:        waitView{Limit: d.Wait.Limit.String(), Do: cmp.Or(d.Wait.Do, job.WaitFail)},
		Concurrency: concurrencyView{Policy: d.Concurrency.Policy, Max: d.Concurrency.Max, Queue: d.Concurrency.Queue},
		Misfire:     misfireView{Policy: d.Misfire.Policy, Window: d.Misfire.Window.String(), Max: d.Misfire.Max, Order: cmp.Or(d.Misfire.Order, job.OrderOldest), Rate: d.Misfire.PerSecond()},
		Triggers:    []triggerBody{}, LastBatches: []resultView{},
	}
	if d.Retry.Initial != 0 {
		v.Retry.Initial = d.Retry.Initial.String()
	}
	for _, s := range d.Retry.Steps {
		v.Retry.Steps = append(v.Retry.Steps, s.String())
	}
	for _, rule := range d.Retry.Rules {
		v.Retry.Rules = append(v.Retry.Rules, retryRuleBody(rule))
	}
	var en, zh []string
	for _, t := range d.Triggers {
		b := triggerBody{No: t.No, Kind: string(t.Kind), Expr: t.Expr, Dialect: t.Dialect, Zone: t.Zone, ClockChange: t.ClockChange, Calendars: t.Calendars, Filter: t.Filter}
		if t.Every != 0 {
			b.Every = t.Every.String()
		}
		if t.Jitter != 0 {
			b.Jitter = t.Jitter.String()
		}
		for text, when := range map[*string]*time.Time{&b.Anchor: t.Anchor, &b.At: t.At, &b.Start: t.Start, &b.End: t.End} {
			if when != nil {
				*text = when.Format(time.RFC3339Nano)
			}
		}
		v.Triggers = append(v.Triggers, b)
		if s, err := schedule.Compile(t); err == nil {
			words := s.Text()
			en, zh = append(en, words.EN), append(zh, words.ZH)
		}
	}
	v.ScheduleText = message.Text{EN: strings.Join(en, "; "), ZH: strings.Join(zh, "；")}
	if len(d.Triggers) == 0 {
		v.ScheduleText = message.Text{EN: "by hand only", ZH: "仅手动触发"}
	}
	for _, r := range recent {
		v.LastBatches = append(v.LastBatches, resultView{r.BatchID, r.State, stamp(r.DueAt)})
	}
	return v
}

const strip = 20

func (a *API) listJobs(ctx context.Context, in *jobListInput) (*body[list[jobView]], error) {
	f := store.JobFilter{Text: in.Text, App: in.App, Limit: in.Limit + 1}
	if in.State != "" {
		enabled := in.State == store.JobEnabled
		f.Enabled = &enabled
	}
	if err := openCursor(ctx, in.Cursor, &f.After); err != nil {
		return nil, err
	}
	if in.App != "" && job.ValidName("app", in.App) != nil {
		return &body[list[jobView]]{list[jobView]{Items: []jobView{}}}, nil // there can be no such app
	}
	ns := nsOf(ctx).ID
	jobs, err := a.Store.Jobs(ctx, ns, f)
	if err != nil {
		return nil, err
	}
	out := list[jobView]{Items: []jobView{}}
	if len(jobs) > in.Limit {
		jobs = jobs[:in.Limit]
		out.NextCursor = cursor(jobs[len(jobs)-1].ID)
	}
	ids := make([]int64, len(jobs))
	for i, j := range jobs {
		ids[i] = j.ID
	}
	recent, err := a.Store.RecentBatches(ctx, ns, ids, strip)
	if err != nil {
		return nil, err
	}
	for _, j := range jobs {
		out.Items = append(out.Items, a.view(j, recent[j.ID]))
	}
	return &body[list[jobView]]{out}, nil
}

// jobOf reads the job of a path.
func (a *API) jobOf(ctx context.Context, text string) (store.Job, error) {
	n, err := parseID(text)
	if err != nil {
		return store.Job{}, err
	}
	return a.Store.Job(ctx, nsOf(ctx).ID, n)
}

func (a *API) shown(ctx context.Context, jobID int64) (*body[jobView], error) {
	ns := nsOf(ctx).ID
	j, err := a.Store.Job(ctx, ns, jobID)
	if err != nil {
		return nil, err
	}
	recent, err := a.Store.RecentBatches(ctx, ns, []int64{j.ID}, strip)
	if err != nil {
		return nil, err
	}
	return &body[jobView]{a.view(j, recent[j.ID])}, nil
}

func (a *API) getJob(ctx context.Context, in *JobPath) (*body[jobView], error) {
	j, err := a.jobOf(ctx, in.ID)
	if err != nil {
		return nil, err
	}
	return a.shown(ctx, j.ID)
}

func (a *API) createJob(ctx context.Context, in *createJobInput) (*body[jobView], error) {
	d, last, err := a.definition(ctx, in.Body, 0)
	if err != nil {
		return nil, err
	}
	ns := nsOf(ctx)
	app, err := a.app(ctx, ns.ID, d.App)
	if err != nil {
		return nil, err
	}
	now := clock.Millis(a.Clock)
	j := store.Job{NS: ns.ID, Bucket: ns.Bucket, AppID: app.ID, Definition: d, Enabled: in.Body.Enabled == nil || *in.Body.Enabled, LastTriggerNo: last, Comment: in.Body.Comment, CreatedAt: now, UpdatedAt: now, UpdatedBy: httpx.CallerOf(ctx).Principal.Name}
	entry, err := a.entry(ctx, auth.JobCreate, "job", 0, d.Name, nil, a.told(j))
	if err != nil {
		return nil, err
	}
	err = a.inBucket(ctx, ns.Bucket, func(b *store.Bucket) error {
		hints, err := trigger.Hints(&d, now)
		if err != nil {
			return err
		}
		return b.CreateJob(&j, hints, entry)
	})
	if err != nil {
		return nil, err
	}
	a.Trigger.Nudge()
	return a.shown(ctx, j.ID)
}

// inBucket runs f under the fence of a namespace's bucket. Not under a hold of the bucket: see held.
func (a *API) inBucket(ctx context.Context, bucket int, f func(b *store.Bucket) error) error {
	fence, ok := a.Cluster.Await(ctx, bucket)
	if !ok {
		return outcome.ErrNotOwner
	}
	return a.under(ctx, fence, f)
}

// under runs f under a fence.
func (a *API) under(ctx context.Context, fence store.Fence, f func(b *store.Bucket) error) error {
	err := a.Store.InBucket(ctx, fence, f)
	if errors.Is(err, store.ErrFenced) || errors.Is(err, store.ErrUnavailable) {
		a.Outcome.Failed(fence, err)
	}
	return err
}

// held holds a bucket whose rows are in memory; the caller ends the hold. It waits for that before it holds: a
// bucket that is to be read again is read under a hold of its own.
func (a *API) held(ctx context.Context, bucket int) (fence store.Fence, release func(), err error) {
	for {
		if _, ok := a.Cluster.Await(ctx, bucket); !ok {
			return fence, nil, outcome.ErrNotOwner
		}
		release = a.Ready.Hold(bucket)
		if f, ok := a.Cluster.Fence(bucket); ok {
			return f, release, nil
		}
		release()
	}
}

// editing waits until nobody else writes the definitions of a bucket's namespaces; the caller ends it. Versions
// keep edits from overwriting one another. This makes them take turns, so that who must write many at once (a
// calendar, and the jobs that use it) is not overtaken for ever by those who write one.
func (a *API) editing(ctx context.Context, bucket int) (func(), error) {
	turn := a.turns[bucket]
	select {
	case turn <- struct{}{}:
		return func() { <-turn }, nil
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// edit is a job that is written anew.
type edit struct {
	job   *store.Job
	from  int64 // the version that it replaces
	entry *store.AuditEntry
}

// change writes a job's new definition or status.
func (a *API) change(ctx context.Context, old, j store.Job, from int64, action auth.Permission) (*body[jobView], error) {
	done, err := a.editing(ctx, j.Bucket)
	if err != nil {
		return nil, err
	}
	defer done()
	now := clock.Millis(a.Clock)
	j.UpdatedAt, j.UpdatedBy = now, httpx.CallerOf(ctx).Principal.Name
	j.Version = from + 1
	entry, err := a.entry(ctx, action, "job", j.ID, j.Definition.Name, a.told(old), a.told(j))
	if err != nil {
		return nil, err
	}
	if err := a.rewrite(ctx, j.Bucket, now, []edit{{&j, from, entry}}, func(*store.Bucket) error { return nil }); err != nil {
		return nil, err
	}
	return a.shown(ctx, j.ID)
}

// rewrite writes jobs of one bucket anew, all or none: what was planned ahead is withdrawn in the same
// transaction, and their triggers count from now on. first comes before the jobs in that transaction.
func (a *API) rewrite(ctx context.Context, bucket int, now int64, edits []edit, first func(b *store.Bucket) error) error {
	jobs, off := make(map[int64]bool, len(edits)), map[int64]bool{}
	for _, e := range edits {
		if err := a.Trigger.Settle(ctx, e.job.ID, bucket, now); err != nil {
			return err
		}
		jobs[e.job.ID] = true
		if !e.job.Enabled {
			off[e.job.ID] = true
		}
	}
	fence, release, err := a.held(ctx, bucket)
	if err != nil {
		return err
	}
	defer release()
	ahead := a.ahead(jobs, now)
	var late, retries []*ready.Execution
	if len(off) > 0 {
		late, retries = a.unstarted(off, now), a.retriesOf(off)
	}
	var after func()
	err = a.under(ctx, fence, func(b *store.Bucket) error {
		if err := first(b); err != nil {
			return err
		}
		if err := b.Withdraw(batchesOf(ahead)); err != nil {
			return err
		}
		if err := b.Miss(batchesOf(late), idsOf(late), reasonPaused, "", now); err != nil {
			return err
		}
		var err error
		if after, err = a.Outcome.CancelRetries(ctx, b, bucket, retries, outcome.ReasonJobDisabled); err != nil {
			return err
		}
		for _, e := range edits {
			hints, err := trigger.Hints(&e.job.Definition, now)
			if err != nil {
				return err
			}
			if err := b.UpdateJob(e.job, e.from, hints, e.entry); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		a.Ready.Add(slices.Concat(ahead, late, retries)...)
		return err
	}
	after()
	a.Trigger.Nudge()
	return nil
}

// ahead takes the planned firings of jobs that are not due yet out of memory: they have not
// been sent and will not be. The caller deletes their rows or puts them back. What is due already and waits
// for the start that jitter gave it stays: the triggers count from now, so nobody would plan it again.
func (a *API) ahead(jobs map[int64]bool, now int64) []*ready.Execution {
	return a.Ready.TakeOut(func(e *ready.Execution) bool {
		return jobs[e.Batch.JobID] && e.Batch.TriggerNo > 0 && !e.Batch.CatchUp && e.Attempt == 1 && e.Batch.DueAt > now
	})
}

// unstarted takes what jobs owe and have not started out of memory, for jobs that are switched off or
// deleted: their catch-ups, and what is due and waits for the start that jitter gave it. The caller ends them
// or puts them back.
func (a *API) unstarted(jobs map[int64]bool, now int64) []*ready.Execution {
	return a.Ready.TakeOut(func(e *ready.Execution) bool {
		b := e.Batch
		return jobs[b.JobID] && b.TriggerNo > 0 && !b.Admitted && (b.CatchUp || b.DueAt <= now && e.NotBefore > now)
	})
}

// retriesOf takes retries that wait for their time or their turn out of memory, for jobs that are switched
// off or deleted: nothing of such a job starts any more. The caller ends them or puts them back.
func (a *API) retriesOf(jobs map[int64]bool) []*ready.Execution {
	return a.Ready.TakeOut(func(e *ready.Execution) bool {
		return jobs[e.Batch.JobID] && e.Retry && (e.Bound == nil || !e.Bound.Sent)
	})
}

// reasonPaused is a catch-up's, or a firing's that jitter spread, whose job was switched off or deleted before its start.
const reasonPaused = "missed_paused"

// backlogOf takes catch-ups that have not started out of memory: they will not be sent. The caller ends
// them or puts them back.
func (a *API) backlogOf(k ready.DrainKey) []*ready.Execution {
	return a.Ready.TakeOut(func(e *ready.Execution) bool { return k.Of(e.Batch) && !e.Batch.Admitted })
}

func idsOf(list []*ready.Execution) []int64 {
	out := make([]int64, len(list))
	for i, e := range list {
		out[i] = e.ID
	}
	return out
}

func batchesOf(list []*ready.Execution) map[string]int {
	out := make(map[string]int, len(list))
	for _, e := range list {
		out[e.Batch.ID] = e.Batch.Day
	}
	return out
}

// told is what the audit keeps of a job: what somebody wrote, not what comes by itself.
func (a *API) told(j store.Job) map[string]any {
	v := a.view(j, nil)
	return map[string]any{
		"name": v.Name, "app": v.App, "handler": v.Handler, "description": v.Description, "triggers": v.Triggers, "params": v.Params, "routing": v.Routing, "retry": v.Retry,
		"timeout": v.Timeout, "wait": v.Wait, "concurrency": v.Concurrency, "misfire": v.Misfire, "priority": v.Priority, "resources": v.Resources, "limits": v.Limits, "enabled": v.Enabled,
	}
}

func (a *API) updateJob(ctx context.Context, in *updateJobInput) (*body[jobView], error) {
	old, err := a.jobOf(ctx, in.ID)
	if err != nil {
		return nil, err
	}
	if in.Body.Version != old.Version {
		return nil, store.ErrStale
	}
	d, last, err := a.definition(ctx, in.Body.JobBody, old.LastTriggerNo)
	if err != nil {
		return nil, err
	}
	app, err := a.app(ctx, old.NS, d.App)
	if err != nil {
		return nil, err
	}
	j := old
	j.Definition, j.AppID, j.LastTriggerNo, j.Comment = d, app.ID, last, in.Body.Comment
	if in.Body.Enabled != nil {
		j.Enabled = *in.Body.Enabled
	}
	return a.change(ctx, old, j, in.Body.Version, auth.JobUpdate)
}

func (a *API) enableJob(ctx context.Context, in *switchJobInput) (*body[jobView], error) {
	return a.turn(ctx, in, true)
}

func (a *API) disableJob(ctx context.Context, in *switchJobInput) (*body[jobView], error) {
	return a.turn(ctx, in, false)
}

func (a *API) turn(ctx context.Context, in *switchJobInput, on bool) (*body[jobView], error) {
	old, err := a.jobOf(ctx, in.ID)
	if err != nil {
		return nil, err
	}
	if in.Body != nil && in.Body.Version != 0 && in.Body.Version != old.Version {
		return nil, store.ErrStale
	}
	if old.Enabled == on {
		return a.shown(ctx, old.ID)
	}
	j := old
	j.Enabled = on
	return a.change(ctx, old, j, old.Version, auth.JobPause)
}

func (a *API) deleteJob(ctx context.Context, in *deleteJobInput) (*empty, error) {
	j, err := a.jobOf(ctx, in.ID)
	if err != nil {
		return nil, err
	}
	if in.Version != 0 && in.Version != j.Version {
		return nil, store.ErrStale
	}
	entry, err := a.entry(ctx, auth.JobDelete, "job", j.ID, j.Definition.Name, a.told(j), nil)
	if err != nil {
		return nil, err
	}
	now := clock.Millis(a.Clock)
	if err := a.Trigger.Settle(ctx, j.ID, j.Bucket, now); err != nil {
		return nil, err
	}
	fence, release, err := a.held(ctx, j.Bucket)
	if err != nil {
		return nil, err
	}
	defer release()
	one := map[int64]bool{j.ID: true}
	ahead, late, backfill := a.ahead(one, now), a.unstarted(one, now), a.backfillOf(j.ID)
	retries := a.retriesOf(one)
	// Tasks that rest in their table are called off when they are taken from there.
	asked := a.Ready.TakeOut(func(e *ready.Execution) bool {
		return e.Batch.JobID == j.ID && e.Batch.Asked() && !e.Batch.Admitted && e.Attempt == 1
	})
	var after func()
	err = a.under(ctx, fence, func(b *store.Bucket) error {
		var err error
		if after, err = a.Outcome.CancelRetries(ctx, b, j.Bucket, retries, outcome.ReasonJobDeleted); err != nil {
			return err
		}
		if err := b.Withdraw(batchesOf(ahead)); err != nil {
			return err
		}
		if err := b.Miss(batchesOf(late), idsOf(late), reasonPaused, "", now); err != nil {
			return err
		}
		if err := b.Cancel(batchesOf(asked), idsOf(asked), outcome.ReasonJobDeleted, "", now); err != nil {
			return err
		}
		if err := b.Cancel(batchesOf(backfill), idsOf(backfill), reasonBackfill, "", now); err != nil {
			return err
		}
		return b.DeleteJob(j, now, entry)
	})
	if err != nil {
		a.Ready.Add(slices.Concat(ahead, late, backfill, asked, retries)...)
		return nil, err
	}
	after()
	return nil, nil
}

func (a *API) triggerJob(ctx context.Context, in *triggerJobInput) (*body[batchIDView], error) {
	j, err := a.jobOf(ctx, in.ID)
	if err != nil {
		return nil, err
	}
	ask := trigger.Ask{Job: j, Kind: schedule.Manual, By: httpx.CallerOf(ctx).Principal.Name}
	if in.Body != nil {
		ask.Params, ask.Key = (*string)(in.Body.Params), in.Body.IdempotencyKey
	}
	if ask.Params != nil && len(*ask.Params) > job.MaxParams {
		return nil, httpx.Invalid(ctx, "too_long", "params", "", fmt.Sprintf("At most %d bytes; got %d.", job.MaxParams, len(*ask.Params)), fmt.Sprintf("最多 %d 字节，当前 %d 字节。", job.MaxParams, len(*ask.Params)))
	}
	if ask.Params != nil {
		if bad := secretsOf(j.Definition.Params, *ask.Params); bad != nil {
			return nil, bad
		}
	}
	if ask.Entry, err = a.entry(ctx, auth.JobRun, "job", j.ID, j.Definition.Name, nil, map[string]any{"params": ask.Params}); err != nil {
		return nil, err
	}
	if ask.Params != nil {
		ask.Body = *ask.Params
	}
	answer, err := a.Trigger.Ask(ctx, ask)
	if err != nil {
		return nil, err
	}
	return &body[batchIDView]{batchIDView{answer.BatchID}}, nil
}

func (a *API) preview(ctx context.Context, in *previewInput) (*body[previewView], error) {
	r := &reader{}
	specs := r.triggers(in.Body.Triggers)
	from := a.Clock.Now()
	if t := r.time("from", in.Body.From); t != nil {
		from = *t
	}
	if len(r.bad) > 0 {
		return nil, &job.InvalidError{Fields: r.bad}
	}
	count := in.Body.Count
	if count == 0 {
		count = 10
	}
	if err := a.resolve(ctx, specs); err != nil {
		return nil, err
	}
	var jobID int64
	if in.Body.JobID != "" {
		j, err := a.jobOf(ctx, in.Body.JobID)
		if err != nil {
			return nil, err
		}
		jobID = j.ID
	}
	fires, warnings, err := schedule.Preview(jobID, specs, from, count)
	if err != nil {
		return nil, err
	}
	out := previewView{Fires: []fireView{}, Warnings: []warningView{}}
	for _, f := range fires {
		out.Fires = append(out.Fires, fireView{f.At.Format("2006-01-02T15:04:05.999Z07:00"), f.Trigger, f.Note})
	}
	for _, w := range warnings {
		out.Warnings = append(out.Warnings, warningView{w.Code, w.Trigger, w.Message})
	}
	return &body[previewView]{out}, nil
}
