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
	"unicode/utf8"

	"github.com/danielgtaylor/huma/v2"

	"github.com/ax-scheduler/ax/internal/auth"
	"github.com/ax-scheduler/ax/internal/batch"
	"github.com/ax-scheduler/ax/internal/clock"
	"github.com/ax-scheduler/ax/internal/filter"
	"github.com/ax-scheduler/ax/internal/job"
	"github.com/ax-scheduler/ax/internal/message"
	"github.com/ax-scheduler/ax/internal/outcome"
	"github.com/ax-scheduler/ax/internal/schedule"
	"github.com/ax-scheduler/ax/internal/store"
	"github.com/ax-scheduler/ax/internal/trigger"
	"github.com/ax-scheduler/ax/server/httpx"
)

const (
	// maxDelay is the longest delay of a task.
	maxDelay = 366 * 24 * time.Hour
	// maxKey bounds a business key, in characters.
	maxKey = 255
	// keepKey is how long a key is taken beyond the end of its task, unless the request says otherwise;
	// maxKeep the longest that it may say.
	keepKey = 24 * time.Hour
	maxKeep = 366 * 24 * time.Hour

	// maxBulk bounds its body.
	maxBulk = 16 << 20
	// auditEvery is how often the making of tasks by one person for one job has an audit entry of its own: their
	// rows are their audit.
	auditEvery = time.Minute
)

// jsonText is any JSON value, kept as its text.
type jsonText string

// UnmarshalJSON keeps the text without the blanks in it.
func (p *jsonText) UnmarshalJSON(raw []byte) error {
	var compact bytes.Buffer
	if err := json.Compact(&compact, raw); err != nil {
		return err
	}
	*p = jsonText(compact.String())
	return nil
}

// MarshalJSON gives it back as it is.
func (p jsonText) MarshalJSON() ([]byte, error) { return []byte(p), nil }

// Schema is huma's: any JSON value.
func (jsonText) Schema(huma.Registry) *huma.Schema {
	return &huma.Schema{Description: "any JSON value, at most 64 KiB"}
}

type delayedBody struct {
	Delay   string    `json:"delay,omitempty" doc:"from now, such as 90s or 36h; either this or runAt"`
	RunAt   string    `json:"runAt,omitempty" doc:"RFC 3339; what has passed runs at once"`
	Payload *jsonText `json:"payload,omitempty" doc:"what the executor gets with it"`
	Key     string    `json:"key,omitempty" doc:"business key, at most 255 characters: a second task of the job with it is refused while the first is not final, and for keyWindow longer"`
	Window  string    `json:"keyWindow,omitempty" doc:"default 24h, at most 8784h"`
}

type delayedInput struct {
	JobPath
	IdempotencyKey string `header:"Idempotency-Key" maxLength:"256" doc:"the same request with the same key within 24 h answers the same task"`
	Body           delayedBody
}

type delayedBulkInput struct {
	JobPath
	IdempotencyKey string        `header:"Idempotency-Key" maxLength:"256"`
	Body           []delayedBody `minItems:"1" maxItems:"1000"`
}

type delayedMade struct {
	BatchID string `json:"batchId,omitempty"`
	DueAt   string `json:"dueAt,omitempty"`
	// Status is what became of the item.
	Status string             `json:"status" enum:"created,repeated,exists,refused" doc:"repeated: the same request made it before; exists: the key is taken by batchId"`
	Errors []*message.Invalid `json:"errors,omitempty"`
}

type delayedBulkView struct {
	Items []delayedMade `json:"items" doc:"one for each task, in the order of the request"`
}

