package quota

// Pace hands out start times so that not more than so many begin in a second: time is cut into
// cells as long as one start is worth, and a cell is given away once. A nil Pace has no limit.
// Times are in milliseconds. It is not safe for concurrent use.
type Pace struct {
	cell   int64           // microseconds
	next   map[int64]int64 // a taken cell → a later one that may be free
	pruned int
	// The last starts that really were, as many as a span may have.
	started []int64
	oldest  int
	span    int64 // milliseconds
}

// pruneAt is the size at which cells that have passed are looked for the first time.
const pruneAt = 1024

// NewPace makes a Pace of perSecond starts a second; nil for 0, which is no limit.
func NewPace(perSecond float64) *Pace {
	if perSecond <= 0 {
		return nil
	}
	p := &Pace{cell: max(int64(1e6/perSecond), 1), next: map[int64]int64{}, pruned: pruneAt, started: make([]int64, max(int(perSecond), 1)), span: 1000}
	p.span = max(p.span, p.cell/1000)
	return p
}

// free is the first free cell from c on. What it passed is shortened, so that the next search is quick.
func (p *Pace) free(c int64) int64 {
	end := c
	for {
		n, taken := p.next[end]
		if !taken {
			break
		}
		end = n
	}
	for c != end {
		c, p.next[c] = p.next[c], end
	}
	return end
}

// Free is the first moment from at on that is not given away.
func (p *Pace) Free(at int64) int64 {
	if p == nil {
		return at
	}
	c := at * 1000 / p.cell
	if f := p.free(c); f != c {
		return (f*p.cell + 999) / 1000 // never before the cell begins
	}
	return at
}

// Take gives at away; when it is gone already, what is free next.
func (p *Pace) Take(at int64) {
	if p == nil {
		return
	}
	c := p.free(at * 1000 / p.cell)
	p.next[c] = c + 1
}

// May tells whether one more start at now is within the rate, by the starts that really were: what got
// its time and could not use it must not come on top of those whose time it is. Starts that lie further ahead
// than a span are of before the clock went back: they say nothing of now.
func (p *Pace) May(now int64) bool {
	if p == nil {
		return true
	}
	since := now - p.started[p.oldest]
	return since >= p.span || since < -p.span
}

// Started notes a start.
func (p *Pace) Started(now int64) {
	if p == nil {
		return
	}
	p.started[p.oldest] = now
	p.oldest = (p.oldest + 1) % len(p.started)
}

// Forget drops what has passed before at, now and then.
func (p *Pace) Forget(at int64) {
	if p == nil || len(p.next) < p.pruned {
		return
	}
	c := at * 1000 / p.cell
	for k := range p.next {
		if k < c {
			delete(p.next, k)
		}
	}
	p.pruned = max(2*len(p.next), pruneAt)
}

// Idle tells that nothing from at on is given away.
func (p *Pace) Idle(at int64) bool {
	if p == nil {
		return true
	}
	c := at * 1000 / p.cell
	for k := range p.next {
		if k >= c {
			return false
		}
	}
	return true
}

// Together is the first moment from at on that both have free.
func Together(at int64, a, b *Pace) int64 {
	for {
		next := b.Free(a.Free(at))
		if next == at {
			return at
		}
		at = next
	}
}
