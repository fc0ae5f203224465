// Package wheel is a timing wheel: a large number of timers, each a number with a due
// time, at constant cost. It reads no clock; it is told the time. What the numbers
// mean is its user's business.
//
// Levels of 64 slots divide the time ahead: a slot of level 0 is one millisecond, a
// slot of each further level 64 slots of the one below. A timer waits at the level of
// the highest digit, in base 64, in which its due time differs from now; when the clock
// reaches the slot of a higher level, its timers move down, so that all come to rest in
// the millisecond that they are due in. One word of bits per level tells which slots
// are taken: empty time costs nothing, however long it is.
package wheel

import (
	"cmp"
	"math"
	"math/bits"
	"slices"
)

const (
	digitBits = 6
	slotCount = 1 << digitBits
	// levelCount levels hold any int64 of milliseconds.
	levelCount = 11
	// overdueSlot is the list of what was due already when it was inserted.
	overdueSlot = levelCount * slotCount

	// chunkNodes nodes are allocated at once: growing copies no timer and stops the
	// caller for 128 KiB at most.
	chunkBits  = 12
	chunkNodes = 1 << chunkBits

	none = -1
)

// node is one timer in 32 bytes. Nodes lie in chunks and are linked by index, so that
// the garbage collector sees a few objects without a pointer in them.
type node struct {
	due        int64 // milliseconds since Wheel.base
	value      uint64
	next, prev int32  // in the list of its slot, or next in the free list
	generation uint32 // odd while in use; moves on when the node changes hands
	slot       uint16
}

// list is a slot's timers in order of insertion.
type list struct{ head, tail int32 }

// Timer names an inserted timer, for Cancel. The zero Timer names none, and one that
// has fired or was cancelled names none any more, whatever has taken its place.
type Timer struct {
	index      int32
	generation uint32
}

// Wheel holds timers. It is not safe for concurrent use.
type Wheel struct {
	base  int64 // the time New was told; all else is relative to it
	now   int64
	count int

	chunks []*[chunkNodes]node
	free   int32
	unused int32 // nodes from here on were never in use

	taken [levelCount]uint64
	lists [overdueSlot + 1]list

	overdue []int32 // scratch of Advance
}

// New returns an empty wheel whose clock stands at nowMs, in milliseconds of any epoch.
func New(nowMs int64) *Wheel {
	w := &Wheel{base: nowMs, free: none}
	for i := range w.lists {
		w.lists[i] = list{none, none}
	}
	return w
}

// Len is how many timers have neither fired nor been cancelled.
func (w *Wheel) Len() int { return w.count }

// Insert adds a timer. One that is due at or before the wheel's own time fires at the
// next Advance, whatever time that is told.
func (w *Wheel) Insert(dueMs int64, value uint64) Timer {
	i := w.allocate()
	n := w.node(i)
	n.due, n.value = w.relative(dueMs), value
	w.link(i, n)
	w.count++
	return Timer{i, n.generation}
}

// Cancel takes a timer out, and tells whether it was still in.
func (w *Wheel) Cancel(t Timer) bool {
	if t.index < 0 || t.index >= w.unused {
		return false
	}
	n := w.node(t.index)
	// An even generation is a free node: the zero Timer's, for one.
	if n.generation != t.generation || t.generation&1 == 0 {
		return false
	}
	l := &w.lists[n.slot]
	if n.prev == none {
		l.head = n.next
	} else {
		w.node(n.prev).next = n.next
	}
	if n.next == none {
		l.tail = n.prev
	} else {
		w.node(n.next).prev = n.prev
	}
	if l.head == none && n.slot != overdueSlot {
		w.taken[n.slot>>digitBits] &^= 1 << (n.slot & (slotCount - 1))
	}
	w.release(t.index, n)
	return true
}

