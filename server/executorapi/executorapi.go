// Package executorapi is what executors call: registration, results, leases, output. Every
// message is verified before anything is looked at, and every reply is signed.
//
// It decides nothing: heartbeats go to package registry, results to outcome, output to the store. What belongs to another
// replica's bucket goes there (elsewhere.go).
package executorapi

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"log/slog"
	"net/http"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/gin-gonic/gin"

	"github.com/ax-scheduler/ax/internal/appkey"
	"github.com/ax-scheduler/ax/internal/batch"
	"github.com/ax-scheduler/ax/internal/clock"
	"github.com/ax-scheduler/ax/internal/cluster"
	"github.com/ax-scheduler/ax/internal/metric"
	"github.com/ax-scheduler/ax/internal/outcome"
	"github.com/ax-scheduler/ax/internal/protocol"
	"github.com/ax-scheduler/ax/internal/registry"
	"github.com/ax-scheduler/ax/internal/store"
	"github.com/ax-scheduler/ax/server/peer"
)

// Limits before anything is verified.
const (
	maxBody    = 1 << 20
	maxLogBody = 256 << 10
	// readFor bounds the reading of a body.
	readFor = 10 * time.Second
	// seenLimit bounds the remembered message ids.
	seenLimit = 200_000
)

// API serves executors.
type API struct {
	store    *store.Store
	ring     *appkey.Ring
	registry *registry.Registry
	outcome  *outcome.Outcome
	clock    clock.Clock
	metrics  *metric.Metrics
	log      *slog.Logger
	seen     *protocol.Seen
	cluster  *cluster.Cluster
	peers    *peer.Peers
	wake     chan struct{}
	// output is called when an execution has new output.
	output func(executionID int64)
	quota  *quota
	// secrets tells what must not be seen of the runs of jobs; nil = nothing.
	secrets func(ctx context.Context, ns int64, jobs ...int64) (map[int64][]string, error)
}

// Config is what an API needs.
type Config struct {
	Store    *store.Store
	Ring     *appkey.Ring
	Registry *registry.Registry
	Outcome  *outcome.Outcome
	Clock    clock.Clock
	Metrics  *metric.Metrics
	Log      *slog.Logger
	Cluster  *cluster.Cluster
	Peers    *peer.Peers
	Output   func(executionID int64)
	// OutputLimit bounds the output of one execution, OutputPerDay that of a namespace on a day, in bytes.
	OutputLimit, OutputPerDay int64
	// Secrets lists, by job, the values that runs of jobs of a namespace may have been given and that nobody may read in
	// their output, messages and results: they are masked before they are stored. nil = none.
	Secrets func(ctx context.Context, ns int64, jobs ...int64) (map[int64][]string, error)
}

// New makes the API.
func New(c Config) *API {
	return &API{store: c.Store, ring: c.Ring, registry: c.Registry, outcome: c.Outcome, clock: c.Clock, metrics: c.Metrics, log: c.Log, seen: protocol.NewSeen(seenLimit), cluster: c.Cluster, peers: c.Peers, wake: make(chan struct{}, 1), output: c.Output, quota: newQuota(c), secrets: c.Secrets}
}

// Mount adds the routes.
func (a *API) Mount(r gin.IRouter) {
	r.POST(protocol.PathRegister, handle(a, protocol.TypeRegister, maxBody, a.register))
	r.POST(protocol.PathRemove, handle(a, protocol.TypeRemove, maxBody, a.remove))
	r.POST(protocol.PathResults, handle(a, protocol.TypeResults, maxBody, a.results))
	r.POST(protocol.PathLease, handle(a, protocol.TypeLease, maxBody, a.lease))
	r.POST(protocol.PathLog, handle(a, protocol.TypeLog, maxLogBody, a.output_))
}

// refusal is an answer that is not 200.
type refusal struct {
	status int
	code   string
	text   string
}

// Error is the code and the sentence.
func (r *refusal) Error() string { return r.code + ": " + r.text }

func refuse(status int, code, text string) *refusal { return &refusal{status, code, text} }

