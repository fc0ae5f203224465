package dispatch

import (
	"context"
	"log/slog"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/ax-scheduler/ax/internal/batch"
	"github.com/ax-scheduler/ax/internal/clock"
	"github.com/ax-scheduler/ax/internal/egress"
	"github.com/ax-scheduler/ax/internal/job"
	"github.com/ax-scheduler/ax/internal/outcome"
	"github.com/ax-scheduler/ax/internal/protocol"
	"github.com/ax-scheduler/ax/internal/ready"
	"github.com/ax-scheduler/ax/internal/store"
)

const (
	// inFlight bounds the requests to one executor at a time: a slow one holds up nobody else.
	inFlight = 4
	// gather is how long what is due for an executor may wait for a request that is on its way there.
	gather = 2 * time.Millisecond
	// maxBody keeps a request under the executor's limit of 1 MiB.
	maxBody = 900 << 10
	// resendFor is how long a request without an answer is repeated. After that the sweep decides.
	resendFor = 20 * time.Second
)

// sender is what waits for one executor.
type sender struct {
	queue   []delivery
	working int
	// gathering: soon there will be a request more, whatever has become of those on their way.
	gathering bool
}

type delivery struct {
	chosen
	// fence is that under which the execution was taken from memory.
	fence store.Fence
}

// refusers are the executors that did not take it so far, this one included: with one of them
// alone, two that are full would pass it to each other while a third has room.
func (d delivery) refusers() []int64 {
	return append(slices.Clone(d.e.Avoid), d.worker.ID)
}

// send queues assigned executions for their executor.
func (d *Dispatch) send(ctx context.Context, worker int64, list []delivery) {
	d.mu.Lock()
	defer d.mu.Unlock()
	s := d.senders[worker]
	if s == nil {
		s = &sender{}
		d.senders[worker] = s
	}
	s.queue = append(s.queue, list...)
	d.count(list, 1)
	// As many requests as the queue fills, and one at once however little there is. What comes while one is on its way
	// goes with the next, but does not wait long for that: the executor may be slow to answer.
	d.begin(ctx, worker, s, len(s.queue)/d.settings.PerRequest)
	if s.working == 0 {
		d.begin(ctx, worker, s, 1)
	}
	if len(s.queue) > 0 && s.working < inFlight && !s.gathering {
		s.gathering = true
		time.AfterFunc(gather, func() {
			d.mu.Lock()
			defer d.mu.Unlock()
			s.gathering = false
			if len(s.queue) > 0 {
				d.begin(ctx, worker, s, 1)
			}
		})
	}
}

// begin starts up to n more requests to an executor; d.mu is held.
func (d *Dispatch) begin(ctx context.Context, worker int64, s *sender, n int) {
	for range min(inFlight-s.working, n) {
		s.working++
		d.active.Go(func() { d.work(ctx, worker, s) })
	}
}

// work sends what waits for one executor until nothing does.
func (d *Dispatch) work(ctx context.Context, worker int64, s *sender) {
	for {
		d.mu.Lock()
		if len(s.queue) == 0 {
			s.working--
			if s.working == 0 && d.senders[worker] == s {
				delete(d.senders, worker)
			}
			d.mu.Unlock()
			return
		}
		size, n := 0, 0
		for n < len(s.queue) && n < d.settings.PerRequest {
			b := s.queue[n].e.Batch
			add := len(b.Params) + b.EventBytes + 600
			if names, _ := job.SecretNames(b.Params); len(names) > 0 {
				add += strings.Count(b.Params, "${secret:") * 2 * job.MaxSecret // each byte may be escaped
			}
			if n > 0 && size+add > maxBody {
				break
			}
			size += add
			n++
		}
		part := s.queue[:n:n]
		s.queue = s.queue[n:]
		d.mu.Unlock()
		d.deliver(ctx, part)
		d.count(part, -1)
	}
}

// count keeps account of what is in hand of each bucket.
func (d *Dispatch) count(list []delivery, by int64) {
	for _, p := range list {
		d.unsent[p.e.Batch.Bucket].Add(by)
	}
}

