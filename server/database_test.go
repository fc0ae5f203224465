package main

import (
	"context"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/ax-scheduler/ax/internal/storetest"
	"github.com/ax-scheduler/ax/server/axtest"
)

// The rows of the table of crash points that concern the database, each by name. What concerns a server's death is in
// replicas_test.go and faults_test.go, what concerns executors in engine_test.go.

// "Commit sent, answer lost": commits of every loop reach the database and their answers do not come back. Nothing is
// done again blindly: what was written is found by reading, and every firing is made, sent and ended once.
func TestACommitWhoseAnswerIsLost(t *testing.T) {
	t.Parallel()
	db := storetest.StartPrivate(t)
	p := axtest.NewProxy(t, db.Address())
	s := axtest.Start(t, axtest.Database(db.Plain(t, p.Address)))
	ns := s.Namespace(t)
	x := ns.App("app").Worker(axtest.Succeed)
	y := ns.App("fails").Worker(axtest.Fail)
	var ids []string
	for i := range 8 {
		ids = append(ids, ns.Job(axtest.Def{"name": fmt.Sprint("job ", i), "concurrency": policy("allow", 0), "misfire": map[string]any{"policy": "all"}, "triggers": every("1s")}))
	}
	failing := ns.Job(axtest.Def{"name": "fails", "app": "fails", "concurrency": policy("allow", 0), "misfire": map[string]any{"policy": "all"}, "triggers": every("2s"), "retry": retries(2)})
	axtest.WaitFor(t, "they fire", func() bool { return len(x.Starts()) > 10 })
	for i := range 25 {
		p.LoseCommits(1 + i%3)
		axtest.Pause(time.Duration(150+37*i%200) * time.Millisecond)
	}
	p.LoseCommits(0)
	require.Greater(t, p.Lost(), 10, "answers were lost")
	t.Logf("%d commits whose answer was lost", p.Lost())
	// An event whose answer is lost is repeated with its key and made once.
	job := ns.Job(axtest.Def{"name": "event", "triggers": []map[string]any{{"kind": "event"}}})
	c := *ns.Client
	c.Header = http.Header{"Idempotency-Key": {"the one"}}
	p.LoseCommits(1)
	axtest.WaitFor(t, "the event is taken", func() bool {
		a, err := c.Try(http.MethodPost, "/api/v1/tasks/"+job+"/events", []byte(`{}`))
		return err == nil && a.Status < 300
	})
	axtest.WaitFor(t, "it has run", func() bool { b := ns.Batches(job); return len(b) == 1 && b[0].State == "SUCCEEDED" })
	for _, id := range append(ids, failing) {
		disable(t, ns, id)
	}
	for _, id := range ids {
		fates(t, ns, id, time.Second, x)
	}
	axtest.WaitFor(t, "what fails has ended", func() bool {
		return !slices.ContainsFunc(ns.Batches(failing), func(b axtest.Batch) bool { return !b.Final() })
	})
	axtest.NothingTwice(t, x, y)
	s.LedgerClean(t)
}

// The results of many executions come at once, and the database is so slow that a transaction with all of them would not
// end in its time: they are written in smaller parts, and nothing runs again.
func TestManyResultsOfASlowDatabase(t *testing.T) {
	t.Parallel()
	dsn := storetest.Database(t)
	u, err := url.Parse(dsn)
	require.NoError(t, err)
	p := axtest.NewProxy(t, u.Host)
	u.Host = p.Address
	s := axtest.Start(t, axtest.Database(u.String()))
	ns := s.Namespace(t)
	const n = 300
	done := make(chan struct{})
	word := "much ado"
	x := ns.App("app").Worker(func(context.Context, axtest.Run) axtest.Result {
		<-done
		return axtest.Result{Result: &word}
	})
	x.Room(n)
	job := ns.Job(axtest.Def{"concurrency": policy("allow", 0)})
	list := make([]map[string]any, n)
	for i := range list {
		list[i] = map[string]any{"delay": "1s"}
	}
	a := ns.Client.Do(t, http.MethodPost, ns.Path("/jobs/"+job+"/delayed/bulk"), list)
	require.Equal(t, http.StatusOK, a.Status, a.Text())
	axtest.WaitFor(t, "all run", func() bool { return len(x.Starts()) == n })
	p.Slow(30 * time.Millisecond) // the transaction with all of them would take 9 s; it may take 5
	close(done)
	axtest.WaitUpTo(t, 2*axtest.Patience, "all results are taken", func() bool { return x.TookAll() })
	p.Slow(0)
	// What came while the bucket was read again went through its inbox.
	axtest.WaitFor(t, "all have ended", func() bool {
		return !slices.ContainsFunc(ns.Batches(job), func(b axtest.Batch) bool { return b.State != "SUCCEEDED" })
	})
	require.Len(t, ns.Batches(job), n)
	require.Len(t, x.Starts(), n)
	require.Contains(t, s.Log(), "database is slow")
	axtest.NothingTwice(t, x)
	s.LedgerClean(t)
}

