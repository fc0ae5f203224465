-- +goose Up
-- how many missed firings of an app may start in a second; 0 = no limit
ALTER TABLE app ADD COLUMN drain_rate REAL NOT NULL DEFAULT 100;

-- what an operator said about the backlog of a job or an app: paused, or another rate (0 = its own)
CREATE TABLE backlog_control (
  ns_id INTEGER NOT NULL,
  scope TEXT NOT NULL,
  object_id INTEGER NOT NULL,
  paused INTEGER NOT NULL,
  rate REAL NOT NULL,
  changed_by TEXT NOT NULL,
  changed_at INTEGER NOT NULL,
  PRIMARY KEY (ns_id, scope, object_id)
);

-- when a trigger was in force, as which version of its job: firings in (from_at, until_at] have a row each.
-- until_at 0 = still in force
CREATE TABLE trigger_period (
  job_id INTEGER NOT NULL,
  no INTEGER NOT NULL,
  from_at INTEGER NOT NULL,
  until_at INTEGER NOT NULL,
  ns_id INTEGER NOT NULL,
  bucket INTEGER NOT NULL,
  version INTEGER NOT NULL,
  kind TEXT NOT NULL,
  spec TEXT NOT NULL,
  PRIMARY KEY (job_id, no, from_at, version)
);
CREATE INDEX ix_trigger_period_until ON trigger_period (until_at);

-- triggers of before this table: nothing is known of the time up to their next firing
INSERT INTO trigger_period (job_id, no, from_at, until_at, ns_id, bucket, version, kind, spec)
  SELECT t.job_id, t.no, MAX(t.effective_from, COALESCE(t.next_due_hint, t.effective_from) - 1), 0, t.ns_id, t.bucket, j.version, t.kind, t.spec
  FROM job_trigger t JOIN job_info j ON j.id = t.job_id WHERE t.enabled = 1 AND t.kind IN ('cron', 'fixedRate');
