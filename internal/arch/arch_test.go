package arch

import (
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

const module = "github.com/ax-scheduler/ax/"

// mayImport lists, for every package, the only packages of this module that it may
// import. A package missing from the table fails the test, so adding a package means
// deciding where it sits. Edges are listed one by one, those between engines above all.
var mayImport = map[string]string{
	// Tier 0 decides. It knows nothing of clocks, networks or tables.
	"internal/message":   "",
	"internal/schedule":  "internal/message",
	"internal/icalendar": "internal/message internal/schedule",
	"internal/filter":    "internal/message",
	"internal/job":       "internal/filter internal/message internal/routing internal/schedule",
	"internal/batch":     "",
	"internal/routing":   "internal/filter internal/message",
	"internal/quota":     "",
	"internal/wheel":     "",
	"internal/audit":     "",
	"internal/protocol":  "",
	"internal/seal":      "",

	// Tier 1 makes decisions durable, tells the time, counts.
	"sql/migrate":     "",
	"sql/initsql":     "sql/migrate",
	"internal/store":  "internal/audit internal/batch internal/job internal/message internal/schedule sql/migrate",
	"internal/clock":  "",
	"internal/metric": "",

	// Tier 2 moves work. First what needs no other engine,
	"internal/ready":   "internal/batch internal/job internal/quota internal/routing internal/schedule internal/wheel",
	"internal/cluster": "internal/store",
	"internal/egress":  "internal/message",
	"internal/auth":    "internal/clock internal/message internal/metric internal/seal internal/store",
	// then what stands on it.
	"internal/secret":   "internal/job internal/seal internal/store",
	"internal/appkey":   "internal/clock internal/egress internal/protocol internal/seal internal/store",
	"internal/registry": "internal/clock internal/egress internal/protocol internal/routing internal/store",
	"internal/outcome":  "internal/batch internal/clock internal/cluster internal/job internal/metric internal/protocol internal/ready internal/registry internal/routing internal/schedule internal/store",
	"internal/trigger": "internal/batch internal/clock internal/cluster internal/job internal/message internal/metric internal/outcome internal/quota internal/ready internal/routing " +
		"internal/schedule internal/store",
	"internal/dispatch": "internal/batch internal/clock internal/cluster internal/egress internal/job internal/metric internal/outcome internal/protocol internal/ready " +
		"internal/registry internal/routing internal/store",
	"internal/ledger": "internal/batch internal/schedule internal/store",
	"internal/sweep":  "internal/audit internal/batch internal/clock internal/cluster internal/outcome internal/ready internal/registry internal/store",

	// Tier 3 speaks HTTP.
	"server/httpx":       "internal/auth internal/batch internal/job internal/message internal/outcome internal/store internal/trigger",
	"server/peer":        "internal/clock internal/cluster internal/metric internal/protocol internal/store",
	"server/executorapi": "internal/appkey internal/batch internal/clock internal/cluster internal/metric internal/outcome internal/protocol internal/registry internal/store server/httpx server/peer",
	"server/api": "internal/appkey internal/audit internal/auth internal/batch internal/clock internal/cluster internal/egress internal/filter internal/icalendar internal/job internal/message " +
		"internal/metric internal/outcome internal/protocol internal/ready internal/registry internal/routing internal/schedule internal/secret internal/store internal/trigger server/httpx server/peer",

	// Tier 4 wires it all.
	"internal/config": "",
	"web":             "",
	"web/dev/serve":   "web",
	"server/app": "internal/appkey internal/audit internal/auth internal/clock internal/cluster internal/config internal/dispatch internal/egress internal/job internal/message " +
		"internal/metric internal/outcome internal/protocol internal/ready internal/registry internal/routing internal/seal internal/secret internal/store internal/sweep " +
		"internal/trigger server/api server/executorapi server/httpx server/peer web",
	"server/bench": "internal/batch internal/protocol internal/schedule internal/store",
	"server/cli":   "internal/audit internal/config internal/ledger internal/message internal/protocol internal/schedule internal/seal internal/store server/app server/bench",
	"server":       "server/cli",

	// The checker of the fault runs asks nothing of the code that it checks.
	"reliability/nemesis": "",

	// Harnesses, for tests only, and this table.
	"internal/storetest": "internal/store",
	"server/axtest":      "internal/audit internal/config internal/ledger internal/seal internal/store internal/storetest server/app server/cli",
	"internal/arch":      "",
}

// harness are packages that no shipped package may import.
var harness = []string{"internal/storetest", "server/axtest"}

// violations reads the sources under root and says what breaks the table. It reads the
// files itself: go test notices when a file that a test opened has changed, but not when a command
// that it ran would answer otherwise. Tests are not read: they may use the harness.
func violations(root string, table map[string]string) (found []string, seen []string, err error) {
	err = filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		rel, err := filepath.Rel(root, path)
		if err != nil {
			return err
		}
		rel = filepath.ToSlash(rel)
		if d.IsDir() {
			// Folders with a go.mod of their own are other modules.
			_, own := os.Stat(filepath.Join(path, "go.mod"))
			if rel != "." && own == nil || d.Name() == "node_modules" || d.Name() == "testdata" || strings.HasPrefix(d.Name(), ".") && rel != "." {
				return fs.SkipDir
			}
			return nil
		}
		if !strings.HasSuffix(rel, ".go") || strings.HasSuffix(rel, "_test.go") {
			return nil
		}
		pkg := filepath.ToSlash(filepath.Dir(rel))
		if !slices.Contains(seen, pkg) {
			seen = append(seen, pkg)
		}
		allowed, ok := table[pkg]
		if !ok {
			found = append(found, rel+": package "+pkg+" is not in the import table (internal/arch/arch_test.go): decide where it sits")
			return nil
		}
		file, err := parser.ParseFile(token.NewFileSet(), path, nil, parser.ImportsOnly)
		if err != nil {
			return err
		}
		for _, spec := range file.Imports {
			imp, err := strconv.Unquote(spec.Path.Value)
			if err != nil {
				return err
			}
			own, isOwn := strings.CutPrefix(imp, module)
			if isOwn && !slices.Contains(strings.Fields(allowed), own) {
				found = append(found, rel+": "+pkg+" may not import "+own)
			}
		}
		return nil
	})
	return found, seen, err
}

