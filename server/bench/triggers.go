package bench

import (
	"context"
	"fmt"
	"net/http"
	"strconv"
	"sync"
	"time"

	"github.com/ax-scheduler/ax/internal/batch"
	"github.com/ax-scheduler/ax/internal/schedule"
)

const (
	// leastJobs is how many jobs a rate is spread over at least.
	leastJobs = 2000
	// leastEvery is the shortest interval of a job.
	leastEvery = time.Second
	// warm is how long everything runs before it is measured.
	warm = 5 * time.Second
	// drain is how long is waited for what is late.
	drain = time.Minute
	// callers is how many calls to the API run at a time.
	callers = 32
)

// periodic are jobs that fire at a steady rate, evenly spread over time.
type periodic struct {
	every time.Duration
	ids   []int64
	specs []schedule.Spec
}

// plan computes what is due in [from, to): batch → planned instant in milliseconds.
func (p *periodic) plan(from, to time.Time) (map[string]int64, error) {
	plan := map[string]int64{}
	for i, id := range p.ids {
		s, err := schedule.Compile(p.specs[i])
		if err != nil {
			return nil, err
		}
		at := from.Add(-1)
		for {
			due, ok := s.Next(at)
			if !ok || !due.Before(to) {
				break
			}
			plan[batch.ID(id, due.In(s.Zone()), 1)] = due.UnixMilli()
			at = due
		}
	}
	return plan, nil
}

// periodic makes jobs for a rate.
func (s *stage) periodic(ctx context.Context) (*periodic, error) {
	if s.o.Rate < 1 {
		return nil, fmt.Errorf("rate %d: at least 1 per second", s.o.Rate)
	}
	p := &periodic{every: max(leastEvery, leastJobs*time.Second/time.Duration(s.o.Rate)).Truncate(time.Millisecond)}
	n := int(p.every.Seconds()*float64(s.o.Rate) + 0.5)
	s.say("making %d jobs, each every %s", n, p.every)
	base := time.Now().UTC().Truncate(time.Second)
	p.ids, p.specs = make([]int64, n), make([]schedule.Spec, n)
	started := time.Now()
	err := parallel(ctx, n, callers, func(ctx context.Context, i int) error {
		anchor := base.Add(time.Duration(float64(p.every) * float64(i) / float64(n))).Truncate(time.Millisecond)
		p.specs[i] = schedule.Spec{No: 1, Kind: schedule.FixedRate, Every: schedule.Duration(p.every), Anchor: &anchor, Zone: "UTC"}
		var made struct {
			ID string `json:"id"`
		}
		err := s.call(ctx, http.MethodPost, pathIn(i%s.o.namespaces(), "/jobs"), map[string]any{
			"name": fmt.Sprintf("bench %05d", i), "app": app, "handler": handler,
			"triggers": []map[string]any{{"kind": "fixedRate", "every": p.every.String(), "anchor": anchor.Format(time.RFC3339Nano), "zone": "UTC"}},
		}, &made)
		if err != nil {
			return err
		}
		p.ids[i], err = strconv.ParseInt(made.ID, 10, 64)
		return err
	})
	s.say("made %d jobs in %s", n, time.Since(started).Round(time.Millisecond))
	return p, err
}

// parallel runs do for 0 to n−1, a few at a time, until one fails.
func parallel(ctx context.Context, n, width int, do func(ctx context.Context, i int) error) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	next := make(chan int)
	var group sync.WaitGroup
	for range min(width, n) {
		group.Go(func() {
			for i := range next {
				if err := do(ctx, i); err != nil {
					cancel(err)
				}
			}
		})
	}
	for i := 0; i < n && ctx.Err() == nil; i++ {
		select {
		case next <- i:
		case <-ctx.Done():
		}
	}
	close(next)
	group.Wait()
	return context.Cause(ctx)
}

// triggers measures a steady rate of firings.
func (s *stage) triggers(ctx context.Context, r *Report) error {
	if err := s.open(ctx); err != nil {
		return err
	}
	if err := s.executors(ctx); err != nil {
		return err
	}
	p, err := s.periodic(ctx)
	if err != nil {
		return err
	}
	from := time.Now().Add(warm).Truncate(time.Second)
	to := from.Add(s.o.Duration)
	plan, err := p.plan(from, to)
	if err != nil {
		return err
	}
	r.Planned = len(plan)
	wait(ctx, time.Until(from))
	s.say("measuring %d firings over %s", len(plan), s.o.Duration)
	use := s.usage()
	wait(ctx, time.Until(to))
	use.into(r, len(plan))
	if err := s.finish(ctx, r, plan); err != nil {
		return err
	}
	return nil
}

// finish waits until what was planned has arrived and is committed, or long enough, and counts.
func (s *stage) finish(ctx context.Context, r *Report, plan map[string]int64) error {
	var t tally
	end := time.Now().Add(drain)
	for {
		ledger, err := s.ledger(ctx)
		if err != nil {
			return err
		}
		if t = compare(plan, ledger); t.lost == 0 || time.Now().After(end) || ctx.Err() != nil {
			break
		}
		wait(ctx, 2*time.Second)
	}
	t.into(r)
	for {
		left, err := s.uncommitted(ctx, plan)
		if err != nil {
			return err
		}
		if left == 0 || time.Now().After(end) || ctx.Err() != nil {
			r.Uncommitted = new(left)
			return ctx.Err()
		}
		wait(ctx, 2*time.Second)
	}
}

// usage is what processes have used at an instant.
type usage struct {
	s        *stage
	server   time.Duration
	database time.Duration
	at       time.Time
	known    bool
	shared   bool // the database's process is known too
}

func (s *stage) usage() usage {
	u := usage{s: s, at: time.Now(), known: true}
	for _, p := range s.servers {
		if p.ended() {
			continue
		}
		used, ok := cpuOf(p.cmd.Process.Pid)
		u.server, u.known = u.server+used, u.known && ok
	}
	if pid, ok := databasePID(); ok && s.dsn != "" {
		u.database, u.shared = cpuOf(pid)
	}
	return u
}

// into writes what was used since, n triggers being handled meanwhile.
func (u usage) into(r *Report, n int) {
	now := u.s.usage()
	if !u.known || !now.known {
		r.missing = append(r.missing, "processor time could not be read")
		return
	}
	spent := now.server - u.server
	r.CPUPercent = new(100 * spent.Seconds() / now.at.Sub(u.at).Seconds())
	if n > 0 {
		r.CPUMicrosPerTrigger = new(float64(spent.Microseconds()) / float64(n))
		if u.shared && now.shared {
			r.DatabaseCPUMicrosPerTrigger = new(float64((now.database - u.database).Microseconds()) / float64(n))
		}
	}
	r.RSSMB = u.s.rss(r)
}

// rss is the resident memory of the first server.
func (s *stage) rss(r *Report) *float64 {
	mb, ok := rssOf(s.servers[0].cmd.Process.Pid)
	if !ok {
		r.missing = append(r.missing, "memory could not be read")
		return nil
	}
	return &mb
}
