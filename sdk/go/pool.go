package ax

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"runtime/debug"
	"runtime/metrics"
	"slices"
	"strings"
	"sync"
	"time"
)

// maxSpool bounds what waits for a server that does not take results: beyond it no new work is taken.
const (
	maxSpool      = 2048
	maxSpoolBytes = 32 << 20
)

// run is one execution that was accepted and has not ended.
type run struct {
	ex          *Executor
	e           execution
	key         attemptKey
	handler     Handler
	traceParent string
	out         *output
	ctx         context.Context
	cancel      context.CancelCauseFunc
	takenAt     time.Time

	// guarded by Executor.mu
	epoch     int64
	startedAt time.Time // zero while it waits
	peakMB    int64

	mu      sync.Mutex
	value   string
	message string
	timer   *time.Timer
	endsAt  time.Time // zero: no limit
}

func (r *run) limit() (time.Time, bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.endsAt, !r.endsAt.IsZero()
}

// take answers the executions of one run message. Accepted ones are on disk when it returns.
func (ex *Executor) take(m *runMessage, traceParent string) []answer {
	// One message after the other: what is decided here must be on disk before a repetition of
	// it is answered.
	ex.takeMu.Lock()
	defer ex.takeMu.Unlock()

	answers := make([]answer, len(m.Executions))
	var taken []*run
	var orphans []*execution
	fresh := make(map[shardKey]int) // attempts accepted in this very message
	results, size := ex.journal.backlog()
	spoolFull := results >= maxSpool || size >= maxSpoolBytes

	ex.mu.Lock()
	room := ex.opts.Workers - ex.running + ex.opts.Queue - len(ex.queue)
	for i := range m.Executions {
		e := &m.Executions[i]
		key := attemptKey{shardKeyOf(e.BatchID, e.ShardingID), e.Fence.Attempt}
		answers[i] = answer{ExecutionID: e.ExecutionID}
		a := &answers[i].Answer

		k, ok := ex.journal.find(key.shard)
		if n := fresh[key.shard]; n > 0 {
			k, ok = known{attempt: n, execution: k.execution}, true
		}
		if ok && k.attempt > e.Fence.Attempt {
			*a = "stale"
			continue
		}
		// The same attempt is never started again, whatever the epoch. The one exception was
		// never started: it was rejected, and the server now gives it under another id.
		again := k.state == rejected && k.execution != executionNumber(e.ExecutionID)
		if ok && k.attempt == e.Fence.Attempt && !again {
			*a = "duplicate"
			if r := ex.runs[key]; r != nil {
				r.epoch = max(r.epoch, e.Fence.Epoch)
			} else if fresh[key.shard] != e.Fence.Attempt && !ex.journal.spooledFor(key) {
				orphans = append(orphans, e)
			}
			continue
		}
		h, ok := ex.handlers[e.Handler]
		switch {
		case !ok:
			*a = "no_handler"
		case ex.draining:
			*a = "draining"
		case spoolFull || len(taken) >= room:
			*a = "full"
		default:
			*a = "accepted"
			fresh[key.shard] = e.Fence.Attempt
			taken = append(taken, ex.newRun(e, key, h.run, traceParent))
		}
	}
	ex.mu.Unlock()

	now := time.Now()
	for _, e := range orphans {
		ex.reportOrphan(e, now)
	}
	list := make([]*execution, len(taken))
	for i, r := range taken {
		list[i] = &r.e
	}
	if err := ex.journal.take(list, now); err != nil {
		// Without a record it could be started twice, so it is not started at all.
		ex.log.Error("executions refused: the executor's directory can not be written", slog.Any("err", err))
		for i := range answers {
			if answers[i].Answer == "accepted" {
				answers[i].Answer = "full"
			}
		}
		return answers
	}

	ex.mu.Lock()
	var older []*run
	for _, r := range taken {
		for key, o := range ex.runs {
			if key.shard == r.key.shard {
				older = append(older, o)
			}
		}
		ex.runs[r.key] = r
		ex.byID[r.e.ExecutionID] = r
		ex.queue = append(ex.queue, r)
	}
	ex.startLocked()
	ex.mu.Unlock()
	for _, o := range older {
		ex.stop(o, &stopError{ErrKilled, "a later attempt of this shard was given"})
	}
	return answers
}

func (ex *Executor) newRun(e *execution, key attemptKey, h Handler, traceParent string) *run {
	ctx, cancel := context.WithCancelCause(ex.handlerCtx)
	return &run{
		ex: ex, e: *e, key: key, handler: h, traceParent: traceParent, out: ex.outputs.open(e.executionRef),
		ctx: ctx, cancel: cancel, takenAt: time.Now(), epoch: e.Fence.Epoch,
	}
}

