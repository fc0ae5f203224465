package store

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
)

// ErrLastKey refuses to leave an app without a valid key.
var ErrLastKey = errors.New("the app would have no key: make another first")

// AppKeys lists an app's keys, newest first, those that are over included.
func (s *Store) AppKeys(ctx context.Context, app App) ([]AppKey, error) {
	var out []AppKey
	err := s.gr.WithContext(ctx).Where("ns_id = ? AND app_id = ?", app.NSID, app.ID).Order("id DESC").Find(&out).Error
	return out, unavailable(err)
}

// RotateKey gives an app another key. The newest key that is valid stays so until then; older ones end now, so that there never
// are more than two.
func (s *Store) RotateKey(ctx context.Context, app App, sealed string, now, until int64, entry *AuditEntry) (k AppKey, err error) {
	k = AppKey{NSID: app.NSID, AppID: app.ID, SealedKey: sealed, CreatedAt: now}
	err = s.inTx(ctx, s.main, func(tx *sql.Tx) error {
		newest, err := s.lockKeys(ctx, tx, app, now)
		if err != nil {
			return err
		}
		if k.ID, err = s.sequence(ctx, tx, "app_key"); err != nil {
			return fmt.Errorf("key id: %w", err)
		}
		if _, err := tx.ExecContext(ctx, "UPDATE app_key SET not_after = ? WHERE app_id = ? AND (not_after = 0 OR not_after > ?) AND id <> ?", now, app.ID, now, newest); err != nil {
			return fmt.Errorf("end keys: %w", err)
		}
		if _, err := tx.ExecContext(ctx, "UPDATE app_key SET not_after = ? WHERE id = ? AND (not_after = 0 OR not_after > ?)", until, newest, until); err != nil {
			return fmt.Errorf("end key: %w", err)
		}
		if _, err := tx.ExecContext(ctx, "INSERT INTO app_key (id, ns_id, app_id, sealed_key, created_at, not_after) VALUES (?, ?, ?, ?, ?, 0)", k.ID, k.NSID, k.AppID, k.SealedKey, k.CreatedAt); err != nil {
			return fmt.Errorf("insert key: %w", err)
		}
		entry.ObjectID, entry.ObjectName = fmt.Sprint(app.ID), app.Name
		return s.audit(ctx, tx, entry)
	})
	return k, err
}

// lockKeys makes changes of an app's keys take turns and returns its newest valid key, 0 for none.
func (s *Store) lockKeys(ctx context.Context, tx *sql.Tx, app App, now int64) (newest int64, err error) {
	if _, err := tx.ExecContext(ctx, "UPDATE app SET version = version + 1 WHERE id = ?", app.ID); err != nil {
		return 0, fmt.Errorf("lock app: %w", err)
	}
	err = tx.QueryRowContext(ctx, "SELECT COALESCE(MAX(id), 0) FROM app_key WHERE app_id = ? AND (not_after = 0 OR not_after > ?)", app.ID, now).Scan(&newest)
	if err != nil {
		return 0, fmt.Errorf("read keys: %w", err)
	}
	return newest, nil
}

// RevokeKey ends a key now. ErrNotFound: the app has no such key that is valid. ErrLastKey: it has no other.
func (s *Store) RevokeKey(ctx context.Context, app App, id, now int64, entry *AuditEntry) error {
	return s.inTx(ctx, s.main, func(tx *sql.Tx) error {
		if _, err := s.lockKeys(ctx, tx, app, now); err != nil {
			return err
		}
		res, err := tx.ExecContext(ctx, "UPDATE app_key SET not_after = ? WHERE ns_id = ? AND app_id = ? AND id = ? AND (not_after = 0 OR not_after > ?)", now, app.NSID, app.ID, id, now)
		if err != nil {
			return fmt.Errorf("revoke key: %w", err)
		}
		if n, _ := res.RowsAffected(); n == 0 {
			return ErrNotFound
		}
		var left int
		if err := tx.QueryRowContext(ctx, "SELECT COUNT(*) FROM app_key WHERE app_id = ? AND not_after = 0", app.ID).Scan(&left); err != nil {
			return fmt.Errorf("count keys: %w", err)
		}
		if left == 0 {
			return ErrLastKey
		}
		return s.audit(ctx, tx, entry)
	})
}
