package main

import (
	"context"
	"fmt"
	"net/http"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/ax-scheduler/ax/server/axtest"
)

func TestLimits(t *testing.T) {
	cases := []shared{
		{"M7 jobs share a named limit, and what waits says where", namedLimit},
		{"A9 limits of an app, a handler and each executor", coveringLimits},
		{"M7 namespaces share a limit of the platform", platformLimit},
		{"M7 a rate spaces starts", rateLimit},
		{"A9 limits are checked, versioned, audited and kept while they are used", limitsKept},
	}
	axtest.Both(t, func(t *testing.T, o ...axtest.Option) {
		s := axtest.Start(t, o...)
		runShared(t, s, cases)
	})
}

// A9, A18: a restarted server counts what runs, keeps the order of what waits, and a permit is not awaited for ever.
func TestLimitsSurviveARestart(t *testing.T) {
	axtest.Both(t, func(t *testing.T, o ...axtest.Option) {
		s := axtest.Start(t, append(o, axtest.Set("dispatch-wait-limit", "12s"))...)
		ns := s.Namespace(t)
		hold := make(chan struct{}, 10)
		x := ns.App("app").Worker(wait(hold))
		putLimit(t, ns, "db", map[string]any{"max": 1})
		job := ns.Job(axtest.Def{"limits": []string{"db"}, "concurrency": policy("allow", 0)})
		queued := ns.Job(axtest.Def{"name": "queued", "concurrency": policy("queueAll", 1)})
		first, second, third := ns.Trigger(job), ns.Trigger(job), ns.Trigger(job)
		ns.Reaches(first, "RUNNING")
		one, two := ns.Trigger(queued), ns.Trigger(queued)
		ns.Reaches(one, "RUNNING")
		s.Restart()
		x.Online()
		ns.Client = s.Admin(t)
		axtest.WaitFor(t, "the order is as it was", func() bool { return waits(ns, second).Position == 1 && waits(ns, third).Position == 2 })
		require.Equal(t, "waiting_limit", waits(ns, third).Reason.Code)
		require.Equal(t, "db", waits(ns, third).Reason.Detail)
		axtest.WaitFor(t, "what waits for its own job does so still", func() bool { return waits(ns, two).Reason.Code == "waiting_overlap" })
		axtest.Stays(t, time.Second, "what ran before holds the limit", func() bool { return len(x.Starts()) == 2 })
		hold <- struct{}{}
		hold <- struct{}{}
		require.Equal(t, "SUCCEEDED", ns.Ended(first).State)
		axtest.WaitFor(t, "the next of both start", func() bool { return len(x.Starts()) == 4 })
		b := ns.Ended(third)
		require.Equal(t, "FAILED", b.State, "nobody waits for ever")
		require.Equal(t, "waited_too_long", b.Code())
		hold <- struct{}{}
		hold <- struct{}{}
		require.Equal(t, "SUCCEEDED", ns.Ended(second).State)
		require.Equal(t, "SUCCEEDED", ns.Ended(two).State)
		axtest.NothingTwice(t, x)
	})
}

// wait is a handler that ends when somebody lets one end.
func wait(hold <-chan struct{}) axtest.Handler {
	return func(ctx context.Context, _ axtest.Run) axtest.Result {
		select {
		case <-hold:
			return axtest.Result{}
		case <-ctx.Done():
			return axtest.Result{State: "CANCELLED"}
		}
	}
}

func putLimit(t *testing.T, ns *axtest.Namespace, name string, body map[string]any) {
	t.Helper()
	a := ns.Client.Do(t, http.MethodPut, ns.Path("/limits/"+name), body)
	require.Equal(t, http.StatusOK, a.Status, a.Text())
}

type limitView struct {
	Name    string  `json:"name"`
	Max     int     `json:"max"`
	Rate    float64 `json:"rate"`
	Running int     `json:"running"`
	Waiting int     `json:"waiting"`
	Jobs    int     `json:"jobs"`
	Version int64   `json:"version"`
}

func limitOf(t *testing.T, ns *axtest.Namespace, name string) (v limitView) {
	t.Helper()
	ns.Client.Get(t, ns.Path("/limits/"+name), &v)
	return v
}

// waits reads where a batch waits.
func waits(ns *axtest.Namespace, id string) axtest.Waiting {
	b := ns.Batch(id)
	if b.Waiting == nil {
		return axtest.Waiting{Reason: &axtest.Reason{}}
	}
	return *b.Waiting
}

