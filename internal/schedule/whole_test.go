package schedule

import (
	"encoding/json"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// shown is the civil clock at each step around a clock change, as seconds that would be UTC.
type shown struct {
	start, step int64
	walls       []int64
	seen        map[int64][2]int // first and last step at which the clock shows this
}

func readShown(loc *time.Location, change time.Time, span time.Duration) shown {
	c := shown{start: change.Add(-span).Truncate(time.Minute).Unix(), step: 60, seen: map[int64][2]int{}}
	for _, at := range []time.Time{change.Add(-time.Second), change} {
		if _, offset := at.In(loc).Zone(); offset%60 != 0 {
			c.step = 1
		}
	}
	n := int(2 * int64(span/time.Second) / c.step)
	for i := range n {
		at := c.start + int64(i)*c.step
		_, offset := time.Unix(at, 0).In(loc).Zone()
		wall := at + int64(offset)
		c.walls = append(c.walls, wall)
		passes, ok := c.seen[wall]
		if !ok {
			passes[0] = i
		}
		passes[1] = i
		c.seen[wall] = passes
	}
	return c
}

// asked is an expression of second 0 as text, and as a question about a wall time.
type asked struct {
	text   string
	minute func(m int) bool
	hour   func(h int) bool
	date   time.Time // zero = every day
	fixed  bool
}

func (a asked) at(wall int64) bool {
	if wall%60 != 0 || !a.minute(int(wall/60%60)) || !a.hour(int(wall/3600%24)) {
		return false
	}
	return a.date.IsZero() || wall/86400 == a.date.Unix()/86400
}

// fires lists what a policy makes of an expression, away from the edges of what was read by the margin.
func (c shown) fires(a asked, policy string, margin int) (out []int64) {
	for i := margin; i < len(c.walls)-margin; i++ {
		wall, due := c.walls[i], false
		if a.at(wall) {
			switch passes := c.seen[wall]; {
			case policy == ClockQuartz:
				due = passes[1] == i
			case !a.fixed || policy == ClockBoth:
				due = true
			default:
				due = passes[0] == i
			}
		}
		if missing := wall - c.walls[i-1] - c.step; policy == ClockOnce && a.fixed && missing > 0 && missing <= 3*3600 {
			for w := c.walls[i-1] + c.step; w < wall; w += c.step {
				due = due || a.at(w)
			}
		}
		if due {
			out = append(out, c.start+int64(i)*c.step)
		}
	}
	return out
}

// askedAround are expressions that a change from one wall time to another can hurt.
func askedAround(before, after int64) []asked {
	all := func(int) bool { return true }
	is := func(list ...int) func(int) bool { return func(v int) bool { return slices.Contains(list, v) } }
	low, high := min(before, after), max(before, after)
	middle := (low + high) / 2
	h, m := int(middle/3600%24), int(middle/60%60)
	lowHour, highHour := int(low/3600%24), int(high/3600%24)
	date := time.Unix(middle, 0).UTC()
	out := []asked{
		{"0 * * * * ?", all, all, time.Time{}, false},
		{"0 0/15 * * * ?", func(m int) bool { return m%15 == 0 }, all, time.Time{}, false},
		{fmt.Sprintf("0 %d %d * * ?", m, h), is(m), is(h), time.Time{}, true},
		{fmt.Sprintf("0 0,30,59 %d,%d * * ?", lowHour, highHour), is(0, 30, 59), is(lowHour, highHour), time.Time{}, true},
		{fmt.Sprintf("0 %d * * * ?", m), is(m), all, time.Time{}, false},
	}
	if date.Year() >= 1970 {
		out = append(out, asked{fmt.Sprintf("0 %d %d %d %d ? %d", m, h, date.Day(), int(date.Month()), date.Year()), is(m), is(h), date, true})
	}
	return out
}

// M8: all zones, all their clock changes from 1970 to 2099, all policies, against a reading of the civil
// clock, second by second where an offset has some. By default every 61st change; see wholeEnv.
func TestNextAgreesWithTheCivilClockAtEveryChange(t *testing.T) {
	every := 61
	if os.Getenv(wholeEnv) != "" {
		every = 1
	}
	const edge = 4 * time.Hour
	first, last := time.Date(1970, 1, 1, 0, 0, 0, 0, time.UTC), time.Date(2100, 1, 1, 0, 0, 0, 0, time.UTC)
	changes, asks, fires, count, refused := 0, 0, 0, 0, 0
	for name := range strings.FieldsSeq(zoneNames) {
		loc, err := ParseZone(name)
		if err != nil {
			refused++ // an abbreviation that means several places
			continue
		}
		for at := first; ; {
			_, change := at.In(loc).ZoneBounds()
			if change.IsZero() || !change.Before(last) {
				break
			}
			if !change.After(at) {
				// At the turn of some years package time gives a bound that is not ahead.
				at = at.Add(time.Hour)
				continue
			}
			at = change
			if count++; count%every != 0 {
				continue
			}
			_, before := change.Add(-time.Second).In(loc).Zone()
			_, after := change.In(loc).Zone()
			if before == after {
				continue // only the name changes
			}
			changes++
			c := readShown(loc, change, 9*time.Hour)
			margin := int(int64(edge/time.Second) / c.step)
			from, until := time.Unix(c.start+int64(margin)*c.step-1, 0), time.Unix(c.start+int64(len(c.walls)-margin)*c.step, 0)
			for _, a := range askedAround(change.Unix()+int64(before), change.Unix()+int64(after)) {
				for policy := range columnOf {
					asks++
					want := c.fires(a, policy, margin)
					fires += len(want)
					s, err := Compile(Spec{Expr: a.text, Zone: name, ClockChange: policy})
					if err != nil {
						// Only a date whose one time the clock left out can be one that never comes.
						require.Equal(t, codeNeverFires, refusalOf(t, err).Code, "%s in %s", a.text, name)
						require.Empty(t, want, "%s in %s under %s never fires", a.text, name, policy)
						continue
					}
					i := 0
					for due, ok := s.Next(from); ok && due.Before(until); due, ok = s.Next(due) {
						if i >= len(want) || due.Unix() != want[i] {
							require.Failf(t, "differs", "%s in %s under %s at the change of %s: Next says %s as number %d of %d", a.text, name, policy, change.UTC(), due, i, len(want))
						}
						i++
					}
					require.Len(t, want, i, "%s in %s under %s at the change of %s: some are missing", a.text, name, policy, change.UTC())
				}
			}
		}
	}
	require.NotZero(t, fires)
	require.Less(t, refused, 10)
	t.Logf("%d clock changes, %d expressions under a policy, %d fires", changes, asks, fires)
}

// FuzzNext: what is understood moves on, does not depend on where one asks from, keeps its bounds, and means the
// same after it was written down and read again.
func FuzzNext(f *testing.F) {
	for _, c := range readCases(f) {
		f.Add(c.expr, c.dialect, c.zone, ClockOnce, c.from.UnixMilli(), int64(0), int64(0))
	}
	f.Add("0 30 2 * * ?", "quartz", "Europe/Berlin", ClockQuartz, int64(1_774_745_999_000), int64(1), int64(1e12))
	f.Add("0 0 0 29 2 ? 2096", "quartz", "UTC", ClockBoth, int64(0), int64(4e12), int64(1))
	f.Add("@every 90m", "descriptor", "Asia/Shanghai", "", int64(1_700_000_000_001), int64(1_700_000_000_000), int64(1e10))
	f.Fuzz(func(t *testing.T, expr, dialect, zone, policy string, after, start, span int64) {
		after, start, span = after%8e12, start%4e12, span%4e12
		spec := Spec{Expr: expr, Dialect: dialect, Zone: zone, ClockChange: policy}
		if span > 0 {
			from, to := time.UnixMilli(start), time.UnixMilli(start+span)
			spec.Start, spec.End = &from, &to
		}
		s, err := Compile(spec)
		if err != nil {
			return
		}
		raw, err := json.Marshal(spec)
		if err != nil {
			t.Fatal(err)
		}
		var again Spec
		if err := json.Unmarshal(raw, &again); err != nil {
			t.Fatal(err)
		}
		copied, err := Compile(again)
		if err != nil {
			t.Fatalf("%s is not understood any more: %v", raw, err)
		}
		at := time.UnixMilli(after)
		for range 5 {
			due, ok := s.Next(at)
			same, too := copied.Next(at)
			if ok != too || !due.Equal(same) {
				t.Fatalf("%s: %s, and read again %s", raw, due, same)
			}
			if !ok {
				return
			}
			if !due.After(at) {
				t.Fatalf("%s: %s is not after %s", raw, due, at)
			}
			if earlier, _ := s.Next(due.Add(-1)); !earlier.Equal(due) {
				t.Fatalf("%s: %s, but a moment before it %s", raw, due, earlier)
			}
			if spec.Start != nil && (due.Before(*spec.Start) || due.After(*spec.End)) {
				t.Fatalf("%s: %s is out of bounds", raw, due)
			}
			at = due
		}
	})
}

// boundedCases are schedules with a first and a last moment.
func boundedCases() map[string]Spec {
	start, end := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC), time.Date(2036, 1, 1, 0, 0, 0, 0, time.UTC)
	out := map[string]Spec{}
	for _, c := range speedCases {
		spec := c.spec
		spec.Start, spec.End = &start, &end
		if _, err := Compile(spec); err == nil { // the rarest never fires within them
			out[c.name] = spec
		}
	}
	return out
}

