package ax_test

import (
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/ax-scheduler/ax/sdk/go"
)

// gate is a handler that tells when it starts and waits to be let go.
type gate struct {
	started chan string
	release chan error
	starts  atomic.Int64
}

func newGate() *gate {
	return &gate{started: make(chan string, 100), release: make(chan error, 100)}
}

func (g *gate) add(ex *ax.Executor) {
	ex.Simple("work", func(c *ax.Context) error {
		g.starts.Add(1)
		g.started <- c.ExecutionID()
		select {
		case err := <-g.release:
			return err
		case <-c.Done():
			return context.Cause(c)
		}
	})
}

func same(t *testing.T, what string, got, want any) {
	t.Helper()
	if !reflect.DeepEqual(got, want) {
		t.Fatalf("%s: got %v, want %v", what, got, want)
	}
}

func contains(t *testing.T, what, got, want string) {
	t.Helper()
	if !strings.Contains(got, want) {
		t.Fatalf("%s: %q does not contain %q", what, got, want)
	}
}

func TestRegistersHeartbeatsAndTellsWhatItIs(t *testing.T) {
	t.Parallel()
	s := newScheduler(t)
	p := s.start(nil, func(ex *ax.Executor) {
		ex.Sharding("syncOrders", func(*ax.Context) error { return nil })
		ex.Simple("healthCheck", func(*ax.Context) error { return nil })
	})
	s.until("three heartbeats came", func() bool { return len(s.registers) >= 3 })
	s.mu.Lock()
	m := s.registers[0]
	s.mu.Unlock()
	shape(t, "register", m, golden(t, "register.json"))
	same(t, "handlers", m["handlers"], []any{object{"name": "healthCheck", "kind": "simple"}, object{"name": "syncOrders", "kind": "sharding"}})
	same(t, "slots", m["slots"], 2.0)
	same(t, "labels", m["labels"], object{"zone": "a"})
	same(t, "success lines", strings.Count(p.logs.String(), "register to scheduler success"), 1)
	p.end()
	s.until("the executor has left", func() bool { return s.removed == 1 })
}

// shape compares keys and kinds with a golden; lists by their first element.
func shape(t *testing.T, at string, got, want any) {
	t.Helper()
	switch want := want.(type) {
	case object:
		g, ok := got.(object)
		if !ok {
			t.Fatalf("%s: got %T, want an object", at, got)
		}
		if at != "register.labels" {
			for k := range want {
				if _, ok := g[k]; !ok {
					t.Errorf("%s.%s is missing", at, k)
				}
			}
			for k := range g {
				if _, ok := want[k]; !ok {
					t.Errorf("%s.%s is not in the contract", at, k)
				}
			}
		}
		for k := range want {
			if v, ok := g[k]; ok {
				shape(t, at+"."+k, v, want[k])
			}
		}
	case []any:
		g, ok := got.([]any)
		if !ok {
			t.Fatalf("%s: got %T, want a list", at, got)
		}
		if len(g) > 0 && len(want) > 0 {
			shape(t, at+"[0]", g[0], want[0])
		}
	default:
		if fmt.Sprintf("%T", got) != fmt.Sprintf("%T", want) {
			t.Errorf("%s: got %T, want %T", at, got, want)
		}
	}
}

func TestRunsAnExecutionWithAllThatTheHandlerIsTold(t *testing.T) {
	t.Parallel()
	s := newScheduler(t)
	told := make(chan string, 1)
	s.start(nil, func(ex *ax.Executor) {
		ex.Sharding("syncOrders", func(c *ax.Context) error {
			var p struct{ Day string }
			if err := c.Bind(&p); err != nil {
				return err
			}
			told <- fmt.Sprint(c.BatchID(), " ", c.ExecutionID(), " ", c.ShardingID(), "/", c.ShardingTotal(), " ", c.Attempt(), " ", p.Day, " ",
				c.DueAt().Format(time.RFC3339), " ", c.PlannedFor().Format(time.RFC3339), " ", c.Trigger(), " ", c.Event() == nil, " ", c.JobID(), c.JobName(), " ", c.TraceID())
			c.Message("copied 2481 orders")
			return c.Result(map[string]int{"copied": 2481})
		})
		ex.Simple("healthCheck", ax.Returning(func(c *ax.Context) (string, error) {
			return string(c.Event()), nil
		}))
	})
	m := golden(t, "run.json")
	m["unknownField"] = "ignored"
	m["executions"].([]any)[0].(object)["unknownField"] = 1
	status, reply := s.call(s.addr(), "/ax/executor/run", m)
	same(t, "status", status, 200)
	delete(reply, "ax-time")
	same(t, "answers", reply, object{"answers": []any{object{"executionId": "123", "answer": "accepted"}, object{"executionId": "9007199254740991", "answer": "accepted"}}})
	same(t, "told", receive(t, "the handler", told), "10001-20261130080000 123 0/4 1 yesterday 2026-11-30T08:53:20+08:00 2026-11-30T08:53:20+08:00 cron true 10001order-sync 10001-20261130080000#123")
	r := s.result("123")
	shape(t, "results", r, golden(t, "results.json")["results"].([]any)[0])
	same(t, "state", r["state"], "SUCCEEDED")
	same(t, "message", r["message"], "copied 2481 orders")
	same(t, "result", r["result"], `{"copied":2481}`)
	same(t, "result of the second", s.result("9007199254740991")["result"], `"{\"orderId\":42,\"kind\":\"paid\"}"`)
}

