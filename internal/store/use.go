package store

import (
	"context"
	"errors"

	"github.com/ax-scheduler/ax/internal/batch"
)

// Use is how often and when last a job's executions went to an executor.
type Use struct {
	JobID, WorkerID, Count, LastAt int64
}

const (
	// usedJobs bounds the jobs of a bucket whose use is read, and usedRuns the executions of each.
	usedJobs = 500
	usedRuns = 200
)

// RecentUses counts where the latest executions of a bucket's jobs with one of some strategies went.
func (s *Store) RecentUses(ctx context.Context, bucket int, strategies []string, now int64) ([]Use, error) {
	if len(strategies) == 0 {
		return nil, nil
	}
	rows, err := s.read.QueryContext(ctx, "SELECT id FROM job_info WHERE bucket = ? AND routing_strategy IN ("+marks(len(strategies))+") ORDER BY id LIMIT ?", append(append([]any{bucket}, anys(strategies)...), usedJobs)...)
	if err != nil {
		return nil, unavailable(err)
	}
	jobs, err := scanAll[int64](rows)
	if err != nil {
		return nil, err
	}
	var out []Use
	for _, id := range jobs {
		// Batches of a job sort by their time, nearly.
		rows, err := s.read.QueryContext(ctx, "SELECT worker_id, COUNT(*), MAX(dispatched_at) FROM (SELECT worker_id, dispatched_at FROM execution_log WHERE job_id = ? AND day >= ? AND worker_id <> 0 AND dispatched_at > 0 ORDER BY batch_id DESC LIMIT ?) x GROUP BY worker_id",
			id, batch.Day(now)-1, usedRuns)
		if err != nil {
			return nil, unavailable(err)
		}
		for rows.Next() {
			u := Use{JobID: id}
			if err := rows.Scan(&u.WorkerID, &u.Count, &u.LastAt); err != nil {
				_ = rows.Close() //nolint:sqlclosecheck // a defer in a loop would keep them all open
				return nil, unavailable(err)
			}
			out = append(out, u)
		}
		if err := errors.Join(rows.Err(), rows.Close()); err != nil {
			return nil, unavailable(err)
		}
	}
	return out, nil
}
