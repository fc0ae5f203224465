package axtest

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
	"net"
	"net/http"
	"net/http/httptest"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// Fault is a way in which an executor misbehaves.
type Fault string

// Faults.
const (
	Fine            Fault = ""
	Refuses         Fault = "refuses"           // nobody listens at its address
	Hangs           Fault = "hangs"             // takes a request and never answers
	DiesAfterAccept Fault = "dies after accept" // answers accepted and is gone
	AnswersTwice    Fault = "answers twice"     // reports every result twice
	AnswersLate     Fault = "answers late"      // starts the work, and answers the request after its sender gave up
	Lies            Fault = "lies"              // signs with a key of its own
	Full            Fault = "full"              // has no room
	Drains          Fault = "drains"            // takes no new work
	Slow            Fault = "slow"              // answers each request after a while, in time
	Errs            Fault = "errs"              // answers 500
	Mute            Fault = "mute"              // runs and never reports
	DeafToRun       Fault = "deaf to run"       // reports, answers probes, and never answers a request to run
	DeafToKill      Fault = "deaf to kill"      // answers 500 when asked to stop something, and does not stop it
)

const (
	lateBy = 1800 * time.Millisecond // beyond dispatch-ack-timeout
	slowBy = 400 * time.Millisecond
)

// Fence orders the attempts of a shard.
type Fence struct {
	Attempt int   `json:"attempt"`
	Epoch   int64 `json:"epoch"`
}

// Run is one execution as the executor was given it.
type Run struct {
	BatchID     string `json:"batchId"`
	ExecutionID string `json:"executionId"`
	Fence       Fence  `json:"fence"`
	Job         struct {
		ID      string `json:"id"`
		Name    string `json:"name"`
		Version int64  `json:"version"`
	} `json:"job"`
	Handler       string `json:"handler"`
	Params        string `json:"params"`
	ShardingID    int    `json:"shardingId"`
	ShardingTotal int    `json:"shardingTotal"`
	Attempt       int    `json:"attempt"`
	DueAt         int64  `json:"dueAt"`
	PlannedFor    int64  `json:"plannedFor"`
	Zone          string `json:"zone"`
	TimeoutMs     int64  `json:"timeoutMs"`
	Trigger       string `json:"trigger"`
	TraceID       string `json:"traceId"`
}

// Result is how a run ended. The zero value is success.
type Result struct {
	State   string // SUCCEEDED when empty
	Message string
	Result  *string
	NoRetry bool
	Code    string // of a failure
}

// Handler does the work of a run; ctx ends when the run is to stop.
type Handler func(ctx context.Context, run Run) Result

// Succeed is a handler with nothing to do.
func Succeed(context.Context, Run) Result { return Result{} }

// Fail is a handler that always fails.
func Fail(context.Context, Run) Result { return Result{State: "FAILED", Message: "no luck"} }

// UntilStopped is a handler that runs until it is told to stop.
func UntilStopped(ctx context.Context, _ Run) Result {
	<-ctx.Done()
	return Result{State: "CANCELLED", Message: "stopped"}
}

// For is a handler that takes a while.
func For(span time.Duration) Handler {
	return func(ctx context.Context, _ Run) Result {
		timer := time.NewTimer(span)
		defer timer.Stop()
		select {
		case <-timer.C:
			return Result{}
		case <-ctx.Done():
			return Result{State: "CANCELLED", Message: "stopped"}
		}
	}
}

// Delivery is one execution of one request to run, as the ledger keeps it.
type Delivery struct {
	Run    Run
	At     time.Time
	Raw    string // the whole body of the request
	Answer string
}

// Started is one start of a handler. Until is zero while it runs.
type Started struct {
	Run   Run
	At    time.Time
	Until time.Time
	On    *Executor
}

// Kill is one execution of one request to stop.
type Kill struct {
	BatchID     string `json:"batchId"`
	ExecutionID string `json:"executionId"`
	Reason      string `json:"reason"`
	At          time.Time
}

