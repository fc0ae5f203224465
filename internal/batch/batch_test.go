package batch_test

import (
	"flag"
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/ax-scheduler/ax/internal/batch"
)

var update = flag.Bool("update", false, "write golden files anew")

const (
	golden = "testdata/transitions.golden"
	paper  = "../../docs/state-machine.md"
	begin  = "<!-- transitions: written by make golden -->\n"
	end    = "<!-- end of transitions -->\n"
)

// matrix prints state × event → state as a table; a dot is a refusal.
func matrix[S, E ~string](title string, states []S, events []E, next func(S, E) (S, error)) string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s\n\n| from |", title)
	for _, e := range events {
		fmt.Fprintf(&b, " %s |", e)
	}
	b.WriteString("\n|---|" + strings.Repeat("---|", len(events)) + "\n")
	for _, s := range states {
		fmt.Fprintf(&b, "| %s |", s)
		for _, e := range events {
			to, err := next(s, e)
			if err != nil {
				b.WriteString(" · |")
				continue
			}
			fmt.Fprintf(&b, " %s |", to)
		}
		b.WriteString("\n")
	}
	return b.String()
}

func TestTransitions(t *testing.T) {
	m := batch.NewMachine()
	got := matrix("### A batch", batch.States(), batch.Events(), m.Next) + "\n" +
		matrix("### An execution", batch.Runs(), batch.RunEvents(), m.NextRun)
	page, err := os.ReadFile(paper)
	require.NoError(t, err)
	before, rest, ok := strings.Cut(string(page), begin)
	require.True(t, ok, "%s has no mark %q", paper, begin)
	_, after, ok := strings.Cut(rest, end)
	require.True(t, ok, "%s has no mark %q", paper, end)
	want := before + begin + "\n" + got + "\n" + end + after
	if *update {
		require.NoError(t, os.WriteFile(golden, []byte(got), 0o600))
		require.NoError(t, os.WriteFile(paper, []byte(want), 0o600))
		return
	}
	kept, err := os.ReadFile(golden)
	require.NoError(t, err)
	require.Equal(t, string(kept), got, "make golden writes it anew; review the difference like code")
	require.Equal(t, want, string(page), "make golden writes the tables of docs/state-machine.md anew")
}

func TestFinalStates(t *testing.T) {
	m := batch.NewMachine()
	for _, s := range batch.States() {
		require.True(t, s.Valid(), s)
		for _, e := range batch.Events() {
			to, err := m.Next(s, e)
			if err != nil {
				require.ErrorIs(t, err, batch.ErrNotAllowed)
				require.Equal(t, s, to, "a refusal leaves the state")
				continue
			}
			if s.Final() {
				require.Equal(t, batch.EventReopen, e, "only a person opens %s again", s)
			}
			require.Contains(t, m.StatesTaking(e), s)
		}
	}
	for _, s := range batch.Runs() {
		require.True(t, s.Valid(), s)
		for _, e := range batch.RunEvents() {
			to, err := m.NextRun(s, e)
			if err != nil {
				require.ErrorIs(t, err, batch.ErrNotAllowed)
				require.Equal(t, s, to)
				continue
			}
			require.False(t, s.Final(), "an execution in %s took %s: an end is an end", s, e)
			require.Contains(t, m.RunsTaking(e), s)
		}
	}
	require.False(t, batch.State("PAUSED").Valid())
	require.False(t, batch.Run("PAUSED").Valid())
}

func TestEveryStateHasAWayIn(t *testing.T) {
	m := batch.NewMachine()
	into := map[batch.State]bool{batch.Waiting: true, batch.Delayed: true} // made by the trigger
	for _, s := range batch.States() {
		for _, e := range batch.Events() {
			if to, err := m.Next(s, e); err == nil {
				into[to] = true
			}
		}
	}
	require.Len(t, into, len(batch.States()))
	runs := map[batch.Run]bool{batch.RunScheduled: true}
	for _, s := range batch.Runs() {
		for _, e := range batch.RunEvents() {
			if to, err := m.NextRun(s, e); err == nil {
				runs[to] = true
			}
		}
	}
	require.Len(t, runs, len(batch.Runs()))
}

