package store

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"strings"

	"github.com/ax-scheduler/ax/internal/job"
	"github.com/ax-scheduler/ax/internal/message"
	"github.com/ax-scheduler/ax/sql/migrate"
)

// Limit bounds how much runs at once, or starts in a second.
type Limit struct {
	NS     int64 // 0 = of the platform
	Name   string
	Bucket int
	// AppID and Handler are what it covers; AppID 0 = the jobs that name it.
	AppID       int64
	AppName     string // read, not written
	Handler     string
	PerExecutor bool
	Max         int     // 0 = no bound
	Rate        float64 // starts in a second, 0 = no bound
	Version     int64
	UpdatedAt   int64
	UpdatedBy   string
	Jobs        int // that name it
}

// ErrInUse says that something is used by others and stays.
var ErrInUse = errors.New("it is in use")

const limitColumns = "l.ns_id, l.name, l.bucket, l.app_id, COALESCE(a.name, ''), l.handler, l.per_executor, l.max_running, l.rate, l.version, l.updated_at, l.updated_by, (SELECT COUNT(*) FROM run_limit_use u WHERE u.ns_id = l.ns_id AND u.name = l.name)"

const fromLimits = " FROM run_limit l LEFT JOIN app a ON a.id = l.app_id "

func scanLimit(row interface{ Scan(...any) error }) (Limit, error) {
	var l Limit
	err := row.Scan(&l.NS, &l.Name, &l.Bucket, &l.AppID, &l.AppName, &l.Handler, &l.PerExecutor, &l.Max, &l.Rate, &l.Version, &l.UpdatedAt, &l.UpdatedBy, &l.Jobs)
	return l, err
}

func scanLimits(rows *sql.Rows) ([]Limit, error) {
	defer func() { _ = rows.Close() }()
	var out []Limit
	for rows.Next() {
		l, err := scanLimit(rows)
		if err != nil {
			return nil, unavailable(err)
		}
		out = append(out, l)
	}
	return out, unavailable(rows.Err())
}

// Limits lists a namespace's limits by name, those after a name, up to most; ns 0 = the platform's.
func (s *Store) Limits(ctx context.Context, ns int64, after string, most int) ([]Limit, error) {
	rows, err := s.read.QueryContext(ctx, "SELECT "+limitColumns+fromLimits+"WHERE l.ns_id = ? AND l.name > ? ORDER BY l.name LIMIT ?", ns, after, most)
	if err != nil {
		return nil, unavailable(err)
	}
	return scanLimits(rows)
}

// LimitsOf lists all limits of the namespaces of a bucket; those of the platform are of bucket -1.
func (s *Store) LimitsOf(ctx context.Context, bucket int) ([]Limit, error) {
	rows, err := s.sched.QueryContext(ctx, "SELECT "+limitColumns+fromLimits+"WHERE l.bucket = ? ORDER BY l.ns_id, l.name", bucket)
	if err != nil {
		return nil, unavailable(err)
	}
	return scanLimits(rows)
}

// PlatformBucket is where limits are noted that belong to no namespace.
const PlatformBucket = -1

// LimitsChanged is a number that is another after any change of a limit.
func (s *Store) LimitsChanged(ctx context.Context) (int64, error) {
	var n int64
	err := s.sched.QueryRowContext(ctx, "SELECT next_id FROM ax_sequence WHERE name = 'limit'").Scan(&n)
	return n, unavailable(err)
}

// Limit reads one limit.
func (s *Store) Limit(ctx context.Context, ns int64, name string) (Limit, error) {
	l, err := scanLimit(s.read.QueryRowContext(ctx, "SELECT "+limitColumns+fromLimits+"WHERE l.ns_id = ? AND l.name = ?", ns, name))
	if errors.Is(err, sql.ErrNoRows) {
		return l, ErrNotFound
	}
	return l, unavailable(err)
}