// Advance moves the clock to nowMs and appends the values of all timers due at or
// before it to due, in order of due time and, within one millisecond, of insertion. A
// time before the wheel's own leaves the clock where it is.
func (w *Wheel) Advance(nowMs int64, due []uint64) []uint64 {
	target := max(w.relative(nowMs), w.now)
	due = w.fireOverdue(due)
	for {
		at, slot, ok := w.nextSlot()
		if !ok || at > target {
			break
		}
		w.now = at
		i := w.lists[slot].head
		w.lists[slot] = list{none, none}
		w.taken[slot>>digitBits] &^= 1 << (slot & (slotCount - 1))
		for i != none {
			n := w.node(i)
			next := n.next
			if n.due == at {
				due = append(due, n.value)
				w.release(i, n)
			} else {
				w.link(i, n)
			}
			i = next
		}
	}
	w.now = target
	return due
}

// Next returns the earliest time at which Advance has something to do: timers to fire,
// or only to move down, so that it is never later than the first due time. ok is false
// for an empty wheel.
func (w *Wheel) Next() (ms int64, ok bool) {
	if w.lists[overdueSlot].head != none {
		return w.base + w.now, true
	}
	at, _, ok := w.nextSlot()
	if !ok {
		return 0, false
	}
	return w.base + at, true
}

// nextSlot returns the first taken slot and the time at which it starts. That is on the
// lowest level which has any: a timer of level n agrees with now in all digits above n,
// so it is due before now's digit n+1 moves.
func (w *Wheel) nextSlot() (at int64, slot int, ok bool) {
	for level, taken := range w.taken {
		if taken == 0 {
			continue
		}
		digit := bits.TrailingZeros64(taken)
		shift := level * digitBits
		at = w.now >> shift >> digitBits << digitBits
		return (at | int64(digit)) << shift, level<<digitBits | digit, true
	}
	return 0, 0, false
}

// fireOverdue empties the overdue list, which alone is not in order.
func (w *Wheel) fireOverdue(due []uint64) []uint64 {
	l := &w.lists[overdueSlot]
	if l.head == none {
		return due
	}
	w.overdue = w.overdue[:0]
	for i := l.head; i != none; i = w.node(i).next {
		w.overdue = append(w.overdue, i)
	}
	*l = list{none, none}
	slices.SortStableFunc(w.overdue, func(a, b int32) int { return cmp.Compare(w.node(a).due, w.node(b).due) })
	for _, i := range w.overdue {
		n := w.node(i)
		due = append(due, n.value)
		w.release(i, n)
	}
	return due
}

// link appends a node to the list that its due time belongs to.
func (w *Wheel) link(i int32, n *node) {
	slot := overdueSlot
	if n.due > w.now {
		level := (bits.Len64(uint64(n.due^w.now)) - 1) / digitBits
		digit := int(n.due>>(level*digitBits)) & (slotCount - 1)
		w.taken[level] |= 1 << digit
		slot = level<<digitBits | digit
	}
	n.slot = uint16(slot)
	l := &w.lists[slot]
	n.prev, n.next = l.tail, none
	if l.tail == none {
		l.head = i
	} else {
		w.node(l.tail).next = i
	}
	l.tail = i
}

func (w *Wheel) allocate() int32 {
	i := w.free
	if i != none {
		w.free = w.node(i).next
	} else {
		i = w.unused
		if int(i)>>chunkBits == len(w.chunks) {
			w.chunks = append(w.chunks, new([chunkNodes]node))
		}
		w.unused++
	}
	w.node(i).generation++
	return i
}

func (w *Wheel) release(i int32, n *node) {
	n.generation++
	n.next = w.free
	w.free = i
	w.count--
}

func (w *Wheel) node(i int32) *node { return &w.chunks[i>>chunkBits][i&(chunkNodes-1)] }

// relative is a time as milliseconds since base. Where the difference overflows, some
// 292 million years off, it is as far as an int64 goes.
func (w *Wheel) relative(ms int64) int64 {
	d := ms - w.base
	switch {
	case ms > w.base && d < 0:
		return math.MaxInt64
	case ms < w.base && d > 0:
		return math.MinInt64
	}
	return d
}
