-- +goose Up
-- how many missed firings of an app may start in a second; 0 = no limit
ALTER TABLE app ADD COLUMN drain_rate DOUBLE NOT NULL DEFAULT 100;

-- what an operator said about the backlog of a job or an app: paused, or another rate (0 = its own)
CREATE TABLE backlog_control (
  ns_id BIGINT NOT NULL,
  scope VARCHAR(8) CHARACTER SET ascii COLLATE ascii_bin NOT NULL,
  object_id BIGINT NOT NULL,
  paused INT NOT NULL,
  rate DOUBLE NOT NULL,
  changed_by VARCHAR(128) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin NOT NULL,
  changed_at BIGINT NOT NULL,
  PRIMARY KEY (ns_id, scope, object_id)
) ENGINE=InnoDB DEFAULT CHARSET=utf8mb4 COLLATE=utf8mb4_bin;

-- when a trigger was in force, as which version of its job: firings in (from_at, until_at] have a row each.
-- until_at 0 = still in force
CREATE TABLE trigger_period (
  job_id BIGINT NOT NULL,
  no INT NOT NULL,
  from_at BIGINT NOT NULL,
  until_at BIGINT NOT NULL,
  ns_id BIGINT NOT NULL,
  bucket INT NOT NULL,
  version BIGINT NOT NULL,
  kind VARCHAR(16) CHARACTER SET ascii COLLATE ascii_bin NOT NULL,
  spec TEXT CHARACTER SET utf8mb4 COLLATE utf8mb4_bin NOT NULL,
  PRIMARY KEY (job_id, no, from_at, version),
  KEY ix_trigger_period_until (until_at)
) ENGINE=InnoDB DEFAULT CHARSET=utf8mb4 COLLATE=utf8mb4_bin;

-- triggers of before this table: nothing is known of the time up to their next firing
INSERT INTO trigger_period (job_id, no, from_at, until_at, ns_id, bucket, version, kind, spec)
  SELECT t.job_id, t.no, GREATEST(t.effective_from, COALESCE(t.next_due_hint, t.effective_from) - 1), 0, t.ns_id, t.bucket, j.version, t.kind, t.spec
  FROM job_trigger t JOIN job_info j ON j.id = t.job_id WHERE t.enabled = 1 AND t.kind IN ('cron', 'fixedRate');
