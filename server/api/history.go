package api

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"

	"github.com/danielgtaylor/huma/v2"

	"github.com/ax-scheduler/ax/internal/auth"
	"github.com/ax-scheduler/ax/internal/batch"
	"github.com/ax-scheduler/ax/internal/clock"
	"github.com/ax-scheduler/ax/internal/outcome"
	"github.com/ax-scheduler/ax/internal/store"
	"github.com/ax-scheduler/ax/server/httpx"
)

type batchView struct {
	BatchID     string          `json:"batchId"`
	JobID       string          `json:"jobId"`
	JobName     string          `json:"jobName" doc:"empty when the job was deleted"`
	App         string          `json:"app"`
	JobVersion  int64           `json:"jobVersion" doc:"the definition that it is pinned to"`
	Trigger     string          `json:"trigger" doc:"cron, fixedRate, fixedDelay, manual, …"`
	TriggerNo   int             `json:"triggerNo" doc:"0 = not by a schedule"`
	State       string          `json:"state" enum:"WAITING,DELAYED,READY,DISPATCHING,RUNNING,UNKNOWN,SUCCEEDED,FAILED,TIMED_OUT,CANCELLED,SKIPPED,MISSED"`
	Reason      *reasonView     `json:"reason,omitempty"`
	DueAt       string          `json:"dueAt" doc:"when it was to run"`
	PlannedFor  string          `json:"plannedFor"`
	StartedAt   *string         `json:"startedAt" nullable:"true"`
	FinishedAt  *string         `json:"finishedAt" nullable:"true"`
	DurationMs  *int64          `json:"durationMs" nullable:"true"`
	ShardTotal  int             `json:"shardTotal"`
	ShardsDone  int             `json:"shardsDone"`
	ShardsFail  int             `json:"shardsFailed"`
	Priority    int             `json:"priority"`
	Params      *string         `json:"params" nullable:"true" doc:"null = as the job says"`
	Event       *string         `json:"event,omitempty" doc:"what came with an event or a delayed task, JSON text"`
	Key         string          `json:"key,omitempty" doc:"business key of a delayed task"`
	MissedCount int64           `json:"missedCount" doc:"firings that a MISSED row stands for"`
	MissedLast  *string         `json:"missedLastAt" nullable:"true"`
	CreatedBy   string          `json:"createdBy"`
	Waiting     *waitingView    `json:"waiting,omitempty" doc:"what it waits for now; of a single batch only"`
	Results     []shardResult   `json:"results,omitempty" doc:"what the shards that succeeded returned, by shard; of a single batch only"`
	Executions  []executionView `json:"executions,omitempty"`
	Events      []eventView     `json:"events,omitempty"`
}

type shardResult struct {
	Shard  int    `json:"shard"`
	Result string `json:"result"`
}

type waitingView struct {
	Position int         `json:"position" doc:"1 is next"`
	Of       int         `json:"of" doc:"how many wait for the same"`
	Reason   *reasonView `json:"reason"`
	Since    string      `json:"since"`
}

type executorRef struct {
	ID      string `json:"id"`
	Address string `json:"address"`
}

