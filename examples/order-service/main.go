// Command order-service is a sample executor of ax: a shop's order database whose orders are
// copied into a warehouse table every day, in shards.
package main

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/ax-scheduler/ax/sdk/go"
)

const usage = `order-service is a sample executor of ax.

  order-service seed   makes the order database
  order-service run    runs the executor
  order-service check  compares the warehouse with the orders

Each takes -h.
`

// errFound is what check ends with when orders are missing or doubled.
var errFound = errors.New("orders are missing or doubled")

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := command(ctx, os.Args[1:], os.Stdin, os.Stdout, os.Stderr)
	stop()
	switch {
	case err == nil:
	case errors.Is(err, errFound):
		os.Exit(1)
	case errors.Is(err, flag.ErrHelp):
		os.Exit(2)
	default:
		fmt.Fprintln(os.Stderr, "order-service:", err)
		os.Exit(2)
	}
}

func command(ctx context.Context, args []string, in io.Reader, out, errOut io.Writer) error {
	if len(args) == 0 {
		fmt.Fprint(errOut, usage)
		return flag.ErrHelp
	}
	flags := flag.NewFlagSet("order-service "+args[0], flag.ContinueOnError)
	flags.SetOutput(errOut)
	file := flags.String("db", "", "order database, an SQLite `file` (needed)")
	var work func() error
	switch args[0] {
	case "seed":
		orders := flags.Int("orders", defaultOrders, "number of orders")
		days := flags.Int("days", defaultDays, "days up to yesterday over which they are spread")
		work = func() error { return runSeed(ctx, out, *file, *orders, *days) }
	case "run":
		var o runOptions
		flags.StringVar(&o.server, "server", "http://127.0.0.1:8081", "base `URL` of ax-server")
		flags.StringVar(&o.namespace, "namespace", "default", "namespace of the app")
		flags.StringVar(&o.app, "app", "order-service", "name of the app")
		flags.StringVar(&o.keyFile, "key-file", "", "`file` with the app's key (needed)")
		flags.StringVar(&o.dir, "dir", "./ax-executor", "`directory` of this executor's memory; one for each process")
		flags.StringVar(&o.name, "name", "order-service", "name of this executor, its label \"name\"")
		flags.StringVar(&o.listen, "listen", "127.0.0.1:0", "`address` for the server's calls")
		flags.BoolVar(&o.stopWithParent, "stop-with-parent", false, "end when standard input ends, within 5 s")
		work = func() error { o.db = *file; return runExecutor(ctx, in, errOut, o) }
	case "check":
		batch := flags.String("batch", "", "`id` of the batch (needed)")
		planned := flags.String("planned", "", "planned `time` of the batch, RFC 3339 (needed)")
		zone := flags.String("zone", seedZone, "the trigger's zone")
		keep := flags.Int("keep", 20, "batches that stay in the warehouse")
		work = func() error { return runCheck(ctx, out, *file, *batch, *planned, *zone, *keep) }
	default:
		fmt.Fprint(errOut, usage)
		return fmt.Errorf("unknown command %q", args[0])
	}
	if err := flags.Parse(args[1:]); err != nil {
		return flag.ErrHelp // flag has said what is wrong
	}
	if flags.NArg() > 0 {
		return fmt.Errorf("unexpected argument %q", flags.Arg(0))
	}
	if *file == "" {
		return errors.New("--db is missing")
	}
	return work()
}

func runSeed(ctx context.Context, out io.Writer, file string, orders, days int) error {
	begun := time.Now()
	db, err := openDB(ctx, file)
	if err != nil {
		return err
	}
	defer db.Close()
	made, err := seed(ctx, db, orders, days, time.Now())
	if err != nil {
		return err
	}
	fmt.Fprintf(out, "made %d orders in %s\n", made, time.Since(begun).Round(time.Millisecond))
	return nil
}

type runOptions struct {
	server, namespace, app, keyFile, db, dir, name, listen string
	stopWithParent                                         bool
}

func runExecutor(ctx context.Context, in io.Reader, errOut io.Writer, o runOptions) error {
	if o.keyFile == "" {
		return errors.New("--key-file is missing")
	}
	key, err := os.ReadFile(o.keyFile)
	if err != nil {
		return fmt.Errorf("read key: %w", err)
	}
	db, err := openDB(ctx, o.db)
	if err != nil {
		return err
	}
	defer db.Close()
	options := ax.Options{
		Server: o.server, Namespace: o.namespace, App: o.app, Key: string(key), Listen: o.listen, Dir: o.dir,
		Labels: map[string]string{"name": o.name},
		Logger: slog.New(slog.NewTextHandler(errOut, nil)).With(slog.String("name", o.name)),
	}
	if o.stopWithParent {
		// Whoever started us holds the other end of a pipe. It ends with that process, however
		// that ended, so no executor is left behind.
		options.DrainTimeout = 4 * time.Second
		var stop context.CancelFunc
		ctx, stop = context.WithCancel(ctx)
		defer stop()
		go func() {
			_, _ = io.Copy(io.Discard, in)
			stop()
		}()
	}
	ex, err := ax.New(options)
	if err != nil {
		return err
	}
	addHandlers(ex, db)
	return ex.Run(ctx)
}

func runCheck(ctx context.Context, out io.Writer, file, batch, planned, zone string, keep int) error {
	if batch == "" {
		return errors.New("--batch is missing")
	}
	at, err := time.Parse(time.RFC3339, planned)
	if err != nil {
		return fmt.Errorf("--planned: %w", err)
	}
	where, err := time.LoadLocation(zone)
	if err != nil {
		return fmt.Errorf("--zone: %w", err)
	}
	if keep < 1 {
		return errors.New("--keep: at least 1")
	}
	db, err := openDB(ctx, file)
	if err != nil {
		return err
	}
	defer db.Close()
	r, err := check(ctx, db, batch, at.In(where), keep)
	if err != nil {
		return err
	}
	if err := json.NewEncoder(out).Encode(r); err != nil {
		return err
	}
	if !r.good() {
		return errFound
	}
	return nil
}
