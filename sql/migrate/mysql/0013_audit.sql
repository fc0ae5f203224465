-- The audit trail's chain: entries are authenticated, get their place in a chain and are signed for.
-- Same objects in ../sqlite/0013_audit.sql.

-- +goose Up
ALTER TABLE audit_log ADD COLUMN mac VARCHAR(64) CHARACTER SET ascii COLLATE ascii_bin NOT NULL DEFAULT '';

-- the place of each entry in the chain, without a gap
CREATE TABLE audit_seal (
  seq BIGINT NOT NULL,
  audit_id BIGINT NOT NULL,
  chain VARCHAR(64) CHARACTER SET ascii COLLATE ascii_bin NOT NULL,
  PRIMARY KEY (seq),
  UNIQUE KEY uk_audit_seal_entry (audit_id)
) ENGINE=InnoDB DEFAULT CHARSET=utf8mb4 COLLATE=utf8mb4_bin;

-- what the chain was at a time, signed
CREATE TABLE audit_digest (
  no BIGINT NOT NULL,
  first_seq BIGINT NOT NULL,
  last_seq BIGINT NOT NULL,
  root VARCHAR(64) CHARACTER SET ascii COLLATE ascii_bin NOT NULL,
  prev VARCHAR(64) CHARACTER SET ascii COLLATE ascii_bin NOT NULL,
  at BIGINT NOT NULL,
  signature VARCHAR(128) CHARACTER SET ascii COLLATE ascii_bin NOT NULL,
  PRIMARY KEY (no)
) ENGINE=InnoDB DEFAULT CHARSET=utf8mb4 COLLATE=utf8mb4_bin;

-- +goose Down
DROP TABLE audit_digest;
DROP TABLE audit_seal;
ALTER TABLE audit_log DROP COLUMN mac;