// reportOrphan reports an execution that was taken before, is not here, and has no result on
// its way. The server asks because it has not heard how it ended.
func (ex *Executor) reportOrphan(e *execution, now time.Time) {
	key := attemptKey{shardKeyOf(e.BatchID, e.ShardingID), e.Fence.Attempt}
	k, _ := ex.journal.find(key.shard)
	res := &result{
		executionRef: e.executionRef, ShardingID: e.ShardingID, Fence: e.Fence,
		State: failed, Message: "the executor process ended while it ran",
	}
	if k.state != "" {
		res.State, res.Message = k.state, "ended before and reported then; this is a repetition without message and result value"
	}
	ex.spool(key, res, now)
}

// startLocked starts what may start. mu is held. A shard whose earlier attempt still runs
// waits, because two attempts of a shard must not overlap; others pass it by.
func (ex *Executor) startLocked() {
	for i := 0; i < len(ex.queue) && ex.running < ex.opts.Workers; {
		r := ex.queue[i]
		if ex.busy[r.key.shard] {
			i++
			continue
		}
		ex.queue = slices.Delete(ex.queue, i, i+1)
		r.startedAt = time.Now()
		ex.busy[r.key.shard] = true
		ex.running++
		go ex.execute(r)
	}
}

// execute runs the handler and puts the result into the spool.
func (ex *Executor) execute(r *run) {
	memory := memoryMB()
	ex.mu.Lock()
	startedAt := r.startedAt
	r.peakMB = max(r.peakMB, memory)
	ex.mu.Unlock()
	if ms := r.e.TimeoutMs; ms > 0 {
		d := time.Duration(ms) * time.Millisecond
		r.mu.Lock()
		r.endsAt = startedAt.Add(d)
		r.timer = time.AfterFunc(d, func() {
			r.cancel(&stopError{ErrTimedOut, fmt.Sprintf("limit %s", d)})
		})
		r.mu.Unlock()
	}

	err := call(r.handler, &Context{Context: r.ctx, run: r})
	cause := context.Cause(r.ctx) // read at once: what comes after the return does not count
	endedAt := time.Now()
	r.mu.Lock()
	if r.timer != nil {
		r.timer.Stop()
	}
	res := &result{
		executionRef: r.e.executionRef, ShardingID: r.e.ShardingID, State: succeeded, Message: r.message, Result: r.value,
		WaitedMs: startedAt.Sub(r.takenAt).Milliseconds(), DurationMs: endedAt.Sub(startedAt).Milliseconds(),
	}
	r.mu.Unlock()

	var panicked *panicError
	if errors.As(err, &panicked) {
		r.out.write("panic: " + panicked.value + "\n" + panicked.stack)
	}
	var final *noRetryError
	res.NoRetry = errors.As(err, &final)
	if err != nil {
		res.State, res.Message, res.Code = failed, err.Error(), codeOf(err)
	}
	// A handler that was told to stop may have left work undone even when it returns nil, so
	// what it was told decides.
	if cause != nil {
		switch {
		case errors.Is(cause, ErrTimedOut):
			res.State = timedOut
		case errors.Is(cause, ErrKilled):
			res.State = cancelled
		default:
			res.State = failed
		}
		res.Message = cause.Error()
		if err != nil && !errors.Is(err, context.Canceled) && !errors.Is(err, cause) {
			res.Message += "; the handler returned: " + err.Error()
		}
	}
	r.out.close()
	memory = memoryMB()
	ex.mu.Lock()
	res.PeakMemoryMB = max(r.peakMB, memory)
	res.Fence = fence{Attempt: r.e.Fence.Attempt, Epoch: r.epoch}
	ex.mu.Unlock()
	ex.finish(r, res)
}

// finish puts the result into the spool, then lets go of the run, so that it is in one of the
// two at any moment.
func (ex *Executor) finish(r *run, res *result) {
	ex.spool(r.key, res, time.Now())
	r.cancel(nil)
	ex.mu.Lock()
	delete(ex.runs, r.key)
	if ex.byID[r.e.ExecutionID] == r {
		delete(ex.byID, r.e.ExecutionID)
	}
	if !r.startedAt.IsZero() {
		ex.running--
		delete(ex.busy, r.key.shard)
		ex.startLocked()
	}
	ex.mu.Unlock()
	poke(ex.ended)
}

func (ex *Executor) spool(key attemptKey, res *result, now time.Time) {
	res.Message, res.Result = cut(res.Message, maxMessage), cut(res.Result, maxResult)
	if err := ex.journal.end(key, res, now); err != nil {
		ex.log.Error("result is not on disk and would be lost with this process",
			slog.String("execution_id", res.ExecutionID), slog.Any("err", err))
	}
	poke(ex.results)
}