func BenchmarkNextBounded(b *testing.B) {
	for name, spec := range boundedCases() {
		b.Run(name, func(b *testing.B) {
			s, err := Compile(spec)
			require.NoError(b, err)
			at := *spec.Start
			b.ReportAllocs()
			for b.Loop() {
				next, ok := s.Next(at)
				if !ok {
					next = *spec.Start
				}
				at = next
			}
		})
	}
}

func TestNextWithinBoundsDoesNotAllocate(t *testing.T) {
	cases := boundedCases()
	require.Greater(t, len(cases), 8)
	for name, spec := range cases {
		s, err := Compile(spec)
		require.NoError(t, err)
		for _, from := range []time.Time{spec.Start.AddDate(-50, 0, 0), *spec.Start, spec.End.AddDate(0, 0, -1), spec.End.AddDate(50, 0, 0)} {
			at := from
			require.Zero(t, testing.AllocsPerRun(50, func() {
				if next, ok := s.Next(at); ok {
					at = next
				}
			}), "%s from %s", name, from)
		}
	}
}

// absurd are expressions that people write and nothing sensible can come of, or only once in a lifetime.
var absurd = []string{
	"0 0 0 30 2 ?", "0 0 0 31 2,4,6,9,11 ?", "0 0 0 29 2 ? 2097-2099", "0 0 0 30W 2 ?", "0 0 0 ? 2 2#5", "0 0 0 L-30 2 ?",
	"0/59 0/59 0/23 ? 2 7#5", "59 59 23 29 2 ? 2196", "0 0 0 29 2 ? 1970-2199/100", "0-59 0-59 0-23 1-31 1-12 ? 2199", "0 0 0 L-28W 2 ?",
}

func BenchmarkAbsurd(b *testing.B) {
	for _, expr := range absurd {
		b.Run(strings.ReplaceAll(expr, " ", "_"), func(b *testing.B) {
			from := time.Date(1970, 1, 1, 0, 0, 0, 0, time.UTC)
			for b.Loop() {
				if s, err := Compile(Spec{Expr: expr, Zone: "America/New_York"}); err == nil {
					s.Next(from)
				}
			}
		})
	}
}

// Understanding or refusing an absurd expression and finding its first fire takes under a millisecond. The best of
// some is taken: a busy machine can only add.
func TestAbsurdExpressionsAreFast(t *testing.T) {
	from := time.Date(1970, 1, 1, 0, 0, 0, 0, time.UTC)
	for _, expr := range absurd {
		best := time.Hour
		for range 50 {
			began := time.Now()
			if s, err := Compile(Spec{Expr: expr, Zone: "America/New_York"}); err == nil {
				s.Next(from)
			}
			best = min(best, time.Since(began))
		}
		require.Less(t, best, time.Millisecond, expr)
	}
}
