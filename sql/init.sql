-- Everything that ax-server needs in MySQL 8 or MariaDB 10.6+, for those who make databases by
-- hand: the database, its tables and indexes, and the version table that the server reads.
-- Run it once, as a user who may create databases; it stops at CREATE DATABASE when the
-- database is there already. Where the database was made beforehand, leave that line out.
--
--     mysql < sql/init.sql
--
-- Made from sql/migrate/mysql by make generate. Do not edit.

CREATE DATABASE ax_dispatch CHARACTER SET utf8mb4 COLLATE utf8mb4_bin;
USE ax_dispatch;

-- 0001_ground.sql

-- single values: canary of the master key, wrapped signing keys, counters
CREATE TABLE ax_value (
  name VARCHAR(64) CHARACTER SET ascii COLLATE ascii_bin NOT NULL,
  value MEDIUMTEXT CHARACTER SET utf8mb4 COLLATE utf8mb4_bin NOT NULL,
  PRIMARY KEY (name)
) ENGINE=InnoDB DEFAULT CHARSET=utf8mb4 COLLATE=utf8mb4_bin;

-- ids that people see: namespaces, apps, users, jobs, executors
CREATE TABLE ax_sequence (
  name VARCHAR(32) CHARACTER SET ascii COLLATE ascii_bin NOT NULL,
  next_id BIGINT NOT NULL,
  PRIMARY KEY (name)
) ENGINE=InnoDB DEFAULT CHARSET=utf8mb4 COLLATE=utf8mb4_bin;

-- liveness of ax-server processes; times by the database clock, ms
CREATE TABLE replica (
  id VARCHAR(64) CHARACTER SET ascii COLLATE ascii_bin NOT NULL,
  advertise_addr VARCHAR(255) CHARACTER SET ascii COLLATE ascii_bin NOT NULL,
  build VARCHAR(64) CHARACTER SET ascii COLLATE ascii_bin NOT NULL,
  started_at BIGINT NOT NULL,
  expires_at BIGINT NOT NULL,
  PRIMARY KEY (id)
) ENGINE=InnoDB DEFAULT CHARSET=utf8mb4 COLLATE=utf8mb4_bin;

-- the fence: every scheduling transaction locks its row and checks owner and epoch
CREATE TABLE bucket_lease (
  bucket INT NOT NULL,
  owner VARCHAR(64) CHARACTER SET ascii COLLATE ascii_bin NOT NULL,
  epoch BIGINT NOT NULL,
  cursor_at BIGINT NOT NULL,
  next_seq BIGINT NOT NULL,
  PRIMARY KEY (bucket)
) ENGINE=InnoDB DEFAULT CHARSET=utf8mb4 COLLATE=utf8mb4_bin;

-- what other replicas ask the owner to do
CREATE TABLE bucket_inbox (
  bucket INT NOT NULL,
  id BIGINT NOT NULL,
  kind VARCHAR(32) CHARACTER SET ascii COLLATE ascii_bin NOT NULL,
  inbox_key VARCHAR(128) CHARACTER SET ascii COLLATE ascii_bin NOT NULL,
  body MEDIUMTEXT CHARACTER SET utf8mb4 COLLATE utf8mb4_bin NOT NULL,
  created_at BIGINT NOT NULL,
  PRIMARY KEY (bucket, id),
  UNIQUE KEY uk_bucket_inbox_inbox_key (bucket, kind, inbox_key)
) ENGINE=InnoDB DEFAULT CHARSET=utf8mb4 COLLATE=utf8mb4_bin;

CREATE TABLE namespace (
  id BIGINT NOT NULL,
  name VARCHAR(64) CHARACTER SET ascii COLLATE ascii_bin NOT NULL,
  display_name VARCHAR(128) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin NOT NULL,
  bucket INT NOT NULL,
  egress TEXT CHARACTER SET utf8mb4 COLLATE utf8mb4_bin NOT NULL,
  version BIGINT NOT NULL,
  created_at BIGINT NOT NULL,
  PRIMARY KEY (id),
  UNIQUE KEY uk_namespace_name (name)
) ENGINE=InnoDB DEFAULT CHARSET=utf8mb4 COLLATE=utf8mb4_bin;

