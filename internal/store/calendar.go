package store

import (
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"

	"github.com/ax-scheduler/ax/internal/schedule"
)

// Calendar is a named calendar of a namespace. The name and the version of its definition are its own.
type Calendar struct {
	NS         int64
	Definition schedule.Calendar
	UpdatedAt  int64
	UpdatedBy  string
	Jobs       int // that use it
}

const calendarColumns = "c.ns_id, c.name, c.version, c.definition, c.updated_at, c.updated_by, (SELECT COUNT(*) FROM calendar_use u WHERE u.ns_id = c.ns_id AND u.calendar = c.name)"

func scanCalendar(row interface{ Scan(...any) error }) (Calendar, error) {
	var c Calendar
	var name string
	var version int64
	var definition []byte
	if err := row.Scan(&c.NS, &name, &version, &definition, &c.UpdatedAt, &c.UpdatedBy, &c.Jobs); err != nil {
		return c, err
	}
	err := json.Unmarshal(definition, &c.Definition)
	c.Definition.Name, c.Definition.Version = name, version
	return c, err
}

// Calendars lists a namespace's calendars by name, those after a name, up to limit.
func (s *Store) Calendars(ctx context.Context, ns int64, after string, limit int) ([]Calendar, error) {
	rows, err := s.read.QueryContext(ctx, "SELECT "+calendarColumns+" FROM calendar c WHERE c.ns_id = ? AND c.name > ? ORDER BY c.name LIMIT ?", ns, after, limit)
	if err != nil {
		return nil, unavailable(err)
	}
	defer func() { _ = rows.Close() }()
	var out []Calendar
	for rows.Next() {
		c, err := scanCalendar(rows)
		if err != nil {
			return nil, unavailable(err)
		}
		out = append(out, c)
	}
	return out, unavailable(rows.Err())
}

// Calendar reads one calendar.
func (s *Store) Calendar(ctx context.Context, ns int64, name string) (Calendar, error) {
	c, err := scanCalendar(s.read.QueryRowContext(ctx, "SELECT "+calendarColumns+" FROM calendar c WHERE c.ns_id = ? AND c.name = ?", ns, name))
	if errors.Is(err, sql.ErrNoRows) {
		return c, ErrNotFound
	}
	return c, unavailable(err)
}

const calendarUsers = "SELECT job_id FROM calendar_use WHERE ns_id = ? AND calendar = ? ORDER BY job_id"

// CalendarUsers lists the jobs that use a calendar, by id.
func (s *Store) CalendarUsers(ctx context.Context, ns int64, name string) ([]int64, error) {
	rows, err := s.read.QueryContext(ctx, calendarUsers, ns, name)
	if err != nil {
		return nil, unavailable(err)
	}
	return scanAll[int64](rows)
}

// CalendarUsers lists the same in this transaction: nobody can begin to use it until that has ended.
func (b *Bucket) CalendarUsers(ns int64, name string) ([]int64, error) {
	rows, err := b.tx.QueryContext(b.ctx, calendarUsers, ns, name)
	if err != nil {
		return nil, fmt.Errorf("read users of calendar: %w", err)
	}
	return scanAll[int64](rows)
}

// WriteCalendar makes a calendar (from 0; ErrExists: the name is taken) or replaces the one whose version
// is from (ErrStale: it is not). The jobs that use it are not written by this.
func (b *Bucket) WriteCalendar(c *Calendar, from int64, entry *AuditEntry) error {
	c.Definition.Version = from + 1
	definition, err := json.Marshal(c.Definition)
	if err != nil {
		return fmt.Errorf("calendar: %w", err)
	}
	if from == 0 {
		_, err = b.tx.ExecContext(b.ctx, "INSERT INTO calendar (ns_id, name, definition, version, updated_at, updated_by) VALUES (?, ?, ?, 1, ?, ?)", c.NS, c.Definition.Name, definition, c.UpdatedAt, cut(c.UpdatedBy, 128))
		if duplicate(err) {
			return ErrExists
		}
	} else {
		var res sql.Result
		res, err = b.tx.ExecContext(b.ctx, "UPDATE calendar SET definition = ?, version = version + 1, updated_at = ?, updated_by = ? WHERE ns_id = ? AND name = ? AND version = ?",
			definition, c.UpdatedAt, cut(c.UpdatedBy, 128), c.NS, c.Definition.Name, from)
		if err == nil {
			if n, _ := res.RowsAffected(); n == 0 {
				return ErrStale
			}
		}
	}
	if err != nil {
		return fmt.Errorf("write calendar: %w", err)
	}
	return b.s.audit(b.ctx, b.tx, entry)
}

// DeleteCalendar removes a calendar that no job uses, which the caller has asked in this transaction.
// ErrStale: its version is another.
func (b *Bucket) DeleteCalendar(ns int64, name string, version int64, entry *AuditEntry) error {
	res, err := b.tx.ExecContext(b.ctx, "DELETE FROM calendar WHERE ns_id = ? AND name = ? AND version = ?", ns, name, version)
	if err != nil {
		return fmt.Errorf("delete calendar: %w", err)
	}
	if n, _ := res.RowsAffected(); n == 0 {
		return ErrStale
	}
	return b.s.audit(b.ctx, b.tx, entry)
}

// useCalendars notes which calendars a job's triggers name. ErrStale: one of them was changed or deleted since
// the definition took its copy, and what fires must be what the calendar says.
func (b *Bucket) useCalendars(j *Job) error {
	if _, err := b.tx.ExecContext(b.ctx, "DELETE FROM calendar_use WHERE job_id = ?", j.ID); err != nil {
		return fmt.Errorf("calendars of job %d: %w", j.ID, err)
	}
	done := map[string]bool{}
	for _, t := range j.Definition.Triggers {
		for _, c := range t.Excluded {
			var version int64
			err := b.tx.QueryRowContext(b.ctx, "SELECT version FROM calendar WHERE ns_id = ? AND name = ?", j.NS, c.Name).Scan(&version)
			if errors.Is(err, sql.ErrNoRows) || err == nil && version != c.Version {
				return ErrStale
			}
			if err != nil {
				return fmt.Errorf("calendar %s: %w", c.Name, err)
			}
			if done[c.Name] {
				continue
			}
			done[c.Name] = true
			if _, err := b.tx.ExecContext(b.ctx, "INSERT INTO calendar_use (ns_id, calendar, job_id) VALUES (?, ?, ?)", j.NS, c.Name, j.ID); err != nil {
				return fmt.Errorf("use of calendar %s: %w", c.Name, err)
			}
		}
	}
	return nil
}