// holds tells whether a delivery may go back to memory: not when its bucket was or will be read
// again since it was taken from there, for then memory has it, or will have it, once more.
func (d *Dispatch) holds(p delivery) bool {
	f, ok := d.cluster.Fence(p.e.Batch.Bucket)
	return ok && f == p.fence
}

// onTime compares the planned time with ax time once more, just before a request leaves, and keeps what
// may go. What may not, because the clock went back since it became due, waits for its time again.
func (d *Dispatch) onTime(part []delivery) []delivery {
	now := clock.Millis(d.clock)
	if !slices.ContainsFunc(part, func(p delivery) bool { return p.e.NotBefore > now }) {
		return part
	}
	var keep []delivery
	var again []*ready.Execution
	var reports []*outcome.Report
	for _, p := range part {
		switch {
		case p.e.NotBefore <= now:
			keep = append(keep, p)
		case p.e.Bound != nil:
			d.gave(p.chosen)
			if d.holds(p) {
				again = append(again, p.e)
			}
		default:
			reports = append(reports, &outcome.Report{ExecutionID: p.e.ID, Under: p.fence, Event: batch.RunUnassign, Reason: outcome.ReasonClock, Avoid: p.e.Avoid})
		}
	}
	d.ready.Add(again...)
	d.outcome.Report(reports...)
	return keep
}

// open takes back what has not been sent to an executor that takes nothing new any more, and keeps the rest.
func (d *Dispatch) open(part []delivery) []delivery {
	if len(part) == 0 || !d.registry.Closed(part[0].worker.ID) {
		return part
	}
	var keep, back []delivery
	for _, p := range part {
		if p.e.Bound != nil && p.e.Bound.Sent {
			keep = append(keep, p)
		} else {
			back = append(back, p)
		}
	}
	d.back(back, outcome.ReasonDraining)
	return keep
}

// deliver posts one request and reports the answers. A request whose fate is not known
// is repeated to the same executor, which knows what it has already.
func (d *Dispatch) deliver(ctx context.Context, part []delivery) {
	if part = d.open(d.onTime(part)); len(part) == 0 {
		return
	}
	events, err := d.events(ctx, part)
	if err != nil {
		d.log.WarnContext(ctx, "events not read", slog.Int("executions", len(part)), slog.String("err", err.Error()))
		d.later(part)
		return
	}
	params, err := d.filled(ctx, part)
	if err != nil {
		d.log.WarnContext(ctx, "secrets not read", slog.Int("executions", len(part)), slog.String("err", err.Error()))
		d.later(part)
		return
	}
	if part = slices.DeleteFunc(slices.Clone(part), func(p delivery) bool { _, ok := params[p.e.Batch.ID]; return !ok }); len(part) == 0 {
		return
	}
	worker := part[0].worker
	executions := make([]protocol.RunExecution, len(part))
	lease := d.registry.Settings().Lease.Milliseconds()
	for i, p := range part {
		b := p.e.Batch
		executions[i] = protocol.RunExecution{
			BatchID: b.ID, ExecutionID: strconv.FormatInt(p.e.ID, 10), Fence: protocol.Fence{Attempt: p.e.Attempt, Epoch: p.fence.Epoch},
			Job: protocol.RunJob{ID: strconv.FormatInt(b.JobID, 10), Name: b.Def.Name, Version: b.JobVersion}, Handler: b.Def.Handler, Params: params[b.ID],
			ShardingID: p.e.Shard, ShardingTotal: b.Total, Attempt: p.e.Attempt, DueAt: b.DueAt, PlannedFor: b.PlannedFor, Zone: b.Zone,
			TimeoutMs: time.Duration(b.Def.Timeout).Milliseconds(), LeaseMs: lease, Trigger: b.Kind, Event: events[b.ID], TraceID: batch.TraceID(b.ID, p.e.ID),
		}
	}
	for _, p := range part {
		d.outcome.Sent(p.fence, worker.ID, p.e) // before its result can be here
	}
	started := time.Now()
	// A former owner may have sent it: then even a refused connection does not say that it is not there.
	uncertain := slices.ContainsFunc(part, func(p delivery) bool { return p.e.Bound != nil && p.e.Bound.Sent })
	wait := 500 * time.Millisecond
	for {
		sentAt := time.Now()
		now := d.clock.Now().UnixMilli()
		attempt, cancel := context.WithTimeout(context.WithoutCancel(ctx), d.settings.AckTimeout)
		answers, err := d.client.Run(attempt, worker.Executor, executions)
		cancel()
		d.metrics.DispatchTime.Observe(time.Since(sentAt).Seconds())
		if err == nil {
			d.metrics.DispatchTries.WithLabelValues("answered").Inc()
			d.registry.Answered(worker.ID)
			d.answered(ctx, part, answers, now)
			return
		}
		d.metrics.DispatchTries.WithLabelValues(egress.Coarse(err)).Inc()
		d.log.WarnContext(ctx, "dispatch failed", slog.String("executor", worker.Address), slog.Int("executions", len(part)), slog.String("err", err.Error()))
		if egress.Refused(err) {
			d.registry.Refused(ctx, worker.ID)
			if !uncertain {
				d.back(part, egress.Coarse(err))
				return
			}
		}
		var status *StatusError
		if asStatus(err, &status) && status.Code != 503 {
			// It answered, and took nothing.
			reports := make([]*outcome.Report, len(part))
			for i, p := range part {
				reports[i] = &outcome.Report{ExecutionID: p.e.ID, Under: p.fence, Event: batch.RunReject, Reason: outcome.ReasonExecutorErr, Avoid: p.refusers()}
			}
			d.outcome.Report(reports...)
			return
		}
		d.registry.Unanswered(ctx, worker.ID)
		if !uncertain {
			uncertain = true
			d.doubt(ctx, part)
		}
		word := d.registry.Word(worker.ID, worker.StartID, part[0].e.ID)
		if word.Gone || time.Since(started) > resendFor {
			return // the sweep decides: whether it arrived is not known
		}
		timer := time.NewTimer(wait + rand.N(wait/2))
		select {
		case <-timer.C:
		case <-ctx.Done():
			timer.Stop()
			return // the rows say DISPATCHING; the next owner asks the executor
		}
		wait = min(wait*2, 8*time.Second)
	}
}

