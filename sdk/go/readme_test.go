package ax_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// The README promises an executor in ten lines: it has ten, blank ones aside, and they compile.
func TestReadmeExecutorInTenLines(t *testing.T) {
	t.Parallel()
	raw, err := os.ReadFile("README.md")
	if err != nil {
		t.Fatal(err)
	}
	_, rest, ok := strings.Cut(string(raw), "## An executor in ten lines")
	if !ok {
		t.Fatal("the section is gone")
	}
	_, rest, _ = strings.Cut(rest, "```go\n")
	code, _, ok := strings.Cut(rest, "```")
	if !ok {
		t.Fatal("the snippet is gone")
	}
	n := 0
	for line := range strings.SplitSeq(code, "\n") {
		if strings.TrimSpace(line) != "" {
			n++
		}
	}
	if n > 10 {
		t.Fatalf("the executor in ten lines has %d", n)
	}
	here, err := filepath.Abs(".")
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	mod := "module snippet\n\ngo 1.25\n\nrequire github.com/ax-scheduler/ax/sdk/go v0.0.0\n\nreplace github.com/ax-scheduler/ax/sdk/go => " + here + "\n"
	for name, text := range map[string]string{"main.go": code, "go.mod": mod} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	cmd := exec.Command("go", "vet", ".")
	cmd.Dir = dir
	cmd.Env = append(os.Environ(), "GOFLAGS=-mod=mod", "GOPROXY=off", "GOWORK=off")
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
}
