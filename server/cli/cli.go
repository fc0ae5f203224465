// Package cli is the command line of ax-server.
package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"

	"github.com/spf13/cobra"

	"github.com/ax-scheduler/ax/internal/config"
	"github.com/ax-scheduler/ax/server/app"
)

// Exit codes.
const (
	exitOK     = 0
	exitFailed = 1 // it could not be done: a port is taken, a key is wrong
	exitUsage  = 2 // what was asked is not understood: flags, settings, an expression
)

// errRefused is a refusal that was printed already.
var errRefused = errors.New("refused")

// usageError is a mistake in the command line.
type usageError struct{ error }

// Unwrap gives the cause.
func (e usageError) Unwrap() error { return e.error }

// Run runs a command and returns the exit code.
func Run(ctx context.Context, args []string, in io.Reader, out, errOut io.Writer) int {
	root := &cobra.Command{
		Use: "ax-server", Short: "ax is a distributed job scheduler; ax-server is its scheduling centre", SilenceUsage: true, SilenceErrors: true,
		Version: app.Version + " (" + app.Commit + ")",
	}
	root.SetArgs(args)
	root.SetIn(in)
	root.SetOut(out)
	root.SetErr(errOut)
	root.SetFlagErrorFunc(func(_ *cobra.Command, err error) error { return usageError{err} })
	root.CompletionOptions.HiddenDefaultCmd = true
	root.AddCommand(serveCommand(), demoCommand(), cronCommand(), configCommand(), ledgerCommand(), auditCommand(), openapiCommand(), benchCommand(), benchExecutorCommand())
	err := root.ExecuteContext(ctx)
	var usage usageError
	switch {
	case err == nil:
		return exitOK
	case errors.Is(err, errRefused):
		return exitUsage
	case errors.Is(err, errFound), errors.Is(err, errAltered):
		return exitFailed
	case errors.As(err, &usage), errors.Is(err, config.ErrInvalid):
		_, _ = fmt.Fprintln(errOut, "ax-server:", err)
		return exitUsage
	}
	_, _ = fmt.Fprintln(errOut, "ax-server:", err)
	return exitFailed
}

func noArgs(_ *cobra.Command, args []string) error {
	if len(args) > 0 {
		return usageError{fmt.Errorf("%q is not understood here", args[0])}
	}
	return nil
}

func serveCommand() *cobra.Command {
	c := &cobra.Command{
		Use: "serve", Short: "run a server", Args: noArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			cfg, err := config.Load(c.Flags())
			if err != nil {
				return err
			}
			a, err := app.New(cfg, logger(cfg, c.ErrOrStderr()), c.ErrOrStderr())
			if err != nil {
				return err
			}
			return a.Run(c.Context())
		},
	}
	config.Flags(c.Flags())
	return c
}

func configCommand() *cobra.Command {
	c := &cobra.Command{Use: "config", Short: "about the settings", Args: noArgs}
	show := &cobra.Command{
		Use: "print", Short: "print every setting with its value, source, unit and meaning, as a YAML file", Args: noArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			cfg, err := config.Load(c.Flags())
			if err != nil {
				return err
			}
			_, err = io.WriteString(c.OutOrStdout(), cfg.Print(c.Flags()))
			return err
		},
	}
	config.Flags(show.Flags())
	c.AddCommand(show)
	return c
}

func openapiCommand() *cobra.Command {
	return &cobra.Command{
		Use: "openapi", Short: "print the API's OpenAPI document", Args: noArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			doc, err := app.OpenAPI()
			if err != nil {
				return err
			}
			_, err = c.OutOrStdout().Write(append(doc, '\n'))
			return err
		},
	}
}

// logger makes the server's log. Parameters of jobs are never among its values.
func logger(c config.Config, w io.Writer) *slog.Logger {
	var level slog.Level
	_ = level.UnmarshalText([]byte(c.LogLevel)) // checked by config
	options := &slog.HandlerOptions{Level: level}
	if c.LogFormat == "json" {
		return slog.New(slog.NewJSONHandler(w, options))
	}
	return slog.New(slog.NewTextHandler(w, options))
}
