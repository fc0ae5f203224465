package storetest

import (
	"fmt"
	"os"
	"path/filepath"
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
	dir, err := os.MkdirTemp("/var/tmp", "ax-faketime") //nolint:usetesting // user mysql can not enter t.TempDir's parents
	require.NoError(t, err)
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	require.NoError(t, os.Chmod(dir, 0o755))
	f := &FakeTime{file: filepath.Join(dir, "offset")}
	f.Set(t, 0)
	t.Setenv(Env, StartPrivate(t, "AX_FAKETIME="+f.file).DSN())
	return f
}

// Set makes the database's clock differ from the host's by offset, from now on.
func (f *FakeTime) Set(t testing.TB, offset time.Duration) {
	t.Helper()
	// In one step: a file that is half written would be another time.
	require.NoError(t, os.WriteFile(f.file+".new", fmt.Appendf(nil, "%+fs\n", offset.Seconds()), 0o644)) //nolint:gosec // user mysql reads it
	require.NoError(t, os.Rename(f.file+".new", f.file))
}
