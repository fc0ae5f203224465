package main

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/ax-scheduler/ax/internal/storetest"
	"github.com/ax-scheduler/ax/server/axtest"
)

type made struct {
	BatchID string    `json:"batchId"`
	DueAt   time.Time `json:"dueAt"`
	Status  string    `json:"status"`
	Errors  []struct {
		Field string `json:"field"`
		Code  string `json:"code"`
	} `json:"errors"`
}

type delayedTask struct {
	BatchID string          `json:"batchId"`
	State   string          `json:"state"`
	Resting bool            `json:"resting"`
	DueAt   time.Time       `json:"dueAt"`
	Key     string          `json:"key"`
	Payload json.RawMessage `json:"payload"`
	Reason  struct {
		Code   string `json:"code"`
		Detail string `json:"detail"`
	} `json:"reason"`
}

func delay(t *testing.T, ns *axtest.Namespace, job string, task map[string]any) made {
	t.Helper()
	a := ns.Client.Do(t, http.MethodPost, ns.Path("/jobs/"+job+"/delayed"), task)
	require.Equal(t, http.StatusCreated, a.Status, a.Text())
	var m made
	a.Into(t, &m)
	return m
}

func tasks(t *testing.T, ns *axtest.Namespace, query string) (list []delayedTask) {
	t.Helper()
	next := ""
	for {
		var page struct {
			Items      []delayedTask `json:"items"`
			NextCursor string        `json:"nextCursor"`
		}
		ns.Client.Get(t, ns.Path("/delayed?limit=7&cursor="+next+"&"+query), &page)
		list = append(list, page.Items...)
		if next = page.NextCursor; next == "" {
			return list
		}
	}
}

// events are what an executor was given with its executions, by batch.
func events(x *axtest.Executor) map[string][]string {
	out := map[string][]string{}
	for _, d := range x.Deliveries() {
		var message struct {
			Executions []struct {
				BatchID string  `json:"batchId"`
				Event   *string `json:"event"`
			} `json:"executions"`
		}
		_ = json.Unmarshal([]byte(d.Raw), &message)
		for _, e := range message.Executions {
			if e.BatchID == d.Run.BatchID && e.Event != nil {
				out[e.BatchID] = append(out[e.BatchID], *e.Event)
			}
		}
	}
	return out
}

