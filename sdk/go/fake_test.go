package ax_test

import (
	"bytes"
	"context"
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/ax-scheduler/ax/sdk/go"
)

const testKey = "axk_00112233445566778899aabbccddeeff00112233445566778899aabbccddeeff"

type object = map[string]any

// scheduler is a server for tests. It shares no code with the package: it signs, verifies and
// builds messages from the contract's goldens on its own.
type scheduler struct {
	t   testing.TB
	srv *httptest.Server
	key []byte

	mu        sync.Mutex
	changed   chan struct{}
	instance  string
	address   string
	startIDs  []string
	registers []object
	online    bool
	removed   int
	results   []object            // in the order of arrival, repetitions included
	output    map[string][]object // chunks by execution
	leases    []object
	problems  []string // what the executor sent that it should not have
	stopNext  []object // for the next heartbeat
	// fault, when set, may answer in place of the server: status 0 = go on; -1 = do it and lose the reply.
	fault   func(path string, body object) (status int, code string)
	clock   time.Duration // added to the server's clock
	owner   string
	refuse  string // reason for REFUSED
	leaseMs int
}

func newScheduler(t testing.TB) *scheduler {
	t.Helper()
	key, _ := hex.DecodeString(testKey[4:])
	s := &scheduler{t: t, key: key, instance: "17", leaseMs: 600000, output: map[string][]object{}, changed: make(chan struct{})}
	s.srv = httptest.NewServer(http.HandlerFunc(s.serve))
	t.Cleanup(func() {
		s.srv.Close()
		s.mu.Lock()
		defer s.mu.Unlock()
		for _, p := range s.problems {
			t.Error(p)
		}
	})
	return s
}

func (s *scheduler) now() time.Time { return time.Now().Add(s.clock) }

func (s *scheduler) sign(id, ts string, body []byte) string {
	h := hmac.New(sha256.New, s.key)
	fmt.Fprintf(h, "%s.%s.%s", id, ts, body)
	return "v1," + base64.StdEncoding.EncodeToString(h.Sum(nil))
}

func (s *scheduler) problem(format string, args ...any) {
	s.problems = append(s.problems, fmt.Sprintf(format, args...))
}

var serverTypes = map[string]string{
	"/ax/registry": "register", "/ax/registry/remove": "remove", "/ax/results": "results", "/ax/lease": "lease", "/ax/log": "log",
}

func (s *scheduler) serve(w http.ResponseWriter, r *http.Request) {
	raw, _ := io.ReadAll(r.Body)
	s.mu.Lock()
	defer s.mu.Unlock()
	defer func() { close(s.changed); s.changed = make(chan struct{}) }()
	say := func(status int, code string) {
		w.Header().Set("ax-time", strconv.FormatInt(s.now().UnixMilli(), 10))
		w.WriteHeader(status)
		fmt.Fprintf(w, `{"code":%q,"message":"said by the test"}`, code)
	}
	id, ts := r.Header.Get("webhook-id"), r.Header.Get("webhook-timestamp")
	if r.Method != "POST" || r.Header.Get("webhook-signature") != s.sign(id, ts, raw) || r.Header.Get("ax-proof") != s.sign(id, ts, []byte("ax-proof "+strconv.FormatInt(r.ContentLength, 10))) {
		say(401, "bad_signature")
		return
	}
	sec, _ := strconv.ParseInt(ts, 10, 64)
	if d := s.now().Unix() - sec; d > 300 || d < -300 {
		say(401, "bad_clock")
		return
	}
	var m object
	if err := json.Unmarshal(raw, &m); err != nil {
		s.problem("%s: not JSON: %v", r.URL.Path, err)
		return
	}
	if m["type"] != serverTypes[r.URL.Path] || r.Header.Get("ax-app") != "default/order-service" || m["app"] != "order-service" {
		s.problem("%s: type %v, app %v, header %v", r.URL.Path, m["type"], m["app"], r.Header.Get("ax-app"))
	}
	if m["type"] != "register" && m["instance"] != s.instance {
		say(403, "wrong_instance")
		return
	}
	if m["type"] == "log" && len(raw) > 256<<10 {
		s.problem("log body of %d bytes", len(raw))
	}
	lose := false
	if s.fault != nil {
		switch status, code := s.fault(r.URL.Path, m); {
		case status > 0:
			say(status, code)
			return
		case status < 0:
			lose = true
		}
	}
	reply, _ := json.Marshal(s.answer(r.URL.Path, m))
	if lose {
		panic(http.ErrAbortHandler)
	}
	now := strconv.FormatInt(s.now().Unix(), 10)
	w.Header().Set("webhook-id", id)
	w.Header().Set("webhook-timestamp", now)
	w.Header().Set("webhook-signature", s.sign(id, now, reply))
	_, _ = w.Write(reply)
}

