package ready_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/ax-scheduler/ax/internal/job"
	"github.com/ax-scheduler/ax/internal/ready"
)

const start = int64(1_796_000_000_000)

func newBatch(id string, ns, jobID, due int64, policy string, most int) *ready.Batch {
	return &ready.Batch{ID: id, Bucket: int(ns), NS: ns, JobID: jobID, AppID: jobID, DueAt: due, Def: &job.Definition{Concurrency: job.Concurrency{Policy: policy, Max: most}}, Total: 1}
}

// Whatever comes in whatever order: nothing is offered before its time, nothing twice, nothing is
// lost, and no job has more active batches than its limit.
func TestNothingIsLostAndNothingIsEarly(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		now := start
		r := ready.New(time.UnixMilli(now))
		policies := map[int64]string{}
		limits := map[int64]int{}
		for j := range int64(4) {
			policies[j] = rapid.SampledFrom([]string{job.OverlapSkip, job.OverlapQueueOne, job.OverlapQueueAll, job.OverlapCover, job.OverlapAllow}).Draw(t, "policy")
			limits[j] = rapid.IntRange(1, 3).Draw(t, "max")
			if policies[j] == job.OverlapAllow {
				limits[j] = rapid.IntRange(0, 2).Draw(t, "max")
			}
		}
		var id int64
		added, taken, skipped := map[int64]*ready.Execution{}, map[int64]bool{}, map[int64]bool{}
		open := map[int64]map[string]int{} // job → active batch → executions taken
		totals := map[string]int{}
		active := func(e *ready.Execution) {
			j := e.Batch.JobID
			if open[j] == nil {
				open[j] = map[string]int{}
			}
			open[j][e.Batch.ID]++
			if limit := limits[j]; limit > 0 {
				require.LessOrEqual(t, len(open[j]), limit, "job %d, policy %s", j, policies[j])
			}
		}
		due := func() {
			for _, s := range r.Due(now).Skips {
				require.NotEmpty(t, s.Reason)
				for _, e := range s.Executions {
					require.False(t, taken[e.ID] || skipped[e.ID], "decided twice")
					require.LessOrEqual(t, e.NotBefore, now)
					skipped[e.ID] = true
				}
			}
		}
		take := func(blocked func(*ready.Execution) bool, limit int) int {
			var got []*ready.Execution
			n := r.Take(now, limit, func(e *ready.Execution, _ string) ready.Placement {
				if blocked(e) {
					return ready.Blocked
				}
				got = append(got, e)
				return ready.Taken
			})
			require.Len(t, got, n)
			require.LessOrEqual(t, n, limit)
			for _, e := range got {
				require.LessOrEqual(t, e.NotBefore, now, "early")
				require.False(t, taken[e.ID] || skipped[e.ID], "offered twice")
				taken[e.ID] = true
				active(e)
			}
			return n
		}
		// A batch ends when all its shards have been taken.
		end := func(j int64) bool {
			for b, n := range open[j] {
				if n == totals[b] {
					delete(open[j], b)
					r.Ended(j, b, now)
					return true
				}
			}
			return false
		}
		never := func(*ready.Execution) bool { return false }
		for range rapid.IntRange(1, 80).Draw(t, "steps") {
			switch rapid.IntRange(0, 5).Draw(t, "what") {
			case 0, 1:
				j := rapid.Int64Range(0, 3).Draw(t, "job")
				at := now + rapid.Int64Range(-2000, 90_000).Draw(t, "in")
				b := newBatch(fmt.Sprintf("%d-%d", j, id), j%2, j, at, policies[j], limits[j])
				b.Priority = rapid.IntRange(0, 5).Draw(t, "priority")
				b.Total = rapid.IntRange(1, 3).Draw(t, "shards")
				totals[b.ID] = b.Total
				var list []*ready.Execution
				for shard := range b.Total {
					id++
					e := &ready.Execution{Batch: b, ID: id, Shard: shard, Attempt: 1, NotBefore: at}
					added[id] = e
					list = append(list, e)
				}
				r.Add(list...)
			case 2:
				now += rapid.Int64Range(0, 30_000).Draw(t, "later")
				due()
			case 3:
				stubborn := rapid.Int64Range(0, 3).Draw(t, "blocked")
				take(func(e *ready.Execution) bool { return e.Batch.JobID == stubborn }, rapid.IntRange(1, 5).Draw(t, "limit"))
			case 4:
				end(rapid.Int64Range(0, 3).Draw(t, "job"))
			case 5:
				// Next says when there is something to do: not after it, in any case.
				if next, ok := r.Next(); ok {
					for _, e := range added {
						if !taken[e.ID] && !skipped[e.ID] && e.NotBefore > now {
							require.LessOrEqual(t, next, e.NotBefore)
						}
					}
				}
			}
		}
		// In the end everything has its fate.
		now += 200_000
		for range 1000 {
			due()
			n := take(never, 100)
			ended := false
			for j := range int64(4) {
				ended = end(j) || ended
			}
			if n == 0 && !ended {
				break
			}
		}
		require.Zero(t, r.Len())
		for _, e := range added {
			require.True(t, taken[e.ID] != skipped[e.ID], "execution %d of %s (%s): taken %v, skipped %v", e.ID, e.Batch.ID, policies[e.Batch.JobID], taken[e.ID], skipped[e.ID])
		}
	})
}

