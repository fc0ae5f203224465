package store

import (
	"context"
	"database/sql"
	"fmt"
	"strconv"
	"strings"

	"github.com/ax-scheduler/ax/internal/batch"
)

// PartitionsAhead is how many days of partitions are made beforehand.
const PartitionsAhead = 4

func partitioned() []string {
	return []string{"execution_batch", "execution_log", "execution_event"}
}

// KeepPartitions sees to it on MySQL that every history table has a partition for each
// day from now to PartitionsAhead days on. Rows of other days go to pmax, which is the alarm: its
// emptiness is part of the answer. It does nothing on SQLite.
func (s *Store) KeepPartitions(ctx context.Context, now int64) (stray int64, err error) {
	if s.dialect == "sqlite" {
		return 0, nil
	}
	today := batch.Day(now)
	for _, table := range partitioned() {
		last, err := s.lastPartition(ctx, table)
		if err != nil {
			return stray, err
		}
		var parts []string
		for day := max(last+1, today); day <= today+PartitionsAhead; day++ {
			parts = append(parts, fmt.Sprintf("PARTITION p%d VALUES LESS THAN (%d)", day, day+1))
		}
		if len(parts) == 0 {
			continue
		}
		var n int64
		if err := s.main.QueryRowContext(ctx, "SELECT COUNT(*) FROM (SELECT 1 FROM "+table+" PARTITION (pmax) LIMIT 100000) x").Scan(&n); err != nil {
			return stray, unavailable(err)
		}
		stray += n
		// The statement takes a metadata lock; it must not wait behind a long reader for ever.
		if err := s.withConn(ctx, func(c *sql.Conn) error {
			if _, err := c.ExecContext(ctx, "SET SESSION lock_wait_timeout = 2"); err != nil {
				return err
			}
			_, err := c.ExecContext(ctx, "ALTER TABLE "+table+" REORGANIZE PARTITION pmax INTO ("+strings.Join(parts, ", ")+", PARTITION pmax VALUES LESS THAN MAXVALUE)")
			return err
		}); err != nil {
			return stray, fmt.Errorf("add partitions to %s: %w", table, unavailable(err))
		}
	}
	return stray, nil
}

func (s *Store) withConn(ctx context.Context, f func(c *sql.Conn) error) error {
	c, err := s.main.Conn(ctx)
	if err != nil {
		return err
	}
	defer func() { _ = c.Close() }()
	err = f(c)
	_, _ = c.ExecContext(context.WithoutCancel(ctx), "SET SESSION lock_wait_timeout = DEFAULT")
	return err
}

// lastPartition is the newest day that has a partition of its own; 0 when only pmax exists.
func (s *Store) lastPartition(ctx context.Context, table string) (int, error) {
	rows, err := s.main.QueryContext(ctx, "SELECT partition_name FROM information_schema.partitions WHERE table_schema = DATABASE() AND table_name = ? AND partition_name <> 'pmax'", table)
	if err != nil {
		return 0, unavailable(err)
	}
	names, err := scanAll[string](rows)
	if err != nil {
		return 0, err
	}
	last := 0
	for _, n := range names {
		if day, err := strconv.Atoi(strings.TrimPrefix(n, "p")); err == nil {
			last = max(last, day)
		}
	}
	return last, nil
}

// DropHistory removes history that was due before a day: whole partitions on MySQL, small
// steps on SQLite. A day that still has an open execution is kept. It returns how many rows or
// partitions went and is safe to call again and again.
func (s *Store) DropHistory(ctx context.Context, beforeDay int) (dropped int64, err error) {
	var open sql.NullInt64
	states := []any{}
	for _, r := range batch.Runs() {
		if !r.Final() {
			states = append(states, string(r))
		}
	}
	if err := s.read.QueryRowContext(ctx, "SELECT MIN(day) FROM execution_log WHERE day < ? AND status IN ("+marks(len(states))+")", append([]any{beforeDay}, states...)...).Scan(&open); err != nil {
		return 0, unavailable(err)
	}
	if open.Valid {
		beforeDay = min(beforeDay, int(open.Int64))
	}
	if err := s.markDropped(ctx, beforeDay); err != nil {
		return 0, err
	}
	if dropped, err = s.dropBackfills(ctx, beforeDay); err != nil {
		return dropped, err
	}
	if s.dialect == "sqlite" {
		steps, err := s.deleteSteps(ctx, beforeDay)
		return dropped + steps, err
	}
	for _, table := range partitioned() {
		rows, err := s.main.QueryContext(ctx, "SELECT partition_name FROM information_schema.partitions WHERE table_schema = DATABASE() AND table_name = ? AND partition_name <> 'pmax'", table)
		if err != nil {
			return dropped, unavailable(err)
		}
		names, err := scanAll[string](rows)
		if err != nil {
			return dropped, err
		}
		for _, n := range names {
			day, err := strconv.Atoi(strings.TrimPrefix(n, "p"))
			if err != nil || day >= beforeDay {
				continue
			}
			if err := s.withConn(ctx, func(c *sql.Conn) error {
				if _, err := c.ExecContext(ctx, "SET SESSION lock_wait_timeout = 2"); err != nil {
					return err
				}
				_, err := c.ExecContext(ctx, "ALTER TABLE "+table+" DROP PARTITION "+n)
				return err
			}); err != nil {
				return dropped, fmt.Errorf("drop partition %s of %s: %w", n, table, unavailable(err))
			}
			dropped++
		}
	}
	n, err := s.DropOutput(ctx, beforeDay)
	return dropped + n, err
}

func (s *Store) deleteSteps(ctx context.Context, beforeDay int) (int64, error) {
	// 2 000 rows a step keep the single writer free for scheduling in between.
	const step = 2000
	var total int64
	for _, table := range partitioned() {
		key := "id"
		if table == "execution_batch" {
			key = "batch_id"
		}
		for {
			res, err := s.main.ExecContext(ctx, "DELETE FROM "+table+" WHERE day < ? AND "+key+" IN (SELECT "+key+" FROM "+table+" WHERE day < ? LIMIT ?)", beforeDay, beforeDay, step)
			if err != nil {
				return total, unavailable(err)
			}
			n, _ := res.RowsAffected()
			total += n
			if n < step {
				break
			}
		}
	}
	n, err := s.DropOutput(ctx, beforeDay)
	return total + n, err
}