// A1, A2, A3, A5, P5: a delayed task from its making to its end.
func TestDelayed(t *testing.T) {
	allow := policy("allow", 0)
	cases := []shared{
		{"A1 runs at its time and not before", func(t *testing.T, ns *axtest.Namespace) {
			x := ns.App("app").Worker(axtest.Succeed)
			job := ns.Job(axtest.Def{"concurrency": allow})
			text := `{"order":"订单 7 😀","list":[1,2.50]}`
			long := `{"text":"` + strings.Repeat("长", 20_000) + `"}`
			m := delay(t, ns, job, map[string]any{"delay": "1500ms", "payload": json.RawMessage(text)})
			big := delay(t, ns, job, map[string]any{"delay": "1s", "payload": json.RawMessage(long)})
			none := delay(t, ns, job, map[string]any{"runAt": time.Now().Add(-time.Hour).Format(time.RFC3339)})
			for _, id := range []string{m.BatchID, big.BatchID, none.BatchID} {
				require.Equal(t, "SUCCEEDED", ns.Ended(id).State)
			}
			for _, s := range x.Starts() {
				require.False(t, s.At.Before(time.UnixMilli(s.Run.DueAt).Add(-time.Millisecond)), "early")
				require.Equal(t, "delayed", s.Run.Trigger)
			}
			got := events(x)
			require.Equal(t, []string{text}, got[m.BatchID])
			require.Equal(t, []string{long}, got[big.BatchID], "a long one is not kept in memory and comes whole all the same")
			require.Empty(t, got[none.BatchID])
		}},
		{"A2 a key is refused until its task has ended and its window is over", func(t *testing.T, ns *axtest.Namespace) {
			ns.App("app").Worker(axtest.Succeed)
			job := ns.Job(axtest.Def{"concurrency": allow})
			first := delay(t, ns, job, map[string]any{"delay": "2s", "key": "order-A", "keyWindow": "1s"})
			taken := func(key string) string {
				a := ns.Client.Do(t, http.MethodPost, ns.Path("/jobs/"+job+"/delayed"), map[string]any{"delay": "1h", "key": key})
				if a.Status == http.StatusCreated {
					return ""
				}
				require.Equal(t, http.StatusConflict, a.Status, a.Text())
				require.Equal(t, "key_taken", a.Problem(t).Code)
				var p struct {
					BatchID string `json:"batchId"`
				}
				a.Into(t, &p)
				return p.BatchID
			}
			require.Equal(t, first.BatchID, taken("order-A"))
			require.Empty(t, taken("order-a"), "another key")
			require.Equal(t, "SUCCEEDED", ns.Ended(first.BatchID).State)
			require.Equal(t, first.BatchID, taken("order-A"), "its window is not over")
			axtest.WaitFor(t, "the window is over", func() bool { return taken("order-A") == "" })
		}},
		{"A2 many at once with one key make one task", func(t *testing.T, ns *axtest.Namespace) {
			x := ns.App("app").Worker(axtest.Succeed)
			job := ns.Job(axtest.Def{"concurrency": allow})
			var mu sync.Mutex
			status := map[int]int{}
			ids := map[string]bool{}
			var group sync.WaitGroup
			for range 50 {
				group.Go(func() {
					a, err := ns.Client.Try(http.MethodPost, ns.Path("/jobs/"+job+"/delayed"), map[string]any{"delay": "1s", "key": "one"})
					mu.Lock()
					defer mu.Unlock()
					if err != nil {
						status[0]++
						return
					}
					status[a.Status]++
					var m made
					_ = json.Unmarshal(a.Body, &m)
					ids[m.BatchID] = true
				})
			}
			group.Wait()
			require.Equal(t, map[int]int{201: 1, 409: 49}, status)
			require.Len(t, ids, 1, "all name the same task")
			for id := range ids {
				require.Equal(t, "SUCCEEDED", ns.Ended(id).State)
			}
			require.Len(t, x.Starts(), 1)
		}},
		{"the same request with the same idempotency key has the same answer", func(t *testing.T, ns *axtest.Namespace) {
			ns.App("app")
			job := ns.Job(axtest.Def{})
			send := func(path string, body any) axtest.Answer {
				c := *ns.Client
				c.Header = http.Header{"Idempotency-Key": {"abc"}}
				return c.Do(t, http.MethodPost, ns.Path("/jobs/"+job+path), body)
			}
			var one, two made
			send("/delayed", map[string]any{"delay": "1h", "key": "k"}).Into(t, &one)
			send("/delayed", map[string]any{"delay": "1h", "key": "k"}).Into(t, &two)
			require.Equal(t, one.BatchID, two.BatchID)
			require.Equal(t, "repeated", two.Status)
			a := send("/delayed", map[string]any{"delay": "2h", "key": "k"})
			require.Equal(t, http.StatusConflict, a.Status)
			require.Equal(t, "key_reused", a.Problem(t).Code)
			bulk := []map[string]any{{"delay": "1h"}, {"delay": "2h", "key": "x"}}
			var first, again struct {
				Items []made `json:"items"`
			}
			send("/delayed/bulk", bulk).Into(t, &first)
			send("/delayed/bulk", bulk).Into(t, &again)
			for i := range bulk {
				require.Equal(t, "created", first.Items[i].Status)
				require.Equal(t, "repeated", again.Items[i].Status)
				require.Equal(t, first.Items[i].BatchID, again.Items[i].BatchID)
			}
			require.Len(t, tasks(t, ns, ""), 3)
		}},
		{"A1 cancelled, near and far", func(t *testing.T, ns *axtest.Namespace) {
			x := ns.App("app").Worker(axtest.Succeed)
			job := ns.Job(axtest.Def{"concurrency": allow})
			for _, span := range []string{"5s", "48h"} {
				m := delay(t, ns, job, map[string]any{"delay": span, "key": "k"})
				one := tasks(t, ns, "job="+job+"&key=k")
				require.Len(t, one, 1)
				require.Equal(t, span == "48h", one[0].Resting)
				require.Equal(t, "DELAYED", ns.Batch(m.BatchID).State)
				a := ns.Client.Do(t, http.MethodPost, ns.Path("/batches/"+m.BatchID+"/cancel"), nil)
				require.Equal(t, http.StatusAccepted, a.Status, a.Text())
				b := ns.Batch(m.BatchID)
				require.Equal(t, "CANCELLED", b.State)
				require.Equal(t, "cancelled_by_hand", b.Code())
				again := ns.Client.Do(t, http.MethodPost, ns.Path("/batches/"+m.BatchID+"/cancel"), nil)
				require.Equal(t, http.StatusConflict, again.Status)
			}
			require.Empty(t, tasks(t, ns, "state=DELAYED"), "its key was free at once")
			require.Empty(t, x.Starts())
		}},
		{"A1 moved and run now, near and far", func(t *testing.T, ns *axtest.Namespace) {
			x := ns.App("app").Worker(axtest.Succeed)
			job := ns.Job(axtest.Def{"concurrency": allow})
			for i, span := range []string{"1m", "48h"} {
				key := fmt.Sprint("k", i)
				m := delay(t, ns, job, map[string]any{"delay": span, "key": key, "payload": "p" + key})
				var moved, run made
				ns.Client.Do(t, http.MethodPost, ns.Path("/delayed/"+m.BatchID+"/reschedule"), map[string]any{"delay": "3h"}).Into(t, &moved)
				require.NotEqual(t, m.BatchID, moved.BatchID)
				old := ns.Batch(m.BatchID)
				require.Equal(t, "CANCELLED", old.State)
				require.Equal(t, "rescheduled", old.Code())
				a := ns.Client.Do(t, http.MethodPost, ns.Path("/jobs/"+job+"/delayed"), map[string]any{"delay": "1h", "key": key})
				require.Equal(t, http.StatusConflict, a.Status, "the key went along")
				require.Contains(t, a.Text(), moved.BatchID)
				ns.Client.Do(t, http.MethodPost, ns.Path("/delayed/"+moved.BatchID+"/run"), nil).Into(t, &run)
				require.Equal(t, "SUCCEEDED", ns.Ended(run.BatchID).State)
				require.Equal(t, []string{`"pk` + fmt.Sprint(i) + `"`}, events(x)[run.BatchID])
				late := ns.Client.Do(t, http.MethodPost, ns.Path("/delayed/"+run.BatchID+"/reschedule"), map[string]any{"delay": "1h"})
				require.Equal(t, http.StatusConflict, late.Status, "it has run")
			}
			require.Len(t, x.Starts(), 2)
		}},
		{"A5 listed in pages, by state and by time", func(t *testing.T, ns *axtest.Namespace) {
			ns.App("app")
			job := ns.Job(axtest.Def{"concurrency": allow})
			base := time.Now().Add(5 * time.Minute).Truncate(time.Second)
			var bulk []map[string]any
			for i := range 40 {
				at := base.Add(time.Duration(i/2) * time.Minute) // half of them near, in pairs at one instant
				bulk = append(bulk, map[string]any{"runAt": at.Format(time.RFC3339), "payload": i})
			}
			var answer struct {
				Items []made `json:"items"`
			}
			ns.Client.Do(t, http.MethodPost, ns.Path("/jobs/"+job+"/delayed/bulk"), bulk).Into(t, &answer)
			want := map[string]bool{}
			for _, m := range answer.Items {
				require.Equal(t, "created", m.Status)
				want[m.BatchID] = true
			}
			require.Len(t, want, 40)
			list := tasks(t, ns, "state=DELAYED")
			require.Len(t, list, 40)
			resting := 0
			for i, one := range list {
				require.True(t, want[one.BatchID])
				delete(want, one.BatchID)
				require.False(t, i > 0 && one.DueAt.Before(list[i-1].DueAt), "nearest first")
				if one.Resting {
					resting++
				}
			}
			require.Positive(t, resting)
			require.Less(t, resting, 40)
			from, to := base.Add(10*time.Minute).UTC().Format(time.RFC3339), base.Add(12*time.Minute).UTC().Format(time.RFC3339)
			require.Len(t, tasks(t, ns, "from="+from+"&to="+to), 4)
			require.Empty(t, tasks(t, ns, "state=RUNNING"))
		}},
		{"bad input is refused with the field", func(t *testing.T, ns *axtest.Namespace) {
			ns.App("app")
			job := ns.Job(axtest.Def{})
			for _, c := range []struct {
				body  map[string]any
				field string
			}{
				{map[string]any{}, "delay"},
				{map[string]any{"delay": "1s", "runAt": "2030-01-01T00:00:00Z"}, "delay"},
				{map[string]any{"delay": "-1s"}, "delay"},
				{map[string]any{"delay": "soon"}, "delay"},
				{map[string]any{"delay": "9000h"}, "delay"},
				{map[string]any{"runAt": "tomorrow"}, "runAt"},
				{map[string]any{"runAt": "2999-01-01T00:00:00Z"}, "runAt"},
				{map[string]any{"delay": "1s", "payload": strings.Repeat("x", 70_000)}, "payload"},
				{map[string]any{"delay": "1s", "key": strings.Repeat("键", 256)}, "key"},
				{map[string]any{"delay": "1s", "key": "a\x00b"}, "key"},
				{map[string]any{"delay": "1s", "keyWindow": "-1h"}, "keyWindow"},
			} {
				a := ns.Client.Do(t, http.MethodPost, ns.Path("/jobs/"+job+"/delayed"), c.body)
				require.Equal(t, http.StatusUnprocessableEntity, a.Status, a.Text())
				require.Contains(t, a.Text(), `"field":"`+c.field+`"`)
			}
			var answer struct {
				Items []made `json:"items"`
			}
			ns.Client.Do(t, http.MethodPost, ns.Path("/jobs/"+job+"/delayed/bulk"), []map[string]any{{"delay": "1h"}, {"delay": "x"}, {"delay": "1h", "key": "a"}, {"delay": "1h", "key": "a"}}).Into(t, &answer)
			require.Equal(t, []string{"created", "refused", "created", "exists"}, []string{answer.Items[0].Status, answer.Items[1].Status, answer.Items[2].Status, answer.Items[3].Status})
			require.Equal(t, "[1].delay", answer.Items[1].Errors[0].Field)
			require.Equal(t, answer.Items[2].BatchID, answer.Items[3].BatchID)
			disable(t, ns, job)
			a := ns.Client.Do(t, http.MethodPost, ns.Path("/jobs/"+job+"/delayed"), map[string]any{"delay": "1s"})
			require.Equal(t, http.StatusConflict, a.Status)
			require.Equal(t, "job_disabled", a.Problem(t).Code)
		}},
		{"what was promised waits and is not skipped", func(t *testing.T, ns *axtest.Namespace) {
			x := ns.App("app").Worker(axtest.For(150 * time.Millisecond))
			job := ns.Job(axtest.Def{}) // policy skip, one at a time
			at := time.Now().Add(1500 * time.Millisecond).Format(time.RFC3339Nano)
			var ids []string
			for range 5 {
				ids = append(ids, delay(t, ns, job, map[string]any{"runAt": at}).BatchID)
			}
			for _, id := range ids {
				require.Equal(t, "SUCCEEDED", ns.Ended(id).State)
			}
			require.Equal(t, 1, axtest.Most(x.Starts()), "one at a time all the same")
		}},
		{"a deleted job's tasks are called off, with the reason", func(t *testing.T, ns *axtest.Namespace) {
			x := ns.App("app").Worker(axtest.Succeed)
			job := ns.Job(axtest.Def{"name": "going"})
			far := delay(t, ns, job, map[string]any{"delay": "48h"})
			near := delay(t, ns, job, map[string]any{"delay": "3s"})
			loaded := delay(t, ns, job, map[string]any{"delay": "700s"})
			require.True(t, tasks(t, ns, "state=DELAYED")[2].Resting)
			v := ns.JobView(job)
			a := ns.Client.Do(t, http.MethodDelete, ns.Path(fmt.Sprintf("/jobs/%s?version=%d", job, v.Version)), nil)
			require.Less(t, a.Status, 300, a.Text())
			b := ns.Batch(near.BatchID)
			require.Equal(t, "CANCELLED", b.State)
			require.Equal(t, "job_deleted", b.Code())
			for _, id := range []string{far.BatchID, loaded.BatchID} {
				require.Equal(t, "DELAYED", ns.Batch(id).State, "it is called off when its time comes near")
			}
			require.Empty(t, x.Starts())
		}},
		{"P2 an event runs a job at once, and its body reaches the executor", func(t *testing.T, ns *axtest.Namespace) {
			x := ns.App("app").Worker(axtest.Succeed)
			job := ns.Job(axtest.Def{"triggers": []map[string]any{{"kind": "event"}}, "concurrency": allow})
			send := func(query, body string) axtest.Answer {
				return ns.Client.Do(t, http.MethodPost, "/api/v1/tasks/"+job+"/events"+query, json.RawMessage(body))
			}
			var one, two struct {
				BatchID string `json:"batchId"`
			}
			a := send("?eventId=e1", `{"order": "甲", "n": 1}`)
			require.Equal(t, http.StatusAccepted, a.Status, a.Text())
			a.Into(t, &one)
			send("?eventId=e1", `{"order": "甲", "n": 1}`).Into(t, &two)
			require.Equal(t, one.BatchID, two.BatchID)
			require.Equal(t, http.StatusConflict, send("?eventId=e1", `{"other":1}`).Status)
			require.Equal(t, "SUCCEEDED", ns.Ended(one.BatchID).State)
			require.Equal(t, map[string][]string{one.BatchID: {`{"order":"甲","n":1}`}}, events(x))
			require.Equal(t, "event", x.Starts()[0].Run.Trigger)
			require.Equal(t, http.StatusUnprocessableEntity, send("", `{"x":"`+strings.Repeat("y", 70_000)+`"}`).Status)
			require.Equal(t, http.StatusNotFound, ns.Client.Do(t, http.MethodPost, "/api/v1/tasks/999999/events", json.RawMessage("{}")).Status)
			picky := ns.Job(axtest.Def{"name": "picky", "concurrency": allow, "triggers": []map[string]any{{"kind": "event", "filter": `event.amount > 100.0`}, {"kind": "event", "filter": `event.vip`}}})
			for body, fires := range map[string]bool{`{"amount":101,"vip":false}`: true, `{"amount":5,"vip":true}`: true, `{"amount":5,"vip":false}`: false, `{}`: false, `[]`: false} {
				var sent struct {
					BatchID string `json:"batchId"`
					Fired   bool   `json:"fired"`
					Reason  struct {
						Code   string `json:"code"`
						Detail string `json:"detail"`
					} `json:"reason"`
				}
				c := ns.Client.Do(t, http.MethodPost, "/api/v1/tasks/"+picky+"/events", json.RawMessage(body))
				require.Equal(t, http.StatusAccepted, c.Status, c.Text())
				c.Into(t, &sent)
				require.Equal(t, fires, sent.Fired, body)
				require.Equal(t, fires, sent.BatchID != "", body)
				if !fires {
					require.Equal(t, "event_filtered", sent.Reason.Code)
					require.Equal(t, body == `{"amount":5,"vip":false}`, sent.Reason.Detail == "", "it says why nobody could tell: %s", sent.Reason.Detail)
				}
			}
			require.Len(t, ns.Batches(picky), 2)
			for _, bad := range []map[string]any{{"kind": "event", "filter": "event.amount >"}, {"kind": "event", "filter": "1+1"}, {"kind": "event", "expr": "0 0 * * * ?"}, {"kind": "cron", "expr": "0 0 * * * ?", "filter": "true"}} {
				c := ns.Client.Do(t, http.MethodPost, ns.Path("/jobs"), axtest.Def{"name": "bad", "app": "app", "handler": "work", "triggers": []map[string]any{bad}})
				require.Equal(t, http.StatusUnprocessableEntity, c.Status, c.Text())
				require.Contains(t, c.Text(), `"field":"triggers[0].`)
			}
			plain := ns.Job(axtest.Def{"name": "plain"})
			b := ns.Client.Do(t, http.MethodPost, "/api/v1/tasks/"+plain+"/events", json.RawMessage("{}"))
			require.Equal(t, http.StatusConflict, b.Status)
			require.Equal(t, "no_event_trigger", b.Problem(t).Code)
			disable(t, ns, job)
			require.Equal(t, "job_disabled", send("", "{}").Problem(t).Code)
		}},
	}
	axtest.Both(t, func(t *testing.T, o ...axtest.Option) {
		s := axtest.Start(t, o...)
		runShared(t, s, cases)
		s.LedgerClean(t)
	})
}

