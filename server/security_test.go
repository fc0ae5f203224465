package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"net"
	"net/http"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/ax-scheduler/ax/server/axtest"
)

// paths are what executors call, with a message of the right type for each.
func paths(ns *axtest.Namespace, x *axtest.Executor) map[string]map[string]any {
	head := func(kind string) map[string]any {
		return map[string]any{"type": kind, "namespace": ns.Name, "app": "app", "instance": x.Instance()}
	}
	with := func(m map[string]any, key string, value any) map[string]any {
		m[key] = value
		return m
	}
	return map[string]map[string]any{
		"/ax/registry":        x.Registration(),
		"/ax/registry/remove": with(head("remove"), "startId", "somebody else's"),
		"/ax/results":         with(head("results"), "results", []any{}),
		"/ax/lease":           with(head("lease"), "executions", []any{}),
		"/ax/log":             with(head("log"), "chunks", []any{}),
	}
}

func code(raw []byte) string {
	var e struct{ Code string }
	_ = json.Unmarshal(raw, &e)
	return e.Code
}

// T-EXE-2 … T-EXE-7: who may speak for an app, and what becomes of everybody else.
func TestExecutorMessages(t *testing.T) {
	t.Parallel()
	s := axtest.Start(t)
	ns := s.Namespace(t)
	x := ns.App("app").Worker(axtest.Succeed)
	before := ns.Executors()
	require.Len(t, before, 1)
	header := func(key, value string) func(*http.Request) {
		return func(r *http.Request) { r.Header.Set(key, value) }
	}
	for path, message := range paths(ns, x) {
		t.Run(path, func(t *testing.T) {
			status, raw := x.Post(path, message)
			if path == "/ax/registry/remove" {
				require.Equal(t, http.StatusForbidden, status, string(raw))
				require.Equal(t, "wrong_instance", code(raw))
			} else {
				require.Equal(t, http.StatusOK, status, string(raw))
			}
			// T-EXE-2: each header changed, and each left out.
			for name, change := range map[string]func(*http.Request){
				"another id":          header("webhook-id", "msg_000000000000"),
				"no id":               func(r *http.Request) { r.Header.Del("webhook-id") },
				"a later time":        header("webhook-timestamp", strconv.FormatInt(time.Now().Unix()+7, 10)),
				"no time":             func(r *http.Request) { r.Header.Del("webhook-timestamp") },
				"a time with a sign":  func(r *http.Request) { r.Header.Set("webhook-timestamp", "+"+r.Header.Get("webhook-timestamp")) },
				"another signature":   header("webhook-signature", "v1,AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA="),
				"an unknown version":  func(r *http.Request) { r.Header.Set("webhook-signature", "v2"+r.Header.Get("webhook-signature")[2:]) },
				"no proof":            func(r *http.Request) { r.Header.Del("ax-proof") },
				"another proof":       header("ax-proof", "v1,AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA="),
				"no signature":        func(r *http.Request) { r.Header.Del("webhook-signature") },
				"an unknown app":      header("ax-app", ns.Name+"/nobody"),
				"an unknown space":    header("ax-app", "nowhere/app"),
				"no app":              func(r *http.Request) { r.Header.Del("ax-app") },
				"half an app":         header("ax-app", "app"),
				"another body":        func(r *http.Request) { r.Body, r.ContentLength = io.NopCloser(strings.NewReader("{}")), 2 },
				"a very long message": header("webhook-signature", strings.Repeat("v1,x ", 1000)),
			} {
				status, raw := x.Post(path, message, change)
				require.Equal(t, http.StatusUnauthorized, status, "%s: %s", name, raw)
				require.Equal(t, "bad_signature", code(raw), name)
			}
			// T-EXE-2: each field of the head changed, rightly signed.
			for field, want := range map[string]struct {
				value  any
				status int
				code   string
			}{
				"type":      {"run", http.StatusBadRequest, "wrong_type"},
				"namespace": {"default", http.StatusForbidden, "wrong_app"},
				"app":       {"other", http.StatusForbidden, "wrong_app"},
			} {
				changed := map[string]any{}
				maps.Copy(changed, message)
				changed[field] = want.value
				status, raw := x.Post(path, changed)
				require.Equal(t, want.status, status, "%s: %s", field, raw)
				require.Equal(t, want.code, code(raw), field)
			}
			// A message of another path is refused on this one.
			for other, m := range paths(ns, x) {
				if other != path {
					status, raw := x.Post(path, m)
					require.Equal(t, http.StatusBadRequest, status, other)
					require.Equal(t, "wrong_type", code(raw), other)
				}
			}
			// T-EXE-3: the same message again.
			var id, stamp, signature, proof string
			_, _ = x.Post(path, message, func(r *http.Request) {
				id, stamp, signature, proof = r.Header.Get("webhook-id"), r.Header.Get("webhook-timestamp"), r.Header.Get("webhook-signature"), r.Header.Get("ax-proof")
			})
			status, raw = x.Post(path, message, header("webhook-id", id), header("webhook-timestamp", stamp), header("webhook-signature", signature), header("ax-proof", proof))
			require.Equal(t, http.StatusUnauthorized, status, string(raw))
			require.Equal(t, "replayed", code(raw))
			// T-EXE-4: clocks.
			body, err := json.Marshal(message)
			require.NoError(t, err)
			for _, off := range []time.Duration{-298 * time.Second, 298 * time.Second} {
				status, raw := x.PostRaw(path, body, time.Now().Add(off))
				require.NotEqual(t, http.StatusUnauthorized, status, "%s: %s", off, raw)
			}
			for _, off := range []time.Duration{-302 * time.Second, 303 * time.Second, -24 * time.Hour} {
				status, raw := x.PostRaw(path, body, time.Now().Add(off))
				require.Equal(t, http.StatusUnauthorized, status, off)
				require.Equal(t, "bad_clock", code(raw), off)
				status, raw = x.PostRaw(path, body, time.Now().Add(off), header("webhook-id", "msg_000000000000"))
				require.Equal(t, http.StatusUnauthorized, status, off)
				require.Equal(t, "bad_signature", code(raw), "only who holds the key hears of clocks")
			}
			// What is no JSON, no UTF-8, or too much.
			for _, raw := range []string{"", "{", "[]", "\xff\xfe{}", `{"type":1}`} {
				status, reply := x.PostRaw(path, []byte(raw), time.Now())
				require.Equal(t, http.StatusBadRequest, status, "%q: %s", raw, reply)
			}
			status, raw = x.PostRaw(path, []byte(`{"type":"`+strings.Repeat("x", 1<<20)+`"}`), time.Now())
			require.Equal(t, http.StatusRequestEntityTooLarge, status, string(raw))
		})
	}
	after := ns.Executors()
	require.Len(t, after, 1)
	require.Equal(t, before[0].ID, after[0].ID)
	require.Equal(t, "ONLINE", after[0].State, "nothing of this changed anything")
	require.NotContains(t, s.Log(), "panicked")
}

