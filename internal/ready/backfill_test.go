package ready_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/ax-scheduler/ax/internal/job"
	"github.com/ax-scheduler/ax/internal/ready"
	"github.com/ax-scheduler/ax/internal/schedule"
)

// fill makes n batches of a backfill, due at start, of which most may run at once, of a job with a limit.
func fill(jobID, id int64, n, most int, policy string, limit int, rate float64) []*ready.Execution {
	var out []*ready.Execution
	for i := range n {
		b := newBatch(fmt.Sprintf("%d-fill-%d-%d", jobID, id, i), 1, jobID, start, policy, limit)
		b.AppID, b.Kind, b.Backfill, b.MaxActive = 7, "backfill", id, most
		b.PlannedFor = start - int64(n-i)*1_000_000
		b.Def.Misfire = job.Misfire{Policy: job.MisfireSkip, Window: schedule.Duration(time.Minute), Rate: rate}
		out = append(out, &ready.Execution{Batch: b, ID: id*1000 + int64(i), Attempt: 1, NotBefore: start})
	}
	return out
}

func ids(list []*ready.Execution) []string {
	out := []string{}
	for _, e := range list {
		out = append(out, e.Batch.ID)
	}
	return out
}

func TestABackfillRunsOneAfterAnotherAndIsNeverSkippedOrMissed(t *testing.T) {
	for _, policy := range []string{job.OverlapSkip, job.OverlapQueueOne, job.OverlapQueueAll, job.OverlapCover} {
		t.Run(policy, func(t *testing.T) {
			r := ready.New(time.UnixMilli(start))
			r.Add(fill(1, 9, 5, 1, policy, 1, 1000)...)
			require.Equal(t, 5, r.Backfilling(1, 0))
			now := start
			for i := range 5 {
				now += time.Hour.Milliseconds() // far beyond the misfire window
				got, v := takeAll(r, now)
				require.Equal(t, []string{fmt.Sprintf("1-fill-9-%d", i)}, ids(got))
				require.Empty(t, v.Skips)
				require.Empty(t, v.Missed)
				require.Empty(t, v.Cover)
				require.Equal(t, 4-i, r.Backfilling(1, 9))
				got, _ = takeAll(r, now+1)
				require.Empty(t, got, "one at a time")
				r.Ended(1, fmt.Sprintf("1-fill-9-%d", i), now)
			}
			require.Empty(t, r.Backlog(fill(1, 9, 1, 1, policy, 1, 1)[0].Batch.Bucket), "it is no backlog of missed firings")
		})
	}
}

func TestABackfillsLimits(t *testing.T) {
	for name, c := range map[string]struct{ most, limit, want int }{
		"its own":             {3, 0, 3},
		"its own below limit": {2, 5, 2},
		"the job's":           {20, 4, 4},
		"none said is one":    {0, 0, 1},
		"more than there are": {20, 20, 8},
	} {
		t.Run(name, func(t *testing.T) {
			policy := job.OverlapSkip
			if c.limit == 0 {
				policy = job.OverlapAllow
			}
			r := ready.New(time.UnixMilli(start))
			r.Add(fill(1, 9, 8, c.most, policy, c.limit, 1000)...)
			var running []string
			for now := start; now < start+200; now++ {
				got, _ := takeAll(r, now)
				running = append(running, ids(got)...)
			}
			require.Len(t, running, c.want)
			if c.want < 8 {
				r.Ended(1, running[0], start+200)
				got, _ := takeAll(r, start+201)
				require.Len(t, got, 1, "the end of one lets in the next")
			}
		})
	}
}

// Two backfills of a job have their own limits, and together keep the job's.
func TestTwoBackfillsOfAJob(t *testing.T) {
	r := ready.New(time.UnixMilli(start))
	r.Add(fill(1, 8, 3, 1, job.OverlapSkip, 2, 1000)...)
	r.Add(fill(1, 9, 3, 1, job.OverlapSkip, 2, 1000)...)
	var got []string
	for now := start; now < start+100; now++ {
		more, _ := takeAll(r, now)
		got = append(got, ids(more)...)
	}
	require.ElementsMatch(t, []string{"1-fill-8-0", "1-fill-9-0"}, got)
}

func TestABackfillKeepsTheDrainRate(t *testing.T) {
	r := ready.New(time.UnixMilli(start))
	r.Add(fill(1, 9, 40, 20, job.OverlapAllow, 0, 4)...)
	var at []int64
	for now := start; len(at) < 40; {
		next, ok := r.Next()
		require.True(t, ok, "it says when the next may start")
		now = max(now+1, next)
		got, _ := takeAll(r, now)
		for _, e := range got {
			at = append(at, now)
			r.Ended(1, e.Batch.ID, now)
		}
	}
	for i := 4; i < len(at); i++ {
		require.GreaterOrEqual(t, at[i]-at[i-4], int64(1000), "never more than 4 in a second")
	}
	require.Less(t, at[39]-at[0], int64(11_000), "and not slower")
}