func namedLimit(t *testing.T, ns *axtest.Namespace) {
	hold := make(chan struct{})
	x := ns.App("app").Worker(wait(hold))
	y := ns.App("other").Worker(wait(hold))
	putLimit(t, ns, "db", map[string]any{"max": 1})
	one := ns.Job(axtest.Def{"limits": []string{"db"}, "concurrency": policy("allow", 0)})
	two := ns.Job(axtest.Def{"name": "two", "app": "other", "limits": []string{"db"}, "concurrency": policy("allow", 0)})
	free := ns.Job(axtest.Def{"name": "free", "concurrency": policy("allow", 0)})
	ids := []string{ns.Trigger(one)}
	ns.Reaches(ids[0], "RUNNING")
	for _, job := range []string{two, one, two} {
		ids = append(ids, ns.Trigger(job))
	}
	for i, id := range ids[1:] {
		axtest.WaitFor(t, "it has its place", func() bool { return waits(ns, id).Position == i+1 && waits(ns, id).Of == 3 })
		require.Equal(t, "waiting_limit", waits(ns, id).Reason.Code)
		require.Equal(t, "db", waits(ns, id).Reason.Detail)
	}
	require.Equal(t, 1, limitOf(t, ns, "db").Running)
	require.Equal(t, 3, limitOf(t, ns, "db").Waiting)
	require.Equal(t, 2, limitOf(t, ns, "db").Jobs)
	axtest.WaitFor(t, "the list says it too", func() bool { return ns.Batch(ids[1]).Code() == "waiting_limit" })
	ns.Reaches(ns.Trigger(free), "RUNNING") // who is not under it is not held up
	// What waits can be called off, and those behind it move up.
	a := ns.Client.Do(t, http.MethodPost, ns.Path("/batches/"+ids[2]+"/cancel"), map[string]any{})
	require.Equal(t, http.StatusAccepted, a.Status, a.Text())
	require.Equal(t, "CANCELLED", ns.Ended(ids[2]).State)
	require.Equal(t, 2, waits(ns, ids[3]).Position)
	// Raising it lets the next start at once.
	putLimit(t, ns, "db", map[string]any{"max": 2, "version": limitOf(t, ns, "db").Version})
	ns.Reaches(ids[1], "RUNNING")
	require.Equal(t, 1, waits(ns, ids[3]).Position)
	close(hold)
	for _, id := range []string{ids[0], ids[1], ids[3]} {
		require.Equal(t, "SUCCEEDED", ns.Ended(id).State)
	}
	require.Zero(t, limitOf(t, ns, "db").Running)
	var under []axtest.Started
	for _, s := range axtest.Ledger(x, y) {
		if s.Run.Job.ID != free {
			under = append(under, s)
		}
	}
	require.LessOrEqual(t, axtest.Most(under), 2)
}

func coveringLimits(t *testing.T, ns *axtest.Namespace) {
	hold := make(chan struct{})
	app := ns.App("app")
	handlers := map[string]axtest.Handler{"work": wait(hold), "mail": wait(hold)}
	list := []*axtest.Executor{app.Executor(handlers), app.Executor(handlers)}
	putLimit(t, ns, "all-of-app", map[string]any{"app": "app", "max": 6})
	putLimit(t, ns, "mail", map[string]any{"app": "app", "handler": "mail", "max": 3})
	putLimit(t, ns, "each", map[string]any{"app": "app", "handler": "work", "perExecutor": true, "max": 2})
	mail := ns.Job(axtest.Def{"name": "mail", "handler": "mail", "concurrency": policy("allow", 0)})
	work := ns.Job(axtest.Def{"name": "work", "concurrency": policy("allow", 0), "routing": strategy("first")})
	var mails, works []string
	for range 5 {
		mails = append(mails, ns.Trigger(mail))
	}
	axtest.WaitFor(t, "three mails run", func() bool { return len(axtest.Ledger(list...)) == 3 })
	for range 6 {
		works = append(works, ns.Trigger(work))
	}
	axtest.WaitFor(t, "the app is full", func() bool { return len(axtest.Ledger(list...)) == 6 })
	axtest.WaitFor(t, "the fourth says why", func() bool {
		return waits(ns, works[3]).Reason.Detail == "all-of-app" && waits(ns, mails[3]).Reason.Detail != ""
	})
	putLimit(t, ns, "all-of-app", map[string]any{"app": "app", "max": 100, "version": limitOf(t, ns, "all-of-app").Version})
	axtest.WaitFor(t, "each executor has two of this handler", func() bool { return len(axtest.Ledger(list...)) == 7 })
	axtest.WaitFor(t, "and the next says why", func() bool { return waits(ns, works[4]).Reason.Code == "waiting_executor_limit" })
	require.Equal(t, "executor_limit 2", waits(ns, works[4]).Reason.Detail)
	axtest.Stays(t, 500*time.Millisecond, "no more start", func() bool { return len(axtest.Ledger(list...)) == 7 })
	for _, x := range list {
		n := map[string]int{}
		for _, s := range x.Starts() {
			n[s.Run.Handler]++
		}
		require.Equal(t, 2, n["work"])
	}
	close(hold)
	for _, id := range append(mails, works...) {
		require.Equal(t, "SUCCEEDED", ns.Ended(id).State)
	}
	for _, x := range list {
		var works []axtest.Started
		for _, s := range x.Starts() {
			if s.Run.Handler == "work" {
				works = append(works, s)
			}
		}
		require.LessOrEqual(t, axtest.Most(works), 2)
	}
}

