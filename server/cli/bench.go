package cli

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"github.com/ax-scheduler/ax/internal/protocol"
	"github.com/ax-scheduler/ax/server/app"
	"github.com/ax-scheduler/ax/server/bench"
)

func benchCommand() *cobra.Command {
	o := bench.Options{}
	var asJSON bool
	var mode string
	c := &cobra.Command{
		Use: "bench " + strings.Join(bench.Kinds(), "|"), Short: "measure this program on this machine", ValidArgs: bench.Kinds(),
		Args: func(_ *cobra.Command, args []string) error {
			if len(args) != 1 {
				return usageError{fmt.Errorf("name one measurement: %s", strings.Join(bench.Kinds(), ", "))}
			}
			if slices.Contains(bench.Kinds(), args[0]) {
				return nil
			}
			return usageError{fmt.Errorf("%q is no measurement; there are %s", args[0], strings.Join(bench.Kinds(), ", "))}
		},
		Long: `Starts servers and executors as processes of their own, makes work for them, and counts what
arrived from the executors' ledgers against the plan, and what was committed from the database.

  triggers   a steady rate of firings of interval jobs: error percentiles, processor time
  delayed    many waiting delayed tasks: rates of creation, memory, error percentiles
  burst      delayed tasks that are all due at one second: when the last one was handed over
  coldstart  start of a server with many tasks waiting: when the first due execution arrives
  idle       processor time and memory while many tasks wait and none is due
  failover   two servers, the owner is killed (or paused): when the first late firing arrives

Without --database the server uses its embedded SQLite in a temporary folder; with it, a database
is made beside the named one and dropped afterwards. Everything listens on loopback. The exit code
is 1 when a figure could not be measured, or when a firing was lost, doubled, early or not committed.`,
		RunE: func(c *cobra.Command, args []string) error {
			switch mode {
			case "aggregated":
			case "single":
				o.Single = true
			default:
				return usageError{fmt.Errorf("--dispatch = %q: allowed are aggregated and single", mode)}
			}
			if o.Duration < time.Second || o.Duration > 24*time.Hour {
				return usageError{fmt.Errorf("--duration = %s: allowed are 1s to 24h", o.Duration)}
			}
			if o.Tasks < 1 || o.Tasks > 50_000_000 || o.Rate < 1 || o.Rate > 1_000_000 || o.Executors < 1 || o.Executors > 100 || o.Namespaces < 1 || o.Namespaces > 64 || o.Spread < time.Second {
				return usageError{errors.New("allowed are --tasks 1 to 50000000, --rate 1 to 1000000, --executors 1 to 100, --namespaces 1 to 64, --spread 1s or more")}
			}
			self, err := os.Executable()
			if err != nil {
				return err
			}
			o.Program, o.Progress = self, c.ErrOrStderr()
			report, err := bench.Run(c.Context(), args[0], o)
			if err != nil && !errors.Is(err, bench.ErrIncomplete) {
				return err
			}
			report.Version = app.Version
			if asJSON {
				e := json.NewEncoder(c.OutOrStdout())
				e.SetIndent("", "  ")
				return errors.Join(err, e.Encode(report))
			}
			return errors.Join(err, benchTable(c.OutOrStdout(), report))
		},
	}
	f := c.Flags()
	f.StringVar(&o.Database, "database", "", "mysql:// `DSN` beside whose database one is made; empty = embedded SQLite")
	f.DurationVar(&o.Duration, "duration", time.Minute, "how long is measured")
	f.IntVar(&o.Rate, "rate", 1000, "triggers per second (triggers, failover)")
	f.StringVar(&mode, "dispatch", "aggregated", "aggregated: executions for one executor go together; single: one request each")
	f.IntVar(&o.Executors, "executors", 4, "executor processes")
	f.IntVar(&o.Namespaces, "namespaces", 1, "namespaces that the jobs are spread over (triggers)")
	f.IntVar(&o.Tasks, "tasks", 100_000, "delayed tasks (delayed, burst, coldstart, idle)")
	f.DurationVar(&o.Spread, "spread", 30*time.Minute, "the range of their delays (delayed, coldstart, idle)")
	f.BoolVar(&o.Pause, "pause", false, "failover: pause the owner's process instead of killing it")
	f.StringArrayVar(&o.Settings, "set", nil, "a further setting of the servers, `key=value`")
	f.BoolVar(&o.Keep, "keep", false, "leave the temporary folder with the logs")
	f.BoolVar(&asJSON, "json", false, "print JSON")
	return c
}

func benchTable(out io.Writer, r bench.Report) error {
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	row := func(name, format string, args ...any) {
		_, _ = fmt.Fprintf(w, "%s\t%s\n", name, fmt.Sprintf(format, args...))
	}
	row(r.Name, "%s, %s dispatch", r.Database, r.Dispatch)
	if r.Planned > 0 {
		row("planned", "%d", r.Planned)
	}
	number := func(name, format string, v *float64) {
		if v != nil {
			row(name, format, *v)
		}
	}
	count := func(name string, v *int) {
		if v != nil {
			row(name, "%d", *v)
		}
	}
	number("triggers/s", "%.0f", r.TriggersPerSecond)
	if e := r.ErrorMs; e != nil {
		row("error, ms", "min %.2f  p50 %.2f  p90 %.2f  p99 %.2f  max %.2f", e.Min, e.P50, e.P90, e.P99, e.Max)
	}
	number("seconds", "%.3f", r.Seconds)
	count("lost", r.Lost)
	count("doubled", r.Doubled)
	count("early", r.Early)
	count("not committed", r.Uncommitted)
	if created := r.CreatedPerSecond; created != nil {
		if created.Single > 0 {
			row("created/s, single", "%.0f", created.Single)
		}
		row("created/s, bulk", "%.0f", created.Bulk)
	}
	number("server, µs/trigger", "%.0f", r.CPUMicrosPerTrigger)
	number("database, µs/trigger", "%.0f", r.DatabaseCPUMicrosPerTrigger)
	number("server, % of a core", "%.2f", r.CPUPercent)
	number("memory before, MB", "%.0f", r.IdleRSSMB)
	number("memory, MB", "%.0f", r.RSSMB)
	return w.Flush()
}

// benchExecutorCommand is one executor process of a measurement; it ends with its standard input.
func benchExecutorCommand() *cobra.Command {
	var servers, keyFile string
	x := bench.Executor{}
	c := &cobra.Command{
		Use: "bench-executor", Hidden: true, Args: noArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			raw, err := os.ReadFile(keyFile)
			if err != nil {
				return err
			}
			if x.Key, err = protocol.ParseKey(string(raw)); err != nil {
				return err
			}
			x.Servers, x.Log = strings.Split(servers, ","), slog.New(slog.NewTextHandler(c.ErrOrStderr(), nil))
			ctx, cancel := withInput(c.Context(), c.InOrStdin())
			defer cancel()
			return x.Run(ctx)
		},
	}
	f := c.Flags()
	f.StringVar(&servers, "server", "", "")
	f.StringVar(&x.Namespace, "namespace", "", "")
	f.StringVar(&x.App, "app", "", "")
	f.StringVar(&keyFile, "key-file", "", "")
	f.IntVar(&x.Slots, "slots", 1, "")
	return c
}

// withInput is a context that ends when the input does: with the process that started this one.
func withInput(ctx context.Context, in io.Reader) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithCancel(ctx)
	go func() {
		_, _ = io.Copy(io.Discard, in)
		cancel()
	}()
	return ctx, cancel
}