// sender is who sent a verified message.
type sender struct {
	app      appkey.Entry
	instance string
}

type message interface {
	head() protocol.Head
}

// The messages, each with its head.
type (
	registerMessage struct{ protocol.Register }
	removeMessage   struct{ protocol.Remove }
	leaseMessage    struct{ protocol.Lease }
	logMessage      struct{ protocol.Log }
	// resultsMessage is protocol.Results whose items are decoded one by one.
	resultsMessage struct {
		protocol.Head
		Results []json.RawMessage `json:"results"`
	}
)

func (m registerMessage) head() protocol.Head { return m.Head }
func (m removeMessage) head() protocol.Head   { return m.Head }
func (m resultsMessage) head() protocol.Head  { return m.Head }
func (m leaseMessage) head() protocol.Head    { return m.Head }
func (m logMessage) head() protocol.Head      { return m.Head }

// handle reads and verifies a message, and sees to it that it is handled where its namespace is owned: by f here, by
// another replica, or later.
func handle[M message](a *API, kind string, limit int64, f func(c *gin.Context, from sender, m M) (any, error)) gin.HandlerFunc {
	return func(c *gin.Context) {
		a.metrics.Callbacks.WithLabelValues(kind).Inc()
		from, body, err := a.verify(c, limit)
		if err != nil {
			a.refuse(c, kind, err)
			return
		}
		c.Request.Body = io.NopCloser(bytes.NewReader(body))
		var reply any
		var here bool
		for range tries {
			if here, err = a.route(c, kind, from); !here || err != nil {
				break
			}
			// When it went elsewhere while it was handled, nothing was written.
			if reply, err = take(a, c, kind, from, body, f); !moved(err) {
				break
			}
		}
		if !here && err == nil {
			return // another replica answered
		}
		if errors.Is(err, peer.ErrNobody) || moved(err) {
			reply, err = a.keep(c, kind, from, body)
		}
		if err != nil {
			a.refuse(c, kind, err)
			return
		}
		a.answer(c, from, reply)
	}
}

// take decodes a message, looks whether it is its sender's, and handles it.
func take[M message](a *API, c *gin.Context, kind string, from sender, body []byte, f func(c *gin.Context, from sender, m M) (any, error)) (any, error) {
	var m M
	if err := decode(body, &m); err != nil {
		return nil, err
	}
	if err := a.check(kind, from, m.head()); err != nil {
		return nil, err
	}
	if kind != protocol.TypeRegister {
		if _, err := a.registry.Instance(from.app.App.ID, m.head().Instance); err != nil {
			return nil, err
		}
	}
	from.instance = m.head().Instance
	return f(c, from, m)
}

func decode[M message](body []byte, m *M) error {
	// What handlers write may be in another encoding: the decoder puts replacement marks where it is no UTF-8, since output and
	// results are worth more than their form. Names that suffer from it match nothing.
	if err := json.Unmarshal(protocol.WithoutBOM(body), m); err != nil {
		return refuse(http.StatusBadRequest, "bad_json", "the body is not understood: "+err.Error())
	}
	return nil
}

// verify reads the body, whole but bounded, and checks the signature with the keys of the
// app that the header names. An unknown app is answered like a wrong key. Nothing of the body is read or held
// for a sender that has not proven by a header that he has the key.
func (a *API) verify(c *gin.Context, limit int64) (sender, []byte, error) {
	control := http.NewResponseController(c.Writer)
	entry, err := a.proven(c, limit)
	if err != nil {
		// Nobody waits for the rest of what he sends: the server would read on to use the connection again.
		c.Header("Connection", "close")
		_ = control.SetReadDeadline(time.Now())
		return sender{}, nil, err
	}
	length := c.Request.ContentLength
	_ = control.SetReadDeadline(time.Now().Add(readFor))
	body := make([]byte, length)
	if _, err := io.ReadFull(c.Request.Body, body); err != nil {
		return sender{}, nil, refuse(http.StatusBadRequest, "bad_body", "the body could not be read")
	}
	now := time.Now()
	switch err := protocol.Verify(c.Request.Header, body, now, entry.Keys...); {
	case errors.Is(err, protocol.ErrClock):
		c.Header(protocol.HeaderTime, strconv.FormatInt(now.UnixMilli(), 10))
		return sender{}, nil, refuse(http.StatusUnauthorized, "bad_clock", err.Error())
	case err != nil:
		return sender{}, nil, refuse(http.StatusUnauthorized, "bad_signature", protocol.ErrSignature.Error())
	}
	if !a.seen.First(c.GetHeader(protocol.HeaderApp)+" "+protocol.MessageID(c.Request.Header), now) {
		return sender{}, nil, refuse(http.StatusUnauthorized, "replayed", protocol.ErrReplayed.Error())
	}
	return sender{app: entry}, body, nil
}

