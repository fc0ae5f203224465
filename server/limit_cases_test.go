package main

import (
	"context"
	"fmt"
	"maps"
	"net/http"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/ax-scheduler/ax/server/axtest"
)

// What users of other schedulers reported of limits that let too many in, or kept a place for ever.
func TestLimitCases(t *testing.T) {
	cases := []shared{
		{"C363 many asks at once never get one place too many", manyAsksAtOnce},
		{"C364 every way of ending gives the place back", everyEndGivesBack},
		{"C367 what has little waiting does not stand behind what has much", littleBesideMuch},
		{"C369 lowering kills nothing, raising acts at once", lowerAndRaise},
		{"C370 what waits can be called off and takes no place", waitingCalledOff},
	}
	axtest.Both(t, func(t *testing.T, o ...axtest.Option) {
		s := axtest.Start(t, o...)
		runShared(t, s, cases)
	})
}

func manyAsksAtOnce(t *testing.T, ns *axtest.Namespace) {
	app := ns.App("app")
	list := []*axtest.Executor{app.Worker(axtest.For(30 * time.Millisecond)), app.Worker(axtest.For(30 * time.Millisecond))}
	putLimit(t, ns, "two", map[string]any{"max": 2})
	jobs := make([]string, 5)
	for i := range jobs {
		jobs[i] = ns.Job(axtest.Def{"name": fmt.Sprint("job ", i), "limits": []string{"two"}, "concurrency": policy("allow", 0)})
	}
	ids := make([]string, 50)
	var asks sync.WaitGroup
	for i := range ids {
		asks.Go(func() { ids[i] = ns.Trigger(jobs[i%len(jobs)]) })
	}
	asks.Wait()
	for _, id := range ids {
		require.Equal(t, "SUCCEEDED", ns.Ended(id).State)
	}
	starts := axtest.Ledger(list...)
	require.Len(t, starts, 50)
	require.LessOrEqual(t, axtest.Most(starts), 2)
	require.Zero(t, limitOf(t, ns, "two").Running)
}

func everyEndGivesBack(t *testing.T, ns *axtest.Namespace) {
	app := ns.App("app")
	var mu sync.Mutex
	behave := map[string]axtest.Handler{"fails": axtest.Fail, "succeeds": axtest.Succeed}
	x := app.Worker(func(ctx context.Context, r axtest.Run) axtest.Result {
		mu.Lock()
		h := behave[r.Job.Name]
		mu.Unlock()
		if h == nil {
			h = axtest.UntilStopped
		}
		return h(ctx, r)
	})
	putLimit(t, ns, "two", map[string]any{"max": 2})
	def := func(name string, more axtest.Def) axtest.Def {
		d := axtest.Def{"name": name, "limits": []string{"two"}, "concurrency": policy("allow", 0), "retry": map[string]any{"max": 0}}
		maps.Copy(d, more)
		return d
	}
	free := func(after string) {
		t.Helper()
		axtest.WaitFor(t, "the places are free after: "+after, func() bool { l := limitOf(t, ns, "two"); return l.Running == 0 && l.Waiting == 0 })
	}
	both := func(def axtest.Def) (job string, ids []string) {
		t.Helper()
		job = ns.Job(def)
		ids = []string{ns.Trigger(job), ns.Trigger(job)}
		return job, ids
	}
	ended := func(ids []string, state string) {
		t.Helper()
		for _, id := range ids {
			require.Equal(t, state, ns.Ended(id).State)
		}
	}
	running := func(ids []string) {
		t.Helper()
		for _, id := range ids {
			ns.Reaches(id, "RUNNING")
		}
		require.Equal(t, 2, limitOf(t, ns, "two").Running)
	}
	_, ids := both(def("succeeds", nil))
	ended(ids, "SUCCEEDED")
	free("success")
	_, ids = both(def("fails", nil))
	ended(ids, "FAILED")
	free("failure")
	_, ids = both(def("is cancelled", nil))
	running(ids)
	for _, id := range ids {
		require.Equal(t, http.StatusAccepted, ns.Client.Do(t, http.MethodPost, ns.Path("/batches/"+id+"/cancel"), map[string]any{}).Status)
	}
	ended(ids, "CANCELLED")
	free("cancel")
	_, ids = both(def("times out", axtest.Def{"timeout": "1s"}))
	ended(ids, "TIMED_OUT")
	free("time limit")
	job, ids := both(def("is deleted", nil))
	running(ids)
	require.Equal(t, http.StatusNoContent, ns.Client.Do(t, http.MethodDelete, ns.Path("/jobs/"+job), nil).Status)
	for _, id := range ids { // a job that is deleted leaves what runs alone
		require.Equal(t, http.StatusAccepted, ns.Client.Do(t, http.MethodPost, ns.Path("/batches/"+id+"/cancel"), map[string]any{}).Status)
	}
	ended(ids, "CANCELLED")
	free("deletion")
	_, ids = both(def("dies", nil))
	running(ids)
	x.Die()
	ended(ids, "FAILED")
	free("its executor's death")
	app.Worker(axtest.Succeed)
	_, ids = both(def("succeeds again", nil))
	ended(ids, "SUCCEEDED")
}

