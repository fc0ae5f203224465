package axtest

import (
	"bytes"
	"encoding/json"
	"io"
	"maps"
	"net/http"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// Client calls the API as somebody.
type Client struct {
	s        *Server
	Token    string
	Language string
	// Header are further headers of each request.
	Header http.Header
}

// Answer is what the API answered.
type Answer struct {
	Status int
	Header http.Header
	Body   []byte
}

// Text is the body as text.
func (a Answer) Text() string { return string(a.Body) }

// Into decodes the body.
func (a Answer) Into(t testing.TB, v any) {
	t.Helper()
	require.NoError(t, json.Unmarshal(a.Body, v), a.Text())
}

// Problem is an error answer.
type Problem struct {
	Status    int    `json:"status"`
	Title     string `json:"title"`
	Detail    string `json:"detail"`
	Code      string `json:"code"`
	RequestID string `json:"requestId"`
	Errors    []struct {
		Code    string `json:"code"`
		Field   string `json:"field"`
		Token   string `json:"token"`
		Message struct {
			EN string `json:"en"`
			ZH string `json:"zh"`
		} `json:"message"`
	} `json:"errors"`
}

// Problem decodes an error answer.
func (a Answer) Problem(t testing.TB) Problem {
	t.Helper()
	require.Equal(t, "application/problem+json", a.Header.Get("Content-Type"), a.Text())
	var p Problem
	a.Into(t, &p)
	return p
}

// Anonymous is a client that nobody logged in.
func (s *Server) Anonymous() *Client { return &Client{s: s} }

// As is a client with a token of the caller's making.
func (s *Server) As(token string) *Client { return &Client{s: s, Token: token} }

// Login logs somebody in.
func (s *Server) Login(t testing.TB, name, password string) *Client {
	t.Helper()
	c := s.Anonymous()
	var a Answer
	WaitFor(t, "the login is taken", func() bool {
		// Passwords are checked a few at a time in a process, and many servers are in this one.
		a = c.Do(t, http.MethodPost, "/api/v1/auth/login", map[string]any{"username": name, "password": password})
		return a.Status != http.StatusServiceUnavailable
	})
	require.Equal(t, http.StatusOK, a.Status, a.Text())
	var out struct {
		AccessToken string `json:"accessToken"`
	}
	a.Into(t, &out)
	c.Token = out.AccessToken
	return c
}

// Admin is the administrator, logged in once.
func (s *Server) Admin(t testing.TB) *Client {
	t.Helper()
	s.admin.Lock()
	defer s.admin.Unlock()
	if s.administrator == nil {
		s.administrator = s.Login(t, "admin", Password)
	}
	return s.administrator
}

// Try calls the API; body is nil, bytes as they are, or anything JSON. err says that there was no answer.
func (c *Client) Try(method, path string, body any) (Answer, error) {
	var in io.Reader
	switch b := body.(type) {
	case nil:
	case []byte:
		in = bytes.NewReader(b)
	default:
		raw, err := json.Marshal(b)
		if err != nil {
			return Answer{}, err
		}
		in = bytes.NewReader(raw)
	}
	req, err := http.NewRequest(method, c.s.URL()+path, in)
	if err != nil {
		return Answer{}, err
	}
	if in != nil {
		req.Header.Set("Content-Type", "application/json")
	}
	if c.Token != "" {
		req.Header.Set("Authorization", "Bearer "+c.Token)
	}
	if c.Language != "" {
		req.Header.Set("Accept-Language", c.Language)
	}
	maps.Copy(req.Header, c.Header)
	res, err := (&http.Client{Timeout: 30 * time.Second}).Do(req)
	if err != nil {
		return Answer{}, err
	}
	defer func() { _ = res.Body.Close() }()
	raw, err := io.ReadAll(res.Body)
	return Answer{Status: res.StatusCode, Header: res.Header, Body: raw}, err
}

// Do calls the API.
func (c *Client) Do(t testing.TB, method, path string, body any) Answer {
	t.Helper()
	a, err := c.Try(method, path, body)
	require.NoError(t, err)
	return a
}

// Get reads a path that must be there.
func (c *Client) Get(t testing.TB, path string, into any) {
	t.Helper()
	a := c.Do(t, http.MethodGet, path, nil)
	require.Equal(t, http.StatusOK, a.Status, a.Text())
	a.Into(t, into)
}

// Namespace is a namespace of a Server, for one test.
type Namespace struct {
	Name   string
	Server *Server
	Client *Client
	t      testing.TB
}

var spaces atomic.Int64 //nolint:gochecknoglobals // names are unique in a process

// Namespace makes a namespace for a test.
func (s *Server) Namespace(t testing.TB) *Namespace {
	t.Helper()
	n := &Namespace{Name: "ns" + strconv.FormatInt(spaces.Add(1), 10), Server: s, Client: s.Admin(t), t: t}
	a := n.Client.Do(t, http.MethodPost, "/api/v1/namespaces", map[string]any{"name": n.Name})
	require.Equal(t, http.StatusCreated, a.Status, a.Text())
	return n
}

// At is the namespace as another server of the same database shows it.
func (n *Namespace) At(s *Server) *Namespace {
	return &Namespace{Name: n.Name, Server: s, Client: &Client{s: s, Token: n.Client.Token}, t: n.t}
}

// At is the app as another server of the same database shows it: executors made of it call that one.
func (a *App) At(list ...*Server) *App {
	return &App{Name: a.Name, Key: a.Key, n: a.n.At(list[0]), servers: list}
}

// Path is a path inside the namespace.
func (n *Namespace) Path(rest string) string { return "/api/v1/namespaces/" + n.Name + rest }

// App is an app with its key.
type App struct {
	Name string
	Key  string
	n    *Namespace
	// servers are those that its executors call in turn; empty = the namespace's.
	servers []*Server
}

// App makes an app.
func (n *Namespace) App(name string) *App {
	n.t.Helper()
	a := n.Client.Do(n.t, http.MethodPost, n.Path("/apps"), map[string]any{"name": name})
	require.Equal(n.t, http.StatusCreated, a.Status, a.Text())
	var out struct {
		Key string `json:"key"`
	}
	a.Into(n.t, &out)
	return &App{Name: name, Key: out.Key, n: n}
}

// WithKey is the app as executors with another key know it.
func (a *App) WithKey(key string) *App {
	other := *a
	other.Key = key
	return &other
}

// Def is a job's definition as somebody writes it.
type Def map[string]any

// Job makes a job and returns its id. Name, app and handler default to "job", "app", "work".
func (n *Namespace) Job(def Def) string {
	n.t.Helper()
	full := Def{"name": "job", "app": "app", "handler": "work"}
	maps.Copy(full, def)
	a := n.Client.Do(n.t, http.MethodPost, n.Path("/jobs"), full)
	require.Equal(n.t, http.StatusCreated, a.Status, a.Text())
	var out struct {
		ID string `json:"id"`
	}
	a.Into(n.t, &out)
	return out.ID
}

// JobView is what the tests read of a job.
type JobView struct {
	ID            string  `json:"id"`
	Name          string  `json:"name"`
	Enabled       bool    `json:"enabled"`
	Version       int64   `json:"version"`
	Params        string  `json:"params"`
	Description   string  `json:"description"`
	NextTriggerAt *string `json:"nextTriggerAt"`
}

// JobView reads a job.
func (n *Namespace) JobView(id string) JobView {
	n.t.Helper()
	var v JobView
	n.Client.Get(n.t, n.Path("/jobs/"+id), &v)
	return v
}

// Trigger runs a job now and returns the batch.
func (n *Namespace) Trigger(job string) string {
	n.t.Helper()
	a := n.Client.Do(n.t, http.MethodPost, n.Path("/jobs/"+job+"/trigger"), map[string]any{})
	require.Equal(n.t, http.StatusOK, a.Status, a.Text())
	var out struct {
		BatchID string `json:"batchId"`
	}
	a.Into(n.t, &out)
	return out.BatchID
}

// Reason is why something is as it is.
type Reason struct {
	Code   string `json:"code"`
	EN     string `json:"en"`
	ZH     string `json:"zh"`
	Detail string `json:"detail"`
}

// Event is a deviation that the server kept.
type Event struct {
	ExecutionID string `json:"executionId"`
	Kind        string `json:"kind"`
	Detail      string `json:"detail"`
}

// Execution is one attempt of one shard.
type Execution struct {
	ID         string `json:"id"`
	BatchID    string `json:"batchId"`
	Shard      int    `json:"shard"`
	ShardTotal int    `json:"shardTotal"`
	Attempt    int    `json:"attempt"`
	State      string `json:"state"`
	Executor   *struct {
		ID      string `json:"id"`
		Address string `json:"address"`
	} `json:"executor"`
	StartedAt  *time.Time `json:"startedAt"`
	FinishedAt *time.Time `json:"finishedAt"`
	Error      string     `json:"error"`
	Reason     *Reason    `json:"reason"`
	Result     *string    `json:"result"`
	Stop       *StopView  `json:"stop"`
	Message    string     `json:"message"`
	Code       string     `json:"code"`
	Events     []Event    `json:"events"`
	Choice     *Choice    `json:"choice"`
}

// Choice says why an execution is where it is.
type Choice struct {
	Source     string `json:"source"`
	Strategy   string `json:"strategy"`
	Candidates []struct {
		Executor struct {
			ID      string `json:"id"`
			Address string `json:"address"`
		} `json:"executor"`
		Place  int                `json:"place"`
		Chosen bool               `json:"chosen"`
		Reason *Reason            `json:"reason"`
		Terms  map[string]float64 `json:"terms"`
	} `json:"candidates"`
}

// Why is the reason code of a candidate, by its address.
func (c *Choice) Why(address string) string {
	for _, x := range c.Candidates {
		if x.Executor.Address == address && x.Reason != nil {
			return x.Reason.Code
		}
	}
	return ""
}

// Address is where it ran, or empty.
func (e Execution) Address() string {
	if e.Executor == nil {
		return ""
	}
	return e.Executor.Address
}

// Batch is one firing.
type Batch struct {
	BatchID     string        `json:"batchId"`
	JobID       string        `json:"jobId"`
	Trigger     string        `json:"trigger"`
	State       string        `json:"state"`
	Reason      *Reason       `json:"reason"`
	DueAt       time.Time     `json:"dueAt"`
	ShardTotal  int           `json:"shardTotal"`
	ShardsDone  int           `json:"shardsDone"`
	ShardsFail  int           `json:"shardsFailed"`
	MissedCount int           `json:"missedCount"`
	MissedLast  *time.Time    `json:"missedLastAt"`
	Waiting     *Waiting      `json:"waiting"`
	Results     []ShardResult `json:"results"`
	Executions  []Execution   `json:"executions"`
	Events      []Event       `json:"events"`
}

// ShardResult is what a shard returned.
type ShardResult struct {
	Shard  int    `json:"shard"`
	Result string `json:"result"`
}

// Waiting is where something waits, and for what.
type Waiting struct {
	Position int     `json:"position"`
	Of       int     `json:"of"`
	Reason   *Reason `json:"reason"`
}

// Code is the reason's code, or empty.
func (b Batch) Code() string {
	if b.Reason == nil {
		return ""
	}
	return b.Reason.Code
}

// Final tells whether the batch has ended.
func (b Batch) Final() bool {
	switch b.State {
	case "SUCCEEDED", "FAILED", "TIMED_OUT", "CANCELLED", "SKIPPED", "MISSED":
		return true
	}
	return false
}

// Kinds lists the kinds of the batch's events.
func (b Batch) Kinds() []string {
	var out []string
	for _, e := range b.Events {
		out = append(out, e.Kind)
	}
	return out
}

// Batch reads a batch.
func (n *Namespace) Batch(id string) Batch {
	n.t.Helper()
	var b Batch
	n.Client.Get(n.t, n.Path("/batches/"+id), &b)
	return b
}

// Execution reads one execution.
func (n *Namespace) Execution(id string) Execution {
	n.t.Helper()
	var e Execution
	n.Client.Get(n.t, n.Path("/executions/"+id), &e)
	return e
}

// Ended waits until a batch has ended.
func (n *Namespace) Ended(id string) Batch {
	n.t.Helper()
	var b Batch
	WaitUpTo(n.t, 2*Patience, "batch "+id+" ends", func() bool {
		b = n.Batch(id)
		return b.Final()
	})
	return b
}

// Reaches waits until a batch is in a state.
func (n *Namespace) Reaches(id, state string) Batch {
	n.t.Helper()
	var b Batch
	WaitUpTo(n.t, 2*Patience, "batch "+id+" is "+state, func() bool {
		b = n.Batch(id)
		require.True(n.t, b.State == state || !b.Final(), "batch %s ended %s (%s)", id, b.State, b.Code())
		return b.State == state
	})
	return b
}

// Batches lists all batches of a job, latest due first, without their executions.
func (n *Namespace) Batches(job string) []Batch {
	n.t.Helper()
	var all []Batch
	for cursor := ""; ; {
		var page struct {
			Items      []Batch `json:"items"`
			NextCursor string  `json:"nextCursor"`
		}
		n.Client.Get(n.t, n.Path("/batches?limit=200&job="+job+"&cursor="+cursor), &page)
		all = append(all, page.Items...)
		if page.NextCursor == "" {
			return all
		}
		cursor = page.NextCursor
	}
}

// Output reads an execution's whole output.
func (n *Namespace) Output(execution string) string {
	n.t.Helper()
	var text strings.Builder
	for offset := int64(0); ; {
		var part struct {
			Text       string `json:"text"`
			NextOffset int64  `json:"nextOffset"`
		}
		n.Client.Get(n.t, n.Path("/executions/"+execution+"/output?offset="+strconv.FormatInt(offset, 10)), &part)
		if part.Text == "" {
			return text.String()
		}
		text.WriteString(part.Text)
		offset = part.NextOffset
	}
}

// Audit is one entry of the trail.
type Audit struct {
	ID        string `json:"id"`
	Namespace string `json:"namespace"`
	Action    string `json:"action"`
	RequestID string `json:"requestId"`
	Outcome   string `json:"outcome"`
	Actor     struct {
		Type string `json:"type"`
		Name string `json:"name"`
	} `json:"actor"`
	Object struct {
		Type string `json:"type"`
		ID   string `json:"id"`
		Name string `json:"name"`
	} `json:"object"`
	Before json.RawMessage `json:"before"`
	After  json.RawMessage `json:"after"`
}

// Audit lists the newest entries that the administrator may read; query is like "namespace=a&action=b".
func (s *Server) Audit(t testing.TB, query string) []Audit {
	t.Helper()
	var page struct {
		Items []Audit `json:"items"`
	}
	s.Admin(t).Get(t, "/api/v1/audit?limit=200&"+query, &page)
	return page.Items
}

// ExecutorView is an executor as the server sees it.
type ExecutorView struct {
	ID      string  `json:"id"`
	App     string  `json:"app"`
	Address string  `json:"address"`
	State   string  `json:"state"`
	Reason  *Reason `json:"reason"`
	StartID string  `json:"startId"`
	Running int     `json:"running"`
}

// Executors lists the namespace's executors.
func (n *Namespace) Executors() []ExecutorView {
	n.t.Helper()
	var page struct {
		Items []ExecutorView `json:"items"`
	}
	n.Client.Get(n.t, n.Path("/executors"), &page)
	return page.Items
}

// StopView is what is known of the wish that an execution stop.
type StopView struct {
	AskedAt        time.Time  `json:"askedAt"`
	AskedBy        string     `json:"askedBy"`
	Reason         *Reason    `json:"reason"`
	AcknowledgedAt *time.Time `json:"acknowledgedAt"`
	ConfirmedAt    *time.Time `json:"confirmedAt"`
	Confirmed      bool       `json:"confirmed"`
}