type delayedView struct {
	BatchID    string      `json:"batchId"`
	JobID      string      `json:"jobId"`
	State      string      `json:"state"`
	Resting    bool        `json:"resting" doc:"it waits in its table; shortly before its time it becomes a batch with executions"`
	DueAt      string      `json:"dueAt"`
	Key        string      `json:"key"`
	Payload    *jsonText   `json:"payload" nullable:"true"`
	Reason     *reasonView `json:"reason,omitempty"`
	CreatedBy  string      `json:"createdBy"`
	CreatedAt  string      `json:"createdAt"`
	StartedAt  *string     `json:"startedAt" nullable:"true"`
	FinishedAt *string     `json:"finishedAt" nullable:"true"`
}

type delayedListInput struct {
	NamespacePath
	Page
	Job   string `query:"job" maxLength:"20"`
	Key   string `query:"key" maxLength:"1020" doc:"business key; needs job"`
	State string `query:"state" maxLength:"256" doc:"one or several, separated by commas; default all"`
	From  string `query:"from" doc:"due at or after, RFC 3339"`
	To    string `query:"to" doc:"due before, RFC 3339"`
}

type rescheduleInput struct {
	BatchPath
	Body struct {
		Delay string `json:"delay,omitempty" doc:"from now; either this or runAt"`
		RunAt string `json:"runAt,omitempty" doc:"RFC 3339"`
	}
}

func (a *API) delayed() {
	const jobs = "/api/v1/namespaces/{namespace}/jobs/{id}/delayed"
	const tasks = "/api/v1/namespaces/{namespace}/delayed"
	created := func(op *huma.Operation) { op.DefaultStatus = http.StatusCreated }
	large := func(op *huma.Operation) { op.MaxBodyBytes, op.BodyReadTimeout = maxBulk, time.Minute }
	add(a, http.MethodPost, jobs, "createDelayed", "Make a delayed task", inNamespace(auth.JobRun), a.createDelayed, created)
	add(a, http.MethodPost, jobs+"/bulk", "createDelayedBulk", "Make up to 1 000 delayed tasks", inNamespace(auth.JobRun), a.createDelayedBulk, large)
	add(a, http.MethodGet, tasks, "listDelayed", "Delayed tasks, nearest first", inNamespace(auth.BatchRead), a.listDelayed)
	add(a, http.MethodGet, tasks+"/{batchId}", "getDelayed", "One delayed task", inNamespace(auth.BatchRead), a.getDelayed)
	add(a, http.MethodPost, tasks+"/{batchId}/reschedule", "rescheduleDelayed", "Move a task that has not been sent to another time: it goes on under a new batchId", inNamespace(auth.JobRun), a.reschedule)
	add(a, http.MethodPost, tasks+"/{batchId}/run", "runDelayed", "Run a waiting task now: it goes on under a new batchId", inNamespace(auth.JobRun), a.runDelayed)
	add(a, http.MethodPost, "/api/v1/tasks/{taskId}/events", "sendEvent", "Run a job that has an event trigger for something that happened", atJobs.of(selfOrProgram()), a.sendEvent, func(op *huma.Operation) {
		op.DefaultStatus = http.StatusAccepted
		op.RequestBody = &huma.RequestBody{Description: "any JSON value, at most 64 KiB; it reaches the executor", Content: map[string]*huma.MediaType{"application/json": {Schema: &huma.Schema{}}}}
	})
}

