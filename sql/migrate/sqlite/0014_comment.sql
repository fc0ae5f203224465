-- A version of a job says why it was made.
-- Same objects in ../mysql/0014_comment.sql.

-- +goose Up
ALTER TABLE job_version ADD COLUMN comment TEXT NOT NULL DEFAULT '';

-- +goose Down
ALTER TABLE job_version DROP COLUMN comment;
