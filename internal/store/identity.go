package store

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"slices"

	"github.com/ax-scheduler/ax/sql/migrate"
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

// HasUsers tells whether anybody can log in yet.
func (s *Store) HasUsers(ctx context.Context) (bool, error) {
	var n int64
	err := s.main.QueryRowContext(ctx, "SELECT COUNT(*) FROM (SELECT id FROM user_account LIMIT 1) AS any_user").Scan(&n)
	return n > 0, unavailable(err)
}

// UserByName finds a person.
func (s *Store) UserByName(ctx context.Context, name string) (User, error) {
	var u User
	err := s.gr.WithContext(ctx).Where("name = ?", name).Take(&u).Error
	if err == nil && u.Name != name {
		// MySQL takes blanks at the end for nothing.
		return User{}, ErrNotFound
	}
	return u, mapNotFound(err)
}

// CreateUser makes a person with, where ns is not 0, a role in that namespace.
func (s *Store) CreateUser(ctx context.Context, u *User, ns int64, role string, entry *AuditEntry) error {
	return s.inTx(ctx, s.main, func(tx *sql.Tx) error { return s.createUser(ctx, tx, u, ns, role, entry) })
}

// CreateFirstUser makes the first person of the installation and uses up the single value
// that entitled to it, in one transaction. ErrExists: there is somebody already. ErrStale: the
// value is not there any more.
func (s *Store) CreateFirstUser(ctx context.Context, u *User, name, value string, entry *AuditEntry) error {
	return s.inTx(ctx, s.main, func(tx *sql.Tx) error {
		// Deleting first takes the row's lock: of two that come at once, one finds it gone.
		res, err := tx.ExecContext(ctx, "DELETE FROM ax_value WHERE name = ? AND value = ?", name, value)
		if err != nil {
			return fmt.Errorf("use up %s: %w", name, err)
		}
		if n, _ := res.RowsAffected(); n == 0 {
			return ErrStale
		}
		var users int64
		if err := tx.QueryRowContext(ctx, "SELECT COUNT(*) FROM user_account").Scan(&users); err != nil {
			return fmt.Errorf("count users: %w", err)
		}
		if users > 0 {
			return ErrExists
		}
		return s.createUser(ctx, tx, u, 0, "", entry)
	})
}

func (s *Store) createUser(ctx context.Context, tx *sql.Tx, u *User, ns int64, role string, entry *AuditEntry) error {
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
	if err := raiseAuthz(ctx, tx); err != nil {
		return err
	}
	entry.ObjectID, entry.ObjectName = fmt.Sprint(u.ID), u.Name
	return s.audit(ctx, tx, entry)
}

func raiseAuthz(ctx context.Context, tx *sql.Tx) error {
	if _, err := tx.ExecContext(ctx, "UPDATE authz_version SET version = version + 1 WHERE id = 1"); err != nil {
		return fmt.Errorf("raise authorisation version: %w", err)
	}
	return nil
}

// ReplaceValue writes a single value over whatever is there.
func (s *Store) ReplaceValue(ctx context.Context, name, value string) error {
	update := " ON DUPLICATE KEY UPDATE value = VALUES(value)"
	if s.dialect == migrate.SQLite {
		update = " ON CONFLICT (name) DO UPDATE SET value = excluded.value"
	}
	_, err := s.main.ExecContext(ctx, "INSERT INTO ax_value (name, value) VALUES (?, ?)"+update, name, value)
	return unavailable(err)
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
	Successor         string // what the successor is derived from, with the token itself and a key
	RotatedAt         int64  // 0 = not used yet
	CreatedAt         int64  `gorm:"autoCreateTime:false"`
	ExpiresAt         int64
	AbsoluteExpiresAt int64
}

// TableName is gorm's.
func (Session) TableName() string { return "session" }