// when reads delay or runAt into ax time, in milliseconds.
func when(delay, runAt string, now int64) (int64, *message.Invalid) {
	switch {
	case (delay == "") == (runAt == ""):
		return 0, &message.Invalid{Code: "one_of", Field: "delay", Token: delay, Message: message.Text{EN: "Write either delay or runAt.", ZH: "请填写 delay 或 runAt 其中之一。"}}
	case delay != "":
		d, err := time.ParseDuration(delay)
		if err != nil || d < 0 || d > maxDelay {
			return 0, &message.Invalid{Code: "bad_duration", Field: "delay", Token: delay, Message: message.Text{EN: "A delay is 0s to 8784h, such as 90s or 36h.", ZH: "delay 取值为 0s 至 8784h，例如 90s 或 36h。"}}
		}
		// Up to a whole millisecond: never early.
		return now + (d + time.Millisecond - 1).Milliseconds(), nil
	}
	at, err := time.Parse(time.RFC3339Nano, runAt)
	if err != nil {
		return 0, &message.Invalid{Code: "bad_time", Field: "runAt", Token: runAt, Message: message.Text{EN: "Write a time such as 2026-11-30T08:00:00Z.", ZH: "请写时间，例如 2026-11-30T08:00:00Z。"}}
	}
	ms := at.Add(time.Millisecond - 1).UnixMilli()
	if ms > now+maxDelay.Milliseconds() {
		return 0, &message.Invalid{Code: "out_of_range", Field: "runAt", Token: runAt, Message: message.Text{EN: "A task may be at most 366 days ahead.", ZH: "任务时间最多为 366 天之后。"}}
	}
	return ms, nil
}

// ask reads one task.
func (b delayedBody) ask(j store.Job, by, idempotencyKey string, now int64) (trigger.Ask, []*message.Invalid) {
	var bad []*message.Invalid
	a := trigger.Ask{Job: j, Kind: schedule.Delayed, By: by, BusinessKey: b.Key, Keep: keepKey, Key: idempotencyKey}
	var inv *message.Invalid
	if a.DueAt, inv = when(b.Delay, b.RunAt, now); inv != nil {
		bad = append(bad, inv)
	}
	if b.Payload != nil && string(*b.Payload) != "null" {
		a.Event = (*string)(b.Payload)
		if len(*a.Event) > job.MaxParams {
			bad = append(bad, &message.Invalid{Code: "too_long", Field: "payload", Message: message.Text{EN: fmt.Sprintf("At most %d bytes; got %d.", job.MaxParams, len(*a.Event)), ZH: fmt.Sprintf("最多 %d 字节，当前 %d 字节。", job.MaxParams, len(*a.Event))}})
		}
	}
	if n := utf8.RuneCountInString(b.Key); n > maxKey || strings.ContainsRune(b.Key, 0) {
		bad = append(bad, &message.Invalid{Code: "too_long", Field: "key", Token: b.Key, Message: message.Text{EN: fmt.Sprintf("At most %d characters, none of them NUL; got %d.", maxKey, n), ZH: fmt.Sprintf("最多 %d 个字符，且不能包含 NUL，当前 %d 个。", maxKey, n)}})
	}
	if b.Window != "" {
		d, err := time.ParseDuration(b.Window)
		if err != nil || d < 0 || d > maxKeep {
			bad = append(bad, &message.Invalid{Code: "bad_duration", Field: "keyWindow", Token: b.Window, Message: message.Text{EN: "0s to 8784h, such as 24h.", ZH: "取值为 0s 至 8784h，例如 24h。"}})
		}
		a.Keep = d
	}
	if idempotencyKey != "" {
		raw, err := json.Marshal(b)
		if err != nil {
			bad = append(bad, &message.Invalid{Code: "not_understood", Field: "", Message: message.Text{EN: err.Error() + ".", ZH: err.Error() + "。"}})
		}
		a.Body = string(raw)
	}
	return a, bad
}

// runnable reads the job of a path and refuses one that is switched off.
func (a *API) runnable(ctx context.Context, text string) (store.Job, error) {
	j, err := a.jobOf(ctx, text)
	if err == nil && !j.Enabled {
		err = httpx.NewProblem(ctx, http.StatusConflict, "job_disabled", message.Text{EN: "The job is switched off; switch it on first.", ZH: "任务已停用，请先启用。"})
	}
	return j, err
}

