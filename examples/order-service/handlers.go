package main

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"hash/fnv"
	"time"

	"github.com/ax-scheduler/ax/sdk/go"
)

func addHandlers(ex *ax.Executor, db *sql.DB) {
	s := &service{db}
	ex.Sharding("syncOrders", s.syncOrders)
	ex.Simple("healthCheck", s.healthCheck)
	ex.Simple("flakyReport", s.flakyReport)
	ex.Simple("monthlyStatement", s.monthlyStatement)
}

type service struct{ db *sql.DB }

// syncOrders copies this shard's part of yesterday's orders into the warehouse.
func (s *service) syncOrders(c *ax.Context) error {
	params := struct {
		PauseMs int `json:"pauseMs"` // between chunks
	}{60}
	if err := c.Bind(&params); err != nil {
		return err
	}
	if params.PauseMs < 0 || params.PauseMs > 60_000 {
		return ax.NoRetry(fmt.Errorf("pauseMs is %d, not from 0 to 60000", params.PauseMs))
	}
	// Yesterday is told from the planned time: a retry after midnight and a backfill mean the same day.
	p := part{
		batchID: c.BatchID(), shard: c.ShardingID(), total: c.ShardingTotal(),
		day: dayBefore(c.PlannedFor()), pause: time.Duration(params.PauseMs) * time.Millisecond,
	}
	if err := ensureDay(c, s.db, p.day); err != nil {
		return err
	}
	c.Logf("shard %d of %d, orders of %s, attempt %d", p.shard, p.total, p.day.from.Format(time.DateOnly), c.Attempt())
	chunks := 0
	copied, err := copyPart(c, s.db, p, func(copied, expected int64) {
		c.Progress(int(100 * copied / max(expected, 1)))
		if chunks++; chunks%4 == 0 || copied == expected {
			c.Logf("copied %d of %d orders", copied, expected)
		}
	})
	if errors.Is(err, errTotalChanged) {
		return ax.NoRetry(err)
	}
	if err != nil {
		return err
	}
	c.Message(fmt.Sprintf("copied %d orders", copied))
	return c.Result(map[string]int64{"copied": copied})
}

// healthCheck asks the order database for an answer.
func (s *service) healthCheck(c *ax.Context) error {
	begun := time.Now()
	var days int
	if err := s.db.QueryRowContext(c, `SELECT count(*) FROM seeded_days`).Scan(&days); err != nil {
		return fmt.Errorf("order database: %w", err)
	}
	ms := float64(time.Since(begun).Microseconds()) / 1000
	c.Logf("order database answered in %.1f ms, it has %d days of orders", ms, days)
	return c.Result(map[string]float64{"ms": ms})
}

// flakyReport fails now and then, so that retries can be seen: about one batch in three fails
// once, and half of those fail twice. Which ones follows from the batch's name.
func (s *service) flakyReport(c *ax.Context) error {
	if n := failures(c.BatchID()); c.Attempt() <= n {
		c.Logf("attempt %d: the report service does not answer", c.Attempt())
		return errors.New("report service: connection reset by peer")
	}
	c.Logf("report written at attempt %d", c.Attempt())
	c.Message("report written")
	return nil
}

// failures is how many attempts of a batch fail: 0, 1 or 2.
func failures(batchID string) int {
	h := fnv.New64a()
	h.Write([]byte(batchID))
	// The upper half: batches that follow each other differ in their last digits, which stir the lower bits least.
	switch n := (h.Sum64() >> 32) % 6; n {
	case 0:
		return 1
	case 1:
		return 2
	default:
		return 0
	}
}

// monthlyStatement takes a minute, tells its progress each second and stops when it is told to.
func (s *service) monthlyStatement(c *ax.Context) error {
	params := struct {
		Seconds int `json:"seconds"`
	}{60}
	if err := c.Bind(&params); err != nil {
		return err
	}
	if params.Seconds < 1 || params.Seconds > 3600 {
		return ax.NoRetry(fmt.Errorf("seconds is %d, not from 1 to 3600", params.Seconds))
	}
	tick := time.NewTicker(time.Second)
	defer tick.Stop()
	for i := range params.Seconds {
		c.Progress(100 * i / params.Seconds)
		c.Logf("statement %d of %d", i+1, params.Seconds)
		select {
		case <-c.Done():
			c.Logf("stopped after %d statements", i)
			return context.Cause(c)
		case <-tick.C:
		}
	}
	c.Progress(100)
	c.Message(fmt.Sprintf("%d statements", params.Seconds))
	return nil
}
