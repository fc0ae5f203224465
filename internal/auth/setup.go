package auth

import (
	"context"
	"crypto/subtle"
	"errors"
	"fmt"
	"log/slog"
	"strconv"
	"strings"
	"time"

	"golang.org/x/text/unicode/norm"

	"github.com/ax-scheduler/ax/internal/store"
)

// setupFor is how long a setup token is accepted.
const setupFor = 30 * time.Minute

const setupName = "auth.setup"

// SetupToken makes the token that entitles to Setup: once, within 30 minutes. It replaces the
// one of an earlier start. required is false, and token empty, when there is a user already.
func (a *Auth) SetupToken(ctx context.Context) (token string, required bool, err error) {
	users, err := a.store.HasUsers(ctx)
	if err != nil {
		return "", false, fmt.Errorf("setup token: %w", err)
	}
	if users {
		return "", false, nil
	}
	token = newOpaque(prefixSetup)
	value := hashToken(token) + " " + strconv.FormatInt(a.clock.Now().Add(setupFor).UnixMilli(), 10)
	if err := a.store.ReplaceValue(ctx, setupName, value); err != nil {
		return "", false, fmt.Errorf("setup token: %w", err)
	}
	return token, true, nil
}

// Setup makes the first administrator of the platform and uses the token up. entry may name the
// request; the rest is filled in. ErrSetupDone: there is a user already. ErrToken: the token is
// wrong, expired or replaced. *message.Invalid: the name or the password will not do; the token
// stays good.
func (a *Auth) Setup(ctx context.Context, token, name, password, ip string, entry *store.AuditEntry) (Principal, error) {
	users, err := a.store.HasUsers(ctx)
	if err != nil {
		return Principal{}, fmt.Errorf("setup: %w", err)
	}
	if users {
		return Principal{}, ErrSetupDone
	}
	value, err := a.store.Value(ctx, setupName)
	if err != nil && !errors.Is(err, store.ErrNotFound) {
		return Principal{}, fmt.Errorf("setup: %w", err)
	}
	hash, until, _ := strings.Cut(value, " ")
	expiresAt, _ := strconv.ParseInt(until, 10, 64)
	good := wellFormed(prefixSetup, token) && subtle.ConstantTimeCompare([]byte(hash), []byte(hashToken(token))) == 1
	if !good || expiresAt <= a.clock.Now().UnixMilli() {
		e := a.entry(Principal{}, ip, "setup.failure", outcomeFailure)
		e.ObjectType = "system"
		a.auditFailure(ctx, e)
		return Principal{}, ErrToken
	}
	name = norm.NFC.String(name)
	if invalid := CheckUserName(name); invalid != nil {
		return Principal{}, invalid
	}
	if invalid := CheckPassword(name, password); invalid != nil {
		return Principal{}, invalid
	}
	u, err := newAdmin(ctx, name, password, a.clock.Now().UnixMilli())
	if err != nil {
		return Principal{}, err
	}
	if entry == nil {
		entry = &store.AuditEntry{}
	}
	a.complete(entry, name, ip, "setup.success")
	switch err := a.store.CreateFirstUser(ctx, &u, setupName, value, entry); {
	case errors.Is(err, store.ErrExists):
		return Principal{}, ErrSetupDone
	case errors.Is(err, store.ErrStale):
		return Principal{}, ErrToken
	case err != nil:
		return Principal{}, fmt.Errorf("setup: %w", err)
	}
	if err := a.Sync(ctx); err != nil {
		return Principal{}, err
	}
	a.log.InfoContext(ctx, "first administrator made", slog.Int64("user_id", u.ID))
	return Principal{UserID: u.ID, Name: u.Name, DisplayName: u.DisplayName, AuthVersion: u.AuthVersion}, nil
}

// EnsureAdmin makes the user name an administrator of the platform with this password, if there
// is nobody of that name; whoever has the name already stays as he is, password included. An
// operator who puts a password into a file has chosen it: a weak one is logged, and only what is
// short or a known default is refused. *message.Invalid: the name or the password will not do.
func (a *Auth) EnsureAdmin(ctx context.Context, name, password string) error {
	name = norm.NFC.String(name)
	_, err := a.store.UserByName(ctx, name)
	if err == nil {
		return nil
	}
	if !errors.Is(err, store.ErrNotFound) {
		return fmt.Errorf("ensure administrator: %w", err)
	}
	if invalid := CheckUserName(name); invalid != nil {
		return invalid
	}
	if invalid := checkGivenPassword(password); invalid != nil {
		return invalid
	}
	if invalid := CheckPassword(name, password); invalid != nil {
		a.log.WarnContext(ctx, "the administrator's password is weak", slog.String("why", invalid.Message.EN))
	}
	u, err := newAdmin(ctx, name, password, a.clock.Now().UnixMilli())
	if err != nil {
		return err
	}
	entry := &store.AuditEntry{ActorType: "system"}
	a.complete(entry, "", "", "user.create")
	// ErrExists: another server that started at the same time made him.
	if err := a.store.CreateUser(ctx, &u, 0, "", entry); err != nil && !errors.Is(err, store.ErrExists) {
		return fmt.Errorf("ensure administrator: %w", err)
	}
	return a.Sync(ctx)
}

func newAdmin(ctx context.Context, name, password string, now int64) (store.User, error) {
	hash, err := hashPassword(ctx, password)
	if err != nil {
		return store.User{}, err
	}
	return store.User{Name: name, DisplayName: name, PasswordHash: hash, Status: store.UserActive, PlatformRole: PlatformAdmin, CreatedAt: now}, nil
}

// complete fills in what the caller left out of an entry.
func (a *Auth) complete(e *store.AuditEntry, name, ip, action string) {
	or := func(field *string, value string) {
		if *field == "" {
			*field = value
		}
	}
	if e.At == 0 {
		e.At = a.clock.Now().UnixMilli()
	}
	if addr, ok := address(ip); ok {
		or(&e.IP, addr.String())
	}
	or(&e.ActorType, "user")
	or(&e.ActorName, name)
	or(&e.Action, action)
	or(&e.ObjectType, "user")
	or(&e.Outcome, outcomeSuccess)
}