// noted makes the audit entry of tasks that are made, once a minute for a person and a job.
func (a *API) noted(ctx context.Context, action auth.Permission, j store.Job, n int) (*store.AuditEntry, error) {
	now := time.Now()
	who := fmt.Sprint(httpx.CallerOf(ctx).Principal.UserID, "/", httpx.CallerOf(ctx).Principal.TokenID, "/", j.ID)
	a.makersMu.Lock()
	if now.Sub(a.makers[who]) < auditEvery {
		a.makersMu.Unlock()
		return nil, nil //nolint:nilnil // no entry is due
	}
	if len(a.makers) > 10_000 {
		clear(a.makers)
	}
	a.makers[who] = now
	a.makersMu.Unlock()
	return a.entry(ctx, action, "job", j.ID, j.Definition.Name, nil, map[string]any{"asked": n, "andMore": "up to a minute from now without an entry of their own"})
}

func (a *API) createDelayed(ctx context.Context, in *delayedInput) (*body[delayedMade], error) {
	j, err := a.runnable(ctx, in.ID)
	if err != nil {
		return nil, err
	}
	ask, bad := in.Body.ask(j, httpx.CallerOf(ctx).Principal.Name, in.IdempotencyKey, clock.Millis(a.Clock))
	if len(bad) > 0 {
		return nil, &job.InvalidError{Fields: bad}
	}
	if ask.Entry, err = a.noted(ctx, auth.JobRun, j, 1); err != nil {
		return nil, err
	}
	answer, err := a.Trigger.Ask(ctx, ask)
	if err != nil {
		return nil, err
	}
	return &body[delayedMade]{madeOf(answer)}, nil
}

func madeOf(answer trigger.Answer) delayedMade {
	if answer.DueAt == 0 {
		return delayedMade{BatchID: answer.BatchID, Status: "repeated"}
	}
	return delayedMade{BatchID: answer.BatchID, DueAt: stamp(answer.DueAt), Status: "created"}
}

func (a *API) createDelayedBulk(ctx context.Context, in *delayedBulkInput) (*body[delayedBulkView], error) {
	j, err := a.runnable(ctx, in.ID)
	if err != nil {
		return nil, err
	}
	now := clock.Millis(a.Clock)
	by := httpx.CallerOf(ctx).Principal.Name
	out := delayedBulkView{Items: make([]delayedMade, len(in.Body))}
	asks := make([]trigger.Ask, 0, len(in.Body))
	place := make([]int, 0, len(in.Body))
	for i, b := range in.Body {
		key := in.IdempotencyKey
		if key != "" {
			key += "#" + strconv.Itoa(i)
		}
		ask, bad := b.ask(j, by, key, now)
		if len(bad) > 0 {
			for _, f := range bad {
				f.Field = fmt.Sprintf("[%d].%s", i, f.Field)
			}
			out.Items[i] = delayedMade{Status: "refused", Errors: bad}
			continue
		}
		asks, place = append(asks, ask), append(place, i)
	}
	if len(asks) == 0 {
		return &body[delayedBulkView]{out}, nil
	}
	if asks[0].Entry, err = a.noted(ctx, auth.JobRun, j, len(asks)); err != nil {
		return nil, err
	}
	answers, err := a.Trigger.AskAll(ctx, j.Bucket, asks)
	if err != nil {
		return nil, err
	}
	for i, answer := range answers {
		var taken *trigger.TakenError
		switch {
		case answer.Err == nil:
			out.Items[place[i]] = madeOf(answer)
		case errors.As(answer.Err, &taken):
			out.Items[place[i]] = delayedMade{BatchID: taken.BatchID, Status: "exists"}
		case errors.Is(answer.Err, trigger.ErrKeyReused):
			out.Items[place[i]] = delayedMade{Status: "refused", Errors: []*message.Invalid{{Code: "key_reused", Field: fmt.Sprintf("[%d]", place[i]), Message: message.Text{EN: "This idempotency key was used for another request.", ZH: "该幂等键已用于其他请求。"}}}}
		default:
			return nil, answer.Err
		}
	}
	return &body[delayedBulkView]{out}, nil
}

