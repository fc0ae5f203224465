package ready_test

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/ax-scheduler/ax/internal/job"
	"github.com/ax-scheduler/ax/internal/ready"
)

// limited is a batch of one execution of a job that is under limits.
func limited(ns, app int64, handler string, due int64, limits ...string) *ready.Batch {
	id := ns*100 + app
	for _, name := range append([]string{handler}, limits...) {
		for _, c := range name {
			id = id*31 + int64(c) // what differs is of different jobs
		}
	}
	b := newBatch(fmt.Sprintf("b%d", due), ns, id, due, job.OverlapAllow, 0)
	d := *b.Def
	d.Handler, d.Limits = handler, limits
	b.Def, b.NS, b.AppID, b.Bucket = &d, ns, app, int(ns)
	return b
}

// world is what a test believes of a Ready.
type world struct {
	r       *ready.Ready
	limits  map[int][]ready.Limit // by bucket
	waiting []*ready.Execution    // oldest first
	running []*ready.Execution
	now     int64
}

func (w *world) under(e *ready.Execution) (out []ready.Limit) {
	for _, list := range w.limits {
		for _, l := range list {
			if l.AppID != 0 && l.AppID == e.Batch.AppID && (l.Handler == "" || l.Handler == e.Batch.Def.Handler) {
				out = append(out, l)
			}
			name := l.Name
			if l.NS == 0 {
				name = job.SharedLimit + name
			}
			if l.AppID == 0 && (l.NS == 0 || l.NS == e.Batch.NS) && slices.Contains(e.Batch.Def.Limits, name) {
				out = append(out, l)
			}
		}
	}
	return out
}

func (w *world) count(l ready.Limit) int {
	n := 0
	for _, e := range w.running {
		if slices.Contains(w.under(e), l) {
			n++
		}
	}
	return n
}

// take lets start what may, and checks each start.
func (w *world) take(t require.TestingT) (started []*ready.Execution) {
	w.r.Due(w.now)
	var kept []string
	w.r.Take(w.now, 1000, func(e *ready.Execution, limit string) ready.Placement {
		if limit != "" {
			kept = append(kept, limit)
			e.Waits, e.WaitsDetail = ready.ReasonLimit, limit
			return ready.Blocked
		}
		w.running = append(w.running, e)
		w.waiting = slices.DeleteFunc(w.waiting, func(o *ready.Execution) bool { return o.ID == e.ID })
		for _, l := range w.under(e) {
			require.LessOrEqual(t, w.count(l), l.Max, "limit %s", l.Name)
			// First come, first served: who has waited longer under the same limit waits for another one too.
			for _, o := range w.waiting {
				if o.Batch.NS == e.Batch.NS && o.Batch.DueAt < e.Batch.DueAt && slices.Contains(w.under(o), l) {
					full := slices.ContainsFunc(w.under(o), func(other ready.Limit) bool { return other != l && w.count(other) >= other.Max || other.NS == 0 })
					require.True(t, full, "%d started before %d, which waits for %s too", e.ID, o.ID, l.Name)
				}
			}
		}
		started = append(started, e)
		return ready.Taken
	})
	return started
}

func (w *world) end(e *ready.Execution) {
	w.running = slices.DeleteFunc(w.running, func(o *ready.Execution) bool { return o == e })
	w.r.Discharge(e.ID)
	w.r.Ended(e.Batch.JobID, e.Batch.ID, w.now)
}

