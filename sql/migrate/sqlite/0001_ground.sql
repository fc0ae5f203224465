-- +goose Up
-- single values: canary of the master key, wrapped signing keys, counters
CREATE TABLE ax_value (
  name TEXT NOT NULL,
  value TEXT NOT NULL,
  PRIMARY KEY (name)
) WITHOUT ROWID;

-- ids that people see: namespaces, apps, users, jobs, executors
CREATE TABLE ax_sequence (
  name TEXT NOT NULL,
  next_id INTEGER NOT NULL,
  PRIMARY KEY (name)
) WITHOUT ROWID;

-- liveness of ax-server processes; times by the database clock, ms
CREATE TABLE replica (
  id TEXT NOT NULL,
  advertise_addr TEXT NOT NULL,
  build TEXT NOT NULL,
  started_at INTEGER NOT NULL,
  expires_at INTEGER NOT NULL,
  PRIMARY KEY (id)
);

-- the fence: every scheduling transaction locks its row and checks owner and epoch
CREATE TABLE bucket_lease (
  bucket INTEGER NOT NULL,
  owner TEXT NOT NULL,
  epoch INTEGER NOT NULL,
  cursor_at INTEGER NOT NULL,
  next_seq INTEGER NOT NULL,
  PRIMARY KEY (bucket)
);

-- what other replicas ask the owner to do
CREATE TABLE bucket_inbox (
  bucket INTEGER NOT NULL,
  id INTEGER NOT NULL,
  kind TEXT NOT NULL,
  inbox_key TEXT NOT NULL,
  body TEXT NOT NULL,
  created_at INTEGER NOT NULL,
  PRIMARY KEY (bucket, id)
) WITHOUT ROWID;
CREATE UNIQUE INDEX uk_bucket_inbox_inbox_key ON bucket_inbox (bucket, kind, inbox_key);

CREATE TABLE namespace (
  id INTEGER NOT NULL,
  name TEXT NOT NULL,
  display_name TEXT NOT NULL,
  bucket INTEGER NOT NULL,
  egress TEXT NOT NULL,
  version INTEGER NOT NULL,
  created_at INTEGER NOT NULL,
  PRIMARY KEY (id)
);
CREATE UNIQUE INDEX uk_namespace_name ON namespace (name);

CREATE TABLE app (
  id INTEGER NOT NULL,
  ns_id INTEGER NOT NULL,
  name TEXT NOT NULL,
  protocol TEXT NOT NULL,
  version INTEGER NOT NULL,
  created_at INTEGER NOT NULL,
  PRIMARY KEY (id)
);
CREATE UNIQUE INDEX uk_app_name ON app (ns_id, name);

-- sealed under the master key; two may be valid during rotation; not_after 0 = no end
CREATE TABLE app_key (
  id INTEGER NOT NULL,
  ns_id INTEGER NOT NULL,
  app_id INTEGER NOT NULL,
  sealed_key TEXT NOT NULL,
  created_at INTEGER NOT NULL,
  not_after INTEGER NOT NULL,
  PRIMARY KEY (id)
);
CREATE INDEX ix_app_key_app ON app_key (app_id);

CREATE TABLE user_account (
  id INTEGER NOT NULL,
  name TEXT NOT NULL,
  display_name TEXT NOT NULL,
  password_hash TEXT NOT NULL,
  status TEXT NOT NULL,
  platform_role TEXT NOT NULL,
  auth_version INTEGER NOT NULL,
  created_at INTEGER NOT NULL,
  PRIMARY KEY (id)
);
CREATE UNIQUE INDEX uk_user_account_name ON user_account (name);

CREATE TABLE member (
  ns_id INTEGER NOT NULL,
  user_id INTEGER NOT NULL,
  role TEXT NOT NULL,
  created_at INTEGER NOT NULL,
  PRIMARY KEY (ns_id, user_id)
) WITHOUT ROWID;
CREATE INDEX ix_member_user ON member (user_id);

-- refresh tokens, hashed; a used one has rotated_at and its successor, sealed
CREATE TABLE session (
  id TEXT NOT NULL,
  user_id INTEGER NOT NULL,
  family TEXT NOT NULL,
  token_hash TEXT NOT NULL,
  successor TEXT NOT NULL,
  rotated_at INTEGER NOT NULL,
  created_at INTEGER NOT NULL,
  expires_at INTEGER NOT NULL,
  absolute_expires_at INTEGER NOT NULL,
  PRIMARY KEY (id)
);
CREATE UNIQUE INDEX uk_session_token ON session (token_hash);
CREATE INDEX ix_session_family ON session (family);
CREATE INDEX ix_session_user ON session (user_id);