func restingView(d store.DelayedTask) delayedView {
	return delayedView{
		BatchID: d.BatchID, JobID: id(d.JobID), State: string(batch.Delayed), Resting: true, DueAt: stamp(d.DueAt), Key: d.Key, Payload: (*jsonText)(d.Payload), CreatedBy: d.CreatedBy, CreatedAt: stamp(d.CreatedAt),
	}
}

func taskView(b store.Batch) delayedView {
	return delayedView{
		BatchID: b.ID, JobID: id(b.JobID), State: string(b.State), DueAt: stamp(b.DueAt), Key: b.Key, Payload: (*jsonText)(b.Event), Reason: reasonOf(b.Reason, b.Detail), CreatedBy: b.CreatedBy, CreatedAt: stamp(b.CreatedAt),
		StartedAt: at(b.StartedAt), FinishedAt: at(b.FinishedAt),
	}
}

func (a *API) listDelayed(ctx context.Context, in *delayedListInput) (*body[list[delayedView]], error) {
	h, err := a.filter(ctx, &historyInput{Page: in.Page, Job: in.Job, State: in.State, From: in.From, To: in.To})
	if err != nil {
		return nil, err
	}
	ns := nsOf(ctx).ID
	f := store.DelayedFilter{Job: h.Job, States: h.States, From: h.From, To: h.To, Limit: h.Limit}
	out := list[delayedView]{Items: []delayedView{}}
	if in.Key != "" {
		if f.Job == 0 {
			return nil, httpx.Invalid(ctx, "required", "job", "", "A key belongs to a job: name it too.", "业务键属于任务，请同时指定 job。")
		}
		if f.BatchID, err = a.Store.Key(ctx, ns, f.Job, store.ScopeDelayed, store.KeyHash(in.Key), clock.Millis(a.Clock)); err != nil {
			return nil, err
		}
		if f.BatchID == "" {
			return &body[list[delayedView]]{out}, nil
		}
	}
	if err := openCursor(ctx, in.Cursor, &f.AfterDue, &f.AfterID); err != nil {
		return nil, err
	}
	type entry struct {
		due  int64
		view delayedView
	}
	var all []entry
	if len(f.States) == 0 || slices.Contains(f.States, string(batch.Delayed)) {
		resting, err := a.Store.RestingTasks(ctx, ns, f)
		if err != nil {
			return nil, err
		}
		for _, d := range resting {
			all = append(all, entry{d.DueAt, restingView(d)})
		}
	}
	batches, err := a.Store.DelayedBatches(ctx, ns, f)
	if err != nil {
		return nil, err
	}
	for _, b := range batches {
		all = append(all, entry{b.DueAt, taskView(b)})
	}
	slices.SortFunc(all, func(x, y entry) int {
		return cmp.Or(cmp.Compare(x.due, y.due), cmp.Compare(x.view.BatchID, y.view.BatchID))
	})
	// One that was moved from its table between the two readings is in both.
	all = slices.CompactFunc(all, func(x, y entry) bool { return x.view.BatchID == y.view.BatchID })
	if len(all) > in.Limit {
		all = all[:in.Limit]
		last := all[len(all)-1]
		out.NextCursor = cursor(last.due, last.view.BatchID)
	}
	for _, e := range all {
		out.Items = append(out.Items, e.view)
	}
	return &body[list[delayedView]]{out}, nil
}

// task reads a delayed task, wherever it is.
func (a *API) task(ctx context.Context, batchID string) (store.Batch, bool, error) {
	ns := nsOf(ctx).ID
	// In the order in which it moves, so that it is not missed between the two readings.
	d, err := a.Store.Delayed(ctx, ns, batchID)
	if err == nil {
		return store.Batch{ID: d.BatchID, NS: d.NS, JobID: d.JobID, TriggerKind: string(schedule.Delayed), State: batch.Delayed, DueAt: d.DueAt, PlannedFor: d.DueAt, ShardTotal: 1, Event: d.Payload, Key: d.Key, CreatedBy: d.CreatedBy, CreatedAt: d.CreatedAt}, true, nil
	}
	if !errors.Is(err, store.ErrNotFound) {
		return store.Batch{}, false, err
	}
	b, err := a.Store.Batch(ctx, ns, batchID)
	return b, false, err
}

