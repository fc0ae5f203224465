// Package storetest gives tests a fresh database: SQLite in a temporary folder, and MariaDB
// when AX_TEST_MYSQL names a server where databases may be created.
package storetest

import (
	"context"
	"crypto/rand"
	"database/sql"
	"encoding/hex"
	"os"
	"path/filepath"
	"strings"
	"testing"

	_ "github.com/go-sql-driver/mysql" // for creating databases
	"github.com/stretchr/testify/require"

	"github.com/ax-scheduler/ax/internal/store"
)

// Env names the server: "mysql://user:password@host:port" without a database.
const Env = "AX_TEST_MYSQL"

// AuditKey is the key of the audit trail in tests of the store.
func AuditKey() []byte { return []byte("the key of the audit trail of tests") }

// New opens a migrated SQLite database that goes away with the test.
func New(t testing.TB) *store.Store {
	t.Helper()
	return open(t, store.Config{Dir: t.TempDir(), AuditKey: AuditKey()})
}

// MySQL opens a migrated MariaDB database that goes away with the test.
func MySQL(t testing.TB) *store.Store {
	t.Helper()
	return open(t, store.Config{DSN: Database(t), AuditKey: AuditKey()})
}

// Each runs f on SQLite and on MariaDB. With AX_TEST_MYSQL unset the second is skipped, which
// make test never does.
func Each(t *testing.T, f func(t *testing.T, s *store.Store)) {
	t.Helper()
	t.Run("sqlite", func(t *testing.T) { f(t, New(t)) })
	t.Run("mysql", func(t *testing.T) { f(t, MySQL(t)) })
}

// Database creates an empty MariaDB database and returns its DSN; it is dropped with the test.
func Database(t testing.TB) string {
	t.Helper()
	base := os.Getenv(Env)
	if base == "" {
		t.Skip(Env + " is not set: no MariaDB to test on")
	}
	var b [6]byte
	_, err := rand.Read(b[:])
	require.NoError(t, err)
	name := "ax_test_" + hex.EncodeToString(b[:])
	dsn := strings.TrimRight(base, "/") + "/" + name
	cfg, err := store.ParseDSN(dsn)
	require.NoError(t, err)
	cfg.DBName = ""
	admin, err := sql.Open("mysql", cfg.FormatDSN())
	require.NoError(t, err)
	ctx := context.Background()
	_, err = admin.ExecContext(ctx, "CREATE DATABASE "+name+" CHARACTER SET utf8mb4 COLLATE utf8mb4_bin")
	require.NoError(t, err)
	t.Cleanup(func() {
		_, err := admin.ExecContext(ctx, "DROP DATABASE "+name)
		if err != nil {
			t.Logf("drop %s: %v", name, err)
		}
		_ = admin.Close()
	})
	return dsn
}

// SQL opens a database for what no method of the store may do: to break something. An empty dsn
// is the SQLite in dir.
func SQL(t testing.TB, dsn, dir string) *sql.DB {
	t.Helper()
	if dsn == "" {
		db, err := sql.Open("sqlite", "file:"+filepath.Join(dir, "ax.db")+"?_pragma=busy_timeout(5000)")
		require.NoError(t, err)
		return db
	}
	cfg, err := store.ParseDSN(dsn)
	require.NoError(t, err)
	db, err := sql.Open("mysql", cfg.FormatDSN())
	require.NoError(t, err)
	return db
}

func open(t testing.TB, c store.Config) *store.Store {
	t.Helper()
	s, err := store.Open(c)
	require.NoError(t, err)
	t.Cleanup(func() { _ = s.Close() })
	require.NoError(t, s.Migrate(context.Background()))
	return s
}
