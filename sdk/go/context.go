package ax

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"regexp"
	"strings"
	"time"
)

// What a handler's context was cancelled for: context.Cause of it is one of these, wrapped in
// an error that says more.
var (
	// ErrTimedOut: the execution's time limit struck. It also is context.DeadlineExceeded.
	ErrTimedOut error = timeoutError{}
	// ErrKilled: the server asked to stop this execution.
	ErrKilled = errors.New("execution stopped")
	// ErrShutdown: the executor shuts down and the time for finishing is nearly over.
	ErrShutdown = errors.New("executor shuts down")
)

type timeoutError struct{}

func (timeoutError) Error() string        { return "execution timed out" }
func (timeoutError) Timeout() bool        { return true }
func (timeoutError) Is(target error) bool { return target == context.DeadlineExceeded }

type stopError struct {
	cause  error
	detail string
}

func (e *stopError) Error() string { return e.cause.Error() + ": " + e.detail }
func (e *stopError) Unwrap() error { return e.cause }

type noRetryError struct{ err error }

func (e *noRetryError) Error() string { return e.err.Error() }
func (e *noRetryError) Unwrap() error { return e.err }

// NoRetry marks an error that can not heal, such as parameters that make no sense: the
// execution fails and is not tried again, whatever the job's retry policy. NoRetry(nil) is nil.
func NoRetry(err error) error {
	if err == nil {
		return nil
	}
	return &noRetryError{err}
}

type codeError struct {
	code string
	err  error
}

func (e *codeError) Error() string { return e.err.Error() }
func (e *codeError) Unwrap() error { return e.err }

// Code gives an error a code by which the job's retry rules know it: 1 to 64 letters, digits, '.', '_' and
// '-', such as "ACCOUNT_LOCKED". The outermost code counts; one that is none is left out. Code of nil is nil.
func Code(code string, err error) error {
	if err == nil {
		return nil
	}
	return &codeError{code, err}
}

var codePattern = regexp.MustCompile(`^[A-Za-z0-9._-]{1,64}$`)

// codeOf is the code of an error, "" = none.
func codeOf(err error) string {
	var coded *codeError
	if errors.As(err, &coded) && codePattern.MatchString(coded.code) {
		return coded.code
	}
	return ""
}

// Handler runs one execution. Returning nil is success. It must stop soon after its context is
// cancelled: an execution that was timed out or stopped ends when the handler returns, and keeps
// its place in the pool until then. Several executions may run at once.
type Handler func(c *Context) error

// Returning makes a handler of a function that also returns the result value.
//
//	ex.Simple("countOrders", ax.Returning(func(c *ax.Context) (int, error) { … }))
func Returning[T any](f func(c *Context) (T, error)) Handler {
	return func(c *Context) error {
		v, err := f(c)
		if err != nil {
			return err
		}
		return c.Result(v)
	}
}

// Context is what a handler knows about its execution and how it speaks to the server. It is
// cancelled when the execution times out, is stopped, or the executor shuts down;
// context.Cause tells which. Its methods may be called from several goroutines, but only
// until the handler returns.
type Context struct {
	context.Context
	run *run
}

// Deadline is when the execution times out. Extend moves it.
func (c *Context) Deadline() (time.Time, bool) { return c.run.limit() }

// BatchID names the firing: the same for all shards and attempts of it.
func (c *Context) BatchID() string { return c.run.e.BatchID }

// ExecutionID names this attempt of this shard.
func (c *Context) ExecutionID() string { return c.run.e.ExecutionID }

// ShardingID is the number of this shard, from 0; 0 for a job without shards.
func (c *Context) ShardingID() int { return c.run.e.ShardingID }

// ShardingTotal is the number of shards; 1 for a job without shards.
func (c *Context) ShardingTotal() int { return c.run.e.ShardingTotal }

// Attempt counts from 1.
func (c *Context) Attempt() int { return c.run.e.Fence.Attempt }

// JobID is the id of the job.
func (c *Context) JobID() string { return c.run.e.Job.ID }

// JobName is the name of the job at the time of the firing.
func (c *Context) JobName() string { return c.run.e.Job.Name }