func (s *scheduler) answer(path string, m object) any {
	var answers []object
	each := func(list string, f func(o object) object) object {
		items, _ := m[list].([]any)
		for _, it := range items {
			answers = append(answers, f(it.(object)))
		}
		return object{"answers": answers, "unknownField": 1}
	}
	switch path {
	case "/ax/registry":
		s.registers = append(s.registers, m)
		if id := m["startId"].(string); !slices.Contains(s.startIDs, id) {
			s.startIDs = append(s.startIDs, id)
			s.online = false
		}
		s.address = m["address"].(string)
		state := "PENDING"
		switch {
		case s.refuse != "":
			state = "REFUSED"
		case s.online:
			state = "ONLINE"
		default:
			go s.probe(s.address)
		}
		stop := s.stopNext
		s.stopNext = nil
		return object{"state": state, "reason": s.refuse, "instance": s.instance, "heartbeatMs": 1000, "leaseMs": s.leaseMs, "serverTime": s.now().UnixMilli(), "owner": s.owner, "stop": stop}
	case "/ax/registry/remove":
		s.removed++
		return object{}
	case "/ax/results":
		return each("results", func(o object) object {
			s.results = append(s.results, o)
			return object{"executionId": o["executionId"], "answer": "recorded"}
		})
	case "/ax/lease":
		return each("executions", func(o object) object {
			s.leases = append(s.leases, o)
			if o["extendMs"].(float64) > 0 {
				return object{"executionId": o["executionId"], "answer": "extended", "deadline": s.now().UnixMilli()}
			}
			return object{"executionId": o["executionId"], "answer": "renewed", "deadline": s.now().UnixMilli()}
		})
	case "/ax/log":
		return each("chunks", func(o object) object {
			id := o["executionId"].(string)
			want := len(s.output[id]) + 1
			switch seq := int(o["seq"].(float64)); {
			case seq > want:
				s.problem("hole in the output of %s: seq %d, want %d", id, seq, want)
				return object{"executionId": id, "answer": "gap", "next": want}
			case seq == want:
				s.output[id] = append(s.output[id], o)
				want++
			}
			return object{"executionId": id, "answer": "stored", "next": want}
		})
	}
	s.problem("unknown path %s", path)
	return object{}
}

func (s *scheduler) probe(address string) {
	status, reply := s.call(address, "/ax/executor/probe", object{"type": "probe", "namespace": "default", "app": "order-service", "nonce": "n-1"})
	s.mu.Lock()
	defer s.mu.Unlock()
	if status == 200 && reply["nonce"] == "n-1" {
		s.online = true
	}
}

// message is a request of the server, which a test may spoil before it is sent.
type message struct {
	url  string
	body []byte
	head http.Header
}

func (s *scheduler) message(address, path string, body any) *message {
	raw, ok := body.([]byte)
	if !ok {
		raw, _ = json.Marshal(body)
	}
	b := make([]byte, 12)
	rand.Read(b)
	m := &message{url: address + path, body: raw, head: http.Header{}}
	s.resign(m, hex.EncodeToString(b), s.now())
	return m
}