func TestSameAttemptIsNeverStartedTwice(t *testing.T) {
	t.Parallel()
	s := newScheduler(t)
	g := newGate()
	p := s.start(nil, g.add)
	e := execution(t, "1", nil)
	same(t, "first", s.run(e), []string{"accepted"})
	receive(t, "start", g.started)
	same(t, "again", s.run(e), []string{"duplicate"})
	e["fence"] = object{"attempt": 1, "epoch": 9}
	same(t, "with a higher epoch", s.run(e), []string{"duplicate"})
	g.release <- nil
	r := s.result("1")
	same(t, "fence of the result is the latest", r["fence"], object{"attempt": 1.0, "epoch": 9.0})
	s.mu.Lock()
	beats := len(s.registers)
	s.mu.Unlock()
	s.until("the executor knows that it is delivered", func() bool {
		return len(s.registers) > beats && len(s.registers[len(s.registers)-1]["running"].([]any)) == 0
	})
	same(t, "after the end", s.run(e), []string{"duplicate"})
	s.until("the end is reported again", func() bool { return len(s.results) == 2 && s.results[1]["state"] == "SUCCEEDED" })

	next := execution(t, "2", object{"batchId": e["batchId"], "attempt": 2})
	same(t, "next attempt", s.run(next), []string{"accepted"})
	receive(t, "start", g.started)
	same(t, "old attempt", s.run(e), []string{"stale"})
	g.release <- errors.New("no luck")
	same(t, "state", s.result("2")["state"], "FAILED")
	same(t, "failed one again", s.run(next), []string{"duplicate"})
	p.end()
	same(t, "starts", g.starts.Load(), int64(2))
}

func TestOneMessageWithManyIsAnsweredOneByOne(t *testing.T) {
	t.Parallel()
	s := newScheduler(t)
	g := newGate()
	s.start(nil, g.add) // 2 workers, queue of 2
	list := []object{execution(t, "1", nil), execution(t, "2", object{"handler": "nobody"})}
	for i := 3; i < 8; i++ {
		list = append(list, execution(t, fmt.Sprint(i), nil))
	}
	list = append(list, execution(t, "9", object{"batchId": list[0]["batchId"]}))
	same(t, "answers", s.run(list...), []string{"accepted", "no_handler", "accepted", "accepted", "accepted", "full", "full", "duplicate"})
	receive(t, "start", g.started)
	receive(t, "start", g.started)
	same(t, "full is not remembered", s.run(list[5]), []string{"full"})
	g.release <- nil
	receive(t, "start", g.started)
	same(t, "room again", s.run(list[5]), []string{"accepted"})
	s.until("the heartbeat lists what is here", func() bool {
		running := s.registers[len(s.registers)-1]["running"].([]any)
		waiting := 0
		for _, r := range running {
			if r.(object)["ranMs"] == -1.0 {
				waiting++
			}
		}
		return len(running) == 4 && waiting == 2
	})
	for range 4 {
		g.release <- nil
	}
}

func TestAttemptsOfOneShardDoNotOverlap(t *testing.T) {
	t.Parallel()
	s := newScheduler(t)
	g := newGate()
	letGo := make(chan struct{})
	var running, most atomic.Int64
	s.start(nil, func(ex *ax.Executor) {
		g.add(ex)
		ex.Simple("stubborn", func(c *ax.Context) error {
			most.Store(max(most.Load(), running.Add(1)))
			defer running.Add(-1)
			g.started <- c.ExecutionID()
			if c.Attempt() == 1 {
				<-letGo // does not honour its cancellation
			}
			return nil
		})
	})
	first := execution(t, "1", object{"handler": "stubborn"})
	s.run(first)
	receive(t, "start", g.started)
	same(t, "second attempt", s.run(execution(t, "2", object{"handler": "stubborn", "batchId": first["batchId"], "attempt": 2})), []string{"accepted"})
	s.run(execution(t, "3", nil))
	same(t, "another shard passes by", receive(t, "start", g.started), "3")
	close(letGo)
	same(t, "then the second attempt", receive(t, "start", g.started), "2")
	same(t, "first", s.result("1")["state"], "CANCELLED")
	same(t, "second", s.result("2")["state"], "SUCCEEDED")
	same(t, "at once", most.Load(), int64(1))
	g.release <- nil
}