// Executor is a fake one over real HTTP. It registers, heartbeats, signs and verifies with code of
// its own, starts each attempt of a shard once, and keeps a ledger of all that it was asked.
type Executor struct {
	t        testing.TB
	app      *App
	handlers map[string]Handler
	// Slots is what it says of its capacity.
	slots   int
	labels  map[string]string
	Address string

	http *httptest.Server
	done chan struct{}
	free chan struct{} // closed to let hanging requests go
	work sync.WaitGroup

	mu         sync.Mutex
	fault      Fault
	startID    string
	instance   string
	state      string
	silent     bool // no heartbeats
	deliveries []Delivery
	starts     []*Started
	kills      []Kill
	answers    []string // what the server said to results
	running    map[string]*task
	given      map[string]bool
	taken      map[string]bool // executions whose results the server has
	spool      []map[string]any
	servers    []*Server // asked in turn; empty = the namespace's
	turn       int
	flushing   bool // a message of results is on its way
}

type task struct {
	run  Run
	at   time.Time
	stop context.CancelFunc
}

// Executor starts an executor of an app with handlers by name and waits until it is online.
func (a *App) Executor(handlers map[string]Handler) *Executor {
	a.n.t.Helper()
	x := a.Offline(handlers)
	x.Open()
	x.Online()
	return x
}

// Worker is an executor with one handler, "work".
func (a *App) Worker(work Handler) *Executor {
	a.n.t.Helper()
	return a.Executor(map[string]Handler{"work": work})
}

// Labelled is a Worker with labels.
func (a *App) Labelled(labels map[string]string, work Handler) *Executor {
	a.n.t.Helper()
	x := a.Offline(map[string]Handler{"work": work})
	x.labels = labels
	x.Open()
	x.Online()
	return x
}

// Offline makes an executor that does not listen yet.
func (a *App) Offline(handlers map[string]Handler) *Executor {
	a.n.t.Helper()
	x := &Executor{t: a.n.t, app: a, handlers: handlers, slots: 50, done: make(chan struct{}), free: make(chan struct{}), startID: random(16), servers: a.servers, running: map[string]*task{}, given: map[string]bool{}, taken: map[string]bool{}}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(x.t, err)
	x.Address = "http://" + l.Addr().String()
	require.NoError(x.t, l.Close())
	x.t.Cleanup(x.shut)
	return x
}

// Open makes it listen and heartbeat.
func (x *Executor) Open() {
	x.t.Helper()
	x.listen()
	go x.heartbeats()
}

func (x *Executor) listen() {
	x.t.Helper()
	var l net.Listener
	WaitFor(x.t, "the executor's port is free", func() bool {
		var err error
		l, err = net.Listen("tcp", strings.TrimPrefix(x.Address, "http://"))
		return err == nil
	})
	server := &httptest.Server{Listener: l, Config: &http.Server{Handler: http.HandlerFunc(x.serve), ReadHeaderTimeout: 10 * time.Second}}
	server.Start()
	x.mu.Lock()
	x.http = server
	x.mu.Unlock()
}

func (x *Executor) close() {
	x.mu.Lock()
	server := x.http
	x.http = nil
	x.mu.Unlock()
	if server != nil {
		_ = server.Listener.Close()
		server.CloseClientConnections()
		_ = server.Config.Close()
	}
}

func (x *Executor) shut() {
	close(x.done)
	close(x.free)
	x.mu.Lock()
	for _, t := range x.running {
		t.stop()
	}
	x.mu.Unlock()
	x.close()
	x.work.Wait()
}

// Online waits until the server says that it is.
func (x *Executor) Online() {
	x.t.Helper()
	WaitFor(x.t, "executor "+x.Address+" is online", func() bool { return x.State() == "ONLINE" })
}

// Through makes it call these servers from now on.
func (x *Executor) Through(list ...*Server) {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.servers = list
}

// State is what the server said last.
func (x *Executor) State() string {
	x.mu.Lock()
	defer x.mu.Unlock()
	return x.state
}