CREATE TABLE app (
  id BIGINT NOT NULL,
  ns_id BIGINT NOT NULL,
  name VARCHAR(64) CHARACTER SET ascii COLLATE ascii_bin NOT NULL,
  protocol VARCHAR(16) CHARACTER SET ascii COLLATE ascii_bin NOT NULL,
  version BIGINT NOT NULL,
  created_at BIGINT NOT NULL,
  PRIMARY KEY (id),
  UNIQUE KEY uk_app_name (ns_id, name)
) ENGINE=InnoDB DEFAULT CHARSET=utf8mb4 COLLATE=utf8mb4_bin;

-- sealed under the master key; two may be valid during rotation; not_after 0 = no end
CREATE TABLE app_key (
  id BIGINT NOT NULL,
  ns_id BIGINT NOT NULL,
  app_id BIGINT NOT NULL,
  sealed_key TEXT CHARACTER SET utf8mb4 COLLATE utf8mb4_bin NOT NULL,
  created_at BIGINT NOT NULL,
  not_after BIGINT NOT NULL,
  PRIMARY KEY (id),
  KEY ix_app_key_app (app_id)
) ENGINE=InnoDB DEFAULT CHARSET=utf8mb4 COLLATE=utf8mb4_bin;

CREATE TABLE user_account (
  id BIGINT NOT NULL,
  name VARCHAR(128) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin NOT NULL,
  display_name VARCHAR(128) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin NOT NULL,
  password_hash VARCHAR(255) CHARACTER SET ascii COLLATE ascii_bin NOT NULL,
  status VARCHAR(16) CHARACTER SET ascii COLLATE ascii_bin NOT NULL,
  platform_role VARCHAR(16) CHARACTER SET ascii COLLATE ascii_bin NOT NULL,
  auth_version BIGINT NOT NULL,
  created_at BIGINT NOT NULL,
  PRIMARY KEY (id),
  UNIQUE KEY uk_user_account_name (name)
) ENGINE=InnoDB DEFAULT CHARSET=utf8mb4 COLLATE=utf8mb4_bin;

CREATE TABLE member (
  ns_id BIGINT NOT NULL,
  user_id BIGINT NOT NULL,
  role VARCHAR(16) CHARACTER SET ascii COLLATE ascii_bin NOT NULL,
  created_at BIGINT NOT NULL,
  PRIMARY KEY (ns_id, user_id),
  KEY ix_member_user (user_id)
) ENGINE=InnoDB DEFAULT CHARSET=utf8mb4 COLLATE=utf8mb4_bin;

-- refresh tokens, hashed; a used one has rotated_at and its successor, sealed
CREATE TABLE session (
  id VARCHAR(64) CHARACTER SET ascii COLLATE ascii_bin NOT NULL,
  user_id BIGINT NOT NULL,
  family VARCHAR(64) CHARACTER SET ascii COLLATE ascii_bin NOT NULL,
  token_hash VARCHAR(64) CHARACTER SET ascii COLLATE ascii_bin NOT NULL,
  successor VARCHAR(64) CHARACTER SET ascii COLLATE ascii_bin NOT NULL,
  rotated_at BIGINT NOT NULL,
  created_at BIGINT NOT NULL,
  expires_at BIGINT NOT NULL,
  absolute_expires_at BIGINT NOT NULL,
  PRIMARY KEY (id),
  UNIQUE KEY uk_session_token (token_hash),
  KEY ix_session_family (family),
  KEY ix_session_user (user_id)
) ENGINE=InnoDB DEFAULT CHARSET=utf8mb4 COLLATE=utf8mb4_bin;

