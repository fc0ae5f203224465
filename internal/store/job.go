package store

import (
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/ax-scheduler/ax/internal/batch"
	"github.com/ax-scheduler/ax/internal/job"
	"github.com/ax-scheduler/ax/internal/schedule"
)

// Job statuses.
const (
	JobEnabled  = "enabled"
	JobDisabled = "disabled"
)

// Job is a row of job_info with its definition.
type Job struct {
	ID            int64
	NS            int64
	Bucket        int
	AppID         int64
	Definition    job.Definition
	Enabled       bool
	Version       int64
	LastTriggerNo int
	// Comment goes into the version that is written next.
	Comment       string
	LastTriggerAt int64
	NextTriggerAt int64
	CreatedAt     int64
	UpdatedAt     int64
	UpdatedBy     string
}

const jobColumns = "id, ns_id, bucket, app_id, definition, status, version, last_trigger_no, COALESCE(last_trigger_time, 0), COALESCE((SELECT MIN(t.next_due_hint) FROM job_trigger t WHERE t.job_id = job_info.id), 0), created_at, updated_at, updated_by"

func scanJob(row interface{ Scan(...any) error }) (Job, error) {
	var j Job
	var definition []byte
	var status string
	if err := row.Scan(&j.ID, &j.NS, &j.Bucket, &j.AppID, &definition, &status, &j.Version, &j.LastTriggerNo, &j.LastTriggerAt, &j.NextTriggerAt, &j.CreatedAt, &j.UpdatedAt, &j.UpdatedBy); err != nil {
		return j, err
	}
	j.Enabled = status == JobEnabled
	return j, json.Unmarshal(definition, &j.Definition)
}

// Job reads one job of a namespace.
func (s *Store) Job(ctx context.Context, ns, id int64) (Job, error) {
	j, err := scanJob(s.read.QueryRowContext(ctx, "SELECT "+jobColumns+" FROM job_info WHERE ns_id = ? AND id = ?", ns, id))
	if errors.Is(err, sql.ErrNoRows) {
		return j, ErrNotFound
	}
	return j, unavailable(err)
}

// JobByID reads a job of whatever namespace: the caller checks who may see it.
func (s *Store) JobByID(ctx context.Context, id int64) (Job, error) {
	j, err := scanJob(s.read.QueryRowContext(ctx, "SELECT "+jobColumns+" FROM job_info WHERE id = ?", id))
	if errors.Is(err, sql.ErrNoRows) {
		return j, ErrNotFound
	}
	return j, unavailable(err)
}

// JobFilter narrows a list of jobs. Zero fields do not filter.
type JobFilter struct {
	Text    string // part of the name, the handler or the id
	App     string
	Enabled *bool
	After   int64 // id of the last job of the page before
	Limit   int
}

// Jobs lists jobs of a namespace by id.
func (s *Store) Jobs(ctx context.Context, ns int64, f JobFilter) ([]Job, error) {
	where, args := []string{"ns_id = ?", "id > ?"}, []any{ns, f.After}
	if f.App != "" {
		where, args = append(where, "app_name = ?"), append(args, f.App)
	}
	if f.Enabled != nil {
		status := JobDisabled
		if *f.Enabled {
			status = JobEnabled
		}
		where, args = append(where, "status = ?"), append(args, status)
	}
	if f.Text != "" {
		like := "%" + likeEscaper.Replace(strings.ToLower(f.Text)) + "%"
		id, _ := strconv.ParseInt(f.Text, 10, 64) // 0, which no job has, for a text that is no id
		where = append(where, "(LOWER(name) LIKE ? ESCAPE '!' OR LOWER(handler) LIKE ? ESCAPE '!' OR id = ?)")
		args = append(args, like, like, id)
	}
	rows, err := s.read.QueryContext(ctx, "SELECT "+jobColumns+" FROM job_info WHERE "+strings.Join(where, " AND ")+" ORDER BY id LIMIT ?", append(args, f.Limit)...)
	if err != nil {
		return nil, unavailable(err)
	}
	defer func() { _ = rows.Close() }()
	var out []Job
	for rows.Next() {
		j, err := scanJob(rows)
		if err != nil {
			return nil, unavailable(err)
		}
		out = append(out, j)
	}
	return out, unavailable(rows.Err())
}

