package main

import (
	"bytes"
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"sync"
	"testing"
	"time"
)

// TestMain lets the test binary be the program, so that tests can run and kill real processes.
func TestMain(m *testing.M) {
	if os.Getenv("ORDER_SERVICE_MAIN") == "1" {
		main()
		os.Exit(0)
	}
	os.Exit(m.Run())
}

type object = map[string]any

// scheduler is just enough of a server to run one batch: it takes executors in, hands out
// shards, and gives a shard to the next executor as the next attempt when its process died.
type scheduler struct {
	t   *testing.T
	srv *httptest.Server
	key []byte

	mu       sync.Mutex
	changed  chan struct{}
	address  map[string]string // by the name label
	results  map[string]object // by execution
	progress map[string]float64
}

func newScheduler(t *testing.T) *scheduler {
	t.Helper()
	s := &scheduler{
		t: t, key: bytes.Repeat([]byte{0xab}, 32), changed: make(chan struct{}),
		address: map[string]string{}, results: map[string]object{}, progress: map[string]float64{},
	}
	s.srv = httptest.NewServer(http.HandlerFunc(s.serve))
	t.Cleanup(s.srv.Close)
	return s
}

func (s *scheduler) sign(h http.Header, id string, body []byte) {
	ts := strconv.FormatInt(time.Now().Unix(), 10)
	m := hmac.New(sha256.New, s.key)
	fmt.Fprintf(m, "%s.%s.%s", id, ts, body)
	h.Set("webhook-id", id)
	h.Set("webhook-timestamp", ts)
	h.Set("webhook-signature", "v1,"+base64.StdEncoding.EncodeToString(m.Sum(nil)))
}

func (s *scheduler) serve(w http.ResponseWriter, r *http.Request) {
	var m struct {
		Address string
		Labels  map[string]string
		Results []object
		Chunks  []object
	}
	if err := json.NewDecoder(r.Body).Decode(&m); err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	var answers []object
	s.mu.Lock()
	for _, o := range m.Results {
		s.results[o["executionId"].(string)] = o
		answers = append(answers, object{"executionId": o["executionId"], "answer": "recorded"})
	}
	for _, o := range m.Chunks {
		s.progress[o["executionId"].(string)] = max(s.progress[o["executionId"].(string)], o["progress"].(float64))
		answers = append(answers, object{"executionId": o["executionId"], "answer": "stored"})
	}
	name := m.Labels["name"]
	if name != "" {
		s.address[name] = m.Address
	}
	close(s.changed)
	s.changed = make(chan struct{})
	s.mu.Unlock()
	reply, _ := json.Marshal(object{"answers": answers, "state": "ONLINE", "instance": "i", "heartbeatMs": 1000, "leaseMs": 60000})
	s.sign(w.Header(), r.Header.Get("webhook-id"), reply)
	_, _ = w.Write(reply)
}