// A9, A18: whatever comes, ends, is edited or restarted in whatever order, no limit has more than it may, who came
// first goes first, and everything runs in the end, also what needs several limits at once.
func TestLimitsHoldWhateverHappens(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		w := &world{now: start, limits: map[int][]ready.Limit{}}
		w.limits[-1] = []ready.Limit{{Name: "shared", Max: rapid.IntRange(1, 3).Draw(t, "shared")}}
		for ns := int64(1); ns <= 2; ns++ {
			w.limits[int(ns)] = []ready.Limit{
				{NS: ns, Name: "a", Max: rapid.IntRange(1, 3).Draw(t, "a")},
				{NS: ns, Name: "b", Max: rapid.IntRange(1, 2).Draw(t, "b")},
				{NS: ns, Name: "app", AppID: ns * 10, Max: rapid.IntRange(1, 5).Draw(t, "app")},
				{NS: ns, Name: "handler", AppID: ns * 10, Handler: "x", Max: rapid.IntRange(1, 2).Draw(t, "handler")},
			}
		}
		boot := func() {
			w.r = ready.New(time.UnixMilli(w.now))
			for bucket, list := range w.limits {
				w.r.SetLimits(bucket, list, w.now, true)
			}
			for _, e := range w.running {
				w.r.Active(e.Batch.Active())
				w.r.Charge(e.Batch, e.ID)
			}
			w.r.Add(w.waiting...)
		}
		boot()
		id := int64(0)
		for range rapid.IntRange(1, 60).Draw(t, "steps") {
			w.now += 7
			switch rapid.SampledFrom([]string{"come", "come", "come", "end", "end", "restart", "drop"}).Draw(t, "step") {
			case "come":
				id++
				ns := rapid.Int64Range(1, 2).Draw(t, "ns")
				names := rapid.SliceOfDistinct(rapid.SampledFrom([]string{"a", "b", job.SharedLimit + "shared"}), func(s string) string { return s }).Draw(t, "names")
				e := &ready.Execution{Batch: limited(ns, ns*10, rapid.SampledFrom([]string{"x", "y"}).Draw(t, "handler"), w.now, names...), ID: id, NotBefore: w.now}
				w.waiting = append(w.waiting, e)
				w.r.Add(e)
			case "end":
				if len(w.running) > 0 {
					w.end(rapid.SampledFrom(w.running).Draw(t, "ended"))
				}
			case "restart":
				for _, e := range slices.Concat(w.waiting, w.running) {
					e.Batch.Admitted = slices.Contains(w.running, e)
				}
				boot()
			case "drop":
				// The bucket goes to another replica and comes back.
				ns := rapid.IntRange(1, 2).Draw(t, "bucket")
				w.r.Drop(ns)
				for _, e := range w.running {
					if e.Batch.Bucket == ns {
						w.r.Active(e.Batch.Active())
						w.r.Charge(e.Batch, e.ID)
					}
				}
				for _, e := range w.waiting {
					if e.Batch.Bucket == ns {
						e.Batch.Admitted = false
						w.r.Add(e)
					}
				}
			}
			w.take(t)
		}
		for len(w.waiting) > 0 {
			require.NotEmpty(t, w.running, "%d wait and nothing runs", len(w.waiting))
			w.end(w.running[0])
			w.now++
			w.take(t)
		}
		for _, e := range slices.Clone(w.running) {
			w.end(e)
		}
		for bucket, list := range w.limits {
			for _, l := range list {
				require.Equal(t, ready.Use{}, w.r.LimitUse(l.NS, l.Name), "bucket %d limit %s", bucket, l.Name)
			}
		}
	})
}

// What needs two limits at once is not passed by for ever by those that need one of them.
func TestWhoNeedsTwoLimitsGetsBoth(t *testing.T) {
	w := &world{now: start, limits: map[int][]ready.Limit{1: {{NS: 1, Name: "a", Max: 1}, {NS: 1, Name: "b", Max: 1}}}, r: ready.New(time.UnixMilli(start))}
	w.r.SetLimits(1, w.limits[1], start, true)
	id := int64(0)
	come := func(limits ...string) *ready.Execution {
		id++
		w.now++
		e := &ready.Execution{Batch: limited(1, id, "work", w.now, limits...), ID: id, NotBefore: w.now}
		w.waiting = append(w.waiting, e)
		w.r.Add(e)
		return e
	}
	come("a")
	come("b")
	w.take(t)
	both := come("a", "b")
	began := w.now
	for range 1000 {
		// One of the two ends, and another of its kind is there already.
		ended := w.running[0]
		come(ended.Batch.Def.Limits...)
		w.now += 500
		w.end(ended)
		w.take(t)
		if slices.Contains(w.running, both) {
			break
		}
	}
	require.Contains(t, w.running, both)
	require.Less(t, w.now-began, int64(62_000))
}

// A limit that is full holds up nobody who is under another one only.
func TestAFullLimitLeavesTheOthersInUse(t *testing.T) {
	w := &world{now: start, limits: map[int][]ready.Limit{1: {{NS: 1, Name: "app", AppID: 10, Max: 4}, {NS: 1, Name: "mail", AppID: 10, Handler: "mail", Max: 1}}}, r: ready.New(time.UnixMilli(start))}
	w.r.SetLimits(1, w.limits[1], start, true)
	for i := range int64(8) {
		handler := "mail"
		if i >= 4 {
			handler = "work"
		}
		e := &ready.Execution{Batch: limited(1, 10, handler, start+i, []string{}...), ID: i + 1, NotBefore: start}
		w.waiting = append(w.waiting, e)
		w.r.Add(e)
	}
	require.Len(t, w.take(t), 4)
	handlers := map[string]int{}
	for _, e := range w.running {
		handlers[e.Batch.Def.Handler]++
	}
	require.Equal(t, map[string]int{"mail": 1, "work": 3}, handlers)
}

