package ready_test

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/ax-scheduler/ax/internal/job"
	"github.com/ax-scheduler/ax/internal/ready"
	"github.com/ax-scheduler/ax/internal/schedule"
)

// late makes n catch-ups of a job, due a minute ago and further back, all to be started at start.
func late(jobID int64, n int, policy string, rate float64) []*ready.Execution {
	most := 1
	if policy == job.OverlapAllow {
		most = 0
	}
	var out []*ready.Execution
	for i := range n {
		b := newBatch(fmt.Sprintf("%d-late-%d", jobID, i), 1, jobID, start-60_000-int64(n-i)*1000, policy, most)
		b.AppID, b.CatchUp, b.TriggerNo = 7, true, 1
		b.Def.Misfire = job.Misfire{Policy: job.MisfireAll, Window: schedule.Duration(time.Hour), Rate: rate}
		out = append(out, &ready.Execution{Batch: b, ID: jobID*1000 + int64(i), Attempt: 1, NotBefore: start})
	}
	return out
}

func live(jobID int64, due int64, policy string) *ready.Execution {
	b := newBatch(fmt.Sprintf("%d-live-%d", jobID, due), 1, jobID, due, policy, 1)
	b.AppID, b.TriggerNo = 7, 1
	return &ready.Execution{Batch: b, ID: jobID*1000 + 900, Attempt: 1, NotBefore: due}
}

// takeAll takes what is ready at now.
func takeAll(r *ready.Ready, now int64) (out []*ready.Execution, v ready.Verdicts) {
	v = r.Due(now)
	r.Take(now, 1000, func(e *ready.Execution, _ string) ready.Placement {
		out = append(out, e)
		return ready.Taken
	})
	return out, v
}

func TestCatchUpsWaitForEachOtherAndAreNotSkipped(t *testing.T) {
	r := ready.New(time.UnixMilli(start))
	r.Add(late(1, 5, job.OverlapSkip, 1000)...)
	now := start
	var order []string
	for range 5 {
		now += 1000
		got, v := takeAll(r, now)
		require.Empty(t, v.Skips)
		require.Empty(t, v.Missed)
		require.Len(t, got, 1, "one at a time")
		order = append(order, got[0].Batch.ID)
		require.Empty(t, r.Due(now+1).Skips)
		r.Ended(1, got[0].Batch.ID, now)
	}
	require.Equal(t, []string{"1-late-0", "1-late-1", "1-late-2", "1-late-3", "1-late-4"}, order)
	// A firing that is on time has its own policy: it is skipped while a batch of the job runs.
	r.Add(late(2, 1, job.OverlapSkip, 1000)...)
	now += 1000
	got, _ := takeAll(r, now)
	require.Len(t, got, 1)
	r.Add(live(2, now, job.OverlapSkip))
	_, v := takeAll(r, now)
	require.Len(t, v.Skips, 1)
	require.Equal(t, ready.ReasonStillRunning, v.Skips[0].Reason)
}

func TestWhatIsOnTimeGoesFirst(t *testing.T) {
	r := ready.New(time.UnixMilli(start))
	r.Add(late(1, 3, job.OverlapAllow, 1000)...)
	r.Add(live(2, start, job.OverlapAllow))
	got, _ := takeAll(r, start+100)
	require.Equal(t, "2-live-"+fmt.Sprint(start), got[0].Batch.ID)
	// The order in a job's own queue too: the live firing that waits is let in before the next catch-up.
	r = ready.New(time.UnixMilli(start))
	r.Add(late(1, 3, job.OverlapQueueAll, 1000)...)
	first, _ := takeAll(r, start+10)
	require.Len(t, first, 1)
	r.Add(live(1, start+20, job.OverlapQueueAll))
	none, _ := takeAll(r, start+30)
	require.Empty(t, none)
	r.Ended(1, first[0].Batch.ID, start+40)
	next, _ := takeAll(r, start+50)
	require.Len(t, next, 1)
	require.False(t, next[0].Batch.CatchUp)
}

// However much is due at once, because everything stood still or was just taken up: the rates of the job and
// of the app hold.
func TestTheDrainRatesHoldWhenEverythingIsDueAtOnce(t *testing.T) {
	r := ready.New(time.UnixMilli(start))
	r.SetDrain(ready.Drain{DrainKey: ready.DrainKey{App: 7}, Rate: 20})
	for j := range int64(10) {
		r.Add(late(j+1, 10, job.OverlapAllow, 5)...)
	}
	var starts []int64
	perJob := map[int64][]int64{}
	// A second passes between two looks now and then, and once ten.
	for now := start; now < start+30_000; now += 10 {
		if now > start+1000 && now < start+11_000 {
			continue
		}
		got, v := takeAll(r, now)
		require.Empty(t, v.Missed)
		for _, e := range got {
			starts = append(starts, now)
			perJob[e.Batch.JobID] = append(perJob[e.Batch.JobID], now)
		}
	}
	require.Len(t, starts, 100)
	within := func(list []int64, rate int) {
		for _, from := range list {
			n := 0
			for _, at := range list {
				if at >= from && at < from+1000 {
					n++
				}
			}
			require.LessOrEqual(t, n, rate)
		}
	}
	within(starts, 20)
	for _, list := range perJob {
		within(list, 5)
	}
}