func TestKill(t *testing.T) {
	t.Parallel()
	s := newScheduler(t)
	g := newGate()
	cause := make(chan error, 1)
	s.start(func(o *ax.Options) { o.Workers = 1 }, func(ex *ax.Executor) {
		ex.Simple("work", func(c *ax.Context) error {
			g.started <- c.ExecutionID()
			<-c.Done()
			cause <- context.Cause(c)
			return nil // even so it was stopped
		})
	})
	a, b, c := execution(t, "1", nil), execution(t, "2", nil), execution(t, "3", nil)
	s.run(a, b)
	receive(t, "start", g.started)
	same(t, "waiting one", s.kill(b), "asked")
	same(t, "its state", s.result("2")["state"], "CANCELLED")
	same(t, "unknown one", s.kill(c), "unknown")
	same(t, "running one", s.kill(a), "asked")
	if err := receive(t, "cause", cause); !errors.Is(err, ax.ErrKilled) {
		t.Fatalf("cause: %v", err)
	}
	r := s.result("1")
	same(t, "its state", r["state"], "CANCELLED")
	contains(t, "message", r["message"].(string), "stopped by a test")

	s.run(c)
	receive(t, "start", g.started)
	s.set(func() { s.stopNext = []object{{"batchId": c["batchId"], "executionId": "3"}} })
	same(t, "stopped by the heartbeat", s.result("3")["state"], "CANCELLED")
}

func TestTimeLimit(t *testing.T) {
	t.Parallel()
	s := newScheduler(t)
	cause := make(chan error, 3)
	s.start(nil, func(ex *ax.Executor) {
		ex.Simple("work", func(c *ax.Context) error {
			<-c.Done()
			cause <- context.Cause(c)
			return c.Err()
		})
		ex.Simple("longer", func(c *ax.Context) error {
			before, _ := c.Deadline()
			if err := c.Extend(time.Hour); err != nil {
				return err
			}
			after, _ := c.Deadline()
			if after.Sub(before) != time.Hour {
				return fmt.Errorf("moved by %s", after.Sub(before))
			}
			return nil
		})
	})
	s.run(execution(t, "1", object{"timeoutMs": 50}))
	err := receive(t, "cause", cause)
	if !errors.Is(err, ax.ErrTimedOut) || !errors.Is(err, context.DeadlineExceeded) {
		t.Fatalf("cause: %v", err)
	}
	r := s.result("1")
	same(t, "state", r["state"], "TIMED_OUT")
	if r["durationMs"].(float64) < 50 {
		t.Fatalf("ended after %v ms", r["durationMs"])
	}
	s.run(execution(t, "2", object{"timeoutMs": 60000, "handler": "longer"}))
	r = s.result("2")
	same(t, "extended: "+r["message"].(string), r["state"], "SUCCEEDED")
	s.mu.Lock()
	defer s.mu.Unlock()
	shape(t, "lease", s.leases[0], golden(t, "lease.json")["executions"].([]any)[0])
}

func TestHandlersThatGoWrong(t *testing.T) {
	t.Parallel()
	s := newScheduler(t)
	s.start(func(o *ax.Options) { o.Queue = 10 }, func(ex *ax.Executor) {
		ex.Simple("panics", func(c *ax.Context) error { _ = make([]int, 0)[c.Attempt()]; return nil })
		ex.Simple("final", func(*ax.Context) error {
			return ax.Code("ACCOUNT", fmt.Errorf("step 2: %w", ax.NoRetry(errors.New("bad account"))))
		})
		ex.Simple("binds", func(c *ax.Context) error {
			var p struct {
				PauseMs int `json:"pauseMs"`
			}
			return c.Bind(&p)
		})
		ex.Simple("long", func(c *ax.Context) error {
			_ = c.Result(strings.Repeat("x", 70000))
			return errors.New(strings.Repeat("é", 3000))
		})
	})
	s.run(execution(t, "1", object{"handler": "panics"}), execution(t, "2", object{"handler": "final"}),
		execution(t, "3", object{"handler": "binds", "params": `{"pauseMs":"slow"}`}), execution(t, "4", object{"handler": "binds", "params": `{"pauseMs":`}),
		execution(t, "5", object{"handler": "long"}))
	r := s.result("1")
	same(t, "panic", r["state"], "FAILED")
	contains(t, "message", r["message"].(string), "panic: runtime error: index out of range [1] with length 0")
	s.until("the stack is in the output", func() bool { return strings.Contains(s.text("1"), "executor_test.go:") })
	r = s.result("2")
	same(t, "final", []any{r["state"], r["noRetry"], r["message"], r["code"]}, []any{"FAILED", true, "step 2: bad account", "ACCOUNT"})
	r = s.result("3")
	same(t, "wrong kind", []any{r["noRetry"], r["message"]}, []any{true, "params of job order-sync: field pauseMs wants int, not a string"})
	contains(t, "no JSON", s.result("4")["message"].(string), "not JSON at byte 11")
	r = s.result("5")
	if m, v := r["message"].(string), r["result"].(string); len(m) > 4096 || len(v) > 65536 || !strings.Contains(m, "[cut from 6000 bytes]") || !strings.Contains(v, "[cut from 70002 bytes]") {
		t.Fatalf("message of %d, result of %d bytes", len(m), len(v))
	}
}

