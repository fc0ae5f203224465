package schedule

import (
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

var speedCases = []struct {
	name string
	spec Spec
}{
	{"everyFiveMinutes", Spec{Expr: "0 0/5 * * * ?"}},
	{"daily", Spec{Expr: "0 30 2 * * ?"}},
	{"dailyNewYork", Spec{Expr: "0 30 2 * * ?", Zone: "America/New_York"}},
	{"bounded", Spec{Expr: "0 30 2 * * ?", Zone: "America/New_York", Start: at(1_700_000_000), End: at(4_000_000_000)}},
	{"absurdYear", Spec{Expr: "59 59 23 31W 12 ? 2099", Zone: "Australia/Lord_Howe"}},
	{"absurdSteps", Spec{Expr: "7/53 3-58/55 23 L-30W 1-12/11 ? 1970-2099/97", Zone: "Pacific/Chatham"}},
	{"workdays", Spec{Expr: "0 0 9 ? * MON-FRI"}},
	{"unixWorkdays", Spec{Expr: "0 9 * * 1-5", Dialect: Unix}},
	{"lastWorkday", Spec{Expr: "0 0 9 LW * ?"}},
	{"thirdFriday", Spec{Expr: "0 15 10 ? * 6#3"}},
	{"leapDayNewYork", Spec{Expr: "0 0 0 29 2 ?", Zone: "America/New_York"}},
	{"rareLeapDay", Spec{Expr: "0 0 0 ? 2 2#5"}},
	{"holidays", with(Spec{Expr: "0 0 9 ? * MON-FRI"}, Calendar{Zone: "Europe/Berlin", Dates: []string{"01-01", "05-01", "12-25", "2026-04-03"}, Ranges: []DateRange{{"2026-10-01", "2026-10-07"}}, Times: []TimeRange{{"20:00", "22:00"}}})},
	{"fixedRate", Spec{Kind: FixedRate, Every: Duration(5 * time.Second)}},
}

func BenchmarkNext(b *testing.B) {
	for _, c := range speedCases {
		b.Run(c.name, func(b *testing.B) {
			s, err := Compile(c.spec)
			require.NoError(b, err)
			start := time.Date(2026, 9, 26, 10, 17, 3, 0, time.UTC)
			at := start
			b.ReportAllocs()
			for b.Loop() {
				next, ok := s.Next(at)
				if !ok {
					next = start
				}
				at = next
			}
		})
	}
}

func BenchmarkCompile(b *testing.B) {
	for _, expr := range []string{"0 0/5 * * * ?", "0 0 0 30 2 ?", "0 0 0 ? 2 2#5"} {
		b.Run(strings.ReplaceAll(expr, " ", "_"), func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				_, _ = Compile(Spec{Expr: expr})
			}
		})
	}
}

func TestNextDoesNotAllocate(t *testing.T) {
	for _, c := range speedCases {
		s, err := Compile(c.spec)
		require.NoError(t, err)
		at := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
		require.Zero(t, testing.AllocsPerRun(50, func() {
			if next, ok := s.Next(at); ok {
				at = next
			}
		}), c.name)
	}
}

// C229: impossible and rare expressions are settled by a search over the months of 1970
// to 2199 at most. The limit here is the one users were promised, far above what it
// takes; TestRefusingIsFast holds the mean.
func TestC229SearchIsBounded(t *testing.T) {
	for _, c := range []struct{ expr, dialect string }{
		{"0 0 0 30 2 ?", Quartz},
		{"0 0 31 2 *", Unix},
		{"0 0 0 29 2 ? 2097-2099", Quartz},
		{"0 0 0 31 2,4,6,9,11 ?", Quartz},
		{"0 0 0 29 2 ? 2001-2003", Quartz},
		{"0 0 0 30W 2 ?", Quartz},
	} {
		for range 50 {
			started := time.Now()
			_, err := Compile(Spec{Expr: c.expr, Dialect: c.dialect, Zone: "America/New_York"})
			took := time.Since(started)
			require.Error(t, err, c.expr)
			require.Less(t, took, 100*time.Millisecond, c.expr)
		}
	}
	s, err := Compile(Spec{Expr: "0 0 0 ? 2 2#5", Zone: "UTC"})
	require.NoError(t, err)
	due, ok := s.Next(time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC))
	require.True(t, ok)
	require.Equal(t, "2044-02-29T00:00:00Z", due.Format(time.RFC3339))
}

func TestRefusingIsFast(t *testing.T) {
	result := testing.Benchmark(func(b *testing.B) {
		for b.Loop() {
			_, _ = Compile(Spec{Expr: "0 0 0 31 2,4,6,9,11 ?"})
		}
	})
	require.Less(t, result.NsPerOp(), int64(time.Millisecond))
}

// A schedule is small and shares its zone: a hundred thousand of them fit easily.
func TestSchedulesShareTheirZone(t *testing.T) {
	const n = 10_000
	kept := make([]*Schedule, n)
	var before, after runtime.MemStats
	_, err := Compile(Spec{Expr: "0 0 9 * * ?", Zone: "America/New_York"})
	require.NoError(t, err)
	runtime.GC()
	runtime.ReadMemStats(&before)
	for i := range kept {
		kept[i], _ = Compile(Spec{Expr: "0 0 9 * * ?", Zone: "America/New_York"})
	}
	runtime.GC()
	runtime.ReadMemStats(&after)
	require.Less(t, (after.HeapAlloc-before.HeapAlloc)/n, uint64(512))
	runtime.KeepAlive(kept)
}
