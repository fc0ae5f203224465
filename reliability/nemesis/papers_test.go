package nemesis

import (
	"bufio"
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"sort"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

var update = flag.Bool("update", false, "write the sum of the results into docs/reliability.md")

// docs/reliability.md says what the file of results says, and no more.
func TestThePapersSayWhatTheFileSays(t *testing.T) {
	const paper, begin, end = "../../docs/reliability.md", "by TestThePapersSayWhatTheFileSays -->\n", "<!-- end of results -->"
	f, err := os.Open("../results.jsonl")
	require.NoError(t, err)
	defer func() { _ = f.Close() }()
	runs, clean, firings, starts, seconds := 0, 0, 0, 0, 0.0
	faults := map[string]int{}
	scan := bufio.NewScanner(f)
	scan.Buffer(nil, 1<<20)
	for scan.Scan() {
		var r result
		require.NoError(t, json.Unmarshal(scan.Bytes(), &r))
		runs++
		if r.Verdict == "clean" {
			clean++
		}
		firings, starts, seconds = firings+r.Firings, starts+r.Starts, seconds+r.Seconds
		for kind, n := range r.Faults {
			faults[kind] += n
		}
	}
	require.NoError(t, scan.Err())
	var kinds []string
	for kind := range faults {
		kinds = append(kinds, kind)
	}
	sort.Strings(kinds)
	var b strings.Builder
	fmt.Fprintf(&b, "%d runs, %d of them clean; %d firings, %d starts, %.0f minutes of faults.\n\n| fault | times |\n|---|---|\n", runs, clean, firings, starts, seconds/60)
	for _, kind := range kinds {
		fmt.Fprintf(&b, "| %s | %d |\n", kind, faults[kind])
	}
	raw, err := os.ReadFile(paper)
	require.NoError(t, err)
	before, rest, ok := strings.Cut(string(raw), begin)
	require.True(t, ok)
	said, after, ok := strings.Cut(rest, end)
	require.True(t, ok)
	if *update {
		require.NoError(t, os.WriteFile(paper, []byte(before+begin+b.String()+end+after), 0o644)) //nolint:gosec // a paper
		return
	}
	require.Equal(t, b.String(), said, "go test ./reliability/nemesis -run Papers -update writes it")
}
