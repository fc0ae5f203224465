package schedule

import (
	"fmt"
	"os"
	"slices"
	"sort"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"
)

// The oracle knows nothing of the evaluator: expressions are drawn together with what
// they mean, and instants are found by reading the civil clock of package time at each
// of them.

// drawnField is a field as text, and as a question about a value.
type drawnField struct {
	text    string
	matches func(v int) bool
	plain   bool // numbers only
}

func drawField(t *rapid.T, name string, low, high int) drawnField {
	switch rapid.SampledFrom([]string{"star", "list", "list", "range", "step", "open"}).Draw(t, name+" form") {
	case "star":
		return drawnField{"*", func(int) bool { return true }, false}
	case "list":
		list := rapid.SliceOfN(rapid.IntRange(low, high), 1, 4).Draw(t, name)
		texts := make([]string, len(list))
		for i, v := range list {
			texts[i] = strconv.Itoa(v)
		}
		return drawnField{strings.Join(texts, ","), func(v int) bool {
			return slices.Contains(list, v)
		}, true}
	case "range":
		from, to := rapid.IntRange(low, high).Draw(t, name+" from"), rapid.IntRange(low, high).Draw(t, name+" to")
		return drawnField{fmt.Sprintf("%d-%d", from, to), func(v int) bool {
			if from <= to {
				return from <= v && v <= to
			}
			return v >= from || v <= to
		}, false}
	case "step":
		from := rapid.IntRange(low, high).Draw(t, name+" from")
		to := rapid.IntRange(from, high).Draw(t, name+" to")
		step := rapid.IntRange(1, high-low).Draw(t, name+" step")
		return drawnField{fmt.Sprintf("%d-%d/%d", from, to, step), func(v int) bool {
			return from <= v && v <= to && (v-from)%step == 0
		}, false}
	}
	from, step := rapid.IntRange(low, high).Draw(t, name+" from"), rapid.IntRange(1, high-low).Draw(t, name+" step")
	return drawnField{fmt.Sprintf("%d/%d", from, step), func(v int) bool {
		return v >= from && (v-from)%step == 0
	}, false}
}

// drawnDay is one of the two Quartz day fields as text and as a question about a date.
type drawnDay struct {
	text    string
	isMonth bool
	matches func(date time.Time) bool
}

func lastOf(date time.Time) int {
	return time.Date(date.Year(), date.Month()+1, 0, 0, 0, 0, 0, time.UTC).Day()
}

// nearestWorking walks outwards from day d of the month of date.
func nearestWorking(date time.Time, d int) int {
	for _, away := range []int{0, -1, 1, -2, 2} {
		other := time.Date(date.Year(), date.Month(), d+away, 0, 0, 0, 0, time.UTC)
		if other.Month() == date.Month() && other.Weekday() != time.Saturday && other.Weekday() != time.Sunday {
			return other.Day()
		}
	}
	panic("no working day")
}

func drawDay(t *rapid.T) drawnDay {
	switch rapid.SampledFrom([]string{"dom", "dom", "L", "W", "LW", "dow", "dow", "nth", "last"}).Draw(t, "day form") {
	case "L":
		n := rapid.IntRange(0, 30).Draw(t, "before last")
		return drawnDay{fmt.Sprintf("L-%d", n), true, func(date time.Time) bool { return date.Day() == lastOf(date)-n }}
	case "W":
		n := rapid.IntRange(1, 31).Draw(t, "near")
		return drawnDay{fmt.Sprintf("%dW", n), true, func(date time.Time) bool {
			return n <= lastOf(date) && date.Day() == nearestWorking(date, n)
		}}
	case "LW":
		n := rapid.IntRange(0, 30).Draw(t, "before last")
		return drawnDay{fmt.Sprintf("L-%dW", n), true, func(date time.Time) bool {
			return lastOf(date)-n >= 1 && date.Day() == nearestWorking(date, lastOf(date)-n)
		}}
	case "dow":
		f := drawField(t, "weekday", 1, 7)
		return drawnDay{f.text, false, func(date time.Time) bool { return f.matches(int(date.Weekday()) + 1) }}
	case "nth":
		d, n := rapid.IntRange(1, 7).Draw(t, "weekday"), rapid.IntRange(1, 5).Draw(t, "nth")
		return drawnDay{fmt.Sprintf("%d#%d", d, n), false, func(date time.Time) bool {
			return int(date.Weekday())+1 == d && (date.Day()+6)/7 == n
		}}
	case "last":
		d := rapid.IntRange(1, 7).Draw(t, "weekday")
		return drawnDay{fmt.Sprintf("%dL", d), false, func(date time.Time) bool {
			return int(date.Weekday())+1 == d && date.Day()+7 > lastOf(date)
		}}
	}
	f := drawField(t, "day", 1, 31)
	return drawnDay{f.text, true, func(date time.Time) bool { return f.matches(date.Day()) }}
}

