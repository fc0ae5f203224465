-- Values that jobs use and nobody reads.
-- Same objects in ../mysql/0015_secret.sql.

-- +goose Up
-- versions of secrets, each sealed with a data key of its own
CREATE TABLE secret (
  ns_id INTEGER NOT NULL,
  name TEXT NOT NULL,
  version INTEGER NOT NULL,
  sealed TEXT NOT NULL,
  mark TEXT NOT NULL,
  length INTEGER NOT NULL,
  description TEXT NOT NULL,
  updated_at INTEGER NOT NULL,
  updated_by TEXT NOT NULL,
  PRIMARY KEY (ns_id, name, version)
);

-- which jobs name a secret (active = 1) or have named it
CREATE TABLE secret_use (
  ns_id INTEGER NOT NULL,
  secret TEXT NOT NULL,
  job_id INTEGER NOT NULL,
  active INTEGER NOT NULL,
  PRIMARY KEY (ns_id, secret, job_id)
);
CREATE INDEX ix_secret_use_job ON secret_use (job_id);

-- +goose Down
DROP TABLE secret_use;
DROP TABLE secret;
