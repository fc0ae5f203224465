package quota_test

import (
	"sort"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/ax-scheduler/ax/internal/quota"
)

const hour = int64(3600 * 1000)

func TestScore(t *testing.T) {
	const now = 100 * hour
	tests := []struct {
		name             string
		level            int
		submitAt, readAt int64
		want             float64
	}{
		{"a fresh one counts its level", 5, now, now, 5000},
		{"age counts by the minute", 0, now - hour, now, 60},
		{"waiting counts from half an hour on", 0, now - hour, now - hour, 60 + 30},
		{"a planned moment ahead counts against it", 1, now + hour, now, 1000 - 60},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			require.InDelta(t, tt.want, quota.Score(tt.level, tt.submitAt, tt.readAt, now), 1e-9)
		})
	}
	// Nobody starves: a level 0 passes a fresh level 5 after 41.9 hours.
	old := func(age int64) float64 { return quota.Score(0, now-age, now-age, now) }
	require.Less(t, old(41*hour), quota.Score(5, now, now, now))
	require.Greater(t, old(42*hour), quota.Score(5, now, now, now))
}

// P16: what is taken comes in the order of the score; those of one level and age in that of arrival.
func TestTheQueueIsSortedByScore(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		const start = 1000 * hour
		var q quota.Queue[int]
		type entry struct {
			quota.Entry[int]
			arrived int
		}
		var model []entry
		now := start
		n := rapid.IntRange(1, 60).Draw(t, "n")
		for i := range n {
			now += rapid.Int64Range(0, hour).Draw(t, "step")
			// What waits became ready at or after its planned moment, in the order in which it came.
			e := quota.Entry[int]{Level: rapid.IntRange(0, 5).Draw(t, "level"), SubmitAt: now, ReadyAt: now, Value: i}
			q.Push(e)
			model = append(model, entry{e, i})
			require.Equal(t, len(model), q.Len())
			if rapid.Bool().Draw(t, "pop") {
				now += rapid.Int64Range(0, 50*hour).Draw(t, "wait")
				sort.SliceStable(model, func(a, b int) bool {
					x, y := model[a], model[b]
					sx, sy := quota.Score(x.Level, x.SubmitAt, x.ReadyAt, now), quota.Score(y.Level, y.SubmitAt, y.ReadyAt, now)
					if sx != sy {
						return sx > sy
					}
					if x.Level != y.Level {
						return x.Level > y.Level
					}
					return x.arrived < y.arrived
				})
				peeked, ok := q.Peek(now)
				require.True(t, ok)
				got, ok := q.Pop(now)
				require.True(t, ok)
				require.Equal(t, peeked, got)
				require.Equal(t, model[0].Value, got.Value)
				model = model[1:]
			}
		}
		oldest := int64(0)
		for _, e := range model {
			if oldest == 0 || e.ReadyAt < oldest {
				oldest = e.ReadyAt
			}
		}
		require.Equal(t, oldest, q.Oldest())
		last := 0.0
		for i := range model {
			e, ok := q.Pop(now)
			require.True(t, ok)
			s := quota.Score(e.Level, e.SubmitAt, e.ReadyAt, now)
			if i > 0 {
				require.LessOrEqual(t, s, last)
			}
			last = s
		}
		_, ok := q.Pop(now)
		require.False(t, ok)
	})
}

func TestLevelsBeyondTheRangeAreHeldInIt(t *testing.T) {
	var q quota.Queue[string]
	q.Push(quota.Entry[string]{Level: -3, SubmitAt: 1, ReadyAt: 1, Value: "low"})
	q.Push(quota.Entry[string]{Level: 99, SubmitAt: 1, ReadyAt: 1, Value: "high"})
	e, ok := q.Pop(2)
	require.True(t, ok)
	require.Equal(t, "high", e.Value)
	require.Equal(t, quota.Levels-1, e.Level)
}

// Ranking three thousand anew costs what one look costs: the order inside a level never changes.
func BenchmarkRerank3000(b *testing.B) {
	var q quota.Queue[int]
	for i := range 3000 {
		q.Push(quota.Entry[int]{Level: i % 6, SubmitAt: int64(i * 7919 % 3000), ReadyAt: int64(i), Value: i})
	}
	b.ReportAllocs()
	for i := range b.N {
		e, _ := q.Pop(int64(i) * 1000)
		q.Push(e)
	}
}