func TestImportTable(t *testing.T) {
	found, _, err := violations("../..", mayImport)
	require.NoError(t, err)
	require.Empty(t, found)
}

func TestTheTableHasNoHolesAndNoCircles(t *testing.T) {
	for pkg, list := range mayImport {
		for imp := range strings.FieldsSeq(list) {
			require.Contains(t, mayImport, imp, pkg)
			if !slices.Contains(harness, pkg) {
				require.NotContains(t, harness, imp, pkg)
			}
			require.False(t, strings.HasPrefix(pkg, "internal/") && strings.HasPrefix(imp, "server/"), "%s: internal/ knows nothing of server/", pkg)
		}
	}
}

func TestAPackageOutsideTheTableIsRefused(t *testing.T) {
	root := t.TempDir()
	write := func(name, text string) {
		t.Helper()
		path := filepath.Join(root, filepath.FromSlash(name))
		require.NoError(t, os.MkdirAll(filepath.Dir(path), 0o755))
		require.NoError(t, os.WriteFile(path, []byte(text), 0o600))
	}
	write("internal/batch/batch.go", "package batch\n\nimport _ \""+module+"internal/store\"\n")
	write("internal/util/util.go", "package util\n")
	write("internal/util/util_test.go", "package util\n\nimport _ \""+module+"internal/anything\"\n")
	write("internal/store/store.go", "package store\n\nimport _ \""+module+"internal/batch\"\n")
	write("other/go.mod", "module other\n")
	write("other/other.go", "package other\n")
	found, seen, err := violations(root, mayImport)
	require.NoError(t, err)
	require.Equal(t, []string{"internal/batch", "internal/store", "internal/util"}, seen)
	require.Len(t, found, 2)
	require.Contains(t, found[0], "internal/batch may not import internal/store")
	require.Contains(t, found[1], "package internal/util is not in the import table")
}