func (d drawnDay) fields() (dom, dow string) {
	if d.isMonth {
		return d.text, "?"
	}
	return "?", d.text
}

// drawn is a whole expression for the clock oracle. Its second is 0, so that looking at
// minutes is enough: since 1972 no zone has an offset of seconds.
type drawn struct {
	text         string
	minute, hour drawnField
	day          drawnDay
}

func (d drawn) matches(civil time.Time) bool {
	return civil.Second() == 0 && d.minute.matches(civil.Minute()) && d.hour.matches(civil.Hour()) && d.day.matches(civil)
}

func (d drawn) fixed() bool { return d.minute.plain && d.hour.plain }

// drawExpression prefers hours around the given one, where a clock changes.
func drawExpression(t *rapid.T, changeHour int) drawn {
	d := drawn{minute: drawField(t, "minute", 0, 59), hour: drawField(t, "hour", 0, 23)}
	if rapid.IntRange(0, 3).Draw(t, "near the change") > 0 {
		h := (changeHour + rapid.IntRange(23, 25).Draw(t, "away")) % 24
		d.hour = drawnField{strconv.Itoa(h), func(v int) bool { return v == h }, true}
	}
	if rapid.IntRange(0, 3).Draw(t, "every day") > 0 {
		d.day = drawnDay{"*", true, func(time.Time) bool { return true }}
	} else {
		d.day = drawDay(t)
	}
	dom, dow := d.day.fields()
	d.text = fmt.Sprintf("0 %s %s %s * %s", d.minute.text, d.hour.text, dom, dow)
	return d
}

// wallOf is the civil clock at an instant, as if it were UTC.
func wallOf(at time.Time, loc *time.Location) time.Time {
	c := at.In(loc)
	return time.Date(c.Year(), c.Month(), c.Day(), c.Hour(), c.Minute(), c.Second(), 0, time.UTC)
}

// civilClock is the clock of a zone in [from, until), read minute by minute, and some hours around.
type civilClock struct {
	from, until, start time.Time
	walls              []time.Time
	seen               map[time.Time][]int // at which minutes a wall time is read
}

func readCivil(loc *time.Location, from, until time.Time) *civilClock {
	const around = 4 * 60
	c := &civilClock{from: from, until: until, start: from.Truncate(time.Minute).Add(-around * time.Minute), seen: map[time.Time][]int{}}
	c.walls = make([]time.Time, int(until.Sub(c.start)/time.Minute)+around)
	for i := range c.walls {
		c.walls[i] = wallOf(c.start.Add(time.Duration(i)*time.Minute), loc)
		c.seen[c.walls[i]] = append(c.seen[c.walls[i]], i)
	}
	return c
}