func littleBesideMuch(t *testing.T, ns *axtest.Namespace) {
	x := ns.App("app").Worker(axtest.For(20 * time.Millisecond))
	putLimit(t, ns, "a", map[string]any{"max": 1})
	putLimit(t, ns, "b", map[string]any{"max": 1})
	much := ns.Job(axtest.Def{"name": "much", "limits": []string{"a"}, "concurrency": policy("allow", 0)})
	little := ns.Job(axtest.Def{"name": "little", "limits": []string{"b"}, "concurrency": policy("allow", 0)})
	at := time.Now().Add(1500 * time.Millisecond).UTC().Format(time.RFC3339Nano)
	bulk := func(job string, n int) {
		tasks := make([]map[string]any, n)
		for i := range tasks {
			tasks[i] = map[string]any{"runAt": at}
		}
		a := ns.Client.Do(t, http.MethodPost, ns.Path("/jobs/"+job+"/delayed/bulk"), tasks)
		require.Less(t, a.Status, http.StatusBadRequest, a.Text())
	}
	bulk(much, 300)
	bulk(little, 3)
	of := func(job string) (list []axtest.Started) {
		for _, s := range x.Starts() {
			if s.Run.Job.ID == job {
				list = append(list, s)
			}
		}
		return list
	}
	axtest.WaitFor(t, "the few have run", func() bool { return len(of(little)) == 3 })
	require.Less(t, len(of(much)), 150, "long before the many")
	axtest.WaitUpTo(t, 2*axtest.Patience, "the many have run too", func() bool { return len(of(much)) == 300 })
	require.LessOrEqual(t, axtest.Most(of(much)), 1)
	require.LessOrEqual(t, axtest.Most(of(little)), 1)
}

func lowerAndRaise(t *testing.T, ns *axtest.Namespace) {
	hold := make(chan struct{})
	x := ns.App("app").Worker(wait(hold))
	putLimit(t, ns, "five", map[string]any{"max": 5})
	job := ns.Job(axtest.Def{"limits": []string{"five"}, "concurrency": policy("allow", 0)})
	var ids []string
	for range 16 {
		ids = append(ids, ns.Trigger(job))
	}
	axtest.WaitFor(t, "five run", func() bool { return len(x.Starts()) == 5 })
	putLimit(t, ns, "five", map[string]any{"max": 2, "version": limitOf(t, ns, "five").Version})
	for range 3 {
		hold <- struct{}{}
	}
	axtest.WaitFor(t, "two are left", func() bool { return limitOf(t, ns, "five").Running == 2 })
	axtest.Stays(t, 500*time.Millisecond, "nothing starts and nothing was killed", func() bool { return len(x.Starts()) == 5 && len(x.Kills()) == 0 })
	hold <- struct{}{}
	axtest.WaitFor(t, "below two the next starts", func() bool { return len(x.Starts()) == 6 })
	putLimit(t, ns, "five", map[string]any{"max": 10, "version": limitOf(t, ns, "five").Version})
	axtest.WaitFor(t, "ten run", func() bool { return limitOf(t, ns, "five").Running == 10 })
	close(hold)
	for _, id := range ids {
		require.Equal(t, "SUCCEEDED", ns.Ended(id).State)
	}
	axtest.NothingTwice(t, x)
}

func waitingCalledOff(t *testing.T, ns *axtest.Namespace) {
	hold := make(chan struct{})
	x := ns.App("app").Worker(wait(hold))
	putLimit(t, ns, "one", map[string]any{"max": 1})
	job := ns.Job(axtest.Def{"limits": []string{"one"}, "concurrency": policy("allow", 0)})
	first := ns.Trigger(job)
	ns.Reaches(first, "RUNNING")
	var waiting []string
	for range 5 {
		waiting = append(waiting, ns.Trigger(job))
	}
	axtest.WaitFor(t, "five wait", func() bool { return limitOf(t, ns, "one").Waiting == 5 })
	for _, id := range waiting {
		require.Equal(t, http.StatusAccepted, ns.Client.Do(t, http.MethodPost, ns.Path("/batches/"+id+"/cancel"), map[string]any{}).Status)
		require.Equal(t, "CANCELLED", ns.Ended(id).State)
	}
	l := limitOf(t, ns, "one")
	require.Equal(t, 1, l.Running)
	require.Zero(t, l.Waiting)
	close(hold)
	require.Equal(t, "SUCCEEDED", ns.Ended(first).State)
	require.Equal(t, "SUCCEEDED", ns.Ended(ns.Trigger(job)).State)
	require.Len(t, x.Starts(), 2, "the others never were sent")
}

// C366: a rate goes on after a restart; what waits is not forgotten and takes no place.
func TestC366ARateGoesOnAfterARestart(t *testing.T) {
	axtest.Both(t, func(t *testing.T, o ...axtest.Option) {
		s := axtest.Start(t, append(o, axtest.Process())...)
		ns := s.Namespace(t)
		x := ns.App("app").Worker(axtest.Succeed)
		putLimit(t, ns, "slow", map[string]any{"rate": 4})
		job := ns.Job(axtest.Def{"limits": []string{"slow"}, "concurrency": policy("allow", 0)})
		var ids []string
		for range 20 {
			ids = append(ids, ns.Trigger(job))
		}
		axtest.WaitFor(t, "some have run", func() bool { return len(x.Starts()) >= 4 })
		s.Kill()
		s.Again()
		ns.Client = s.Admin(t)
		for _, id := range ids {
			require.Equal(t, "SUCCEEDED", ns.Ended(id).State)
		}
		require.Len(t, x.Starts(), 20)
		require.Zero(t, limitOf(t, ns, "slow").Running)
		axtest.NothingTwice(t, x)
	})
}
