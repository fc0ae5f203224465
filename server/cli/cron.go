package cli

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/ax-scheduler/ax/internal/message"
	"github.com/ax-scheduler/ax/internal/schedule"
)

type cronAnswer struct {
	Fires    []string           `json:"fires"`
	Notes    []cronNote         `json:"notes,omitempty"`
	Warnings []schedule.Warning `json:"warnings"`
}

// cronNote says what is special about one of the firings.
type cronNote struct {
	At      string       `json:"at"` // as in Fires
	Message message.Text `json:"message"`
}

type cronRefusal struct {
	Error *message.Invalid `json:"error"`
}

const stampForm = "2006-01-02T15:04:05.999Z07:00"

func cronCommand() *cobra.Command {
	c := &cobra.Command{Use: "cron", Short: "about schedules", Args: noArgs}
	var expr, dialect, zone, from string
	var o cronOptions
	var count int
	var asJSON, batch bool
	next := &cobra.Command{
		Use: "next", Short: "print the next firings of an expression", Args: noArgs,
		Long: "Prints the next firings of an expression, exactly as the server computes them.\n\nWith --batch it reads lines of expr<TAB>dialect<TAB>zone<TAB>from from standard input and\nprints one JSON line for each. A refused expression ends with exit code 2.",
		RunE: func(c *cobra.Command, _ []string) error {
			if count < 1 || count > 1000 {
				return usageError{fmt.Errorf("-n is %d; allowed is 1 to 1000", count)}
			}
			if batch {
				return cronBatch(c.InOrStdin(), c.OutOrStdout(), o, count)
			}
			if !c.Flags().Changed("expr") {
				return usageError{errors.New("--expr is needed, such as --expr '0 0 12 * * ?'")}
			}
			answer, refusal := cronNext(expr, dialect, zone, from, o, count)
			return cronPrint(c.OutOrStdout(), c.ErrOrStderr(), answer, refusal, asJSON)
		},
	}
	f := next.Flags()
	f.StringVar(&expr, "expr", "", "the expression")
	f.StringVar(&dialect, "dialect", schedule.Quartz, "quartz, unix or descriptor")
	f.StringVar(&zone, "zone", schedule.DefaultZone, "time zone")
	f.StringVar(&from, "from", "", "RFC 3339 `time` after which to look (default now)")
	f.IntVarP(&count, "count", "n", 3, "how many, 1 to 1000")
	f.StringVar(&o.clockChange, "clock-change", schedule.ClockOnce, "once, skip, both or quartz")
	f.StringVar(&o.start, "start", "", "RFC 3339 `time` before which nothing fires; the anchor of @every")
	f.StringVar(&o.end, "end", "", "RFC 3339 `time` after which nothing fires")
	f.BoolVar(&asJSON, "json", false, "print JSON")
	f.BoolVar(&batch, "batch", false, "read lines from standard input")
	c.AddCommand(next)
	return c
}

// cronOptions are the settings of a trigger that hold for each line of a batch.
type cronOptions struct{ clockChange, start, end string }

func cronTime(field, text string) (*time.Time, *message.Invalid) {
	if text == "" {
		return nil, nil //nolint:nilnil // not given is no mistake
	}
	t, err := time.Parse(time.RFC3339, text)
	if err != nil {
		return nil, &message.Invalid{Code: "bad_time", Field: field, Token: text, Suggestion: "2026-01-01T00:00:00Z", Message: message.Text{
			EN: fmt.Sprintf("%q is not a time; write it as 2026-01-01T00:00:00Z.", text), ZH: fmt.Sprintf("“%s” 不是时间；请写成 2026-01-01T00:00:00Z。", text),
		}}
	}
	return &t, nil
}

