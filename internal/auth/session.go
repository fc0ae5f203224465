package auth

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/ax-scheduler/ax/internal/store"
)

// Lives of a refresh token.
const (
	idleFor     = 8 * time.Hour
	absoluteFor = 7 * 24 * time.Hour
	// grace is how long a used token gives its successor again: two tabs may use it at once.
	grace = 10 * time.Second
)

// Tokens are what a client holds.
type Tokens struct {
	// Access goes with every request, in the Authorization header.
	Access string
	// ExpiresIn is how long Access is accepted: 10 minutes.
	ExpiresIn time.Duration
	// Refresh is good for one exchange against new tokens.
	Refresh string
	// RefreshFor is how long Refresh is accepted if it is not used: 8 hours, and never longer
	// than 7 days after the login.
	RefreshFor time.Duration
}

// openSession starts a family of refresh tokens for a user who proved himself.
func (a *Auth) openSession(ctx context.Context, user int64, ip string) (Tokens, Principal, error) {
	p, err := a.principal(ctx, user, newID())
	if err != nil {
		return Tokens{}, Principal{}, err
	}
	now := a.clock.Now()
	refresh := newOpaque(prefixRefresh)
	v := store.Session{
		ID: newID(), UserID: user, Family: p.Session, TokenHash: hashToken(refresh), CreatedAt: now.UnixMilli(),
		ExpiresAt: now.Add(idleFor).UnixMilli(), AbsoluteExpiresAt: now.Add(absoluteFor).UnixMilli(),
	}
	tokens, err := a.tokens(p, refresh, v, now)
	if err != nil {
		return Tokens{}, Principal{}, err
	}
	if err := a.store.CreateSession(ctx, v, now.UnixMilli(), a.entry(p, ip, "login.success", outcomeSuccess)); err != nil {
		return Tokens{}, Principal{}, fmt.Errorf("open session: %w", err)
	}
	return tokens, p, nil
}

// principal reads a user as he is now. ErrToken: he is not active any more.
func (a *Auth) principal(ctx context.Context, user int64, session string) (Principal, error) {
	if err := a.Sync(ctx); err != nil {
		return Principal{}, err
	}
	u, ok := a.snapshot.Load().users[user]
	if !ok || !u.active {
		return Principal{}, ErrToken
	}
	return Principal{UserID: user, Name: u.name, DisplayName: u.displayName, AuthVersion: u.authVersion, Session: session}, nil
}

func (a *Auth) tokens(p Principal, refresh string, v store.Session, now time.Time) (Tokens, error) {
	access, err := a.access(p, now)
	if err != nil {
		return Tokens{}, err
	}
	return Tokens{Access: access, ExpiresIn: accessFor, Refresh: refresh, RefreshFor: time.Duration(v.ExpiresAt-now.UnixMilli()) * time.Millisecond}, nil
}

// Refresh exchanges a refresh token for new tokens and uses it up. Within 10 s of that it gives
// the same successor again. Later it ends the whole session, since somebody holds a copy; that
// is audited. ErrToken: not ours, expired, used up, or its user is not active.
func (a *Auth) Refresh(ctx context.Context, refresh, ip string) (Tokens, Principal, error) {
	k := a.keys.Load()
	if k == nil || !wellFormed(prefixRefresh, refresh) {
		return Tokens{}, Principal{}, ErrToken
	}
	// Two rounds: whoever loses the race for a token finds it used in the second.
	for range 2 {
		tokens, p, err := a.exchange(ctx, k, refresh, ip)
		if !errors.Is(err, store.ErrStale) {
			return tokens, p, err
		}
	}
	return Tokens{}, Principal{}, ErrToken
}

func (a *Auth) exchange(ctx context.Context, k *keys, refresh, ip string) (Tokens, Principal, error) {
	old, err := a.store.SessionByHash(ctx, hashToken(refresh))
	if errors.Is(err, store.ErrNotFound) {
		return Tokens{}, Principal{}, ErrToken
	}
	if err != nil {
		return Tokens{}, Principal{}, fmt.Errorf("refresh: %w", err)
	}
	now := a.clock.Now()
	if used := old.RotatedAt; used != 0 && now.UnixMilli()-used > grace.Milliseconds() {
		return Tokens{}, Principal{}, a.reused(ctx, old, ip)
	}
	if min(old.ExpiresAt, old.AbsoluteExpiresAt) <= now.UnixMilli() {
		return Tokens{}, Principal{}, ErrToken
	}
	p, err := a.principal(ctx, old.UserID, old.Family)
	if err != nil {
		return Tokens{}, Principal{}, err
	}
	if old.RotatedAt != 0 {
		next := k.successor(refresh, old.Successor)
		v, err := a.store.SessionByHash(ctx, hashToken(next))
		if errors.Is(err, store.ErrNotFound) {
			return Tokens{}, Principal{}, ErrToken
		}
		if err != nil {
			return Tokens{}, Principal{}, fmt.Errorf("refresh: %w", err)
		}
		tokens, err := a.tokens(p, next, v, now)
		return tokens, p, err
	}
	nonce := newID()
	next := k.successor(refresh, nonce)
	v := store.Session{
		ID: newID(), UserID: old.UserID, Family: old.Family, TokenHash: hashToken(next), CreatedAt: now.UnixMilli(),
		ExpiresAt: min(now.Add(idleFor).UnixMilli(), old.AbsoluteExpiresAt), AbsoluteExpiresAt: old.AbsoluteExpiresAt,
	}
	tokens, err := a.tokens(p, next, v, now)
	if err != nil {
		return Tokens{}, Principal{}, err
	}
	if err := a.store.RotateSession(ctx, old, nonce, v, now.UnixMilli()); err != nil {
		return Tokens{}, Principal{}, fmt.Errorf("refresh: %w", err)
	}
	return tokens, p, nil
}

// reused ends the session of a token that was presented after it was used.
func (a *Auth) reused(ctx context.Context, v store.Session, ip string) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), settleTimeout)
	defer cancel()
	e := a.entry(Principal{UserID: v.UserID, Session: v.Family}, ip, "session.reuse", outcomeFailure)
	if err := a.endFamily(ctx, v, e); err != nil {
		return err
	}
	a.log.WarnContext(ctx, "used refresh token presented again, session ended", slog.Int64("user_id", v.UserID))
	return ErrToken
}

// Logout ends the session that a refresh token belongs to; access tokens of the user end with
// it, on this server at once and on others within two seconds. A token that is unknown or
// ended already is no error.
func (a *Auth) Logout(ctx context.Context, refresh string) error {
	if !wellFormed(prefixRefresh, refresh) {
		return nil
	}
	v, err := a.store.SessionByHash(ctx, hashToken(refresh))
	if errors.Is(err, store.ErrNotFound) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("logout: %w", err)
	}
	return a.endFamily(ctx, v, a.entry(Principal{UserID: v.UserID, Session: v.Family}, "", "logout", outcomeSuccess))
}

func (a *Auth) endFamily(ctx context.Context, v store.Session, e *store.AuditEntry) error {
	if s := a.snapshot.Load(); s != nil && s.users[v.UserID] != nil {
		e.ActorName = s.users[v.UserID].name
	}
	err := a.store.EndFamily(ctx, v.UserID, v.Family, e)
	if err != nil && !errors.Is(err, store.ErrNotFound) {
		return fmt.Errorf("end session: %w", err)
	}
	return a.Sync(ctx)
}