// proven finds the app whose key the sender has, by the headers alone.
func (a *API) proven(c *gin.Context, limit int64) (appkey.Entry, error) {
	stranger := refuse(http.StatusUnauthorized, "bad_signature", protocol.ErrSignature.Error())
	if err := protocol.Plausible(c.Request.Header); err != nil {
		return appkey.Entry{}, stranger
	}
	namespace, app, ok := strings.Cut(c.GetHeader(protocol.HeaderApp), "/")
	if !ok || len(namespace) > 64 || len(app) > 64 {
		return appkey.Entry{}, refuse(http.StatusUnauthorized, "bad_signature", "the header ax-app must be <namespace>/<app>")
	}
	length := c.Request.ContentLength
	if length < 0 {
		return appkey.Entry{}, refuse(http.StatusLengthRequired, "length_required", "the length of the body must be announced")
	}
	entry, err := a.ring.ByName(c.Request.Context(), namespace, app)
	if errors.Is(err, store.ErrNotFound) {
		return appkey.Entry{}, stranger
	}
	if err != nil {
		return appkey.Entry{}, err
	}
	if err := protocol.VerifyProof(c.Request.Header, length, entry.Keys...); err != nil {
		return appkey.Entry{}, stranger
	}
	if length > limit {
		return appkey.Entry{}, refuse(http.StatusRequestEntityTooLarge, "too_large", "the body is longer than "+strconv.FormatInt(limit, 10)+" bytes")
	}
	return entry, nil
}

func (a *API) check(kind string, from sender, h protocol.Head) error {
	if h.Type != kind {
		return refuse(http.StatusBadRequest, "wrong_type", "this path takes type "+kind)
	}
	if h.Namespace != from.app.Namespace.Name || h.App != from.app.App.Name {
		return refuse(http.StatusForbidden, "wrong_app", "namespace and app of the body are not the key's")
	}
	return nil
}

func (a *API) answer(c *gin.Context, from sender, reply any) {
	body, err := json.Marshal(reply)
	if err != nil {
		a.refuse(c, "reply", err)
		return
	}
	if err := protocol.Sign(c.Writer.Header(), protocol.MessageID(c.Request.Header), time.Now(), body, from.app.Keys...); err != nil {
		a.refuse(c, "reply", err)
		return
	}
	c.Header(protocol.HeaderTime, strconv.FormatInt(clock.Millis(a.clock), 10))
	c.Data(http.StatusOK, "application/json", body)
}

func (a *API) refuse(c *gin.Context, kind string, err error) {
	var r *refusal
	switch {
	case errors.As(err, &r):
	case errors.Is(err, registry.ErrInstance):
		r = refuse(http.StatusForbidden, "wrong_instance", err.Error())
	case errors.Is(err, outcome.ErrBusy):
		c.Header("Retry-After", "1")
		r = refuse(http.StatusTooManyRequests, "busy", err.Error())
	case errors.Is(err, store.ErrUnavailable), errors.Is(err, peer.ErrNobody), errors.Is(err, peer.ErrUnknown), moved(err), c.Request.Context().Err() != nil:
		c.Header("Retry-After", "1")
		r = refuse(http.StatusServiceUnavailable, "unavailable", "this can not be made durable now: send it again")
	default:
		r = refuse(http.StatusInternalServerError, "internal", "ax-server met an error; its log has it")
	}
	if r.status >= http.StatusInternalServerError {
		a.log.WarnContext(c.Request.Context(), "executor message not taken", slog.String("type", kind), slog.String("err", err.Error()))
	} else {
		a.log.InfoContext(c.Request.Context(), "executor message refused", slog.String("type", kind), slog.String("code", r.code), slog.String("from", c.RemoteIP()))
	}
	a.metrics.CallbackDenied.WithLabelValues(kind, r.code).Inc()
	c.JSON(r.status, protocol.Error{Code: r.code, Message: r.text})
}

