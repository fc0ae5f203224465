package auth

import (
	"context"
	"crypto/ed25519"
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"hash/crc32"
	"math/big"
	"slices"
	"strings"
	"time"

	"github.com/golang-jwt/jwt/v5"

	"github.com/ax-scheduler/ax/internal/seal"
	"github.com/ax-scheduler/ax/internal/store"
)

// What an access token says of itself.
const (
	issuer    = "ax"
	audience  = "ax-api"
	tokenType = "ax-at+jwt"
	accessFor = 10 * time.Minute
	// leeway is for servers whose clocks differ.
	leeway = 30 * time.Second
	// maxAccess bounds what is parsed at all; ours have about 450 bytes.
	maxAccess = 2048
)

// Prefixes of opaque tokens: with the checksum at the end they can be found in leaked text.
const (
	prefixRefresh = "axr_"
	prefixSetup   = "axb_"
)

const (
	base62   = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"
	bodyLen  = 43 // 32 bytes in base 62
	checkLen = 6  // 32 bits in base 62
)

// opaque writes 32 secret bytes as prefix, body and checksum.
func opaque(prefix string, secret [32]byte) string {
	body := prefix + digits(new(big.Int).SetBytes(secret[:]), bodyLen)
	return body + digits(big.NewInt(int64(crc32.ChecksumIEEE([]byte(body)))), checkLen)
}

func newOpaque(prefix string) string {
	var secret [32]byte
	_, _ = rand.Read(secret[:])
	return opaque(prefix, secret)
}

// wellFormed tells whether text can be a token of this prefix at all, without asking the database.
func wellFormed(prefix, text string) bool {
	if len(text) != len(prefix)+bodyLen+checkLen || !strings.HasPrefix(text, prefix) {
		return false
	}
	body := text[:len(prefix)+bodyLen]
	return text[len(body):] == digits(big.NewInt(int64(crc32.ChecksumIEEE([]byte(body)))), checkLen)
}

func digits(n *big.Int, width int) string {
	out := make([]byte, width)
	base, rest := big.NewInt(int64(len(base62))), new(big.Int)
	for i := width - 1; i >= 0; i-- {
		n.QuoRem(n, base, rest)
		out[i] = base62[rest.Int64()]
	}
	return string(out)
}

// hashToken is what the database keeps of an opaque token. 256 random bits need no slow hash.
func hashToken(text string) string {
	sum := sha256.Sum256([]byte(text))
	return hex.EncodeToString(sum[:])
}

// keys are the installation's: the first of signing signs, all of them verify, refresh derives
// successors of refresh tokens.
type keys struct {
	kid     string
	private ed25519.PrivateKey
	public  map[string]ed25519.PublicKey
	refresh []byte
}

// storedKeys is their form under the seal.
type storedKeys struct {
	Signing []storedKey `json:"signing"`
	Refresh []byte      `json:"refresh"`
}

type storedKey struct {
	ID   string `json:"id"`
	Seed []byte `json:"seed"`
}

const keysName = "auth.keys"

func loadKeys(ctx context.Context, s *store.Store, sealer *seal.Sealer) (*keys, error) {
	sealed, err := s.Value(ctx, keysName)
	if errors.Is(err, store.ErrNotFound) {
		made := storedKeys{Signing: []storedKey{newStoredKey()}, Refresh: make([]byte, 32)}
		_, _ = rand.Read(made.Refresh)
		plain, err := json.Marshal(made)
		if err != nil {
			return nil, fmt.Errorf("make signing keys: %w", err)
		}
		own, err := sealer.Seal(keysName, plain)
		if err != nil {
			return nil, fmt.Errorf("seal signing keys: %w", err)
		}
		// Another server may have been faster: what is there counts.
		if sealed, err = s.InitValue(ctx, keysName, own); err != nil {
			return nil, fmt.Errorf("store signing keys: %w", err)
		}
	} else if err != nil {
		return nil, fmt.Errorf("read signing keys: %w", err)
	}
	plain, err := sealer.Open(keysName, sealed)
	if err != nil {
		return nil, fmt.Errorf("open signing keys: %w", err)
	}
	var got storedKeys
	if err := json.Unmarshal(plain, &got); err != nil {
		return nil, fmt.Errorf("read signing keys: %w", err)
	}
	return got.keys()
}

func newStoredKey() storedKey {
	seed := make([]byte, ed25519.SeedSize)
	_, _ = rand.Read(seed)
	return storedKey{ID: newID()[:16], Seed: seed}
}

func (s storedKeys) keys() (*keys, error) {
	if len(s.Signing) == 0 || len(s.Refresh) != 32 {
		return nil, errors.New("signing keys in the database are incomplete")
	}
	k := &keys{public: map[string]ed25519.PublicKey{}, refresh: s.Refresh}
	for i, one := range s.Signing {
		if len(one.Seed) != ed25519.SeedSize || one.ID == "" {
			return nil, errors.New("signing keys in the database are incomplete")
		}
		private := ed25519.NewKeyFromSeed(one.Seed)
		k.public[one.ID] = ed25519.PublicKey(private[ed25519.SeedSize:])
		if i == 0 {
			k.kid, k.private = one.ID, private
		}
	}
	return k, nil
}