// Params is the job's parameters as they are written there, JSON by convention.
func (c *Context) Params() string { return c.run.e.Params }

// Bind decodes JSON parameters into v. Without parameters v stays as it is, so defaults can be
// set before. Its error says what is wrong, and is marked NoRetry.
func (c *Context) Bind(v any) error {
	text := strings.TrimSpace(c.run.e.Params)
	if text == "" {
		return nil
	}
	err := json.Unmarshal([]byte(text), v)
	if err == nil {
		return nil
	}
	var kind *json.UnmarshalTypeError
	var syntax *json.SyntaxError
	switch {
	case errors.As(err, &kind) && kind.Field != "":
		err = fmt.Errorf("field %s wants %s, not a %s", kind.Field, kind.Type, kind.Value)
	case errors.As(err, &kind):
		err = fmt.Errorf("want %s, not a %s", kind.Type, kind.Value)
	case errors.As(err, &syntax):
		err = fmt.Errorf("not JSON at byte %d: %w", syntax.Offset, syntax)
	}
	return NoRetry(fmt.Errorf("params of job %s: %w", c.run.e.Job.Name, err))
}

// Zone is the zone of the trigger; UTC when this host does not know it.
func (c *Context) Zone() *time.Location {
	zone, err := time.LoadLocation(c.run.e.Zone)
	if err != nil {
		return time.UTC
	}
	return zone
}

// DueAt is when the execution was to run, in the trigger's zone.
func (c *Context) DueAt() time.Time { return time.UnixMilli(c.run.e.DueAt).In(c.Zone()) }

// PlannedFor is the business time that the execution is about, in the trigger's zone. It
// differs from DueAt in a backfill; work that depends on a date should use it.
func (c *Context) PlannedFor() time.Time { return time.UnixMilli(c.run.e.PlannedFor).In(c.Zone()) }

// Trigger tells what opened the batch, such as cron, event or manual.
func (c *Context) Trigger() string { return c.run.e.Trigger }

// Event is the body of the event that opened the batch; nil when none did.
func (c *Context) Event() json.RawMessage { return c.run.e.Event }

// TraceID names the execution in traces and logs.
func (c *Context) TraceID() string { return c.run.e.TraceID }

// TraceParent is the W3C trace context of the server's request; empty when there was none.
func (c *Context) TraceParent() string { return c.run.traceParent }

// Log writes text to the execution's output, ending the line. It does not wait for the server:
// lines are sent in order every 500 ms or 32 kB. When the server does not take them, 256 kB wait
// for each execution and 8 MB for all; what is beyond is left out, and a line says how much.
func (c *Context) Log(text string) { c.run.out.write(text) }

// Logf is Log with the verbs of package fmt.
func (c *Context) Logf(format string, args ...any) { c.run.out.write(fmt.Sprintf(format, args...)) }

// Output is the execution's output as a writer, for loggers: each Write is one or more whole lines.
func (c *Context) Output() io.Writer { return outputWriter{c.run.out} }

// Progress tells how far the execution is, in percent from 0 to 100.
func (c *Context) Progress(percent int) { c.run.out.progressed(min(max(percent, 0), 100)) }

// Result sets the result value, stored as JSON, at most 64 kB. The last call counts. It is
// also reported when the execution fails.
func (c *Context) Result(v any) error {
	b, err := json.Marshal(v)
	if err != nil {
		return fmt.Errorf("encode result value: %w", err)
	}
	c.run.mu.Lock()
	defer c.run.mu.Unlock()
	c.run.value = string(b)
	return nil
}

// Message sets the sentence that is shown beside a successful result, at most 4 kB.
func (c *Context) Message(text string) {
	c.run.mu.Lock()
	defer c.run.mu.Unlock()
	c.run.message = text
}

// Extend asks the server for d more time and, when it agrees, moves the execution's own limit
// by d. It waits for the answer, at most 10 s. With an error nothing has changed here.
func (c *Context) Extend(d time.Duration) error {
	if d <= 0 {
		return errors.New("extend: the span must be positive")
	}
	return c.run.extend(c, d)
}
