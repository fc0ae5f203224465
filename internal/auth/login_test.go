package auth

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/ax-scheduler/ax/internal/store"
)

func TestManyGuessesFromOneSource_TLOG1(t *testing.T) {
	for name, c := range map[string]struct{ source, account func(i int) string }{
		"one account":             {func(int) string { return home }, func(int) string { return "ada" }},
		"an account each":         {func(int) string { return home }, func(i int) string { return fmt.Sprint("user", i) }},
		"an address of a /64":     {func(i int) string { return fmt.Sprintf("2001:db8::%x", i+1) }, func(i int) string { return fmt.Sprint("user", i) }},
		"IPv4 written as IPv6":    {func(i int) string { return []string{home, "::ffff:" + home}[i%2] }, func(i int) string { return fmt.Sprint("user", i) }},
		"no address that is one":  {func(i int) string { return fmt.Sprint("host-", i) }, func(i int) string { return fmt.Sprint("user", i) }},
		"an address with a zone ": {func(i int) string { return fmt.Sprintf("fe80::1%%eth%d", i) }, func(i int) string { return fmt.Sprint("user", i) }},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			w.user("ada", "", 0, "")
			before := hashing.total.Load()
			for i := range 100 {
				_, _, err := w.Login(t.Context(), c.account(i), wrong, c.source(i))
				require.ErrorIs(t, err, ErrCredentials)
				require.Equal(t, ErrCredentials.Error(), err.Error(), "LOG-2: all read alike")
				w.clock.Advance(300 * time.Millisecond)
			}
			require.LessOrEqual(t, hashing.total.Load()-before, int64(12), "five quick ones, then 1, 2, 4, 8, 16 s")
		})
	}
}

func TestThousandGuessesAtOnce_TLOG1(t *testing.T) {
	w := newWorld(t)
	w.user("ada", "", 0, "")
	before := hashing.total.Load()
	guess := make(chan int)
	var wg sync.WaitGroup
	for range 16 {
		wg.Go(func() {
			for range guess {
				_, _, _ = w.Login(context.Background(), "ada", wrong, home)
			}
		})
	}
	for i := range 1000 {
		guess <- i
	}
	close(guess)
	wg.Wait()
	require.LessOrEqual(t, hashing.total.Load()-before, int64(quickFailures))
}

func TestGuessesFromManySources_TLOG2(t *testing.T) {
	w := newWorld(t)
	w.user("ada", "", 0, "")
	before := hashing.total.Load()
	for i := range 500 {
		_, _, err := w.Login(t.Context(), "ada", wrong, fmt.Sprintf("198.51.%d.%d", i/250, i%250))
		require.ErrorIs(t, err, ErrCredentials)
	}
	require.EqualValues(t, quickFailures, hashing.total.Load()-before)
}

// Whoever guesses from elsewhere does not keep out the owner, who signed in from home before; guesses from there are held off too.
func TestStrangersDoNotKeepTheOwnerOut_LOG1(t *testing.T) {
	w := newWorld(t)
	w.user("ada", "", 0, "")
	_, _, err := w.Login(t.Context(), "ada", good, home)
	require.NoError(t, err)
	guess := func() {
		for i := range 300 {
			_, _, err := w.Login(t.Context(), "ada", wrong, fmt.Sprintf("198.51.%d.%d", i/250, i%250))
			require.ErrorIs(t, err, ErrCredentials)
		}
	}
	guess()
	_, _, err = w.Login(t.Context(), "ada", good, home)
	require.NoError(t, err, "from home she gets in")
	_, _, err = w.Login(t.Context(), "ada", good, "203.0.113.77")
	require.ErrorIs(t, err, ErrCredentials, "a place that nobody knows waits with the others")
	// For a month, whatever the sweep does.
	w.clock.Advance(29 * 24 * time.Hour)
	now := w.clock.Now().UnixMilli()
	require.NoError(t, w.store.SweepThrottle(t.Context(), now-throttleKeep.Milliseconds(), knownBucket, now-knownKeep.Milliseconds()))
	guess()
	_, _, err = w.Login(t.Context(), "ada", good, home)
	require.NoError(t, err)
	for range quickFailures {
		_, _, _ = w.Login(t.Context(), "ada", wrong, home)
	}
	_, _, err = w.Login(t.Context(), "ada", good, home)
	require.ErrorIs(t, err, ErrCredentials, "guesses from home are held off")
	// Another password: nobody is known any more.
	u, err := w.store.UserByName(t.Context(), "ada")
	require.NoError(t, err)
	require.NoError(t, w.SetPassword(t.Context(), u, "another long password", &store.AuditEntry{At: now, ActorType: "system", Action: "test", ObjectType: "user", Outcome: "success"}))
	known, err := w.store.Known(t.Context(), knownKey(accountKey("ada"), sourceKey(home)))
	require.NoError(t, err)
	require.False(t, known)
}

