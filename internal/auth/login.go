package auth

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net/netip"
	"strings"
	"sync"
	"time"

	"golang.org/x/text/unicode/norm"

	"github.com/ax-scheduler/ax/internal/store"
)

// Throttling of logins, per account and per source.
const (
	quickFailures = 5
	firstDelay    = time.Second
	maxDelay      = 15 * time.Minute
	// forgiveEvery is how fast a source's failures are forgotten: many people may share one. An
	// account's are forgotten by a success, or after throttleKeep.
	forgiveEvery = time.Minute
	throttleKeep = 24 * time.Hour
	// knownKeep is how long a source is known for an account that signed in from it.
	knownKeep  = 30 * 24 * time.Hour
	sweepEvery = time.Hour
)

// settleTimeout bounds what is written about a login after its outcome is known, also when the
// client has gone by then.
const settleTimeout = 5 * time.Second

// auditedFailures is how many failed logins a minute have entries of their own.
const auditedFailures = 20

// auditedDenials is how many denied attempts a minute have entries of their own.
const auditedDenials = 60

// auditFor bounds the writing of an entry about a refusal: whoever is refused does not wait for it longer.
const auditFor = 3 * time.Second

const (
	accountBucket = "a:"
	sourceBucket  = "s:"
	knownBucket   = "k:"
)

// knownKey is the bucket of an account at a source from which it has signed in: strangers who guess its password from
// elsewhere do not keep its owner out. All of an account begin alike: see knownOf.
func knownKey(account, source string) string {
	sum := sha256.Sum256([]byte(source))
	return knownOf(account) + hex.EncodeToString(sum[:8])
}

func knownOf(account string) string {
	return knownBucket + strings.TrimPrefix(account, accountBucket)[:16] + ":"
}

// accountKey is a hash, since a name may be of any length and in any script.
func accountKey(name string) string {
	sum := sha256.Sum256([]byte(name))
	return accountBucket + hex.EncodeToString(sum[:16])
}

// sourceKey is an IPv4 address or the /64 of an IPv6 one, which one household or server has.
func sourceKey(ip string) string {
	addr, ok := address(ip)
	if !ok {
		return sourceBucket + "unknown"
	}
	if addr.Is4() {
		return sourceBucket + addr.String()
	}
	prefix, err := addr.Prefix(64)
	if err != nil {
		return sourceBucket + "unknown"
	}
	return sourceBucket + prefix.String()
}

func address(ip string) (netip.Addr, bool) {
	addr, err := netip.ParseAddr(ip)
	if err != nil {
		return netip.Addr{}, false
	}
	return addr.Unmap().WithZone(""), true
}

// attempted is the state of a bucket after one more attempt.
func attempted(now int64) func(store.Throttle) store.Throttle {
	return func(t store.Throttle) store.Throttle {
		if strings.HasPrefix(t.Key, sourceBucket) {
			// Only whole spans move UpdatedAt, or frequent logins would never be forgiven.
			forgiven := max(0, (now-t.UpdatedAt)/forgiveEvery.Milliseconds())
			t.Failures = max(0, t.Failures-forgiven)
			t.UpdatedAt += forgiven * forgiveEvery.Milliseconds()
		} else {
			t.UpdatedAt = now
		}
		t.Failures++
		if t.Failures >= quickFailures {
			delay := min(firstDelay<<min(t.Failures-quickFailures, 20), maxDelay)
			t.NextAllowedAt = now + delay.Milliseconds()
		}
		return t
	}
}

// Outcomes of a login, as metrics and audit entries name them.
const (
	outcomeSuccess   = "success"
	outcomeFailure   = "failure"
	outcomeDenied    = "denied"
	outcomeThrottled = "throttled"
	outcomeBusy      = "busy"
)