// filled gives the parameters of a request's batches with their secrets. Executions whose secrets can not be had are
// rejected and left out.
func (d *Dispatch) filled(ctx context.Context, part []delivery) (map[string]string, error) {
	out := make(map[string]string, len(part))
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), d.settings.AckTimeout)
	defer cancel()
	var refused []*outcome.Report
	for _, p := range part {
		b := p.e.Batch
		if _, done := out[b.ID]; done {
			continue
		}
		text, err := d.fill(ctx, b)
		if d.noSecret(err) {
			d.log.WarnContext(ctx, "secret can not be had", slog.String("batch", b.ID), slog.String("err", err.Error()))
			refused = append(refused, &outcome.Report{ExecutionID: p.e.ID, Under: p.fence, Event: batch.RunReject, Reason: outcome.ReasonSecret, NoRetry: true})
			continue
		}
		if err != nil {
			return nil, err
		}
		out[b.ID] = text
	}
	d.outcome.Report(refused...)
	return out, nil
}

// events reads what the batches of a request carry. Short ones are in memory.
func (d *Dispatch) events(ctx context.Context, part []delivery) (map[string]*string, error) {
	out := make(map[string]*string, len(part))
	long := map[string]int{}
	for _, p := range part {
		b := p.e.Batch
		out[b.ID] = b.Event
		if b.Event == nil && b.EventBytes > 0 {
			long[b.ID] = b.Day
		}
	}
	if len(long) == 0 {
		return out, nil
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), d.settings.AckTimeout)
	defer cancel()
	texts, err := d.store.BatchTexts(ctx, long)
	if err != nil {
		return nil, err
	}
	for id, text := range texts {
		out[id] = &text
	}
	return out, nil
}

// later puts executions back that have not been sent: they are tried again in a moment.
func (d *Dispatch) later(part []delivery) {
	var list []*ready.Execution
	var reports []*outcome.Report
	for _, p := range part {
		if p.e.Bound == nil {
			reports = append(reports, &outcome.Report{ExecutionID: p.e.ID, Under: p.fence, Event: batch.RunUnassign, Reason: outcome.ReasonDatabase})
			continue
		}
		d.gave(p.chosen)
		if d.holds(p) {
			p.e.NotBefore = clock.Millis(d.clock) + again.Milliseconds()
			list = append(list, p.e)
		}
	}
	d.ready.Add(list...)
	d.outcome.Report(reports...)
}