CREATE TABLE login_throttle (
  bucket_key VARCHAR(160) CHARACTER SET ascii COLLATE ascii_bin NOT NULL,
  failures BIGINT NOT NULL,
  next_allowed_at BIGINT NOT NULL,
  updated_at BIGINT NOT NULL,
  PRIMARY KEY (bucket_key)
) ENGINE=InnoDB DEFAULT CHARSET=utf8mb4 COLLATE=utf8mb4_bin;

CREATE TABLE authz_version (
  id INT NOT NULL,
  version BIGINT NOT NULL,
  PRIMARY KEY (id)
) ENGINE=InnoDB DEFAULT CHARSET=utf8mb4 COLLATE=utf8mb4_bin;

CREATE TABLE job_info (
  id BIGINT NOT NULL,
  ns_id BIGINT NOT NULL,
  bucket INT NOT NULL,
  app_id BIGINT NOT NULL,
  app_name VARCHAR(64) CHARACTER SET ascii COLLATE ascii_bin NOT NULL,
  name VARCHAR(128) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin NOT NULL,
  handler VARCHAR(128) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin NOT NULL,
  cron VARCHAR(255) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin NOT NULL,
  routing_strategy VARCHAR(32) CHARACTER SET ascii COLLATE ascii_bin NOT NULL,
  timeout_ms BIGINT NOT NULL,
  retries INT NOT NULL,
  allow_concurrent INT NOT NULL,
  priority INT NOT NULL,
  last_trigger_time BIGINT NULL,
  next_trigger_time BIGINT NULL,
  status VARCHAR(16) CHARACTER SET ascii COLLATE ascii_bin NOT NULL,
  definition MEDIUMTEXT CHARACTER SET utf8mb4 COLLATE utf8mb4_bin NOT NULL,
  last_trigger_no INT NOT NULL,
  version BIGINT NOT NULL,
  created_at BIGINT NOT NULL,
  updated_at BIGINT NOT NULL,
  updated_by VARCHAR(128) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin NOT NULL,
  PRIMARY KEY (id),
  UNIQUE KEY uk_job_info_name (ns_id, name),
  KEY ix_job_info_app_name (app_name),
  KEY ix_job_info_next_trigger_time (next_trigger_time),
  KEY ix_job_info_bucket (bucket, id)
) ENGINE=InnoDB DEFAULT CHARSET=utf8mb4 COLLATE=utf8mb4_bin;

CREATE TABLE job_version (
  job_id BIGINT NOT NULL,
  version BIGINT NOT NULL,
  ns_id BIGINT NOT NULL,
  definition MEDIUMTEXT CHARACTER SET utf8mb4 COLLATE utf8mb4_bin NOT NULL,
  author VARCHAR(128) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin NOT NULL,
  created_at BIGINT NOT NULL,
  PRIMARY KEY (job_id, version)
) ENGINE=InnoDB DEFAULT CHARSET=utf8mb4 COLLATE=utf8mb4_bin;

-- next_due_hint is never later than the true next time; NULL = nothing planned
CREATE TABLE job_trigger (
  job_id BIGINT NOT NULL,
  no INT NOT NULL,
  ns_id BIGINT NOT NULL,
  bucket INT NOT NULL,
  kind VARCHAR(16) CHARACTER SET ascii COLLATE ascii_bin NOT NULL,
  spec TEXT CHARACTER SET utf8mb4 COLLATE utf8mb4_bin NOT NULL,
  enabled INT NOT NULL,
  effective_from BIGINT NOT NULL,
  next_due_hint BIGINT NULL,
  PRIMARY KEY (job_id, no),
  KEY ix_job_trigger_due (bucket, next_due_hint)
) ENGINE=InnoDB DEFAULT CHARSET=utf8mb4 COLLATE=utf8mb4_bin;

