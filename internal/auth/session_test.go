package auth

import (
	"context"
	"crypto/ed25519"
	"crypto/rand"
	"crypto/rsa"
	"crypto/x509"
	"encoding/base64"
	"encoding/json"
	"encoding/pem"
	"maps"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/golang-jwt/jwt/v5"
	"github.com/stretchr/testify/require"

	"github.com/ax-scheduler/ax/internal/seal"
)

// forge signs claims of any kind.
func forge(t testing.TB, method jwt.SigningMethod, key any, header map[string]any, body jwt.MapClaims) string {
	t.Helper()
	token := jwt.NewWithClaims(method, body)
	for k, v := range header {
		if v == nil {
			delete(token.Header, k)
			continue
		}
		token.Header[k] = v
	}
	text, err := token.SignedString(key)
	require.NoError(t, err)
	return text
}

func with(m map[string]any, k string, v any) map[string]any {
	out := map[string]any{}
	maps.Copy(out, m)
	if v == nil {
		delete(out, k)
	} else {
		out[k] = v
	}
	return out
}

func TestVerifyRefusesForgeries_TSES1to12(t *testing.T) {
	w := newWorld(t)
	u := w.user("ada", "", 0, "")
	k := w.keys.Load()
	public := k.public[k.kid]
	der, err := x509.MarshalPKIXPublicKey(public)
	require.NoError(t, err)
	asPEM := pem.EncodeToMemory(&pem.Block{Type: "PUBLIC KEY", Bytes: der})
	rsaKey, err := rsa.GenerateKey(rand.Reader, 2048)
	require.NoError(t, err)
	_, other, err := ed25519.GenerateKey(nil)
	require.NoError(t, err)
	// A second key that verifies: a token may not claim one and be signed by the other.
	secondPublic, second, err := ed25519.GenerateKey(nil)
	require.NoError(t, err)
	k.public["second"] = secondPublic

	now := w.clock.Now()
	header := map[string]any{"typ": tokenType, "kid": k.kid}
	body := map[string]any{
		"iss": issuer, "aud": audience, "sub": subject(u.ID), "sid": "s", "av": 1, "jti": "j",
		"iat": now.Unix(), "exp": now.Add(accessFor).Unix(),
	}
	eddsa := func(header, body map[string]any) string {
		return forge(t, jwt.SigningMethodEdDSA, k.private, header, body)
	}
	none := func(alg string) string {
		part := func(v any) string {
			raw, err := json.Marshal(v)
			require.NoError(t, err)
			return base64.RawURLEncoding.EncodeToString(raw)
		}
		return part(with(header, "alg", alg)) + "." + part(body) + "."
	}

	_, err = w.Verify(eddsa(header, body))
	require.NoError(t, err, "what all the others differ from by one thing")
	_, err = w.Verify(forge(t, jwt.SigningMethodEdDSA, second, with(header, "kid", "second"), body))
	require.NoError(t, err, "each key verifies its own")
	_, err = w.Verify(eddsa(header, with(body, "aud", []string{audience})))
	require.NoError(t, err)

	for name, token := range map[string]string{
		"SES-1 alg none":                      none("none"),
		"SES-1 alg None":                      none("None"),
		"SES-1 EdDSA without a signature":     none("EdDSA"),
		"SES-2 HS256 with the PEM as secret":  forge(t, jwt.SigningMethodHS256, asPEM, header, body),
		"SES-3 HS256 with the raw public key": forge(t, jwt.SigningMethodHS256, []byte(public), header, body),
		"SES-4 RS256":                         forge(t, jwt.SigningMethodRS256, rsaKey, header, body),
		"SES-4 PS512":                         forge(t, jwt.SigningMethodPS512, rsaKey, header, body),
		"SES-5 EdDSA with another key":        forge(t, jwt.SigningMethodEdDSA, other, header, body),
		"SES-6 kid of another of our keys":    eddsa(with(header, "kid", "second"), body),
		"SES-6 unknown kid":                   eddsa(with(header, "kid", "third"), body),
		"SES-6 no kid":                        eddsa(with(header, "kid", nil), body),
		"SES-6 kid is a number":               eddsa(with(header, "kid", 1), body),
		"SES-6 kid is a path":                 eddsa(with(header, "kid", "../../dev/null"), body),
		"SES-6 jku":                           eddsa(with(header, "jku", "https://evil.example/jwks"), body),
		"SES-6 x5u":                           eddsa(with(header, "x5u", "https://evil.example/cert"), body),
		"SES-6 embedded jwk": forge(t, jwt.SigningMethodEdDSA, other, with(header, "jwk", map[string]any{
			"kty": "OKP", "crv": "Ed25519", "x": base64.RawURLEncoding.EncodeToString(other.Public().(ed25519.PublicKey)),
		}), body),
		"SES-6 crit":                  eddsa(with(header, "crit", []string{"exp"}), body),
		"SES-7 no exp":                eddsa(header, with(body, "exp", nil)),
		"SES-7 exp is text":           eddsa(header, with(body, "exp", "never")),
		"SES-8 exp in a year":         eddsa(header, with(body, "exp", now.AddDate(1, 0, 0).Unix())),
		"SES-8 exp in a year, no iat": eddsa(header, with(with(body, "exp", now.AddDate(1, 0, 0).Unix()), "iat", nil)),
		"SES-8 one second longer":     eddsa(header, with(body, "exp", now.Add(accessFor+time.Second).Unix())),
		"SES-8 from the future":       eddsa(header, with(with(body, "iat", now.Add(time.Minute).Unix()), "exp", now.Add(time.Minute+accessFor).Unix())),
		"SES-9 another audience":      eddsa(header, with(body, "aud", "ax-executor")),
		"SES-9 one audience too many": eddsa(header, with(body, "aud", []string{audience, "other"})),
		"SES-9 no audience":           eddsa(header, with(body, "aud", nil)),
		"SES-9 another issuer":        eddsa(header, with(body, "iss", "evil")),
		"SES-9 no issuer":             eddsa(header, with(body, "iss", nil)),
		"SES-10 typ JWT":              eddsa(with(header, "typ", "JWT"), body),
		"SES-10 no typ":               eddsa(with(header, "typ", nil), body),
		"SES-10 a refresh token":      newOpaque(prefixRefresh),
		"SES-10 a setup token":        newOpaque(prefixSetup),
		"SES-11 expired by 31 s":      eddsa(header, with(with(body, "iat", now.Add(-accessFor-31*time.Second).Unix()), "exp", now.Add(-31*time.Second).Unix())),
		"subject of a service":        eddsa(header, with(body, "sub", "s:1")),
		"subject like a role":         eddsa(header, with(body, "sub", "r:admin")),
		"subject of nobody":           eddsa(header, with(body, "sub", "u:77")),
		"subject zero":                eddsa(header, with(body, "sub", "u:0")),
		"no subject":                  eddsa(header, with(body, "sub", nil)),
		"no session":                  eddsa(header, with(body, "sid", nil)),
		"an older version":            eddsa(header, with(body, "av", 0)),
		"a newer version":             eddsa(header, with(body, "av", 2)),
		"version is text":             eddsa(header, with(body, "av", "1")),
		"nothing":                     "",
		"two dots":                    "..",
		"very long":                   strings.Repeat("a", 1<<20),
		"bearer prefix":               "Bearer " + eddsa(header, body),
		"with white space":            eddsa(header, body) + "\n",
	} {
		t.Run(name, func(t *testing.T) {
			p, err := w.Verify(token)
			require.ErrorIs(t, err, ErrToken)
			require.Zero(t, p)
		})
	}

	almost := eddsa(header, with(with(body, "iat", now.Add(-accessFor-29*time.Second).Unix()), "exp", now.Add(-29*time.Second).Unix()))
	_, err = w.Verify(almost)
	require.NoError(t, err, "clocks of two servers may differ by half a minute")
}