// oracle lists the fires in [from, until), minute by minute.
func (d drawn) oracle(c *civilClock, policy string) []time.Time {
	var fires []time.Time
	for i := 1; i < len(c.walls); i++ {
		at := c.start.Add(time.Duration(i) * time.Minute)
		if at.Before(c.from) || !at.Before(c.until) {
			continue
		}
		due := false
		if d.matches(c.walls[i]) {
			passes := c.seen[c.walls[i]]
			isFirst, isLast := passes[0] == i, passes[len(passes)-1] == i
			switch {
			case policy == ClockQuartz:
				due = isLast
			case !d.fixed() || policy == ClockBoth:
				due = true
			default:
				due = isFirst
			}
		}
		missing := c.walls[i].Sub(c.walls[i-1]) - time.Minute
		if policy == ClockOnce && d.fixed() && missing > 0 && missing <= 3*time.Hour {
			for w := c.walls[i-1].Add(time.Minute); w.Before(c.walls[i]); w = w.Add(time.Minute) {
				due = due || d.matches(w)
			}
		}
		if due {
			fires = append(fires, at)
		}
	}
	return fires
}

var oracleZones = []string{
	"America/New_York", "Asia/Shanghai", "America/Sao_Paulo", "Australia/Lord_Howe", "Pacific/Chatham",
	"Africa/Casablanca", "America/Santiago", "Pacific/Apia", "Asia/Kathmandu", "UTC", "Antarctica/Troll",
	"Europe/Dublin", "Asia/Tehran", "Asia/Pyongyang", "America/Caracas", "Pacific/Kiritimati", "America/St_Johns",
}

// drawMoment picks a moment near a change of the zone's clock, or any, and the hour on
// the clock when it changes.
func drawMoment(t *rapid.T, loc *time.Location) (from time.Time, changeHour int) {
	at := time.Unix(rapid.Int64Range(100_000_000, 5_500_000_000).Draw(t, "moment"), 0).UTC()
	start, change := at.In(loc).ZoneBounds()
	if change.IsZero() {
		change = start // the last of all
	}
	if change.IsZero() || change.Year() < 1972 || rapid.IntRange(0, 9).Draw(t, "away from changes") == 0 {
		return at, at.In(loc).Hour()
	}
	changeHour = change.Add(-1).In(loc).Hour()
	if rapid.Bool().Draw(t, "in the hour after") {
		changeHour = change.In(loc).Hour()
	}
	return change.UTC().Add(time.Duration(rapid.Int64Range(-26*3600, 4*3600).Draw(t, "around")) * time.Second), changeHour
}

func TestNextAgreesWithTheCivilClock(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		zoneName := rapid.SampledFrom(oracleZones).Draw(t, "zone")
		policy := rapid.SampledFrom([]string{ClockOnce, ClockSkip, ClockBoth, ClockQuartz}).Draw(t, "policy")
		loc, err := ParseZone(zoneName)
		require.NoError(t, err)
		from, changeHour := drawMoment(t, loc)
		d := drawExpression(t, changeHour)
		until := from.Add(50 * time.Hour)
		spec := Spec{Expr: d.text, Zone: zoneName, ClockChange: policy}
		want := d.oracle(readCivil(loc, from.Add(time.Second), until), policy)
		if rapid.Bool().Draw(t, "bounded") {
			start := from.Add(time.Duration(rapid.Int64Range(-3600, 30*3600).Draw(t, "start")) * time.Second)
			end := start.Add(time.Duration(rapid.Int64Range(0, 30*3600).Draw(t, "end")) * time.Second)
			if len(want) > 0 && rapid.Bool().Draw(t, "on fires") { // both bounds are included
				start = rapid.SampledFrom(want).Draw(t, "first")
				end = rapid.SampledFrom(want[slices.Index(want, start):]).Draw(t, "last")
			}
			spec.Start, spec.End = &start, &end
		}
		s, err := Compile(spec)
		if err != nil {
			t.Skip("never fires") // a day that no month has, in the day oracle's care
		}
		want = slices.DeleteFunc(want, func(at time.Time) bool {
			return spec.Start != nil && (at.Before(*spec.Start) || at.After(*spec.End))
		})
		if len(want) == 0 {
			want = nil
		}
		var got []time.Time
		for at, ok := s.Next(from); ok && at.Before(until); at, ok = s.Next(at) {
			got = append(got, at)
		}
		require.Equal(t, want, got, "%s in %s under %s from %s", d.text, zoneName, policy, from.In(s.Zone()))
	})
}

// wholeEnv set to 1 asks for all years instead of a sample, set to zones for those of each zone of the
// database too.
const wholeEnv = "AX_TEST_WHOLE"