func TestDelaysDoubleToAQuarterOfAnHour_LOG1(t *testing.T) {
	w := newWorld(t)
	w.user("ada", "", 0, "")
	var waits []time.Duration
	for i := range 18 {
		ip := fmt.Sprintf("198.51.100.%d", i)
		_, _, err := w.Login(t.Context(), "ada", wrong, ip)
		require.Equal(t, ErrCredentials, err)
		_, _, err = w.Login(t.Context(), "ada", good, ip)
		var throttled *ThrottledError
		if !errors.As(err, &throttled) {
			require.NoError(t, err)
			require.Less(t, i, quickFailures)
			// That success forgave the account; begin again to count failures in a row.
			for range i + 1 {
				_, _, err := w.Login(t.Context(), "ada", wrong, "203.0.113."+fmt.Sprint(i))
				require.Equal(t, ErrCredentials, err)
			}
			w.clock.Advance(time.Hour)
			continue
		}
		waits = append(waits, throttled.RetryAfter)
		w.clock.Advance(throttled.RetryAfter)
	}
	require.Equal(t, []time.Duration{1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 900, 900, 900, 900}, seconds(waits))
	// Never for ever: the right password gets in once the wait is over.
	w.login("ada")
	w.login("ada")
}

func seconds(list []time.Duration) (out []time.Duration) {
	for _, d := range list {
		out = append(out, d/time.Second)
	}
	return out
}

func TestThrottledLooksLikeWrongPassword_LOG2(t *testing.T) {
	w := newWorld(t)
	w.user("ada", "", 0, "")
	w.exec("UPDATE user_account SET status = 'suspended' WHERE id = ?", w.user("eve", "", 0, "").ID)
	for _, name := range []string{"ada", "eve", "nobody"} {
		password := wrong
		if name == "eve" {
			password = good
		}
		for range quickFailures {
			_, p, err := w.Login(t.Context(), name, password, "")
			require.Equal(t, ErrCredentials, err)
			require.Zero(t, p)
		}
		_, _, err := w.Login(t.Context(), name, password, "192.0.2.99")
		require.ErrorIs(t, err, ErrCredentials)
		require.Equal(t, ErrCredentials.Error(), err.Error())
		var throttled *ThrottledError
		require.ErrorAs(t, err, &throttled)
		require.Equal(t, time.Second, throttled.RetryAfter)
		w.exec("DELETE FROM login_throttle")
	}
}

func TestLimiterSurvivesARestart_TLOG3(t *testing.T) {
	a := newWorld(t)
	a.user("ada", "", 0, "")
	for range quickFailures {
		_, _, err := a.Login(t.Context(), "ada", wrong, home)
		require.Equal(t, ErrCredentials, err)
	}
	b := newWorldIn(t, a.dir, a.clock)
	var throttled *ThrottledError
	_, _, err := b.Login(t.Context(), "ada", good, "192.0.2.1")
	require.ErrorAs(t, err, &throttled)
	_, _, err = b.Login(t.Context(), "other", good, home)
	require.ErrorAs(t, err, &throttled)
	b.clock.Advance(time.Second)
	b.login("ada")
}

func TestFakeAccountsDoNotEvictARealOne_TLOG4(t *testing.T) {
	w := newWorld(t)
	now := w.clock.Now().UnixMilli()
	for range quickFailures + 8 {
		_, err := w.store.TakeAttempts(t.Context(), []string{accountKey("ada")}, now, attempted(now))
		require.NoError(t, err)
		now += 300_000
	}
	w.clock.Set(time.UnixMilli(now))
	for i := range 500 {
		_, err := w.store.TakeAttempts(t.Context(), []string{accountKey(fmt.Sprint("fake", i))}, now, attempted(now))
		require.NoError(t, err)
	}
	require.NoError(t, w.store.SweepThrottle(t.Context(), now-throttleKeep.Milliseconds(), knownBucket, 0))
	at, err := w.store.TakeAttempts(t.Context(), []string{accountKey("ada")}, now-299_000, attempted(now))
	require.NoError(t, err)
	require.Positive(t, at, "still held off")
	require.NoError(t, w.store.SweepThrottle(t.Context(), now+2*throttleKeep.Milliseconds(), knownBucket, now+2*throttleKeep.Milliseconds()))
	var left int
	require.NoError(t, w.raw.QueryRowContext(t.Context(), "SELECT COUNT(*) FROM login_throttle").Scan(&left))
	require.Zero(t, left)
}

func TestSuccessForgivesTheAccountOnly_LOG3(t *testing.T) {
	w := newWorld(t)
	w.user("ada", "", 0, "")
	for i := range quickFailures - 1 {
		_, _, err := w.Login(t.Context(), fmt.Sprint("user", i), wrong, home)
		require.Equal(t, ErrCredentials, err)
	}
	for range 10 {
		w.login("ada") // successes neither count against the source nor wash it
	}
	_, _, err := w.Login(t.Context(), "user9", wrong, home)
	require.Equal(t, ErrCredentials, err)
	_, _, err = w.Login(t.Context(), "ada", good, home)
	var throttled *ThrottledError
	require.ErrorAs(t, err, &throttled)
	// A source is forgiven one failure a minute, however busy it is.
	w.clock.Advance(time.Second)
	for range 20 {
		w.login("ada")
		w.clock.Advance(15 * time.Second)
	}
	for range quickFailures - 1 {
		_, _, err := w.Login(t.Context(), "nobody", wrong, home)
		require.Equal(t, ErrCredentials, err)
	}
}