-- one firing of a job; a row for each planned firing, run or not
CREATE TABLE execution_batch (
  batch_id VARCHAR(64) CHARACTER SET ascii COLLATE ascii_bin NOT NULL,
  day INT NOT NULL,
  ns_id BIGINT NOT NULL,
  bucket INT NOT NULL,
  job_id BIGINT NOT NULL,
  job_version BIGINT NOT NULL,
  trigger_no INT NULL,
  trigger_kind VARCHAR(16) CHARACTER SET ascii COLLATE ascii_bin NOT NULL,
  due_at BIGINT NOT NULL,
  planned_for BIGINT NOT NULL,
  state CHAR(16) CHARACTER SET ascii COLLATE ascii_bin NOT NULL,
  version BIGINT NOT NULL,
  priority INT NOT NULL,
  shard_total INT NOT NULL,
  shards_done INT NOT NULL,
  shards_failed INT NOT NULL,
  params MEDIUMTEXT CHARACTER SET utf8mb4 COLLATE utf8mb4_bin NULL,
  event MEDIUMTEXT CHARACTER SET utf8mb4 COLLATE utf8mb4_bin NULL,
  reason VARCHAR(64) CHARACTER SET ascii COLLATE ascii_bin NOT NULL,
  reason_detail VARCHAR(512) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin NOT NULL,
  missed_count BIGINT NOT NULL,
  missed_last_at BIGINT NOT NULL,
  created_by VARCHAR(128) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin NOT NULL,
  created_at BIGINT NOT NULL,
  started_at BIGINT NOT NULL DEFAULT 0,
  finished_at BIGINT NOT NULL DEFAULT 0,
  PRIMARY KEY (due_at, batch_id, day),
  UNIQUE KEY uk_execution_batch_firing (due_at, job_id, trigger_no, day),
  KEY ix_execution_batch_page (ns_id, due_at, batch_id),
  KEY ix_execution_batch_job (job_id, due_at, batch_id)
) ENGINE=InnoDB DEFAULT CHARSET=utf8mb4 COLLATE=utf8mb4_bin
PARTITION BY RANGE (day) (PARTITION pmax VALUES LESS THAN MAXVALUE);

-- one attempt of one shard on one executor
CREATE TABLE execution_log (
  id BIGINT NOT NULL,
  day INT NOT NULL,
  ns_id BIGINT NOT NULL,
  bucket INT NOT NULL,
  job_id BIGINT NOT NULL,
  batch_id VARCHAR(64) CHARACTER SET ascii COLLATE ascii_bin NOT NULL,
  shard INT NOT NULL,
  shard_total INT NOT NULL,
  attempt INT NOT NULL,
  moves INT NOT NULL,
  status CHAR(16) CHARACTER SET ascii COLLATE ascii_bin NOT NULL,
  epoch BIGINT NOT NULL,
  trigger_time BIGINT NOT NULL,
  not_before BIGINT NOT NULL,
  dispatched_at BIGINT NOT NULL DEFAULT 0,
  actual_time BIGINT NOT NULL DEFAULT 0,
  finished_at BIGINT NOT NULL DEFAULT 0,
  worker_id BIGINT NOT NULL DEFAULT 0,
  worker_address VARCHAR(255) CHARACTER SET ascii COLLATE ascii_bin NOT NULL,
  worker_start_id VARCHAR(64) CHARACTER SET ascii COLLATE ascii_bin NOT NULL,
  duration BIGINT NOT NULL DEFAULT -1,
  waited BIGINT NOT NULL DEFAULT -1,
  peak_memory_mb BIGINT NULL,
  deadline_at BIGINT NULL,
  lease_until BIGINT NOT NULL DEFAULT 0,
  stop_asked_at BIGINT NULL,
  stop_reason VARCHAR(32) CHARACTER SET ascii COLLATE ascii_bin NOT NULL,
  stop_confirmed INT NOT NULL,
  progress INT NULL,
  output_bytes BIGINT NOT NULL,
  error VARCHAR(4096) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin NOT NULL,
  result MEDIUMTEXT CHARACTER SET utf8mb4 COLLATE utf8mb4_bin NULL,
  log_snapshot TEXT CHARACTER SET utf8mb4 COLLATE utf8mb4_bin NOT NULL,
  PRIMARY KEY (id, day),
  UNIQUE KEY uk_execution_log_attempt (trigger_time, batch_id, shard, attempt, day),
  KEY ix_execution_log_job_id (job_id, batch_id),
  KEY ix_execution_log_open (bucket, status, not_before),
  KEY ix_execution_log_page (ns_id, trigger_time, id)
) ENGINE=InnoDB DEFAULT CHARSET=utf8mb4 COLLATE=utf8mb4_bin
PARTITION BY RANGE (day) (PARTITION pmax VALUES LESS THAN MAXVALUE);

