package trigger

import (
	"cmp"
	"context"
	"crypto/rand"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/ax-scheduler/ax/internal/batch"
	"github.com/ax-scheduler/ax/internal/clock"
	"github.com/ax-scheduler/ax/internal/job"
	"github.com/ax-scheduler/ax/internal/message"
	"github.com/ax-scheduler/ax/internal/outcome"
	"github.com/ax-scheduler/ax/internal/ready"
	"github.com/ax-scheduler/ax/internal/schedule"
	"github.com/ax-scheduler/ax/internal/store"
)

const (
	// BackfillLimit is how many planned instants one backfill may have.
	BackfillLimit = 1000
	// MaxActive is how many batches of one backfill may run at once at most.
	MaxActive = 20
	// backfillStep bounds the batches of one transaction.
	backfillStep = 500
	// backfillWaiting bounds the batches of a job's backfills that wait in memory.
	backfillWaiting = 10_000
	dateOnly        = "2006-01-02"
)

// Why a planned instant is left out of a backfill.
const (
	LeftSucceeded = "succeeded" // a batch for it has succeeded
	LeftOpen      = "open"      // a batch for it has not ended
)

// BackfillAsk asks for runs of a job for planned instants of the past.
type BackfillAsk struct {
	Job store.Job
	// From and To are RFC 3339 instants, or dates in the trigger's zone; To is not part of the range.
	From, To string
	// No is the trigger; 0 = the only one that has planned instants.
	No        int
	Again     bool
	MaxActive int // 0 = 1
	DryRun    bool
	// Key makes the ask idempotent; "" = each planned instant is only kept from being open twice.
	Key string
	By  string
	// Entry is the audit's, written when the backfill is.
	Entry *store.AuditEntry
}

// Backfilled is what became of an ask.
type Backfilled struct {
	ID        string            `json:"id" doc:"of the backfill; empty for a dry run"`
	DryRun    bool              `json:"dryRun"`
	Trigger   int               `json:"trigger" doc:"number of the trigger"`
	Zone      string            `json:"zone" doc:"of the trigger"`
	From      string            `json:"from"`
	To        string            `json:"to"`
	MaxActive int               `json:"maxActive" doc:"how many of it run at once at most; never more than the job's own limit"`
	Planned   int               `json:"planned" doc:"planned instants in the range"`
	Made      []BackfillMade    `json:"made" doc:"in the order in which they run"`
	LeftOut   []BackfillLeftOut `json:"leftOut"`
}

// BackfillMade is a batch that a backfill made, or would make.
type BackfillMade struct {
	PlannedFor string `json:"plannedFor"`
	BatchID    string `json:"batchId,omitempty" doc:"left out in a dry run"`
}

// BackfillLeftOut is a planned instant that a backfill left out.
type BackfillLeftOut struct {
	PlannedFor string `json:"plannedFor"`
	BatchID    string `json:"batchId" doc:"the batch because of which"`
	Reason     string `json:"reason" enum:"succeeded,open"`
}

// backfill is an ask that was understood.
type backfill struct {
	row     store.Backfill
	def     *job.Definition
	zone    *time.Location
	planned []int64
}