// Each change of a zone's clock from 1970 to 2099, and a day of each year without one, under each
// policy: the days around it, minute by minute. By default a part of them, which is another one for
// each zone; see wholeEnv.
func TestNextAgreesThroughAllYears(t *testing.T) {
	const share = 25 // one of so many windows is looked at by default
	whole := os.Getenv(wholeEnv) != ""
	zones := oracleZones
	if os.Getenv(wholeEnv) == "zones" {
		zones = strings.Fields(zoneNames)
	}
	for z, zoneName := range zones {
		t.Run(zoneName, func(t *testing.T) {
			t.Parallel()
			loc, err := ParseZone(zoneName)
			require.NoError(t, err)
			n, compared := z, 0
			for year := 1970; year < 2100; year++ {
				for _, change := range changesOf(loc, year) {
					n++
					_, offset := change.Add(-1).In(loc).Zone()
					_, offsetAfter := change.In(loc).Zone()
					// The minutes of a clock that is some seconds off are none of the oracle's.
					if !whole && n%share != 0 || offset%60 != 0 || offsetAfter%60 != 0 {
						continue
					}
					compared += compareAround(t, loc, change, n)
				}
			}
			require.Positive(t, compared)
		})
	}
}

// changesOf are the instants of a year at which a zone's offset changes, or the first of July. They
// are sought for day by day: ZoneBounds of package time stands still at the end of some leap years.
func changesOf(loc *time.Location, year int) (changes []time.Time) {
	offset := func(second int64) int {
		_, offset := time.Unix(second, 0).In(loc).Zone()
		return offset
	}
	until := time.Date(year+1, 1, 1, 0, 0, 0, 0, time.UTC).Unix()
	for day := time.Date(year, 1, 1, 0, 0, 0, 0, time.UTC).Unix(); day < until; day += secondsPerDay {
		if offset(day) == offset(day+secondsPerDay) {
			continue
		}
		after := sort.Search(secondsPerDay, func(n int) bool { return offset(day+int64(n)) != offset(day) })
		changes = append(changes, time.Unix(day+int64(after), 0).UTC())
	}
	if len(changes) == 0 {
		changes = append(changes, time.Date(year, 7, 1, 12, 0, 0, 0, time.UTC))
	}
	return changes
}

// compareAround holds some expressions against the civil clock, from a day before a change to a day
// after it, and returns how many fires were the same.
func compareAround(t *testing.T, loc *time.Location, change time.Time, seed int) (compared int) {
	c := readCivil(loc, change.Add(-26*time.Hour), change.Add(26*time.Hour))
	expressions := rapid.Custom(func(t *rapid.T) drawn {
		hour := change.Add(-1).In(loc).Hour()
		if rapid.Bool().Draw(t, "in the hour after") {
			hour = change.In(loc).Hour()
		}
		return drawExpression(t, hour)
	})
	for k := range 6 {
		d := expressions.Example(seed*6 + k)
		for _, policy := range []string{ClockOnce, ClockSkip, ClockBoth, ClockQuartz} {
			s, err := Compile(Spec{Expr: d.text, Zone: loc.String(), ClockChange: policy})
			if err != nil {
				continue // never fires: in the care of TestNextAgreesWithTheCalendar
			}
			var got []time.Time
			for at, ok := s.Next(c.from.Add(-1)); ok && at.Before(c.until); at, ok = s.Next(at) {
				got = append(got, at)
			}
			require.Equal(t, d.oracle(c, policy), got, "%s in %s under %s around %s", d.text, loc, policy, change)
			compared += len(got)
		}
	}
	return compared
}

