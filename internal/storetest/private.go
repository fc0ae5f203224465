package storetest

import (
	"context"
	"database/sql"
	"net"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/ax-scheduler/ax/internal/store"
)

// Private is a MariaDB of a test's own, which it may break.
type Private struct {
	script, dir string
	env         []string
	dsn         string // of a user who may do everything
}

// StartPrivate starts a private MariaDB and stops it with the test. env are further words of its environment.
func StartPrivate(t testing.TB, env ...string) *Private {
	t.Helper()
	p := &Private{script: filepath.Join("scripts", "mariadb.sh"), env: env}
	for range 4 { // tests run in their package's folder
		if _, err := os.Stat(p.script); err == nil {
			break
		}
		p.script = filepath.Join("..", p.script)
	}
	dir, err := os.MkdirTemp("/var/tmp", "ax-mariadb") //nolint:usetesting // user mysql can not enter t.TempDir's parents
	require.NoError(t, err)
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	require.NoError(t, os.Chmod(dir, 0o755))
	p.dir = filepath.Join(dir, "db")
	t.Cleanup(func() { _ = exec.Command("bash", p.script, "stop", p.dir).Run() })
	p.Start(t)
	return p
}

// Start starts it again after a Kill, perhaps on another port.
func (p *Private) Start(t testing.TB) {
	t.Helper()
	start := exec.Command("bash", p.script, "start", p.dir)
	start.Env = append(os.Environ(), p.env...)
	start.Stderr = os.Stderr
	dsn, err := start.Output()
	require.NoError(t, err)
	p.dsn = strings.TrimSpace(string(dsn))
}

// Kill ends its process at once, with no chance to clean up.
func (p *Private) Kill(t testing.TB) {
	t.Helper()
	raw, err := os.ReadFile(filepath.Join(p.dir, "pid"))
	require.NoError(t, err)
	pid, err := strconv.Atoi(strings.TrimSpace(string(raw)))
	require.NoError(t, err)
	require.NoError(t, syscall.Kill(pid, syscall.SIGKILL))
	require.Eventually(t, func() bool {
		c, err := net.DialTimeout("tcp", p.Address(), time.Second)
		if err == nil {
			_ = c.Close()
		}
		return err != nil
	}, 10*time.Second, 10*time.Millisecond, "it does not listen any more")
	// Until somebody has waited for the process its id looks alive.
	require.NoError(t, os.Remove(filepath.Join(p.dir, "pid")))
}

// Address is where it listens now.
func (p *Private) Address() string {
	u, err := url.Parse(p.dsn)
	if err != nil {
		return ""
	}
	return u.Host
}

// DSN is "mysql://user:password@host:port" of the user who may do everything.
func (p *Private) DSN() string { return p.dsn }

// Exec runs statements as the user who may do everything.
func (p *Private) Exec(t testing.TB, statements ...string) {
	t.Helper()
	db := p.DB(t)
	defer func() { _ = db.Close() }()
	for _, s := range statements {
		_, err := db.ExecContext(context.Background(), s)
		require.NoError(t, err, s)
	}
}

// DB opens it as the user who may do everything. The caller closes it.
func (p *Private) DB(t testing.TB) *sql.DB {
	t.Helper()
	cfg, err := store.ParseDSN(p.dsn + "/none")
	require.NoError(t, err)
	cfg.DBName = ""
	db, err := sql.Open("mysql", cfg.FormatDSN())
	require.NoError(t, err)
	return db
}

// Plain makes an empty database with a user who may do everything in it and nothing else, as ax has in
// production, and returns its DSN with another address in place of its own.
func (p *Private) Plain(t testing.TB, address string) string {
	t.Helper()
	p.Exec(t, "CREATE DATABASE ax_plain CHARACTER SET utf8mb4 COLLATE utf8mb4_bin",
		"CREATE USER 'plain'@'127.0.0.1' IDENTIFIED BY 'plain'", "GRANT ALL ON ax_plain.* TO 'plain'@'127.0.0.1'")
	return "mysql://plain:plain@" + address + "/ax_plain"
}