// Backfill makes a batch for each planned instant of a range that has none which succeeded or is open. The
// same key answers what it answered first, and goes on with what a crash has left undone. What it returns is
// durable.
func (t *Trigger) Backfill(ctx context.Context, a BackfillAsk) (Backfilled, error) {
	f, ok := t.cluster.Await(ctx, a.Job.Bucket)
	if !ok {
		return Backfilled{}, outcome.ErrNotOwner
	}
	now := clock.Millis(t.clock)
	body := store.KeyHash(strings.Join([]string{a.From, a.To, strconv.Itoa(a.No), strconv.FormatBool(a.Again), strconv.Itoa(a.MaxActive)}, "|"))
	var x backfill
	known := false
	if a.Key != "" && !a.DryRun {
		// Before anything is judged: what was right then may not be now, and the answer is the same.
		row, err := t.backfillByKey(ctx, f, a.Job, store.KeyHash(a.Key))
		switch {
		case errors.Is(err, store.ErrNotFound):
		case err != nil:
			return Backfilled{}, err
		case row.BodyHash != body:
			return Backfilled{}, ErrKeyReused
		default:
			if row.Answer != "" {
				return answered(row)
			}
			if x, err = t.resume(ctx, row); err != nil {
				return Backfilled{}, err
			}
			known = true
		}
	}
	if !known {
		var err error
		if x, err = t.understand(ctx, a, now); err != nil {
			return Backfilled{}, err
		}
		x.row.ID, x.row.Day, x.row.BodyHash, x.row.By, x.row.At = store.TimedID(now), batch.Day(now), body, a.By, now
		if a.Key != "" {
			x.row.KeyHash = store.KeyHash(a.Key)
		}
		if n := t.ready.Backfilling(a.Job.ID, 0); !a.DryRun && n+len(x.planned) > backfillWaiting {
			return Backfilled{}, invalid("backfill_full", "from", "", fmt.Sprintf("%d batches of this job's backfills still wait, and at most %d may; wait until some have run, or cancel them (backfill/cancel).", n, backfillWaiting),
				fmt.Sprintf("该任务的补数还有 %d 个批次在等待，最多 %d 个；请等一部分运行完，或先取消（backfill/cancel）。", n, backfillWaiting))
		}
		// What is due by now must have its rows, so that it is found.
		if err := t.Settle(ctx, a.Job.ID, a.Job.Bucket, now); err != nil {
			return Backfilled{}, err
		}
	}
	out := Backfilled{
		DryRun: a.DryRun, Trigger: x.row.No, Zone: x.zone.String(), From: stampIn(x.row.From, x.zone), To: stampIn(x.row.To, x.zone), MaxActive: x.row.MaxActive, Planned: len(x.planned),
		Made: []BackfillMade{}, LeftOut: []BackfillLeftOut{},
	}
	if !a.DryRun {
		out.ID = strconv.FormatInt(x.row.ID, 10)
	}
	for start := 0; start == 0 || start < len(x.planned); start += backfillStep {
		part := x.planned[start:min(start+backfillStep, len(x.planned))]
		done, err := t.backfillPart(ctx, f, a, x, part, !known && start == 0, start+backfillStep >= len(x.planned), out)
		if err != nil {
			if !errors.Is(err, errSameKey) {
				t.outcome.Failed(f, err)
				return Backfilled{}, err
			}
			// Somebody with the same key was faster by a moment: the answer is theirs.
			return t.Backfill(ctx, a)
		}
		out = done
	}
	return out, nil
}

// errSameKey says that another request has used the key since it was looked for.
var errSameKey = errors.New("the idempotency key was used meanwhile")

func (t *Trigger) backfillByKey(ctx context.Context, f store.Fence, j store.Job, key string) (row store.Backfill, err error) {
	var none error
	err = t.store.InBucket(ctx, f, func(b *store.Bucket) error {
		var err error
		row, err = b.BackfillByKey(j.NS, j.ID, key)
		if errors.Is(err, store.ErrNotFound) {
			none, err = err, nil
		}
		return err
	})
	if err != nil {
		t.outcome.Failed(f, err)
		return row, err
	}
	return row, none
}

func answered(row store.Backfill) (out Backfilled, err error) {
	if err := json.Unmarshal([]byte(row.Answer), &out); err != nil {
		return out, fmt.Errorf("answer of backfill %d: %w", row.ID, err)
	}
	return out, nil
}

// resume takes a backfill up that was not finished: with the definition and the range that it began with.
func (t *Trigger) resume(ctx context.Context, row store.Backfill) (x backfill, err error) {
	x.row = row
	if x.def, err = t.store.Definition(ctx, row.JobID, row.JobVersion); err != nil {
		return x, err
	}
	for _, spec := range x.def.Triggers {
		if spec.No == row.No {
			s, err := schedule.Compile(spec)
			if err != nil {
				return x, err
			}
			x.zone, x.planned = s.Zone(), between(s, row.From, row.To, BackfillLimit)
			return x, nil
		}
	}
	return x, fmt.Errorf("backfill %d: trigger %d of job %d: %w", row.ID, row.No, row.JobID, store.ErrNotFound)
}

// between lists the planned instants in [from, to), at most limit.
func between(s *schedule.Schedule, from, to int64, limit int) []int64 {
	var out []int64
	for at := from - 1; len(out) < limit; {
		next, ok := s.Next(time.UnixMilli(at))
		if !ok || next.UnixMilli() >= to {
			break
		}
		at = next.UnixMilli()
		out = append(out, at)
	}
	return out
}

