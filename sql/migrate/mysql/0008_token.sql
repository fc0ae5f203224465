-- +goose Up
-- tokens of programs, for one namespace and a few things there; kept as a hash
CREATE TABLE namespace_token (
  id BIGINT NOT NULL,
  ns_id BIGINT NOT NULL,
  name VARCHAR(128) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin NOT NULL,
  token_hash VARCHAR(64) CHARACTER SET ascii COLLATE ascii_bin NOT NULL,
  scopes VARCHAR(255) CHARACTER SET ascii COLLATE ascii_bin NOT NULL,
  created_by VARCHAR(128) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin NOT NULL,
  created_at BIGINT NOT NULL,
  expires_at BIGINT NOT NULL,
  PRIMARY KEY (id),
  UNIQUE KEY uk_namespace_token_hash (token_hash),
  UNIQUE KEY uk_namespace_token_name (ns_id, name)
) ENGINE=InnoDB DEFAULT CHARSET=utf8mb4 COLLATE=utf8mb4_bin;
INSERT INTO ax_sequence (name, next_id) VALUES ('token', 1);
