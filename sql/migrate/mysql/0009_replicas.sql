-- Replicas share the buckets: who takes none, which bucket stays where, and what moved when.
-- Same objects in ../sqlite/0009_replicas.sql.

-- +goose Up
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
