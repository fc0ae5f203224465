// Package bench measures a whole ax: it starts servers and executors as processes of their own, makes
// work for them, and counts what arrived from the executors' own ledgers against the plan, and what
// was committed from the database.
//
// It uses nothing that is not open to everybody: the API, the executor protocol, the settings.
package bench

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"slices"
	"time"
)

// Options of a measurement.
type Options struct {
	// Database is a mysql:// DSN; each measurement makes a database of its own beside the named
	// one and drops it afterwards. Empty is embedded SQLite in a temporary folder.
	Database string
	// Duration is how long is measured.
	Duration time.Duration
	// Rate is triggers per second.
	Rate int
	// Single sends one execution per request; otherwise those for one executor go together.
	Single bool
	// Executors is the number of executor processes; each namespace has one at least.
	Executors int
	// Namespaces are what the jobs of triggers are spread over. A namespace is one stream of
	// decisions and lies in one bucket; several go side by side.
	Namespaces int
	// Tasks is the number of delayed tasks.
	Tasks int
	// Spread is the range of their delays, from one second on.
	Spread time.Duration
	// Pause stops the owner's process (SIGSTOP) in failover instead of killing it.
	Pause bool
	// Keep leaves the data folder with the logs and says where it is.
	Keep bool
	// Settings are further settings of the servers, key=value as in ax-server serve.
	Settings []string
	// Progress gets a line now and then.
	Progress io.Writer
	// Program is the ax-server that is measured.
	Program string
}

func (o Options) namespaces() int { return max(o.Namespaces, 1) }

// Spans are percentiles in milliseconds.
type Spans struct {
	Min float64 `json:"min"`
	P50 float64 `json:"p50"`
	P90 float64 `json:"p90"`
	P99 float64 `json:"p99"`
	Max float64 `json:"max"`
}

// Created are rates of creation, per second.
type Created struct {
	Single float64 `json:"single,omitempty"`
	Bulk   float64 `json:"bulk,omitempty"`
}

// Report is what a measurement found. A figure that could not be measured is absent.
type Report struct {
	Name     string `json:"name"`
	Database string `json:"database"`
	Dispatch string `json:"dispatch"`
	Version  string `json:"version,omitempty"`

	// Planned is how many firings were planned in the time measured.
	Planned int `json:"planned,omitempty"`
	// TriggersPerSecond counts what arrived, over the time from the first planned instant to the last arrival.
	TriggersPerSecond *float64 `json:"triggersPerSecond,omitempty"`
	// ErrorMs is arrival at the executor − planned instant.
	ErrorMs *Spans `json:"errorMs,omitempty"`
	// Lost were planned and never started; Doubled were started more than once; Early arrived 1 ms or
	// more before their planned instant, by the executors' clock.
	Lost    *int `json:"lost,omitempty"`
	Doubled *int `json:"doubled,omitempty"`
	Early   *int `json:"early,omitempty"`
	// Uncommitted are planned firings whose success is not in the database.
	Uncommitted *int `json:"uncommitted,omitempty"`
	// CPUMicrosPerTrigger is the server's processor time; DatabaseCPUMicrosPerTrigger that of
	// mariadbd, when there is one process of that name on this host.
	CPUMicrosPerTrigger         *float64 `json:"cpuMicrosPerTrigger,omitempty"`
	DatabaseCPUMicrosPerTrigger *float64 `json:"databaseCpuMicrosPerTrigger,omitempty"`
	// CPUPercent is the server's share of one core.
	CPUPercent *float64 `json:"cpuPercent,omitempty"`
	// RSSMB is the server's resident memory; IdleRSSMB that of the same server before the work.
	RSSMB     *float64 `json:"rssMB,omitempty"`
	IdleRSSMB *float64 `json:"idleRssMB,omitempty"`
	// Seconds is what the measurement is about: the time until the last one of a burst, the first one
	// after a start, the first one after a failure.
	Seconds          *float64 `json:"seconds,omitempty"`
	CreatedPerSecond *Created `json:"createdPerSecond,omitempty"`

	missing []string
}

// Kinds are the measurements, by name.
func Kinds() []string {
	return []string{"triggers", "delayed", "burst", "coldstart", "idle", "failover"}
}

// ErrIncomplete says that a figure could not be measured, or that something was lost or doubled.
var ErrIncomplete = errors.New("incomplete")

// Run measures. The report is there also with ErrIncomplete.
func Run(ctx context.Context, kind string, o Options) (r Report, err error) {
	s, err := newStage(o)
	if err != nil {
		return r, err
	}
	defer func() { err = errors.Join(err, s.close()) }()
	r = Report{Name: kind, Database: s.dialect(), Dispatch: "aggregated"}
	if o.Single {
		r.Dispatch = "single"
	}
	switch kind {
	case "triggers":
		err = s.triggers(ctx, &r)
	case "delayed":
		err = s.delayed(ctx, &r)
	case "burst":
		err = s.burst(ctx, &r)
	case "coldstart":
		err = s.coldstart(ctx, &r)
	case "idle":
		err = s.idle(ctx, &r)
	case "failover":
		err = s.failover(ctx, &r)
	default:
		return r, fmt.Errorf("%q is no measurement; there are %v", kind, Kinds())
	}
	if err != nil {
		return r, err
	}
	for name, n := range map[string]*int{"lost": r.Lost, "doubled": r.Doubled, "early": r.Early, "uncommitted": r.Uncommitted} {
		if n != nil && *n > 0 {
			r.missing = append(r.missing, fmt.Sprintf("%s: %d", name, *n))
		}
	}
	if len(r.missing) > 0 {
		slices.Sort(r.missing)
		return r, fmt.Errorf("%w: %v", ErrIncomplete, r.missing)
	}
	return r, nil
}

// spans are the percentiles of a list of microseconds, which it sorts.
func spans(micros []int64) *Spans {
	if len(micros) == 0 {
		return nil
	}
	slices.Sort(micros)
	at := func(q float64) float64 {
		// The smallest value that at least q of all are not above.
		i := int(math.Ceil(q*float64(len(micros)))) - 1
		return float64(micros[max(i, 0)]) / 1000
	}
	return &Spans{Min: at(0), P50: at(0.5), P90: at(0.9), P99: at(0.99), Max: at(1)}
}

//go:fix inline