-- deviations from the happy path: retry, move, refusal, late result, manual step
CREATE TABLE execution_event (
  id BIGINT NOT NULL,
  day INT NOT NULL,
  ns_id BIGINT NOT NULL,
  batch_id VARCHAR(64) CHARACTER SET ascii COLLATE ascii_bin NOT NULL,
  execution_id BIGINT NOT NULL,
  at BIGINT NOT NULL,
  kind VARCHAR(32) CHARACTER SET ascii COLLATE ascii_bin NOT NULL,
  detail TEXT CHARACTER SET utf8mb4 COLLATE utf8mb4_bin NOT NULL,
  PRIMARY KEY (id, day),
  KEY ix_execution_event_batch (batch_id, at)
) ENGINE=InnoDB DEFAULT CHARSET=utf8mb4 COLLATE=utf8mb4_bin
PARTITION BY RANGE (day) (PARTITION pmax VALUES LESS THAN MAXVALUE);

-- output chunks in order
CREATE TABLE execution_output (
  execution_id BIGINT NOT NULL,
  seq BIGINT NOT NULL,
  ns_id BIGINT NOT NULL,
  byte_from BIGINT NOT NULL,
  byte_len BIGINT NOT NULL,
  text MEDIUMTEXT CHARACTER SET utf8mb4 COLLATE utf8mb4_bin NOT NULL,
  created_at BIGINT NOT NULL,
  PRIMARY KEY (execution_id, seq)
) ENGINE=InnoDB DEFAULT CHARSET=utf8mb4 COLLATE=utf8mb4_bin;

CREATE TABLE dedupe_key (
  ns_id BIGINT NOT NULL,
  job_id BIGINT NOT NULL,
  scope VARCHAR(16) CHARACTER SET ascii COLLATE ascii_bin NOT NULL,
  key_hash VARCHAR(64) CHARACTER SET ascii COLLATE ascii_bin NOT NULL,
  body_hash VARCHAR(64) CHARACTER SET ascii COLLATE ascii_bin NOT NULL,
  batch_id VARCHAR(64) CHARACTER SET ascii COLLATE ascii_bin NOT NULL,
  expires_at BIGINT NOT NULL,
  PRIMARY KEY (ns_id, job_id, scope, key_hash),
  KEY ix_dedupe_key_expires (expires_at)
) ENGINE=InnoDB DEFAULT CHARSET=utf8mb4 COLLATE=utf8mb4_bin;

-- membership, written on change and not per heartbeat
CREATE TABLE executor (
  id BIGINT NOT NULL,
  ns_id BIGINT NOT NULL,
  app_id BIGINT NOT NULL,
  app_name VARCHAR(64) CHARACTER SET ascii COLLATE ascii_bin NOT NULL,
  address VARCHAR(255) CHARACTER SET ascii COLLATE ascii_bin NOT NULL,
  start_id VARCHAR(64) CHARACTER SET ascii COLLATE ascii_bin NOT NULL,
  state VARCHAR(16) CHARACTER SET ascii COLLATE ascii_bin NOT NULL,
  reason VARCHAR(64) CHARACTER SET ascii COLLATE ascii_bin NOT NULL,
  labels TEXT CHARACTER SET utf8mb4 COLLATE utf8mb4_bin NOT NULL,
  handlers MEDIUMTEXT CHARACTER SET utf8mb4 COLLATE utf8mb4_bin NOT NULL,
  cpu INT NOT NULL,
  memory_mb BIGINT NOT NULL,
  slots INT NOT NULL,
  sdk VARCHAR(64) CHARACTER SET ascii COLLATE ascii_bin NOT NULL,
  registered_at BIGINT NOT NULL,
  changed_at BIGINT NOT NULL,
  PRIMARY KEY (id),
  UNIQUE KEY uk_executor_address (app_id, address),
  KEY ix_executor_ns (ns_id, app_name)
) ENGINE=InnoDB DEFAULT CHARSET=utf8mb4 COLLATE=utf8mb4_bin;