func (a *API) register(c *gin.Context, from sender, m registerMessage) (any, error) {
	const maxHandlers, maxLabels, maxRunning = 1000, 64, 20_000
	if len(m.Handlers) > maxHandlers || len(m.Labels) > maxLabels || len(m.Running) > maxRunning {
		return nil, refuse(http.StatusBadRequest, "too_many", "at most 1000 handlers, 64 labels and 20000 running executions")
	}
	if len(m.StartID) < 8 || len(m.StartID) > 64 || !ascii(m.StartID) || !ascii(m.SDK) || !ascii(m.Address) {
		return nil, refuse(http.StatusBadRequest, "bad_field", "startId (8 to 64 characters), sdk and address are ASCII")
	}
	const maxSlots, maxCPU, maxMemoryMB, maxLabelBytes = 1_000_000, 100_000, 1 << 40, 16 << 10
	labels := 0
	for k, v := range m.Labels {
		labels += len(k) + len(v)
	}
	if m.Slots < 0 || m.Slots > maxSlots || m.CPU < 0 || m.CPU > maxCPU || m.MemoryMB < 0 || m.MemoryMB > maxMemoryMB || labels > maxLabelBytes {
		return nil, refuse(http.StatusBadRequest, "bad_field", "slots (up to 1000000), cpu (up to 100000) and memoryMB must not be negative; labels have at most 16 KiB together")
	}
	x, err := a.registry.Beat(c.Request.Context(), from.app.Namespace.Bucket, from.app.App, m.Register)
	if err != nil {
		return nil, err
	}
	return a.registered(c.Request.Context(), from, x.Executor, m)
}

// registered is the answer to a heartbeat: what is thought of the executor, and what it is to stop.
func (a *API) registered(ctx context.Context, from sender, x store.Executor, m registerMessage) (any, error) {
	settings := a.registry.Settings()
	reply := protocol.Registered{
		State: x.State, Reason: x.Reason, Instance: strconv.FormatInt(x.ID, 10), HeartbeatMs: settings.Heartbeat.Milliseconds(), LeaseMs: settings.Lease.Milliseconds(),
		ServerTime: clock.Millis(a.clock), Owner: a.owner(from.app.Namespace.Bucket), Stop: []protocol.Ref{},
	}
	switch x.State {
	case store.ExecutorDrained, store.ExecutorSuspect:
		reply.State = store.ExecutorOnline
	}
	ids := make([]int64, 0, len(m.Running))
	for _, r := range m.Running {
		if id, err := strconv.ParseInt(r.ExecutionID, 10, 64); err == nil && id > 0 {
			ids = append(ids, id)
		}
	}
	if len(ids) > 0 {
		stop, err := a.store.ToStop(ctx, from.app.Namespace.ID, ids)
		// Without the database the heartbeat still counts; the next one is told what to stop.
		if err != nil && !errors.Is(err, store.ErrUnavailable) {
			return nil, err
		}
		for _, e := range stop {
			reply.Stop = append(reply.Stop, protocol.Ref{BatchID: e.BatchID, ExecutionID: strconv.FormatInt(e.ID, 10), Fence: protocol.Fence{Attempt: e.Attempt, Epoch: e.Epoch}, Reason: e.StopReason})
		}
	}
	return reply, nil
}