type executionView struct {
	ID           string       `json:"id"`
	BatchID      string       `json:"batchId"`
	JobID        string       `json:"jobId"`
	JobName      string       `json:"jobName"`
	Shard        int          `json:"shard"`
	ShardTotal   int          `json:"shardTotal"`
	Attempt      int          `json:"attempt"`
	State        string       `json:"state" enum:"SCHEDULED,DISPATCHING,RUNNING,STOPPING,UNKNOWN,SUCCEEDED,FAILED,TIMED_OUT,CANCELLED,REJECTED,LOST"`
	Executor     *executorRef `json:"executor,omitempty"`
	DueAt        string       `json:"dueAt"`
	NotBefore    string       `json:"notBefore" doc:"a retry, a catch-up or what jitter spreads waits until then"`
	DispatchedAt *string      `json:"dispatchedAt" nullable:"true"`
	StartedAt    *string      `json:"startedAt" nullable:"true"`
	FinishedAt   *string      `json:"finishedAt" nullable:"true"`
	DurationMs   *int64       `json:"durationMs" nullable:"true" doc:"of the handler, by the executor's clock"`
	WaitedMs     *int64       `json:"waitedMs" nullable:"true" doc:"in the executor's pool"`
	PeakMemoryMB *int64       `json:"peakMemoryMB" nullable:"true" doc:"the most memory that the executor's process had while it ran"`
	Error        string       `json:"error" doc:"what it failed with; empty unless it failed"`
	Message      string       `json:"message" doc:"what the handler said of its success"`
	Code         string       `json:"code" doc:"what the handler called its failure, for retry rules; may be empty"`
	Reason       *reasonView  `json:"reason,omitempty"`
	Result       *string      `json:"result" nullable:"true"`
	Progress     *int64       `json:"progress" nullable:"true"`
	OutputBytes  int64        `json:"outputBytes"`
	Stop         *stopView    `json:"stop,omitempty" doc:"there when somebody, or a limit, wanted it to stop"`
	Events       []eventView  `json:"events"`
	Choice       *choiceView  `json:"choice,omitempty" doc:"why this executor; of a single execution only"`
}

type stopView struct {
	AskedAt        string      `json:"askedAt"`
	AskedBy        string      `json:"askedBy" doc:"empty = ax itself"`
	Reason         *reasonView `json:"reason,omitempty"`
	AcknowledgedAt *string     `json:"acknowledgedAt" nullable:"true" doc:"its executor took the wish; it may still run"`
	ConfirmedAt    *string     `json:"confirmedAt" nullable:"true" doc:"it is known not to run any more"`
	Confirmed      bool        `json:"confirmed" doc:"false although the execution has ended: it may still run, and keeps its place"`
}

type eventView struct {
	At          string `json:"at"`
	ExecutionID string `json:"executionId,omitempty"`
	Kind        string `json:"kind"`
	Detail      string `json:"detail"`
}

type historyInput struct {
	NamespacePath
	Page
	Job   string `query:"job" maxLength:"20"`
	State string `query:"state" maxLength:"256" doc:"one or several, separated by commas"`
	From  string `query:"from" doc:"due at or after, RFC 3339"`
	To    string `query:"to" doc:"due before, RFC 3339"`
}

// BatchPath is a batch of a namespace.
type BatchPath struct {
	NamespacePath
	BatchID string `path:"batchId" maxLength:"64"`
}

type retryInput struct {
	BatchPath
	Body *struct {
		OnlyFailed *bool `json:"onlyFailed,omitempty" doc:"true (default), and nothing else: shards that succeeded are left alone"`
	}
}

// ExecutionPath is an execution of a namespace.
type ExecutionPath struct {
	NamespacePath
	ID string `path:"id" maxLength:"20"`
}

func (a *API) history() {
	const batches = "/api/v1/namespaces/{namespace}/batches"
	const executions = "/api/v1/namespaces/{namespace}/executions"
	add(a, http.MethodGet, batches, "listBatches", "Batches of a namespace, latest due first", inNamespace(auth.BatchRead), a.listBatches)
	add(a, http.MethodGet, batches+"/{batchId}", "getBatch", "One batch with its executions", atOwner.of(inNamespace(auth.BatchRead)), a.getBatch)
	accepted := func(op *huma.Operation) { op.DefaultStatus = http.StatusAccepted }
	add(a, http.MethodPost, batches+"/{batchId}/cancel", "cancelBatch", "Cancel what waits and ask what runs to stop", inNamespace(auth.BatchCancel), a.cancelBatch, accepted)
	add(a, http.MethodPost, batches+"/{batchId}/retry", "retryBatch", "Try the failed shards again", inNamespace(auth.BatchRetry), a.retryBatch, accepted)
	add(a, http.MethodGet, executions, "listExecutions", "Executions of a namespace, latest due first", inNamespace(auth.BatchRead), a.listExecutions)
	add(a, http.MethodGet, executions+"/{id}", "getExecution", "One execution", atOwner.of(inNamespace(auth.BatchRead)), a.getExecution)
	add(a, http.MethodGet, executions+"/{id}/output", "getOutput", "Output from a byte offset", inNamespace(auth.LogRead), a.getOutput)
	add(a, http.MethodGet, executions+"/{id}/output/download", "downloadOutput", "The whole output as a text file", inNamespace(auth.LogRead), a.downloadOutput, isText)
	add(a, http.MethodGet, executions+"/{id}/output/stream", "streamOutput", "Output as it comes (server-sent events)", inNamespace(auth.LogRead), a.streamOutput, streams)
	add(a, http.MethodGet, executions+"/{id}/stream", "streamExecution", "The same as output/stream", inNamespace(auth.LogRead), a.streamOutput, streams)
}

