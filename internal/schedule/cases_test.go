package schedule

import (
	"errors"
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/ax-scheduler/ax/internal/message"
)

// cronCase is a row of testdata/cron_cases.tsv.
type cronCase struct {
	id, expr, dialect, zone string
	from                    time.Time
	expect                  string            // "ERROR" or a list of instants
	note                    map[string]string // kind, alt_… and the like
}

func readCases(t testing.TB) []cronCase {
	t.Helper()
	data, err := os.ReadFile("testdata/cron_cases.tsv")
	require.NoError(t, err)
	var cases []cronCase
	for i, line := range strings.Split(strings.TrimRight(string(data), "\n"), "\n") {
		if i == 0 {
			continue
		}
		columns := strings.Split(line, "\t")
		require.Len(t, columns, 7, "line %d", i+1)
		from, err := time.Parse(time.RFC3339, columns[4])
		require.NoError(t, err)
		c := cronCase{columns[0], columns[1], columns[2], columns[3], from, columns[5], map[string]string{}}
		for part := range strings.SplitSeq(columns[6], "; ") {
			if key, value, ok := strings.Cut(part, "="); ok {
				c.note[key] = value
			}
		}
		cases = append(cases, c)
	}
	require.Greater(t, len(cases), 140)
	return cases
}

func (c cronCase) spec(policy string) Spec {
	spec := Spec{Kind: Cron, Expr: c.expr, Dialect: c.dialect, Zone: c.zone, ClockChange: policy}
	if strings.HasPrefix(c.expr, "@every") {
		spec.Anchor = &c.from
	}
	return spec
}

func instants(t testing.TB, list string) []time.Time {
	t.Helper()
	var times []time.Time
	for text := range strings.SplitSeq(list, ",") {
		at, err := time.Parse(time.RFC3339, text)
		require.NoError(t, err)
		times = append(times, at.UTC())
	}
	return times
}

func nextTimes(s *Schedule, from time.Time, n int) []time.Time {
	var times []time.Time
	for at, ok := s.Next(from); ok && len(times) < n; at, ok = s.Next(at) {
		times = append(times, at)
	}
	return times
}

// Each policy answers with its own column: the main one is ours by default.
var columnOf = map[string]string{
	ClockOnce: "", ClockSkip: "alt_skip_once", ClockBoth: "alt_skip_twice", ClockQuartz: "alt_skip_second",
}

func TestCronCases(t *testing.T) {
	columns := map[string]int{}
	for _, c := range readCases(t) {
		t.Run(c.id, func(t *testing.T) {
			if c.expect == "ERROR" {
				requireRefused(t, c)
				return
			}
			for policy, column := range columnOf {
				expect := c.expect
				if column != "" && c.note["kind"] == "POLICY" {
					other, ok := c.note[column]
					if !ok {
						// An overlap has no column for skip: it is the main one.
						if policy != ClockSkip {
							continue
						}
					} else {
						expect = other
					}
				}
				if c.note["kind"] != "POLICY" && policy == ClockQuartz {
					// Quartz itself differs on the rows about DST; the golden file
					// holds what it does.
					if c.note["area"] != "cron" {
						continue
					}
				}
				columns[column]++
				s, err := Compile(c.spec(policy))
				require.NoError(t, err)
				want := instants(t, expect)
				got := nextTimes(s, c.from, 3)
				require.Equal(t, want, got, "%s in %s under %s", c.expr, c.zone, policy)

				fires, _, err := Preview(0, []Spec{{Expr: c.expr, Dialect: c.dialect, Zone: c.zone, ClockChange: policy}}, c.from, 3)
				require.NoError(t, err)
				require.Len(t, fires, len(want))
				for i := range want {
					require.True(t, want[i].Equal(fires[i].At))
				}
			}
		})
	}
	for policy, column := range columnOf {
		require.Greater(t, columns[column], 5, "policy %s was hardly tested", policy)
	}
}

// requireRefused accepts a refusal when saving: by Compile, or by Over for a schedule
// whose time is past.
func requireRefused(t *testing.T, c cronCase) {
	t.Helper()
	started := time.Now()
	s, err := Compile(c.spec(""))
	took := time.Since(started)
	var refusal *message.Invalid
	if err == nil {
		refusal = s.Over(c.from)
		require.NotNil(t, refusal, "%q was taken; next %v", c.expr, nextTimes(s, c.from, 3))
	} else {
		require.True(t, errors.As(err, &refusal))
	}
	require.NotEmpty(t, refusal.Code)
	require.NotEmpty(t, refusal.Message.EN)
	require.NotEmpty(t, refusal.Message.ZH)
	require.Contains(t, []string{"expr", "zone"}, refusal.Field)
	// Far above what it takes, so that a busy machine does not fail it; the bound on
	// the work itself is in TestSearchIsBounded.
	require.Less(t, took, 100*time.Millisecond)
	t.Logf("%s", refusal)
	t.Logf("%s | token %q | suggestion %q", refusal.Message.ZH, refusal.Token, refusal.Suggestion)
	if refusal.Field == "expr" && refusal.Suggestion != "" {
		_, err := Compile(Spec{Expr: refusal.Suggestion, Zone: "UTC", Dialect: dialectFor(refusal.Suggestion)})
		require.NoError(t, err, "a suggestion must itself be right: %q", refusal.Suggestion)
	}
}

func dialectFor(text string) string {
	if len(strings.Fields(text)) == 5 {
		return Unix
	}
	return Quartz
}

// What we refuse although Quartz takes it, with the reason.
var stricter = map[string]string{
	"0 0/0 * * * ?": "a step of 0 is a slip; Quartz reads it as the single value 0",
}

func TestQuartzGolden(t *testing.T) {
	data, err := os.ReadFile("testdata/quartz_golden.txt")
	require.NoError(t, err)
	rows := 0
	for line := range strings.SplitSeq(strings.TrimSpace(string(data)), "\n") {
		if strings.HasPrefix(line, "#") {
			continue
		}
		columns := strings.Split(line, " · ")
		require.Len(t, columns, 4)
		rows++
		expr, zoneName, start, expect := columns[0], columns[1], columns[2], columns[3]
		t.Run(fmt.Sprintf("%s in %s from %s", expr, zoneName, start), func(t *testing.T) {
			if expr == "(empty)" {
				expr = ""
			}
			loc, err := ParseZone(zoneName)
			require.NoError(t, err)
			from, err := time.ParseInLocation("2006-01-02 15:04:05", start, loc)
			require.NoError(t, err)
			s, err := Compile(Spec{Expr: expr, Zone: zoneName, ClockChange: ClockQuartz})
			if _, ok := stricter[expr]; ok {
				require.Error(t, err)
				return
			}
			if strings.HasPrefix(expect, "ERR") {
				require.Error(t, err)
				return
			}
			if expect == "null" {
				if err == nil {
					require.NotNil(t, s.Over(from))
				}
				return
			}
			require.NoError(t, err)
			var got []string
			want := strings.Split(expect, " | ")
			for _, at := range nextTimes(s, from, len(want)) {
				text := at.In(loc).Format("2006-01-02 15:04:05 Mon MST")
				// The zone database no longer names these offsets by letters.
				text = strings.NewReplacer(" -02", " BRST", " +11", " LHDT").Replace(text)
				got = append(got, text)
			}
			require.Equal(t, want, got)
		})
	}
	require.Equal(t, 41, rows)
}