// Dates alone, over years: each date asked, against Next in UTC.
func TestNextAgreesWithTheCalendar(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		day, months := drawDay(t), drawField(t, "month", 1, 12)
		dom, dow := day.fields()
		text := fmt.Sprintf("0 0 12 %s %s %s", dom, months.text, dow)
		from := time.Date(rapid.IntRange(1970, 2190).Draw(t, "year"), time.Month(rapid.IntRange(1, 12).Draw(t, "start month")),
			rapid.IntRange(1, 28).Draw(t, "start day"), 12, 0, 0, 0, time.UTC)
		var want []time.Time
		for date := from.AddDate(0, 0, 1); len(want) < 3 && date.Year() < 2200; date = date.AddDate(0, 0, 1) {
			if months.matches(int(date.Month())) && day.matches(date) {
				want = append(want, date)
			}
		}
		s, err := Compile(Spec{Expr: text, Zone: "UTC"})
		if err != nil {
			require.Empty(t, want, "%s was refused: %v", text, err)
			return
		}
		require.Equal(t, want, nextTimes(s, from, 3), "%s from %s", text, from)
	})
}

// The joint rule of the two day fields of Unix, against its sentence in the manual.
func TestUnixDays(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		dom, dow := drawField(t, "day", 1, 31), drawField(t, "weekday", 0, 6)
		for _, f := range []*drawnField{&dom, &dow} {
			if rapid.IntRange(0, 4).Draw(t, "starred") == 0 {
				low := 1
				if f == &dow {
					low = 0
				}
				step := rapid.IntRange(2, 5).Draw(t, "step")
				*f = drawnField{fmt.Sprintf("*/%d", step), func(v int) bool { return (v-low)%step == 0 }, false}
			}
		}
		text := fmt.Sprintf("0 12 %s * %s", dom.text, dow.text)
		s, err := Compile(Spec{Expr: text, Dialect: Unix, Zone: "UTC"})
		if err != nil {
			t.Skip("a range that ends before it starts")
		}
		and := dom.text[0] == '*' || dow.text[0] == '*'
		from := time.Date(rapid.IntRange(1970, 2190).Draw(t, "year"), 1, 1, 12, 0, 0, 0, time.UTC)
		var want []time.Time
		for date := from.AddDate(0, 0, 1); len(want) < 3 && date.Year() < 2200; date = date.AddDate(0, 0, 1) {
			m, w := dom.matches(date.Day()), dow.matches(int(date.Weekday()))
			if and && m && w || !and && (m || w) {
				want = append(want, date)
			}
		}
		require.Equal(t, want, nextTimes(s, from, 3), "%s from %s", text, from)
	})
}

// C230: what Next says does not depend on where one asks from, and it always moves on.
func TestC230NextIsConsistent(t *testing.T) {
	for _, c := range readCases(t) {
		if c.expect == "ERROR" {
			continue
		}
		for policy := range columnOf {
			s, err := Compile(c.spec(policy))
			require.NoError(t, err, c.id)
			t1, ok := s.Next(c.from)
			require.True(t, ok, c.id)
			again, ok := s.Next(t1.Add(-time.Second))
			require.True(t, ok, c.id)
			require.Equal(t, t1, again, "%s under %s", c.id, policy)
			again, _ = s.Next(t1.Add(-time.Nanosecond))
			require.Equal(t, t1, again, "%s under %s", c.id, policy)
			last := c.from
			for _, at := range nextTimes(s, c.from, 22) {
				require.True(t, at.After(last), "%s under %s: %s after %s", c.id, policy, at, last)
				last = at
			}
		}
	}
}

func TestFixedRateStaysOnItsGrid(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		every := time.Duration(rapid.Int64Range(100, 366*24*3600*1000).Draw(t, "every")) * time.Millisecond
		anchor := time.UnixMilli(rapid.Int64Range(0, 4e12).Draw(t, "anchor"))
		from := time.Unix(0, rapid.Int64Range(0, 4e18).Draw(t, "from"))
		s, err := Compile(Spec{Kind: FixedRate, Every: Duration(every), Anchor: &anchor})
		require.NoError(t, err)
		due, ok := s.Next(from)
		require.True(t, ok)
		require.True(t, due.After(from))
		require.LessOrEqual(t, due.Sub(from), every)
		require.Zero(t, (due.UnixMilli()-anchor.UnixMilli())%every.Milliseconds())
		again, _ := s.Next(due.Add(-1))
		require.Equal(t, due, again)
	})
}
