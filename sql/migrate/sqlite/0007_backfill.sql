-- Backfills: runs for planned instants of the past, asked for by somebody.
-- Same objects in ../mysql/0007_backfill.sql.

-- +goose Up
-- one request; key_hash is NULL without an idempotency key, answer until all its batches are made
CREATE TABLE backfill (
  id INTEGER NOT NULL,
  day INTEGER NOT NULL,
  ns_id INTEGER NOT NULL,
  job_id INTEGER NOT NULL,
  job_version INTEGER NOT NULL,
  trigger_no INTEGER NOT NULL,
  from_at INTEGER NOT NULL,
  to_at INTEGER NOT NULL,
  again INTEGER NOT NULL,
  max_active INTEGER NOT NULL,
  key_hash TEXT NULL,
  body_hash TEXT NOT NULL,
  answer TEXT NULL,
  created_by TEXT NOT NULL,
  created_at INTEGER NOT NULL,
  PRIMARY KEY (id)
);
CREATE UNIQUE INDEX uk_backfill_key ON backfill (ns_id, job_id, key_hash);
CREATE INDEX ix_backfill_day ON backfill (day);

-- which planned instant of which trigger a batch of a backfill is for
CREATE TABLE backfill_batch (
  batch_id TEXT NOT NULL,
  due_at INTEGER NOT NULL,
  day INTEGER NOT NULL,
  ns_id INTEGER NOT NULL,
  job_id INTEGER NOT NULL,
  trigger_no INTEGER NOT NULL,
  planned_for INTEGER NOT NULL,
  backfill_id INTEGER NOT NULL,
  max_active INTEGER NOT NULL,
  PRIMARY KEY (batch_id)
) WITHOUT ROWID;
CREATE INDEX ix_backfill_batch_planned ON backfill_batch (job_id, trigger_no, planned_for);
CREATE INDEX ix_backfill_batch_day ON backfill_batch (day);

-- +goose Down
DROP TABLE backfill_batch;
DROP TABLE backfill;