func viewOfBatch(b store.Batch) batchView {
	v := batchView{
		BatchID: b.ID, JobID: id(b.JobID), JobName: b.JobName, App: b.AppName, JobVersion: b.JobVersion, Trigger: b.TriggerKind, TriggerNo: b.TriggerNo, State: string(b.State),
		Reason: reasonOf(b.Reason, b.Detail), DueAt: stamp(b.DueAt), PlannedFor: stamp(b.PlannedFor), StartedAt: at(b.StartedAt), FinishedAt: at(b.FinishedAt), ShardTotal: b.ShardTotal,
		ShardsDone: b.ShardsDone, ShardsFail: b.ShardsFail, Priority: b.Priority, Params: b.Params, Event: b.Event, Key: b.Key, MissedCount: b.MissedCount, MissedLast: at(b.MissedLast), CreatedBy: b.CreatedBy,
	}
	if b.StartedAt > 0 && b.FinishedAt > 0 {
		d := b.FinishedAt - b.StartedAt
		v.DurationMs = &d
	}
	return v
}

func viewOfExecution(e store.Attempt) executionView {
	v := executionView{
		ID: id(e.ID), BatchID: e.BatchID, JobID: id(e.JobID), JobName: e.JobName, Shard: e.Shard, ShardTotal: e.ShardTotal, Attempt: e.Attempt, State: string(e.Status), DueAt: stamp(e.TriggerTime),
		NotBefore: stamp(e.NotBefore), DispatchedAt: at(e.DispatchedAt), StartedAt: at(e.ActualTime), FinishedAt: at(e.FinishedAt), Error: e.Error, Code: e.Code, Result: e.Result, OutputBytes: e.OutputBytes, Events: []eventView{},
	}
	if e.StopAskedAt > 0 {
		v.Stop = &stopView{AskedAt: stamp(e.StopAskedAt), AskedBy: e.StopAskedBy, Reason: reasonOf(e.StopReason, ""), AcknowledgedAt: at(e.StopTakenAt), Confirmed: e.StopConfirmed}
		if e.StopConfirmed {
			v.Stop.ConfirmedAt = at(cmp.Or(e.StopGoneAt, e.FinishedAt))
		}
	}
	if e.Status == batch.RunSucceeded {
		v.Error, v.Message = "", e.Error
	}
	if e.WorkerID != 0 {
		v.Executor = &executorRef{id(e.WorkerID), e.WorkerAddress}
	}
	if e.Duration.Valid {
		v.DurationMs = &e.Duration.Int64
	}
	if e.Waited.Valid {
		v.WaitedMs = &e.Waited.Int64
	}
	if e.PeakMemoryMB > 0 {
		v.PeakMemoryMB = &e.PeakMemoryMB
	}
	if e.Progress.Valid {
		v.Progress = &e.Progress.Int64
	}
	if _, known := reasons()[v.Error]; known {
		v.Reason, v.Error = reasonOf(e.Error, ""), ""
	}
	return v
}

