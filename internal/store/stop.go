package store

import (
	"context"
	"fmt"
)

// Acknowledged records that executors took the wish to stop executions. What has ended meanwhile was
// acknowledged by then.
func (b *Bucket) Acknowledged(ids []int64, now int64) error {
	return eachDay(ids, func(day int, part []int64) error {
		_, err := b.tx.ExecContext(b.ctx, "UPDATE execution_log SET stop_acknowledged_at = COALESCE(stop_acknowledged_at, NULLIF(finished_at, 0), ?) WHERE day = ? AND +bucket = ? AND stop_asked_at IS NOT NULL AND id IN ("+marks(len(part))+")",
			append([]any{now, day, b.f.Bucket}, anys(part)...)...)
		if err != nil {
			return fmt.Errorf("acknowledge stops: %w", err)
		}
		return nil
	})
}

// Lingering is an execution that has ended and whose executor has not confirmed that it stopped: it
// keeps its place.
type Lingering struct {
	ExecutionID int64
	NS          int64
	JobID       int64
	BatchID     string
	Shard       int
	WorkerID    int64
	StartID     string
	Since       int64
}

// Linger remembers executions that have ended unconfirmed.
func (b *Bucket) Linger(list []Lingering) error {
	const width = 9
	for start := 0; start < len(list); start += group {
		part := list[start:min(start+group, len(list))]
		args := make([]any, 0, len(part)*width)
		for _, l := range part {
			args = append(args, l.ExecutionID, b.f.Bucket, l.NS, l.JobID, l.BatchID, l.Shard, l.WorkerID, l.StartID, l.Since)
		}
		if _, err := b.tx.ExecContext(b.ctx, "INSERT INTO lingering (execution_id, bucket, ns_id, job_id, batch_id, shard, worker_id, worker_start_id, since) VALUES "+rows(len(part), width), args...); err != nil {
			return fmt.Errorf("note lingering executions: %w", err)
		}
	}
	return nil
}

// Unlinger forgets them. confirmed: they are known to have stopped, now.
func (b *Bucket) Unlinger(ids []int64, confirmed bool, now int64) error {
	return eachDay(ids, func(day int, part []int64) error {
		if _, err := b.tx.ExecContext(b.ctx, "DELETE FROM lingering WHERE execution_id IN ("+marks(len(part))+")", anys(part)...); err != nil {
			return fmt.Errorf("forget lingering executions: %w", err)
		}
		if !confirmed {
			return nil
		}
		if _, err := b.tx.ExecContext(b.ctx, "UPDATE execution_log SET stop_confirmed = 1, stop_confirmed_at = ? WHERE day = ? AND id IN ("+marks(len(part))+")", append([]any{now, day}, anys(part)...)...); err != nil {
			return fmt.Errorf("confirm stops: %w", err)
		}
		return nil
	})
}

// LingeringIn lists the executions of a bucket that keep their place although they have ended.
func (s *Store) LingeringIn(ctx context.Context, bucket int) ([]Lingering, error) {
	rows, err := s.sched.QueryContext(ctx, "SELECT execution_id, ns_id, job_id, batch_id, shard, worker_id, worker_start_id, since FROM lingering WHERE bucket = ? ORDER BY execution_id", bucket)
	if err != nil {
		return nil, unavailable(fmt.Errorf("read lingering executions: %w", err))
	}
	defer func() { _ = rows.Close() }()
	var out []Lingering
	for rows.Next() {
		var l Lingering
		if err := rows.Scan(&l.ExecutionID, &l.NS, &l.JobID, &l.BatchID, &l.Shard, &l.WorkerID, &l.StartID, &l.Since); err != nil {
			return nil, unavailable(err)
		}
		out = append(out, l)
	}
	return out, unavailable(rows.Err())
}

// LastWorkers tells which executor had the latest attempt, of those that were sent, of each shard of batches.
func (s *Store) LastWorkers(ctx context.Context, batches map[string]int) (map[string]map[int]int64, error) {
	days := map[int][]string{}
	for id, day := range batches {
		days[day] = append(days[day], id)
	}
	out := map[string]map[int]int64{}
	for day, all := range days {
		for start := 0; start < len(all); start += group {
			part := all[start:min(start+group, len(all))]
			if err := s.lastWorkers(ctx, day, part, out); err != nil {
				return nil, unavailable(fmt.Errorf("read last executors: %w", err))
			}
		}
	}
	return out, nil
}

func (s *Store) lastWorkers(ctx context.Context, day int, ids []string, out map[string]map[int]int64) error {
	rows, err := s.sched.QueryContext(ctx, "SELECT batch_id, shard, worker_id FROM execution_log WHERE day = ? AND worker_id <> 0 AND "+s.ofBatches(len(ids))+" ORDER BY attempt", append([]any{day}, keysOf(ids)...)...)
	if err != nil {
		return err
	}
	defer func() { _ = rows.Close() }()
	for rows.Next() {
		var id string
		var shard int
		var worker int64
		if err := rows.Scan(&id, &shard, &worker); err != nil {
			return err
		}
		if out[id] == nil {
			out[id] = map[int]int64{}
		}
		out[id][shard] = worker
	}
	return rows.Err()
}