// A sender without the key is answered before a byte of his body came, for an app that exists too, and so is one who does
// not say how long it is: nothing is held for him and no time is spent on him.
func TestStrangersAreNotReadFrom(t *testing.T) {
	t.Parallel()
	s := axtest.Start(t)
	ns := s.Namespace(t)
	ns.App("app")
	for _, app := range []string{ns.Name + "/app", ns.Name + "/nobody"} {
		for _, length := range []string{"Content-Length: 900000", "Transfer-Encoding: chunked"} {
			conn, err := net.Dial("tcp", strings.TrimPrefix(s.URL(), "http://"))
			require.NoError(t, err)
			require.NoError(t, conn.SetDeadline(time.Now().Add(axtest.Patience)))
			at := time.Now()
			_, err = fmt.Fprintf(conn, "POST /ax/results HTTP/1.1\r\nHost: ax\r\nax-app: %s\r\nwebhook-id: msg_stranger\r\nwebhook-timestamp: %d\r\nwebhook-signature: v1,AAAA\r\nax-proof: v1,AAAA\r\n%s\r\n\r\n", app, at.Unix(), length)
			require.NoError(t, err)
			head := make([]byte, 64)
			n, err := conn.Read(head)
			require.NoError(t, err)
			require.Regexp(t, `^HTTP/1.1 4(01|11) `, string(head[:n]))
			require.Less(t, time.Since(at), 5*time.Second, "the body was not waited for: reading it would take 10 s")
			require.NoError(t, conn.Close())
		}
	}
}