CREATE TABLE audit_log (
  id BIGINT NOT NULL,
  at BIGINT NOT NULL,
  ns_id BIGINT NOT NULL,
  actor_type VARCHAR(16) CHARACTER SET ascii COLLATE ascii_bin NOT NULL,
  actor_id VARCHAR(32) CHARACTER SET ascii COLLATE ascii_bin NOT NULL,
  actor_name VARCHAR(128) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin NOT NULL,
  ip VARCHAR(64) CHARACTER SET ascii COLLATE ascii_bin NOT NULL,
  request_id VARCHAR(64) CHARACTER SET ascii COLLATE ascii_bin NOT NULL,
  action VARCHAR(64) CHARACTER SET ascii COLLATE ascii_bin NOT NULL,
  object_type VARCHAR(32) CHARACTER SET ascii COLLATE ascii_bin NOT NULL,
  object_id VARCHAR(64) CHARACTER SET ascii COLLATE ascii_bin NOT NULL,
  object_name VARCHAR(128) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin NOT NULL,
  outcome VARCHAR(16) CHARACTER SET ascii COLLATE ascii_bin NOT NULL,
  before_json MEDIUMTEXT CHARACTER SET utf8mb4 COLLATE utf8mb4_bin NULL,
  after_json MEDIUMTEXT CHARACTER SET utf8mb4 COLLATE utf8mb4_bin NULL,
  diff_json MEDIUMTEXT CHARACTER SET utf8mb4 COLLATE utf8mb4_bin NULL,
  PRIMARY KEY (id),
  KEY ix_audit_log_ns (ns_id, id),
  KEY ix_audit_log_object (object_type, object_id, id)
) ENGINE=InnoDB DEFAULT CHARSET=utf8mb4 COLLATE=utf8mb4_bin;