func platformLimit(t *testing.T, ns *axtest.Namespace) {
	hold := make(chan struct{})
	other := ns.Server.Namespace(t)
	name := "shared-of-" + ns.Name
	a := ns.Client.Do(t, http.MethodPut, "/api/v1/limits/"+name, map[string]any{"max": 1})
	require.Equal(t, http.StatusOK, a.Status, a.Text())
	ns.App("app").Worker(wait(hold))
	other.App("app").Worker(wait(hold))
	def := axtest.Def{"limits": []string{"platform/" + name}, "concurrency": policy("allow", 0)}
	mine, theirs := ns.Job(def), other.Job(def)
	var flood []string
	for range 5 {
		flood = append(flood, ns.Trigger(mine))
	}
	ns.Reaches(flood[0], "RUNNING")
	late := other.Trigger(theirs)
	axtest.WaitFor(t, "it waits for the same", func() bool { return waits(other, late).Reason.Detail == name })
	hold <- struct{}{}
	require.Equal(t, "SUCCEEDED", ns.Ended(flood[0]).State)
	other.Reaches(late, "RUNNING") // before the four that came earlier
	require.False(t, ns.Batch(flood[1]).Final())
	a = ns.Client.Do(t, http.MethodDelete, "/api/v1/limits/"+name, nil)
	require.Equal(t, "limit_in_use", a.Problem(t).Code)
	close(hold)
	require.Equal(t, "SUCCEEDED", other.Ended(late).State)
	for _, id := range flood {
		require.Equal(t, "SUCCEEDED", ns.Ended(id).State)
	}
}

func rateLimit(t *testing.T, ns *axtest.Namespace) {
	x := ns.App("app").Worker(axtest.Succeed)
	putLimit(t, ns, "slow", map[string]any{"rate": 2})
	job := ns.Job(axtest.Def{"limits": []string{"slow"}, "concurrency": policy("allow", 0)})
	var ids []string
	for range 5 {
		ids = append(ids, ns.Trigger(job))
	}
	for _, id := range ids {
		require.Equal(t, "SUCCEEDED", ns.Ended(id).State)
	}
	got := x.Starts()
	require.Len(t, got, 5)
	// From the decision to the start there is a way that is not always equally long.
	require.Greater(t, got[4].At.Sub(got[0].At), 4*500*time.Millisecond-250*time.Millisecond)
}