func (s *scheduler) resign(m *message, id string, at time.Time) {
	ts := strconv.FormatInt(at.Unix(), 10)
	m.head.Set("webhook-id", id)
	m.head.Set("webhook-timestamp", ts)
	m.head.Set("webhook-signature", s.sign(id, ts, m.body))
}

// send posts m; a 200 must be signed under the request's id.
func (s *scheduler) send(m *message) (int, object) {
	req, _ := http.NewRequest("POST", m.url, bytes.NewReader(m.body))
	maps.Copy(req.Header, m.head)
	client := http.Client{Timeout: 10 * time.Second}
	res, err := client.Do(req)
	if err != nil {
		return 0, nil
	}
	defer res.Body.Close()
	raw, _ := io.ReadAll(res.Body)
	if res.StatusCode == 200 && m.head.Get("webhook-signature") != "" {
		id := m.head.Get("webhook-id")
		if res.Header.Get("webhook-id") != id || res.Header.Get("webhook-signature") != s.sign(id, res.Header.Get("webhook-timestamp"), raw) {
			s.t.Errorf("%s: reply is not rightly signed", m.url)
		}
	}
	var o object
	_ = json.Unmarshal(raw, &o)
	if o == nil {
		o = object{}
	}
	o["ax-time"] = res.Header.Get("ax-time")
	return res.StatusCode, o
}

func (s *scheduler) call(address, path string, body any) (int, object) {
	return s.send(s.message(address, path, body))
}

// execution makes one from the golden, with fields replaced.
func execution(t testing.TB, id string, over object) object {
	t.Helper()
	m := golden(t, "run.json")
	e := m["executions"].([]any)[0].(object)
	e["executionId"], e["batchId"], e["handler"] = id, "10001-20261130080000-"+id, "work"
	e["timeoutMs"] = 0
	maps.Copy(e, over)
	if a, ok := over["attempt"]; ok {
		e["fence"] = object{"attempt": a, "epoch": 7}
	}
	return e
}

func golden(t testing.TB, name string) object {
	t.Helper()
	raw, err := os.ReadFile(filepath.Join("..", "contract", "golden", name))
	if err != nil {
		t.Fatal(err)
	}
	var m object
	if err := json.Unmarshal(raw, &m); err != nil {
		t.Fatal(name, err)
	}
	return m
}

// run sends executions and returns the answers in order.
func (s *scheduler) run(list ...object) []string {
	s.t.Helper()
	s.mu.Lock()
	address, instance := s.address, s.instance
	s.mu.Unlock()
	status, reply := s.call(address, "/ax/executor/run", object{"type": "run", "namespace": "default", "app": "order-service", "instance": instance, "executions": list})
	if status != 200 {
		s.t.Fatalf("run: %d %v", status, reply)
	}
	var got []string
	for i, a := range reply["answers"].([]any) {
		if a.(object)["executionId"] != list[i]["executionId"] {
			s.t.Fatalf("answers are not in order: %v", reply)
		}
		got = append(got, a.(object)["answer"].(string))
	}
	return got
}

func (s *scheduler) kill(e object) string {
	s.t.Helper()
	s.mu.Lock()
	address, instance := s.address, s.instance
	s.mu.Unlock()
	status, reply := s.call(address, "/ax/executor/kill", object{
		"type": "kill", "namespace": "default", "app": "order-service", "instance": instance,
		"executions": []object{{"batchId": e["batchId"], "executionId": e["executionId"], "reason": "stopped by a test"}},
	})
	if status != 200 {
		s.t.Fatalf("kill: %d %v", status, reply)
	}
	return reply["answers"].([]any)[0].(object)["answer"].(string)
}

