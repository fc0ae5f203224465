package wheel

import (
	"cmp"
	"math"
	"math/rand/v2"
	"runtime"
	"slices"
	"testing"
	"unsafe"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"
)

// entry is a timer of the model: a slice kept in order of due time and insertion.
type entry struct {
	due   int64
	value uint64
	timer Timer
}

func TestWheelAgreesWithASortedSlice(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		now := rapid.SampledFrom([]int64{0, -5, 1_790_000_000_000, math.MinInt64, math.MaxInt64 - 1000}).Draw(t, "start")
		w := New(now)
		var model []entry
		var stale []Timer
		var inserted uint64
		// A span of each size, so that each level and each seam between two is met.
		span := func(t *rapid.T) int64 {
			return rapid.Int64Range(0, int64(1)<<rapid.IntRange(0, 45).Draw(t, "bits")).Draw(t, "span")
		}
		later := func(t *rapid.T) int64 {
			d := span(t)
			if now > math.MaxInt64-d {
				return math.MaxInt64
			}
			return now + d
		}
		earlier := func(t *rapid.T) int64 {
			d := span(t)
			if now < math.MinInt64+d {
				return math.MinInt64
			}
			return now - d
		}
		insert := func(due int64) {
			inserted++
			model = append(model, entry{due, inserted, w.Insert(due, inserted)})
			slices.SortStableFunc(model, func(a, b entry) int { return cmp.Compare(a.due, b.due) })
		}
		advance := func(t *rapid.T, to int64) {
			next, ok := w.Next()
			nothingYet := ok && max(now, to) < next
			got := w.Advance(to, nil)
			if nothingYet {
				require.Empty(t, got, "fired before Next")
			}
			now = max(now, to)
			var want []uint64
			for len(model) > 0 && model[0].due <= now {
				want = append(want, model[0].value)
				stale = append(stale, model[0].timer)
				model = model[1:]
			}
			require.Equal(t, want, got)
		}
		t.Repeat(map[string]func(*rapid.T){
			"insert": func(t *rapid.T) { insert(later(t)) },
			"insert again at a due time": func(t *rapid.T) {
				if len(model) > 0 {
					insert(rapid.SampledFrom(model).Draw(t, "other").due)
				}
			},
			"insert late": func(t *rapid.T) { insert(earlier(t)) },
			"cancel": func(t *rapid.T) {
				if len(model) == 0 {
					return
				}
				i := rapid.IntRange(0, len(model)-1).Draw(t, "which")
				require.True(t, w.Cancel(model[i].timer))
				stale = append(stale, model[i].timer)
				model = slices.Delete(model, i, i+1)
			},
			"cancel stale": func(t *rapid.T) {
				if len(stale) > 0 {
					require.False(t, w.Cancel(rapid.SampledFrom(stale).Draw(t, "stale")))
				}
				require.False(t, w.Cancel(Timer{}))
				require.False(t, w.Cancel(Timer{index: math.MaxInt32, generation: 1}))
			},
			"advance":     func(t *rapid.T) { advance(t, later(t)) },
			"stand still": func(t *rapid.T) { advance(t, now) },
			"go back":     func(t *rapid.T) { advance(t, earlier(t)) },
			"advance to next": func(t *rapid.T) {
				if ms, ok := w.Next(); ok {
					advance(t, ms)
				}
			},
			"advance to just before a due time": func(t *rapid.T) {
				if len(model) > 0 && model[0].due > now {
					require.Empty(t, w.Advance(model[0].due-1, nil))
					now = model[0].due - 1
				}
			},
			"": func(t *rapid.T) {
				require.Equal(t, len(model), w.Len())
				ms, ok := w.Next()
				require.Equal(t, len(model) > 0, ok)
				if ok {
					require.LessOrEqual(t, ms, max(now, model[0].due))
					require.GreaterOrEqual(t, ms, now)
				}
			},
		})
		// Following Next alone, everything fires at its time.
		for w.Len() > 0 {
			ms, _ := w.Next()
			advance(t, ms)
		}
	})
}

func TestNodeIsSmall(t *testing.T) {
	require.LessOrEqual(t, unsafe.Sizeof(node{}), uintptr(36))
}

func TestMemoryPerTimer(t *testing.T) {
	const n = 1_000_000
	var before, after runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&before)
	w := New(0)
	random := rand.New(rand.NewPCG(1, 2))
	for i := range uint64(n) {
		w.Insert(random.Int64N(86_400_000), i)
	}
	runtime.GC()
	runtime.ReadMemStats(&after)
	perTimer := float64(after.HeapAlloc-before.HeapAlloc) / n
	t.Logf("%.1f bytes per timer", perTimer)
	require.Less(t, perTimer, 60.0)
	require.Less(t, after.HeapObjects-before.HeapObjects, uint64(2*n/chunkNodes))
	runtime.KeepAlive(w)
}

// A timer taken out and put in again uses the place it left.
func TestPlacesAreUsedAgain(t *testing.T) {
	w := New(0)
	for i := range uint64(3 * chunkNodes) {
		require.True(t, w.Cancel(w.Insert(int64(i)+1, i)))
	}
	require.Len(t, w.chunks, 1)
	require.Zero(t, w.Len())
}

func TestSteadyStateDoesNotAllocate(t *testing.T) {
	w := New(0)
	due := make([]uint64, 0, 16)
	now := int64(0)
	step := func() {
		t1 := w.Insert(now+70, 1)
		w.Insert(now+5000, 2)
		w.Insert(now, 3)
		w.Cancel(t1)
		now += 100
		due = w.Advance(now, due[:0])
	}
	for range 100 {
		step()
	}
	require.Zero(t, testing.AllocsPerRun(1000, step))
}

func BenchmarkInsertCancel(b *testing.B) {
	w := New(0)
	random := rand.New(rand.NewPCG(1, 2))
	for i := range uint64(1_000_000) {
		w.Insert(1+random.Int64N(86_400_000), i)
	}
	b.ReportAllocs()
	for b.Loop() {
		w.Cancel(w.Insert(1+random.Int64N(86_400_000), 1))
	}
}

// One timer of a million from insertion to firing, a day of them.
func BenchmarkInsertFire(b *testing.B) {
	const n = 1_000_000
	w := New(0)
	random := rand.New(rand.NewPCG(1, 2))
	now := int64(0)
	for i := range uint64(n) {
		w.Insert(1+random.Int64N(86_400_000), i)
	}
	var due []uint64
	b.ReportAllocs()
	for b.Loop() {
		if len(due) == 0 {
			now, _ = w.Next()
			due = w.Advance(now, due[:0])
			continue
		}
		w.Insert(now+1+random.Int64N(86_400_000), due[len(due)-1])
		due = due[:len(due)-1]
	}
}

// A host that slept for a day wakes up.
func BenchmarkJumpOverADay(b *testing.B) {
	w := New(0)
	now := int64(0)
	var due []uint64
	b.ReportAllocs()
	for b.Loop() {
		w.Insert(now+86_399_999, 1)
		now += 86_400_000
		due = w.Advance(now, due[:0])
	}
}

func BenchmarkIdle(b *testing.B) {
	w := New(0)
	w.Insert(1<<40, 1)
	now := int64(0)
	var due []uint64
	b.ReportAllocs()
	for b.Loop() {
		now++
		due = w.Advance(now, due)
	}
}
