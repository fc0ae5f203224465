package store

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
)

// User statuses.
const (
	UserActive    = "active"
	UserSuspended = "suspended"
)

// User is a person who can log in.
type User struct {
	ID           int64 `gorm:"primaryKey;autoIncrement:false"`
	Name         string
	DisplayName  string
	PasswordHash string
	Status       string
	PlatformRole string // "admin", "auditor" or ""
	AuthVersion  int64
	CreatedAt    int64 `gorm:"autoCreateTime:false"`
}

// TableName is gorm's.
func (User) TableName() string { return "user_account" }

// Member is a user's role in a namespace.
type Member struct {
	NSID      int64 `gorm:"column:ns_id;primaryKey;autoIncrement:false"`
	UserID    int64 `gorm:"primaryKey;autoIncrement:false"`
	Role      string
	CreatedAt int64 `gorm:"autoCreateTime:false"`
}

// TableName is gorm's.
func (Member) TableName() string { return "member" }

// Users lists everybody.
func (s *Store) Users(ctx context.Context) ([]User, error) {
	var out []User
	err := s.gr.WithContext(ctx).Order("id").Find(&out).Error
	return out, unavailable(err)
}

// Members lists every membership.
func (s *Store) Members(ctx context.Context) ([]Member, error) {
	var out []Member
	err := s.gr.WithContext(ctx).Order("ns_id, user_id").Find(&out).Error
	return out, unavailable(err)
}

// UserByName finds a person.
func (s *Store) UserByName(ctx context.Context, name string) (User, error) {
	var u User
	err := s.gr.WithContext(ctx).Where("name = ?", name).Take(&u).Error
	return u, mapNotFound(err)
}

// CreateUser makes a person with, where ns is not 0, a role in that namespace.
func (s *Store) CreateUser(ctx context.Context, u *User, ns int64, role string, entry *AuditEntry) error {
	return s.inTx(ctx, s.main, func(tx *sql.Tx) error {
		id, err := s.sequence(ctx, tx, "user")
		if err != nil {
			return fmt.Errorf("user id: %w", err)
		}
		u.ID, u.AuthVersion = id, 1
		_, err = tx.ExecContext(ctx, "INSERT INTO user_account (id, name, display_name, password_hash, status, platform_role, auth_version, created_at) VALUES (?, ?, ?, ?, ?, ?, ?, ?)", u.ID, u.Name, u.DisplayName, u.PasswordHash, u.Status, u.PlatformRole, u.AuthVersion, u.CreatedAt)
		if duplicate(err) {
			return ErrExists
		}
		if err != nil {
			return fmt.Errorf("insert user: %w", err)
		}
		if ns != 0 {
			if _, err := tx.ExecContext(ctx, "INSERT INTO member (ns_id, user_id, role, created_at) VALUES (?, ?, ?, ?)", ns, u.ID, role, u.CreatedAt); err != nil {
				return fmt.Errorf("insert member: %w", err)
			}
		}
		if _, err := tx.ExecContext(ctx, "UPDATE authz_version SET version = version + 1 WHERE id = 1"); err != nil {
			return fmt.Errorf("raise authorisation version: %w", err)
		}
		entry.ObjectID, entry.ObjectName = fmt.Sprint(u.ID), u.Name
		return s.audit(ctx, tx, entry)
	})
}

// SetPasswordHash replaces a hash, for a stronger one of the same password.
func (s *Store) SetPasswordHash(ctx context.Context, id int64, hash string) error {
	_, err := s.main.ExecContext(ctx, "UPDATE user_account SET password_hash = ? WHERE id = ?", hash, id)
	return unavailable(err)
}

// AuthzVersion is raised with every change of users, members and roles.
func (s *Store) AuthzVersion(ctx context.Context) (int64, error) {
	var v int64
	err := s.read.QueryRowContext(ctx, "SELECT version FROM authz_version WHERE id = 1").Scan(&v)
	return v, unavailable(err)
}

// Session is a refresh token, by its hash.
type Session struct {
	ID                string `gorm:"primaryKey"`
	UserID            int64
	Family            string
	TokenHash         string
	Successor         string // sealed successor, while the grace lasts
	RotatedAt         int64  // 0 = not used yet
	CreatedAt         int64  `gorm:"autoCreateTime:false"`
	ExpiresAt         int64
	AbsoluteExpiresAt int64
}

