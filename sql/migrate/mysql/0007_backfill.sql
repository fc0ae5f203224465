-- Backfills: runs for planned instants of the past, asked for by somebody.
-- Same objects in ../sqlite/0007_backfill.sql.

-- +goose Up
-- one request; key_hash is NULL without an idempotency key, answer until all its batches are made
CREATE TABLE backfill (
  id BIGINT NOT NULL,
  day INT NOT NULL,
  ns_id BIGINT NOT NULL,
  job_id BIGINT NOT NULL,
  job_version BIGINT NOT NULL,
  trigger_no INT NOT NULL,
  from_at BIGINT NOT NULL,
  to_at BIGINT NOT NULL,
  again TINYINT NOT NULL,
  max_active INT NOT NULL,
  key_hash CHAR(64) CHARACTER SET ascii COLLATE ascii_bin NULL,
  body_hash CHAR(64) CHARACTER SET ascii COLLATE ascii_bin NOT NULL,
  answer MEDIUMTEXT CHARACTER SET ascii COLLATE ascii_bin NULL,
  created_by VARCHAR(128) NOT NULL,
  created_at BIGINT NOT NULL,
  PRIMARY KEY (id),
  UNIQUE KEY uk_backfill_key (ns_id, job_id, key_hash),
  KEY ix_backfill_day (day)
) ENGINE=InnoDB DEFAULT CHARSET=utf8mb4 COLLATE=utf8mb4_bin;

-- which planned instant of which trigger a batch of a backfill is for
CREATE TABLE backfill_batch (
  batch_id VARCHAR(64) CHARACTER SET ascii COLLATE ascii_bin NOT NULL,
  due_at BIGINT NOT NULL,
  day INT NOT NULL,
  ns_id BIGINT NOT NULL,
  job_id BIGINT NOT NULL,
  trigger_no INT NOT NULL,
  planned_for BIGINT NOT NULL,
  backfill_id BIGINT NOT NULL,
  max_active INT NOT NULL,
  PRIMARY KEY (batch_id),
  KEY ix_backfill_batch_planned (job_id, trigger_no, planned_for),
  KEY ix_backfill_batch_day (day)
) ENGINE=InnoDB DEFAULT CHARSET=utf8mb4 COLLATE=utf8mb4_bin;

-- +goose Down
DROP TABLE backfill_batch;
DROP TABLE backfill;