// StartID names its process.
func (x *Executor) StartID() string {
	x.mu.Lock()
	defer x.mu.Unlock()
	return x.startID
}

// Instance is the id that the server gave it.
func (x *Executor) Instance() string {
	x.mu.Lock()
	defer x.mu.Unlock()
	return x.instance
}

// Is makes it misbehave from now on, or behave again.
func (x *Executor) Is(f Fault) {
	x.t.Helper()
	x.mu.Lock()
	was := x.fault
	x.fault = f
	x.mu.Unlock()
	if f == Refuses {
		x.close()
	} else if was == Refuses {
		x.listen()
	}
	if was == Hangs || was == DeafToRun {
		x.mu.Lock()
		close(x.free)
		x.free = make(chan struct{})
		x.mu.Unlock()
	}
}

// Silence stops or resumes its heartbeats and its results.
func (x *Executor) Silence(on bool) {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.silent = on
}

// Die ends its process: no listener, no heartbeat, and what ran never reports.
func (x *Executor) Die() {
	x.mu.Lock()
	x.silent = true
	x.state = "DEAD"
	for _, t := range x.running {
		t.stop()
	}
	x.running, x.spool, x.instance = map[string]*task{}, nil, ""
	x.startID = "dead" + random(14)
	x.mu.Unlock()
	x.close()
}

// Revive starts a new process at the same address; what an SDK keeps on disk it still knows.
func (x *Executor) Revive() {
	x.t.Helper()
	x.listen()
	x.mu.Lock()
	x.startID, x.silent, x.fault = random(16), false, Fine
	x.mu.Unlock()
	x.Online()
}

// Deliveries is the ledger of executions that it was asked to run.
func (x *Executor) Deliveries() []Delivery {
	x.mu.Lock()
	defer x.mu.Unlock()
	return append([]Delivery(nil), x.deliveries...)
}

// Starts is the ledger of handlers that it started.
func (x *Executor) Starts() []Started {
	x.mu.Lock()
	defer x.mu.Unlock()
	out := make([]Started, len(x.starts))
	for i, s := range x.starts {
		out[i] = *s
	}
	return out
}

// Namespace is the name of its namespace.
func (x *Executor) Namespace() string { return x.app.n.Name }

// Took tells whether the server has taken the result of an execution.
func (x *Executor) Took(execution string) bool {
	x.mu.Lock()
	defer x.mu.Unlock()
	return x.taken[execution]
}

// TookAll tells whether the server has taken the results of all that it started.
func (x *Executor) TookAll() bool {
	x.mu.Lock()
	defer x.mu.Unlock()
	return !slices.ContainsFunc(x.starts, func(s *Started) bool { return !x.taken[s.Run.ExecutionID] })
}

// Kills is the ledger of executions that it was asked to stop.
func (x *Executor) Kills() []Kill {
	x.mu.Lock()
	defer x.mu.Unlock()
	return append([]Kill(nil), x.kills...)
}

// Answers is what the server answered to its results, in order.
func (x *Executor) Answers() []string {
	x.mu.Lock()
	defer x.mu.Unlock()
	return append([]string(nil), x.answers...)
}

// Ledger joins the starts of several executors.
func Ledger(list ...*Executor) []Started {
	var out []Started
	for _, x := range list {
		out = append(out, x.Starts()...)
	}
	return out
}

// NothingTwice checks the ledgers of all executors that may have been asked: no attempt of a shard
// was started twice, and no two attempts of a shard overlapped.
func NothingTwice(t testing.TB, list ...*Executor) {
	t.Helper()
	seen := map[string]Started{}
	shards := map[string][]Started{}
	for _, s := range Ledger(list...) {
		shard := fmt.Sprintf("%s/%d", s.Run.BatchID, s.Run.ShardingID)
		key := fmt.Sprintf("%s attempt %d", shard, s.Run.Attempt)
		if first, twice := seen[key]; twice {
			require.FailNow(t, "started twice", "%s: on %s at %s and on %s at %s", key, first.On.Address, first.At, s.On.Address, s.At)
		}
		seen[key] = s
		for _, o := range shards[shard] {
			require.False(t, s.At.Before(until(o)) && o.At.Before(until(s)), "attempts %d and %d of %s overlapped", o.Run.Attempt, s.Run.Attempt, shard)
		}
		shards[shard] = append(shards[shard], s)
	}
}

