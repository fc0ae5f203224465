package bench

import (
	"bufio"
	"bytes"
	"context"
	"crypto/rand"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/ax-scheduler/ax/internal/protocol"
)

// Paths that only the measuring process asks.
const (
	pathLedger = "/bench/ledger"
	pathCount  = "/bench/count"
)

// resultsBusy is how many reports of results may be on their way at a time.
const resultsBusy = 2

// Executor is a process whose handler does nothing but write its start into a ledger. It
// knows the protocol, signs and verifies like any other, and refuses a second start.
type Executor struct {
	Servers   []string
	Namespace string
	App       string
	Key       protocol.Key
	// Slots is the capacity that it declares.
	Slots int
	Log   *slog.Logger

	address string
	startID string
	client  *http.Client
	first   atomic.Int64 // of Servers, the one that is asked first

	mu       sync.Mutex
	instance string
	ledger   []start
	given    map[string]struct{}
	results  []protocol.Result
	wake     chan struct{}
}

// Run serves until ctx ends.
func (x *Executor) Run(ctx context.Context) error {
	l, err := (&net.ListenConfig{}).Listen(ctx, "tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	var id [16]byte
	_, _ = rand.Read(id[:])
	x.address, x.startID, x.given, x.wake = "http://"+l.Addr().String(), hex.EncodeToString(id[:]), map[string]struct{}{}, make(chan struct{}, resultsBusy)
	x.client = &http.Client{Timeout: 10 * time.Second, Transport: &http.Transport{MaxIdleConnsPerHost: 8, DialContext: (&net.Dialer{Timeout: 2 * time.Second}).DialContext}}
	mux := http.NewServeMux()
	mux.HandleFunc("POST "+protocol.PathRun, x.serve(x.run))
	mux.HandleFunc("POST "+protocol.PathKill, x.serve(func([]byte, int64) (any, error) { return protocol.Answers{}, nil }))
	mux.HandleFunc("POST "+protocol.PathProbe, x.serve(x.probe))
	mux.HandleFunc("GET "+pathLedger, x.writeLedger)
	mux.HandleFunc("GET "+pathCount, func(w http.ResponseWriter, _ *http.Request) {
		x.mu.Lock()
		n := len(x.ledger)
		x.mu.Unlock()
		_, _ = fmt.Fprint(w, n)
	})
	server := &http.Server{Handler: mux, ReadHeaderTimeout: 10 * time.Second, IdleTimeout: 2 * time.Minute}
	var loops sync.WaitGroup
	ctx, cancel := context.WithCancel(ctx)
	for range resultsBusy {
		loops.Go(func() { x.report(ctx) })
	}
	loops.Go(func() { x.beat(ctx) })
	loops.Go(func() {
		<-ctx.Done()
		_ = server.Close()
	})
	err = server.Serve(l)
	cancel()
	loops.Wait()
	if errors.Is(err, http.ErrServerClosed) {
		return nil
	}
	return err
}

func (x *Executor) serve(handle func(body []byte, at int64) (any, error)) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		at := time.Now().UnixMicro()
		body, err := io.ReadAll(io.LimitReader(r.Body, 2<<20))
		if err != nil {
			return
		}
		if err := protocol.Verify(r.Header, body, time.Now(), x.Key); err != nil {
			http.Error(w, err.Error(), http.StatusUnauthorized)
			return
		}
		answer, err := handle(body, at)
		if err != nil {
			http.Error(w, err.Error(), http.StatusBadRequest)
			return
		}
		raw, err := json.Marshal(answer)
		if err == nil {
			err = protocol.Sign(w.Header(), protocol.MessageID(r.Header), time.Now(), raw, x.Key)
		}
		if err != nil {
			http.Error(w, err.Error(), http.StatusInternalServerError)
			return
		}
		w.Header().Set("Content-Type", "application/json")
		_, _ = w.Write(raw)
	}
}

func (x *Executor) run(body []byte, at int64) (any, error) {
	var in protocol.Run
	if err := json.Unmarshal(body, &in); err != nil {
		return nil, err
	}
	out := protocol.Answers{Answers: make([]protocol.Answer, len(in.Executions))}
	x.mu.Lock()
	for i, e := range in.Executions {
		out.Answers[i] = protocol.Answer{ExecutionID: e.ExecutionID, Answer: protocol.Accepted}
		if _, has := x.given[e.ExecutionID]; has {
			out.Answers[i].Answer = protocol.Duplicate
			continue
		}
		x.given[e.ExecutionID] = struct{}{}
		x.ledger = append(x.ledger, start{BatchID: e.BatchID, Shard: e.ShardingID, DueAt: e.DueAt, At: at})
		x.results = append(x.results, protocol.Result{BatchID: e.BatchID, ExecutionID: e.ExecutionID, ShardingID: e.ShardingID, Fence: e.Fence, State: "SUCCEEDED", DurationMs: 1, PeakMemoryMB: 32}) // as the SDK reports
	}
	x.mu.Unlock()
	x.nudge()
	return out, nil
}

func (x *Executor) nudge() {
	select {
	case x.wake <- struct{}{}:
	default:
	}
}

func (x *Executor) probe(body []byte, _ int64) (any, error) {
	var in protocol.Probe
	if err := json.Unmarshal(body, &in); err != nil {
		return nil, err
	}
	return protocol.Probed{Nonce: in.Nonce, Namespace: x.Namespace, App: x.App, StartID: x.startID, Running: x.running()}, nil
}

