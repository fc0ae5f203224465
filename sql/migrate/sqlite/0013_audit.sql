-- The audit trail's chain: entries are authenticated, get their place in a chain and are signed for.
-- Same objects in ../mysql/0013_audit.sql.

-- +goose Up
ALTER TABLE audit_log ADD COLUMN mac TEXT NOT NULL DEFAULT '';

-- the place of each entry in the chain, without a gap
CREATE TABLE audit_seal (
  seq INTEGER NOT NULL,
  audit_id INTEGER NOT NULL,
  chain TEXT NOT NULL,
  PRIMARY KEY (seq)
);
CREATE UNIQUE INDEX uk_audit_seal_entry ON audit_seal (audit_id);

-- what the chain was at a time, signed
CREATE TABLE audit_digest (
  no INTEGER NOT NULL,
  first_seq INTEGER NOT NULL,
  last_seq INTEGER NOT NULL,
  root TEXT NOT NULL,
  prev TEXT NOT NULL,
  at INTEGER NOT NULL,
  signature TEXT NOT NULL,
  PRIMARY KEY (no)
);

-- +goose StatementBegin
CREATE TRIGGER audit_log_no_update BEFORE UPDATE ON audit_log
BEGIN
  SELECT RAISE(ABORT, 'audit_log is append-only');
END;
-- +goose StatementEnd

-- +goose StatementBegin
CREATE TRIGGER audit_log_no_delete BEFORE DELETE ON audit_log
BEGIN
  SELECT RAISE(ABORT, 'audit_log is append-only');
END;
-- +goose StatementEnd

-- +goose StatementBegin
CREATE TRIGGER audit_seal_no_update BEFORE UPDATE ON audit_seal
BEGIN
  SELECT RAISE(ABORT, 'audit_seal is append-only');
END;
-- +goose StatementEnd

-- +goose StatementBegin
CREATE TRIGGER audit_seal_no_delete BEFORE DELETE ON audit_seal
BEGIN
  SELECT RAISE(ABORT, 'audit_seal is append-only');
END;
-- +goose StatementEnd

-- +goose StatementBegin
CREATE TRIGGER audit_digest_no_update BEFORE UPDATE ON audit_digest
BEGIN
  SELECT RAISE(ABORT, 'audit_digest is append-only');
END;
-- +goose StatementEnd

-- +goose StatementBegin
CREATE TRIGGER audit_digest_no_delete BEFORE DELETE ON audit_digest
BEGIN
  SELECT RAISE(ABORT, 'audit_digest is append-only');
END;
-- +goose StatementEnd

-- +goose Down
DROP TRIGGER audit_log_no_update;
DROP TRIGGER audit_log_no_delete;
DROP TRIGGER audit_seal_no_update;
DROP TRIGGER audit_seal_no_delete;
DROP TRIGGER audit_digest_no_update;
DROP TRIGGER audit_digest_no_delete;
DROP TABLE audit_digest;
DROP TABLE audit_seal;
ALTER TABLE audit_log DROP COLUMN mac;