func until(s Started) time.Time {
	if s.Until.IsZero() {
		return s.At.Add(time.Hour)
	}
	return s.Until
}

// Most is the largest number of starts that ran at the same time.
func Most(starts []Started) int {
	most := 0
	for _, s := range starts {
		n := 0
		for _, o := range starts {
			if !o.At.After(s.At) && until(o).After(s.At) {
				n++
			}
		}
		most = max(most, n)
	}
	return most
}

func (x *Executor) serve(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(io.LimitReader(r.Body, 2<<20))
	if err != nil {
		return
	}
	if !Verify(x.app.Key, r.Header, body) {
		http.Error(w, `{"code":"bad_signature","message":""}`, http.StatusUnauthorized)
		return
	}
	x.mu.Lock()
	fault, free := x.fault, x.free
	x.mu.Unlock()
	if fault == Hangs {
		select {
		case <-free:
		case <-r.Context().Done():
		}
		return
	}
	if fault == DeafToRun && strings.HasSuffix(r.URL.Path, "/run") {
		select {
		case <-free:
		case <-r.Context().Done():
		}
		return
	}
	if fault == Slow {
		Pause(slowBy)
	}
	if fault == Errs {
		http.Error(w, `{"code":"internal","message":"broken"}`, http.StatusInternalServerError)
		return
	}
	var head struct {
		Type       string            `json:"type"`
		Namespace  string            `json:"namespace"`
		App        string            `json:"app"`
		Nonce      string            `json:"nonce"`
		Executions []json.RawMessage `json:"executions"`
	}
	kind := r.URL.Path[strings.LastIndex(r.URL.Path, "/")+1:]
	if json.Unmarshal(body, &head) != nil || head.Type != kind || head.Namespace != x.app.n.Name || head.App != x.app.Name {
		http.Error(w, `{"code":"wrong_type","message":""}`, http.StatusBadRequest)
		return
	}
	var reply any
	switch kind {
	case "probe":
		reply = map[string]any{"nonce": head.Nonce, "namespace": x.app.n.Name, "app": x.app.Name, "startId": x.StartID(), "running": x.list()}
	case "run":
		reply = map[string]any{"answers": x.take(head.Executions, string(body), fault)}
		if fault == AnswersLate {
			Pause(lateBy)
		}
	case "kill":
		if fault == DeafToKill {
			x.killed(head.Executions, false)
			http.Error(w, `{"code":"internal","message":"broken"}`, http.StatusInternalServerError)
			return
		}
		reply = map[string]any{"answers": x.killed(head.Executions, true)}
	default:
		http.NotFound(w, r)
		return
	}
	raw, err := json.Marshal(reply)
	if err != nil {
		return
	}
	key := x.app.Key
	if fault == Lies {
		key = "axk_" + random(32)
	}
	Sign(key, w.Header(), r.Header.Get("webhook-id"), time.Now(), raw)
	w.Header().Set("Content-Type", "application/json")
	_, _ = w.Write(raw)
	if fault == DiesAfterAccept && kind == "run" {
		_ = http.NewResponseController(w).Flush()
		go x.Die()
	}
}

type answer struct {
	ExecutionID string `json:"executionId"`
	Answer      string `json:"answer"`
}

