-- Limits on how much runs at once, or starts in a second.
-- Same objects in ../mysql/0011_limit.sql.

-- +goose Up
-- ns_id 0 = of the platform; app_id 0 = for the jobs that name it
CREATE TABLE run_limit (
  ns_id INTEGER NOT NULL,
  name TEXT NOT NULL,
  bucket INTEGER NOT NULL,
  app_id INTEGER NOT NULL,
  handler TEXT NOT NULL,
  per_executor INTEGER NOT NULL,
  max_running INTEGER NOT NULL,
  rate REAL NOT NULL,
  version INTEGER NOT NULL,
  updated_at INTEGER NOT NULL,
  updated_by TEXT NOT NULL,
  PRIMARY KEY (ns_id, name)
);
CREATE INDEX ix_run_limit_bucket ON run_limit (bucket);

-- which jobs name a limit
CREATE TABLE run_limit_use (
  ns_id INTEGER NOT NULL,
  name TEXT NOT NULL,
  job_id INTEGER NOT NULL,
  PRIMARY KEY (ns_id, name, job_id)
);
CREATE INDEX ix_run_limit_use_job ON run_limit_use (job_id);

-- its next_id moves with every change of a limit
INSERT INTO ax_sequence (name, next_id) VALUES ('limit', 1);

-- +goose Down
DELETE FROM ax_sequence WHERE name = 'limit';
DROP TABLE run_limit_use;
DROP TABLE run_limit;
