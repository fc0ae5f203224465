package storetest

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// FakeTime is a MariaDB whose clock tests turn.
type FakeTime struct {
	file string
}

// StartFakeTime starts a private MariaDB under libfaketime, points AX_TEST_MYSQL to it for this test, and
// stops it with the test. Without the library the test is skipped, which make test never does.
func StartFakeTime(t *testing.T) *FakeTime {
	t.Helper()
	if found, _ := filepath.Glob("/usr/lib/*/faketime/libfaketimeMT.so.1"); len(found) == 0 {
		t.Skip("libfaketime is not installed: the database's clock can not be turned; scripts/test-setup.sh installs it")
	}
	script := filepath.Join("scripts", "mariadb.sh")
	for range 4 { // tests run in their package's folder
		if _, err := os.Stat(script); err == nil {
			break
		}
		script = filepath.Join("..", script)
	}
	dir, err := os.MkdirTemp("/var/tmp", "ax-faketime") //nolint:usetesting // user mysql can not enter t.TempDir's parents
	require.NoError(t, err)
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	require.NoError(t, os.Chmod(dir, 0o755))
	f := &FakeTime{file: filepath.Join(dir, "offset")}
	f.Set(t, 0)
	start := exec.CommandContext(t.Context(), "bash", script, "start", filepath.Join(dir, "db"))
	start.Env = append(os.Environ(), "AX_FAKETIME="+f.file)
	start.Stderr = os.Stderr
	dsn, err := start.Output()
	t.Cleanup(func() { _ = exec.Command("bash", script, "stop", filepath.Join(dir, "db")).Run() })
	require.NoError(t, err)
	t.Setenv(Env, strings.TrimSpace(string(dsn)))
	return f
}

// Set makes the database's clock differ from the host's by offset, from now on.
func (f *FakeTime) Set(t testing.TB, offset time.Duration) {
	t.Helper()
	// In one step: a file that is half written would be another time.
	require.NoError(t, os.WriteFile(f.file+".new", fmt.Appendf(nil, "%+fs\n", offset.Seconds()), 0o644)) //nolint:gosec // user mysql reads it
	require.NoError(t, os.Rename(f.file+".new", f.file))
}