// doubt makes it durable that executions which were bound beforehand have been sent and
// nobody knows whether they arrived, so that the sweep sees them.
func (d *Dispatch) doubt(ctx context.Context, part []delivery) {
	var list []chosen
	for _, p := range part {
		if p.e.Bound != nil && !p.e.Bound.Sent {
			p.e.Bound.Sent = true
			list = append(list, p.chosen)
		}
	}
	if err := d.assign(context.WithoutCancel(ctx), list, clock.Millis(d.clock), false); err != nil {
		d.log.WarnContext(ctx, "sent executions not noted", slog.Int("count", len(list)), slog.String("err", err.Error()))
	}
}

// back takes executions back that certainly did not arrive. Those whose row was not
// touched for the sending just wait again.
func (d *Dispatch) back(part []delivery, reason string) {
	var reports []*outcome.Report
	var again []*ready.Execution
	for _, p := range part {
		if p.e.Bound != nil {
			d.gave(p.chosen)
			if !d.holds(p) {
				continue
			}
			p.e.Bound, p.e.Avoid = nil, p.refusers()
			again = append(again, p.e)
			continue
		}
		reports = append(reports, &outcome.Report{ExecutionID: p.e.ID, Under: p.fence, Event: batch.RunUnassign, Reason: reason, Avoid: p.refusers()})
	}
	d.ready.Add(again...)
	d.outcome.Report(reports...)
}

// answered reports what the executor said of each execution. sentAt is the ax time of the
// request, from which the trigger error is measured.
func (d *Dispatch) answered(ctx context.Context, part []delivery, answers []protocol.Answer, sentAt int64) {
	said := make(map[string]string, len(answers))
	for _, a := range answers {
		said[a.ExecutionID] = a.Answer
	}
	reports := make([]*outcome.Report, 0, len(part))
	for _, p := range part {
		b := p.e.Batch
		r := &outcome.Report{ExecutionID: p.e.ID, Under: p.fence, Event: batch.RunReject, Avoid: p.refusers()}
		switch said[strconv.FormatInt(p.e.ID, 10)] {
		case protocol.Accepted, protocol.Duplicate:
			r.Event, r.SentAt = batch.RunAccept, sentAt
			d.metrics.Triggers.WithLabelValues(b.Def.App).Inc()
			if p.e.Attempt == 1 {
				d.metrics.Lateness.WithLabelValues(b.Kind).Observe(float64(max(sentAt-b.StartAt(), 0)) / 1000)
			}
			if d.log.Enabled(ctx, slog.LevelInfo) {
				d.log.InfoContext(ctx, d.origin+" task="+strconv.FormatInt(b.JobID, 10)+" instance="+b.ID+" dispatch to worker="+p.worker.Address, //nolint:sloglint // P25 fixes this line's form
					slog.Int64("execution_id", p.e.ID), slog.Int("shard", p.e.Shard), slog.Int("attempt", p.e.Attempt), slog.String("trace_id", batch.TraceID(b.ID, p.e.ID)))
			}
		case protocol.Full:
			r.Reason = outcome.ReasonFull
		case protocol.NoHandler:
			r.Reason = outcome.ReasonNoHandler
		case protocol.Draining:
			r.Reason = outcome.ReasonDraining
		case protocol.Stale:
			r.Event, r.Reason = batch.RunLose, outcome.ReasonStale
		default:
			r.Reason = outcome.ReasonExecutorErr
		}
		reports = append(reports, r)
	}
	d.outcome.Report(reports...)
}

// Working counts the requests on their way; for metrics.
func (d *Dispatch) Working() int {
	d.mu.Lock()
	defer d.mu.Unlock()
	n := 0
	for _, s := range d.senders {
		n += s.working
	}
	return n
}

// Queued counts the executions that are assigned and wait to be sent; for metrics.
func (d *Dispatch) Queued() int {
	d.mu.Lock()
	defer d.mu.Unlock()
	n := 0
	for _, s := range d.senders {
		n += len(s.queue)
	}
	return n
}