// What its rate let in while nobody could take it must not start all at once when somebody can: M5.
func TestTheDrainRatesHoldWhenTheExecutorsCameLate(t *testing.T) {
	for _, kind := range []string{"catch-up", "backfill"} {
		t.Run(kind, func(t *testing.T) {
			r := ready.New(time.UnixMilli(start))
			r.SetDrain(ready.Drain{DrainKey: ready.DrainKey{App: 7}, Rate: 10})
			list := late(1, 60, job.OverlapAllow, 100)
			if kind == "backfill" {
				list = fill(1, 3, 60, 60, job.OverlapAllow, 0, 100)
				for _, e := range list {
					e.Batch.AppID = 7
				}
			}
			r.Add(list...)
			now := start
			for range 40 { // four seconds with no executor
				now += 100
				r.Due(now)
				r.Take(now, 1000, func(*ready.Execution, string) ready.Placement { return ready.Blocked })
			}
			require.Greater(t, r.Len(), 30, "so many were let in")
			// An operator's pause holds what was let in too.
			r.SetDrain(ready.Drain{DrainKey: ready.DrainKey{App: 7}, Rate: 10, Paused: true})
			got, _ := takeAll(r, now)
			require.Empty(t, got)
			r.SetDrain(ready.Drain{DrainKey: ready.DrainKey{App: 7}, Rate: 10})
			var starts []int64
			for range 2000 {
				now += 10
				next, ok := r.Next()
				got, _ := takeAll(r, now)
				require.True(t, len(got) == 0 || ok && next <= now, "it says when it has something to do")
				for _, e := range got {
					starts = append(starts, now)
					r.Ended(1, e.Batch.ID, now)
				}
			}
			require.Len(t, starts, 60, "none is lost")
			for i := 10; i < len(starts); i++ {
				require.GreaterOrEqual(t, starts[i]-starts[i-10], int64(1000), "start %d", i)
			}
			require.Less(t, starts[59]-starts[0], int64(9000), "and none waits for nothing")
		})
	}
}

func TestAPausedBacklogWaitsAndResumesAtItsRate(t *testing.T) {
	r := ready.New(time.UnixMilli(start))
	app := ready.Drain{DrainKey: ready.DrainKey{App: 7}, Rate: 10, Paused: true}
	r.SetDrain(app)
	r.Add(late(1, 20, job.OverlapAllow, 1000)...)
	got, v := takeAll(r, start+60_000)
	require.Empty(t, got)
	require.Empty(t, v.Missed)
	require.Len(t, r.Backlog(1), 20)
	require.True(t, r.Backlog(1)[0].Paused)
	app.Paused = false
	r.SetDrain(app)
	n := 0
	for now := start + 60_010; now < start+61_010; now += 10 {
		got, _ := takeAll(r, now)
		n += len(got)
	}
	require.LessOrEqual(t, n, 10, "one second at ten a second")
	require.GreaterOrEqual(t, n, 9)
	// Faster: what has its start already gets an earlier one.
	app.Rate = 1000
	r.SetDrain(app)
	for now := start + 61_010; now < start+61_110; now += 10 {
		got, _ := takeAll(r, now)
		n += len(got)
	}
	require.Equal(t, 20, n)
	require.Empty(t, r.Backlog(1))
}

func TestACatchUpThatFindsNoStartInTimeIsMissed(t *testing.T) {
	r := ready.New(time.UnixMilli(start))
	list := late(1, 10, job.OverlapAllow, 0.5)
	for _, e := range list {
		e.Batch.Def.Misfire.Window = schedule.Duration(65 * time.Second) // due 61 to 70 s ago
	}
	r.Add(list...)
	var ran, missed []string
	for now := start; now < start+20_000; now += 100 {
		got, v := takeAll(r, now)
		for _, e := range got {
			require.LessOrEqual(t, now, e.Batch.DueAt+65_000)
			ran = append(ran, e.Batch.ID)
		}
		for _, m := range v.Missed {
			require.Equal(t, ready.ReasonMissedWindow, m.Reason)
			missed = append(missed, m.Executions[0].Batch.ID)
		}
	}
	require.Equal(t, []string{"1-late-5", "1-late-7", "1-late-9"}, ran)
	require.Len(t, missed, 7)
	require.Empty(t, r.Backlog(1))

	// One that waits for another of its job is looked at again when its turn comes.
	r = ready.New(time.UnixMilli(start))
	two := late(1, 2, job.OverlapSkip, 1000)
	r.Add(two...)
	got, _ := takeAll(r, start+100)
	require.Len(t, got, 1)
	r.Ended(1, got[0].Batch.ID, start+2*3600_000)
	got, v := takeAll(r, start+2*3600_000)
	require.Empty(t, got)
	require.Len(t, v.Missed, 1)
}

func TestBacklogsCanBeTakenOutWhereverTheyWait(t *testing.T) {
	r := ready.New(time.UnixMilli(start))
	r.SetDrain(ready.Drain{DrainKey: ready.DrainKey{Job: 2}, Paused: true})
	waits, held, ahead := late(1, 3, job.OverlapSkip, 1000), late(2, 3, job.OverlapSkip, 1000), late(3, 3, job.OverlapSkip, 1000)
	for _, e := range ahead {
		e.NotBefore = start + 60_000
	}
	r.Add(slices.Concat(waits, held, ahead)...)
	got, _ := takeAll(r, start+100)
	require.Len(t, got, 1)
	require.Len(t, r.Backlog(1), 8)
	out := r.TakeOut(func(e *ready.Execution) bool { return ready.DrainKey{App: 7}.Of(e.Batch) && !e.Batch.Admitted })
	require.Len(t, out, 8)
	require.Empty(t, r.Backlog(1))
	r.Ended(1, got[0].Batch.ID, start+200)
	got, v := takeAll(r, start+120_000)
	require.Empty(t, got)
	require.Empty(t, v.Missed)
}