func TestResultsSurviveTheProcessAndLostReplies(t *testing.T) {
	t.Parallel()
	s := newScheduler(t)
	dir := t.TempDir()
	in := func(o *ax.Options) { o.Dir, o.DrainTimeout = dir, 100*time.Millisecond }
	quick := func(ex *ax.Executor) {
		ex.Simple("work", ax.Returning(func(*ax.Context) (int, error) { return 42, nil }))
	}
	tried := make(chan struct{}, 100)
	s.fault = func(path string, _ object) (int, string) {
		if path == "/ax/results" {
			tried <- struct{}{}
			return 503, "unavailable"
		}
		return 0, ""
	}
	p := s.start(in, quick)
	e := execution(t, "1", nil)
	s.run(e)
	receive(t, "the first try", tried)
	receive(t, "the second try", tried)
	s.until("the heartbeat lists it", func() bool { return len(s.registers[len(s.registers)-1]["running"].([]any)) == 1 })
	p.end()
	contains(t, "log", p.logs.String(), "results are left for the next start")

	lost := 0
	s.set(func() {
		s.fault = func(path string, _ object) (int, string) {
			if path == "/ax/results" && lost < 2 {
				lost++
				return -1, "" // recorded, but the reply is lost
			}
			return 0, ""
		}
	})
	q := s.start(in, quick)
	r := s.result("1")
	same(t, "the result", []any{r["state"], r["result"]}, []any{"SUCCEEDED", "42"})
	s.until("it is repeated until the reply comes", func() bool { return len(s.results) == 3 })
	s.until("nothing is left", func() bool { return len(s.registers[len(s.registers)-1]["running"].([]any)) == 0 })
	same(t, "duplicate of an earlier process", s.run(e), []string{"duplicate"})
	s.until("its state is known", func() bool { return len(s.results) == 4 && s.results[3]["state"] == "SUCCEEDED" })
	q.end()
}

func TestForgedAndMisdirectedMessagesAreRefused(t *testing.T) {
	t.Parallel()
	s := newScheduler(t)
	g := newGate()
	p := s.start(nil, g.add)
	good := func() *message {
		return s.message(s.addr(), "/ax/executor/run", object{"type": "run", "namespace": "default", "app": "order-service", "instance": "17", "executions": []object{execution(t, "1", nil)}})
	}
	for name, c := range map[string]struct {
		spoil  func(m *message)
		status int
		code   string
	}{
		"a byte of the body flipped": {func(m *message) { m.body[30] ^= 1 }, 401, "bad_signature"},
		"another id":                 {func(m *message) { m.head.Set("webhook-id", "other") }, 401, "bad_signature"},
		"another timestamp": {func(m *message) {
			m.head.Set("webhook-timestamp", fmt.Sprint(time.Now().Unix()-7))
		}, 401, "bad_signature"},
		"no signature":   {func(m *message) { m.head.Del("webhook-signature") }, 401, "bad_signature"},
		"302 s behind":   {func(m *message) { s.resign(m, "late-message", time.Now().Add(-302*time.Second)) }, 401, "bad_clock"},
		"302 s ahead":    {func(m *message) { s.resign(m, "early-message", time.Now().Add(302*time.Second)) }, 401, "bad_clock"},
		"id of 65 bytes": {func(m *message) { s.resign(m, strings.Repeat("i", 65), time.Now()) }, 401, "bad_signature"},
		"id with a dot":  {func(m *message) { s.resign(m, "message.id", time.Now()) }, 401, "bad_signature"},
		"a kill at run":  {func(m *message) { *m = *s.message(s.addr(), "/ax/executor/run", golden(t, "kill.json")) }, 400, "bad_request"},
		"another app": {func(m *message) {
			*m = *s.message(s.addr(), "/ax/executor/run", with(golden(t, "run.json"), "app", "x"))
		}, 403, "wrong_app"},
		"another instance": {func(m *message) {
			*m = *s.message(s.addr(), "/ax/executor/run", with(golden(t, "run.json"), "instance", "18"))
		}, 403, "wrong_instance"},
		"no JSON":         {func(m *message) { *m = *s.message(s.addr(), "/ax/executor/run", []byte("{")) }, 400, "bad_request"},
		"more than 1 MiB": {func(m *message) { *m = *s.message(s.addr(), "/ax/executor/run", make([]byte, 1<<20+1)) }, 413, "too_large"},
		"shard 4 of 4":    {func(m *message) { m.body = nil; *m = *s.badShard(t) }, 400, "bad_request"},
		"probe without nonce": {func(m *message) {
			*m = *s.message(s.addr(), "/ax/executor/probe", with(golden(t, "probe.json"), "nonce", ""))
		}, 400, "bad_request"},
	} {
		m := good()
		c.spoil(m)
		status, reply := s.send(m)
		if status != c.status || reply["code"] != c.code {
			t.Errorf("%s: got %d %v, want %d %s", name, status, reply, c.status, c.code)
		}
		if c.status == 401 && reply["ax-time"] == "" {
			t.Errorf("%s: no ax-time", name)
		}
	}
	for _, path := range []string{"run", "kill", "probe", "unregister"} {
		for _, kind := range []string{"run", "kill", "probe", "unregister", "register", "results", "log", "lease", "remove"} {
			if kind == path {
				continue
			}
			if status, _ := s.call(s.addr(), "/ax/executor/"+path, golden(t, kind+".json")); status != 400 {
				t.Errorf("a %s at %s: %d", kind, path, status)
			}
		}
	}
	m := good()
	status, _ := s.send(m)
	same(t, "the good one", status, 200)
	status, reply := s.send(m)
	same(t, "the very same again", []any{status, reply["code"]}, []any{401, "replayed"})
	receive(t, "start", g.started)
	g.release <- nil
	s.result("1")
	p.end()
	same(t, "starts", g.starts.Load(), int64(1))
}

