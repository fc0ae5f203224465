package dispatch

import (
	"bytes"
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/ax-scheduler/ax/internal/clock"
	"github.com/ax-scheduler/ax/internal/egress"
	"github.com/ax-scheduler/ax/internal/protocol"
	"github.com/ax-scheduler/ax/internal/store"
)

// maxReply bounds what is read of an executor's answer.
const maxReply = 1 << 20

// Keys answers the keys of an app, by app id, and its namespace's name and egress rules.
type Keys func(ctx context.Context, nsID, appID int64) (namespace string, keys []protocol.Key, rules []egress.Rule, err error)

// Client calls executors: signed, through the egress policy. It is safe for concurrent
// use.
type Client struct {
	policy *egress.Policy
	keys   Keys
	clock  clock.Clock

	mu      sync.Mutex
	clients map[int64]*tenantClient
}

// tenantClient holds one namespace's connections, so that its rules apply to each.
type tenantClient struct {
	http  *http.Client
	mu    sync.RWMutex
	rules []egress.Rule
}

// NewClient makes a client.
func NewClient(policy *egress.Policy, keys Keys, c clock.Clock) *Client {
	return &Client{policy: policy, keys: keys, clock: c, clients: map[int64]*tenantClient{}}
}

// StatusError is an answer of an executor that is not 200.
type StatusError struct {
	Code int
	Body string
}

// Error tells status and body.
func (e *StatusError) Error() string {
	return fmt.Sprintf("executor answered %d %s", e.Code, e.Body)
}

func asStatus(err error, target **StatusError) bool { return errors.As(err, target) }

func (c *Client) tenant(ns int64, rules []egress.Rule) *tenantClient {
	c.mu.Lock()
	t := c.clients[ns]
	if t == nil {
		t = &tenantClient{}
		t.http = c.policy.Client(func() []egress.Rule {
			t.mu.RLock()
			defer t.mu.RUnlock()
			return t.rules
		}, 2*inFlight)
		c.clients[ns] = t
	}
	c.mu.Unlock()
	t.mu.Lock()
	t.rules = rules
	t.mu.Unlock()
	return t
}

// call posts a message and reads the verified reply into reply.
func (c *Client) call(ctx context.Context, e store.Executor, path string, message func(head protocol.Head) any, kind string, reply any) error {
	namespace, keys, rules, err := c.keys(ctx, e.NSID, e.AppID)
	if err != nil {
		return fmt.Errorf("key of app %s: %w", e.AppName, err)
	}
	body, err := json.Marshal(message(protocol.Head{Type: kind, Namespace: namespace, App: e.AppName, Instance: strconv.FormatInt(e.ID, 10)}))
	if err != nil {
		return fmt.Errorf("%s: %w", kind, err)
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, strings.TrimRight(e.Address, "/")+path, bytes.NewReader(body))
	if err != nil {
		return fmt.Errorf("%s: %w", kind, err)
	}
	id := protocol.NewMessageID()
	req.Header.Set("Content-Type", "application/json")
	req.Header.Set("User-Agent", "ax-server")
	req.Header.Set("Traceparent", traceparent())
	req.Header.Set(protocol.HeaderTime, strconv.FormatInt(clock.Millis(c.clock), 10))
	if err := protocol.Sign(req.Header, id, time.Now(), body, keys...); err != nil {
		return err
	}
	res, err := c.tenant(e.NSID, rules).http.Do(req)
	if err != nil {
		return err
	}
	defer func() { _ = res.Body.Close() }()
	answer, err := io.ReadAll(io.LimitReader(res.Body, maxReply+1))
	if err != nil {
		return fmt.Errorf("read answer: %w", err)
	}
	if res.StatusCode != http.StatusOK {
		return &StatusError{Code: res.StatusCode, Body: printable(answer)}
	}
	if len(answer) > maxReply {
		return errors.New("answer is longer than 1 MiB")
	}
	if err := protocol.VerifyReply(res.Header, id, answer, time.Now(), keys...); err != nil {
		return fmt.Errorf("answer: %w", err)
	}
	if err := json.Unmarshal(protocol.WithoutBOM(answer), reply); err != nil {
		return fmt.Errorf("answer is not understood: %w", err)
	}
	return nil
}

// traceparent begins a trace of its own for each request (W3C trace context), not sampled:
// an executor that traces may take it up.
func traceparent() string {
	var b [24]byte
	_, _ = rand.Read(b[:])
	return fmt.Sprintf("00-%x-%x-00", b[:16], b[16:])
}

func printable(b []byte) string {
	if len(b) > 200 {
		b = b[:200]
	}
	return strconv.QuoteToASCII(string(b))
}

// Run starts executions on an executor and returns its answer to each.
func (c *Client) Run(ctx context.Context, e store.Executor, list []protocol.RunExecution) ([]protocol.Answer, error) {
	var out protocol.Answers
	err := c.call(ctx, e, protocol.PathRun, func(h protocol.Head) any { return protocol.Run{Head: h, Executions: list} }, protocol.TypeRun, &out)
	return out.Answers, err
}

// Kill asks an executor to stop executions.
func (c *Client) Kill(ctx context.Context, e store.Executor, list []protocol.Ref) ([]protocol.Answer, error) {
	var out protocol.Answers
	err := c.call(ctx, e, protocol.PathKill, func(h protocol.Head) any { return protocol.Kill{Head: h, Executions: list} }, protocol.TypeKill, &out)
	return out.Answers, err
}

// Probe asks an address whether its executor lives. A reply that is not signed with the
// app's key, or that repeats another nonce, is protocol.ErrSignature.
func (c *Client) Probe(ctx context.Context, e store.Executor, nonce string) (protocol.Probed, error) {
	var out protocol.Probed
	err := c.call(ctx, e, protocol.PathProbe, func(h protocol.Head) any { return protocol.Probe{Head: h, Nonce: nonce} }, protocol.TypeProbe, &out)
	if err == nil && out.Nonce != nonce {
		return out, protocol.ErrSignature
	}
	return out, err
}