// backfillPart makes the batches of some planned instants in one transaction; first writes the backfill too
// and last its answer, which is so's continuation.
func (t *Trigger) backfillPart(ctx context.Context, f store.Fence, a BackfillAsk, x backfill, part []int64, first, last bool, so Backfilled) (out Backfilled, err error) {
	now := clock.Millis(t.clock)
	defer t.ready.Hold(f.Bucket)()
	var add []*ready.Execution
	err = t.store.InBucket(ctx, f, func(b *store.Bucket) error {
		// A transaction may be tried again: nothing of the last try may stay.
		add, out = nil, so
		out.Made, out.LeftOut = append([]BackfillMade{}, so.Made...), append([]BackfillLeftOut{}, so.LeftOut...)
		// Between two parts somebody may delete the job, and with it what waits of it: nothing may follow.
		if there, err := b.JobsThere(x.row.JobID); err != nil || !there[x.row.JobID] {
			return cmp.Or(err, store.ErrNotFound)
		}
		if !a.DryRun && first {
			if x.row.KeyHash != "" {
				if _, err := b.BackfillByKey(x.row.NS, x.row.JobID, x.row.KeyHash); !errors.Is(err, store.ErrNotFound) {
					if err == nil {
						return errSameKey
					}
					return err
				}
			}
			if err := b.AddBackfill(x.row); err != nil {
				return err
			}
			if err := b.Audit(a.Entry); err != nil {
				return err
			}
		}
		found, err := b.Instants(x.row.JobID, x.row.No, part)
		if err != nil {
			return err
		}
		by := map[int64][]store.Instant{}
		for _, i := range found {
			by[i.PlannedFor] = append(by[i.PlannedFor], i)
		}
		var batches []store.BatchRow
		var rows []store.ExecutionRow
		var of []store.BackfillBatch
		for _, planned := range part {
			at := stampIn(planned, x.zone)
			if i, ours := judge(by[planned], x.row); i != nil {
				switch {
				case ours:
					out.Made = append(out.Made, BackfillMade{PlannedFor: at, BatchID: i.BatchID})
				case i.State.Final():
					out.LeftOut = append(out.LeftOut, BackfillLeftOut{PlannedFor: at, BatchID: i.BatchID, Reason: LeftSucceeded})
				default:
					out.LeftOut = append(out.LeftOut, BackfillLeftOut{PlannedFor: at, BatchID: i.BatchID, Reason: LeftOpen})
				}
				continue
			}
			if a.DryRun {
				out.Made = append(out.Made, BackfillMade{PlannedFor: at})
				continue
			}
			g := t.backfilled(f, a.Job, x, planned, now)
			batches = append(batches, g.row)
			rows, add = t.executions(g, rows, add)
			of = append(of, store.BackfillBatch{BatchID: g.row.ID, Day: g.row.Day, NS: x.row.NS, JobID: x.row.JobID, No: x.row.No, PlannedFor: planned, Backfill: x.row.ID, MaxActive: x.row.MaxActive})
			out.Made = append(out.Made, BackfillMade{PlannedFor: at, BatchID: g.row.ID})
		}
		if a.DryRun {
			return nil
		}
		if _, err := b.InsertBatches(batches); err != nil {
			return err
		}
		id := b.TakeSequence(len(rows))
		for i := range rows {
			rows[i].ID = batch.ExecutionID(rows[i].Day, f.Bucket, id+int64(i))
			add[i].ID = rows[i].ID
		}
		if err := b.InsertExecutions(rows); err != nil {
			return err
		}
		if err := b.AddBackfillBatches(of); err != nil {
			return err
		}
		if !last {
			return nil
		}
		answer, err := json.Marshal(out)
		if err != nil {
			return err
		}
		return b.BackfillDone(x.row.ID, string(answer))
	})
	if err != nil {
		return out, err
	}
	t.ready.Add(add...)
	return out, nil
}

// judge finds the batch because of which a planned instant gets no other one; ours says that this backfill
// made it before a crash. What is open is never doubled; what has succeeded only when it is asked for.
func judge(list []store.Instant, f store.Backfill) (because *store.Instant, ours bool) {
	for i, b := range list {
		switch {
		case b.Backfill == f.ID:
			return &list[i], true
		case !b.State.Final():
			because = &list[i]
		case b.State == batch.Succeeded && !f.Again && because == nil:
			because = &list[i]
		}
	}
	return because, false
}