func limitsKept(t *testing.T, ns *axtest.Namespace) {
	ns.App("app")
	for field, body := range map[string]map[string]any{
		"max":  {},
		"rate": {"rate": -1},
		"app":  {"handler": "work", "max": 1},
	} {
		p := ns.Client.Do(t, http.MethodPut, ns.Path("/limits/bad"), body).Problem(t)
		require.Equal(t, http.StatusUnprocessableEntity, p.Status, field)
		require.Equal(t, field, p.Errors[0].Field)
		require.NotEqual(t, p.Errors[0].Message.EN, p.Errors[0].Message.ZH)
	}
	p := ns.Client.Do(t, http.MethodPost, ns.Path("/jobs"), map[string]any{"name": "j", "app": "app", "handler": "work", "limits": []string{"nothing"}}).Problem(t)
	require.Equal(t, http.StatusUnprocessableEntity, p.Status)
	require.Equal(t, "limits[0]", p.Errors[0].Field)
	require.Equal(t, "unknown_limit", p.Errors[0].Code)

	putLimit(t, ns, "db", map[string]any{"max": 3})
	require.Equal(t, http.StatusConflict, ns.Client.Do(t, http.MethodPut, ns.Path("/limits/db"), map[string]any{"max": 4}).Status, "it is there already")
	require.Equal(t, http.StatusConflict, ns.Client.Do(t, http.MethodPut, ns.Path("/limits/db"), map[string]any{"max": 4, "version": 987654}).Status, "its version is another")
	job := ns.Job(axtest.Def{"limits": []string{"db"}})
	require.Equal(t, "limit_in_use", ns.Client.Do(t, http.MethodDelete, ns.Path("/limits/db"), nil).Problem(t).Code)
	cover := map[string]any{"app": "app", "max": 4, "version": limitOf(t, ns, "db").Version}
	require.Equal(t, "limit_in_use", ns.Client.Do(t, http.MethodPut, ns.Path("/limits/db"), cover).Problem(t).Code, "a job names it")
	require.Equal(t, 3, limitOf(t, ns, "db").Max)
	require.Equal(t, http.StatusNoContent, ns.Client.Do(t, http.MethodDelete, ns.Path("/jobs/"+job), nil).Status)
	require.Equal(t, http.StatusNoContent, ns.Client.Do(t, http.MethodDelete, ns.Path("/limits/db"), nil).Status)
	require.Equal(t, http.StatusNotFound, ns.Client.Do(t, http.MethodGet, ns.Path("/limits/db"), nil).Status)
	entries := ns.Server.Audit(t, "namespace="+ns.Name+"&action=limit.write")
	require.Len(t, entries, 2)
	require.Equal(t, "db", entries[0].Object.ID)
	require.JSONEq(t, `{"max":3}`, string(entries[1].After))
	require.JSONEq(t, `{"max":3}`, string(entries[0].Before))
	var page struct {
		Items []limitView `json:"items"`
	}
	for i := range 3 {
		putLimit(t, ns, fmt.Sprint("l", i), map[string]any{"max": i + 1})
	}
	ns.Client.Get(t, ns.Path("/limits?limit=2"), &page)
	require.Len(t, page.Items, 2)
}

// B17, M7: limits follow their bucket. Any replica takes the edit and shows the line; when the owner is killed, the next
// one counts what runs, keeps the order, and nothing more starts.
func TestLimitsSurviveTheirOwner(t *testing.T) {
	t.Parallel()
	list := axtest.Replicas(t, 2)
	home := list[0].Namespace(t)
	owner, others := axtest.Owner(t, home, list...)
	ns := home.At(others[0])
	hold := make(chan struct{}, 10)
	x := ns.App("app").At(others[0], owner).Worker(wait(hold))
	putLimit(t, ns, "db", map[string]any{"max": 1})
	a := ns.Client.Do(t, http.MethodPut, "/api/v1/limits/shared", map[string]any{"max": 5})
	require.Equal(t, http.StatusOK, a.Status, a.Text())
	job := ns.Job(axtest.Def{"limits": []string{"db", "platform/shared"}, "concurrency": policy("allow", 0)})
	ids := []string{ns.Trigger(job), ns.Trigger(job), ns.Trigger(job)}
	ns.Reaches(ids[0], "RUNNING")
	axtest.WaitFor(t, "the other replica shows the line", func() bool { return waits(ns, ids[2]).Position == 2 && limitOf(t, ns, "db").Running == 1 })
	owner.Kill()
	axtest.WaitFor(t, "the next owner has it as it was", func() bool {
		a, err := ns.Client.Try(http.MethodGet, ns.Path("/batches/"+ids[2]), nil)
		if err != nil || a.Status != http.StatusOK {
			return false // nobody owns it for a moment
		}
		var b axtest.Batch
		a.Into(t, &b)
		return b.Waiting != nil && b.Waiting.Position == 2 && b.Waiting.Reason.Detail == "db"
	})
	axtest.Stays(t, time.Second, "what ran before holds the limit", func() bool { return len(x.Starts()) == 1 })
	for range 3 {
		hold <- struct{}{}
	}
	for _, id := range ids {
		require.Equal(t, "SUCCEEDED", ns.Ended(id).State)
	}
	require.Equal(t, 1, axtest.Most(x.Starts()))
	axtest.NothingTwice(t, x)
	a = ns.Client.Do(t, http.MethodPut, "/api/v1/limits/shared", map[string]any{"max": 6, "version": 987})
	require.Equal(t, http.StatusConflict, a.Status)
}
