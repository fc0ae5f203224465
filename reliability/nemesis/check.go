// Package nemesis holds the checker of the fault runs: what executors wrote into ledgers of their own, what the API
// answered, and what lies in the tables in the end, against the invariants of docs/reliability.md. It asks nothing of the
// scheduler's code and knows nothing of the faults. The runs themselves are this package's tests (make nemesis).
package nemesis

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"sort"
)

// Line is one line of an executor's ledger, on disk before the work goes on.
type Line struct {
	What      string `json:"what"` // start or end
	Executor  string `json:"executor"`
	Namespace string `json:"namespace"`
	Job       int64  `json:"job,string"`
	Batch     string `json:"batch"`
	Shard     int    `json:"shard"`
	Attempt   int    `json:"attempt"`
	Execution int64  `json:"execution,string"`
	Epoch     int64  `json:"epoch"`
	Due       int64  `json:"due"`
	At        int64  `json:"at"` // host time, milliseconds
	State     string `json:"state,omitempty"`
}

// Read reads a ledger.
func Read(r io.Reader) ([]Line, error) {
	var out []Line
	scan := bufio.NewScanner(r)
	for scan.Scan() {
		var l Line
		if err := json.Unmarshal(scan.Bytes(), &l); err != nil {
			return nil, fmt.Errorf("ledger line %d: %w", len(out)+1, err)
		}
		out = append(out, l)
	}
	return out, scan.Err()
}

// Row is one execution as the tables have it.
type Row struct {
	ID      int64
	Bucket  int
	Job     int64
	Batch   string
	Shard   int
	Attempt int
	Status  string
}

// Firing is one batch as the tables have it.
type Firing struct {
	ID    string
	Job   int64
	State string
}

// Answered is something that the API said it did.
type Answered struct {
	RequestID string
	Batch     string
	Key       string // its idempotency key, "" = none
}

// Evidence is all that a run left behind.
type Evidence struct {
	Ledger   []Line
	Rows     []Row
	Firings  []Firing
	Answered []Answered
	// Audited counts the audit entries by request id.
	Audited map[string]int
	// Owners are the jobs of each namespace.
	Owners map[string][]int64
	// Planned is what the comparison of the plan with the tables found wrong, by kind.
	Planned map[string]int64
}

// Violation is an invariant that does not hold.
type Violation struct {
	Invariant string `json:"invariant"`
	Text      string `json:"text"`
}

// grace is how long a request that was in hand may still arrive after its bucket has gone elsewhere, milliseconds.
const grace = 1000

// overlap is how far apart the clock readings of two executors may be, milliseconds: they are on one host.
const overlap = 5

type try struct {
	batch          string
	shard, attempt int
}

// Check states which invariants do not hold, with the evidence. No answer means that all do.
func Check(e Evidence) []Violation {
	var out []Violation
	say := func(invariant, format string, args ...any) {
		const most = 200
		if len(out) < most {
			out = append(out, Violation{invariant, fmt.Sprintf(format, args...)})
		}
	}
	// I1: every planned firing has one fate, and what is said to have run ran.
	for kind, n := range e.Planned {
		say("I1", "%s: %d", kind, n)
	}
	starts := map[try][]Line{}
	ends := map[try]Line{}
	for _, l := range e.Ledger {
		k := try{l.Batch, l.Shard, l.Attempt}
		if l.What == "start" {
			starts[k] = append(starts[k], l)
		} else {
			ends[k] = l
		}
	}
	rows := map[try]Row{}
	for _, r := range e.Rows {
		k := try{r.Batch, r.Shard, r.Attempt}
		rows[k] = r
		ran := r.Status == "SUCCEEDED" || r.Status == "FAILED"
		if ran && len(starts[k]) == 0 {
			say("I1", "%s shard %d attempt %d is %s and was started nowhere", r.Batch, r.Shard, r.Attempt, r.Status)
		}
		// I3: what an executor said first of an attempt is what it ended as.
		if end, ok := ends[k]; ok && ran && end.State != r.Status {
			say("I3", "%s shard %d attempt %d ended %s at its executor and is %s", r.Batch, r.Shard, r.Attempt, end.State, r.Status)
		}
	}
	// I2: one start of an attempt, and no two attempts of a shard at once.
	shards := map[try][]Line{}
	for k, list := range starts {
		if len(list) > 1 {
			say("I2", "%s shard %d attempt %d was started %d times, on %s and %s", k.batch, k.shard, k.attempt, len(list), list[0].Executor, list[1].Executor)
		}
		if _, ok := rows[k]; !ok {
			say("I1", "%s shard %d attempt %d was started and has no row", k.batch, k.shard, k.attempt)
		}
		shards[try{k.batch, k.shard, 0}] = append(shards[try{k.batch, k.shard, 0}], list...)
	}
	for _, list := range shards {
		sort.Slice(list, func(i, j int) bool { return list[i].At < list[j].At })
		for i := 1; i < len(list); i++ {
			a, b := list[i-1], list[i]
			if end, ok := ends[try{a.Batch, a.Shard, a.Attempt}]; a.Attempt != b.Attempt && (!ok || end.At > b.At+overlap) {
				say("I2", "attempts %d and %d of %s shard %d overlapped", a.Attempt, b.Attempt, a.Batch, a.Shard)
			}
		}
	}
	out = append(out, oneOwner(e)...)
	// I4, I5: what was answered is there, once, and so is its audit entry.
	there := map[string]bool{}
	for _, f := range e.Firings {
		there[f.ID] = true
	}
	keys := map[string]string{}
	for _, a := range e.Answered {
		if a.Batch != "" && !there[a.Batch] {
			say("I5", "%s was answered with success and is not there", a.Batch)
		}
		if first, ok := keys[a.Key]; ok && a.Key != "" && first != a.Batch {
			say("I5", "key %s made %s and %s", a.Key, first, a.Batch)
		}
		keys[a.Key] = a.Batch
		if n := e.Audited[a.RequestID]; a.RequestID != "" && a.Key == "" && n != 1 {
			say("I4", "request %s has %d audit entries", a.RequestID, n)
		}
	}
	// I7: nobody runs what is another namespace's.
	for _, l := range e.Ledger {
		if jobs, ok := e.Owners[l.Namespace]; ok && !slices.Contains(jobs, l.Job) {
			say("I7", "%s of job %d ran on an executor of %s", l.Batch, l.Job, l.Namespace)
		}
	}
	return out
}

// oneOwner looks at the order in which the epochs of a bucket started work: once a new owner has, the old one must
// not, but for what was in hand (I3: one owner by the fence).
func oneOwner(e Evidence) (out []Violation) {
	buckets := map[int64]int{}
	for _, r := range e.Rows {
		buckets[r.ID] = r.Bucket
	}
	perBucket := map[int][]Line{}
	for _, l := range e.Ledger {
		if b, ok := buckets[l.Execution]; ok && l.What == "start" {
			perBucket[b] = append(perBucket[b], l)
		}
	}
	for bucket, list := range perBucket {
		sort.Slice(list, func(i, j int) bool { return list[i].At < list[j].At })
		since := map[int64]int64{} // epoch → its first start
		top := int64(0)
		old := 0
		for _, l := range list {
			if _, ok := since[l.Epoch]; !ok {
				since[l.Epoch] = l.At
			}
			if l.Epoch > top {
				top = l.Epoch
			}
			if l.Epoch < top && l.At > since[top]+grace {
				old++
			}
		}
		if old > 0 {
			out = append(out, Violation{"I3", fmt.Sprintf("bucket %d: %d starts by an owner whose epoch was over for more than a second", bucket, old)})
		}
	}
	return out
}