// P5, A15: delayed work survives kill -9, what waits in memory and what rests in its table alike, each
// exactly once and none early; and what does not fit into memory rests too.
func TestDelayedWorkSurvives(t *testing.T) {
	axtest.Both(t, func(t *testing.T, o ...axtest.Option) {
		s := axtest.Start(t, append(o, axtest.Process(), axtest.Set("delayed-in-memory", "100"))...)
		ns := s.Namespace(t)
		app := ns.App("app")
		list := []*axtest.Executor{app.Worker(axtest.Succeed), app.Worker(axtest.Succeed)}
		job := ns.Job(axtest.Def{"concurrency": policy("allow", 0)})
		const n = 600
		start := time.Now().Add(4 * time.Second)
		var bulk []map[string]any
		for i := range n {
			bulk = append(bulk, map[string]any{"runAt": start.Add(time.Duration(i) * 20 * time.Millisecond).Format(time.RFC3339Nano), "payload": strings.Repeat("x", i), "key": fmt.Sprint(i)})
		}
		var answer struct {
			Items []made `json:"items"`
		}
		ns.Client.Do(t, http.MethodPost, ns.Path("/jobs/"+job+"/delayed/bulk"), bulk).Into(t, &answer)
		want := map[string]bool{}
		for _, m := range answer.Items {
			require.Equal(t, "created", m.Status)
			want[m.BatchID] = true
		}
		require.Len(t, want, n)
		axtest.WaitUpTo(t, 20*time.Second, "some have run", func() bool { return len(axtest.Ledger(list...)) > 100 })
		s.Kill()
		s.Again()
		axtest.WaitUpTo(t, time.Minute, "all have run", func() bool { return len(axtest.Ledger(list...)) >= n })
		axtest.WaitUpTo(t, time.Minute, "all have ended", func() bool { return len(tasks(t, ns, "state=SUCCEEDED")) == n })
		axtest.NothingTwice(t, list...)
		for _, x := range axtest.Ledger(list...) {
			require.True(t, want[x.Run.BatchID])
			require.False(t, x.At.Before(time.UnixMilli(x.Run.DueAt).Add(-time.Millisecond)), "early")
		}
		require.Empty(t, tasks(t, ns, "state=DELAYED"))
		s.LedgerClean(t)
	})
}