func (a *API) getDelayed(ctx context.Context, in *BatchPath) (*body[delayedView], error) {
	b, resting, err := a.task(ctx, in.BatchID)
	if err == nil && b.TriggerKind != string(schedule.Delayed) {
		err = store.ErrNotFound
	}
	if err != nil {
		return nil, err
	}
	v := taskView(b)
	v.Resting = resting
	return &body[delayedView]{v}, nil
}

func (a *API) reschedule(ctx context.Context, in *rescheduleInput) (*body[delayedMade], error) {
	due, inv := when(in.Body.Delay, in.Body.RunAt, clock.Millis(a.Clock))
	if inv != nil {
		return nil, inv
	}
	return a.move(ctx, in.BatchID, due)
}

func (a *API) runDelayed(ctx context.Context, in *BatchPath) (*body[delayedMade], error) {
	return a.move(ctx, in.BatchID, 0)
}

func (a *API) move(ctx context.Context, batchID string, due int64) (*body[delayedMade], error) {
	b, _, err := a.task(ctx, batchID)
	if err == nil && b.TriggerKind != string(schedule.Delayed) {
		err = store.ErrNotFound
	}
	if err != nil {
		return nil, err
	}
	j, err := a.Store.Job(ctx, nsOf(ctx).ID, b.JobID)
	if err != nil {
		return nil, err
	}
	entry, err := a.entry(ctx, auth.JobRun, "batch", 0, b.ID, map[string]any{"dueAt": stamp(b.DueAt)}, map[string]any{"dueAt": stamp(max(due, clock.Millis(a.Clock)))})
	if err != nil {
		return nil, err
	}
	entry.ObjectID = b.ID
	answer, err := a.Trigger.Reschedule(ctx, j, b, due, httpx.CallerOf(ctx).Principal.Name, entry)
	if err != nil {
		return nil, err
	}
	return &body[delayedMade]{madeOf(answer)}, nil
}

type eventInput struct {
	TaskID         string `path:"taskId" maxLength:"20" doc:"the job's id"`
	EventID        string `query:"eventId" maxLength:"256" doc:"the same id within 24 h answers the same batch; the header Idempotency-Key does the same"`
	IdempotencyKey string `header:"Idempotency-Key" maxLength:"256"`
	RawBody        []byte
}

type eventSent struct {
	BatchID string      `json:"batchId,omitempty"`
	Fired   bool        `json:"fired" doc:"false: no trigger's filter let it pass, and nothing was made"`
	Reason  *reasonView `json:"reason,omitempty" doc:"why it was not"`
}

// passes tells whether one of a job's event triggers lets an event pass; detail says why a filter could not tell.
func (a *API) passes(j store.Job, text string) (passes bool, detail string) {
	for _, t := range j.Definition.Triggers {
		if t.Kind != schedule.Event {
			continue
		}
		if t.Filter == "" {
			return true, ""
		}
		f, refused := a.filterOf(t.Filter)
		if refused != nil {
			detail = refused.Message.EN
			continue
		}
		ok, err := f.Matches(text)
		if ok {
			return true, ""
		}
		if err != nil {
			detail = err.Error()
		}
	}
	return false, detail
}

// filterOf compiles a filter, or has it from before.
func (a *API) filterOf(text string) (*filter.Filter, *message.Invalid) {
	a.makersMu.Lock()
	f, ok := a.filters[text]
	a.makersMu.Unlock()
	if ok {
		return f, nil
	}
	f, refused := filter.Compile(text)
	if refused != nil {
		return nil, refused
	}
	a.makersMu.Lock()
	defer a.makersMu.Unlock()
	if len(a.filters) > 10_000 {
		clear(a.filters)
	}
	a.filters[text] = f
	return f, nil
}