var likeEscaper = strings.NewReplacer("!", "!!", "%", "!%", "_", "!_") //nolint:gochecknoglobals // constant

// Version reads a job's definition as it was at a version.
func (s *Store) Version(ctx context.Context, id, version int64) (job.Definition, error) {
	v, err := s.VersionOf(ctx, id, version)
	return v.Definition, err
}

// JobVersion is what a job's definition was.
type JobVersion struct {
	Version    int64
	Definition job.Definition
	Author     string
	Comment    string
	CreatedAt  int64
}

// VersionOf reads one version with its author.
func (s *Store) VersionOf(ctx context.Context, id, version int64) (JobVersion, error) {
	v := JobVersion{Version: version}
	var raw []byte
	err := s.read.QueryRowContext(ctx, "SELECT definition, author, comment, created_at FROM job_version WHERE job_id = ? AND version = ?", id, version).Scan(&raw, &v.Author, &v.Comment, &v.CreatedAt)
	if errors.Is(err, sql.ErrNoRows) {
		return v, ErrNotFound
	}
	if err != nil {
		return v, unavailable(err)
	}
	return v, json.Unmarshal(raw, &v.Definition)
}

// Versions lists versions of a job without their definitions, newest first; before 0 = from the newest on.
func (s *Store) Versions(ctx context.Context, id, before int64, limit int) ([]JobVersion, error) {
	if before == 0 {
		before = 1 << 62
	}
	found, err := s.read.QueryContext(ctx, "SELECT version, author, comment, created_at FROM job_version WHERE job_id = ? AND version < ? ORDER BY version DESC LIMIT ?", id, before, limit)
	if err != nil {
		return nil, unavailable(err)
	}
	defer func() { _ = found.Close() }()
	var out []JobVersion
	for found.Next() {
		var v JobVersion
		if err := found.Scan(&v.Version, &v.Author, &v.Comment, &v.CreatedAt); err != nil {
			return nil, unavailable(err)
		}
		out = append(out, v)
	}
	return out, unavailable(found.Err())
}

// CreateJob makes a job, its first version and its triggers in one transaction under
// the namespace's fence, with the audit entry. ErrExists: the name is taken.
func (b *Bucket) CreateJob(j *Job, hints map[int]int64, entry *AuditEntry) error {
	id, err := b.s.sequence(b.ctx, b.tx, "job")
	if err != nil {
		return fmt.Errorf("job id: %w", err)
	}
	j.ID, j.Bucket, j.Version = id, b.f.Bucket, 1
	if err := b.writeJob(j, true); err != nil {
		return err
	}
	if err := b.writeTriggers(j, hints); err != nil {
		return err
	}
	return b.auditJob(j, entry)
}

// UpdateJob replaces a job's definition and status. ErrStale: its version is not from.
func (b *Bucket) UpdateJob(j *Job, from int64, hints map[int]int64, entry *AuditEntry) error {
	j.Version = from + 1
	if err := b.writeJob(j, false); err != nil {
		return err
	}
	if err := b.writeTriggers(j, hints); err != nil {
		return err
	}
	return b.auditJob(j, entry)
}

func (b *Bucket) auditJob(j *Job, entry *AuditEntry) error {
	entry.ObjectID, entry.ObjectName = fmt.Sprint(j.ID), j.Definition.Name
	return b.s.audit(b.ctx, b.tx, entry)
}