// WriteLimit makes a limit (from 0; ErrExists: the name is taken) or replaces the one whose version is from
// (ErrStale: it is not). ErrInUse: jobs name it, so it can not cover an app from now on.
func (s *Store) WriteLimit(ctx context.Context, l *Limit, from int64, entry *AuditEntry) error {
	return s.inTx(ctx, s.main, func(tx *sql.Tx) error {
		version, err := s.sequence(ctx, tx, "limit")
		if err != nil {
			return fmt.Errorf("version of limit: %w", err)
		}
		l.Version = version
		per := 0
		if l.PerExecutor {
			per = 1
		}
		if from == 0 {
			_, err = tx.ExecContext(ctx, "INSERT INTO run_limit (ns_id, name, bucket, app_id, handler, per_executor, max_running, rate, version, updated_at, updated_by) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
				l.NS, l.Name, l.Bucket, l.AppID, l.Handler, per, l.Max, l.Rate, l.Version, l.UpdatedAt, cut(l.UpdatedBy, 128))
			if duplicate(err) {
				return ErrExists
			}
			if err != nil {
				return fmt.Errorf("insert limit: %w", err)
			}
			return s.audit(ctx, tx, entry)
		}
		res, err := tx.ExecContext(ctx, "UPDATE run_limit SET app_id = ?, handler = ?, per_executor = ?, max_running = ?, rate = ?, version = ?, updated_at = ?, updated_by = ? WHERE ns_id = ? AND name = ? AND version = ?",
			l.AppID, l.Handler, per, l.Max, l.Rate, l.Version, l.UpdatedAt, cut(l.UpdatedBy, 128), l.NS, l.Name, from)
		if err != nil {
			return fmt.Errorf("update limit: %w", err)
		}
		if n, _ := res.RowsAffected(); n == 0 {
			return ErrStale
		}
		if l.AppID != 0 {
			if err := unusedLimit(ctx, tx, l.NS, l.Name); err != nil {
				return err
			}
		}
		return s.audit(ctx, tx, entry)
	})
}

// DeleteLimit removes a limit. ErrStale: its version is another. ErrInUse: jobs name it.
func (s *Store) DeleteLimit(ctx context.Context, ns int64, name string, version int64, entry *AuditEntry) error {
	return s.inTx(ctx, s.main, func(tx *sql.Tx) error {
		if _, err := s.sequence(ctx, tx, "limit"); err != nil {
			return fmt.Errorf("version of limit: %w", err)
		}
		// First the row, which a job that begins to name it holds, then who does.
		res, err := tx.ExecContext(ctx, "DELETE FROM run_limit WHERE ns_id = ? AND name = ? AND version = ?", ns, name, version)
		if err != nil {
			return fmt.Errorf("delete limit: %w", err)
		}
		if n, _ := res.RowsAffected(); n == 0 {
			return ErrStale
		}
		if err := unusedLimit(ctx, tx, ns, name); err != nil {
			return err
		}
		return s.audit(ctx, tx, entry)
	})
}

func unusedLimit(ctx context.Context, tx *sql.Tx, ns int64, name string) error {
	var n int
	if err := tx.QueryRowContext(ctx, "SELECT COUNT(*) FROM run_limit_use WHERE ns_id = ? AND name = ?", ns, name).Scan(&n); err != nil {
		return fmt.Errorf("users of limit: %w", err)
	}
	if n > 0 {
		return ErrInUse
	}
	return nil
}

// LimitUsers lists the jobs that name a limit, by id, at most most.
func (s *Store) LimitUsers(ctx context.Context, ns int64, name string, most int) ([]int64, error) {
	rows, err := s.read.QueryContext(ctx, "SELECT job_id FROM run_limit_use WHERE ns_id = ? AND name = ? ORDER BY job_id LIMIT ?", ns, name, most)
	if err != nil {
		return nil, unavailable(err)
	}
	return scanAll[int64](rows)
}

// useLimits notes which limits a job names. *job.InvalidError: there is none of a name, or it covers an app.
func (b *Bucket) useLimits(j *Job) error {
	if _, err := b.tx.ExecContext(b.ctx, "DELETE FROM run_limit_use WHERE job_id = ?", j.ID); err != nil {
		return fmt.Errorf("limits of job %d: %w", j.ID, err)
	}
	lock := " LOCK IN SHARE MODE" // so that nobody deletes it until this job names it
	if b.s.dialect == migrate.SQLite {
		lock = ""
	}
	for i, full := range j.Definition.Limits {
		ns, name := j.NS, full
		if shared, ok := strings.CutPrefix(full, job.SharedLimit); ok {
			ns, name = 0, shared
		}
		var app int64
		err := b.tx.QueryRowContext(b.ctx, "SELECT app_id FROM run_limit WHERE ns_id = ? AND name = ?"+lock, ns, name).Scan(&app)
		if errors.Is(err, sql.ErrNoRows) || err == nil && app != 0 {
			return &job.InvalidError{Fields: []*message.Invalid{{
				Code: "unknown_limit", Field: fmt.Sprintf("limits[%d]", i), Token: full,
				Message: message.Text{EN: "There is no limit of this name that jobs may name; make it first.", ZH: "没有可供任务引用的同名限额，请先创建。"},
			}}}
		}
		if err != nil {
			return fmt.Errorf("limit %s: %w", full, err)
		}
		if _, err := b.tx.ExecContext(b.ctx, "INSERT INTO run_limit_use (ns_id, name, job_id) VALUES (?, ?, ?)", ns, name, j.ID); err != nil {
			return fmt.Errorf("use of limit %s: %w", full, err)
		}
	}
	return nil
}
