package cluster

import (
	"fmt"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/ax-scheduler/ax/internal/store"
)

// Whatever comes, goes, drains or is pinned: when every replica follows its plan, each bucket has one owner
// that may own it, shares differ by one at most where pins let them, no more moves than have to, and what has
// become even stays.
func TestPlanProperty(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		m := store.Membership{Now: 100_000}
		for b := range store.Buckets {
			m.Leases = append(m.Leases, store.Lease{Bucket: b})
		}
		for i := range rapid.IntRange(1, 7).Draw(t, "replicas") {
			m.Peers = append(m.Peers, store.Peer{Replica: store.Replica{ID: fmt.Sprintf("r%d", i)}})
		}
		for range rapid.IntRange(1, 5).Draw(t, "changes") {
			for i := range m.Peers {
				p := &m.Peers[i]
				p.Alive = rapid.Float64Range(0, 1).Draw(t, "alive") < 0.7
				p.Draining = store.Draining(rapid.SampledFrom([]int{0, 0, 0, 0, 1, 2}).Draw(t, "draining"))
				p.StartedAt = m.Now - int64(rapid.SampledFrom([]int{10, 5000, 5000}).Draw(t, "age"))
			}
			for i := range m.Leases {
				m.Leases[i].PinnedTo = ""
				if rapid.IntRange(0, 20).Draw(t, "pinned") == 0 {
					m.Leases[i].PinnedTo = rapid.SampledFrom(m.Peers).Draw(t, "to").ID
				}
			}
			able := eligible(m)
			want := plan(m)
			if len(able) == 0 {
				require.Empty(t, want)
				continue
			}
			moved, must, surplus := 0, 0, 0
			held := map[string]int{}
			for _, l := range m.Leases {
				held[l.Owner]++
			}
			for _, l := range m.Leases {
				require.Contains(t, able, want[l.Bucket])
				if want[l.Bucket] != l.Owner {
					moved++
					if !slices.Contains(able, l.Owner) || l.PinnedTo != "" {
						must++
					}
				}
			}
			for _, id := range able {
				surplus += max(held[id]-store.Buckets/len(able), 0)
			}
			require.LessOrEqual(t, moved, must+surplus+pins(m))
			for i := range m.Leases {
				m.Leases[i].Owner = want[i]
			}
			if pins(m) == 0 {
				low, high := store.Buckets, 0
				count := map[string]int{}
				for _, l := range m.Leases {
					count[l.Owner]++
				}
				for _, id := range able {
					low, high = min(low, count[id]), max(high, count[id])
				}
				require.LessOrEqual(t, high-low, 1)
			}
			next := plan(m)
			if len(able) == len(eligible(m)) { // one that owns something now counts as seasoned
				for _, l := range m.Leases {
					require.Equal(t, l.Owner, next[l.Bucket], "what is even stays")
				}
			}
		}
	})
}

func pins(m store.Membership) (n int) {
	for _, l := range m.Leases {
		if l.PinnedTo != "" {
			n++
		}
	}
	return n
}
