package bench

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"strconv"
	"sync/atomic"
	"time"
)

const (
	// perCall is how many delayed tasks one bulk call makes.
	perCall = 1000
	// singles is how many tasks are made one by one, to measure that.
	singles = 20_000
	// settle is how long a server is left alone before its memory or its idling is looked at.
	settle = 10 * time.Second
)

// job makes the job of delayed tasks.
func (s *stage) job(ctx context.Context) (path string, err error) {
	var made struct {
		ID string `json:"id"`
	}
	err = s.call(ctx, http.MethodPost, s.path("/jobs"), map[string]any{"name": "delayed", "app": app, "handler": handler, "concurrency": map[string]any{"policy": "allow", "max": 0}}, &made)
	return s.path("/jobs/" + made.ID + "/delayed"), err
}

// bulk makes n tasks, when(i) being due times, and returns the plan and the rate. now and then it says how far it is.
func (s *stage) bulk(ctx context.Context, path string, n int, when func(i int) time.Time) (plan map[string]int64, rate float64, err error) {
	calls := (n + perCall - 1) / perCall
	parts := make([]map[string]int64, calls)
	var done atomic.Int64
	told := make(chan struct{})
	watch, cancel := context.WithCancel(ctx)
	go func() {
		defer close(told)
		for wait(watch, 5*time.Second); watch.Err() == nil; wait(watch, 5*time.Second) {
			s.say("%d of %d tasks made", done.Load(), n)
		}
	}()
	started := time.Now()
	err = parallel(ctx, calls, 8, func(ctx context.Context, c int) error {
		type item struct {
			RunAt   string `json:"runAt"`
			Payload any    `json:"payload"`
		}
		from, to := c*perCall, min((c+1)*perCall, n)
		body := make([]item, 0, to-from)
		due := make([]int64, 0, to-from)
		for i := from; i < to; i++ {
			at := when(i).Truncate(time.Millisecond)
			due = append(due, at.UnixMilli())
			body = append(body, item{at.UTC().Format(time.RFC3339Nano), map[string]int{"n": i}})
		}
		var made struct {
			Items []struct {
				BatchID string `json:"batchId"`
			} `json:"items"`
		}
		if err := s.call(ctx, http.MethodPost, path+"/bulk", body, &made); err != nil {
			return err
		}
		if len(made.Items) != len(body) {
			return fmt.Errorf("%d tasks asked for, %d answered", len(body), len(made.Items))
		}
		parts[c] = make(map[string]int64, len(body))
		for i, m := range made.Items {
			if m.BatchID == "" {
				return errors.New("a task was not made")
			}
			parts[c][m.BatchID] = due[i]
		}
		done.Add(int64(len(body)))
		return nil
	})
	took := time.Since(started)
	cancel()
	<-told
	if err != nil {
		return nil, 0, err
	}
	plan = make(map[string]int64, n)
	for _, part := range parts {
		maps.Copy(plan, part)
	}
	if len(plan) != n {
		return nil, 0, fmt.Errorf("%d tasks were made, %d ids are different", n, len(plan))
	}
	s.say("made %d tasks in %s", n, took.Round(time.Millisecond))
	return plan, float64(n) / took.Seconds(), nil
}

// single makes tasks one by one, from many connections.
func (s *stage) single(ctx context.Context, path string, n int, when time.Time) (rate float64, err error) {
	started := time.Now()
	err = parallel(ctx, n, 2*callers, func(ctx context.Context, i int) error {
		return s.call(ctx, http.MethodPost, path, map[string]any{"runAt": when.UTC().Format(time.RFC3339), "payload": map[string]int{"n": i}, "key": "single-" + strconv.Itoa(i)}, nil)
	})
	return float64(n) / time.Since(started).Seconds(), err
}

// due is the part of a plan in [from, to).
func due(plan map[string]int64, from, to time.Time) map[string]int64 {
	part := map[string]int64{}
	for id, at := range plan {
		if at >= from.UnixMilli() && at < to.UnixMilli() {
			part[id] = at
		}
	}
	return part
}

// waiting makes o.Tasks tasks whose delays are spread over o.Spread.
func (s *stage) waiting(ctx context.Context, r *Report, after time.Duration) (path string, plan map[string]int64, err error) {
	if err := s.open(ctx); err != nil {
		return "", nil, err
	}
	if err := s.executors(ctx); err != nil {
		return "", nil, err
	}
	if path, err = s.job(ctx); err != nil {
		return "", nil, err
	}
	wait(ctx, settle)
	r.IdleRSSMB = s.rss(r)
	base := time.Now().Add(after)
	step := s.o.Spread / time.Duration(max(s.o.Tasks, 1))
	// Neighbours in a call are far apart in time, as they are in life.
	stride := 7919
	for s.o.Tasks%stride == 0 {
		stride++
	}
	plan, rate, err := s.bulk(ctx, path, s.o.Tasks, func(i int) time.Time {
		return base.Add(time.Duration((i*stride)%s.o.Tasks) * step)
	})
	r.CreatedPerSecond = &Created{Bulk: rate}
	return path, plan, err
}

