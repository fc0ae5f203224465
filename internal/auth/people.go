package auth

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"

	"golang.org/x/text/unicode/norm"

	"github.com/ax-scheduler/ax/internal/store"
)

// NewPassword makes a password that nobody will guess: 120 bits in letters and digits that are not taken for one another.
func NewPassword() string {
	const letters = "abcdefghijkmnpqrstuvwxyz23456789" // 32
	var b [24]byte
	_, _ = rand.Read(b[:])
	out := make([]byte, 0, len(b)+3)
	for i, x := range b {
		if i > 0 && i%6 == 0 {
			out = append(out, '-')
		}
		out = append(out, letters[x&31])
	}
	return string(out)
}

// Enroll makes a person with a password and roles in namespaces. *message.Invalid: the name or the password will not do.
// store.ErrExists: the name is taken.
func (a *Auth) Enroll(ctx context.Context, u *store.User, password string, members []store.Member, entry *store.AuditEntry) error {
	u.Name = norm.NFC.String(u.Name)
	if invalid := CheckUserName(u.Name); invalid != nil {
		return invalid
	}
	if invalid := CheckPassword(u.Name, password); invalid != nil {
		return invalid
	}
	hash, err := hashPassword(ctx, password)
	if err != nil {
		return err
	}
	u.PasswordHash, u.Status = hash, store.UserActive
	if err := a.store.Enroll(ctx, u, members, entry); err != nil {
		return err
	}
	return a.Sync(ctx)
}

// SetPassword gives a person another password and signs him out everywhere. What strangers did to his
// account's throttle is forgotten, and from where he signed in.
func (a *Auth) SetPassword(ctx context.Context, u store.User, password string, entry *store.AuditEntry) error {
	if invalid := CheckPassword(u.Name, password); invalid != nil {
		return invalid
	}
	hash, err := hashPassword(ctx, password)
	if err != nil {
		return err
	}
	next := u
	next.PasswordHash = hash
	// Who signed in with the password before need not be who knows this one.
	if err := a.store.UpdateUser(ctx, u, next, entry, accountKey(u.Name), knownOf(accountKey(u.Name))); err != nil {
		return err
	}
	return a.Sync(ctx)
}

// ChangePassword is SetPassword by the person himself, who proves that he is: current is his password now. He stays signed in
// where he is, with new tokens. ErrCredentials: current is wrong. *ThrottledError: it was wrong too often.
func (a *Auth) ChangePassword(ctx context.Context, p Principal, current, password, ip string, entry *store.AuditEntry) (Tokens, Principal, error) {
	u, err := a.store.UserByID(ctx, p.UserID)
	if err != nil {
		return Tokens{}, Principal{}, err
	}
	now := a.clock.Now().UnixMilli()
	bucket := knownKey(accountKey(u.Name), "change") // SetPassword forgets it
	allowedAt, err := a.store.TakeAttempts(ctx, []string{bucket}, now, attempted(now))
	if err != nil {
		return Tokens{}, Principal{}, fmt.Errorf("change password: %w", err)
	}
	if allowedAt > 0 {
		return Tokens{}, Principal{}, &ThrottledError{RetryAfter: retryAfter(allowedAt, now)}
	}
	match, _, err := checkHash(ctx, current, u.PasswordHash)
	if err != nil {
		return Tokens{}, Principal{}, errors.Join(err, a.returnAttempts(ctx, bucket))
	}
	if !match {
		e := a.entry(p, ip, "password.failure", outcomeFailure)
		a.auditFailure(ctx, e)
		return Tokens{}, Principal{}, ErrCredentials
	}
	if err := a.SetPassword(ctx, u, password, entry); err != nil {
		return Tokens{}, Principal{}, errors.Join(err, a.returnAttempts(ctx, bucket))
	}
	return a.openSession(ctx, u.ID, ip)
}

// EndSession ends one of a person's sessions. store.ErrNotFound: it is not his, or has ended.
func (a *Auth) EndSession(ctx context.Context, p Principal, family string) error {
	his, err := a.store.FamilyOf(ctx, p.UserID, family)
	if err != nil {
		return err
	}
	if !his {
		return store.ErrNotFound
	}
	return a.endFamily(ctx, store.Session{UserID: p.UserID, Family: family}, a.entry(Principal{UserID: p.UserID, Name: p.Name, Session: family}, "", "logout", outcomeSuccess))
}
