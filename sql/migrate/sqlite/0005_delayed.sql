-- +goose Up
-- one-shot tasks that are due later: they rest here until shortly before their time, then become a
-- batch with an execution. batch_id is theirs from the beginning.
CREATE TABLE delayed_task (
  bucket INTEGER NOT NULL,
  due_at INTEGER NOT NULL,
  id INTEGER NOT NULL,
  batch_id TEXT NOT NULL,
  ns_id INTEGER NOT NULL,
  job_id INTEGER NOT NULL,
  business_key TEXT NOT NULL,
  payload TEXT NULL,
  created_by TEXT NOT NULL,
  created_at INTEGER NOT NULL,
  PRIMARY KEY (bucket, due_at, id)
) WITHOUT ROWID;
CREATE UNIQUE INDEX uk_delayed_task_batch ON delayed_task (batch_id);
CREATE INDEX ix_delayed_task_page ON delayed_task (ns_id, due_at, batch_id);

-- the business key that a task was made with; '' = none
ALTER TABLE execution_batch ADD COLUMN business_key TEXT NOT NULL DEFAULT '';

-- how long a key is kept beyond the end of its batch
ALTER TABLE dedupe_key ADD COLUMN window_ms INTEGER NOT NULL DEFAULT 0;