func (a *API) remove(c *gin.Context, from sender, m removeMessage) (any, error) {
	x, err := a.registry.Instance(from.app.App.ID, from.instance)
	if err != nil {
		return nil, err
	}
	if err := a.registry.Remove(c.Request.Context(), from.app.App.ID, x.ID, m.StartID); err != nil {
		return nil, err
	}
	return struct{}{}, nil
}

func (a *API) results(c *gin.Context, from sender, m resultsMessage) (any, error) {
	reports, out, at, err := a.reports(c.Request.Context(), from, m)
	if err != nil {
		return nil, err
	}
	answers, err := a.outcome.Record(c.Request.Context(), reports)
	if err != nil {
		return nil, err
	}
	for i, answer := range answers {
		out.Answers[at[i]].Answer = answer
	}
	return out, nil
}

// reports makes the reports of a message's results, with the answer to those that are not understood; at is the
// place of each report in it.
func (a *API) reports(ctx context.Context, from sender, m resultsMessage) (reports []*outcome.Report, out protocol.Answers, at []int, err error) {
	if len(m.Results) > protocol.MaxResults {
		return nil, out, nil, refuse(http.StatusBadRequest, "too_many", "at most 500 results a message")
	}
	if err := a.veil(ctx, from.app.Namespace.ID, m.Results); err != nil {
		return nil, out, nil, err
	}
	out.Answers = make([]protocol.Answer, len(m.Results))
	for i, raw := range m.Results {
		var r protocol.Result
		decoded := json.Unmarshal(raw, &r) == nil
		out.Answers[i] = protocol.Answer{ExecutionID: r.ExecutionID, Answer: protocol.Unknown}
		const maxResult = 64 << 10
		if r.Result != nil && len(*r.Result) > maxResult {
			cut := (*r.Result)[:maxResult]
			for cut != "" && !utf8.ValidString(cut) {
				cut = cut[:len(cut)-1]
			}
			cut += "… [cut]"
			r.Result = &cut
		}
		// One bad item does not void the others: it is answered as unknown.
		report, ok := outcome.FromResult(from.app.Namespace.ID, from.app.App.Name, r)
		if ok && decoded && batch.ExecutionBucket(report.ExecutionID) == from.app.Namespace.Bucket {
			reports, at = append(reports, report), append(at, i)
		}
	}
	return reports, out, at, nil
}

// maxExtend bounds one extension.
const maxExtend = 24 * time.Hour

func (a *API) lease(c *gin.Context, from sender, m leaseMessage) (any, error) {
	if len(m.Executions) > protocol.MaxResults {
		return nil, refuse(http.StatusBadRequest, "too_many", "at most 500 executions a message")
	}
	out := protocol.Answers{Answers: make([]protocol.Answer, len(m.Executions))}
	var asks []outcome.Extension
	for i, r := range m.Executions {
		out.Answers[i] = protocol.Answer{ExecutionID: r.ExecutionID, Answer: protocol.Unknown}
		id, err := strconv.ParseInt(r.ExecutionID, 10, 64)
		if err != nil || id <= 0 || batch.ExecutionBucket(id) != from.app.Namespace.Bucket || r.ExtendMs < 0 || r.ExtendMs > maxExtend.Milliseconds() {
			continue
		}
		asks = append(asks, outcome.Extension{ExecutionID: id, ExtendMs: r.ExtendMs, NS: from.app.Namespace.ID, App: from.app.App.Name})
	}
	deadlines, err := a.outcome.Extend(c.Request.Context(), asks)
	if err != nil {
		return nil, err
	}
	for i, r := range m.Executions {
		id, _ := strconv.ParseInt(r.ExecutionID, 10, 64)
		deadline, ok := deadlines[id]
		if !ok {
			continue
		}
		out.Answers[i].Answer, out.Answers[i].Deadline = "renewed", &deadline
		if r.ExtendMs > 0 {
			out.Answers[i].Answer = "extended"
		}
	}
	return out, nil
}

func ascii(s string) bool {
	for i := range len(s) {
		if s[i] < 0x20 || s[i] > 0x7e {
			return false
		}
	}
	return true
}
