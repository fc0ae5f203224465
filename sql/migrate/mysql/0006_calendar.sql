-- +goose Up
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