func (s *scheduler) until(what string, ok func() bool) {
	s.t.Helper()
	deadline := time.After(60 * time.Second)
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

func (s *scheduler) run(name string, e object) {
	s.t.Helper()
	s.mu.Lock()
	address := s.address[name]
	s.mu.Unlock()
	body, _ := json.Marshal(object{"type": "run", "namespace": "default", "app": "order-service", "instance": "i", "executions": []object{e}})
	req, _ := http.NewRequest("POST", address+"/ax/executor/run", bytes.NewReader(body))
	s.sign(req.Header, rand.Text(), body)
	res, err := http.DefaultClient.Do(req)
	if err != nil {
		s.t.Fatal(err)
	}
	defer res.Body.Close()
	raw, _ := io.ReadAll(res.Body)
	if !bytes.Contains(raw, []byte(`"accepted"`)) {
		s.t.Fatalf("%s: %s", name, raw)
	}
}

type process struct {
	cmd   *exec.Cmd
	stdin io.WriteCloser
	done  chan error
}

func (s *scheduler) start(db, dir, name string) *process {
	s.t.Helper()
	keyFile := filepath.Join(s.t.TempDir(), "key")
	must(s.t, os.WriteFile(keyFile, []byte("axk_"+hex.EncodeToString(s.key)+"\n"), 0o600))
	cmd := exec.Command(os.Args[0], "run", "--server", s.srv.URL, "--key-file", keyFile, "--db", db, "--dir", dir, "--name", name, "--stop-with-parent")
	cmd.Env = append(os.Environ(), "ORDER_SERVICE_MAIN=1")
	stdin, err := cmd.StdinPipe()
	must(s.t, err)
	var errOut bytes.Buffer
	cmd.Stderr = &errOut
	must(s.t, cmd.Start())
	p := &process{cmd, stdin, make(chan error, 1)}
	go func() { p.done <- cmd.Wait() }()
	s.t.Cleanup(func() {
		_ = cmd.Process.Kill()
		if s.t.Failed() {
			s.t.Logf("%s:\n%s", name, errOut.String())
		}
	})
	s.until(name+" is here", func() bool { return s.address[name] != "" })
	return p
}

func (p *process) wait(t *testing.T) error {
	t.Helper()
	select {
	case err := <-p.done:
		return err
	case <-time.After(20 * time.Second):
		t.Fatal("the process does not end")
		return nil
	}
}

func syncExecution(id, shard, total, attempt int, planned time.Time) object {
	return object{
		"batchId": testBatch, "executionId": fmt.Sprint(id), "fence": object{"attempt": attempt, "epoch": 1}, "handler": "syncOrders",
		"job": object{"id": "10001", "name": "order-sync", "version": 1}, "params": `{"pauseMs":1}`, "shardingId": shard, "shardingTotal": total,
		"attempt": attempt, "dueAt": planned.UnixMilli(), "plannedFor": planned.UnixMilli(), "zone": seedZone, "trigger": "cron",
	}
}

// Executors are killed in the middle of copying, again and again, and other ones go on: in the
// end each order is in the warehouse once.
func TestKilledExecutorsLoseAndDoubleNothing(t *testing.T) {
	db, file, planned := shop(t, 10_000)
	s := newScheduler(t)
	const shards, kills = 4, 6
	attempt := [shards]int{}
	execution := [shards]string{}
	next := 0
	names := 0
	start := func() (string, *process) {
		names++
		name := fmt.Sprint("worker-", names)
		return name, s.start(file, t.TempDir(), name)
	}
	give := func(shard int, name string) {
		next++
		attempt[shard]++
		execution[shard] = fmt.Sprint(next)
		s.run(name, syncExecution(next, shard, shards, attempt[shard], planned))
	}
	ended := func(shard int) bool { return s.results[execution[shard]] != nil }

	name, p := start()
	for shard := range shards {
		give(shard, name)
	}
	for k := range kills {
		rows := number(t, db, `SELECT count(*) FROM warehouse_orders`)
		// Some rows later, another number each time; with next to no pause between chunks the
		// kill mostly strikes within a transaction.
		tick := time.NewTicker(time.Millisecond)
		for deadline := time.Now().Add(60 * time.Second); number(t, db, `SELECT count(*) FROM warehouse_orders`) < rows+300+int64(k)*110; {
			if time.Now().After(deadline) {
				t.Fatal("nothing is copied")
			}
			<-tick.C
		}
		tick.Stop()
		must(t, p.cmd.Process.Kill())
		_ = p.wait(t)
		if n := number(t, db, `SELECT count(*) FROM warehouse_orders`); n < rows {
			t.Fatalf("rows went away: %d, then %d", rows, n)
		}
		name, p = start()
		s.mu.Lock()
		var open []int
		for shard := range shards {
			if !ended(shard) {
				open = append(open, shard)
			}
		}
		s.mu.Unlock()
		t.Logf("kill %d with %d rows copied, shards open: %v", k+1, number(t, db, `SELECT count(*) FROM warehouse_orders`), open)
		for _, shard := range open {
			give(shard, name)
		}
	}
	s.until("all shards have ended", func() bool {
		for shard := range shards {
			if !ended(shard) {
				return false
			}
		}
		return true
	})
	var sum int
	for shard := range shards {
		r := s.results[execution[shard]]
		var v struct{ Copied int }
		if r["state"] != "SUCCEEDED" || json.Unmarshal([]byte(r["result"].(string)), &v) != nil {
			t.Fatalf("shard %d: %v", shard, r)
		}
		sum += v.Copied
	}
	if r := mustCheck(t, db, planned); !r.good() || r.Expected != 10_000 || sum != 10_000 {
		t.Fatalf("%+v, results say %d", r, sum)
	}
	must(t, p.stdin.Close())
	if err := p.wait(t); err != nil {
		t.Fatal(err)
	}
}

func TestProcessEndsWithItsParent(t *testing.T) {
	_, file, _ := shop(t, 10)
	s := newScheduler(t)
	p := s.start(file, t.TempDir(), "child")
	e := syncExecution(1, 0, 1, 1, time.Now())
	e["handler"], e["params"] = "monthlyStatement", ""
	s.run("child", e)
	s.until("it works", func() bool { _, ok := s.progress["1"]; return ok })
	begun := time.Now()
	must(t, p.stdin.Close())
	if err := p.wait(t); err != nil {
		t.Fatal(err)
	}
	if d := time.Since(begun); d > 5*time.Second {
		t.Fatalf("it took %s", d)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if r := s.results["1"]; r["state"] != "FAILED" {
		t.Fatalf("result: %v", r)
	}
}
