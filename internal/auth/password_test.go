package auth

import (
	"context"
	"errors"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/alexedwards/argon2id"
	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"
)

func TestHashGolden_TPWD1(t *testing.T) {
	hash, err := HashPassword(good)
	require.NoError(t, err)
	require.True(t, strings.HasPrefix(hash, "$argon2id$v=19$m=19456,t=2,p=1$"), hash)
	again, err := HashPassword(good)
	require.NoError(t, err)
	require.NotEqual(t, hash, again, "the salt is random")
	// A hash that was made once must open for ever.
	const stored = "$argon2id$v=19$m=8192,t=1,p=1$MDEyMzQ1Njc4OWFiY2RlZg$drRj5MiBS97q9guYHo/9K3mg/NAkXnGwRUIYOpQz5jo"
	match, weak, err := checkHash(t.Context(), good, stored)
	require.NoError(t, err)
	require.True(t, match)
	require.True(t, weak)
	match, _, err = checkHash(t.Context(), wrong, stored)
	require.NoError(t, err)
	require.False(t, match)
	_, _, err = checkHash(t.Context(), good, "plain text")
	require.Error(t, err)
}

func TestWeakHashIsRenewedAtLogin_TPWD1(t *testing.T) {
	w := newWorld(t)
	u := w.user("ada", "", 0, "")
	old := weakHash(t)
	require.NoError(t, w.store.SetPasswordHash(t.Context(), u.ID, old))
	_, _, err := w.Login(t.Context(), "ada", wrong, home)
	require.ErrorIs(t, err, ErrCredentials)
	now, err := w.store.UserByName(t.Context(), "ada")
	require.NoError(t, err)
	require.Equal(t, old, now.PasswordHash, "a wrong password renews nothing")
	w.login("ada")
	now, err = w.store.UserByName(t.Context(), "ada")
	require.NoError(t, err)
	require.True(t, strings.HasPrefix(now.PasswordHash, "$argon2id$v=19$m=19456,t=2,p=1$"))
	w.login("ada")
	after, err := w.store.UserByName(t.Context(), "ada")
	require.NoError(t, err)
	require.Equal(t, now.PasswordHash, after.PasswordHash, "once is enough")
}

func TestManyHashesAtOnceAreBounded_TPWD2(t *testing.T) {
	slots := int64(max(2, runtime.NumCPU()))
	var busy, done atomic.Int64
	var wg sync.WaitGroup
	hash := goodHash()
	for range 200 {
		wg.Go(func() {
			switch match, _, err := checkHash(t.Context(), good, hash); {
			case errors.Is(err, ErrBusy):
				busy.Add(1)
			case err == nil && match:
				done.Add(1)
			}
		})
	}
	wg.Wait()
	require.EqualValues(t, 200, busy.Load()+done.Load(), "each was checked or told to come again")
	require.Positive(t, done.Load())
	require.LessOrEqual(t, hashing.peak.Load(), slots)
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	// Garbage of finished hashes may double what runs; 200 at once would be 3.8 GB.
	require.Less(t, m.HeapSys, uint64(slots*3*20<<20+200<<20))
}

func TestGateWaitsOnlySoLong_TPWD2(t *testing.T) {
	g := newGate(1, 10*time.Millisecond)
	inside, leave := make(chan struct{}), make(chan struct{})
	go func() { _ = g.do(context.Background(), func() error { close(inside); <-leave; return nil }) }()
	<-inside
	require.ErrorIs(t, g.do(t.Context(), func() error { return nil }), ErrBusy, "waited in vain")
	ctx, stop := context.WithCancel(t.Context())
	stop()
	g.wait = time.Hour
	require.ErrorIs(t, g.do(ctx, func() error { return nil }), context.Canceled)
	g.queue = 0
	require.ErrorIs(t, g.do(t.Context(), func() error { return nil }), ErrBusy, "the queue is full")
	close(leave)
	g.queue = 8
	require.NoError(t, g.do(t.Context(), func() error { return nil }))
}

func TestBusyIsNoFailureOfTheUser(t *testing.T) {
	w := newWorld(t)
	w.user("ada", "", 0, "")
	old := hashing
	hashing = newGate(1, time.Millisecond)
	t.Cleanup(func() { hashing = old })
	hashing.queue = 0
	for range 20 {
		_, _, err := w.Login(t.Context(), "ada", good, home)
		require.ErrorIs(t, err, ErrBusy)
	}
	hashing = old
	w.login("ada")
}

func TestUnknownUserCostsTheSame_TPWD3(t *testing.T) {
	w := newWorld(t)
	w.user("ada", "", 0, "")
	p, _, _, err := argon2id.DecodeHash(dummyHash)
	require.NoError(t, err)
	require.Equal(t, *params, *p, "the dummy has today's parameters")
	cost := func(name string) int64 {
		before := hashing.total.Load()
		_, _, err := w.Login(t.Context(), name, wrong, home)
		require.Equal(t, ErrCredentials, err)
		return hashing.total.Load() - before
	}
	require.EqualValues(t, 1, cost("ada"))
	require.EqualValues(t, 1, cost("nobody"))
	require.EqualValues(t, 1, cost(strings.Repeat("x", 10_000)))
	_, _, err = w.Login(t.Context(), "", "", "")
	require.Equal(t, ErrCredentials, err)
}

