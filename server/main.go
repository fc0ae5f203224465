// Command ax-server is the scheduling centre of ax: it keeps jobs, computes their firings and
// sends them to executors. docs/walk.md follows one firing through the code.
package main

import (
	"context"
	"os"
	"os/signal"
	"syscall"

	"github.com/ax-scheduler/ax/server/cli"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	go func() {
		<-ctx.Done()
		stop() // a second signal ends the process at once
	}()
	os.Exit(cli.Run(ctx, os.Args[1:], os.Stdin, os.Stdout, os.Stderr))
}