// running lists what has no committed result yet.
func (x *Executor) running() []protocol.Ref {
	x.mu.Lock()
	defer x.mu.Unlock()
	refs := make([]protocol.Ref, 0, len(x.results))
	for _, r := range x.results {
		refs = append(refs, protocol.Ref{BatchID: r.BatchID, ExecutionID: r.ExecutionID, Fence: r.Fence, RanMs: new(int64(0))})
	}
	return refs
}

// report sends results: what has come together while the last request was on its way goes in the next.
func (x *Executor) report(ctx context.Context) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-x.wake:
		}
		for {
			x.mu.Lock()
			n := min(len(x.results), protocol.MaxResults)
			part := append([]protocol.Result(nil), x.results[:n]...)
			x.results = x.results[n:]
			left := len(x.results) > 0
			x.mu.Unlock()
			if n == 0 {
				break
			}
			if left {
				x.nudge() // the others help
			}
			var answers protocol.Answers
			err := x.call(ctx, protocol.PathResults, protocol.TypeResults, protocol.Results{Head: x.head(protocol.TypeResults), Results: part}, &answers)
			if err != nil {
				if ctx.Err() != nil {
					return
				}
				x.Log.WarnContext(ctx, "results not taken", slog.String("err", err.Error()))
				x.mu.Lock()
				x.results = append(part, x.results...)
				x.mu.Unlock()
				wait(ctx, 200*time.Millisecond)
			}
		}
	}
}

func (x *Executor) head(kind string) protocol.Head {
	x.mu.Lock()
	defer x.mu.Unlock()
	return protocol.Head{Type: kind, Namespace: x.Namespace, App: x.App, Instance: x.instance}
}

func (x *Executor) beat(ctx context.Context) {
	every := time.Second
	for ctx.Err() == nil {
		running := x.running()
		var said protocol.Registered
		err := x.call(ctx, protocol.PathRegister, protocol.TypeRegister, protocol.Register{
			Head: x.head(protocol.TypeRegister), Address: x.address, StartID: x.startID, CPU: 1, MemoryMB: 1024, Slots: x.Slots, Handlers: []protocol.Handler{{Name: handler, Kind: "simple"}}, Running: running, SDK: "ax-bench",
		}, &said)
		switch {
		case err == nil:
			x.mu.Lock()
			x.instance = said.Instance
			x.mu.Unlock()
			if said.State == "ONLINE" && said.HeartbeatMs > 0 {
				every = time.Duration(said.HeartbeatMs) * time.Millisecond
			}
		case ctx.Err() == nil:
			x.Log.WarnContext(ctx, "heartbeat not taken", slog.String("err", err.Error()))
		}
		wait(ctx, every)
	}
}

// silentFor is how long a server may take for an answer before another one is asked.
const silentFor = 3 * time.Second

// call asks the servers in turn until one answers, first the one that answered last.
func (x *Executor) call(ctx context.Context, path, kind string, message, answer any) error {
	var err error
	for range x.Servers {
		first := x.first.Load()
		limited, cancel := context.WithTimeout(ctx, silentFor)
		err = x.ask(limited, x.Servers[int(first)%len(x.Servers)], path, message, answer)
		cancel()
		if err == nil {
			return nil
		}
		x.first.CompareAndSwap(first, first+1)
	}
	return fmt.Errorf("%s: %w", kind, err)
}

func (x *Executor) ask(ctx context.Context, server, path string, message, answer any) error {
	body, err := json.Marshal(message)
	if err != nil {
		return err
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, server+path, bytes.NewReader(body))
	if err != nil {
		return err
	}
	id := protocol.NewMessageID()
	req.Header.Set("Content-Type", "application/json")
	req.Header.Set(protocol.HeaderApp, x.Namespace+"/"+x.App)
	if err := protocol.Sign(req.Header, id, time.Now(), body, x.Key); err != nil {
		return err
	}
	if err := protocol.Prove(req.Header, int64(len(body)), x.Key); err != nil {
		return err
	}
	res, err := x.client.Do(req)
	if err != nil {
		return err
	}
	defer func() { _ = res.Body.Close() }()
	raw, err := io.ReadAll(io.LimitReader(res.Body, 4<<20))
	if err != nil {
		return err
	}
	if res.StatusCode != http.StatusOK {
		return fmt.Errorf("%s %s: %s %s", server, path, strconv.Itoa(res.StatusCode), strings.TrimSpace(string(raw)))
	}
	if err := protocol.VerifyReply(res.Header, id, raw, time.Now(), x.Key); err != nil {
		return err
	}
	return json.Unmarshal(raw, answer)
}

func (x *Executor) writeLedger(w http.ResponseWriter, _ *http.Request) {
	x.mu.Lock()
	ledger := slices.Clip(x.ledger)
	x.mu.Unlock()
	out := bufio.NewWriterSize(w, 1<<16)
	var line []byte
	for _, s := range ledger {
		line = s.append(line[:0])
		_, _ = out.Write(line)
	}
	_ = out.Flush()
}

// wait waits, or ends with ctx.
func wait(ctx context.Context, span time.Duration) {
	timer := time.NewTimer(span)
	defer timer.Stop()
	select {
	case <-ctx.Done():
	case <-timer.C:
	}
}
