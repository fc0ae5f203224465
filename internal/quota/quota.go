// Package quota decides who goes first: the score of what waits, and the ready queue
// that is ordered by it.
package quota

import (
	"container/heap"
	"slices"
)

// Levels is the number of priority levels: 0 to 5.
const Levels = 6

// Weights of the score. Times are in milliseconds.
const (
	levelWeight = 1000.0
	perMinute   = 1.0 / 60_000
	waitGrace   = 1800 * 1000
)

// Score orders what waits, highest first: level·1000 + (now−submit)/60 s +
// max(0, wait−1800 s)/60 s. It grows with age for everybody alike, so nobody starves: a
// level 0 passes a fresh level 5 after 41.9 hours.
func Score(level int, submitAt, readyAt, now int64) float64 {
	score := float64(level)*levelWeight + float64(now-submitAt)*perMinute
	if wait := now - readyAt - waitGrace; wait > 0 {
		score += float64(wait) * perMinute
	}
	return score
}

// Entry is something that waits for its turn.
type Entry[T any] struct {
	Level    int
	SubmitAt int64 // when the batch was due (or asked for by hand), milliseconds
	ReadyAt  int64 // since when it waits
	Value    T
	seq      uint64
}

// Queue is a ready queue ordered by Score. Inside a level the score's order is that of age,
// whatever the clock says, so each level is a heap and Peek compares six heads: adding and
// taking cost O(log n), re-ranking costs nothing. The zero value is empty and ready. It is not
// safe for concurrent use.
type Queue[T any] struct {
	levels [Levels]lane[T]
	seq    uint64
	size   int
}

// Push adds an entry.
func (q *Queue[T]) Push(e Entry[T]) {
	e.Level = min(max(e.Level, 0), Levels-1)
	q.seq++
	e.seq = q.seq
	heap.Push(&q.levels[e.Level], e)
	q.size++
}

// Len is the number of entries.
func (q *Queue[T]) Len() int { return q.size }

// Peek returns the entry with the highest score at now. ok is false when it is empty.
func (q *Queue[T]) Peek(now int64) (e Entry[T], ok bool) {
	best := q.best(now)
	if best < 0 {
		return e, false
	}
	return q.levels[best][0], true
}

// Pop removes and returns the entry with the highest score at now.
func (q *Queue[T]) Pop(now int64) (e Entry[T], ok bool) {
	best := q.best(now)
	if best < 0 {
		return e, false
	}
	q.size--
	return heap.Pop(&q.levels[best]).(Entry[T]), true
}

// Remove takes out the entries whose value drop says yes to.
func (q *Queue[T]) Remove(drop func(T) bool) {
	for i := range q.levels {
		kept := slices.DeleteFunc(q.levels[i], func(e Entry[T]) bool { return drop(e.Value) })
		q.size -= len(q.levels[i]) - len(kept)
		q.levels[i] = kept
		heap.Init(&q.levels[i])
	}
}

// Each calls f for every entry, in no order.
func (q *Queue[T]) Each(f func(e Entry[T])) {
	for i := range q.levels {
		for _, e := range q.levels[i] {
			f(e)
		}
	}
}

// Oldest returns the smallest ReadyAt, or 0 when it is empty.
func (q *Queue[T]) Oldest() int64 {
	var oldest int64
	for i := range q.levels {
		for _, e := range q.levels[i] {
			if oldest == 0 || e.ReadyAt < oldest {
				oldest = e.ReadyAt
			}
		}
	}
	return oldest
}

func (q *Queue[T]) best(now int64) int {
	best, score := -1, 0.0
	// From the top, so that a tie goes to the higher level.
	for level := Levels - 1; level >= 0; level-- {
		if len(q.levels[level]) == 0 {
			continue
		}
		head := q.levels[level][0]
		if s := Score(level, head.SubmitAt, head.ReadyAt, now); best < 0 || s > score {
			best, score = level, s
		}
	}
	return best
}

// lane is one level: a heap by submit time, then by arrival.
type lane[T any] []Entry[T]

func (l lane[T]) Len() int { return len(l) }
func (l lane[T]) Less(i, j int) bool {
	if l[i].SubmitAt != l[j].SubmitAt {
		return l[i].SubmitAt < l[j].SubmitAt
	}
	return l[i].seq < l[j].seq
}
func (l lane[T]) Swap(i, j int) { l[i], l[j] = l[j], l[i] }

// Push is heap.Interface's.
func (l *lane[T]) Push(x any) { *l = append(*l, x.(Entry[T])) }

// Pop is heap.Interface's.
func (l *lane[T]) Pop() any {
	old := *l
	n := len(old)
	e := old[n-1]
	old[n-1] = Entry[T]{}
	*l = old[:n-1]
	return e
}
