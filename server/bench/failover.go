package bench

import (
	"context"
	"errors"
	"net/http"
	"slices"
	"syscall"
	"time"
)

// failover measures from the death of the server that owns the namespace to the first firing that
// arrives late because of it, sent by the other server.
func (s *stage) failover(ctx context.Context, r *Report) error {
	if s.dsn == "" {
		return errors.New("two servers need a MySQL or MariaDB database: name one with --database")
	}
	if err := s.open(ctx); err != nil {
		return err
	}
	if err := s.server(ctx); err != nil {
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
	fault := from.Add(s.o.Duration / 3)
	to := from.Add(s.o.Duration)
	plan, err := p.plan(from, to)
	if err != nil {
		return err
	}
	r.Planned = len(plan)
	wait(ctx, time.Until(fault))
	owner, err := s.owner(ctx)
	if err != nil {
		return err
	}
	at := time.Now()
	if s.o.Pause {
		s.say("the owner is paused")
		if err := owner.cmd.Process.Signal(syscall.SIGSTOP); err != nil {
			return err
		}
	} else {
		s.say("the owner is killed")
		owner.kill()
	}
	wait(ctx, time.Until(to))
	if s.o.Pause {
		// It wakes, must do nothing, and is measured with the rest.
		if err := owner.cmd.Process.Signal(syscall.SIGCONT); err != nil {
			return err
		}
	}
	if err := s.finish(ctx, r, plan); err != nil {
		return err
	}
	ledger, err := s.ledger(ctx)
	if err != nil {
		return err
	}
	// The first one that was due after the fault and arrived; what the dead one had sent is on its way.
	first := int64(1 << 62)
	for _, x := range ledger {
		if x.DueAt >= at.UnixMilli() && x.At > at.UnixMicro()+50_000 {
			first = min(first, x.At)
		}
	}
	if first == 1<<62 {
		r.missing = append(r.missing, "nothing arrived after the failure")
		return nil
	}
	r.Seconds = new(float64(first-at.UnixMicro()) / 1e6)
	return nil
}

// owner is the server that owns the namespace's bucket.
func (s *stage) owner(ctx context.Context) (*process, error) {
	var system struct {
		Replicas []struct{ ID, Address string }
		Buckets  []struct {
			Owner      string
			Namespaces []string
		}
	}
	if err := s.call(ctx, http.MethodGet, "/api/v1/system", nil, &system); err != nil {
		return nil, err
	}
	for _, b := range system.Buckets {
		if !slices.Contains(b.Namespaces, namespace) {
			continue
		}
		for _, r := range system.Replicas {
			for _, p := range s.servers {
				if r.ID == b.Owner && p.url == "http://"+r.Address {
					return p, nil
				}
			}
		}
	}
	return nil, errors.New("nobody owns the namespace")
}
