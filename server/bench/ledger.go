package bench

import (
	"bufio"
	"fmt"
	"io"
	"strconv"
	"strings"
)

// start is one start of a handler, as the executor that started it wrote it down.
type start struct {
	BatchID string
	Shard   int
	DueAt   int64 // planned instant, milliseconds
	At      int64 // arrival of the request, microseconds
}

func (s start) append(b []byte) []byte {
	b = append(b, s.BatchID...)
	for _, n := range [...]int64{int64(s.Shard), s.DueAt, s.At} {
		b = append(b, ' ')
		b = strconv.AppendInt(b, n, 10)
	}
	return append(b, '\n')
}

func readLedger(r io.Reader) ([]start, error) {
	var out []start
	lines := bufio.NewScanner(r)
	for lines.Scan() {
		var s start
		fields := strings.Fields(lines.Text())
		if len(fields) != 4 {
			return nil, fmt.Errorf("ledger line %q", lines.Text())
		}
		var errs [3]error
		s.BatchID = fields[0]
		s.Shard, errs[0] = strconv.Atoi(fields[1])
		s.DueAt, errs[1] = strconv.ParseInt(fields[2], 10, 64)
		s.At, errs[2] = strconv.ParseInt(fields[3], 10, 64)
		for _, err := range errs {
			if err != nil {
				return nil, fmt.Errorf("ledger line %q: %w", lines.Text(), err)
			}
		}
		out = append(out, s)
	}
	return out, lines.Err()
}

// earlyBy is how far before its planned instant an arrival is called early: below it two clocks
// of one host can not be told apart.
const earlyBy = 1000

// tally compares ledgers with the plan: batch → planned instant in milliseconds.
type tally struct {
	lost, doubled, early int
	errors               []int64 // microseconds, of the first start of each planned batch
	first, last          int64   // planned instant and arrival, microseconds
}

func compare(plan map[string]int64, ledger []start) tally {
	var t tally
	arrived := make(map[string]int64, len(plan))
	again := map[string]bool{}
	for _, s := range ledger {
		if _, planned := plan[s.BatchID]; !planned {
			continue
		}
		was, twice := arrived[s.BatchID]
		if !twice || s.At < was {
			arrived[s.BatchID] = s.At
		}
		if twice {
			again[s.BatchID] = true
		}
	}
	t.doubled = len(again)
	for id, due := range plan {
		if t.first == 0 || due*1000 < t.first {
			t.first = due * 1000
		}
		at, ok := arrived[id]
		if !ok {
			t.lost++
			continue
		}
		off := at - due*1000
		if off <= -earlyBy {
			t.early++
		}
		t.errors = append(t.errors, off)
		t.last = max(t.last, at)
	}
	return t
}

// into writes what was counted.
func (t tally) into(r *Report) {
	r.Lost, r.Doubled, r.Early = new(t.lost), new(t.doubled), new(t.early)
	r.ErrorMs = spans(t.errors)
	if n := len(t.errors); n > 0 && t.last > t.first {
		r.TriggersPerSecond = new(float64(n) * 1e6 / float64(t.last-t.first))
	}
}
