package store

import (
	"context"
	"database/sql"
	"fmt"
)

// Token lets a program do a few things in one namespace. Only its hash is kept.
type Token struct {
	ID        int64
	NSID      int64
	Name      string
	Hash      string
	Scopes    string // separated by commas
	CreatedBy string
	CreatedAt int64
	ExpiresAt int64
}

// Tokens lists the tokens of a namespace, or all of them for 0, by id.
func (s *Store) Tokens(ctx context.Context, ns int64) ([]Token, error) {
	where, args := "", []any(nil)
	if ns != 0 {
		where, args = " WHERE ns_id = ?", []any{ns}
	}
	found, err := s.read.QueryContext(ctx, "SELECT id, ns_id, name, token_hash, scopes, created_by, created_at, expires_at FROM namespace_token"+where+" ORDER BY id", args...)
	if err != nil {
		return nil, unavailable(err)
	}
	defer func() { _ = found.Close() }()
	var out []Token
	for found.Next() {
		var t Token
		if err := found.Scan(&t.ID, &t.NSID, &t.Name, &t.Hash, &t.Scopes, &t.CreatedBy, &t.CreatedAt, &t.ExpiresAt); err != nil {
			return nil, unavailable(err)
		}
		out = append(out, t)
	}
	return out, unavailable(found.Err())
}

// CreateToken writes a token; ErrExists when its name is taken.
func (s *Store) CreateToken(ctx context.Context, t *Token, entry *AuditEntry) error {
	return s.inTx(ctx, s.main, func(tx *sql.Tx) error {
		id, err := s.sequence(ctx, tx, "token")
		if err != nil {
			return fmt.Errorf("token id: %w", err)
		}
		t.ID = id
		_, err = tx.ExecContext(ctx, "INSERT INTO namespace_token (id, ns_id, name, token_hash, scopes, created_by, created_at, expires_at) VALUES (?, ?, ?, ?, ?, ?, ?, ?)", t.ID, t.NSID, t.Name, t.Hash, t.Scopes, t.CreatedBy, t.CreatedAt, t.ExpiresAt)
		if duplicate(err) {
			return ErrExists
		}
		if err != nil {
			return fmt.Errorf("insert token: %w", err)
		}
		if err := raiseAuthz(ctx, tx); err != nil {
			return err
		}
		entry.ObjectID = fmt.Sprint(t.ID)
		return s.audit(ctx, tx, entry)
	})
}

// DeleteToken revokes a token of a namespace; ErrNotFound when there is none.
func (s *Store) DeleteToken(ctx context.Context, ns, id int64, entry *AuditEntry) error {
	return s.inTx(ctx, s.main, func(tx *sql.Tx) error {
		res, err := tx.ExecContext(ctx, "DELETE FROM namespace_token WHERE id = ? AND ns_id = ?", id, ns)
		if err != nil {
			return fmt.Errorf("delete token: %w", err)
		}
		if n, _ := res.RowsAffected(); n == 0 {
			return ErrNotFound
		}
		if err := raiseAuthz(ctx, tx); err != nil {
			return err
		}
		return s.audit(ctx, tx, entry)
	})
}