// filter reads the parameters of a history list. The default range is the last 24 hours
// and all that is ahead.
func (a *API) filter(ctx context.Context, in *historyInput) (store.HistoryFilter, error) {
	f := store.HistoryFilter{Limit: in.Limit + 1}
	for one := range strings.SplitSeq(in.State, ",") {
		if one != "" {
			f.States = append(f.States, one)
		}
	}
	for _, s := range f.States {
		if !batch.State(s).Valid() && !batch.Run(s).Valid() {
			return f, httpx.Invalid(ctx, "not_allowed", "state", s, fmt.Sprintf("%q is not a state.", s), fmt.Sprintf("“%s” 不是有效状态。", s))
		}
	}
	if in.Job != "" {
		n, err := parseID(in.Job)
		if err != nil {
			return f, httpx.Invalid(ctx, "not_allowed", "job", in.Job, "Write the job's id.", "请填写任务编号。")
		}
		f.Job = n
	}
	var err error
	if f.From, err = parseTime(ctx, "from", in.From); err != nil {
		return f, err
	}
	if f.To, err = parseTime(ctx, "to", in.To); err != nil {
		return f, err
	}
	return f, nil
}

func (a *API) listBatches(ctx context.Context, in *historyInput) (*body[list[batchView]], error) {
	f, err := a.filter(ctx, in)
	if err != nil {
		return nil, err
	}
	if in.Cursor != "" {
		if err := openCursor(ctx, in.Cursor, &f.AfterDue, &f.AfterID); err != nil {
			return nil, err
		}
	}
	rows, err := a.Store.Batches(ctx, nsOf(ctx).ID, f)
	if err != nil {
		return nil, err
	}
	out := list[batchView]{Items: []batchView{}}
	if len(rows) > in.Limit {
		rows = rows[:in.Limit]
		last := rows[len(rows)-1]
		out.NextCursor = cursor(last.DueAt, last.ID)
	}
	for _, b := range rows {
		out.Items = append(out.Items, viewOfBatch(b))
	}
	return &body[list[batchView]]{out}, nil
}

func (a *API) getBatch(ctx context.Context, in *BatchPath) (*body[batchView], error) {
	return a.batch(ctx, in.BatchID)
}

func (a *API) batch(ctx context.Context, batchID string) (*body[batchView], error) {
	ns := nsOf(ctx).ID
	b, _, err := a.task(ctx, batchID)
	if err != nil {
		return nil, err
	}
	attempts, err := a.Store.Attempts(ctx, ns, batchID)
	if err != nil {
		return nil, err
	}
	events, err := a.Store.BatchEvents(ctx, ns, batchID)
	if err != nil {
		return nil, err
	}
	v := viewOfBatch(b)
	if p, waits := a.Ready.Waits(b.JobID, b.ID, clock.Millis(a.Clock)); waits {
		v.Waiting = &waitingView{p.Position, p.Of, reasonOf(p.Reason, p.Detail), stamp(p.Since)}
	}
	v.Executions, v.Events = []executionView{}, []eventView{}
	place := map[int64]int{}
	for i, e := range attempts {
		v.Executions = append(v.Executions, viewOfExecution(e))
		place[e.ID] = i
		if e.Status != batch.RunSucceeded || e.Result == nil {
			continue
		}
		if n := len(v.Results); n > 0 && v.Results[n-1].Shard == e.Shard {
			v.Results[n-1].Result = *e.Result // a later attempt of the same shard
			continue
		}
		v.Results = append(v.Results, shardResult{e.Shard, *e.Result})
	}
	for _, e := range events {
		if e.Kind == store.KindRouted {
			continue // it is told with the execution
		}
		view := eventView{At: stamp(e.At), Kind: e.Kind, Detail: e.Detail}
		if e.ExecutionID != 0 {
			view.ExecutionID = id(e.ExecutionID)
		}
		v.Events = append(v.Events, view)
		if i, ok := place[e.ExecutionID]; ok {
			v.Executions[i].Events = append(v.Executions[i].Events, view)
		}
	}
	return &body[batchView]{v}, nil
}