func TestVerifyRefusesEveryFlippedByte_TSES12(t *testing.T) {
	w := newWorld(t)
	w.user("ada", "", 0, "")
	tokens, _ := w.login("ada")
	for i := range len(tokens.Access) {
		for _, mask := range []byte{1, 2, 4, 8, 16, 32, 64, 128} {
			changed := []byte(tokens.Access)
			changed[i] ^= mask
			_, err := w.Verify(string(changed))
			require.ErrorIs(t, err, ErrToken, "byte %d ^ %d", i, mask)
		}
	}
}

func TestAccessTokenSaysWhoAndNotWhat_SES1(t *testing.T) {
	w := newWorld(t)
	u := w.user("ada", PlatformAdmin, 3, RoleAdmin)
	tokens, p := w.login("ada")
	var c jwt.MapClaims
	parsed, _, err := jwt.NewParser().ParseUnverified(tokens.Access, &c)
	require.NoError(t, err)
	require.Equal(t, map[string]any{"alg": "EdDSA", "typ": "ax-at+jwt", "kid": w.keys.Load().kid}, parsed.Header)
	keys := []string{}
	for k := range c {
		keys = append(keys, k)
	}
	require.ElementsMatch(t, []string{"iss", "aud", "sub", "sid", "jti", "av", "iat", "exp"}, keys)
	require.Equal(t, subject(u.ID), c["sub"])
	require.Equal(t, p.Session, c["sid"])
	require.NotContains(t, tokens.Access, "admin")
}