INSERT INTO authz_version (id, version) VALUES (1, 1);
INSERT INTO bucket_lease (bucket, owner, epoch, cursor_at, next_seq) VALUES (0, '', 0, 0, 1), (1, '', 0, 0, 1), (2, '', 0, 0, 1), (3, '', 0, 0, 1), (4, '', 0, 0, 1), (5, '', 0, 0, 1), (6, '', 0, 0, 1), (7, '', 0, 0, 1), (8, '', 0, 0, 1), (9, '', 0, 0, 1), (10, '', 0, 0, 1), (11, '', 0, 0, 1), (12, '', 0, 0, 1), (13, '', 0, 0, 1), (14, '', 0, 0, 1), (15, '', 0, 0, 1);
INSERT INTO bucket_lease (bucket, owner, epoch, cursor_at, next_seq) VALUES (16, '', 0, 0, 1), (17, '', 0, 0, 1), (18, '', 0, 0, 1), (19, '', 0, 0, 1), (20, '', 0, 0, 1), (21, '', 0, 0, 1), (22, '', 0, 0, 1), (23, '', 0, 0, 1), (24, '', 0, 0, 1), (25, '', 0, 0, 1), (26, '', 0, 0, 1), (27, '', 0, 0, 1), (28, '', 0, 0, 1), (29, '', 0, 0, 1), (30, '', 0, 0, 1), (31, '', 0, 0, 1);
INSERT INTO bucket_lease (bucket, owner, epoch, cursor_at, next_seq) VALUES (32, '', 0, 0, 1), (33, '', 0, 0, 1), (34, '', 0, 0, 1), (35, '', 0, 0, 1), (36, '', 0, 0, 1), (37, '', 0, 0, 1), (38, '', 0, 0, 1), (39, '', 0, 0, 1), (40, '', 0, 0, 1), (41, '', 0, 0, 1), (42, '', 0, 0, 1), (43, '', 0, 0, 1), (44, '', 0, 0, 1), (45, '', 0, 0, 1), (46, '', 0, 0, 1), (47, '', 0, 0, 1);
INSERT INTO bucket_lease (bucket, owner, epoch, cursor_at, next_seq) VALUES (48, '', 0, 0, 1), (49, '', 0, 0, 1), (50, '', 0, 0, 1), (51, '', 0, 0, 1), (52, '', 0, 0, 1), (53, '', 0, 0, 1), (54, '', 0, 0, 1), (55, '', 0, 0, 1), (56, '', 0, 0, 1), (57, '', 0, 0, 1), (58, '', 0, 0, 1), (59, '', 0, 0, 1), (60, '', 0, 0, 1), (61, '', 0, 0, 1), (62, '', 0, 0, 1), (63, '', 0, 0, 1);
INSERT INTO ax_sequence (name, next_id) VALUES ('namespace', 1), ('app', 1), ('app_key', 1), ('user', 1), ('job', 10001), ('executor', 1);

-- 0004_ledger.sql

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

-- 0005_delayed.sql

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

-- 0006_calendar.sql

-- when nothing fires: dates, weekdays, hours that triggers leave out
CREATE TABLE calendar (
  ns_id BIGINT NOT NULL,
  name VARCHAR(64) CHARACTER SET ascii COLLATE ascii_bin NOT NULL,
  definition MEDIUMTEXT CHARACTER SET utf8mb4 COLLATE utf8mb4_bin NOT NULL,
  version BIGINT NOT NULL,
  updated_at BIGINT NOT NULL,
  updated_by VARCHAR(128) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin NOT NULL,
  PRIMARY KEY (ns_id, name)
) ENGINE=InnoDB DEFAULT CHARSET=utf8mb4 COLLATE=utf8mb4_bin;

-- which jobs have a trigger that names a calendar
CREATE TABLE calendar_use (
  ns_id BIGINT NOT NULL,
  calendar VARCHAR(64) CHARACTER SET ascii COLLATE ascii_bin NOT NULL,
  job_id BIGINT NOT NULL,
  PRIMARY KEY (ns_id, calendar, job_id),
  KEY ix_calendar_use_job (job_id)
) ENGINE=InnoDB DEFAULT CHARSET=utf8mb4 COLLATE=utf8mb4_bin;

-- a trigger carries its calendars, which may be more than 64 KiB
ALTER TABLE job_trigger MODIFY spec MEDIUMTEXT CHARACTER SET utf8mb4 COLLATE utf8mb4_bin NOT NULL;
ALTER TABLE trigger_period MODIFY spec MEDIUMTEXT CHARACTER SET utf8mb4 COLLATE utf8mb4_bin NOT NULL;

-- 0007_backfill.sql

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

-- 0008_token.sql

-- tokens of programs, for one namespace and a few things there; kept as a hash
CREATE TABLE namespace_token (
  id BIGINT NOT NULL,
  ns_id BIGINT NOT NULL,
  name VARCHAR(128) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin NOT NULL,
  token_hash VARCHAR(64) CHARACTER SET ascii COLLATE ascii_bin NOT NULL,
  scopes VARCHAR(255) CHARACTER SET ascii COLLATE ascii_bin NOT NULL,
  created_by VARCHAR(128) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin NOT NULL,
  created_at BIGINT NOT NULL,
  expires_at BIGINT NOT NULL,
  PRIMARY KEY (id),
  UNIQUE KEY uk_namespace_token_hash (token_hash),
  UNIQUE KEY uk_namespace_token_name (ns_id, name)
) ENGINE=InnoDB DEFAULT CHARSET=utf8mb4 COLLATE=utf8mb4_bin;
INSERT INTO ax_sequence (name, next_id) VALUES ('token', 1);