func (x *Executor) take(list []json.RawMessage, body string, fault Fault) []answer {
	x.mu.Lock()
	defer x.mu.Unlock()
	var out []answer
	for _, raw := range list {
		var run Run
		if json.Unmarshal(raw, &run) != nil {
			continue
		}
		key := fmt.Sprintf("%s/%d/%d", run.BatchID, run.ShardingID, run.Attempt)
		handler, ok := x.handlers[run.Handler]
		word := "accepted"
		switch {
		case x.given[key]:
			word = "duplicate"
		case !ok:
			word = "no_handler"
		case fault == Drains:
			word = "draining"
		case fault == Full:
			word = "full"
		default:
			x.given[key] = true
			if fault != DiesAfterAccept {
				x.run(run, handler)
			}
		}
		x.deliveries = append(x.deliveries, Delivery{Run: run, At: time.Now(), Raw: body, Answer: word})
		out = append(out, answer{run.ExecutionID, word})
	}
	return out
}

func (x *Executor) run(run Run, handler Handler) {
	ctx, stop := context.WithCancel(context.Background())
	t := &task{run: run, at: time.Now(), stop: stop}
	x.running[run.ExecutionID] = t
	start := &Started{Run: run, At: t.at, On: x}
	x.starts = append(x.starts, start)
	startID := x.startID
	x.work.Go(func() {
		defer stop()
		res := handler(ctx, run)
		x.mu.Lock()
		defer x.mu.Unlock()
		start.Until = time.Now()
		if x.startID != startID || x.fault == Mute {
			return // the process that ran it is gone
		}
		message := map[string]any{
			"batchId": run.BatchID, "executionId": run.ExecutionID, "shardingId": run.ShardingID, "fence": run.Fence, "state": "SUCCEEDED", "message": res.Message,
			"waitedMs": 0, "durationMs": time.Since(t.at).Milliseconds(), "peakMemoryMB": 1, "noRetry": res.NoRetry, "code": res.Code,
		}
		if res.State != "" {
			message["state"] = res.State
		}
		if res.Result != nil {
			message["result"] = *res.Result
		}
		x.spool = append(x.spool, message)
		if x.fault == AnswersTwice {
			x.spool = append(x.spool, message)
		}
		x.work.Go(x.flush)
	})
}

func (x *Executor) killed(list []json.RawMessage, obey bool) []answer {
	x.mu.Lock()
	defer x.mu.Unlock()
	var out []answer
	for _, raw := range list {
		var k Kill
		if json.Unmarshal(raw, &k) != nil {
			continue
		}
		k.At = time.Now()
		x.kills = append(x.kills, k)
		word := "unknown"
		if t, ok := x.running[k.ExecutionID]; ok {
			word = "asked"
			if obey {
				t.stop()
			}
		}
		out = append(out, answer{k.ExecutionID, word})
	}
	return out
}

func (x *Executor) list() []map[string]any {
	x.mu.Lock()
	defer x.mu.Unlock()
	out := []map[string]any{}
	for _, t := range x.running {
		out = append(out, map[string]any{"batchId": t.run.BatchID, "executionId": t.run.ExecutionID, "fence": t.run.Fence, "ranMs": time.Since(t.at).Milliseconds()})
	}
	return out
}

func (x *Executor) heartbeats() {
	tick := time.NewTicker(500 * time.Millisecond) // half of the server's, so that one lost matters little
	defer tick.Stop()
	for {
		x.Beat()
		go x.flush() // a server that is slow to take results still hears that it lives
		select {
		case <-x.done:
			return
		case <-tick.C:
		}
	}
}

// Registration is its heartbeat's body.
func (x *Executor) Registration() map[string]any {
	running := x.list()
	names := []map[string]any{}
	for name := range x.handlers {
		names = append(names, map[string]any{"name": name, "kind": "simple"})
	}
	labels := x.labels
	if labels == nil {
		labels = map[string]string{}
	}
	x.mu.Lock()
	defer x.mu.Unlock()
	return map[string]any{
		"type": "register", "namespace": x.app.n.Name, "app": x.app.Name, "instance": x.instance, "address": x.Address, "startId": x.startID, "labels": labels, "cpu": 2, "memoryMB": 1024,
		"slots": x.slots, "handlers": names, "running": running, "sdk": "axtest/1", "draining": x.fault == Drains,
	}
}