func TestAccessTokenExpires(t *testing.T) {
	w := newWorld(t)
	w.user("ada", "", 0, "")
	tokens, _ := w.login("ada")
	w.clock.Advance(accessFor + leeway - time.Second)
	_, err := w.Verify(tokens.Access)
	require.NoError(t, err)
	w.clock.Advance(2 * time.Second)
	_, err = w.Verify(tokens.Access)
	require.ErrorIs(t, err, ErrToken)
}

func TestRefreshReplayEndsTheFamily_TSES20(t *testing.T) {
	w := newWorld(t)
	u := w.user("ada", "", 0, "")
	stolen, _ := w.login("ada")
	elsewhere, _ := w.login("ada")
	mine, _, err := w.Refresh(t.Context(), stolen.Refresh, home)
	require.NoError(t, err)
	w.clock.Advance(grace + time.Second)
	_, p, err := w.Refresh(t.Context(), stolen.Refresh, "203.0.113.9")
	require.ErrorIs(t, err, ErrToken)
	require.Zero(t, p)
	_, _, err = w.Refresh(t.Context(), mine.Refresh, home)
	require.ErrorIs(t, err, ErrToken, "the successor is dead too")
	_, err = w.Verify(mine.Access)
	require.ErrorIs(t, err, ErrToken, "and its access token")
	reuse := w.trail("session.reuse")
	require.Len(t, reuse, 1)
	require.Equal(t, "203.0.113.9", reuse[0].IP)
	require.Equal(t, "ada", reuse[0].ActorName)
	_, p, err = w.Refresh(t.Context(), elsewhere.Refresh, home)
	require.NoError(t, err, "another login of the same person goes on")
	require.Equal(t, u.ID, p.UserID)
}

func TestUsedTokenGivesTheSameSuccessorForTenSeconds_SES2(t *testing.T) {
	w := newWorld(t)
	w.user("ada", "", 0, "")
	tokens, _ := w.login("ada")
	one, _, err := w.Refresh(t.Context(), tokens.Refresh, home)
	require.NoError(t, err)
	w.clock.Advance(grace)
	two, _, err := w.Refresh(t.Context(), tokens.Refresh, home)
	require.NoError(t, err)
	require.Equal(t, one.Refresh, two.Refresh)
	_, err = w.Verify(two.Access)
	require.NoError(t, err)
	require.Equal(t, idleFor-grace, two.RefreshFor)
	three, _, err := w.Refresh(t.Context(), two.Refresh, home)
	require.NoError(t, err)
	require.NotEqual(t, two.Refresh, three.Refresh)
	require.Empty(t, w.trail("session.reuse"))
}

func TestTwoTabsRefreshAtOnce_SES2(t *testing.T) {
	w := newWorld(t)
	w.user("ada", "", 0, "")
	other := newWorldIn(t, w.dir, w.clock)
	tokens, _ := w.login("ada")
	const n = 12
	var got [n]string
	var wg sync.WaitGroup
	for i := range n {
		wg.Go(func() {
			server := []*world{w, other}[i%2]
			next, _, err := server.Refresh(context.Background(), tokens.Refresh, home)
			if err == nil {
				got[i] = next.Refresh
			}
		})
	}
	wg.Wait()
	require.NotEmpty(t, got[0])
	for i := range n {
		require.Equal(t, got[0], got[i])
	}
}