// What is on time does not lose its run to a backfill: it waits for the batch that runs and goes before the next.
func TestLiveFiringsGoBeforeABackfill(t *testing.T) {
	for _, policy := range []string{job.OverlapSkip, job.OverlapQueueOne, job.OverlapQueueAll, job.OverlapCover} {
		t.Run(policy, func(t *testing.T) {
			r := ready.New(time.UnixMilli(start))
			r.Add(fill(1, 9, 3, 1, policy, 1, 1000)...)
			got, _ := takeAll(r, start+1)
			require.Equal(t, []string{"1-fill-9-0"}, ids(got))
			onTime := live(1, start+10, policy)
			r.Add(onTime)
			got, v := takeAll(r, start+10)
			require.Empty(t, got)
			require.Empty(t, v.Skips)
			require.Empty(t, v.Cover, "a backfill is not stopped for it")
			r.Ended(1, "1-fill-9-0", start+20)
			got, _ = takeAll(r, start+20)
			require.Equal(t, []string{onTime.Batch.ID}, ids(got))
			r.Ended(1, onTime.Batch.ID, start+30)
			got, _ = takeAll(r, start+30)
			require.Equal(t, []string{"1-fill-9-1"}, ids(got))
		})
	}
	// Before its first batch too, and before a catch-up's.
	r := ready.New(time.UnixMilli(start))
	r.Add(fill(1, 9, 2, 1, job.OverlapSkip, 1, 1000)...)
	r.Add(late(1, 1, job.OverlapSkip, 1000)...)
	r.Add(live(1, start+1, job.OverlapSkip))
	got, _ := takeAll(r, start+1)
	require.Equal(t, []string{"1-live-" + fmt.Sprint(start+1)}, ids(got))
	r.Ended(1, got[0].Batch.ID, start+100)
	got, _ = takeAll(r, start+100)
	require.Equal(t, []string{"1-late-0"}, ids(got))
	r.Ended(1, "1-late-0", start+200)
	got, _ = takeAll(r, start+200)
	require.Equal(t, []string{"1-fill-9-0"}, ids(got))
}

func TestABackfillIsPausedTakenOutAndDropped(t *testing.T) {
	r := ready.New(time.UnixMilli(start))
	r.SetDrain(ready.Drain{DrainKey: ready.DrainKey{Job: 1}, Paused: true})
	r.Add(fill(1, 9, 4, 4, job.OverlapAllow, 0, 1000)...)
	got, _ := takeAll(r, start+1)
	require.Empty(t, got)
	r.SetDrain(ready.Drain{DrainKey: ready.DrainKey{Job: 1}})
	for now := start + 2; now < start+100; now++ {
		more, _ := takeAll(r, now)
		got = append(got, more...)
	}
	require.Len(t, got, 4)

	r.Add(fill(2, 7, 5, 1, job.OverlapSkip, 1, 1000)...)
	got, _ = takeAll(r, start+200)
	require.Len(t, got, 1)
	out := r.TakeOut(func(e *ready.Execution) bool { return e.Batch.Backfill == 7 && !e.Batch.Admitted })
	require.Len(t, out, 4)
	require.Zero(t, r.Backfilling(2, 0))
	r.Add(out...)
	require.Equal(t, 4, r.Backfilling(2, 0), "what is put back waits again")
	r.Ended(2, "2-fill-7-0", start+300)
	got, _ = takeAll(r, start+300)
	require.Equal(t, []string{"2-fill-7-1"}, ids(got))
	r.Drop(got[0].Batch.Bucket)
	require.Zero(t, r.Backfilling(2, 0))
	r.Ended(2, "2-fill-7-1", start+400)
	got, _ = takeAll(r, start+400)
	require.Empty(t, got)
}

// A clock that goes back does not hold a backfill for as long as it went.
func TestABackfillAfterTheClockWentBack(t *testing.T) {
	r := ready.New(time.UnixMilli(start))
	r.Add(fill(1, 9, 3, 1, job.OverlapSkip, 1, 1)...)
	got, _ := takeAll(r, start+1)
	require.Len(t, got, 1)
	r.Ended(1, "1-fill-9-0", start+2)
	got, _ = takeAll(r, start+3)
	require.Empty(t, got, "the rate is one in a second")
	ran := 0
	for now := start - 3_600_000; now < start-3_590_000; now += 100 {
		more, _ := takeAll(r, now)
		for _, e := range more {
			ran++
			r.Ended(1, e.Batch.ID, now)
		}
	}
	require.Equal(t, 2, ran)
}
