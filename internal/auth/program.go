package auth

import (
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"hash/crc32"
	"slices"
	"strings"
	"time"

	"github.com/ax-scheduler/ax/internal/store"
)

// Tokens of programs: axt_, 64 hexadecimal digits of chance and 8 of a check sum, which tells a
// slip of the pen without a question to anybody.
const (
	programPrefix = "axt_"
	programDigits = 64
	sumDigits     = 8
)

// MaxProgramLife is the longest life of a program's token.
const MaxProgramLife = 366 * 24 * time.Hour

// scopes are what a program's token may be made for, and the rights that each brings.
var scopes = map[string][]Permission{ //nolint:gochecknoglobals // constant
	"events.send": {EventCreate},
}

// Scopes lists the names of all scopes.
func Scopes() []string {
	out := make([]string, 0, len(scopes))
	for name := range scopes {
		out = append(out, name)
	}
	slices.Sort(out)
	return out
}

// NewProgramToken makes a token, which is shown once, and its hash, which is kept.
func NewProgramToken() (token, hash string) {
	var b [programDigits / 2]byte
	_, _ = rand.Read(b[:])
	digits := hex.EncodeToString(b[:])
	token = programPrefix + digits + sum(digits)
	return token, hashOf(token)
}

func sum(digits string) string { return fmt.Sprintf("%08x", crc32.ChecksumIEEE([]byte(digits))) }

func hashOf(token string) string {
	h := sha256.Sum256([]byte(token))
	return hex.EncodeToString(h[:])
}

// program is a token as a snapshot holds it.
type program struct {
	id, ns    int64
	name      string
	expiresAt int64
	may       []Permission
}

// programs are the tokens of programs, by hash and by id.
type programs struct {
	byHash map[string]*program
	byID   map[int64]*program
}

func newPrograms(list []store.Token) programs {
	p := programs{byHash: make(map[string]*program, len(list)), byID: make(map[int64]*program, len(list))}
	for _, t := range list {
		one := &program{id: t.ID, ns: t.NSID, name: t.Name, expiresAt: t.ExpiresAt}
		for scope := range strings.SplitSeq(t.Scopes, ",") {
			one.may = append(one.may, scopes[scope]...) // a scope of a newer release brings nothing
		}
		p.byHash[t.Hash], p.byID[t.ID] = one, one
	}
	return p
}

// verifyProgram finds whose token it is.
func (a *Auth) verifyProgram(token string) (Principal, error) {
	digits := strings.TrimPrefix(token, programPrefix)
	if len(digits) != programDigits+sumDigits || sum(digits[:programDigits]) != digits[programDigits:] {
		return Principal{}, ErrToken
	}
	s := a.snapshot.Load()
	if s == nil || a.age() > readFor {
		return Principal{}, fmt.Errorf("verify token: rights are too old: %w", store.ErrUnavailable)
	}
	p := s.programs.byHash[hashOf(token)]
	if p == nil || p.expiresAt <= a.clock.Now().UnixMilli() {
		return Principal{}, ErrToken
	}
	return Principal{TokenID: p.id, Name: p.name}, nil
}

// programMay tells whether a program's token brings perm in ns.
func (s *snapshot) programMay(p Principal, ns int64, perm Permission) bool {
	t := s.programs.byID[p.TokenID]
	return t != nil && ns != 0 && t.ns == ns && slices.Contains(t.may, perm)
}
