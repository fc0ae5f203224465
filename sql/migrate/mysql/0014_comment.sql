-- A version of a job says why it was made.
-- Same objects in ../sqlite/0014_comment.sql.

-- +goose Up
ALTER TABLE job_version ADD COLUMN comment VARCHAR(512) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin NOT NULL DEFAULT '';

-- +goose Down
ALTER TABLE job_version DROP COLUMN comment;
