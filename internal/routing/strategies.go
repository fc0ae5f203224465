package routing

import (
	"cmp"
	"hash/fnv"
	"math"
	"slices"
	"strconv"
	"strings"

	"github.com/ax-scheduler/ax/internal/message"
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
	Weighted       = "weighted"
)

func strategies() []Strategy {
	inOrder := func(_ Request, free []Candidate) []Candidate { return free }
	return []Strategy{
		{Name: RoundRobin, Order: roundRobin, Text: message.Text{EN: "Each in its turn.", ZH: "轮流选择。"}},
		{Name: ConsistentHash, Order: consistentHash, Text: message.Text{EN: "The same key goes to the same executor.", ZH: "相同的键总是发往同一执行器。"}},
		{Name: Broadcast, Order: broadcast, Text: message.Text{EN: "Every executor gets a shard.", ZH: "每个执行器各得一个分片。"}},
		{Name: First, Order: inOrder, Text: message.Text{EN: "The one that registered first.", ZH: "最先注册的执行器。"}},
		{Name: Failover, Order: inOrder, Text: message.Text{EN: "The one that registered first; the others stand by.", ZH: "最先注册的执行器，其余待命。"}},
		{Name: Last, Order: func(_ Request, free []Candidate) []Candidate {
			slices.Reverse(free)
			return free
		}, Text: message.Text{EN: "The one that registered last.", ZH: "最后注册的执行器。"}},
		{Name: Random, Order: random, Text: message.Text{EN: "Any.", ZH: "随机选择。"}},
		by(LeastUsed, "used", message.Text{EN: "The one that ran this job least often.", ZH: "运行此任务次数最少的执行器。"}, func(_ Request, c Candidate) float64 { return float64(c.Used) }),
		by(LeastRecent, "lastUsed", message.Text{EN: "The one that ran this job longest ago.", ZH: "最久未运行此任务的执行器。"}, func(_ Request, c Candidate) float64 { return float64(c.LastUsed) }),
		by(LeastBusy, "busy", message.Text{EN: "The one with the most free resources.", ZH: "空闲资源最多的执行器。"}, func(_ Request, c Candidate) float64 { return busy(c) }),
		{Name: Weighted, Order: weighted, Term: func(_ Request, c Candidate) float64 { return weight(c) }, TermName: "weight", Text: message.Text{EN: "In proportion to the label weight.", ZH: "按标签 weight 的比例分配。"}},
	}
}

func rotate(free []Candidate, by uint64) []Candidate {
	n := int(by % uint64(len(free)))
	return append(slices.Clone(free[n:]), free[:n]...)
}

func roundRobin(r Request, free []Candidate) []Candidate { return rotate(free, r.Turn) }

// broadcast gives shard i to the i-th executor, counted in the order of registration;
// when some have left meanwhile their shards are spread over the others.
func broadcast(r Request, free []Candidate) []Candidate { return rotate(free, uint64(max(r.Shard, 0))) }

// scatter makes far apart numbers of consecutive turns: multiples of the golden ratio fill every range evenly, so
// that no generator with state is needed, a replay gives the same choice, and few turns are spread well already.
func scatter(turn uint64) uint64 { return (turn + 1) * 0x9E3779B97F4A7C15 }

func random(r Request, free []Candidate) []Candidate { return rotate(free, scatter(r.Turn)>>33) }

// busy is the fullest of an executor's resources, 1 = all of it is taken.
func busy(c Candidate) float64 {
	share := func(used, all int64) float64 {
		if all <= 0 {
			return 0
		}
		return float64(used) / float64(all)
	}
	return max(float64(c.Busy)/float64(max(c.Slots, 1)), share(c.UsedCPU, c.CPUMilli), share(c.UsedMemory, c.MemoryMB))
}

func by(name, termName string, text message.Text, term func(Request, Candidate) float64) Strategy {
	return Strategy{Name: name, Text: text, Term: term, TermName: termName, Loads: true, Order: func(r Request, free []Candidate) []Candidate {
		// Starting from the turn spreads equals, so that the first one does not take all ties.
		out := rotate(free, r.Turn)
		slices.SortStableFunc(out, func(a, b Candidate) int { return cmp.Compare(term(r, a), term(r, b)) })
		return out
	}}
}

// weightLabel is the label that says how much more than others an executor gets.
const weightLabel = "weight"

// weight is an executor's weight: 1 without the label or with one that is no number, at most 1000.
func weight(c Candidate) float64 {
	w, err := strconv.ParseFloat(c.Labels[weightLabel], 64)
	if err != nil || math.IsNaN(w) {
		return 1
	}
	return min(max(w, 0), 1000)
}

// weighted gives each executor a part of the turns in proportion to its weight. One of weight 0 gets something only
// when there is nobody else.
func weighted(r Request, free []Candidate) []Candidate {
	sum := 0.0
	for _, c := range free {
		sum += weight(c)
	}
	if sum == 0 {
		return roundRobin(r, free)
	}
	point := float64(scatter(r.Turn)>>11) / (1 << 53) * sum
	at := 0
	for i, c := range free {
		w := weight(c)
		if w == 0 {
			continue
		}
		at = i
		if point -= w; point < 0 {
			break
		}
	}
	out := rotate(free, uint64(at))
	slices.SortStableFunc(out[1:], func(a, b Candidate) int { return cmp.Compare(weight(b), weight(a)) })
	return out
}

// consistentHash places keys by rendezvous hashing: each candidate's weight for a key is a hash of
// both, the highest wins. Adding one of n moves 1/n of the keys and no others, with no ring to keep.
func consistentHash(r Request, free []Candidate) []Candidate {
	weight := func(c Candidate) uint64 {
		h := fnv.New64a()
		_, _ = h.Write([]byte(r.Key))
		_, _ = h.Write([]byte{0})
		_, _ = h.Write([]byte(c.Address))
		return mix(h.Sum64())
	}
	slices.SortFunc(free, func(a, b Candidate) int {
		return cmp.Or(cmp.Compare(weight(b), weight(a)), strings.Compare(a.Address, b.Address))
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