// stop asks a run to stop. One that waits in the queue ends at once.
func (ex *Executor) stop(r *run, cause *stopError) {
	r.cancel(cause)
	ex.mu.Lock()
	i := slices.Index(ex.queue, r)
	if i >= 0 {
		ex.queue = slices.Delete(ex.queue, i, i+1)
	}
	ex.mu.Unlock()
	if i >= 0 {
		ex.endUnstarted(r, cancelled, cause.Error()+" (it had not started)")
	}
}

// endUnstarted reports a run that was taken out of the queue.
func (ex *Executor) endUnstarted(r *run, s state, message string) {
	ex.mu.Lock()
	epoch := r.epoch
	ex.mu.Unlock()
	r.out.close()
	ex.finish(r, &result{
		executionRef: r.e.executionRef, ShardingID: r.e.ShardingID, Fence: fence{r.e.Fence.Attempt, epoch},
		State: s, Message: message, WaitedMs: time.Since(r.takenAt).Milliseconds(),
	})
}

// kill asks an execution to stop and reports whether it is here.
func (ex *Executor) kill(ref executionRef, reason string) bool {
	ex.mu.Lock()
	r := ex.byID[ref.ExecutionID]
	ex.mu.Unlock()
	if r == nil || r.e.BatchID != ref.BatchID {
		return false
	}
	if reason == "" {
		reason = "asked by the server"
	}
	ex.stop(r, &stopError{ErrKilled, cut(reason, 500)})
	return true
}

// runningRefs lists everything accepted and not yet committed.
func (ex *Executor) runningRefs() []runningRef {
	// The spool second: what moves there in between is listed twice at worst, never left out.
	ex.mu.Lock()
	refs := make([]runningRef, 0, len(ex.runs))
	have := make(map[string]bool, len(ex.runs))
	for _, r := range ex.runs {
		ref := runningRef{fencedRef{r.e.executionRef, fence{r.e.Fence.Attempt, r.epoch}}, -1}
		if !r.startedAt.IsZero() {
			ref.RanMs = time.Since(r.startedAt).Milliseconds()
		}
		refs = append(refs, ref)
		have[r.e.ExecutionID] = true
	}
	ex.mu.Unlock()
	for _, ref := range ex.journal.refs() {
		if !have[ref.ExecutionID] {
			refs = append(refs, runningRef{ref, -1})
		}
	}
	return refs
}

func (ex *Executor) busyShards() map[shardKey]bool {
	ex.mu.Lock()
	defer ex.mu.Unlock()
	busy := make(map[shardKey]bool, len(ex.runs))
	for key := range ex.runs {
		busy[key.shard] = true
	}
	return busy
}

// extend asks the server for more time, and moves the limit when it agrees.
func (r *run) extend(ctx context.Context, d time.Duration) error {
	ex := r.ex
	ex.mu.Lock()
	ref := fencedRef{r.e.executionRef, fence{r.e.Fence.Attempt, r.epoch}}
	ex.mu.Unlock()
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	var reply answersReply
	m := leaseMessage{header: ex.header("lease"), Executions: []leaseRef{{ref, d.Milliseconds()}}}
	if err := ex.client.post(ctx, pathLease, m, &reply); err != nil {
		return fmt.Errorf("extend execution %s: %w", r.e.ExecutionID, err)
	}
	if len(reply.Answers) != 1 || reply.Answers[0].Answer != "extended" {
		return fmt.Errorf("extend execution %s: the server did not agree", r.e.ExecutionID)
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.timer == nil {
		return nil
	}
	if !r.timer.Stop() {
		return fmt.Errorf("extend execution %s: %w", r.e.ExecutionID, ErrTimedOut)
	}
	r.endsAt = r.endsAt.Add(d)
	r.timer.Reset(time.Until(r.endsAt))
	return nil
}

type panicError struct{ value, stack string }

func (e *panicError) Error() string { return "panic: " + e.value }

// call runs h and makes errors of panics and of runtime.Goexit.
func call(h Handler, c *Context) (err error) {
	const maxStack = 32 << 10
	returned := make(chan error, 1)
	go func() {
		err := errors.New("the handler ended its goroutine (runtime.Goexit)")
		defer func() {
			if p := recover(); p != nil {
				stack := string(debug.Stack())
				err = &panicError{strings.ToValidUTF8(fmt.Sprint(p), "\uFFFD"), cut(stack, maxStack)}
			}
			returned <- err
		}()
		err = h(c)
	}()
	return <-returned
}

// memoryMB is the memory that this process holds; Go can not tell it for one handler.
func memoryMB() int64 {
	s := []metrics.Sample{{Name: "/memory/classes/total:bytes"}, {Name: "/memory/classes/heap/released:bytes"}}
	metrics.Read(s)
	if s[0].Value.Kind() != metrics.KindUint64 || s[1].Value.Kind() != metrics.KindUint64 {
		return 0
	}
	return int64(s[0].Value.Uint64()-s[1].Value.Uint64()) >> 20
}
