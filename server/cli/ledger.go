package cli

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"time"

	"github.com/spf13/cobra"

	"github.com/ax-scheduler/ax/internal/config"
	"github.com/ax-scheduler/ax/internal/ledger"
	"github.com/ax-scheduler/ax/internal/store"
)

// errFound ends a check that has found something: exit code 1, and nothing more to say.
var errFound = errors.New("the ledger is not clean")

type findingView struct {
	Kind    string `json:"kind"`
	Job     string `json:"job"`
	Trigger int    `json:"trigger,omitempty"`
	Batch   string `json:"batchId,omitempty"`
	From    string `json:"from"`
	To      string `json:"to"`
	Count   int64  `json:"count"`
	Detail  string `json:"detail,omitempty"`
}

type ledgerView struct {
	Clean      bool             `json:"clean"`
	From       string           `json:"from,omitempty"`
	To         string           `json:"to,omitempty"`
	Jobs       int              `json:"jobs"`
	Planned    int64            `json:"planned"`
	Batches    int64            `json:"batches"`
	Executions int64            `json:"executions"`
	Counts     map[string]int64 `json:"counts"`
	Findings   []findingView    `json:"findings"`
}

func ledgerCommand() *cobra.Command {
	c := &cobra.Command{Use: "ledger", Short: "about the firing ledger", Args: noArgs}
	var from, to, job string
	var asJSON bool
	check := &cobra.Command{
		Use: "check", Short: "compare every planned firing with its row", Args: noArgs,
		Long: "Compares the plan with what became of it, for each job and trigger: gaps, doubles, early starts,\nmissed spans that count wrong, batches and executions that contradict each other. It only reads, and may\nrun beside a server. What was not in force, and history that retention has dropped, is not asked for.\n\nIt ends with exit code 1 when it finds something, and 2 when it could not check.",
		RunE: func(c *cobra.Command, _ []string) error {
			var o ledger.Options
			var err error
			for _, t := range []struct {
				flag, text string
				to         *int64
			}{{"from", from, &o.From}, {"to", to, &o.To}} {
				if t.text == "" {
					continue
				}
				at, err := time.Parse(time.RFC3339, t.text)
				if err != nil {
					return usageError{fmt.Errorf("--%s is %q; write a time with its offset, such as 2026-01-01T00:00:00Z", t.flag, t.text)}
				}
				*t.to = at.UnixMilli()
			}
			if o.To != 0 && o.To <= o.From {
				return usageError{fmt.Errorf("--to %s is not after --from %s", to, from)}
			}
			if job != "" {
				if o.Job, err = strconv.ParseInt(job, 10, 64); err != nil || o.Job <= 0 {
					return usageError{fmt.Errorf("--job is %q; write a job's id, such as 10001", job)}
				}
			}
			cfg, err := config.Load(c.Flags())
			if err != nil {
				return err
			}
			if cfg.Database == "" {
				if _, err := os.Stat(filepath.Join(cfg.Data, "ax.db")); err != nil {
					return usageError{fmt.Errorf("there is no database in %s; name it with --data DIR or --database DSN", cfg.Data)}
				}
			}
			// What could not be checked does not end like what was found.
			s, err := store.Open(store.Config{DSN: cfg.Database, Dir: cfg.Data})
			if err != nil {
				return usageError{err}
			}
			defer func() { _ = s.Close() }()
			if err := s.Ready(c.Context()); err != nil {
				return usageError{err}
			}
			if err := s.Ledger().Whole(c.Context()); err != nil {
				return usageError{fmt.Errorf("this database has no record of which triggers were in force: start this build's server on it once (%w)", err)}
			}
			if terminal(c.ErrOrStderr()) {
				o.Progress = progress(c.ErrOrStderr())
			}
			r, err := ledger.Check(c.Context(), s, o)
			if err != nil {
				return usageError{err}
			}
			if err := printReport(c.OutOrStdout(), r, asJSON); err != nil {
				return err
			}
			if !r.Clean() {
				return errFound
			}
			return nil
		},
	}
	f := check.Flags()
	f.StringVar(&from, "from", "", "RFC 3339 `time` from which on firings are looked at")
	f.StringVar(&to, "to", "", "RFC 3339 `time` up to which")
	f.StringVar(&job, "job", "", "only the job with this `id`")
	f.BoolVar(&asJSON, "json", false, "print JSON")
	config.Flags(f)
	c.AddCommand(check)
	return c
}

// terminal tells whether somebody watches w.
func terminal(w io.Writer) bool {
	f, ok := w.(*os.File)
	if !ok {
		return false
	}
	info, err := f.Stat()
	return err == nil && info.Mode()&os.ModeCharDevice != 0
}

// progress rewrites one line, a few times a second.
func progress(w io.Writer) func(done, total int) {
	var last time.Time
	return func(done, total int) {
		if done == total {
			_, _ = fmt.Fprint(w, "\r\x1b[K")
			return
		}
		if time.Since(last) > 200*time.Millisecond {
			last = time.Now()
			_, _ = fmt.Fprintf(w, "\r%d of %d jobs", done, total)
		}
	}
}

func stampOf(ms int64) string { return time.UnixMilli(ms).UTC().Format(stampForm) }

func printReport(w io.Writer, r ledger.Report, asJSON bool) error {
	v := ledgerView{Clean: r.Clean(), Jobs: r.Jobs, Planned: r.Planned, Batches: r.Batches, Executions: r.Executions, Counts: r.Counts, Findings: []findingView{}}
	if r.From > 0 {
		v.From = stampOf(r.From)
	}
	if r.To > 0 {
		v.To = stampOf(r.To)
	}
	for _, f := range r.Found {
		v.Findings = append(v.Findings, findingView{
			Kind: f.Kind, Job: strconv.FormatInt(f.JobID, 10), Trigger: f.No, Batch: f.BatchID, From: stampOf(f.From), To: stampOf(f.To), Count: f.Count, Detail: f.Detail,
		})
	}
	if asJSON {
		e := json.NewEncoder(w)
		e.SetIndent("", "  ")
		return e.Encode(v)
	}
	for _, f := range v.Findings {
		text := fmt.Sprintf("%-7s job %s trigger %d  %s", f.Kind, f.Job, f.Trigger, f.From)
		if f.To != f.From {
			text += " to " + f.To
		}
		text += fmt.Sprintf("  %d firings", f.Count)
		if f.Batch != "" {
			text += "  batch " + f.Batch
		}
		if f.Detail != "" {
			text += "  (" + f.Detail + ")"
		}
		if _, err := fmt.Fprintln(w, text); err != nil {
			return err
		}
	}
	sum := "clean"
	if !v.Clean {
		kinds := make([]string, 0, len(r.Counts))
		for k := range r.Counts {
			kinds = append(kinds, k)
		}
		slices.Sort(kinds)
		sum = "found"
		for _, k := range kinds {
			sum += fmt.Sprintf(" %s: %d", k, r.Counts[k])
		}
	}
	_, err := fmt.Fprintf(w, "%s; %d jobs, %d planned firings, %d batches, %d executions\n", sum, r.Jobs, r.Planned, r.Batches, r.Executions)
	return err
}
