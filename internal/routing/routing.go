// Package routing decides which executor runs an execution, and says why.
//
// It sees candidates that package registry holds for alive and knows nothing of
// networks. A strategy orders the candidates; the caller takes the first that has room.
package routing

import (
	"hash/fnv"
	"slices"
	"sort"
	"strconv"
	"strings"
)

// Strategy names.
const (
	RoundRobin     = "roundRobin"
	ConsistentHash = "consistentHash"
	Broadcast      = "shardingBroadcast"
	First          = "first"
	Last           = "last"
	Random         = "random"
	LeastUsed      = "leastUsed"
	LeastRecent    = "leastRecent"
	LeastBusy      = "leastBusy"
	Failover       = "failover"
)

// Candidate is an executor as routing sees it.
type Candidate struct {
	ID      int64
	Address string
	Slots   int // capacity: how many executions it takes at once, queue included
	Busy    int // how many of ours it has
	// Used and LastUsed are this job's: how often and when it last went there.
	Used     int64
	LastUsed int64 // milliseconds, 0 = never
	// Barred says why it may not be taken now ("" = it may): the reason code that an
	// explanation shows, such as "full", "suspect", "refused_before".
	Barred string
}

// Request is what one execution wants.
type Request struct {
	Strategy string
	Turn     uint64 // this job's count of firings so far; round robin and random start from it
	Key      string // what consistentHash places
	Shard    int
	Total    int
}

// Choice explains a decision: the candidates in the order of preference, and those
// that were filtered out with the reason.
type Choice struct {
	Order    []int64            `json:"order"`
	Filtered map[string]string  `json:"filtered,omitempty"` // executor id → reason code
	Score    map[string]float64 `json:"score,omitempty"`    // executor id → the term that ordered it
}

// A strategy orders the free candidates, best first. They come sorted by id, that is
// by the order of registration, which is stable over restarts of the server.
type strategy func(r Request, free []Candidate) []Candidate

func strategies() map[string]strategy {
	return map[string]strategy{
		RoundRobin:     roundRobin,
		ConsistentHash: consistentHash,
		Broadcast:      broadcast,
		First:          func(_ Request, free []Candidate) []Candidate { return free },
		Failover:       func(_ Request, free []Candidate) []Candidate { return free },
		Last: func(_ Request, free []Candidate) []Candidate {
			slices.Reverse(free)
			return free
		},
		Random:      random,
		LeastUsed:   by(func(c Candidate) int64 { return c.Used }),
		LeastRecent: by(func(c Candidate) int64 { return c.LastUsed }),
		LeastBusy:   by(func(c Candidate) int64 { return int64(c.Busy) * 1_000_000 / int64(max(c.Slots, 1)) }),
	}
}

// Router holds the strategies. It is immutable and safe for concurrent use.
type Router struct {
	table map[string]strategy
	names []string
}

// New makes a router with every strategy.
func New() *Router {
	r := &Router{table: strategies()}
	for name := range r.table {
		r.names = append(r.names, name)
	}
	sort.Strings(r.names)
	return r
}

// Strategies lists the names, sorted.
func (r *Router) Strategies() []string { return r.names }

// Steady tells whether a strategy chooses the same a second earlier: it does not look at
// load or use.
func (r *Router) Steady(strategy string) bool {
	switch strategy {
	case LeastUsed, LeastRecent, LeastBusy:
		return false
	}
	return true
}

// Pick orders the candidates for one execution, best first. An empty order means
// that nobody can take it now; Filtered then says why for each candidate. The candidates
// may come in any order and are not changed. An unknown strategy orders like roundRobin.
func (r *Router) Pick(req Request, candidates []Candidate) Choice {
	free := make([]Candidate, 0, len(candidates))
	choice := Choice{}
	for _, c := range candidates {
		if c.Barred != "" {
			if choice.Filtered == nil {
				choice.Filtered = map[string]string{}
			}
			choice.Filtered[strconv.FormatInt(c.ID, 10)] = c.Barred
			continue
		}
		free = append(free, c)
	}
	if len(free) == 0 {
		return choice
	}
	slices.SortFunc(free, func(a, b Candidate) int { return cmp64(a.ID, b.ID) })
	s, ok := r.table[req.Strategy]
	if !ok {
		s = roundRobin
	}
	for _, c := range s(req, free) {
		choice.Order = append(choice.Order, c.ID)
	}
	return choice
}

func cmp64(a, b int64) int {
	switch {
	case a < b:
		return -1
	case a > b:
		return 1
	}
	return 0
}

func rotate(free []Candidate, by uint64) []Candidate {
	n := int(by % uint64(len(free)))
	return append(slices.Clone(free[n:]), free[:n]...)
}

func roundRobin(r Request, free []Candidate) []Candidate { return rotate(free, r.Turn) }

// broadcast gives shard i to the i-th executor, counted in the order of registration;
// when some have left meanwhile their shards are spread over the others.
func broadcast(r Request, free []Candidate) []Candidate { return rotate(free, uint64(max(r.Shard, 0))) }

func random(r Request, free []Candidate) []Candidate {
	// Multiplying by an odd constant and taking high bits scatters consecutive turns; no
	// generator with state is needed, and a replay gives the same choice.
	return rotate(free, (r.Turn+1)*0x9E3779B97F4A7C15>>33)
}

func by(term func(Candidate) int64) strategy {
	return func(r Request, free []Candidate) []Candidate {
		// Starting from the turn spreads equals, so that the first one does not take all ties.
		out := rotate(free, r.Turn)
		slices.SortStableFunc(out, func(a, b Candidate) int { return cmp64(term(a), term(b)) })
		return out
	}
}

// points per executor on the ring of consistentHash, by rendezvous hashing: each
// candidate's weight for a key is a hash of both, the highest wins. Adding one of n moves
// 1/n of the keys and no others, with no ring to keep.
func consistentHash(r Request, free []Candidate) []Candidate {
	weight := func(c Candidate) uint64 {
		h := fnv.New64a()
		_, _ = h.Write([]byte(r.Key))
		_, _ = h.Write([]byte{0})
		_, _ = h.Write([]byte(c.Address))
		return mix(h.Sum64())
	}
	slices.SortFunc(free, func(a, b Candidate) int {
		wa, wb := weight(a), weight(b)
		switch {
		case wa > wb:
			return -1
		case wa < wb:
			return 1
		}
		return strings.Compare(a.Address, b.Address)
	})
	return free
}

// mix finishes a hash: FNV alone leaves similar addresses with similar high bits, and
// one of two executors then gets most keys.
func mix(x uint64) uint64 {
	x ^= x >> 33
	x *= 0xff51afd7ed558ccd
	x ^= x >> 33
	x *= 0xc4ceb9fe1a85ec53
	return x ^ x>>33
}