func TestID(t *testing.T) {
	zone := func(name string) *time.Location {
		z, err := time.LoadLocation(name)
		require.NoError(t, err)
		return z
	}
	for _, c := range []struct {
		name string
		at   time.Time
		no   int
		want string
	}{
		{"Shanghai's offset is left out", time.Date(2026, 11, 30, 8, 0, 0, 0, zone("Asia/Shanghai")), 1, "10001-20261130080000"},
		{"milliseconds when there are any", time.Date(2026, 11, 30, 8, 0, 0, 7_000_000, zone("Asia/Shanghai")), 1, "10001-20261130080000007"},
		{"UTC is z", time.Date(2026, 11, 30, 0, 0, 0, 0, time.UTC), 1, "10001-20261130000000z"},
		{"half an hour in the offset", time.Date(2026, 11, 30, 5, 30, 0, 0, zone("Asia/Kolkata")), 1, "10001-20261130053000p0530"},
		{"west of Greenwich", time.Date(2026, 7, 1, 9, 0, 0, 0, zone("America/New_York")), 1, "10001-20260701090000m0400"},
		{"the second trigger", time.Date(2026, 11, 30, 8, 0, 0, 0, zone("Asia/Shanghai")), 2, "10001-20261130080000.t2"},
	} {
		t.Run(c.name, func(t *testing.T) {
			require.Equal(t, c.want, batch.ID(10001, c.at, c.no))
		})
	}
	require.Equal(t, "10001-20261130000000z-4f9a", batch.FreshID(10001, time.Date(2026, 11, 30, 0, 0, 0, 0, time.UTC), "4f9a"))
	for _, bad := range []string{"", "10001", "10001-", "x-20261130080000", "-1-20261130080000", "0-20261130080000", "10001-20261330080000", "10001-2026113008000", "10001-20261130080000" + strings.Repeat("9", 60)} {
		_, _, ok := batch.ParseID(bad)
		require.False(t, ok, bad)
	}
}

// An id leads back to the job and to the UTC day of its rows, whatever the zone.
func TestParseIDFindsTheDay(t *testing.T) {
	zones := []string{"Asia/Shanghai", "UTC", "Asia/Kolkata", "Asia/Kathmandu", "America/New_York", "America/St_Johns", "Pacific/Kiritimati", "Pacific/Pago_Pago", "Australia/Lord_Howe", "Europe/London"}
	rapid.Check(t, func(t *rapid.T) {
		zone, err := time.LoadLocation(rapid.SampledFrom(zones).Draw(t, "zone"))
		require.NoError(t, err)
		ms := rapid.Int64Range(0, 7_000_000_000_000).Draw(t, "ms")
		if rapid.Bool().Draw(t, "whole second") {
			ms -= ms % 1000
		}
		job := rapid.Int64Range(1, 1<<31-1).Draw(t, "job")
		no := rapid.IntRange(0, 99).Draw(t, "trigger")
		at := time.UnixMilli(ms).In(zone)
		for _, id := range []string{batch.ID(job, at, no), batch.FreshID(job, at, "0123456789abcdef")} {
			gotJob, day, ok := batch.ParseID(id)
			require.True(t, ok, id)
			require.Equal(t, job, gotJob, id)
			require.Equal(t, batch.Day(ms), day, id)
			require.LessOrEqual(t, len(id), 64, id)
		}
	})
}

func TestTwoInstantsOrTriggersAreTwoIDs(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		zone, err := time.LoadLocation(rapid.SampledFrom([]string{"Asia/Shanghai", "America/New_York", "Europe/London"}).Draw(t, "zone"))
		require.NoError(t, err)
		one := time.UnixMilli(rapid.Int64Range(0, 7_000_000_000_000).Draw(t, "one"))
		// An hour apart: the two passes of a repeated hour differ in their offset.
		other := one.Add(time.Hour)
		require.NotEqual(t, batch.ID(1, one.In(zone), 1), batch.ID(1, other.In(zone), 1))
		require.NotEqual(t, batch.ID(1, one.In(zone), 1), batch.ID(1, one.In(zone), 2))
	})
}

func TestExecutionIDHoldsDayAndBucket(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		day := rapid.IntRange(0, 1<<15-1).Draw(t, "day")
		bucket := rapid.IntRange(0, 63).Draw(t, "bucket")
		sequence := rapid.Int64Range(0, 1<<32-1).Draw(t, "sequence")
		id := batch.ExecutionID(day, bucket, sequence)
		require.Equal(t, day, batch.ExecutionDay(id))
		require.Equal(t, bucket, batch.ExecutionBucket(id))
		require.Equal(t, sequence, id&(1<<32-1))
		require.Less(t, id, int64(1)<<53, "JavaScript's numbers hold it")
	})
}
