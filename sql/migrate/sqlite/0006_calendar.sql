-- +goose Up
-- when nothing fires: dates, weekdays, hours that triggers leave out
CREATE TABLE calendar (
  ns_id INTEGER NOT NULL,
  name TEXT NOT NULL,
  definition TEXT NOT NULL,
  version INTEGER NOT NULL,
  updated_at INTEGER NOT NULL,
  updated_by TEXT NOT NULL,
  PRIMARY KEY (ns_id, name)
);

-- which jobs have a trigger that names a calendar
CREATE TABLE calendar_use (
  ns_id INTEGER NOT NULL,
  calendar TEXT NOT NULL,
  job_id INTEGER NOT NULL,
  PRIMARY KEY (ns_id, calendar, job_id)
);
CREATE INDEX ix_calendar_use_job ON calendar_use (job_id);