// Login checks a password and opens a session. ErrCredentials: no such user, wrong password
// or suspended. *ThrottledError: too many failures of this account or from this source; the
// password was not looked at. ErrBusy: too many logins at once. The outcome is audited.
//
// An attempt counts as a failure before the password is checked and is given back
// afterwards, so that a thousand guesses at once are held off like a thousand in a row.
func (a *Auth) Login(ctx context.Context, name, password, ip string) (Tokens, Principal, error) {
	now := a.clock.Now()
	name = norm.NFC.String(name)
	account, source := accountKey(name), sourceKey(ip)
	familiar := knownKey(account, source)
	seen, err := a.store.Known(ctx, familiar)
	if err != nil {
		return Tokens{}, Principal{}, fmt.Errorf("login: %w", err)
	}
	if seen {
		account = familiar
	}
	allowedAt, err := a.store.TakeAttempts(ctx, []string{account, source}, now.UnixMilli(), attempted(now.UnixMilli()))
	if err != nil {
		return Tokens{}, Principal{}, fmt.Errorf("login: %w", err)
	}
	// What follows is written even if the client goes away.
	settle, cancel := context.WithTimeout(context.WithoutCancel(ctx), settleTimeout)
	defer cancel()
	if allowedAt > 0 {
		a.loginFailed(settle, store.User{}, name, ip, outcomeThrottled, "throttled")
		return Tokens{}, Principal{}, &ThrottledError{RetryAfter: retryAfter(allowedAt, now.UnixMilli())}
	}
	u, err := a.store.UserByName(ctx, name)
	known := err == nil
	if !known {
		if !errors.Is(err, store.ErrNotFound) {
			return Tokens{}, Principal{}, errors.Join(fmt.Errorf("login: %w", err), a.returnAttempts(settle, account, source))
		}
		u = store.User{PasswordHash: dummyHash}
	}
	match, weak, err := checkHash(ctx, password, u.PasswordHash)
	if errors.Is(err, ErrBusy) {
		a.loginFailed(settle, u, name, ip, outcomeBusy, "busy")
		return Tokens{}, Principal{}, errors.Join(ErrBusy, a.returnAttempts(settle, account, source))
	}
	if err != nil {
		return Tokens{}, Principal{}, fmt.Errorf("login: %w", err)
	}
	reason := ""
	switch {
	case !known:
		reason = "unknown user"
	case !match:
		reason = "wrong password"
	case u.Status != store.UserActive:
		reason = "user is " + u.Status
	}
	if reason != "" {
		a.loginFailed(settle, u, name, ip, outcomeFailure, reason)
		return Tokens{}, Principal{}, ErrCredentials
	}
	// Hashing and waiting took wall time, but throttling is told one time per attempt.
	var forget []string
	if !seen { // a known one is cleared by Remember
		forget = []string{account}
	}
	if err := a.store.ReturnAttempts(settle, []string{source}, forget, now.UnixMilli()); err != nil {
		return Tokens{}, Principal{}, fmt.Errorf("login: %w", err)
	}
	if err := a.store.Remember(settle, familiar, now.UnixMilli()); err != nil {
		return Tokens{}, Principal{}, fmt.Errorf("login: %w", err)
	}
	if weak {
		a.rehash(settle, u.ID, password)
	}
	tokens, p, err := a.openSession(settle, u.ID, ip)
	if err != nil {
		return Tokens{}, Principal{}, err
	}
	a.metrics.Logins.WithLabelValues(outcomeSuccess).Inc()
	return tokens, p, nil
}

func retryAfter(allowedAt, now int64) time.Duration {
	return max(time.Duration(allowedAt-now)*time.Millisecond, time.Second)
}

func (a *Auth) returnAttempts(ctx context.Context, keys ...string) error {
	return a.store.ReturnAttempts(ctx, keys, nil, a.clock.Now().UnixMilli())
}

// rehash replaces a hash by one of today's strength. That it fails is no reason to refuse a login.
func (a *Auth) rehash(ctx context.Context, user int64, password string) {
	hash, err := hashPassword(ctx, password)
	if err == nil {
		err = a.store.SetPasswordHash(ctx, user, hash)
	}
	if err != nil {
		a.log.WarnContext(ctx, "password hash not renewed", slog.Int64("user_id", user), slog.String("err", err.Error()))
		return
	}
	a.log.InfoContext(ctx, "password hash renewed", slog.Int64("user_id", user))
}