func TestRefreshTokensExpire_SES2(t *testing.T) {
	w := newWorld(t)
	w.user("ada", "", 0, "")
	idle, _ := w.login("ada")
	w.clock.Advance(idleFor)
	_, _, err := w.Refresh(t.Context(), idle.Refresh, home)
	require.ErrorIs(t, err, ErrToken)

	busy, _ := w.login("ada")
	used := 0
	for spent := 7 * time.Hour; spent < absoluteFor; spent += 7 * time.Hour {
		w.clock.Advance(7 * time.Hour)
		next, _, err := w.Refresh(t.Context(), busy.Refresh, home)
		require.NoError(t, err)
		require.LessOrEqual(t, next.RefreshFor, absoluteFor-spent)
		busy, used = next, used+1
	}
	require.Equal(t, 23, used)
	w.clock.Advance(7 * time.Hour)
	_, _, err = w.Refresh(t.Context(), busy.Refresh, home)
	require.ErrorIs(t, err, ErrToken, "seven days are all")
	require.Empty(t, w.trail("session.reuse"))

	w.clock.Advance(time.Second)
	w.login("ada")
	var left int
	require.NoError(t, w.raw.QueryRowContext(t.Context(), "SELECT COUNT(*) FROM session").Scan(&left))
	require.Equal(t, 1, left, "a login sweeps what expired")
}

func TestSuspendedUserIsOut_TSES21(t *testing.T) {
	w := newWorld(t)
	u := w.user("ada", PlatformAdmin, 3, RoleAdmin)
	tokens, p := w.login("ada")
	w.exec("UPDATE user_account SET status = 'suspended' WHERE id = ?", u.ID)
	require.NoError(t, w.Sync(t.Context()))
	_, err := w.Verify(tokens.Access)
	require.ErrorIs(t, err, ErrToken)
	_, _, err = w.Refresh(t.Context(), tokens.Refresh, home)
	require.ErrorIs(t, err, ErrToken)
	_, _, err = w.Login(t.Context(), "ada", good, home)
	require.Equal(t, ErrCredentials, err)
	require.False(t, w.Allowed(p, 3, JobRead))
	require.False(t, w.Allowed(p, 0, NamespaceCreate))
	require.Empty(t, w.Permissions(p, 3))
	platform, in := w.Roles(p)
	require.Empty(t, platform)
	require.Empty(t, in)
}

func TestDatabaseHoldsNoToken(t *testing.T) {
	w := newWorld(t)
	w.user("ada", "", 0, "")
	setup, _, err := newWorld(t).SetupToken(t.Context())
	require.NoError(t, err)
	require.Regexp(t, `^axb_[0-9A-Za-z]{49}$`, setup)
	tokens, _ := w.login("ada")
	require.Regexp(t, `^axr_[0-9A-Za-z]{49}$`, tokens.Refresh)
	next, _, err := w.Refresh(t.Context(), tokens.Refresh, home)
	require.NoError(t, err)
	rows, err := w.raw.QueryContext(t.Context(), "SELECT id || token_hash || family || successor FROM session UNION ALL SELECT value FROM ax_value UNION ALL SELECT object_id || COALESCE(after_json, '') FROM audit_log")
	require.NoError(t, err)
	defer func() { require.NoError(t, rows.Close()) }()
	for rows.Next() {
		var text string
		require.NoError(t, rows.Scan(&text))
		for _, secret := range []string{tokens.Refresh, next.Refresh, tokens.Access, "axr_", good} {
			require.NotContains(t, text, secret)
		}
	}
	require.NoError(t, rows.Err())
	require.NotContains(t, w.log.String(), "axr_")
}

func TestDamagedTokenIsRefusedWithoutTheDatabase(t *testing.T) {
	w := newWorld(t)
	good := newOpaque(prefixRefresh)
	require.True(t, wellFormed(prefixRefresh, good))
	require.False(t, wellFormed(prefixSetup, good))
	require.NoError(t, w.store.Close())
	for i := range len(good) {
		changed := []byte(good)
		changed[i] = base62[(strings.IndexByte(base62, changed[i])+1)%62]
		_, _, err := w.Refresh(t.Context(), string(changed), home)
		require.Equal(t, ErrToken, err, "a typo at %d", i)
	}
	_, _, err := w.Refresh(t.Context(), good, home)
	require.NotErrorIs(t, err, ErrToken, "this one is asked for")
	require.NoError(t, w.Logout(t.Context(), "axr_short"))
}