// successor derives the token that follows token. Whoever holds token can be given the same
// successor again, and the database, which has only the nonce, can not tell it.
func (k *keys) successor(token, nonce string) string {
	mac := hmac.New(sha256.New, k.refresh)
	_, _ = fmt.Fprintf(mac, "successor|%s|%s", nonce, token)
	return opaque(prefixRefresh, [32]byte(mac.Sum(nil)))
}

type claims struct {
	jwt.RegisteredClaims
	Session     string `json:"sid"`
	AuthVersion int64  `json:"av"`
}

// access signs an access token for p.
func (a *Auth) access(p Principal, now time.Time) (string, error) {
	k := a.keys.Load()
	if k == nil {
		return "", errors.New("sign token: keys are not loaded")
	}
	t := jwt.NewWithClaims(jwt.SigningMethodEdDSA, claims{
		RegisteredClaims: jwt.RegisteredClaims{
			Issuer: issuer, Audience: jwt.ClaimStrings{audience}, Subject: subject(p.UserID), ID: newID(),
			IssuedAt: jwt.NewNumericDate(now), ExpiresAt: jwt.NewNumericDate(now.Add(accessFor)),
		},
		Session: p.Session, AuthVersion: p.AuthVersion,
	})
	t.Header["typ"], t.Header["kid"] = tokenType, k.kid
	text, err := t.SignedString(k.private)
	if err != nil {
		return "", fmt.Errorf("sign token: %w", err)
	}
	return text, nil
}

// Verify tells whose access token this is. It is the only place that accepts one. ErrToken:
// not ours, damaged, expired, or its user is suspended or logged out. store.ErrUnavailable:
// rights could not be read for a minute, so nobody can be told apart from one who was removed.
func (a *Auth) Verify(token string) (Principal, error) {
	if strings.HasPrefix(token, programPrefix) {
		return a.verifyProgram(token)
	}
	var c claims
	if err := a.parse(token, &c); err != nil {
		return Principal{}, ErrToken
	}
	user, ok := userOf(c.Subject)
	if !ok || c.Session == "" {
		return Principal{}, ErrToken
	}
	s := a.snapshot.Load()
	if s == nil || a.age() > readFor {
		return Principal{}, fmt.Errorf("verify token: rights are too old: %w", store.ErrUnavailable)
	}
	u := s.users[user]
	if u == nil || u.authVersion < c.AuthVersion {
		// Another server signed it and knows more than this one. Since the signature is good,
		// nobody outside can cause this read at will.
		ctx, cancel := context.WithTimeout(context.Background(), settleTimeout)
		defer cancel()
		if err := a.Sync(ctx); err != nil {
			return Principal{}, fmt.Errorf("verify token: %w", err)
		}
		u = a.snapshot.Load().users[user]
	}
	if u == nil || !u.active || u.authVersion != c.AuthVersion {
		return Principal{}, ErrToken
	}
	return Principal{UserID: user, Name: u.name, DisplayName: u.displayName, AuthVersion: u.authVersion, Session: c.Session}, nil
}

// parse checks everything about a token that does not depend on users.
func (a *Auth) parse(token string, c *claims) error {
	k := a.keys.Load()
	// The decoder skips line ends; one token has one spelling.
	if k == nil || len(token) > maxAccess || strings.ContainsAny(token, "\r\n") {
		return ErrToken
	}
	parser := jwt.NewParser(jwt.WithValidMethods([]string{jwt.SigningMethodEdDSA.Alg()}), jwt.WithIssuer(issuer), jwt.WithAudience(audience),
		jwt.WithExpirationRequired(), jwt.WithIssuedAt(), jwt.WithLeeway(leeway), jwt.WithTimeFunc(a.clock.Now), jwt.WithStrictDecoding())
	_, err := parser.ParseWithClaims(token, c, func(t *jwt.Token) (any, error) {
		// The header is a closed form: no jku, x5u, jwk or crit gets as far as being ignored.
		if len(t.Header) != 3 || t.Header["typ"] != tokenType {
			return nil, ErrToken
		}
		kid, _ := t.Header["kid"].(string)
		key, ok := k.public[kid]
		if !ok {
			return nil, ErrToken
		}
		return key, nil
	})
	if err != nil {
		return err
	}
	// A token that lives longer than we ever sign for was not made by access.
	if c.IssuedAt == nil || c.ExpiresAt.Sub(c.IssuedAt.Time) > accessFor || !slices.Equal(c.Audience, jwt.ClaimStrings{audience}) {
		return ErrToken
	}
	return nil
}