func (b *Bucket) writeJob(j *Job, create bool) error {
	definition, err := json.Marshal(j.Definition)
	if err != nil {
		return fmt.Errorf("job definition: %w", err)
	}
	d := j.Definition
	status := JobDisabled
	if j.Enabled {
		status = JobEnabled
	}
	allow := 0
	if d.Concurrency.Policy == job.OverlapAllow {
		allow = 1
	}
	if create {
		_, err = b.tx.ExecContext(b.ctx, `INSERT INTO job_info (id, ns_id, bucket, app_id, app_name, name, handler, cron, routing_strategy, timeout_ms, retries, allow_concurrent, priority,
			last_trigger_time, next_trigger_time, status, definition, last_trigger_no, version, created_at, updated_at, updated_by)
			VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, NULL, NULL, ?, ?, ?, ?, ?, ?, ?)`,
			j.ID, j.NS, j.Bucket, j.AppID, d.App, d.Name, d.Handler, cronColumn(d), d.Routing.Strategy, durationMillis(d.Timeout), d.Retry.Extra(), allow, d.Priority,
			status, definition, j.LastTriggerNo, j.Version, j.CreatedAt, j.UpdatedAt, j.UpdatedBy)
	} else {
		var res sql.Result
		res, err = b.tx.ExecContext(b.ctx, `UPDATE job_info SET app_id = ?, app_name = ?, name = ?, handler = ?, cron = ?, routing_strategy = ?, timeout_ms = ?, retries = ?, allow_concurrent = ?, priority = ?,
			status = ?, definition = ?, last_trigger_no = ?, version = ?, updated_at = ?, updated_by = ? WHERE ns_id = ? AND id = ? AND version = ?`,
			j.AppID, d.App, d.Name, d.Handler, cronColumn(d), d.Routing.Strategy, durationMillis(d.Timeout), d.Retry.Extra(), allow, d.Priority,
			status, definition, j.LastTriggerNo, j.Version, j.UpdatedAt, j.UpdatedBy, j.NS, j.ID, j.Version-1)
		if err == nil {
			if n, _ := res.RowsAffected(); n == 0 {
				return ErrStale
			}
		}
	}
	if duplicate(err) {
		return ErrExists
	}
	if err != nil {
		return fmt.Errorf("write job: %w", err)
	}
	if _, err := b.tx.ExecContext(b.ctx, "INSERT INTO job_version (job_id, version, ns_id, definition, author, comment, created_at) VALUES (?, ?, ?, ?, ?, ?, ?)", j.ID, j.Version, j.NS, definition, j.UpdatedBy, j.Comment, j.UpdatedAt); err != nil {
		return fmt.Errorf("write job version: %w", err)
	}
	return nil
}

// writeTriggers replaces a job's trigger rows. hints holds the next due time by trigger
// number; a trigger without one has nothing planned.
func (b *Bucket) writeTriggers(j *Job, hints map[int]int64) error {
	if _, err := b.tx.ExecContext(b.ctx, "DELETE FROM job_trigger WHERE job_id = ?", j.ID); err != nil {
		return fmt.Errorf("write triggers: %w", err)
	}
	for _, t := range j.Definition.Triggers {
		spec, err := json.Marshal(t)
		if err != nil {
			return fmt.Errorf("trigger %d: %w", t.No, err)
		}
		var hint any
		enabled := 0
		if j.Enabled {
			enabled = 1
			if h, ok := hints[t.No]; ok {
				hint = h
			}
		}
		if _, err := b.tx.ExecContext(b.ctx, "INSERT INTO job_trigger (job_id, no, ns_id, bucket, kind, spec, enabled, effective_from, next_due_hint) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)",
			j.ID, t.No, j.NS, b.f.Bucket, string(t.Kind), spec, enabled, j.UpdatedAt, hint); err != nil {
			return fmt.Errorf("write trigger %d: %w", t.No, err)
		}
	}
	if err := b.useCalendars(j); err != nil {
		return err
	}
	if err := b.useLimits(j); err != nil {
		return err
	}
	if err := b.useSecrets(j); err != nil {
		return err
	}
	if err := b.openPeriods(j); err != nil {
		return err
	}
	return b.refreshNext(map[int64]int64{j.ID: 0})
}