func TestServersAgreeOnKeys_SES5(t *testing.T) {
	a := newWorld(t)
	b := newWorldIn(t, a.dir, a.clock)
	require.Equal(t, a.keys.Load(), b.keys.Load())
	a.user("ada", "", 0, "")
	// b learns of her, and of her later versions, from the tokens that a signs.
	tokens, p := a.login("ada")
	got, err := b.Verify(tokens.Access)
	require.NoError(t, err)
	require.Equal(t, p, got)
	require.NoError(t, a.Logout(t.Context(), tokens.Refresh))
	again, p := a.login("ada")
	require.EqualValues(t, 2, p.AuthVersion)
	got, err = b.Verify(again.Access)
	require.NoError(t, err)
	require.Equal(t, p, got)
	_, err = b.Verify(tokens.Access)
	require.ErrorIs(t, err, ErrToken)

	other, err := seal.New([]byte("0123456789abcdefghijklmnopqrstuv"))
	require.NoError(t, err)
	b.sealer = other
	require.ErrorIs(t, b.Load(t.Context()), seal.ErrOtherKey)
	require.NoError(t, a.store.ReplaceValue(t.Context(), keysName, "nonsense"))
	require.ErrorIs(t, a.Load(t.Context()), seal.ErrDamaged)
	empty, err := a.sealer.Seal(keysName, []byte(`{}`))
	require.NoError(t, err)
	require.NoError(t, a.store.ReplaceValue(t.Context(), keysName, empty))
	require.ErrorContains(t, a.Load(t.Context()), "incomplete")
}

func TestServersThatStartAtOnceAgreeOnKeys_SES5(t *testing.T) {
	w := newWorld(t)
	_, err := w.raw.ExecContext(t.Context(), "DELETE FROM ax_value")
	require.NoError(t, err)
	const n = 6
	var ids [n]string
	var wg sync.WaitGroup
	for i := range n {
		wg.Go(func() {
			if k, err := loadKeys(context.Background(), w.store, w.sealer); err == nil {
				ids[i] = k.kid
			}
		})
	}
	wg.Wait()
	require.NotEmpty(t, ids[0])
	for i := range n {
		require.Equal(t, ids[0], ids[i])
	}
}

func TestNothingBeforeLoad(t *testing.T) {
	w := newWorld(t)
	a := New(Config{Store: w.store, Sealer: w.sealer, Clock: w.clock, Metrics: w.metrics, Log: w.Auth.log})
	_, err := a.Verify("x.y.z")
	require.ErrorIs(t, err, ErrToken)
	_, _, err = a.Refresh(t.Context(), newOpaque(prefixRefresh), home)
	require.ErrorIs(t, err, ErrToken)
	require.False(t, a.Fresh())
}

func FuzzVerify(f *testing.F) {
	public, private, err := ed25519.GenerateKey(nil)
	require.NoError(f, err)
	w := New(Config{Clock: fixed{}})
	w.keys.Store(&keys{kid: "k", private: private, public: map[string]ed25519.PublicKey{"k": public}})
	w.snapshot.Store(&snapshot{users: map[int64]*account{1: {name: "ada", active: true, authVersion: 1}}})
	w.elapsed = func() time.Duration { return 0 }
	token, err := w.access(Principal{UserID: 1, AuthVersion: 1, Session: "s"}, fixed{}.Now())
	require.NoError(f, err)
	_, err = w.Verify(token)
	require.NoError(f, err)
	f.Add(token)
	f.Add(token[:len(token)-2])
	f.Add("eyJhbGciOiJub25lIn0.e30.")
	f.Add("..")
	f.Fuzz(func(t *testing.T, text string) {
		if p, err := w.Verify(text); err == nil && text != token {
			t.Fatalf("took %q for %v", text, p)
		}
	})
}

// fixed is a clock that stands.
type fixed struct{}

func (fixed) Now() time.Time { return time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC) }