// T-EXE-7: of an endless body no more than the limit is read.
func TestAnEndlessBodyIsNotRead(t *testing.T) {
	t.Parallel()
	s := axtest.Start(t)
	for _, path := range []string{"/ax/results", "/ax/log", "/ax/registry", "/api/v1/auth/login"} {
		conn, err := net.Dial("tcp", strings.TrimPrefix(s.URL(), "http://"))
		require.NoError(t, err)
		require.NoError(t, conn.SetDeadline(time.Now().Add(30*time.Second)))
		_, err = fmt.Fprintf(conn, "POST %s HTTP/1.1\r\nHost: ax\r\nContent-Type: application/json\r\nax-app: default/app\r\nwebhook-id: msg_endless_body\r\nwebhook-timestamp: 1796000000\r\nwebhook-signature: v1,AAAA\r\nax-proof: v1,AAAA\r\nContent-Length: %d\r\n\r\n", path, 1<<30)
		require.NoError(t, err)
		answered := make(chan string, 1)
		go func() {
			head := make([]byte, 64)
			n, _ := conn.Read(head)
			answered <- string(head[:n])
		}()
		chunk := []byte(strings.Repeat("x", 64<<10))
		sent := 0
		var head string
		for head == "" && sent < 64<<20 {
			select {
			case head = <-answered:
			default:
				n, err := conn.Write(chunk)
				sent += n
				if err != nil {
					head = <-answered
				}
			}
		}
		if strings.HasPrefix(path, "/ax/") {
			require.Contains(t, head, " 401 ", path)
		} else {
			require.Contains(t, head, " 413 ", path)
		}
		require.Less(t, sent, 16<<20, "what the kernels hold included")
		require.NoError(t, conn.Close())
	}
}

// T-EXE-6, EXE-6: the key of one app opens nothing of another's.
func TestAKeyIsForItsAppOnly(t *testing.T) {
	t.Parallel()
	s := axtest.Start(t)
	ns, other := s.Namespace(t), s.Namespace(t)
	a := ns.App("app")
	x := a.Worker(axtest.Succeed)
	b := other.App("app")
	y := b.Worker(axtest.Succeed)
	second := ns.App("second").Worker(axtest.Succeed)
	// The key of A, the name of B.
	for path, message := range paths(other, y) {
		status, raw := x.Post(path, message, func(r *http.Request) { r.Header.Set("ax-app", other.Name+"/app") })
		require.Equal(t, http.StatusUnauthorized, status, path)
		require.Equal(t, "bad_signature", code(raw), path)
		status, raw = x.Post(path, message)
		require.Equal(t, http.StatusForbidden, status, path)
		require.Equal(t, "wrong_app", code(raw), path)
	}
	// Nor can an app sign off another's executor of the same namespace.
	status, raw := second.Post("/ax/registry/remove", map[string]any{"type": "remove", "namespace": ns.Name, "app": "second", "instance": x.Instance(), "startId": x.StartID()})
	require.Equal(t, http.StatusForbidden, status, string(raw))
	require.Equal(t, "wrong_instance", code(raw))
	for _, e := range append(ns.Executors(), other.Executors()...) {
		require.Equal(t, "ONLINE", e.State)
	}
}