func (a *API) sendEvent(ctx context.Context, in *eventInput) (*body[eventSent], error) {
	n, err := parseID(in.TaskID)
	if err != nil {
		return nil, err
	}
	j, err := a.Store.JobByID(ctx, n)
	if err != nil {
		return nil, err
	}
	// A job that the caller may not see and one that is not there are answered alike.
	p := httpx.CallerOf(ctx).Principal
	if !a.Auth.Allowed(p, j.NS, auth.EventCreate) {
		if !a.Auth.Allowed(p, j.NS, auth.NamespaceRead) {
			return nil, store.ErrNotFound
		}
		return nil, httpx.NewProblem(ctx, http.StatusForbidden, "forbidden", message.Text{EN: "This needs the right " + string(auth.EventCreate) + " in the namespace.", ZH: "需要该命名空间的权限 " + string(auth.EventCreate) + "。"})
	}
	listens := slices.ContainsFunc(j.Definition.Triggers, func(s schedule.Spec) bool { return s.Kind == schedule.Event })
	switch {
	case !listens:
		return nil, httpx.NewProblem(ctx, http.StatusConflict, "no_event_trigger", message.Text{EN: "The job has no trigger of kind event; add one.", ZH: "该任务没有 event 类型的触发器，请先添加。"})
	case !j.Enabled:
		return nil, httpx.NewProblem(ctx, http.StatusConflict, "job_disabled", message.Text{EN: "The job is switched off; switch it on first.", ZH: "任务已停用，请先启用。"})
	case len(in.RawBody) > job.MaxParams:
		return nil, httpx.Invalid(ctx, "too_long", "body", "", fmt.Sprintf("At most %d bytes; got %d.", job.MaxParams, len(in.RawBody)), fmt.Sprintf("最多 %d 字节，当前 %d 字节。", job.MaxParams, len(in.RawBody)))
	case !json.Valid(in.RawBody) || !utf8.Valid(in.RawBody):
		return nil, httpx.Invalid(ctx, "bad_json", "body", "", "The body of an event is one JSON value in UTF-8.", "事件正文必须是 UTF-8 编码的 JSON 值。")
	}
	var compact bytes.Buffer
	if err := json.Compact(&compact, in.RawBody); err != nil {
		return nil, err
	}
	text := compact.String()
	if ok, detail := a.passes(j, text); !ok {
		a.Metrics.Fates.WithLabelValues("filtered", "event").Inc()
		return &body[eventSent]{eventSent{Reason: reasonOf(reasonFiltered, detail)}}, nil
	}
	ns, err := a.Store.NamespaceByID(ctx, j.NS)
	if err != nil {
		return nil, err
	}
	ctx = context.WithValue(ctx, nsKey{}, ns)
	ask := trigger.Ask{Job: j, Kind: schedule.Event, Event: &text, By: p.Name, Key: cmp.Or(in.EventID, in.IdempotencyKey), Body: text}
	if ask.Entry, err = a.noted(ctx, auth.EventCreate, j, 1); err != nil {
		return nil, err
	}
	answer, err := a.Trigger.Ask(ctx, ask)
	if err != nil {
		return nil, err
	}
	return &body[eventSent]{eventSent{BatchID: answer.BatchID, Fired: true}}, nil
}

// reasonFiltered is why an event fired nothing.
const reasonFiltered = "event_filtered"

// cancelResting calls off a task that rests in its table.
func (a *API) cancelResting(ctx context.Context, batchID string) error {
	entry, err := a.entry(ctx, auth.BatchCancel, "batch", 0, batchID, nil, map[string]any{"reason": outcome.ReasonCancelled})
	if err != nil {
		return err
	}
	entry.ObjectID = batchID
	return a.Trigger.CancelResting(ctx, nsOf(ctx).Bucket, nsOf(ctx).ID, batchID, entry)
}