CREATE TABLE login_throttle (
  bucket_key TEXT NOT NULL,
  failures INTEGER NOT NULL,
  next_allowed_at INTEGER NOT NULL,
  updated_at INTEGER NOT NULL,
  PRIMARY KEY (bucket_key)
) WITHOUT ROWID;

CREATE TABLE authz_version (
  id INTEGER NOT NULL,
  version INTEGER NOT NULL,
  PRIMARY KEY (id)
);

CREATE TABLE job_info (
  id INTEGER NOT NULL,
  ns_id INTEGER NOT NULL,
  bucket INTEGER NOT NULL,
  app_id INTEGER NOT NULL,
  app_name TEXT NOT NULL,
  name TEXT NOT NULL,
  handler TEXT NOT NULL,
  cron TEXT NOT NULL,
  routing_strategy TEXT NOT NULL,
  timeout_ms INTEGER NOT NULL,
  retries INTEGER NOT NULL,
  allow_concurrent INTEGER NOT NULL,
  priority INTEGER NOT NULL,
  last_trigger_time INTEGER NULL,
  next_trigger_time INTEGER NULL,
  status TEXT NOT NULL,
  definition TEXT NOT NULL,
  last_trigger_no INTEGER NOT NULL,
  version INTEGER NOT NULL,
  created_at INTEGER NOT NULL,
  updated_at INTEGER NOT NULL,
  updated_by TEXT NOT NULL,
  PRIMARY KEY (id)
);
CREATE UNIQUE INDEX uk_job_info_name ON job_info (ns_id, name);
CREATE INDEX ix_job_info_app_name ON job_info (app_name);
CREATE INDEX ix_job_info_next_trigger_time ON job_info (next_trigger_time);
CREATE INDEX ix_job_info_bucket ON job_info (bucket, id);

CREATE TABLE job_version (
  job_id INTEGER NOT NULL,
  version INTEGER NOT NULL,
  ns_id INTEGER NOT NULL,
  definition TEXT NOT NULL,
  author TEXT NOT NULL,
  created_at INTEGER NOT NULL,
  PRIMARY KEY (job_id, version)
) WITHOUT ROWID;

-- next_due_hint is never later than the true next time; NULL = nothing planned
CREATE TABLE job_trigger (
  job_id INTEGER NOT NULL,
  no INTEGER NOT NULL,
  ns_id INTEGER NOT NULL,
  bucket INTEGER NOT NULL,
  kind TEXT NOT NULL,
  spec TEXT NOT NULL,
  enabled INTEGER NOT NULL,
  effective_from INTEGER NOT NULL,
  next_due_hint INTEGER NULL,
  PRIMARY KEY (job_id, no)
) WITHOUT ROWID;
CREATE INDEX ix_job_trigger_due ON job_trigger (bucket, next_due_hint);

-- one firing of a job; a row for each planned firing, run or not
CREATE TABLE execution_batch (
  batch_id TEXT NOT NULL,
  day INTEGER NOT NULL,
  ns_id INTEGER NOT NULL,
  bucket INTEGER NOT NULL,
  job_id INTEGER NOT NULL,
  job_version INTEGER NOT NULL,
  trigger_no INTEGER NULL,
  trigger_kind TEXT NOT NULL,
  due_at INTEGER NOT NULL,
  planned_for INTEGER NOT NULL,
  state TEXT NOT NULL,
  version INTEGER NOT NULL,
  priority INTEGER NOT NULL,
  shard_total INTEGER NOT NULL,
  shards_done INTEGER NOT NULL,
  shards_failed INTEGER NOT NULL,
  params TEXT NULL,
  event TEXT NULL,
  reason TEXT NOT NULL,
  reason_detail TEXT NOT NULL,
  missed_count INTEGER NOT NULL,
  missed_last_at INTEGER NOT NULL,
  created_by TEXT NOT NULL,
  created_at INTEGER NOT NULL,
  started_at INTEGER NOT NULL DEFAULT 0,
  finished_at INTEGER NOT NULL DEFAULT 0,
  PRIMARY KEY (due_at, batch_id, day)
) WITHOUT ROWID;
CREATE UNIQUE INDEX uk_execution_batch_firing ON execution_batch (due_at, job_id, trigger_no, day);
CREATE INDEX ix_execution_batch_page ON execution_batch (ns_id, due_at, batch_id);
CREATE INDEX ix_execution_batch_job ON execution_batch (job_id, due_at, batch_id);