// EXE-6: what runs in one app is nothing that another app of the same namespace can decide.
func TestAnAppDecidesOnlyItsOwn(t *testing.T) {
	t.Parallel()
	s := axtest.Start(t)
	ns := s.Namespace(t)
	started := make(chan struct{})
	let := make(chan struct{})
	x := ns.App("app").Worker(func(ctx context.Context, run axtest.Run) axtest.Result {
		close(started)
		select {
		case <-let:
		case <-ctx.Done():
		}
		return axtest.Succeed(ctx, run)
	})
	y := ns.App("other").Worker(axtest.Succeed)
	id := ns.Trigger(ns.Job(nil))
	<-started
	run := x.Starts()[0].Run
	require.Equal(t, []string{"unknown"}, y.Report(axtest.ResultOf(run, "FAILED", "not mine")))
	status, raw := y.Post("/ax/lease", map[string]any{"type": "lease", "namespace": ns.Name, "app": "other", "instance": y.Instance(), "executions": []map[string]any{
		{"batchId": run.BatchID, "executionId": run.ExecutionID, "fence": run.Fence, "extendMs": 60000},
	}})
	require.Equal(t, http.StatusOK, status)
	require.Contains(t, string(raw), "unknown")
	status, raw = y.Post("/ax/log", map[string]any{"type": "log", "namespace": ns.Name, "app": "other", "instance": y.Instance(), "chunks": []map[string]any{
		{"batchId": run.BatchID, "executionId": run.ExecutionID, "seq": 1, "text": "not mine\n"},
	}})
	require.Equal(t, http.StatusOK, status)
	require.Contains(t, string(raw), "refused")
	status, raw = x.Post("/ax/results", map[string]any{"type": "results", "namespace": ns.Name, "app": "app", "instance": y.Instance(), "results": []any{}})
	require.Equal(t, http.StatusForbidden, status, string(raw))
	close(let)
	require.Equal(t, "SUCCEEDED", ns.Ended(id).State)
	require.NotContains(t, ns.Output(run.ExecutionID), "not mine")
}

// A job that is made just before its first due time fires then, however far ahead other jobs
// of its namespace have been made durable.
func TestANewJobMissesNothing(t *testing.T) {
	axtest.Both(t, func(t *testing.T, o ...axtest.Option) {
		s := axtest.Start(t, o...)
		ns := s.Namespace(t)
		ns.App("app").Worker(axtest.Succeed)
		first := ns.Job(axtest.Def{"name": "first", "triggers": every("1s"), "concurrency": policy("allow", 0)})
		axtest.WaitFor(t, "the first has run", func() bool { return len(ns.Batches(first)) > 0 })
		for i := range 8 {
			made := time.Now()
			id := ns.Job(axtest.Def{"name": fmt.Sprint("job ", i), "triggers": every("1s"), "concurrency": policy("allow", 0)})
			due := made.Truncate(time.Second).Add(time.Second)
			if time.Now().After(due) {
				continue // it took too long to be made before
			}
			axtest.WaitFor(t, "it has fired at the next full second", func() bool {
				for _, b := range ns.Batches(id) {
					if b.DueAt.Equal(due) {
						return true
					}
				}
				return false
			})
		}
	})
}