// TableName is gorm's.
func (Session) TableName() string { return "session" }

// CreateSession stores a new refresh token and sweeps expired ones of the same user.
func (s *Store) CreateSession(ctx context.Context, v Session, now int64) error {
	return s.inTx(ctx, s.main, func(tx *sql.Tx) error {
		if _, err := tx.ExecContext(ctx, "DELETE FROM session WHERE user_id = ? AND (expires_at < ? OR absolute_expires_at < ?)", v.UserID, now, now); err != nil {
			return fmt.Errorf("sweep sessions: %w", err)
		}
		return insertSession(ctx, tx, v)
	})
}

func insertSession(ctx context.Context, tx *sql.Tx, v Session) error {
	if _, err := tx.ExecContext(ctx, "INSERT INTO session (id, user_id, family, token_hash, successor, rotated_at, created_at, expires_at, absolute_expires_at) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)",
		v.ID, v.UserID, v.Family, v.TokenHash, v.Successor, v.RotatedAt, v.CreatedAt, v.ExpiresAt, v.AbsoluteExpiresAt); err != nil {
		return fmt.Errorf("insert session: %w", err)
	}
	return nil
}

// SessionByHash finds a refresh token.
func (s *Store) SessionByHash(ctx context.Context, hash string) (Session, error) {
	var v Session
	err := s.gw.WithContext(ctx).Where("token_hash = ?", hash).Take(&v).Error
	return v, mapNotFound(err)
}

// RotateSession marks old as used and stores its successor. ErrStale: it was used
// meanwhile.
func (s *Store) RotateSession(ctx context.Context, old Session, sealedSuccessor string, next Session, now int64) error {
	return s.inTx(ctx, s.main, func(tx *sql.Tx) error {
		res, err := tx.ExecContext(ctx, "UPDATE session SET rotated_at = ?, successor = ? WHERE id = ? AND rotated_at = 0", now, sealedSuccessor, old.ID)
		if err != nil {
			return fmt.Errorf("rotate session: %w", err)
		}
		if n, _ := res.RowsAffected(); n == 0 {
			return ErrStale
		}
		return insertSession(ctx, tx, next)
	})
}

// EndFamily deletes all sessions that descend from one login.
func (s *Store) EndFamily(ctx context.Context, family string) error {
	_, err := s.main.ExecContext(ctx, "DELETE FROM session WHERE family = ?", family)
	return unavailable(err)
}

// Throttle is the state of one bucket of login attempts.
type Throttle struct {
	Failures      int64
	NextAllowedAt int64
}

// LoginThrottle reads a bucket; the zero value when there is none.
func (s *Store) LoginThrottle(ctx context.Context, key string) (Throttle, error) {
	var t Throttle
	err := s.main.QueryRowContext(ctx, "SELECT failures, next_allowed_at FROM login_throttle WHERE bucket_key = ?", key).Scan(&t.Failures, &t.NextAllowedAt)
	if errors.Is(err, sql.ErrNoRows) {
		return t, nil
	}
	return t, unavailable(err)
}

// SetLoginThrottle writes a bucket; failures 0 deletes it.
func (s *Store) SetLoginThrottle(ctx context.Context, key string, t Throttle, now int64) error {
	return s.inTx(ctx, s.main, func(tx *sql.Tx) error {
		if _, err := tx.ExecContext(ctx, "DELETE FROM login_throttle WHERE bucket_key = ?", key); err != nil {
			return err
		}
		if t.Failures == 0 {
			return nil
		}
		_, err := tx.ExecContext(ctx, "INSERT INTO login_throttle (bucket_key, failures, next_allowed_at, updated_at) VALUES (?, ?, ?, ?)", key, t.Failures, t.NextAllowedAt, now)
		return err
	})
}

// SweepThrottle deletes buckets that have been quiet since before.
func (s *Store) SweepThrottle(ctx context.Context, before int64) error {
	_, err := s.main.ExecContext(ctx, "DELETE FROM login_throttle WHERE updated_at < ? AND next_allowed_at < ?", before, before)
	return unavailable(err)
}