-- one attempt of one shard on one executor
CREATE TABLE execution_log (
  id INTEGER NOT NULL PRIMARY KEY,
  day INTEGER NOT NULL,
  ns_id INTEGER NOT NULL,
  bucket INTEGER NOT NULL,
  job_id INTEGER NOT NULL,
  batch_id TEXT NOT NULL,
  shard INTEGER NOT NULL,
  shard_total INTEGER NOT NULL,
  attempt INTEGER NOT NULL,
  moves INTEGER NOT NULL,
  status TEXT NOT NULL,
  epoch INTEGER NOT NULL,
  trigger_time INTEGER NOT NULL,
  not_before INTEGER NOT NULL,
  dispatched_at INTEGER NOT NULL DEFAULT 0,
  actual_time INTEGER NOT NULL DEFAULT 0,
  finished_at INTEGER NOT NULL DEFAULT 0,
  worker_id INTEGER NOT NULL DEFAULT 0,
  worker_address TEXT NOT NULL,
  worker_start_id TEXT NOT NULL,
  duration INTEGER NOT NULL DEFAULT -1,
  waited INTEGER NOT NULL DEFAULT -1,
  peak_memory_mb INTEGER NULL,
  deadline_at INTEGER NULL,
  lease_until INTEGER NOT NULL DEFAULT 0,
  stop_asked_at INTEGER NULL,
  stop_reason TEXT NOT NULL,
  stop_confirmed INTEGER NOT NULL,
  progress INTEGER NULL,
  output_bytes INTEGER NOT NULL,
  error TEXT NOT NULL,
  result TEXT NULL,
  log_snapshot TEXT NOT NULL
);
CREATE UNIQUE INDEX uk_execution_log_attempt ON execution_log (trigger_time, batch_id, shard, attempt, day);
CREATE INDEX ix_execution_log_job_id ON execution_log (job_id, batch_id);
CREATE INDEX ix_execution_log_open ON execution_log (bucket, status, not_before);
CREATE INDEX ix_execution_log_page ON execution_log (ns_id, trigger_time, id);

-- deviations from the happy path: retry, move, refusal, late result, manual step
CREATE TABLE execution_event (
  id INTEGER NOT NULL,
  day INTEGER NOT NULL,
  ns_id INTEGER NOT NULL,
  batch_id TEXT NOT NULL,
  execution_id INTEGER NOT NULL,
  at INTEGER NOT NULL,
  kind TEXT NOT NULL,
  detail TEXT NOT NULL,
  PRIMARY KEY (id, day)
) WITHOUT ROWID;
CREATE INDEX ix_execution_event_batch ON execution_event (batch_id, at);

-- output chunks in order
CREATE TABLE execution_output (
  execution_id INTEGER NOT NULL,
  seq INTEGER NOT NULL,
  ns_id INTEGER NOT NULL,
  byte_from INTEGER NOT NULL,
  byte_len INTEGER NOT NULL,
  text TEXT NOT NULL,
  created_at INTEGER NOT NULL,
  PRIMARY KEY (execution_id, seq)
);

CREATE TABLE dedupe_key (
  ns_id INTEGER NOT NULL,
  job_id INTEGER NOT NULL,
  scope TEXT NOT NULL,
  key_hash TEXT NOT NULL,
  body_hash TEXT NOT NULL,
  batch_id TEXT NOT NULL,
  expires_at INTEGER NOT NULL,
  PRIMARY KEY (ns_id, job_id, scope, key_hash)
) WITHOUT ROWID;
CREATE INDEX ix_dedupe_key_expires ON dedupe_key (expires_at);

-- membership, written on change and not per heartbeat
CREATE TABLE executor (
  id INTEGER NOT NULL,
  ns_id INTEGER NOT NULL,
  app_id INTEGER NOT NULL,
  app_name TEXT NOT NULL,
  address TEXT NOT NULL,
  start_id TEXT NOT NULL,
  state TEXT NOT NULL,
  reason TEXT NOT NULL,
  labels TEXT NOT NULL,
  handlers TEXT NOT NULL,
  cpu INTEGER NOT NULL,
  memory_mb INTEGER NOT NULL,
  slots INTEGER NOT NULL,
  sdk TEXT NOT NULL,
  registered_at INTEGER NOT NULL,
  changed_at INTEGER NOT NULL,
  PRIMARY KEY (id)
);
CREATE UNIQUE INDEX uk_executor_address ON executor (app_id, address);
CREATE INDEX ix_executor_ns ON executor (ns_id, app_name);

