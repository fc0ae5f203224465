-- Values that jobs use and nobody reads.
-- Same objects in ../sqlite/0015_secret.sql.

-- +goose Up
-- versions of secrets, each sealed with a data key of its own
CREATE TABLE secret (
  ns_id BIGINT NOT NULL,
  name VARCHAR(64) CHARACTER SET ascii COLLATE ascii_bin NOT NULL,
  version BIGINT NOT NULL,
  sealed TEXT CHARACTER SET ascii COLLATE ascii_bin NOT NULL,
  mark VARCHAR(16) CHARACTER SET ascii COLLATE ascii_bin NOT NULL,
  length INT NOT NULL,
  description VARCHAR(1000) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin NOT NULL,
  updated_at BIGINT NOT NULL,
  updated_by VARCHAR(128) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin NOT NULL,
  PRIMARY KEY (ns_id, name, version)
) ENGINE=InnoDB DEFAULT CHARSET=utf8mb4 COLLATE=utf8mb4_bin;

-- which jobs name a secret (active = 1) or have named it
CREATE TABLE secret_use (
  ns_id BIGINT NOT NULL,
  secret VARCHAR(64) CHARACTER SET ascii COLLATE ascii_bin NOT NULL,
  job_id BIGINT NOT NULL,
  active TINYINT NOT NULL,
  PRIMARY KEY (ns_id, secret, job_id),
  KEY ix_secret_use_job (job_id)
) ENGINE=InnoDB DEFAULT CHARSET=utf8mb4 COLLATE=utf8mb4_bin;

-- +goose Down
DROP TABLE secret_use;
DROP TABLE secret;