// CreateSession stores a new refresh token with the audit entry of the login, and sweeps
// expired ones of the same user.
func (s *Store) CreateSession(ctx context.Context, v Session, now int64, entry *AuditEntry) error {
	return s.inTx(ctx, s.main, func(tx *sql.Tx) error {
		if _, err := tx.ExecContext(ctx, "DELETE FROM session WHERE user_id = ? AND (expires_at < ? OR absolute_expires_at < ?)", v.UserID, now, now); err != nil {
			return fmt.Errorf("sweep sessions: %w", err)
		}
		if err := insertSession(ctx, tx, v); err != nil {
			return err
		}
		return s.audit(ctx, tx, entry)
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
func (s *Store) RotateSession(ctx context.Context, old Session, successor string, next Session, now int64) error {
	return s.inTx(ctx, s.main, func(tx *sql.Tx) error {
		res, err := tx.ExecContext(ctx, "UPDATE session SET rotated_at = ?, successor = ? WHERE id = ? AND rotated_at = 0", now, successor, old.ID)
		if err != nil {
			return fmt.Errorf("rotate session: %w", err)
		}
		if n, _ := res.RowsAffected(); n == 0 {
			return ErrStale
		}
		return insertSession(ctx, tx, next)
	})
}

// EndFamily deletes all sessions that descend from one login and raises the user's
// authorisation version, so that access tokens end too; his other sessions get new ones by
// refreshing. ErrNotFound: there was no such session, nothing was written.
func (s *Store) EndFamily(ctx context.Context, userID int64, family string, entry *AuditEntry) error {
	return s.inTx(ctx, s.main, func(tx *sql.Tx) error {
		res, err := tx.ExecContext(ctx, "DELETE FROM session WHERE family = ?", family)
		if err != nil {
			return fmt.Errorf("end sessions: %w", err)
		}
		if n, _ := res.RowsAffected(); n == 0 {
			return ErrNotFound
		}
		if _, err := tx.ExecContext(ctx, "UPDATE user_account SET auth_version = auth_version + 1 WHERE id = ?", userID); err != nil {
			return fmt.Errorf("raise user's version: %w", err)
		}
		if err := raiseAuthz(ctx, tx); err != nil {
			return err
		}
		return s.audit(ctx, tx, entry)
	})
}

// Throttle is the state of one bucket of login attempts.
type Throttle struct {
	Key           string
	Failures      int64
	NextAllowedAt int64
	UpdatedAt     int64
}

// TakeAttempts counts one attempt in every bucket of keys, in one transaction, before it is
// known how it ends: however many come at once, each sees the ones before. next tells the new
// state of a bucket. When any bucket is not allowed before a time after now, nothing is
// written and that time is returned; else 0.
func (s *Store) TakeAttempts(ctx context.Context, keys []string, now int64, next func(Throttle) Throttle) (allowedAt int64, err error) {
	// Everybody locks in the same order.
	keys = slices.Sorted(slices.Values(keys))
	refused := errors.New("not allowed yet")
	err = s.inTx(ctx, s.main, func(tx *sql.Tx) error {
		for _, key := range keys {
			if _, err := tx.ExecContext(ctx, "INSERT INTO login_throttle (bucket_key, failures, next_allowed_at, updated_at) VALUES (?, 0, 0, ?)"+s.orIgnore("bucket_key"), key, now); err != nil {
				return fmt.Errorf("make bucket: %w", err)
			}
			if _, err := tx.ExecContext(ctx, "UPDATE login_throttle SET failures = failures WHERE bucket_key = ?", key); err != nil {
				return fmt.Errorf("lock bucket: %w", err)
			}
			t := Throttle{Key: key}
			if err := tx.QueryRowContext(ctx, "SELECT failures, next_allowed_at, updated_at FROM login_throttle WHERE bucket_key = ?", key).Scan(&t.Failures, &t.NextAllowedAt, &t.UpdatedAt); err != nil {
				return fmt.Errorf("read bucket: %w", err)
			}
			if t.NextAllowedAt > now {
				allowedAt = max(allowedAt, t.NextAllowedAt)
				continue
			}
			t = next(t)
			if _, err := tx.ExecContext(ctx, "UPDATE login_throttle SET failures = ?, next_allowed_at = ?, updated_at = ? WHERE bucket_key = ?", t.Failures, t.NextAllowedAt, t.UpdatedAt, key); err != nil {
				return fmt.Errorf("count attempt: %w", err)
			}
		}
		if allowedAt > 0 {
			return refused
		}
		return nil
	})
	if errors.Is(err, refused) {
		return allowedAt, nil
	}
	return 0, err
}

// ReturnAttempts takes back one counted attempt in every bucket of keys, allows them again from
// now on, and forgets the buckets of forget.
func (s *Store) ReturnAttempts(ctx context.Context, keys, forget []string, now int64) error {
	return s.inTx(ctx, s.main, func(tx *sql.Tx) error {
		for _, key := range forget {
			if _, err := tx.ExecContext(ctx, "DELETE FROM login_throttle WHERE bucket_key = ?", key); err != nil {
				return fmt.Errorf("clear bucket: %w", err)
			}
		}
		for _, key := range keys {
			if _, err := tx.ExecContext(ctx, "UPDATE login_throttle SET failures = failures - 1, next_allowed_at = ? WHERE bucket_key = ? AND failures > 0", now, key); err != nil {
				return fmt.Errorf("return attempt: %w", err)
			}
		}
		return nil
	})
}

// SweepThrottle deletes buckets that have been quiet since before; those whose key begins with kept, since keptBefore.
func (s *Store) SweepThrottle(ctx context.Context, before int64, kept string, keptBefore int64) error {
	_, err := s.main.ExecContext(ctx, "DELETE FROM login_throttle WHERE updated_at < ? AND next_allowed_at < ? AND (bucket_key NOT LIKE ? OR updated_at < ?)", before, before, kept+"%", keptBefore)
	return unavailable(err)
}
