package store

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
)

// ErrLastAdmin refuses to take the platform its last administrator.
var ErrLastAdmin = errors.New("the platform needs an administrator who is active: give somebody else that role first")

// UserByID finds a person.
func (s *Store) UserByID(ctx context.Context, id int64) (User, error) {
	var u User
	err := s.gw.WithContext(ctx).Where("id = ?", id).Take(&u).Error
	return u, mapNotFound(err)
}

// MembersOf lists the members of a namespace.
func (s *Store) MembersOf(ctx context.Context, ns int64) ([]Member, error) {
	var out []Member
	err := s.gr.WithContext(ctx).Where("ns_id = ?", ns).Order("user_id").Find(&out).Error
	return out, unavailable(err)
}

// MemberOf finds somebody's role in a namespace.
func (s *Store) MemberOf(ctx context.Context, ns, user int64) (Member, error) {
	var m Member
	err := s.gw.WithContext(ctx).Where("ns_id = ? AND user_id = ?", ns, user).Take(&m).Error
	return m, mapNotFound(err)
}

// Enroll makes a person with roles in namespaces. ErrExists: the name is taken.
func (s *Store) Enroll(ctx context.Context, u *User, members []Member, entry *AuditEntry) error {
	return s.inTx(ctx, s.main, func(tx *sql.Tx) error {
		if err := s.createUser(ctx, tx, u, 0, "", entry); err != nil {
			return err
		}
		for _, m := range members {
			if _, err := tx.ExecContext(ctx, "INSERT INTO member (ns_id, user_id, role, created_at) VALUES (?, ?, ?, ?)", m.NSID, u.ID, m.Role, u.CreatedAt); err != nil {
				return fmt.Errorf("insert member: %w", err)
			}
		}
		return nil
	})
}

// rules tells whether a person is an administrator of the platform who can act.
func (u User) rules() bool { return u.PlatformRole == "admin" && u.Status == UserActive }

// UpdateUser writes display name, status, role on the platform and password of a person who was read as before. Who may do less
// than before, or has another password, is signed out everywhere; the buckets of login attempts whose keys begin like one of throttle
// are forgotten with it. ErrStale: he was changed meanwhile. ErrLastAdmin: nobody else is
// an active administrator.
func (s *Store) UpdateUser(ctx context.Context, before, u User, entry *AuditEntry, throttle ...string) error {
	return s.inTx(ctx, s.main, func(tx *sql.Tx) error {
		// First, since it serialises: of two administrators who take each other's role, one comes second.
		if err := raiseAuthz(ctx, tx); err != nil {
			return err
		}
		out := u.Status != UserActive && before.Status == UserActive || u.PlatformRole != before.PlatformRole && before.PlatformRole != "" || u.PasswordHash != before.PasswordHash
		raise := 0
		if out {
			raise = 1
		}
		res, err := tx.ExecContext(ctx, "UPDATE user_account SET display_name = ?, status = ?, platform_role = ?, password_hash = ?, auth_version = auth_version + ? WHERE id = ? AND status = ? AND platform_role = ? AND password_hash = ? AND display_name = ?",
			u.DisplayName, u.Status, u.PlatformRole, u.PasswordHash, raise, u.ID, before.Status, before.PlatformRole, before.PasswordHash, before.DisplayName)
		if err != nil {
			return fmt.Errorf("update user: %w", err)
		}
		if n, _ := res.RowsAffected(); n == 0 && u != before {
			return ErrStale
		}
		if before.rules() && !u.rules() {
			var admins int
			if err := tx.QueryRowContext(ctx, "SELECT COUNT(*) FROM user_account WHERE platform_role = 'admin' AND status = ?", UserActive).Scan(&admins); err != nil {
				return fmt.Errorf("count administrators: %w", err)
			}
			if admins == 0 {
				return ErrLastAdmin
			}
		}
		if out {
			if _, err := tx.ExecContext(ctx, "DELETE FROM session WHERE user_id = ?", u.ID); err != nil {
				return fmt.Errorf("end sessions: %w", err)
			}
		}
		for _, prefix := range throttle {
			if _, err := tx.ExecContext(ctx, "DELETE FROM login_throttle WHERE bucket_key LIKE ?", prefix+"%"); err != nil {
				return fmt.Errorf("forget attempts: %w", err)
			}
		}
		return s.audit(ctx, tx, entry)
	})
}