// Room makes it say that it runs so many at once, from its next heartbeat on.
func (x *Executor) Room(slots int) {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.slots = slots
}

// Beat sends one heartbeat now, unless it is silent.
func (x *Executor) Beat() {
	x.mu.Lock()
	silent, startID := x.silent, x.startID
	x.mu.Unlock()
	if silent {
		return
	}
	status, raw := x.Post("/ax/registry", x.Registration())
	if status != http.StatusOK {
		return
	}
	var reply struct {
		State    string `json:"state"`
		Reason   string `json:"reason"`
		Instance string `json:"instance"`
		Stop     []Kill `json:"stop"`
	}
	if json.Unmarshal(raw, &reply) != nil {
		return
	}
	x.mu.Lock()
	defer x.mu.Unlock()
	if x.startID != startID {
		return
	}
	x.state, x.instance = reply.State, reply.Instance
	for _, k := range reply.Stop {
		if t, ok := x.running[k.ExecutionID]; ok && x.fault != DeafToKill {
			t.stop()
		}
	}
}

// flush sends what waits, until the server has taken it: one message at a time, as an SDK does.
func (x *Executor) flush() {
	x.mu.Lock()
	defer x.mu.Unlock()
	if x.flushing {
		return // what waits goes with the next message
	}
	x.flushing = true
	defer func() { x.flushing = false }()
	for len(x.spool) > 0 && !x.silent {
		const most = 500 // in a message
		n := min(len(x.spool), most)
		list, instance := x.spool[:n:n], x.instance
		x.spool = x.spool[n:]
		x.mu.Unlock()
		status, raw := x.Post("/ax/results", map[string]any{"type": "results", "namespace": x.app.n.Name, "app": x.app.Name, "instance": instance, "results": list})
		var reply struct {
			Answers []answer `json:"answers"`
		}
		taken := status == http.StatusOK && json.Unmarshal(raw, &reply) == nil
		x.mu.Lock()
		if !taken {
			x.spool = append(list, x.spool...)
			return
		}
		for _, a := range reply.Answers {
			x.answers = append(x.answers, a.Answer)
			delete(x.running, a.ExecutionID)
			x.taken[a.ExecutionID] = true
		}
	}
}

// Report sends results as they are given and returns the answers in order.
func (x *Executor) Report(results ...map[string]any) []string {
	x.t.Helper()
	status, raw := x.Post("/ax/results", map[string]any{"type": "results", "namespace": x.app.n.Name, "app": x.app.Name, "instance": x.Instance(), "results": results})
	require.Equal(x.t, http.StatusOK, status, string(raw))
	var reply struct {
		Answers []answer `json:"answers"`
	}
	require.NoError(x.t, json.Unmarshal(raw, &reply))
	out := make([]string, len(reply.Answers))
	for i, a := range reply.Answers {
		out[i] = a.Answer
	}
	return out
}

// ResultOf makes the message of a result of a run.
func ResultOf(run Run, state, message string) map[string]any {
	return map[string]any{"batchId": run.BatchID, "executionId": run.ExecutionID, "shardingId": run.ShardingID, "fence": run.Fence, "state": state, "message": message, "waitedMs": 1, "durationMs": 1}
}

// Write sends output of a run.
func (x *Executor) Write(run Run, seq int, text string) {
	x.t.Helper()
	status, raw := x.Post("/ax/log", map[string]any{"type": "log", "namespace": x.app.n.Name, "app": x.app.Name, "instance": x.Instance(), "chunks": []map[string]any{
		{"batchId": run.BatchID, "executionId": run.ExecutionID, "seq": seq, "text": text},
	}})
	require.Equal(x.t, http.StatusOK, status, string(raw))
}

// Post signs and sends a message, with each change made to the request after it was signed.
// Status 0 means that there was no answer, or none that is signed as it should be.
func (x *Executor) Post(path string, message any, change ...func(r *http.Request)) (status int, reply []byte) {
	raw, err := json.Marshal(message)
	if err != nil {
		return 0, []byte(err.Error())
	}
	return x.PostRaw(path, raw, time.Now(), change...)
}