// cronNext answers for one expression, as a preview of it does.
func cronNext(expr, dialect, zone, from string, o cronOptions, count int) (*cronAnswer, *message.Invalid) {
	start := time.Now()
	asked, refusal := cronTime("from", from)
	if refusal != nil {
		return nil, refusal
	}
	if asked != nil {
		start = *asked
	}
	begin, refusal := cronTime("start", o.start)
	if refusal != nil {
		return nil, refusal
	}
	end, refusal := cronTime("end", o.end)
	if refusal != nil {
		return nil, refusal
	}
	spec := schedule.Spec{Kind: schedule.Cron, Expr: expr, Dialect: dialect, Zone: zone, ClockChange: o.clockChange, Start: begin, End: end}
	fires, warnings, err := schedule.Preview(0, []schedule.Spec{spec}, start, count)
	if refusal, ok := errors.AsType[*message.Invalid](err); ok {
		refusal.Field = strings.TrimPrefix(refusal.Field, "triggers[0].") // there is but one
		return nil, refusal
	}
	if err != nil {
		return nil, &message.Invalid{Code: "not_understood", Field: "expr", Token: expr, Message: message.Text{EN: err.Error(), ZH: err.Error()}}
	}
	a := &cronAnswer{Fires: []string{}, Warnings: []schedule.Warning{}}
	for _, f := range fires {
		at := f.At.Format(stampForm)
		a.Fires = append(a.Fires, at)
		if f.Note != nil {
			a.Notes = append(a.Notes, cronNote{at, *f.Note})
		}
	}
	for _, w := range warnings {
		a.Warnings = append(a.Warnings, w.Warning)
	}
	return a, nil
}

func cronPrint(out, errOut io.Writer, a *cronAnswer, refusal *message.Invalid, asJSON bool) error {
	if refusal != nil {
		if asJSON {
			return errors.Join(errRefused, jsonLine(out, cronRefusal{refusal}))
		}
		_, _ = fmt.Fprintf(errOut, "%s: %s\n%s\n", refusal.Field, refusal.Message.EN, refusal.Message.ZH)
		if refusal.Suggestion != "" {
			_, _ = fmt.Fprintln(errOut, "suggestion:", refusal.Suggestion)
		}
		return errRefused
	}
	if asJSON {
		return jsonLine(out, a)
	}
	for _, f := range a.Fires {
		at, err := time.Parse(stampForm, f)
		if err != nil {
			return err
		}
		_, _ = fmt.Fprintln(out, f, at.Weekday())
	}
	for _, n := range a.Notes {
		_, _ = fmt.Fprintf(errOut, "%s: %s\n%s：%s\n", n.At, n.Message.EN, n.At, n.Message.ZH)
	}
	for _, w := range a.Warnings {
		_, _ = fmt.Fprintf(errOut, "%s\n%s\n", w.Message.EN, w.Message.ZH)
	}
	return nil
}

// cronBatch answers line by line; a refused line is an answer like any other.
func cronBatch(in io.Reader, out io.Writer, o cronOptions, count int) error {
	lines := bufio.NewScanner(in)
	lines.Buffer(make([]byte, 0, 64<<10), 1<<20)
	w := bufio.NewWriter(out)
	for lines.Scan() {
		fields := strings.Split(strings.TrimSuffix(lines.Text(), "\r"), "\t")
		if len(fields) != 4 {
			refusal := &message.Invalid{Code: "bad_line", Field: "line", Token: lines.Text(), Message: message.Text{
				EN: fmt.Sprintf("4 fields separated by tabs are needed (expression, dialect, zone, from); got %d.", len(fields)), ZH: fmt.Sprintf("需要以制表符分隔的 4 个字段（表达式、方言、时区、起始时间），当前为 %d 个。", len(fields)),
			}}
			if err := jsonLine(w, cronRefusal{refusal}); err != nil {
				return err
			}
			continue
		}
		a, refusal := cronNext(fields[0], fields[1], fields[2], fields[3], o, count)
		var err error
		if refusal != nil {
			err = jsonLine(w, cronRefusal{refusal})
		} else {
			err = jsonLine(w, a)
		}
		if err != nil {
			return err
		}
	}
	return errors.Join(lines.Err(), w.Flush())
}

func jsonLine(w io.Writer, v any) error {
	e := json.NewEncoder(w)
	e.SetEscapeHTML(false)
	return e.Encode(v)
}