func TestTenantsTakeTurns(t *testing.T) {
	r := ready.New(time.UnixMilli(start))
	for i := range 1000 {
		r.Add(&ready.Execution{Batch: newBatch(fmt.Sprint("a", i), 1, 1, start, job.OverlapAllow, 0), ID: int64(i), NotBefore: start})
	}
	for i := range 3 {
		r.Add(&ready.Execution{Batch: newBatch(fmt.Sprint("b", i), 2, 2, start, job.OverlapAllow, 0), ID: int64(5000 + i), NotBefore: start})
	}
	r.Due(start)
	require.Equal(t, 1000, r.Waiting(1))
	require.Equal(t, 3, r.Waiting(2))
	counts := map[int64]int{}
	require.Equal(t, 6, r.Take(start, 6, func(e *ready.Execution, _ string) ready.Placement {
		counts[e.Batch.NS]++
		return ready.Taken
	}))
	require.Equal(t, map[int64]int{1: 3, 2: 3}, counts, "the flood of one does not hold up the other")
}

func TestABlockedAppHoldsUpNobodyElse(t *testing.T) {
	r := ready.New(time.UnixMilli(start))
	r.Add(&ready.Execution{Batch: newBatch("a", 1, 1, start, job.OverlapAllow, 0), ID: 1, NotBefore: start})
	r.Add(&ready.Execution{Batch: newBatch("b", 1, 2, start, job.OverlapAllow, 0), ID: 2, NotBefore: start})
	r.Due(start)
	place := func(e *ready.Execution, _ string) ready.Placement {
		if e.ID == 1 {
			return ready.Blocked
		}
		return ready.Taken
	}
	require.Equal(t, 1, r.Take(start, 10, place))
	require.Equal(t, 1, r.Len())
}

func TestDropForgetsOneBucket(t *testing.T) {
	r := ready.New(time.UnixMilli(start))
	var id int64
	for ns := range int64(2) {
		for _, at := range []int64{start, start + 1000} {
			for _, policy := range []string{job.OverlapSkip, job.OverlapQueueAll} {
				id++
				r.Add(&ready.Execution{Batch: newBatch(fmt.Sprint(id), ns, ns*10+int64(len(policy)), at, policy, 1), ID: id, NotBefore: at})
			}
		}
	}
	r.Active(ready.Active{BatchID: "x", Bucket: 0, JobID: 77})
	r.Due(start)
	r.Drop(0)
	r.Due(start + 1000)
	seen := map[int64]bool{}
	r.Take(start+1000, 100, func(e *ready.Execution, _ string) ready.Placement {
		require.EqualValues(t, 1, e.Batch.NS)
		seen[e.ID] = true
		return ready.Taken
	})
	require.Len(t, seen, 2, "the other bucket's first of each job; the second ones wait or were skipped")
	// The dropped bucket's jobs begin anew.
	r.Add(&ready.Execution{Batch: newBatch("again", 0, 77, start, job.OverlapSkip, 1), ID: 99, NotBefore: start})
	require.Empty(t, r.Due(start+2000).Skips)
}

func TestStops(t *testing.T) {
	r := ready.New(time.UnixMilli(start))
	r.AskStop()
	select {
	case <-r.Wake():
		t.Fatal("nothing was asked")
	default:
	}
	r.AskStop(ready.Stop{ExecutionID: 1}, ready.Stop{ExecutionID: 2})
	<-r.Wake()
	require.Len(t, r.Stops(), 2)
	require.Empty(t, r.Stops())
}

// A new owner finds a batch open that the former one had sent, and its result is there before its turn
// comes: it must not count as active for ever.
func TestWhatHasEndedIsNotLetInAgain(t *testing.T) {
	r := ready.New(time.UnixMilli(start))
	b := newBatch("b", 1, 10, start, job.OverlapSkip, 1)
	b.Admitted = true
	r.Active(ready.Active{BatchID: "b", Bucket: 1, NS: 1, JobID: 10})
	r.Add(&ready.Execution{Batch: b, ID: 1, NotBefore: start})
	r.Ended(10, "b", start)
	require.Empty(t, r.Due(start).Skips)
	require.Zero(t, r.Len())
	r.Add(&ready.Execution{Batch: newBatch("next", 1, 10, start+1000, job.OverlapSkip, 1), ID: 2, NotBefore: start + 1000})
	require.Empty(t, r.Due(start+1000).Skips, "nothing runs, so the next firing does")
	require.Equal(t, 1, r.Len())
}

// B5, F13: after the clock went back nothing goes before its time, and nothing is lost.
func TestNothingIsEarlyAfterTheClockWentBack(t *testing.T) {
	const back = int64(2 * 3600_000)
	r := ready.New(time.UnixMilli(start))
	r.Due(start + 1000)
	now := start - back
	e := &ready.Execution{Batch: newBatch("after", 1, 1, now+5000, job.OverlapAllow, 0), ID: 1, Attempt: 1, NotBefore: now + 5000}
	r.Add(e)
	taken := 0
	take := func(now int64) {
		r.Due(now)
		r.Take(now, 10, func(e *ready.Execution, _ string) ready.Placement {
			require.LessOrEqual(t, e.NotBefore, now)
			taken++
			return ready.Taken
		})
	}
	take(now)
	take(now + 4999)
	require.Zero(t, taken)
	next, ok := r.Next()
	require.True(t, ok)
	require.Equal(t, now+5000, next, "it does not spin meanwhile")
	take(now + 5000)
	require.Equal(t, 1, taken)
}
