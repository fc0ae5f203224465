package routing_test

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/ax-scheduler/ax/internal/routing"
)

func executors(n int) []routing.Candidate {
	out := make([]routing.Candidate, n)
	for i := range out {
		out[i] = routing.Candidate{ID: int64(i + 1), Address: fmt.Sprintf("http://10.0.0.%d:9999", i+1), Slots: 10}
	}
	return out
}

// C281: the keys spread evenly, and one more executor takes its part and moves nothing else.
func TestConsistentHashSpreadsAndMovesLittle(t *testing.T) {
	const keys = 10_000
	r := routing.New()
	place := func(list []routing.Candidate) map[string]int64 {
		out := map[string]int64{}
		for i := range keys {
			key := fmt.Sprint(10_000 + i)
			out[key] = r.Pick(routing.Request{Strategy: routing.ConsistentHash, Key: key}, list).Order[0]
		}
		return out
	}
	for n := 2; n <= 8; n++ {
		before, after := place(executors(n)), place(executors(n+1))
		counts := map[int64]int{}
		moved := 0
		for key, id := range before {
			counts[id]++
			if after[key] != id {
				moved++
				require.EqualValues(t, n+1, after[key], "a key moves to the new executor or not at all")
			}
		}
		for id, c := range counts {
			require.InDelta(t, keys/n, c, keys*0.03, "executor %d of %d", id, n)
		}
		require.InDelta(t, keys/(n+1), moved, keys*0.03, "%d executors and one more", n)
		// Taking the first away leaves the others' keys where they were.
		for key, id := range place(executors(n)[1:]) {
			if before[key] != 1 {
				require.Equal(t, before[key], id)
			}
		}
	}
}

// C282: what each strategy says of three executors registered in this order.
func TestStrategies(t *testing.T) {
	r := routing.New()
	pick := func(strategy string, turn uint64, list []routing.Candidate) int64 {
		return r.Pick(routing.Request{Strategy: strategy, Turn: turn, Key: "k"}, list).Order[0]
	}
	tests := []struct {
		name     string
		strategy string
		want     map[int64]int
	}{
		{"first takes the first registered", routing.First, map[int64]int{1: 30}},
		{"last takes the last registered", routing.Last, map[int64]int{3: 30}},
		{"failover stays with the first", routing.Failover, map[int64]int{1: 30}},
		{"round robin takes turns", routing.RoundRobin, map[int64]int{1: 10, 2: 10, 3: 10}},
		{"an unknown strategy takes turns", "nonsense", map[int64]int{1: 10, 2: 10, 3: 10}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			got := map[int64]int{}
			for turn := range uint64(30) {
				got[pick(tt.strategy, turn, executors(3))]++
			}
			require.Equal(t, tt.want, got)
		})
	}
	t.Run("random reaches everybody, and alike for the same turn", func(t *testing.T) {
		got := map[int64]int{}
		for turn := range uint64(300) {
			id := pick(routing.Random, turn, executors(3))
			require.Equal(t, id, pick(routing.Random, turn, executors(3)))
			got[id]++
		}
		for id := range int64(3) {
			require.Greater(t, got[id+1], 60)
		}
	})
	t.Run("least used, least recent and least busy look at their number", func(t *testing.T) {
		list := executors(3)
		list[0].Used, list[1].Used, list[2].Used = 5, 2, 9
		list[0].LastUsed, list[1].LastUsed, list[2].LastUsed = 5, 9, 2
		list[0].Busy, list[1].Busy, list[2].Busy = 1, 4, 4
		list[0].Slots = 1
		list[2].Slots = 100
		for turn := range uint64(5) {
			require.EqualValues(t, 2, pick(routing.LeastUsed, turn, list))
			require.EqualValues(t, 3, pick(routing.LeastRecent, turn, list))
			require.EqualValues(t, 3, pick(routing.LeastBusy, turn, list), "busy is measured against the slots")
		}
	})
	t.Run("a broadcast gives each shard its own executor", func(t *testing.T) {
		got := map[int64]bool{}
		for shard := range 3 {
			got[r.Pick(routing.Request{Strategy: routing.Broadcast, Shard: shard, Total: 3}, executors(3)).Order[0]] = true
		}
		require.Len(t, got, 3)
	})
}

// Whatever the strategy: everybody who is free is in the order once, nobody who is barred is, the
// order of the candidates does not matter, and they are not changed.
func TestPickIsAPermutationOfTheFree(t *testing.T) {
	r := routing.New()
	rapid.Check(t, func(t *rapid.T) {
		list := executors(rapid.IntRange(0, 12).Draw(t, "n"))
		free := 0
		for i := range list {
			list[i].Used = rapid.Int64Range(0, 5).Draw(t, "used")
			list[i].LastUsed = rapid.Int64Range(0, 5).Draw(t, "last")
			list[i].Busy = rapid.IntRange(0, 5).Draw(t, "busy")
			list[i].Slots = rapid.IntRange(0, 5).Draw(t, "slots")
			if rapid.Bool().Draw(t, "barred") {
				list[i].Barred = "full"
			} else {
				free++
			}
		}
		req := routing.Request{
			Strategy: rapid.SampledFrom(r.Strategies()).Draw(t, "strategy"), Turn: rapid.Uint64().Draw(t, "turn"), Key: rapid.String().Draw(t, "key"), Shard: rapid.IntRange(-1, 20).Draw(t, "shard"), Total: 3,
		}
		shuffled := rapid.Permutation(list).Draw(t, "shuffled")
		copied := append([]routing.Candidate(nil), shuffled...)
		got := r.Pick(req, shuffled)
		if len(shuffled) > 0 {
			require.Equal(t, copied, shuffled)
		}
		require.Len(t, got.Order, free)
		require.Len(t, got.Filtered, len(list)-free)
		seen := map[int64]bool{}
		for _, id := range got.Order {
			require.False(t, seen[id])
			seen[id] = true
			require.Empty(t, list[id-1].Barred)
		}
		require.Equal(t, got, r.Pick(req, list))
	})
}

func BenchmarkPick(b *testing.B) {
	r := routing.New()
	list := executors(100)
	for _, s := range r.Strategies() {
		b.Run(s, func(b *testing.B) {
			b.ReportAllocs()
			for i := range b.N {
				r.Pick(routing.Request{Strategy: s, Turn: uint64(i), Key: "10001", Shard: i}, list)
			}
		})
	}
}