// loginFailed counts and audits a login that did not succeed.
func (a *Auth) loginFailed(ctx context.Context, u store.User, name, ip, outcome, reason string) {
	a.metrics.Logins.WithLabelValues(outcome).Inc()
	if u.ID == 0 && CheckUserName(name) != nil {
		// People type passwords into the wrong field; what can not be a name is not kept.
		name = ""
	}
	e := a.entry(Principal{UserID: u.ID, Name: name}, ip, "login.failure", outcomeFailure)
	e.AfterJSON = detail(map[string]any{"reason": reason})
	a.auditFailure(ctx, e)
}

// auditFailure writes e, or only counts it when there were many in this minute.
func (a *Auth) auditFailure(ctx context.Context, e *store.AuditEntry) {
	a.auditSampled(ctx, &a.failures, e)
}

// Denied writes that somebody asked for what is not theirs, or only counts it when there were many in this minute.
func (a *Auth) Denied(ctx context.Context, e *store.AuditEntry) {
	e.Outcome = outcomeDenied
	a.auditSampled(context.WithoutCancel(ctx), &a.denials, e)
}

func (a *Auth) auditSampled(ctx context.Context, s *sampler, e *store.AuditEntry) {
	write, suppressed := s.admit(e.At / time.Minute.Milliseconds())
	a.writeSuppressed(ctx, s, suppressed)
	if !write {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, auditFor)
	defer cancel()
	if err := a.store.Audit(ctx, e); err != nil {
		a.log.ErrorContext(ctx, "what was refused is not audited", slog.String("action", e.Action), slog.String("err", err.Error()))
	}
}

// tellSuppressed writes the counts of a minute that has passed, or with force of this one.
func (a *Auth) tellSuppressed(ctx context.Context, force bool) {
	for _, s := range []*sampler{&a.failures, &a.denials} {
		a.writeSuppressed(ctx, s, s.passed(a.clock.Now().UnixMilli()/time.Minute.Milliseconds(), force))
	}
}

func (a *Auth) writeSuppressed(ctx context.Context, s *sampler, n int64) {
	if n == 0 {
		return
	}
	e := a.entry(Principal{}, "", s.action, s.outcome)
	e.AfterJSON = detail(map[string]any{"reason": "more in one minute than have entries of their own", "count": n})
	ctx, cancel := context.WithTimeout(ctx, auditFor)
	defer cancel()
	if err := a.store.Audit(ctx, e); err != nil {
		a.log.ErrorContext(ctx, "what was refused is not audited", slog.String("action", s.action), slog.Int64("count", n), slog.String("err", err.Error()))
	}
}

// entry begins an audit entry about logins and sessions.
func (a *Auth) entry(p Principal, ip, action, outcome string) *store.AuditEntry {
	e := &store.AuditEntry{At: a.clock.Now().UnixMilli(), ActorType: "user", ActorName: p.Name, Action: action, ObjectType: "session", ObjectID: p.Session, Outcome: outcome}
	if p.UserID != 0 {
		e.ActorID = fmt.Sprint(p.UserID)
	}
	if addr, ok := address(ip); ok {
		e.IP = addr.String()
	}
	return e
}

func detail(v map[string]any) *string {
	raw, err := json.Marshal(v)
	if err != nil {
		return nil
	}
	text := string(raw)
	return &text
}

// sampler lets the first refusals of a kind in a minute have entries and counts the others.
type sampler struct {
	action, outcome string
	most            int // entries in a minute

	mu         sync.Mutex
	minute     int64
	written    int
	suppressed int64
}

// admit tells whether a failure in minute has an entry of its own, and how many of the minute
// before had none.
func (s *sampler) admit(minute int64) (write bool, suppressed int64) {
	suppressed = s.passed(minute, false)
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.written < s.most {
		s.written++
		return true, suppressed
	}
	s.suppressed++
	return false, suppressed
}

// passed begins minute when another one was before, and takes the count of that one.
func (s *sampler) passed(minute int64, force bool) (suppressed int64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if minute == s.minute && !force {
		return 0
	}
	suppressed = s.suppressed
	s.suppressed = 0
	if minute != s.minute {
		s.minute, s.written = minute, 0
	}
	return suppressed
}