// F3, F4: the database is made read-only for a while, is killed and comes back elsewhere. The server waits, connects again,
// reads what it owns and how far it got, and goes on.
func TestTheDatabaseIsReadOnlyThenKilledThenElsewhere(t *testing.T) {
	t.Parallel()
	db := storetest.StartPrivate(t)
	p := axtest.NewProxy(t, db.Address())
	s := axtest.Start(t, axtest.Database(db.Plain(t, p.Address)))
	ns := s.Namespace(t)
	x := ns.App("app").Worker(axtest.For(100 * time.Millisecond))
	id := ns.Job(axtest.Def{"concurrency": policy("allow", 0), "misfire": map[string]any{"policy": "all"}, "triggers": every("1s")})
	fires := func() bool {
		n := len(x.Starts())
		axtest.WaitFor(t, "it fires again", func() bool { return len(x.Starts()) > n+1 })
		return true
	}
	fires()
	db.Exec(t, "SET GLOBAL read_only = 1")
	axtest.WaitFor(t, "it says why it is not ready", func() bool {
		a, err := s.Anonymous().Try(http.MethodGet, "/readyz", nil)
		return err == nil && a.Status == http.StatusServiceUnavailable
	})
	a := ns.Client.Do(t, http.MethodPost, ns.Path("/jobs/"+id+"/trigger"), map[string]any{})
	require.Equal(t, http.StatusServiceUnavailable, a.Status, a.Text())
	axtest.Pause(3 * time.Second)
	require.Equal(t, http.StatusOK, s.Status("/livez"))
	db.Exec(t, "SET GLOBAL read_only = 0")
	fires()
	db.Kill(t)
	axtest.Pause(2 * time.Second)
	db.Start(t)
	p.Target(db.Address())
	fires()
	axtest.WaitFor(t, "it is ready", func() bool { return s.Status("/readyz") == http.StatusOK })
	disable(t, ns, id)
	fates(t, ns, id, time.Second, x)
	axtest.NothingTwice(t, x)
	s.LedgerClean(t)
}

// C296, F8: the network to the database swallows everything in silence. A replica that is cut off so stops acting by itself, the other
// takes over, and no call waits for ever.
func TestAReplicaIsCutOffFromTheDatabaseInSilence(t *testing.T) {
	db := storetest.StartPrivate(t)
	p := axtest.NewProxy(t, db.Address())
	a := axtest.Start(t, axtest.Database(db.Plain(t, p.Address)))
	b := a.Beside(axtest.Database("mysql://plain:plain@" + db.Address() + "/ax_plain"))
	b.Begin()
	b.WaitReady()
	axtest.Even(t, a, b)
	l := newLoad(t, []*axtest.Server{a, b}, 4, 5, "1s", axtest.Succeed)
	axtest.Pause(2 * time.Second)
	at := time.Now()
	p.Stall(true)
	axtest.WaitUpTo(t, 20*time.Second, "the other owns everything", func() bool { return b.Metric("ax_buckets_owned") == 64 })
	t.Logf("the other owned everything %s after the network was gone", time.Since(at))
	require.Less(t, time.Since(at), 5*time.Second)
	require.Zero(t, a.Metric("ax_buckets_owned"), "who can not renew owns nothing")
	// At first it hopes, for 25 s at most; then it knows.
	axtest.Pause(time.Until(at.Add(14 * time.Second)))
	began := time.Now()
	answer, err := l.spaces[0].At(a).Client.Try(http.MethodPost, l.spaces[0].Path("/jobs/"+l.jobs[0][0]+"/trigger"), map[string]any{})
	require.NoError(t, err)
	t.Logf("a call to the one that is cut off: %d after %s", answer.Status, time.Since(began))
	require.Equal(t, http.StatusServiceUnavailable, answer.Status)
	require.Less(t, time.Since(began), 2*time.Second)
	p.Stall(false)
	axtest.WaitFor(t, "it takes part again", func() bool { return a.Metric("ax_buckets_owned") > 0 })
	axtest.Even(t, a, b)
	l.end(t, b)
	l.check(t, b)
}
