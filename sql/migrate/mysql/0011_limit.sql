-- Limits on how much runs at once, or starts in a second.
-- Same objects in ../sqlite/0011_limit.sql.

-- +goose Up
-- ns_id 0 = of the platform; app_id 0 = for the jobs that name it
CREATE TABLE run_limit (
  ns_id BIGINT NOT NULL,
  name VARCHAR(64) CHARACTER SET ascii COLLATE ascii_bin NOT NULL,
  bucket INT NOT NULL,
  app_id BIGINT NOT NULL,
  handler VARCHAR(128) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin NOT NULL,
  per_executor TINYINT NOT NULL,
  max_running INT NOT NULL,
  rate DOUBLE NOT NULL,
  version BIGINT NOT NULL,
  updated_at BIGINT NOT NULL,
  updated_by VARCHAR(128) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin NOT NULL,
  PRIMARY KEY (ns_id, name),
  KEY ix_run_limit_bucket (bucket)
) ENGINE=InnoDB DEFAULT CHARSET=utf8mb4 COLLATE=utf8mb4_bin;

-- which jobs name a limit
CREATE TABLE run_limit_use (
  ns_id BIGINT NOT NULL,
  name VARCHAR(64) CHARACTER SET ascii COLLATE ascii_bin NOT NULL,
  job_id BIGINT NOT NULL,
  PRIMARY KEY (ns_id, name, job_id),
  KEY ix_run_limit_use_job (job_id)
) ENGINE=InnoDB DEFAULT CHARSET=utf8mb4 COLLATE=utf8mb4_bin;

-- its next_id moves with every change of a limit
INSERT INTO ax_sequence (name, next_id) VALUES ('limit', 1);

-- +goose Down
DELETE FROM ax_sequence WHERE name = 'limit';
DROP TABLE run_limit_use;
DROP TABLE run_limit;