// until waits for what a request of the executor brings about.
func (s *scheduler) until(what string, ok func() bool) {
	s.t.Helper()
	deadline := time.After(20 * time.Second)
	for {
		s.mu.Lock()
		done, changed := ok(), s.changed
		s.mu.Unlock()
		if done {
			return
		}
		select {
		case <-changed:
		case <-deadline:
			s.t.Fatalf("waited in vain until %s", what)
		}
	}
}

// result waits for the result of an execution.
func (s *scheduler) result(id string) (found object) {
	s.t.Helper()
	s.until("the result of "+id+" is here", func() bool {
		for _, r := range s.results {
			if r["executionId"] == id {
				found = r
				return true
			}
		}
		return false
	})
	return found
}

func (s *scheduler) text(id string) string {
	var b strings.Builder
	for _, c := range s.output[id] {
		b.WriteString(c["text"].(string))
	}
	return b.String()
}

func (s *scheduler) addr() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.address
}

func (s *scheduler) set(f func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	f()
}

// logs collects the executor's own log lines.
type logs struct {
	mu      sync.Mutex
	b       bytes.Buffer
	changed chan struct{}
}

func (l *logs) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	close(l.changed)
	l.changed = make(chan struct{})
	return l.b.Write(p)
}

func (l *logs) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.String()
}

// until waits for a text in the log.
func (l *logs) until(t testing.TB, text string) {
	t.Helper()
	deadline := time.After(20 * time.Second)
	for {
		l.mu.Lock()
		found, changed := strings.Contains(l.b.String(), text), l.changed
		l.mu.Unlock()
		if found {
			return
		}
		select {
		case <-changed:
		case <-deadline:
			t.Fatalf("waited in vain for the log line %q", text)
		}
	}
}

// process is an executor that runs in a test.
type process struct {
	t    testing.TB
	ex   *ax.Executor
	stop context.CancelFunc
	done chan error
	logs *logs
	once sync.Once
}

// start runs an executor until it is online. more may change the options; handlers may be nil
// for the default "work", which waits for a word on the channel.
func (s *scheduler) start(more func(o *ax.Options), handlers func(ex *ax.Executor)) *process {
	s.t.Helper()
	p := s.launch(more, handlers)
	p.logs.until(s.t, "register to scheduler success")
	return p
}

func (s *scheduler) launch(more func(o *ax.Options), handlers func(ex *ax.Executor)) *process {
	s.t.Helper()
	p := &process{t: s.t, done: make(chan error, 1), logs: &logs{changed: make(chan struct{})}}
	o := ax.Options{
		Server: s.srv.URL, App: "order-service", Key: testKey, Dir: s.t.TempDir(), Workers: 2, Queue: 2, DrainTimeout: 10 * time.Second,
		Labels: map[string]string{"zone": "a"},
		Logger: slog.New(slog.NewTextHandler(p.logs, &slog.HandlerOptions{Level: slog.LevelInfo})),
	}
	if more != nil {
		more(&o)
	}
	ex, err := ax.New(o)
	if err != nil {
		s.t.Fatal(err)
	}
	p.ex = ex
	handlers(ex)
	ctx, stop := context.WithCancel(context.Background())
	p.stop = stop
	go func() { p.done <- ex.Run(ctx) }()
	s.t.Cleanup(func() {
		p.end()
		if s.t.Failed() {
			s.t.Logf("executor's log:\n%s", p.logs)
		}
	})
	return p
}

// end stops the executor and waits for it.
func (p *process) end() {
	p.once.Do(func() {
		p.stop()
		select {
		case err := <-p.done:
			if err != nil {
				p.t.Errorf("Run: %v", err)
			}
		case <-time.After(30 * time.Second):
			p.t.Error("the executor did not end")
		}
	})
}

func receive[T any](t *testing.T, what string, c <-chan T) (v T) {
	t.Helper()
	select {
	case v = <-c:
	case <-time.After(20 * time.Second):
		t.Fatalf("waited in vain for %s", what)
	}
	return v
}