// A job is deleted after a call has read it and before what the call asks for is written: nothing is made of it.
func TestAJobThatIsDeletedWhileItIsAsked(t *testing.T) {
	t.Parallel()
	s := axtest.Start(t, axtest.Database(storetest.Database(t)))
	ns := s.Namespace(t)
	ns.App("app").Worker(axtest.Succeed)
	db := storetest.SQL(t, s.Config().Database, "")
	t.Cleanup(func() { _ = db.Close() })
	row, err := s.Store().NamespaceByName(t.Context(), ns.Name)
	require.NoError(t, err)
	for what, call := range map[string]func(job string) axtest.Answer{
		"run now": func(job string) axtest.Answer {
			return ns.Client.Do(t, http.MethodPost, ns.Path("/jobs/"+job+"/trigger"), nil)
		},
		"delayed": func(job string) axtest.Answer {
			return ns.Client.Do(t, http.MethodPost, ns.Path("/jobs/"+job+"/delayed"), map[string]any{"delay": "1h"})
		},
		"event": func(job string) axtest.Answer {
			return ns.Client.Do(t, http.MethodPost, "/api/v1/tasks/"+job+"/events", map[string]any{})
		},
	} {
		job := ns.Job(axtest.Def{"name": what, "triggers": []map[string]any{{"kind": "event"}}})
		tx, err := db.BeginTx(t.Context(), nil)
		require.NoError(t, err)
		_, err = tx.ExecContext(t.Context(), "SELECT * FROM bucket_lease WHERE bucket = ? FOR UPDATE", row.Bucket)
		require.NoError(t, err)
		answer := make(chan axtest.Answer, 1)
		go func() { answer <- call(job) }()
		axtest.WaitFor(t, "the call waits for its turn", func() bool {
			var n int
			axtest.Pause(150 * time.Millisecond) // the database refreshes what it tells of transactions only when nobody has asked for 100 ms
			return db.QueryRowContext(t.Context(), "SELECT COUNT(*) FROM information_schema.innodb_trx x JOIN information_schema.processlist p ON p.id = x.trx_mysql_thread_id WHERE x.trx_state = 'LOCK WAIT' AND p.db = DATABASE()").Scan(&n) == nil && n > 0
		})
		_, err = tx.ExecContext(t.Context(), "DELETE FROM job_info WHERE id = "+job)
		require.NoError(t, err)
		require.NoError(t, tx.Commit())
		a := <-answer
		require.Equal(t, http.StatusNotFound, a.Status, "%s: %s", what, a.Text())
		var made int
		require.NoError(t, db.QueryRowContext(t.Context(), "SELECT (SELECT COUNT(*) FROM execution_batch WHERE job_id = ?) + (SELECT COUNT(*) FROM delayed_task WHERE job_id = ?)", job, job).Scan(&made))
		require.Zero(t, made, what)
	}
}
