-- +goose Up
-- tokens of programs, for one namespace and a few things there; kept as a hash
CREATE TABLE namespace_token (
  id INTEGER NOT NULL PRIMARY KEY,
  ns_id INTEGER NOT NULL,
  name TEXT NOT NULL,
  token_hash TEXT NOT NULL,
  scopes TEXT NOT NULL,
  created_by TEXT NOT NULL,
  created_at INTEGER NOT NULL,
  expires_at INTEGER NOT NULL
);
CREATE UNIQUE INDEX uk_namespace_token_hash ON namespace_token (token_hash);
CREATE UNIQUE INDEX uk_namespace_token_name ON namespace_token (ns_id, name);
INSERT INTO ax_sequence (name, next_id) VALUES ('token', 1);