// PostRaw is Post with a body as it is and the sender's clock. Of several servers the next one is tried when one does not
// answer, or can not now.
func (x *Executor) PostRaw(path string, body []byte, at time.Time, change ...func(r *http.Request)) (status int, reply []byte) {
	x.mu.Lock()
	list := x.servers
	x.mu.Unlock()
	if len(list) == 0 {
		return x.postTo(x.app.n.Server, 10*time.Second, path, body, at, change...)
	}
	const impatient = 4 * time.Second // there is another one to ask
	for range list {
		x.mu.Lock()
		s := list[x.turn%len(list)]
		x.mu.Unlock()
		if status, reply = x.postTo(s, impatient, path, body, at, change...); status != 0 && status != http.StatusServiceUnavailable {
			return status, reply
		}
		x.mu.Lock()
		x.turn++
		x.mu.Unlock()
	}
	return status, reply
}

func (x *Executor) postTo(s *Server, limit time.Duration, path string, body []byte, at time.Time, change ...func(r *http.Request)) (status int, reply []byte) {
	req, err := http.NewRequest(http.MethodPost, s.URL()+path, bytes.NewReader(body))
	if err != nil {
		return 0, []byte(err.Error())
	}
	id := "msg_" + random(12)
	req.Header.Set("Content-Type", "application/json")
	req.Header.Set("ax-app", x.app.n.Name+"/"+x.app.Name)
	Sign(x.app.Key, req.Header, id, at, body)
	Prove(x.app.Key, req.Header, len(body))
	for _, c := range change {
		c(req)
	}
	res, err := (&http.Client{Timeout: limit}).Do(req)
	if err != nil {
		return 0, []byte(err.Error())
	}
	defer func() { _ = res.Body.Close() }()
	reply, err = io.ReadAll(res.Body)
	if err != nil {
		return 0, []byte(err.Error())
	}
	if res.StatusCode == http.StatusOK && (!Verify(x.app.Key, res.Header, reply) || res.Header.Get("webhook-id") != req.Header.Get("webhook-id")) {
		return 0, []byte("the answer is not signed by the server")
	}
	return res.StatusCode, reply
}

// Sign sets the headers of a message.
func Sign(key string, h http.Header, id string, at time.Time, body []byte) {
	stamp := strconv.FormatInt(at.Unix(), 10)
	h.Set("webhook-id", id)
	h.Set("webhook-timestamp", stamp)
	h.Set("webhook-signature", "v1,"+mac(key, id, stamp, body))
}

// Prove sets the header by which the server knows, before it reads the body, that the sender has the key.
func Prove(key string, h http.Header, length int) {
	h.Set("ax-proof", "v1,"+mac(key, h.Get("webhook-id"), h.Get("webhook-timestamp"), []byte("ax-proof "+strconv.Itoa(length))))
}

// Verify checks the signature of a message; clocks are not looked at.
func Verify(key string, h http.Header, body []byte) bool {
	want := mac(key, h.Get("webhook-id"), h.Get("webhook-timestamp"), body)
	for s := range strings.FieldsSeq(h.Get("webhook-signature")) {
		if version, sum, _ := strings.Cut(s, ","); version == "v1" && hmac.Equal([]byte(sum), []byte(want)) {
			return true
		}
	}
	return false
}

func mac(key, id, stamp string, body []byte) string {
	raw, err := hex.DecodeString(strings.TrimPrefix(key, "axk_"))
	if err != nil {
		return "not a key"
	}
	m := hmac.New(sha256.New, raw)
	_, _ = fmt.Fprintf(m, "%s.%s.", id, stamp)
	_, _ = m.Write(body)
	return base64.StdEncoding.EncodeToString(m.Sum(nil))
}

func random(n int) string {
	b := make([]byte, n)
	_, _ = rand.Read(b)
	return hex.EncodeToString(b)
}
