package cluster

import (
	"cmp"
	"slices"

	"github.com/ax-scheduler/ax/internal/store"
)

// seasoned is how long a replica must have lived before others hand buckets to it: one that dies again
// and again must not make them move each time.
const seasoned = 1000 // milliseconds

// plan decides where each bucket belongs. It is pure: every replica computes it from the same rows and so
// takes and gives what the others expect of it; where they read different rows, the conditional update
// decides and the next look mends it. Buckets move only when somebody has more than its share.
func plan(m store.Membership) map[int]string {
	able := eligible(m)
	want := make(map[int]string, len(m.Leases))
	if len(able) == 0 {
		return want
	}
	held := map[string][]int{} // what may be moved
	count := map[string]int{}
	for _, id := range able {
		count[id] = 0
	}
	var loose []int
	for _, l := range m.Leases {
		to := l.Owner
		_, pinned := count[l.PinnedTo]
		if pinned {
			to = l.PinnedTo
		}
		if _, ok := count[to]; !ok {
			loose = append(loose, l.Bucket)
			continue
		}
		want[l.Bucket] = to
		count[to]++
		if !pinned {
			held[to] = append(held[to], l.Bucket)
		}
	}
	// Who has most keeps the odd ones, so that nothing moves for their sake.
	slices.SortFunc(able, func(a, b string) int {
		return cmp.Or(cmp.Compare(count[b], count[a]), cmp.Compare(a, b))
	})
	share := make(map[string]int, len(able))
	for i, id := range able {
		share[id] = len(m.Leases) / len(able)
		if i < len(m.Leases)%len(able) {
			share[id]++
		}
	}
	for _, id := range able {
		spare := min(count[id]-share[id], len(held[id]))
		for range spare {
			last := len(held[id]) - 1
			loose = append(loose, held[id][last])
			held[id] = held[id][:last]
			count[id]--
		}
	}
	slices.Sort(loose)
	slices.Sort(able)
	for _, bucket := range loose {
		// Pins may leave somebody above its share: then the others have less than theirs, and take what is loose.
		to := slices.MinFunc(able, func(a, b string) int {
			return cmp.Or(cmp.Compare(count[a]-share[a], count[b]-share[b]), cmp.Compare(a, b))
		})
		want[bucket] = to
		count[to]++
	}
	return want
}

// eligible are the replicas that take buckets: those that live, take part, and have lived for a while or
// own something already.
// Where there is none of them it is better that anybody owns the buckets than nobody.
func eligible(m store.Membership) []string {
	owns := map[string]bool{}
	for _, l := range m.Leases {
		owns[l.Owner] = true
	}
	for _, fits := range []func(p store.Peer) bool{
		func(p store.Peer) bool {
			return p.Draining == store.NotDraining && (m.Now-p.StartedAt >= seasoned || owns[p.ID])
		},
		func(p store.Peer) bool { return p.Draining == store.NotDraining },
		func(p store.Peer) bool { return p.Draining == store.AskedToDrain },
	} {
		var out []string
		for _, p := range m.Peers {
			if p.Alive && fits(p) {
				out = append(out, p.ID)
			}
		}
		if len(out) > 0 {
			return out
		}
	}
	return nil
}