func with(m object, k string, v any) object {
	m[k] = v
	return m
}

func (s *scheduler) badShard(t *testing.T) *message {
	t.Helper()
	m := golden(t, "run.json")
	m["executions"].([]any)[0].(object)["shardingId"] = 4
	return s.message(s.addr(), "/ax/executor/run", m)
}

func TestGetAndUnknownPathsAreRefused(t *testing.T) {
	t.Parallel()
	s := newScheduler(t)
	s.start(nil, newGate().add)
	for path, want := range map[string]int{"/ax/executor/run": 405, "/": 404, "/ax/executor/": 404} {
		res, err := http.Get(s.addr() + path)
		if err != nil {
			t.Fatal(err)
		}
		res.Body.Close()
		same(t, path, res.StatusCode, want)
	}
}

func TestHostClockIsCorrected(t *testing.T) {
	t.Parallel()
	s := newScheduler(t)
	s.clock = 3 * time.Hour
	g := newGate()
	p := s.start(nil, g.add)
	contains(t, "log", p.logs.String(), "host clock is off")
	same(t, "run under the server's clock", s.run(execution(t, "1", nil)), []string{"accepted"})
	g.release <- nil
	same(t, "state", s.result("1")["state"], "SUCCEEDED")
}

func TestRepliesThatAreNotTheServersAreNotBelieved(t *testing.T) {
	t.Parallel()
	forger := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		_, _ = w.Write([]byte(`{"state":"ONLINE","instance":"17"}`))
	}))
	defer forger.Close()
	s := newScheduler(t)
	p := s.start(func(o *ax.Options) { o.Server = forger.URL + "," + s.srv.URL }, newGate().add)
	p.end()

	q := s.launch(func(o *ax.Options) { o.Server = forger.URL }, newGate().add)
	q.logs.until(t, "is not signed with this app's key")
	q.end()
	if strings.Contains(q.logs.String(), "register to scheduler success") {
		t.Fatal("registered with a forger")
	}
}

func TestOwnerIsFollowedAndLeftWhenSilent(t *testing.T) {
	t.Parallel()
	s := newScheduler(t)
	other := newScheduler(t)
	other.set(func() { other.online = true })
	s.set(func() { s.owner = other.srv.URL })
	g := newGate()
	p := s.launch(nil, g.add)
	other.until("the owner gets heartbeats", func() bool { return len(other.registers) > 0 })
	n := 0
	s.set(func() { n = len(s.registers); s.owner = "" })
	other.srv.CloseClientConnections()
	other.srv.Close()
	s.until("it falls back", func() bool { return len(s.registers) > n })
	p.end()
}

// A server that can not now is no reason to wait while another can; an owner that does not answer is left alone
// although the others go on naming it.
func TestAnotherServerIsAskedWhenOneCanNot(t *testing.T) {
	t.Parallel()
	s, other := newScheduler(t), newScheduler(t)
	s.set(func() {
		s.fault = func(string, object) (int, string) { return 503, "unavailable" }
	})
	asked := 0
	dead := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {
		asked++
		panic(http.ErrAbortHandler)
	}))
	defer dead.Close()
	other.set(func() { other.online, other.owner = true, dead.URL })
	p := s.launch(func(o *ax.Options) { o.Server = s.srv.URL + "," + other.srv.URL }, newGate().add)
	other.until("the other gets heartbeats", func() bool { return len(other.registers) > 2 })
	p.end()
	same(t, "requests to the owner that does not answer", asked, 1)
}

func TestRefusedIsSaidWithTheReason(t *testing.T) {
	t.Parallel()
	s := newScheduler(t)
	s.refuse = "connection refused"
	p := s.launch(nil, newGate().add)
	s.until("two heartbeats came", func() bool { return len(s.registers) >= 2 })
	p.end()
	contains(t, "log", p.logs.String(), "connection refused")
	contains(t, "log", p.logs.String(), "Options.Address")
	same(t, "lines", strings.Count(p.logs.String(), "server refuses this executor"), 1)
}

func TestWrongKeyIsSaidOnce(t *testing.T) {
	t.Parallel()
	s := newScheduler(t)
	wrong := "axk_" + strings.Repeat("ab", 32)
	p := s.launch(func(o *ax.Options) { o.Key = wrong }, newGate().add)
	p.logs.until(t, "current key of app order-service in namespace default")
	p.end()
	if strings.Contains(p.logs.String(), wrong) {
		t.Fatal("the key is in the log")
	}
}

