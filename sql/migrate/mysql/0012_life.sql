-- +goose Up
-- series is the attempt behind which the present series of attempts began (a retry by hand begins one),
-- losses how many executors ended while they ran this shard in it, code what the handler called its failure
ALTER TABLE execution_log
  ADD COLUMN series INT NOT NULL DEFAULT 0,
  ADD COLUMN losses INT NOT NULL DEFAULT 0,
  ADD COLUMN code VARCHAR(64) CHARACTER SET ascii COLLATE ascii_bin NOT NULL DEFAULT '',
  ADD COLUMN stop_asked_by VARCHAR(128) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin NOT NULL DEFAULT '',
  ADD COLUMN stop_acknowledged_at BIGINT NULL,
  ADD COLUMN stop_confirmed_at BIGINT NULL;
-- executions that have ended and whose executor has not confirmed that they stopped: they keep their place
CREATE TABLE lingering (
  execution_id BIGINT NOT NULL,
  bucket INT NOT NULL,
  ns_id BIGINT NOT NULL,
  job_id BIGINT NOT NULL,
  batch_id VARCHAR(64) CHARACTER SET ascii COLLATE ascii_bin NOT NULL,
  shard INT NOT NULL,
  worker_id BIGINT NOT NULL,
  worker_start_id VARCHAR(64) CHARACTER SET ascii COLLATE ascii_bin NOT NULL,
  since BIGINT NOT NULL,
  PRIMARY KEY (execution_id),
  KEY ix_lingering_bucket (bucket)
) ENGINE=InnoDB DEFAULT CHARSET=utf8mb4 COLLATE=utf8mb4_bin;
-- an operator keeps an address from new work; 0 = nobody does
ALTER TABLE executor
  ADD COLUMN drained_at BIGINT NOT NULL DEFAULT 0,
  ADD COLUMN drained_by VARCHAR(128) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin NOT NULL DEFAULT '',
  ADD COLUMN drain_reason VARCHAR(512) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin NOT NULL DEFAULT '',
  ADD KEY ix_executor_drained (drained_at);
-- output is read from a byte on
ALTER TABLE execution_output ADD KEY ix_execution_output_byte (execution_id, byte_from);
-- how much output the executions of a namespace wrote on a day (of UTC)
CREATE TABLE output_usage (
  ns_id BIGINT NOT NULL,
  day INT NOT NULL,
  bytes BIGINT NOT NULL,
  PRIMARY KEY (ns_id, day)
) ENGINE=InnoDB DEFAULT CHARSET=utf8mb4 COLLATE=utf8mb4_bin;