// M7: ten namespaces share a limit, one floods it; the others wait for at most one turn of each.
func TestASharedLimitIsFairBetweenNamespaces(t *testing.T) {
	w := &world{now: start, limits: map[int][]ready.Limit{-1: {{Name: "db", Max: 2}}}, r: ready.New(time.UnixMilli(start))}
	w.r.SetLimits(-1, w.limits[-1], start, true)
	id := int64(0)
	come := func(ns int64) *ready.Execution {
		id++
		w.now++
		e := &ready.Execution{Batch: limited(ns, ns, "work", w.now, job.SharedLimit+"db"), ID: id, NotBefore: w.now}
		w.waiting = append(w.waiting, e)
		w.r.Add(e)
		return e
	}
	for range 1000 {
		come(1)
	}
	require.Len(t, w.take(t), 2)
	for round := range 20 {
		late := map[int64]bool{}
		for ns := int64(2); ns <= 10; ns++ {
			late[come(ns).ID] = true
		}
		w.take(t)
		// Each end lets one start: after ten of them every namespace has had its turn.
		for range 10 {
			w.now++
			for range 9 {
				require.Empty(t, w.take(t)) // somebody looks for other reasons, always just as often
			}
			w.end(w.running[0])
			for _, e := range w.take(t) {
				delete(late, e.ID)
			}
		}
		require.Empty(t, late, "round %d", round)
	}
	// Alone again, the one that floods has all of it.
	for range 50 {
		w.now++
		w.end(w.running[0])
		require.Len(t, w.take(t), 1)
	}
}

// A rate lets start one after the other, says when the next may, and begins with a pause where nobody knows of the last.
func TestARateSpacesStarts(t *testing.T) {
	r := ready.New(time.UnixMilli(start))
	limits := []ready.Limit{{NS: 1, Name: "mail", Rate: 4}}
	r.SetLimits(1, limits, start, false)
	for i := range int64(9) {
		r.Add(&ready.Execution{Batch: limited(1, 1, "work", start+i, "mail"), ID: i + 1, NotBefore: start})
	}
	var starts []int64
	now := start
	take := func() {
		r.Due(now)
		r.Take(now, 100, func(_ *ready.Execution, limit string) ready.Placement {
			if limit != "" {
				return ready.Blocked
			}
			starts = append(starts, now)
			return ready.Taken
		})
	}
	for range 1000 {
		take()
		next, ok := r.Next()
		if !ok || len(starts) == 6 {
			break
		}
		require.Greater(t, next, now)
		now = next
	}
	require.Len(t, starts, 6)
	for i, at := range starts[1:] {
		require.GreaterOrEqual(t, at-starts[i], int64(250))
		require.LessOrEqual(t, at-starts[i], int64(260), "no longer than the rate says")
	}
	last := starts[len(starts)-1]
	// Another replica takes over at once: it must not start one more in the same quarter.
	r.SetLimits(1, limits, now, true)
	take()
	require.Len(t, starts, 6)
	for len(starts) < 7 {
		next, ok := r.Next()
		require.True(t, ok)
		now = next
		take()
	}
	require.GreaterOrEqual(t, starts[6]-last, int64(250))
}

// What waits says for what, and how many are before it.
func TestWhatWaitsHasAPlace(t *testing.T) {
	w := &world{now: start, limits: map[int][]ready.Limit{1: {{NS: 1, Name: "db", Max: 1}}}, r: ready.New(time.UnixMilli(start))}
	w.r.SetLimits(1, w.limits[1], start, false)
	var ids []string
	for i := range int64(4) {
		w.now++
		b := limited(1, 1+i%2, "work", w.now, "db")
		ids = append(ids, b.ID)
		e := &ready.Execution{Batch: b, ID: i + 1, NotBefore: w.now}
		w.waiting = append(w.waiting, e)
		w.r.Add(e)
	}
	require.Len(t, w.take(t), 1)
	_, waits := w.r.Waits(0, ids[0], w.now)
	require.False(t, waits, "it runs")
	for i, id := range ids[1:] {
		p, waits := w.r.Waits(0, id, w.now)
		require.True(t, waits)
		require.Equal(t, ready.Place{Position: i + 1, Of: 3, Reason: ready.ReasonLimit, Detail: "db", Since: p.Since}, p)
	}
	require.Equal(t, ready.Use{Running: 1, Waiting: 3}, w.r.LimitUse(1, "db"))
	// A limit that is raised, or gone, lets the next start at once.
	w.limits[1][0].Max = 2
	w.r.SetLimits(1, w.limits[1], w.now, false)
	require.Len(t, w.take(t), 1)
	w.limits[1] = nil
	w.r.SetLimits(1, nil, w.now, false)
	require.Len(t, w.take(t), 2)

	s := ready.New(time.UnixMilli(start))
	for i := range 3 {
		s.Add(&ready.Execution{Batch: newBatch(fmt.Sprintf("q%d", i), 7, 1, start, job.OverlapQueueAll, 1), ID: int64(i + 1), NotBefore: start})
	}
	s.Due(start)
	p, waits := s.Waits(1, "q2", start)
	require.True(t, waits)
	require.Equal(t, ready.Place{Position: 2, Of: 2, Reason: ready.ReasonOverlap, Since: start}, p)
}