func TestLeavingFinishesWhatRunsAndHandsBackTheRest(t *testing.T) {
	t.Parallel()
	for _, how := range []string{"context", "curl", "signed"} {
		t.Run(how, func(t *testing.T) {
			t.Parallel()
			s := newScheduler(t)
			g := newGate()
			p := s.start(func(o *ax.Options) { o.Workers = 1 }, g.add)
			a, b, c := execution(t, "1", nil), execution(t, "2", nil), execution(t, "3", nil)
			s.run(a, b)
			receive(t, "start", g.started)
			switch how {
			case "context":
				p.stop()
			case "curl":
				req, _ := http.NewRequest("POST", s.addr()+"/ax/executor/unregister", nil)
				req.Header.Set("Origin", "http://evil.example")
				res, err := http.DefaultClient.Do(req)
				if err != nil || res.StatusCode != 401 {
					t.Fatal("a page in a browser could unregister", err, res.StatusCode)
				}
				res.Body.Close()
				res, err = http.Post(s.addr()+"/ax/executor/unregister", "", nil)
				if err != nil || res.StatusCode != 200 {
					t.Fatal(err, res.StatusCode)
				}
				res.Body.Close()
			case "signed":
				status, _ := s.call(s.addr(), "/ax/executor/unregister", golden(t, "unregister.json"))
				same(t, "status", status, 200)
			}
			s.until("the server knows", func() bool { return s.removed == 1 })
			same(t, "handed back", s.result("2")["state"], "REJECTED")
			same(t, "new work and repeated work", s.run(c, a), []string{"draining", "duplicate"})
			g.release <- nil
			same(t, "what ran", s.result("1")["state"], "SUCCEEDED")
			same(t, "Run", receive(t, "Run", p.done), nil)
			p.once.Do(p.stop)
			same(t, "starts", g.starts.Load(), int64(1))
		})
	}
}

func TestRejectedWorkMayComeBackUnderAnotherId(t *testing.T) {
	t.Parallel()
	s := newScheduler(t)
	dir := t.TempDir()
	g := newGate()
	p := s.start(func(o *ax.Options) { o.Workers, o.Dir = 1, dir }, g.add)
	a, b := execution(t, "1", nil), execution(t, "2", nil)
	s.run(a, b)
	receive(t, "start", g.started)
	p.stop()
	same(t, "handed back", s.result("2")["state"], "REJECTED")
	g.release <- nil
	p.end()
	s.start(func(o *ax.Options) { o.Dir = dir }, g.add)
	same(t, "the same id", s.run(b), []string{"duplicate"})
	again := execution(t, "3", object{"batchId": b["batchId"]})
	same(t, "another id", s.run(again), []string{"accepted"})
	receive(t, "start", g.started)
	same(t, "and its repetition", s.run(again), []string{"duplicate"})
	g.release <- nil
	same(t, "state", s.result("3")["state"], "SUCCEEDED")
}

func TestDrainTimeoutCancelsHandlers(t *testing.T) {
	t.Parallel()
	s := newScheduler(t)
	g := newGate()
	cause := make(chan error, 1)
	p := s.start(func(o *ax.Options) { o.DrainTimeout = time.Second }, func(ex *ax.Executor) {
		ex.Simple("work", func(c *ax.Context) error {
			g.started <- ""
			<-c.Done()
			cause <- context.Cause(c)
			return nil
		})
	})
	s.run(execution(t, "1", nil))
	receive(t, "start", g.started)
	p.end()
	if err := receive(t, "cause", cause); !errors.Is(err, ax.ErrShutdown) {
		t.Fatal(err)
	}
	same(t, "state", s.result("1")["state"], "FAILED")
}

func TestOutputArrivesWholeAndInOrder(t *testing.T) {
	t.Parallel()
	s := newScheduler(t)
	const lines = 3000
	n := 0
	s.fault = func(path string, _ object) (int, string) {
		if path != "/ax/log" {
			return 0, ""
		}
		n++
		switch n % 4 {
		case 1:
			return 503, "unavailable"
		case 2:
			return -1, "" // stored, the reply is lost
		}
		return 0, ""
	}
	s.start(nil, func(ex *ax.Executor) {
		ex.Simple("work", func(c *ax.Context) error {
			for i := range lines {
				c.Logf("line %d of a rather long text, so that several chunks are needed", i)
			}
			fmt.Fprint(c.Output(), "two\nlines\n")
			c.Progress(100)
			return nil
		})
	})
	s.run(execution(t, "1", nil))
	var want strings.Builder
	for i := range lines {
		fmt.Fprintf(&want, "line %d of a rather long text, so that several chunks are needed\n", i)
	}
	want.WriteString("two\nlines\n")
	s.until("all is there", func() bool { return len(s.text("1")) >= want.Len() })
	s.mu.Lock()
	defer s.mu.Unlock()
	same(t, "text", s.text("1") == want.String(), true)
	last := s.output["1"][len(s.output["1"])-1]
	shape(t, "log", last, golden(t, "log.json")["chunks"].([]any)[0])
	for _, c := range s.output["1"] {
		if len(c["text"].(string)) > 32<<10 {
			t.Fatal("a chunk is too long")
		}
	}
	same(t, "progress", slices.ContainsFunc(s.output["1"], func(c object) bool { return c["progress"] == 100.0 }), true)
}

func TestTooMuchOutputIsCutAndSaysSo(t *testing.T) {
	t.Parallel()
	s := newScheduler(t)
	block := true
	s.fault = func(path string, _ object) (int, string) {
		if path == "/ax/log" && block {
			return 503, "unavailable"
		}
		return 0, ""
	}
	s.start(nil, func(ex *ax.Executor) {
		ex.Simple("work", func(c *ax.Context) error {
			line := strings.Repeat("x", 1000)
			for range 1000 {
				c.Log(line)
			}
			c.Log(strings.Repeat("y", 100000))
			return nil
		})
	})
	s.run(execution(t, "1", nil))
	s.result("1")
	s.set(func() { block = false })
	s.until("the mark arrives", func() bool { return strings.Contains(s.text("1"), "are missing here") })
	s.set(func() {
		if n := len(s.text("1")); n > 300<<10 {
			t.Errorf("%d bytes", n)
		}
	})
}

