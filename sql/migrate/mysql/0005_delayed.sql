-- +goose Up
-- one-shot tasks that are due later: they rest here until shortly before their time, then become a
-- batch with an execution. batch_id is theirs from the beginning.
CREATE TABLE delayed_task (
  bucket INT NOT NULL,
  due_at BIGINT NOT NULL,
  id BIGINT NOT NULL,
  batch_id VARCHAR(64) CHARACTER SET ascii COLLATE ascii_bin NOT NULL,
  ns_id BIGINT NOT NULL,
  job_id BIGINT NOT NULL,
  business_key VARCHAR(255) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin NOT NULL,
  payload MEDIUMTEXT CHARACTER SET utf8mb4 COLLATE utf8mb4_bin NULL,
  created_by VARCHAR(128) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin NOT NULL,
  created_at BIGINT NOT NULL,
  PRIMARY KEY (bucket, due_at, id),
  UNIQUE KEY uk_delayed_task_batch (batch_id),
  KEY ix_delayed_task_page (ns_id, due_at, batch_id)
) ENGINE=InnoDB DEFAULT CHARSET=utf8mb4 COLLATE=utf8mb4_bin;

-- the business key that a task was made with; '' = none
ALTER TABLE execution_batch ADD COLUMN business_key VARCHAR(255) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin NOT NULL DEFAULT '';

-- how long a key is kept beyond the end of its batch
ALTER TABLE dedupe_key ADD COLUMN window_ms BIGINT NOT NULL DEFAULT 0;