func TestLoginsAreAudited_LOG4(t *testing.T) {
	w := newWorld(t)
	u := w.user("ada", "", 0, "")
	_, p := w.login("ada")
	_, _, err := w.Login(t.Context(), "ada", wrong, "2001:db8::1")
	require.Error(t, err)
	_, _, err = w.Login(t.Context(), "velvet otter 9 quarries", good, home)
	require.Error(t, err)
	ok := w.trail("login.success")
	require.Len(t, ok, 1)
	require.Equal(t, []string{"user", fmt.Sprint(u.ID), "ada", home, "success", p.Session}, []string{ok[0].ActorType, ok[0].ActorID, ok[0].ActorName, ok[0].IP, ok[0].Outcome, ok[0].ObjectID})
	bad := w.trail("login.failure")
	require.Len(t, bad, 2)
	for _, e := range bad {
		require.Equal(t, "failure", e.Outcome)
		require.NotContains(t, e.ActorName, "otter", "a password in the wrong field is not kept")
		require.NotContains(t, *e.AfterJSON, "otter")
		if e.ActorName == "ada" {
			require.JSONEq(t, `{"reason":"wrong password"}`, *e.AfterJSON)
			require.Equal(t, "2001:db8::1", e.IP)
		}
	}
	require.EqualValues(t, 1, w.counted("success"))
	require.EqualValues(t, 2, w.counted("failure"))
}

func TestManyFailuresAreSampledWithACount_LOG4(t *testing.T) {
	w := newWorld(t)
	fail := func(n int) {
		for range n {
			_, _, err := w.Login(t.Context(), "nobody", wrong, home)
			require.Error(t, err)
		}
	}
	counts := func() (entries int, counted []string) {
		for _, e := range w.trail("login.failure") {
			if strings.Contains(*e.AfterJSON, "count") {
				counted = append(counted, (*e.AfterJSON)[strings.Index(*e.AfterJSON, ":")+1:strings.Index(*e.AfterJSON, ",")])
				continue
			}
			entries++
		}
		return entries, counted
	}
	fail(50)
	entries, counted := counts()
	require.Equal(t, 20, entries)
	require.Empty(t, counted)
	w.clock.Advance(time.Minute)
	fail(21)
	entries, counted = counts()
	require.Equal(t, 40, entries)
	require.Equal(t, []string{"30"}, counted)
	require.EqualValues(t, 71, w.counted("failure")+w.counted("throttled"))

	// A server that stops tells what it has not told yet.
	ended, stop := context.WithCancel(t.Context())
	stop()
	require.NoError(t, w.Run(ended))
	_, counted = counts()
	require.ElementsMatch(t, []string{"30", "1"}, counted)
}

func TestGoneClientIsStillAudited(t *testing.T) {
	w := newWorld(t)
	w.user("ada", "", 0, "")
	ctx, stop := context.WithCancel(t.Context())
	old := hashing
	hashing = newGate(1, time.Minute)
	t.Cleanup(func() { hashing = old })
	// The client goes away while its password is being checked.
	inside, leave := make(chan struct{}), make(chan struct{})
	go func() { _ = hashing.do(context.Background(), func() error { close(inside); <-leave; return nil }) }()
	<-inside
	done := make(chan error)
	go func() { _, _, err := w.Login(ctx, "ada", wrong, home); done <- err }()
	require.Eventually(t, func() bool { return hashing.waiting.Load() == 2 }, 5*time.Second, time.Millisecond)
	stop()
	require.ErrorIs(t, <-done, context.Canceled)
	close(leave)
	var failures int
	require.NoError(t, w.raw.QueryRowContext(t.Context(), "SELECT failures FROM login_throttle WHERE bucket_key = ?", accountKey("ada")).Scan(&failures))
	require.Equal(t, 1, failures, "going away does not undo the attempt")
}

func TestSourceKey(t *testing.T) {
	for ip, want := range map[string]string{
		"192.0.2.7": "s:192.0.2.7", "::ffff:192.0.2.7": "s:192.0.2.7", "2001:db8:1:2:3:4:5:6": "s:2001:db8:1:2::/64", "2001:db8:1:2::": "s:2001:db8:1:2::/64",
		"fe80::1%eth0": "s:fe80::/64", "": "s:unknown", "192.0.2.7:80": "s:unknown", "localhost": "s:unknown",
	} {
		require.Equal(t, want, sourceKey(ip), ip)
	}
	require.NotEqual(t, accountKey("ada"), accountKey("Ada"))
	require.LessOrEqual(t, len(accountKey(strings.Repeat("x", 1000))), 160)
}

func TestLoginNeedsTheDatabase(t *testing.T) {
	w := newWorld(t)
	w.user("ada", "", 0, "")
	require.NoError(t, w.store.Close())
	_, _, err := w.Login(t.Context(), "ada", good, home)
	require.Error(t, err)
	require.NotErrorIs(t, err, ErrCredentials)
}