func TestServerAwayAtStartAndInBetween(t *testing.T) {
	t.Parallel()
	s := newScheduler(t)
	away := true
	s.fault = func(string, object) (int, string) {
		if away {
			return 503, "unavailable"
		}
		return 0, ""
	}
	g := newGate()
	p := s.launch(nil, g.add)
	p.logs.until(t, "call to scheduler did not succeed")
	s.set(func() { away = false })
	s.until("it is online", func() bool { return s.online })
	s.run(execution(t, "1", nil))
	receive(t, "start", g.started)
	s.set(func() { away = true })
	g.release <- nil
	s.set(func() { away = false })
	same(t, "state", s.result("1")["state"], "SUCCEEDED")
}

func TestInstanceChange(t *testing.T) {
	t.Parallel()
	s := newScheduler(t)
	g := newGate()
	s.start(nil, g.add)
	s.run(execution(t, "1", nil))
	receive(t, "start", g.started)
	s.set(func() { s.instance = "18" })
	g.release <- nil
	same(t, "the result comes under the new instance", s.result("1")["state"], "SUCCEEDED")
}

func TestOptionsSayWhatIsWrong(t *testing.T) {
	t.Parallel()
	good := ax.Options{Server: "http://127.0.0.1:8081", App: "order-service", Key: testKey}
	for want, change := range map[string]func(o *ax.Options){
		"Options.Key: is missing":            func(o *ax.Options) { o.Key = "" },
		"64 hexadecimal digits":              func(o *ax.Options) { o.Key = "axk_123" },
		"other characters":                   func(o *ax.Options) { o.Key = "axk_" + strings.Repeat("g", 64) },
		"Options.App: is missing":            func(o *ax.Options) { o.App = "" },
		"is no name":                         func(o *ax.Options) { o.App = "a/b" },
		"Options.Server: is missing":         func(o *ax.Options) { o.Server = " , " },
		"does not begin with http":           func(o *ax.Options) { o.Server = "ftp://x" },
		"Options.Listen":                     func(o *ax.Options) { o.Listen = "9801" },
		"has no port from 0":                 func(o *ax.Options) { o.Listen = ":99999" },
		"needs a port":                       func(o *ax.Options) { o.Address = "http://10.0.0.7" },
		"has a path":                         func(o *ax.Options) { o.Address = "http://10.0.0.7:9801/x" },
		"not an address that a server can":   func(o *ax.Options) { o.Address = "http://0.0.0.0:9801" },
		"more than scheme":                   func(o *ax.Options) { o.Address = "http://me:secret@10.0.0.7:9801" },
		"Options.Workers: -1":                func(o *ax.Options) { o.Workers = -1 },
		"Options.Queue: 5000":                func(o *ax.Options) { o.Queue = 5000 },
		"Options.DrainTimeout: -1s":          func(o *ax.Options) { o.DrainTimeout = -time.Second },
		"a label has a name":                 func(o *ax.Options) { o.Labels = map[string]string{"": "x"} },
		"Options.Namespace: \"ein Raum\" is": func(o *ax.Options) { o.Namespace = "ein Raum" },
	} {
		o := good
		change(&o)
		_, err := ax.New(o)
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: got %v", want, err)
		}
		if err != nil && (strings.Contains(err.Error(), "secret") || strings.Contains(err.Error(), "axk_123")) {
			t.Errorf("a secret is in the error: %v", err)
		}
	}
	var v struct {
		BadKeys []struct{ Key, Reason string } `json:"badKeys"`
	}
	raw, err := os.ReadFile(filepath.Join("..", "contract", "signatures.json"))
	if err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal(raw, &v); err != nil || len(v.BadKeys) == 0 {
		t.Fatal(err)
	}
	for _, k := range v.BadKeys {
		o := good
		o.Key = k.Key
		if _, err := ax.New(o); err == nil {
			t.Errorf("key accepted: %s", k.Reason)
		}
	}
}

func TestRunRefusesWhatCanNotWork(t *testing.T) {
	t.Parallel()
	s := newScheduler(t)
	dir := t.TempDir()
	nothing := func(*ax.Context) error { return nil }
	build := func() *ax.Executor {
		ex, err := ax.New(ax.Options{Server: s.srv.URL, App: "order-service", Key: testKey, Dir: dir})
		if err != nil {
			t.Fatal(err)
		}
		return ex
	}
	ex := build()
	if err := ex.Run(t.Context()); err == nil || !strings.Contains(err.Error(), "no handlers") {
		t.Fatal(err)
	}
	if err := ex.Run(t.Context()); err == nil || !strings.Contains(err.Error(), "twice") {
		t.Fatal(err)
	}
	ex = build()
	ex.Simple("a", nothing)
	ex.Sharding("a", nothing)
	ex.Simple("b", nil)
	if err := ex.Run(t.Context()); err == nil || !strings.Contains(err.Error(), `"a" is there twice`) || !strings.Contains(err.Error(), `"b" is nil`) {
		t.Fatal(err)
	}
	s.start(func(o *ax.Options) { o.Dir = dir }, newGate().add)
	ex = build()
	ex.Simple("a", nothing)
	if err := ex.Run(t.Context()); err == nil || !strings.Contains(err.Error(), "another executor uses it") {
		t.Fatal(err)
	}
}