// backfilled makes the batch of a planned instant: due now, planned for then. Its id has both.
func (t *Trigger) backfilled(f store.Fence, j store.Job, x backfill, planned, now int64) firing {
	var tail [8]byte
	_, _ = rand.Read(tail[:])
	id := batch.FreshID(j.ID, time.UnixMilli(now).In(x.zone), "b"+time.UnixMilli(planned).In(x.zone).Format("20060102150405")+"-"+hex.EncodeToString(tail[:]))
	def := x.def
	b := &ready.Batch{
		ID: id, Day: batch.Day(now), Bucket: f.Bucket, NS: j.NS, JobID: j.ID, JobVersion: x.row.JobVersion, AppID: j.AppID, Def: def, Kind: store.KindBackfill,
		DueAt: now, PlannedFor: planned, Params: def.Params, Zone: x.zone.String(), Priority: def.Priority, Turn: t.turn(j.ID, now),
		Backfill: x.row.ID, MaxActive: x.row.MaxActive,
	}
	b.Total = t.Total(b)
	return firing{batch: b, notBefore: now, row: store.BatchRow{
		ID: id, Day: b.Day, NS: j.NS, JobID: j.ID, JobVersion: x.row.JobVersion, TriggerKind: b.Kind, DueAt: now, PlannedFor: planned, State: batch.Delayed,
		Priority: b.Priority, Total: b.Total, CreatedBy: x.row.By, CreatedAt: now,
	}}
}

// understand judges an ask and finds its planned instants.
func (t *Trigger) understand(ctx context.Context, a BackfillAsk, now int64) (x backfill, err error) {
	def, err := t.store.Definition(ctx, a.Job.ID, a.Job.Version)
	if err != nil {
		return x, err
	}
	spec, bad := backfillTrigger(def, a.No)
	if bad != nil {
		return x, bad
	}
	s, err := schedule.Compile(spec)
	if err != nil {
		return x, err
	}
	from, badFrom := instant("from", a.From, s.Zone())
	to, badTo := instant("to", a.To, s.Zone())
	var list []*message.Invalid
	for _, bad := range []*message.Invalid{badFrom, badTo} {
		if bad != nil {
			list = append(list, bad)
		}
	}
	most := max(a.MaxActive, 1)
	if a.MaxActive < 0 || a.MaxActive > MaxActive {
		list = append(list, invalid("out_of_range", "maxActive", strconv.Itoa(a.MaxActive), fmt.Sprintf("From 1 to %d; got %d.", MaxActive, a.MaxActive), fmt.Sprintf("应为 1 到 %d，当前为 %d。", MaxActive, a.MaxActive)))
	}
	if len(list) > 0 {
		return x, &job.InvalidError{Fields: list}
	}
	switch stamp := stampIn(now, s.Zone()); {
	case from >= to:
		return x, invalid("out_of_order", "to", a.To, "“to” must be after “from”; the range is from “from” up to and without “to”.", "“to” 必须晚于 “from”；范围包含 “from”，不含 “to”。")
	case to > now:
		return x, invalid("in_future", "to", a.To, "A backfill is of the past: “to” must not be after now, which is "+stamp+". What is planned later runs by itself.", "补数只针对过去：“to” 不能晚于当前时间 "+stamp+"。之后的计划会自行触发。")
	}
	planned := between(s, from, to, BackfillLimit+1)
	if len(planned) > BackfillLimit {
		split := stampIn(planned[BackfillLimit], s.Zone())
		bad := invalid("too_many", "to", a.To, fmt.Sprintf("There are more than %d planned instants in this range. Split it: first up to %s, then go on from there.", BackfillLimit, split),
			fmt.Sprintf("该范围内的计划时间超过 %d 个。请分次补数：先到 %s 为止，再从该时间继续。", BackfillLimit, split))
		bad.Suggestion = split
		return x, bad
	}
	if limit := def.Concurrency.Max; limit > 0 {
		most = min(most, limit)
	}
	return backfill{
		row: store.Backfill{NS: a.Job.NS, JobID: a.Job.ID, JobVersion: a.Job.Version, No: spec.No, From: from, To: to, Again: a.Again, MaxActive: most},
		def: def, zone: s.Zone(), planned: planned,
	}, nil
}

