-- +goose Up
-- series is the attempt behind which the present series of attempts began (a retry by hand begins one),
-- losses how many executors ended while they ran this shard in it, code what the handler called its failure
ALTER TABLE execution_log ADD COLUMN series INTEGER NOT NULL DEFAULT 0;
ALTER TABLE execution_log ADD COLUMN losses INTEGER NOT NULL DEFAULT 0;
ALTER TABLE execution_log ADD COLUMN code TEXT NOT NULL DEFAULT '';
ALTER TABLE execution_log ADD COLUMN stop_asked_by TEXT NOT NULL DEFAULT '';
ALTER TABLE execution_log ADD COLUMN stop_acknowledged_at INTEGER NULL;
ALTER TABLE execution_log ADD COLUMN stop_confirmed_at INTEGER NULL;
-- executions that have ended and whose executor has not confirmed that they stopped: they keep their place
CREATE TABLE lingering (
  execution_id INTEGER NOT NULL PRIMARY KEY,
  bucket INTEGER NOT NULL,
  ns_id INTEGER NOT NULL,
  job_id INTEGER NOT NULL,
  batch_id TEXT NOT NULL,
  shard INTEGER NOT NULL,
  worker_id INTEGER NOT NULL,
  worker_start_id TEXT NOT NULL,
  since INTEGER NOT NULL
);
CREATE INDEX ix_lingering_bucket ON lingering (bucket);
-- an operator keeps an address from new work; 0 = nobody does
ALTER TABLE executor ADD COLUMN drained_at INTEGER NOT NULL DEFAULT 0;
ALTER TABLE executor ADD COLUMN drained_by TEXT NOT NULL DEFAULT '';
ALTER TABLE executor ADD COLUMN drain_reason TEXT NOT NULL DEFAULT '';
CREATE INDEX ix_executor_drained ON executor (drained_at);
-- output is read from a byte on
CREATE INDEX ix_execution_output_byte ON execution_output (execution_id, byte_from);
-- how much output the executions of a namespace wrote on a day (of UTC)
CREATE TABLE output_usage (
  ns_id INTEGER NOT NULL,
  day INTEGER NOT NULL,
  bytes INTEGER NOT NULL,
  PRIMARY KEY (ns_id, day)
) WITHOUT ROWID;
