package api

import (
	"context"
	"net/http"
	"strings"

	"github.com/ax-scheduler/ax/internal/auth"
	"github.com/ax-scheduler/ax/internal/clock"
	"github.com/ax-scheduler/ax/internal/outcome"
	"github.com/ax-scheduler/ax/internal/ready"
	"github.com/ax-scheduler/ax/internal/store"
	"github.com/ax-scheduler/ax/internal/trigger"
	"github.com/ax-scheduler/ax/server/httpx"
)

// reasonBackfill is a batch's of a backfill that somebody cancelled before its start.
const reasonBackfill = "backfill_cancelled"

type backfillInput struct {
	JobPath
	Key  string `header:"Idempotency-Key" maxLength:"256" doc:"the same key answers the same, with no second effect"`
	Body struct {
		From           string `json:"from" maxLength:"64" doc:"RFC 3339, or a date in the trigger's zone"`
		To             string `json:"to" maxLength:"64" doc:"RFC 3339, or a date in the trigger's zone; not part of the range, and not after now"`
		Trigger        int    `json:"trigger,omitempty" minimum:"0" doc:"number of the trigger; needed when several have planned instants"`
		Again          bool   `json:"again,omitempty" doc:"also what has run successfully"`
		DryRun         bool   `json:"dryRun,omitempty" doc:"only say what would be made"`
		MaxActive      int    `json:"maxActive,omitempty" doc:"how many run at once, 1 to 20; default 1"`
		IdempotencyKey string `json:"idempotencyKey,omitempty" maxLength:"256" doc:"instead of the header"`
	}
}

type cancelBackfillInput struct {
	JobPath
	Body *struct {
		DryRun bool `json:"dryRun,omitempty" doc:"only count"`
	}
}

type backfillCancelled struct {
	Count  int  `json:"count" doc:"batches that had not started"`
	DryRun bool `json:"dryRun"`
}

func (a *API) backfills() {
	const path = "/api/v1/namespaces/{namespace}/jobs/{id}/backfill"
	add(a, http.MethodPost, path, "backfillJob", "Run a job for planned instants of the past", inNamespace(auth.JobRun), a.backfillJob)
	add(a, http.MethodPost, path+"/cancel", "cancelBackfill", "Cancel what has not started of a job's backfills; what runs goes on", inNamespace(auth.BatchCancel), a.cancelBackfill)
}

func (a *API) backfillJob(ctx context.Context, in *backfillInput) (*body[trigger.Backfilled], error) {
	j, err := a.jobOf(ctx, in.ID)
	if err != nil {
		return nil, err
	}
	key, other := strings.TrimSpace(in.Key), strings.TrimSpace(in.Body.IdempotencyKey)
	if key != "" && other != "" && key != other {
		return nil, httpx.Invalid(ctx, "one_of", "idempotencyKey", other, "The header Idempotency-Key and idempotencyKey differ; give one of them.", "请求头 Idempotency-Key 与 idempotencyKey 不一致，请只填写一个。")
	}
	if key == "" {
		key = other
	}
	ask := trigger.BackfillAsk{
		Job: j, From: in.Body.From, To: in.Body.To, No: in.Body.Trigger, Again: in.Body.Again, MaxActive: in.Body.MaxActive, DryRun: in.Body.DryRun, Key: key, By: httpx.CallerOf(ctx).Principal.Name,
	}
	ask.Entry, err = a.entry(ctx, auth.JobRun, "job", j.ID, j.Definition.Name, nil, map[string]any{
		"backfill": map[string]any{"from": ask.From, "to": ask.To, "trigger": ask.No, "again": ask.Again, "maxActive": ask.MaxActive},
	})
	if err != nil {
		return nil, err
	}
	done, err := a.Trigger.Backfill(ctx, ask)
	if err != nil {
		return nil, err
	}
	return &body[trigger.Backfilled]{done}, nil
}

// backfillOf takes what has not started of a job's backfills out of memory: it will not be sent. The caller
// ends it or puts it back.
func (a *API) backfillOf(jobID int64) []*ready.Execution {
	return a.Ready.TakeOut(func(e *ready.Execution) bool {
		return e.Batch.JobID == jobID && e.Batch.Backfill != 0 && !e.Batch.Admitted
	})
}

func (a *API) cancelBackfill(ctx context.Context, in *cancelBackfillInput) (*body[backfillCancelled], error) {
	j, err := a.jobOf(ctx, in.ID)
	if err != nil {
		return nil, err
	}
	if _, ok := a.Cluster.Await(ctx, j.Bucket); !ok {
		return nil, outcome.ErrNotOwner
	}
	if in.Body != nil && in.Body.DryRun {
		return &body[backfillCancelled]{backfillCancelled{a.Ready.Backfilling(j.ID, 0), true}}, nil
	}
	fence, release, err := a.held(ctx, j.Bucket)
	if err != nil {
		return nil, err
	}
	defer release()
	rest := a.backfillOf(j.ID)
	out := backfillCancelled{Count: len(batchesOf(rest))}
	entry, err := a.entry(ctx, auth.BatchCancel, "job", j.ID, j.Definition.Name, map[string]any{"backfill": map[string]any{"count": out.Count}}, map[string]any{"backfill": map[string]any{"count": 0}})
	if err != nil {
		a.Ready.Add(rest...)
		return nil, err
	}
	by := httpx.CallerOf(ctx).Principal.Name
	err = a.inSteps(ctx, fence, rest, func(t *store.Bucket, part []*ready.Execution, first bool) error {
		if err := t.Cancel(batchesOf(part), idsOf(part), reasonBackfill, by, clock.Millis(a.Clock)); err != nil || !first {
			return err
		}
		return t.Audit(entry)
	}, func([]*ready.Execution) {})
	if err != nil {
		return nil, err
	}
	return &body[backfillCancelled]{out}, nil
}