// backfillTrigger finds the trigger whose planned instants are meant.
func backfillTrigger(def *job.Definition, no int) (schedule.Spec, *message.Invalid) {
	var with []schedule.Spec
	var numbers []string
	for _, t := range def.Triggers {
		plans := t.Kind == schedule.Cron || t.Kind == schedule.FixedRate || t.Kind == schedule.Once
		if t.No == no && !plans {
			return t, invalid("not_planned", "trigger", strconv.Itoa(no), fmt.Sprintf("Trigger %d (%s) has no planned instants that could be backfilled; only cron, fixedRate and once have.", no, t.Kind),
				fmt.Sprintf("触发器 %d（%s）没有可补数的计划时间；只有 cron、fixedRate 和 once 有。", no, t.Kind))
		}
		if plans {
			with = append(with, t)
			numbers = append(numbers, strconv.Itoa(t.No))
			if t.No == no {
				return t, nil
			}
		}
	}
	list := strings.Join(numbers, ", ")
	switch {
	case len(with) == 0:
		return schedule.Spec{}, invalid("not_planned", "trigger", "", "No trigger of this job has planned instants that could be backfilled; only cron, fixedRate and once have. Run it by hand instead.",
			"该任务没有带计划时间的触发器，无法补数；只有 cron、fixedRate 和 once 有。请改用手动触发。")
	case no != 0:
		return schedule.Spec{}, invalid("unknown_trigger", "trigger", strconv.Itoa(no), fmt.Sprintf("The job has no trigger %d; it can be: %s.", no, list), fmt.Sprintf("该任务没有触发器 %d；可选：%s。", no, list))
	case len(with) > 1:
		return schedule.Spec{}, invalid("required", "trigger", "", "The job has several triggers with planned instants; say which: "+list+".", "该任务有多个带计划时间的触发器，请指定其一："+list+"。")
	}
	return with[0], nil
}

// instant reads an RFC 3339 instant, or a date as its first moment in a zone.
func instant(field, text string, zone *time.Location) (int64, *message.Invalid) {
	if text == "" {
		return 0, invalid("required", field, "", "This is required: an instant such as 2026-11-30T08:00:00+08:00, or a date such as 2026-11-30 in the trigger's zone.", "此项必填：带时区偏移的时间，例如 2026-11-30T08:00:00+08:00，或触发器时区的日期，例如 2026-11-30。")
	}
	at, err := time.Parse(time.RFC3339, text)
	if err != nil {
		var day time.Time
		if day, err = time.Parse(dateOnly, text); err == nil {
			at = startOf(day, zone)
		}
	}
	if err != nil {
		bad := invalid("bad_time", field, text, "Write an instant with its offset, such as 2026-11-30T08:00:00+08:00, or a date in the trigger's zone, such as 2026-11-30.", "请写带时区偏移的时间，例如 2026-11-30T08:00:00+08:00，或触发器时区的日期，例如 2026-11-30。")
		return 0, bad
	}
	if at.Year() < 1970 || at.Year() > 2099 {
		return 0, invalid("out_of_range", field, text, "The year must be from 1970 to 2099.", "年份应在 1970 到 2099 之间。")
	}
	return at.UnixMilli(), nil
}

// startOf is the first moment of a date in a zone, also where midnight comes twice or never.
func startOf(day time.Time, zone *time.Location) time.Time {
	at := time.Date(day.Year(), day.Month(), day.Day(), 0, 0, 0, 0, zone)
	since, until := at.ZoneBounds()
	if at.Format(dateOnly) < day.Format(dateOnly) {
		return until // the clock goes over midnight
	}
	if at.Hour() != 0 && !since.IsZero() {
		return since
	}
	if !since.IsZero() {
		_, before := since.Add(-time.Nanosecond).Zone()
		_, after := at.Zone()
		if twin := at.Add(-time.Duration(before-after) * time.Second); before > after && twin.Before(since) {
			return twin
		}
	}
	return at
}

func stampIn(ms int64, zone *time.Location) string {
	return time.UnixMilli(ms).In(zone).Format("2006-01-02T15:04:05.999Z07:00")
}

func invalid(code, field, token, en, zh string) *message.Invalid {
	return &message.Invalid{Code: code, Field: field, Token: token, Message: message.Text{EN: en, ZH: zh}}
}