func TestWhatACrashCutOffIsReportedAndNotStartedAgain(t *testing.T) {
	t.Parallel()
	s := newScheduler(t)
	dir := t.TempDir()
	g := newGate()
	p := s.start(func(o *ax.Options) { o.Dir = dir }, g.add)
	a := execution(t, "1", nil)
	same(t, "answer", s.run(a), []string{"accepted"})
	receive(t, "start", g.started)
	// What is on the disk at this moment is what a killed process leaves.
	crashed := t.TempDir()
	if err := os.CopyFS(crashed, os.DirFS(dir)); err != nil {
		t.Fatal(err)
	}
	g.release <- nil
	s.result("1")
	p.end()
	s.set(func() { s.results = nil })

	q := s.start(func(o *ax.Options) { o.Dir = crashed }, g.add)
	s.until("a new process has registered", func() bool { return len(s.startIDs) == 2 })
	same(t, "the same attempt", s.run(a), []string{"duplicate"})
	r := s.result("1")
	same(t, "reported", []any{r["state"], r["message"], r["noRetry"]}, []any{"FAILED", "the executor process ended while it ran", false})
	b := execution(t, "2", object{"batchId": a["batchId"], "attempt": 2})
	same(t, "the next attempt", s.run(b), []string{"accepted"})
	receive(t, "start", g.started)
	same(t, "the old attempt", s.run(a), []string{"stale"})
	g.release <- nil
	same(t, "state", s.result("2")["state"], "SUCCEEDED")
	q.end()
	same(t, "starts", g.starts.Load(), int64(2))
}

func TestServesHTTPS(t *testing.T) {
	t.Parallel()
	s := newScheduler(t)
	tlsServer := httptest.NewTLSServer(nil) // for its certificate
	defer tlsServer.Close()
	p := s.launch(func(o *ax.Options) { o.TLS = &tls.Config{Certificates: tlsServer.TLS.Certificates} }, newGate().add)
	s.until("it has registered", func() bool { return s.address != "" })
	address := s.addr()
	if !strings.HasPrefix(address, "https://127.0.0.1:") {
		t.Fatal(address)
	}
	res, err := tlsServer.Client().Post(address+"/ax/executor/probe", "application/json", strings.NewReader("{}"))
	if err != nil {
		t.Fatal(err)
	}
	res.Body.Close()
	same(t, "unsigned probe", res.StatusCode, 401)
	p.end()
}

func TestLeasesAreRenewedWhileLeaving(t *testing.T) {
	t.Parallel()
	s := newScheduler(t)
	s.leaseMs = 1500
	g := newGate()
	p := s.start(nil, g.add)
	s.run(execution(t, "1", nil))
	receive(t, "start", g.started)
	p.stop()
	s.until("the lease is renewed", func() bool { return len(s.leases) > 0 })
	s.mu.Lock()
	beats := len(s.registers)
	s.mu.Unlock()
	s.until("it is renewed again", func() bool { return len(s.leases) > 1 })
	s.set(func() { beats = len(s.registers) - beats })
	same(t, "heartbeats after leaving", beats, 0)
	g.release <- nil
	p.end()
	same(t, "state", s.result("1")["state"], "SUCCEEDED")
}

func TestListensOnAllInterfacesUnderAnAddressThatMeansSomething(t *testing.T) {
	t.Parallel()
	s := newScheduler(t)
	s.start(func(o *ax.Options) { o.Listen = ":0" }, newGate().add)
	if !strings.HasPrefix(s.addr(), "http://127.0.0.1:") {
		t.Fatal(s.addr())
	}
}

// BenchmarkExecutions is the whole way of an execution, the server's side of it included: run
// messages of 100, journal, handler, journal, results.
func BenchmarkExecutions(b *testing.B) {
	s := newScheduler(b)
	ex, err := ax.New(ax.Options{Server: s.srv.URL, App: "order-service", Key: testKey, Dir: b.TempDir(), Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		b.Fatal(err)
	}
	ex.Simple("work", func(*ax.Context) error { return nil })
	ctx, stop := context.WithCancel(b.Context())
	done := make(chan error, 1)
	go func() { done <- ex.Run(ctx) }()
	s.until("it is online", func() bool { return s.online })
	sent := 0
	for b.Loop() {
		var list []object
		for range 100 {
			sent++
			list = append(list, execution(b, fmt.Sprint(sent), nil))
		}
		s.run(list...)
		s.until("most are done", func() bool { return len(s.results) > sent-300 })
	}
	s.until("all are done", func() bool { return len(s.results) == sent })
	b.ReportMetric(float64(sent)/b.Elapsed().Seconds(), "executions/s")
	stop()
	<-done
}
