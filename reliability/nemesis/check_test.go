package nemesis

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// sound is a small run in which everything holds.
func sound() Evidence {
	return Evidence{
		Ledger: []Line{
			{What: "start", Executor: "x", Namespace: "a", Job: 1, Batch: "1-a", Attempt: 1, Execution: 11, Epoch: 1, At: 1000},
			{What: "end", Executor: "x", Namespace: "a", Job: 1, Batch: "1-a", Attempt: 1, Execution: 11, At: 1100, State: "FAILED"},
			{What: "start", Executor: "y", Namespace: "a", Job: 1, Batch: "1-a", Attempt: 2, Execution: 12, Epoch: 2, At: 1200},
			{What: "end", Executor: "y", Namespace: "a", Job: 1, Batch: "1-a", Attempt: 2, Execution: 12, At: 1300, State: "SUCCEEDED"},
		},
		Rows: []Row{
			{ID: 11, Bucket: 3, Job: 1, Batch: "1-a", Attempt: 1, Status: "FAILED"},
			{ID: 12, Bucket: 3, Job: 1, Batch: "1-a", Attempt: 2, Status: "SUCCEEDED"},
		},
		Firings:  []Firing{{ID: "1-a", Job: 1, State: "SUCCEEDED"}},
		Answered: []Answered{{RequestID: "r", Batch: "1-a"}, {Batch: "1-a", Key: "k"}, {Batch: "1-a", Key: "k"}},
		Audited:  map[string]int{"r": 1},
		Owners:   map[string][]int64{"a": {1}, "b": {2}},
	}
}

// Each invariant is missed by nothing that breaks it, and by nothing else.
func TestEveryInvariantIsNoticed(t *testing.T) {
	require.Empty(t, Check(sound()))
	for name, tt := range map[string]struct {
		invariant string
		spoil     func(e *Evidence)
	}{
		"a gap in the plan":                     {"I1", func(e *Evidence) { e.Planned = map[string]int64{"gap": 1} }},
		"a success that ran nowhere":            {"I1", func(e *Evidence) { e.Ledger = e.Ledger[:2] }},
		"a start without a row":                 {"I1", func(e *Evidence) { e.Rows = e.Rows[:1] }},
		"two starts of an attempt":              {"I2", func(e *Evidence) { l := e.Ledger[2]; l.Executor = "z"; e.Ledger = append(e.Ledger, l) }},
		"two attempts at once":                  {"I2", func(e *Evidence) { e.Ledger[1].At = 1250 }},
		"another end than the executor's":       {"I3", func(e *Evidence) { e.Rows[1].Status = "FAILED" }},
		"an owner whose epoch is over":          {"I3", func(e *Evidence) { e.Ledger[0].Epoch = 5; e.Ledger[2].At, e.Ledger[3].At = 2500, 2600 }},
		"a change without its audit entry":      {"I4", func(e *Evidence) { e.Audited = nil }},
		"an answer that is not there":           {"I5", func(e *Evidence) { e.Answered = append(e.Answered, Answered{Batch: "1-b"}) }},
		"a key that made two":                   {"I5", func(e *Evidence) { e.Firings = append(e.Firings, Firing{ID: "1-b"}); e.Answered[2].Batch = "1-b" }},
		"a run on another namespace's executor": {"I7", func(e *Evidence) { e.Ledger[0].Namespace = "b" }},
	} {
		t.Run(name, func(t *testing.T) {
			e := sound()
			tt.spoil(&e)
			found := Check(e)
			require.NotEmpty(t, found)
			for _, v := range found {
				require.Equal(t, tt.invariant, v.Invariant, v.Text)
			}
		})
	}
}

func TestALedgerIsRead(t *testing.T) {
	lines, err := Read(strings.NewReader("{\"what\":\"start\",\"batch\":\"b\",\"job\":\"7\",\"execution\":\"9\"}\n"))
	require.NoError(t, err)
	require.Equal(t, []Line{{What: "start", Batch: "b", Job: 7, Execution: 9}}, lines)
	_, err = Read(strings.NewReader("{\"what\":"))
	require.Error(t, err, "a line that was cut off is no ledger")
}
