package auth

import (
	"context"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/ax-scheduler/ax/internal/message"
	"github.com/ax-scheduler/ax/internal/store"
)

func TestSetupOnce_TBOOT1(t *testing.T) {
	w := newWorld(t)
	for _, name := range []string{"admin", "root", "ax", ""} {
		for _, password := range []string{"admin", "123456", "changeme", ""} {
			_, _, err := w.Login(t.Context(), name, password, "")
			require.ErrorIs(t, err, ErrCredentials, "a fresh database has no credential")
		}
	}
	_, err := w.Setup(t.Context(), "", "root", good, home, nil)
	require.ErrorIs(t, err, ErrToken)
	_, err = w.Setup(t.Context(), newOpaque(prefixSetup), "root", good, home, nil)
	require.ErrorIs(t, err, ErrToken)
	require.NotEmpty(t, w.trail("setup.failure"))

	old, required, err := w.SetupToken(t.Context())
	require.NoError(t, err)
	require.True(t, required)
	token, required, err := w.SetupToken(t.Context())
	require.NoError(t, err)
	require.True(t, required)
	_, err = w.Setup(t.Context(), old, "root", good, home, nil)
	require.ErrorIs(t, err, ErrToken, "each start makes a new one")

	var invalid *message.Invalid
	_, err = w.Setup(t.Context(), token, "root", "too short", home, nil)
	require.ErrorAs(t, err, &invalid)
	require.Equal(t, "password", invalid.Field)
	_, err = w.Setup(t.Context(), token, "r:admin", good, home, nil)
	require.ErrorAs(t, err, &invalid)
	require.Equal(t, "name", invalid.Field)

	entry := &store.AuditEntry{RequestID: "req-1"}
	p, err := w.Setup(t.Context(), token, "root", good, home, entry)
	require.NoError(t, err, "what was wrong before did not use the token up")
	require.True(t, w.Allowed(p, 0, UserCreate))
	platform, _ := w.Roles(p)
	require.Equal(t, PlatformAdmin, platform)
	trail := w.trail("setup.success")
	require.Len(t, trail, 1)
	require.Equal(t, []string{"req-1", home, "root", "root", "success"}, []string{trail[0].RequestID, trail[0].IP, trail[0].ActorName, trail[0].ObjectName, trail[0].Outcome})

	_, err = w.Setup(t.Context(), token, "second", good, home, nil)
	require.ErrorIs(t, err, ErrSetupDone)
	token, required, err = w.SetupToken(t.Context())
	require.NoError(t, err)
	require.False(t, required)
	require.Empty(t, token)
	w.login("root")
}

func TestSetupTokenExpires_BOOT1(t *testing.T) {
	w := newWorld(t)
	token, _, err := w.SetupToken(t.Context())
	require.NoError(t, err)
	w.clock.Advance(setupFor)
	_, err = w.Setup(t.Context(), token, "root", good, home, nil)
	require.ErrorIs(t, err, ErrToken)
}

func TestSetupAtOnceMakesOneAdministrator_BOOT1(t *testing.T) {
	w := newWorld(t)
	token, _, err := w.SetupToken(t.Context())
	require.NoError(t, err)
	const n = 6
	var made [n]bool
	var wg sync.WaitGroup
	for i := range n {
		wg.Go(func() {
			_, err := w.Setup(context.Background(), token, []string{"a", "b", "c", "d", "e", "f"}[i], good, home, nil)
			made[i] = err == nil
		})
	}
	wg.Wait()
	users, err := w.store.Users(t.Context())
	require.NoError(t, err)
	require.Len(t, users, 1)
	count := 0
	for _, m := range made {
		if m {
			count++
		}
	}
	require.Equal(t, 1, count)
}

func TestEnsureAdmin(t *testing.T) {
	w := newWorld(t)
	var invalid *message.Invalid
	require.ErrorAs(t, w.EnsureAdmin(t.Context(), "root", "short"), &invalid)
	require.NoError(t, w.EnsureAdmin(t.Context(), "root", good))
	_, p := w.login("root")
	require.True(t, w.Allowed(p, 0, NamespaceCreate))
	require.NoError(t, w.EnsureAdmin(t.Context(), "root", "another otter 9 quarries"), "at the next start")
	require.NoError(t, w.EnsureAdmin(t.Context(), "root", ""), "also without a password")
	w.clock.Advance(time.Minute)
	w.login("root")
	trail := w.trail("user.create")
	require.Len(t, trail, 1)
	require.Equal(t, "system", trail[0].ActorType)
	require.Equal(t, "root", trail[0].ObjectName)
	_, required, err := w.SetupToken(t.Context())
	require.NoError(t, err)
	require.False(t, required)
}