// delayed measures creation, memory and punctuality of many waiting tasks.
func (s *stage) delayed(ctx context.Context, r *Report) error {
	// The bulk takes a while; what is due meanwhile is due on time or overdue, so the first is due later.
	lead := max(time.Second, time.Duration(s.o.Tasks/20_000)*time.Second)
	path, plan, err := s.waiting(ctx, r, lead)
	if err != nil {
		return err
	}
	r.RSSMB = s.rss(r)
	if r.CreatedPerSecond.Single, err = s.single(ctx, path, min(singles, s.o.Tasks), time.Now().Add(24*time.Hour)); err != nil {
		return err
	}
	from := time.Now().Add(warm)
	to := from.Add(s.o.Duration)
	part := due(plan, from, to)
	if len(part) == 0 {
		return errors.New("nothing is due while it is measured: ask for more tasks, a longer spread or a longer duration")
	}
	r.Planned = len(part)
	wait(ctx, time.Until(from))
	s.say("measuring %d tasks over %s", len(part), s.o.Duration)
	use := s.usage()
	wait(ctx, time.Until(to))
	memory := r.RSSMB
	use.into(r, len(part))
	if memory != nil && r.RSSMB != nil {
		r.RSSMB = new(max(*memory, *r.RSSMB))
	}
	return s.finish(ctx, r, part)
}

// burst measures how long it takes to hand over tasks that are all due at one second.
func (s *stage) burst(ctx context.Context, r *Report) error {
	if err := s.open(ctx); err != nil {
		return err
	}
	if err := s.executors(ctx); err != nil {
		return err
	}
	path, err := s.job(ctx)
	if err != nil {
		return err
	}
	// Far enough that all exist by then and have been loaded.
	at := time.Now().Add(45*time.Second + time.Duration(s.o.Tasks/5000)*time.Second).Truncate(time.Second)
	plan, rate, err := s.bulk(ctx, path, s.o.Tasks, func(int) time.Time { return at })
	if err != nil {
		return err
	}
	r.CreatedPerSecond = &Created{Bulk: rate}
	r.Planned = len(plan)
	if time.Until(at) < 0 {
		return errors.New("making the tasks took longer than the time until they were due: nothing was measured")
	}
	s.say("waiting until %s, when %d tasks are due", at.Format("15:04:05"), len(plan))
	wait(ctx, time.Until(at)-time.Second)
	use := s.usage()
	wait(ctx, time.Until(at))
	if err := s.until(ctx, drain, "all have arrived", func() (bool, error) { return s.started(ctx) >= len(plan), nil }); err != nil {
		r.missing = append(r.missing, err.Error())
	}
	use.into(r, len(plan))
	if err := s.finish(ctx, r, plan); err != nil {
		return err
	}
	if r.ErrorMs != nil {
		r.Seconds = new(r.ErrorMs.Max / 1000)
	}
	return nil
}

// coldstart measures from the start of a process, with many tasks waiting, to the first execution
// that arrives.
func (s *stage) coldstart(ctx context.Context, r *Report) error {
	_, plan, err := s.waiting(ctx, r, max(time.Minute, time.Duration(s.o.Tasks/10_000)*time.Second))
	if err != nil {
		return err
	}
	first := int64(1 << 62)
	for _, at := range plan {
		first = min(first, at)
	}
	s.say("the server is stopped and started again while tasks are due all the time")
	wait(ctx, time.Until(time.UnixMilli(first).Add(warm)))
	s.servers[0].end()
	before := s.started(ctx)
	at := time.Now()
	old := s.servers[0]
	s.servers = nil
	if _, err := s.again(ctx, old); err != nil {
		return err
	}
	if err := s.until(ctx, drain, "something arrives", func() (bool, error) { return s.started(ctx) > before, nil }); err != nil {
		return err
	}
	ledger, err := s.ledger(ctx)
	if err != nil {
		return err
	}
	arrived := int64(1 << 62)
	for _, x := range ledger {
		if x.At > at.UnixMicro() {
			arrived = min(arrived, x.At)
		}
	}
	r.Seconds = new(float64(arrived-at.UnixMicro()) / 1e6)
	wait(ctx, settle)
	r.RSSMB = s.rss(r)
	// Those that were due while nobody served, too.
	part := due(plan, time.UnixMilli(first), time.Now().Add(-time.Second))
	r.Planned = len(part)
	if err := s.finish(ctx, r, part); err != nil {
		return err
	}
	r.TriggersPerSecond, r.ErrorMs = nil, nil // what waited for the server says nothing about either
	return nil
}

// again starts a server on the address and data of one that ended.
func (s *stage) again(ctx context.Context, old *process) (*process, error) {
	args := old.cmd.Args[1:]
	p, err := s.start("server-1", args...)
	if err != nil {
		return nil, err
	}
	p.url = old.url
	s.servers = append(s.servers, p)
	return p, ctx.Err()
}

// idle measures what a server uses while nothing is due and many tasks wait.
func (s *stage) idle(ctx context.Context, r *Report) error {
	if _, _, err := s.waiting(ctx, r, 2*time.Hour); err != nil {
		return err
	}
	wait(ctx, settle)
	s.say("measuring for %s", s.o.Duration)
	use := s.usage()
	wait(ctx, s.o.Duration)
	use.into(r, 0)
	return ctx.Err()
}
