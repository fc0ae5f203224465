package store

import (
	"context"
	"database/sql"
	"errors"
	"fmt"

	"github.com/ax-scheduler/ax/internal/batch"
)

// Whose backlog a control is about.
const (
	ScopeJob = "job"
	ScopeApp = "app"
)

// Drain is how the backlog of an app or a job is worked off.
type Drain struct {
	Scope    string
	ObjectID int64
	Rate     float64 // firings a second; of an app 0 = no limit, of a job 0 = as its policy says
	Paused   bool
}

// Drains lists how the apps of a bucket, and the jobs of which an operator said something, work off what
// was missed.
func (s *Store) Drains(ctx context.Context, bucket int) ([]Drain, error) {
	rows, err := s.sched.QueryContext(ctx, `SELECT 'app', a.id, CASE WHEN COALESCE(c.rate, 0) > 0 THEN c.rate ELSE a.drain_rate END, COALESCE(c.paused, 0)
		FROM app a JOIN namespace n ON n.id = a.ns_id LEFT JOIN backlog_control c ON c.ns_id = a.ns_id AND c.scope = 'app' AND c.object_id = a.id WHERE n.bucket = ?
		UNION ALL SELECT 'job', c.object_id, c.rate, c.paused FROM backlog_control c JOIN namespace n ON n.id = c.ns_id WHERE c.scope = 'job' AND n.bucket = ?`, bucket, bucket)
	if err != nil {
		return nil, unavailable(fmt.Errorf("read drain rates: %w", err))
	}
	defer func() { _ = rows.Close() }()
	var out []Drain
	for rows.Next() {
		var d Drain
		if err := rows.Scan(&d.Scope, &d.ObjectID, &d.Rate, &d.Paused); err != nil {
			return nil, unavailable(err)
		}
		out = append(out, d)
	}
	return out, unavailable(rows.Err())
}

// Control is what an operator said about a backlog.
type Control struct {
	NS       int64
	Scope    string
	ObjectID int64
	Rate     float64
	Paused   bool
	By       string
	At       int64
}

// Control reads what was said about a backlog; the zero Control when nothing was.
func (b *Bucket) Control(ns int64, scope string, object int64) (Control, error) {
	c := Control{NS: ns, Scope: scope, ObjectID: object}
	err := b.tx.QueryRowContext(b.ctx, "SELECT rate, paused, changed_by, changed_at FROM backlog_control WHERE ns_id = ? AND scope = ? AND object_id = ?", ns, scope, object).Scan(&c.Rate, &c.Paused, &c.By, &c.At)
	if errors.Is(err, sql.ErrNoRows) {
		return c, nil
	}
	return c, err
}

// SetControl writes what an operator says about a backlog.
func (b *Bucket) SetControl(c Control) error {
	if _, err := b.tx.ExecContext(b.ctx, "DELETE FROM backlog_control WHERE ns_id = ? AND scope = ? AND object_id = ?", c.NS, c.Scope, c.ObjectID); err != nil {
		return fmt.Errorf("backlog control: %w", err)
	}
	paused := 0
	if c.Paused {
		paused = 1
	}
	if _, err := b.tx.ExecContext(b.ctx, "INSERT INTO backlog_control (ns_id, scope, object_id, paused, rate, changed_by, changed_at) VALUES (?, ?, ?, ?, ?, ?, ?)", c.NS, c.Scope, c.ObjectID, paused, c.Rate, cut(c.By, 128), c.At); err != nil {
		return fmt.Errorf("backlog control: %w", err)
	}
	return nil
}

// Miss ends batches that have not started, with all their executions: MISSED.
func (b *Bucket) Miss(batches map[string]int, executions []int64, reason, detail string, now int64) error {
	return b.unstarted(batches, executions, batch.EventMiss, reason, detail, now)
}

func (b *Bucket) unstarted(batches map[string]int, executions []int64, e batch.Event, reason, detail string, now int64) error {
	from := b.s.machine.RunsTaking(batch.RunCancel)
	err := eachDay(executions, func(day int, part []int64) error {
		args := append([]any{string(batch.RunCancelled), now, day}, anys(from)...)
		_, err := b.tx.ExecContext(b.ctx, "UPDATE execution_log SET status = ?, finished_at = ? WHERE day = ? AND status IN ("+marks(len(from))+") AND id IN ("+marks(len(part))+")", append(args, anys(part)...)...)
		return err
	})
	if err != nil {
		return fmt.Errorf("end unstarted executions: %w", err)
	}
	return b.EndBatches(batches, e, reason, cut(detail, 500), 0, 0, now)
}

// SetAppRate changes an app's drain rate. ErrStale: its version is not that of a.
func (s *Store) SetAppRate(ctx context.Context, a App, rate float64, entry *AuditEntry) error {
	return s.inTx(ctx, s.main, func(tx *sql.Tx) error {
		res, err := tx.ExecContext(ctx, "UPDATE app SET drain_rate = ?, version = version + 1 WHERE id = ? AND version = ?", rate, a.ID, a.Version)
		if err != nil {
			return fmt.Errorf("set drain rate: %w", err)
		}
		if changed, _ := res.RowsAffected(); changed == 0 {
			return ErrStale
		}
		return s.audit(ctx, tx, entry)
	})
}