func (a *API) cancelBatch(ctx context.Context, in *BatchPath) (*body[batchView], error) {
	if err := a.cancelResting(ctx, in.BatchID); !errors.Is(err, store.ErrNotFound) {
		if err != nil {
			return nil, err
		}
		return a.batch(ctx, in.BatchID)
	}
	b, err := a.Store.Batch(ctx, nsOf(ctx).ID, in.BatchID)
	if err != nil {
		return nil, err
	}
	entry, err := a.entry(ctx, auth.BatchCancel, "batch", 0, b.ID, nil, nil)
	if err != nil {
		return nil, err
	}
	entry.ObjectID = b.ID
	if err := a.Outcome.Cancel(ctx, nsOf(ctx).Bucket, b.ID, outcome.ReasonCancelled, entry); err != nil {
		return nil, err
	}
	return a.batch(ctx, b.ID)
}

func (a *API) retryBatch(ctx context.Context, in *retryInput) (*body[batchView], error) {
	if in.Body != nil && in.Body.OnlyFailed != nil && !*in.Body.OnlyFailed {
		return nil, httpx.Invalid(ctx, "not_allowed", "onlyFailed", "false", "A shard that has succeeded is not run twice for one firing; run the job again, or backfill the instant.", "同一次触发中已成功的分片不会再次执行；请重新运行任务或对该时刻补数。")
	}
	b, err := a.Store.Batch(ctx, nsOf(ctx).ID, in.BatchID)
	if err != nil {
		return nil, err
	}
	entry, err := a.entry(ctx, auth.BatchRetry, "batch", 0, b.ID, nil, nil)
	if err != nil {
		return nil, err
	}
	entry.ObjectID = b.ID
	if _, err := a.Outcome.Retry(ctx, nsOf(ctx).Bucket, b.ID, entry); err != nil {
		return nil, err
	}
	return a.batch(ctx, b.ID)
}

func (a *API) listExecutions(ctx context.Context, in *historyInput) (*body[list[executionView]], error) {
	f, err := a.filter(ctx, in)
	if err != nil {
		return nil, err
	}
	var after int64
	if in.Cursor != "" {
		if err := openCursor(ctx, in.Cursor, &f.AfterDue, &after); err != nil {
			return nil, err
		}
	}
	rows, err := a.Store.AttemptList(ctx, nsOf(ctx).ID, f, after)
	if err != nil {
		return nil, err
	}
	out := list[executionView]{Items: []executionView{}}
	if len(rows) > in.Limit {
		rows = rows[:in.Limit]
		last := rows[len(rows)-1]
		out.NextCursor = cursor(last.TriggerTime, last.ID)
	}
	for _, e := range rows {
		out.Items = append(out.Items, viewOfExecution(e))
	}
	return &body[list[executionView]]{out}, nil
}

func (a *API) execution(ctx context.Context, text string) (store.Attempt, error) {
	n, err := parseID(text)
	if err != nil {
		return store.Attempt{}, err
	}
	return a.Store.Attempt(ctx, nsOf(ctx).ID, n)
}

func (a *API) getExecution(ctx context.Context, in *ExecutionPath) (*body[executionView], error) {
	e, err := a.execution(ctx, in.ID)
	if err != nil {
		return nil, err
	}
	v := viewOfExecution(e)
	events, err := a.Store.BatchEvents(ctx, nsOf(ctx).ID, e.BatchID)
	if err != nil {
		return nil, err
	}
	kept := ""
	for _, ev := range events {
		switch {
		case ev.ExecutionID != e.ID:
		case ev.Kind == store.KindRouted:
			kept = ev.Detail
		default:
			v.Events = append(v.Events, eventView{At: stamp(ev.At), ExecutionID: id(ev.ExecutionID), Kind: ev.Kind, Detail: ev.Detail})
		}
	}
	if v.Choice, err = a.choice(ctx, e, kept); err != nil {
		return nil, err
	}
	return &body[executionView]{v}, nil
}

// since is where the dashboard's last hour begins.
func (a *API) since() int64 { return clock.Millis(a.Clock) - 3600*1000 }
