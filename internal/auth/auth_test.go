package auth

import (
	"bytes"
	"context"
	"database/sql"
	"fmt"
	"log/slog"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/alexedwards/argon2id"
	"github.com/stretchr/testify/require"

	"github.com/ax-scheduler/ax/internal/clock"
	"github.com/ax-scheduler/ax/internal/metric"
	"github.com/ax-scheduler/ax/internal/seal"
	"github.com/ax-scheduler/ax/internal/store"
)

const (
	good  = "velvet otter 9 quarries"
	wrong = "velvet otter 8 quarries"
	home  = "192.0.2.7"
)

// goodHash is of good, made once for all tests.
var goodHash = sync.OnceValue(func() string {
	hash, err := HashPassword(good)
	if err != nil {
		panic(err)
	}
	return hash
})

// world is an installation with one server.
type world struct {
	*Auth
	t     *testing.T
	dir   string
	store *store.Store
	clock *clock.Manual
	raw   *sql.DB // for what other parts of ax write
	log   *bytes.Buffer
	up    time.Duration // what the server's monotonic clock says
}

func newWorld(t *testing.T) *world {
	t.Helper()
	return newWorldIn(t, t.TempDir(), clock.NewManual(time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)))
}

// newWorldIn is another server on the same database where there is one in dir.
func newWorldIn(t *testing.T, dir string, at *clock.Manual) *world {
	t.Helper()
	s, err := store.Open(store.Config{Dir: dir, AuditKey: []byte("the key of the audit trail of tests")})
	require.NoError(t, err)
	t.Cleanup(func() { _ = s.Close() })
	require.NoError(t, s.Migrate(t.Context()))
	sealer, _, err := seal.LoadOrCreate(filepath.Join(dir, "master.key"))
	require.NoError(t, err)
	raw, err := sql.Open("sqlite", "file:"+filepath.Join(dir, "ax.db")+"?_pragma=busy_timeout(5000)")
	require.NoError(t, err)
	t.Cleanup(func() { _ = raw.Close() })
	w := &world{t: t, dir: dir, store: s, clock: at, raw: raw, log: &bytes.Buffer{}}
	w.Auth = New(Config{Store: s, Sealer: sealer, Clock: at, Metrics: metric.New("test", "none"), Log: slog.New(slog.NewTextHandler(w.log, nil))})
	w.elapsed = func() time.Duration { return w.up }
	require.NoError(t, w.Load(t.Context()))
	return w
}

// exec writes by SQL and raises the version, as every change of rights does.
func (w *world) exec(query string, args ...any) {
	w.t.Helper()
	_, err := w.raw.ExecContext(w.t.Context(), query, args...)
	require.NoError(w.t, err)
	_, err = w.raw.ExecContext(w.t.Context(), "UPDATE authz_version SET version = version + 1")
	require.NoError(w.t, err)
}

// user makes a person with the password good.
func (w *world) user(name, platformRole string, ns int64, role string) store.User {
	w.t.Helper()
	u := store.User{Name: name, DisplayName: name, PasswordHash: goodHash(), Status: store.UserActive, PlatformRole: platformRole, CreatedAt: 1}
	require.NoError(w.t, w.store.CreateUser(w.t.Context(), &u, ns, role, &store.AuditEntry{At: 1, Action: "user.create"}))
	require.NoError(w.t, w.Sync(w.t.Context()))
	return u
}

// principal is u as he is in the database.
func (w *world) as(u store.User) Principal {
	return Principal{UserID: u.ID, Name: u.Name, DisplayName: u.DisplayName, AuthVersion: u.AuthVersion}
}

// login must succeed.
func (w *world) login(name string) (Tokens, Principal) {
	w.t.Helper()
	tokens, p, err := w.Login(w.t.Context(), name, good, home)
	require.NoError(w.t, err)
	return tokens, p
}

// trail lists the audit entries of one action, newest first.
func (w *world) trail(action string) []store.AuditEntry {
	w.t.Helper()
	out, err := w.store.AuditTrail(context.Background(), store.AuditFilter{Action: action, Limit: 10_000})
	require.NoError(w.t, err)
	return out
}

// counted is the metric of logins with this outcome.
func (w *world) counted(outcome string) (n float64) {
	w.t.Helper()
	families, err := w.metrics.Registry.Gather()
	require.NoError(w.t, err)
	for _, f := range families {
		for _, m := range f.GetMetric() {
			if f.GetName() == "ax_login_attempts_total" && m.GetLabel()[0].GetValue() == outcome {
				n += m.GetCounter().GetValue()
			}
		}
	}
	return n
}

// weakHash is of good, with parameters of long ago.
func weakHash(t *testing.T) string {
	t.Helper()
	hash, err := argon2id.CreateHash(good, &argon2id.Params{Memory: 8192, Iterations: 1, Parallelism: 1, SaltLength: 16, KeyLength: 32})
	require.NoError(t, err)
	return hash
}

func TestLoginVerifyRefreshLogout(t *testing.T) {
	w := newWorld(t)
	u := w.user("ada", "", 3, RoleDeveloper)
	tokens, p := w.login("ada")
	require.Equal(t, u.ID, p.UserID)
	require.Equal(t, 10*time.Minute, tokens.ExpiresIn)
	require.Equal(t, 8*time.Hour, tokens.RefreshFor)
	got, err := w.Verify(tokens.Access)
	require.NoError(t, err)
	require.Equal(t, p, got)
	require.True(t, w.Allowed(got, 3, JobUpdate))
	require.False(t, w.Allowed(got, 4, JobRead))

	next, again, err := w.Refresh(t.Context(), tokens.Refresh, home)
	require.NoError(t, err)
	require.Equal(t, p, again)
	require.NotEqual(t, tokens.Refresh, next.Refresh)

	require.NoError(t, w.Logout(t.Context(), next.Refresh))
	_, err = w.Verify(next.Access)
	require.ErrorIs(t, err, ErrToken)
	_, _, err = w.Refresh(t.Context(), next.Refresh, home)
	require.ErrorIs(t, err, ErrToken)
	require.NoError(t, w.Logout(t.Context(), next.Refresh), "twice is no error")
	require.Len(t, w.trail("login.success"), 1)
	require.Len(t, w.trail("logout"), 1)
	require.Equal(t, fmt.Sprint(u.ID), w.trail("logout")[0].ActorID)
}