// DeleteJob removes a job, its triggers and its versions; its history stays. ErrStale:
// its version is not from.
func (b *Bucket) DeleteJob(j Job, now int64, entry *AuditEntry) error {
	res, err := b.tx.ExecContext(b.ctx, "DELETE FROM job_info WHERE ns_id = ? AND id = ? AND version = ?", j.NS, j.ID, j.Version)
	if err != nil {
		return fmt.Errorf("delete job: %w", err)
	}
	if n, _ := res.RowsAffected(); n == 0 {
		return ErrStale
	}
	if _, err := b.tx.ExecContext(b.ctx, "DELETE FROM job_trigger WHERE job_id = ?", j.ID); err != nil {
		return fmt.Errorf("delete triggers: %w", err)
	}
	if _, err := b.tx.ExecContext(b.ctx, "DELETE FROM calendar_use WHERE job_id = ?", j.ID); err != nil {
		return fmt.Errorf("delete use of calendars: %w", err)
	}
	if _, err := b.tx.ExecContext(b.ctx, "DELETE FROM run_limit_use WHERE job_id = ?", j.ID); err != nil {
		return fmt.Errorf("delete use of limits: %w", err)
	}
	// What its runs that still write were given stays masked.
	if _, err := b.tx.ExecContext(b.ctx, "UPDATE secret_use SET active = 0 WHERE job_id = ?", j.ID); err != nil {
		return fmt.Errorf("end use of secrets: %w", err)
	}
	if err := b.closePeriods(j.ID, now); err != nil {
		return err
	}
	if _, err := b.tx.ExecContext(b.ctx, "DELETE FROM backlog_control WHERE ns_id = ? AND scope = ? AND object_id = ?", j.NS, ScopeJob, j.ID); err != nil {
		return fmt.Errorf("delete backlog control: %w", err)
	}
	// The versions stay: past batches are pinned to theirs.
	return b.auditJob(&j, entry)
}

// cronColumn is what report B's tools read from job_info: the first cron expression,
// or the interval as @every.
func cronColumn(d job.Definition) string {
	for _, t := range d.Triggers {
		switch t.Kind {
		case schedule.Cron:
			return cut(t.Expr, 250)
		case schedule.FixedRate, schedule.FixedDelay:
			return "@every " + time.Duration(t.Every).String()
		case schedule.Once, schedule.Event, schedule.Delayed, schedule.Dependency, schedule.Manual, schedule.API:
		}
	}
	return ""
}

func durationMillis(d schedule.Duration) int64 { return time.Duration(d).Milliseconds() }

// maxDefinitions bounds the definitions kept in memory.
const maxDefinitions = 50_000

// definitions keeps job versions in memory: they never change.
type definitions struct {
	mu  sync.RWMutex
	all map[[2]int64]*job.Definition
}

// Definition is a job's definition as it was at a version. The answer is shared and must
// not be changed. It comes from memory after the first time.
func (s *Store) Definition(ctx context.Context, id, version int64) (*job.Definition, error) {
	key := [2]int64{id, version}
	s.definitions.mu.RLock()
	d, ok := s.definitions.all[key]
	s.definitions.mu.RUnlock()
	if ok {
		return d, nil
	}
	read, err := s.Version(ctx, id, version)
	if err != nil {
		return nil, err
	}
	s.definitions.mu.Lock()
	defer s.definitions.mu.Unlock()
	if s.definitions.all == nil || len(s.definitions.all) >= maxDefinitions {
		s.definitions.all = map[[2]int64]*job.Definition{}
	}
	s.definitions.all[key] = &read
	return &read, nil
}

// Wait makes it visible that batches are due and wait, and for what.
func (b *Bucket) Wait(batches map[string]int, reason, detail string) error {
	return b.advanceBatches(batches, batch.EventDue, "reason = ?, reason_detail = ?", reason, cut(detail, 500))
}
