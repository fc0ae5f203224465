-- Replicas share the buckets: who takes none, which bucket stays where, and what moved when.
-- Same objects in ../mysql/0009_replicas.sql.

-- +goose Up
-- draining: 0 = takes buckets, 1 = somebody asked that it takes none, 2 = it leaves
ALTER TABLE replica ADD COLUMN draining INTEGER NOT NULL DEFAULT 0;
-- pinned_to: the replica that a person wants the bucket at, empty = wherever it is even
ALTER TABLE bucket_lease ADD COLUMN pinned_to TEXT NOT NULL DEFAULT '';
ALTER TABLE bucket_lease ADD COLUMN taken_at INTEGER NOT NULL DEFAULT 0;
CREATE TABLE bucket_move (
  id INTEGER NOT NULL PRIMARY KEY,
  bucket INTEGER NOT NULL,
  epoch INTEGER NOT NULL,
  from_replica TEXT NOT NULL,
  to_replica TEXT NOT NULL,
  reason TEXT NOT NULL,
  moved_at INTEGER NOT NULL
);