CREATE TABLE audit_log (
  id INTEGER NOT NULL,
  at INTEGER NOT NULL,
  ns_id INTEGER NOT NULL,
  actor_type TEXT NOT NULL,
  actor_id TEXT NOT NULL,
  actor_name TEXT NOT NULL,
  ip TEXT NOT NULL,
  request_id TEXT NOT NULL,
  action TEXT NOT NULL,
  object_type TEXT NOT NULL,
  object_id TEXT NOT NULL,
  object_name TEXT NOT NULL,
  outcome TEXT NOT NULL,
  before_json TEXT NULL,
  after_json TEXT NULL,
  diff_json TEXT NULL,
  PRIMARY KEY (id)
);
CREATE INDEX ix_audit_log_ns ON audit_log (ns_id, id);
CREATE INDEX ix_audit_log_object ON audit_log (object_type, object_id, id);

INSERT INTO authz_version (id, version) VALUES (1, 1);
INSERT INTO bucket_lease (bucket, owner, epoch, cursor_at, next_seq) VALUES (0, '', 0, 0, 1), (1, '', 0, 0, 1), (2, '', 0, 0, 1), (3, '', 0, 0, 1), (4, '', 0, 0, 1), (5, '', 0, 0, 1), (6, '', 0, 0, 1), (7, '', 0, 0, 1), (8, '', 0, 0, 1), (9, '', 0, 0, 1), (10, '', 0, 0, 1), (11, '', 0, 0, 1), (12, '', 0, 0, 1), (13, '', 0, 0, 1), (14, '', 0, 0, 1), (15, '', 0, 0, 1);
INSERT INTO bucket_lease (bucket, owner, epoch, cursor_at, next_seq) VALUES (16, '', 0, 0, 1), (17, '', 0, 0, 1), (18, '', 0, 0, 1), (19, '', 0, 0, 1), (20, '', 0, 0, 1), (21, '', 0, 0, 1), (22, '', 0, 0, 1), (23, '', 0, 0, 1), (24, '', 0, 0, 1), (25, '', 0, 0, 1), (26, '', 0, 0, 1), (27, '', 0, 0, 1), (28, '', 0, 0, 1), (29, '', 0, 0, 1), (30, '', 0, 0, 1), (31, '', 0, 0, 1);
INSERT INTO bucket_lease (bucket, owner, epoch, cursor_at, next_seq) VALUES (32, '', 0, 0, 1), (33, '', 0, 0, 1), (34, '', 0, 0, 1), (35, '', 0, 0, 1), (36, '', 0, 0, 1), (37, '', 0, 0, 1), (38, '', 0, 0, 1), (39, '', 0, 0, 1), (40, '', 0, 0, 1), (41, '', 0, 0, 1), (42, '', 0, 0, 1), (43, '', 0, 0, 1), (44, '', 0, 0, 1), (45, '', 0, 0, 1), (46, '', 0, 0, 1), (47, '', 0, 0, 1);
INSERT INTO bucket_lease (bucket, owner, epoch, cursor_at, next_seq) VALUES (48, '', 0, 0, 1), (49, '', 0, 0, 1), (50, '', 0, 0, 1), (51, '', 0, 0, 1), (52, '', 0, 0, 1), (53, '', 0, 0, 1), (54, '', 0, 0, 1), (55, '', 0, 0, 1), (56, '', 0, 0, 1), (57, '', 0, 0, 1), (58, '', 0, 0, 1), (59, '', 0, 0, 1), (60, '', 0, 0, 1), (61, '', 0, 0, 1), (62, '', 0, 0, 1), (63, '', 0, 0, 1);
INSERT INTO ax_sequence (name, next_id) VALUES ('namespace', 1), ('app', 1), ('app_key', 1), ('user', 1), ('job', 10001), ('executor', 1);

-- +goose Down
DROP TABLE audit_log;
DROP TABLE executor;
DROP TABLE dedupe_key;
DROP TABLE execution_output;
DROP TABLE execution_event;
DROP TABLE execution_log;
DROP TABLE execution_batch;
DROP TABLE job_trigger;
DROP TABLE job_version;
DROP TABLE job_info;
DROP TABLE authz_version;
DROP TABLE login_throttle;
DROP TABLE session;
DROP TABLE member;
DROP TABLE user_account;
DROP TABLE app_key;
DROP TABLE app;
DROP TABLE namespace;
DROP TABLE bucket_inbox;
DROP TABLE bucket_lease;
DROP TABLE replica;
DROP TABLE ax_sequence;
DROP TABLE ax_value;