-- 0009_replicas.sql

-- draining: 0 = takes buckets, 1 = somebody asked that it takes none, 2 = it leaves
ALTER TABLE replica ADD COLUMN draining INT NOT NULL DEFAULT 0;
-- pinned_to: the replica that a person wants the bucket at, empty = wherever it is even
ALTER TABLE bucket_lease
  ADD COLUMN pinned_to VARCHAR(64) CHARACTER SET ascii COLLATE ascii_bin NOT NULL DEFAULT '',
  ADD COLUMN taken_at BIGINT NOT NULL DEFAULT 0;
CREATE TABLE bucket_move (
  id BIGINT NOT NULL,
  bucket INT NOT NULL,
  epoch BIGINT NOT NULL,
  from_replica VARCHAR(64) CHARACTER SET ascii COLLATE ascii_bin NOT NULL,
  to_replica VARCHAR(64) CHARACTER SET ascii COLLATE ascii_bin NOT NULL,
  reason VARCHAR(16) CHARACTER SET ascii COLLATE ascii_bin NOT NULL,
  moved_at BIGINT NOT NULL,
  PRIMARY KEY (id)
) ENGINE=InnoDB DEFAULT CHARSET=utf8mb4 COLLATE=utf8mb4_bin;

-- 0011_limit.sql

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

-- 0012_life.sql

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

-- 0013_audit.sql

ALTER TABLE audit_log ADD COLUMN mac VARCHAR(64) CHARACTER SET ascii COLLATE ascii_bin NOT NULL DEFAULT '';

-- the place of each entry in the chain, without a gap
CREATE TABLE audit_seal (
  seq BIGINT NOT NULL,
  audit_id BIGINT NOT NULL,
  chain VARCHAR(64) CHARACTER SET ascii COLLATE ascii_bin NOT NULL,
  PRIMARY KEY (seq),
  UNIQUE KEY uk_audit_seal_entry (audit_id)
) ENGINE=InnoDB DEFAULT CHARSET=utf8mb4 COLLATE=utf8mb4_bin;

-- what the chain was at a time, signed
CREATE TABLE audit_digest (
  no BIGINT NOT NULL,
  first_seq BIGINT NOT NULL,
  last_seq BIGINT NOT NULL,
  root VARCHAR(64) CHARACTER SET ascii COLLATE ascii_bin NOT NULL,
  prev VARCHAR(64) CHARACTER SET ascii COLLATE ascii_bin NOT NULL,
  at BIGINT NOT NULL,
  signature VARCHAR(128) CHARACTER SET ascii COLLATE ascii_bin NOT NULL,
  PRIMARY KEY (no)
) ENGINE=InnoDB DEFAULT CHARSET=utf8mb4 COLLATE=utf8mb4_bin;

-- 0014_comment.sql

ALTER TABLE job_version ADD COLUMN comment VARCHAR(512) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin NOT NULL DEFAULT '';

-- 0015_secret.sql

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

-- what goose, the migrator, knows: every file above was applied
CREATE TABLE goose_db_version (
  id bigint(20) unsigned NOT NULL AUTO_INCREMENT,
  version_id bigint NOT NULL,
  is_applied boolean NOT NULL,
  tstamp datetime NULL default CURRENT_TIMESTAMP,
  PRIMARY KEY(id)
);
INSERT INTO goose_db_version (version_id, is_applied) VALUES (0, 1), (1, 1), (4, 1), (5, 1), (6, 1), (7, 1), (8, 1), (9, 1), (11, 1), (12, 1), (13, 1), (14, 1), (15, 1);