func TestCheckPassword_PWD3(t *testing.T) {
	for name, c := range map[string]struct{ user, password, code string }{
		"a phrase":                           {"ada", good, ""},
		"random letters":                     {"ada", "kzvqhwtrpxmbdgf", ""},
		"random hex":                         {"ada", "9f2c71e0b8d34a6", ""},
		"fifteen characters":                 {"ada", "tuba moss quilt", ""},
		"Chinese words":                      {"ada", "春江潮水连海平海上明月共潮生啊", ""},
		"128 characters":                     {"ada", strings.Repeat("tuba moss quilt ", 8), ""},
		"common words among others":          {"ada", "my secret otter quarries velvet", ""},
		"a name among others":                {"ada.lovelace", "lovelace otter quarries velvet", ""},
		"fourteen characters":                {"ada", "tuba moss quil", "password_too_short"},
		"nothing":                            {"ada", "", "password_too_short"},
		"29 bytes that are 14 characters":    {"ada", strings.Repeat("é", 14) + "", "password_too_short"},
		"combining marks do not count twice": {"ada", strings.Repeat("e\u0301", 14), "password_too_short"},
		"129 characters":                     {"ada", strings.Repeat("tuba moss quilt ", 8) + "x", "password_too_long"},
		"bytes":                              {"ada", "tuba moss quilt \xff\xfe", "password_not_text"},
		"a control character":                {"ada", "tuba moss quilt\x00x", "password_not_text"},
		"a common word twice":                {"ada", "passwordpassword", "password_common"},
		"with digits and a sign":             {"ada", "Password1234567!", "password_common"},
		"in other letters":                   {"ada", "P@ssw0rdP@55w0rd", "password_common"},
		"one character":                      {"ada", strings.Repeat("z", 20), "password_common"},
		"digits in order":                    {"ada", "123456789012345", "password_common"},
		"letters in order":                   {"ada", "abcdefghijklmnop", "password_common"},
		"keyboard rows":                      {"ada", "qwertyuiopasdfghjkl", "password_common"},
		"a short piece again and again":      {"ada", "xk7xk7xk7xk7xk7xk7", "password_common"},
		"the product":                        {"ada", "ax-scheduler-admin-1", "password_common"},
		"product and year":                   {"ada", "AxScheduler2026!!", "password_common"},
		"the user's name":                    {"lovelace", "lovelace-lovelace", "password_common"},
		"part of the user's name":            {"ada.lovelace", "Lovelace12345678", "password_common"},
		"the well-known phrase":              {"ada", "correct horse battery staple", "password_common"},
		"the well-known start":               {"ada", "changeme-changeme", "password_common"},
	} {
		t.Run(name, func(t *testing.T) {
			got := CheckPassword(c.user, c.password)
			if c.code == "" {
				require.Nil(t, got)
				return
			}
			require.NotNil(t, got)
			require.Equal(t, c.code, got.Code)
			require.Equal(t, "password", got.Field)
			require.NotEmpty(t, got.Message.EN)
			require.NotEmpty(t, got.Message.ZH)
			if len(c.password) > 3 {
				require.NotContains(t, got.Error(), c.password, "the password is not repeated")
			}
		})
	}
}

func TestCheckPasswordProperty(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		name, password := rapid.String().Draw(t, "name"), rapid.String().Draw(t, "password")
		if CheckPassword(name, password) == nil && utf8.RuneCountInString(password) < minPassword {
			t.Fatal("accepted")
		}
		_ = CheckUserName(name)
	})
}

func TestPasswordIsComparedInOneForm_PWD3(t *testing.T) {
	hash, err := HashPassword("caf\u00e9 otter quarries")
	require.NoError(t, err)
	match, _, err := checkHash(t.Context(), "cafe\u0301 otter quarries", hash)
	require.NoError(t, err)
	require.True(t, match)
	// Every character counts, also the last of a long password.
	long := strings.Repeat("tuba moss quilt ", 8)
	hash, err = HashPassword(long)
	require.NoError(t, err)
	match, _, err = checkHash(t.Context(), long[:127]+"x", hash)
	require.NoError(t, err)
	require.False(t, match)
}

func TestCheckUserName(t *testing.T) {
	for _, name := range []string{"ada", "a", "Ada.Lovelace", "ada@example.com", "0", strings.Repeat("x", 64)} {
		require.Nil(t, CheckUserName(name), name)
	}
	for _, name := range []string{"", ".ada", "a b", "u:1", "r:admin", "ada\n", "ádá", "\xff", strings.Repeat("x", 65)} {
		got := CheckUserName(name)
		require.NotNil(t, got, name)
		require.Equal(t, "name", got.Field)
		require.True(t, utf8.ValidString(got.Token))
	}
}