// EXE-7, C386, C395: an address gets work only after it proved that it holds the key.
func TestAnAddressIsProvenFirst(t *testing.T) {
	t.Parallel()
	s := axtest.Start(t)
	ns := s.Namespace(t)
	app := ns.App("app")
	reached := make(chan string, 100)
	sink := &http.Server{ReadHeaderTimeout: time.Second, Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		reached <- r.URL.Path
		_, _ = io.WriteString(w, `{"nonce":"x"}`)
	})}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	go func() { _ = sink.Serve(l) }()
	t.Cleanup(func() { _ = sink.Close() })
	nobody, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	require.NoError(t, nobody.Close())
	x := app.Offline(map[string]axtest.Handler{"work": axtest.Succeed})
	liar := app.Offline(map[string]axtest.Handler{"work": axtest.Succeed})
	liar.Is(axtest.Lies)
	liar.Open()
	real := ns.App("other").Worker(axtest.Succeed)
	tests := []struct{ address, reason string }{
		{"http://" + l.Addr().String(), "address_foreign"},
		{real.Address, "address_foreign"},
		{"http://" + nobody.Addr().String(), "address_unreachable"},
		{"http://169.254.169.254", "address_blocked"},
		{"http://[::ffff:169.254.169.254]:80", "address_blocked"},
		{"http://10.0.0.1:9999", "address_blocked"},
		{s.URL(), "address_blocked"},
		{liar.Address, "address_foreign"},
	}
	for i, tt := range tests {
		if tt.address != liar.Address {
			r := x.Registration()
			r["address"], r["startId"] = tt.address, fmt.Sprintf("start-id-of-case-%d", i)
			delete(r, "instance")
			status, raw := x.Post("/ax/registry", r)
			require.Equal(t, http.StatusOK, status, string(raw))
		}
		axtest.WaitFor(t, tt.address+" is refused", func() bool {
			for _, e := range ns.Executors() {
				if e.Address == tt.address && e.App == "app" && e.State == "REFUSED" {
					require.NotNil(t, e.Reason)
					return e.Reason.Code == tt.reason || tt.reason == "address_foreign" && e.Reason.Code == "address_unreachable"
				}
			}
			return false
		})
	}
	for _, bad := range []string{"", "file:///etc/passwd", "gopher://127.0.0.1:70", "http://user:pw@127.0.0.1:80", "http://127.0.0.1:80/?x=1", "http://127.0.0.1:80/#x", "127.0.0.1:80", "http://"} {
		r := x.Registration()
		r["address"] = bad
		delete(r, "instance")
		status, raw := x.Post("/ax/registry", r)
		if status == http.StatusOK {
			require.Contains(t, string(raw), `"REFUSED"`, "%q", bad)
		}
	}
	job := ns.Job(axtest.Def{"retry": retries(0)})
	b := ns.Ended(ns.Trigger(job))
	require.Equal(t, "FAILED", b.State)
	require.Equal(t, "no_executor", b.Code())
	close(reached)
	for path := range reached {
		require.Equal(t, "/ax/executor/probe", path, "work and keys never went there")
	}
	require.Empty(t, real.Deliveries())
	require.Empty(t, liar.Deliveries())
	// An honest one is taken at once.
	liar.Is(axtest.Fine)
	liar.Online()
	require.Equal(t, "SUCCEEDED", ns.Ended(ns.Trigger(job)).State)
}

// C386: nobody can say where a run goes; an executor that turns into somebody else is not believed.
func TestAnExecutorThatLiesIsNotBelieved(t *testing.T) {
	t.Parallel()
	s := axtest.Start(t)
	ns := s.Namespace(t)
	app := ns.App("app")
	x := app.Worker(axtest.Succeed)
	job := ns.Job(axtest.Def{"retry": retries(0)})
	a := ns.Client.Do(t, http.MethodPost, ns.Path("/jobs/"+job+"/trigger"), map[string]any{"address": "http://127.0.0.1:1/"})
	require.Equal(t, http.StatusUnprocessableEntity, a.Status, a.Text())
	x.Is(axtest.Lies)
	id := ns.Trigger(job)
	axtest.WaitFor(t, "it was asked", func() bool { return len(x.Deliveries()) > 1 })
	require.NotEqual(t, "RUNNING", ns.Batch(id).State, "an answer with a wrong signature is none")
	x.Is(axtest.Fine)
	require.Equal(t, "SUCCEEDED", ns.Ended(id).State)
	require.Len(t, x.Starts(), 1)
}