// SetMember gives somebody a role in a namespace; from is the one that he had, "" for none. ErrStale: it was another.
func (s *Store) SetMember(ctx context.Context, m Member, from string, entry *AuditEntry) error {
	return s.inTx(ctx, s.main, func(tx *sql.Tx) error {
		if err := raiseAuthz(ctx, tx); err != nil {
			return err
		}
		if from == "" {
			_, err := tx.ExecContext(ctx, "INSERT INTO member (ns_id, user_id, role, created_at) VALUES (?, ?, ?, ?)", m.NSID, m.UserID, m.Role, m.CreatedAt)
			if duplicate(err) {
				return ErrStale
			}
			if err != nil {
				return fmt.Errorf("insert member: %w", err)
			}
			return s.audit(ctx, tx, entry)
		}
		res, err := tx.ExecContext(ctx, "UPDATE member SET role = ? WHERE ns_id = ? AND user_id = ? AND role = ?", m.Role, m.NSID, m.UserID, from)
		if err != nil {
			return fmt.Errorf("update member: %w", err)
		}
		if n, _ := res.RowsAffected(); n == 0 && from != m.Role {
			return ErrStale
		}
		return s.audit(ctx, tx, entry)
	})
}

// DeleteMember takes somebody's role in a namespace. ErrNotFound: he has none.
func (s *Store) DeleteMember(ctx context.Context, ns, user int64, entry *AuditEntry) error {
	return s.inTx(ctx, s.main, func(tx *sql.Tx) error {
		if err := raiseAuthz(ctx, tx); err != nil {
			return err
		}
		res, err := tx.ExecContext(ctx, "DELETE FROM member WHERE ns_id = ? AND user_id = ?", ns, user)
		if err != nil {
			return fmt.Errorf("delete member: %w", err)
		}
		if n, _ := res.RowsAffected(); n == 0 {
			return ErrNotFound
		}
		return s.audit(ctx, tx, entry)
	})
}

// SessionsOf lists the unused refresh tokens of a person: one for each place where he is signed in.
func (s *Store) SessionsOf(ctx context.Context, user, now int64) ([]Session, error) {
	var out []Session
	err := s.gw.WithContext(ctx).Where("user_id = ? AND rotated_at = 0 AND expires_at > ? AND absolute_expires_at > ?", user, now, now).Order("created_at DESC").Find(&out).Error
	return out, unavailable(err)
}

// FamilyOf tells whether sessions that descend from one sign-in are a person's.
func (s *Store) FamilyOf(ctx context.Context, user int64, family string) (bool, error) {
	var n int64
	err := s.main.QueryRowContext(ctx, "SELECT COUNT(*) FROM session WHERE user_id = ? AND family = ?", user, family).Scan(&n)
	return n > 0, unavailable(err)
}

// Known tells whether there is a bucket of login attempts; Remember makes one.
func (s *Store) Known(ctx context.Context, key string) (bool, error) {
	var n int64
	err := s.main.QueryRowContext(ctx, "SELECT COUNT(*) FROM login_throttle WHERE bucket_key = ?", key).Scan(&n)
	return n > 0, unavailable(err)
}

// Remember makes a bucket of login attempts with no failures, or clears it.
func (s *Store) Remember(ctx context.Context, key string, now int64) error {
	return s.inTx(ctx, s.main, func(tx *sql.Tx) error {
		if _, err := tx.ExecContext(ctx, "INSERT INTO login_throttle (bucket_key, failures, next_allowed_at, updated_at) VALUES (?, 0, 0, ?)"+s.orIgnore("bucket_key"), key, now); err != nil {
			return fmt.Errorf("remember: %w", err)
		}
		if _, err := tx.ExecContext(ctx, "UPDATE login_throttle SET failures = 0, next_allowed_at = 0, updated_at = ? WHERE bucket_key = ?", now, key); err != nil {
			return fmt.Errorf("remember: %w", err)
		}
		return nil
	})
}
