// Package peer is how replicas speak to each other: a request that belongs to the owner of a bucket is sent on
// to it as it came, and a replica is told to look when something became its own.
//
// Messages carry a token that only holders of the master key can make, for one request to one replica. They do
// not go through the egress policy: where the other replicas are comes from the database, not from tenants. Who asks is proven
// to the owner by what the caller sent (his token, or his app's signature), so that a replica can claim
// nothing in his name but the address that he came from.
package peer

import (
	"bytes"
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"sync"
	"time"

	"github.com/golang-jwt/jwt/v5"

	"github.com/ax-scheduler/ax/internal/clock"
	"github.com/ax-scheduler/ax/internal/cluster"
	"github.com/ax-scheduler/ax/internal/metric"
	"github.com/ax-scheduler/ax/internal/protocol"
	"github.com/ax-scheduler/ax/internal/store"
)

const (
	// Header carries the token of a message between replicas.
	Header = "Ax-Peer"
	// PathLook makes a replica look who owns what, and what waits in the inboxes.
	PathLook = "/ax/peer/look"
	// Purpose is what the key of the tokens is derived for.
	Purpose = "peer"

	issuer      = "ax-peer"
	tokenFor    = 30 * time.Second
	dialTimeout = time.Second
	// answerTimeout bounds one request to a replica, its work included.
	answerTimeout = 20 * time.Second
	lookTimeout   = 2 * time.Second
	// again is the pause before a request that nobody took is tried again.
	again = 30 * time.Millisecond
	// maxBody bounds a body that is sent on: the largest that any operation takes.
	maxBody   = 16 << 20
	seenLimit = 100_000
)

// Errors of Route.
var (
	// ErrNobody: no replica acts for the bucket now; the request reached none.
	ErrNobody = errors.New("no server acts for the namespace now: try again")
	// ErrUnknown: the owner was asked and did not answer; whether it did what it was asked is not known.
	ErrUnknown = errors.New("the server that acts for the namespace did not answer: whether the request was carried out is not known")
	// ErrBody: the body can not be read, or is too long.
	ErrBody = errors.New("the body could not be read")
	// ErrToken: a token of a message between replicas is not good.
	ErrToken = errors.New("this is not a message of a replica")
	// errUnsent: the request certainly had no effect there.
	errUnsent = errors.New("not taken")
)

// Config is what Peers needs.
type Config struct {
	Cluster *cluster.Cluster
	// Key is derived from the master key for Purpose.
	Key     []byte
	Clock   clock.Clock
	Metrics *metric.Metrics
	Log     *slog.Logger
}

// Peers are the other replicas. It is safe for concurrent use.
type Peers struct {
	Config
	client *http.Client
	seen   *protocol.Seen
	parser *jwt.Parser
	looks  sync.Map // replica → chan struct{}: a look is about to leave
}

// New makes the client to the other replicas.
func New(c Config) *Peers {
	p := &Peers{Config: c, seen: protocol.NewSeen(seenLimit)}
	p.client = &http.Client{
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
		Transport: &http.Transport{
			DialContext: (&net.Dialer{Timeout: dialTimeout, KeepAlive: 5 * time.Second}).DialContext, MaxIdleConnsPerHost: 64, MaxConnsPerHost: 256,
			IdleConnTimeout: 30 * time.Second, ResponseHeaderTimeout: answerTimeout, DisableCompression: true,
		},
	}
	p.parser = jwt.NewParser(jwt.WithValidMethods([]string{"HS256"}), jwt.WithIssuer(issuer), jwt.WithExpirationRequired(), jwt.WithTimeFunc(c.Clock.Now), jwt.WithLeeway(tokenFor))
	return p
}

// Origin is where a request that was sent on came from.
type Origin struct {
	Replica   string
	IP        string
	RequestID string
}

type claims struct {
	jwt.RegisteredClaims
	Method    string `json:"m"`
	URI       string `json:"u"`
	Body      string `json:"b"`
	IP        string `json:"ip,omitempty"`
	RequestID string `json:"rid,omitempty"`
}

func digest(body []byte) string {
	sum := sha256.Sum256(body)
	return hex.EncodeToString(sum[:])
}

func (p *Peers) token(to, method, uri string, body []byte, ip, requestID string) (string, error) {
	var id [16]byte
	_, _ = rand.Read(id[:])
	c := claims{Method: method, URI: uri, Body: digest(body), IP: ip, RequestID: requestID}
	c.Issuer, c.Subject, c.Audience, c.ID = issuer, p.Cluster.Self().ID, jwt.ClaimStrings{to}, hex.EncodeToString(id[:])
	c.ExpiresAt = jwt.NewNumericDate(p.Clock.Now().Add(tokenFor))
	return jwt.NewWithClaims(jwt.SigningMethodHS256, c).SignedString(p.Key)
}

// Receive looks at a request that claims to come from a replica. Its body is read, compared and put back.
func (p *Peers) Receive(r *http.Request) (Origin, error) {
	var c claims
	if _, err := p.parser.ParseWithClaims(r.Header.Get(Header), &c, func(*jwt.Token) (any, error) { return p.Key, nil }); err != nil {
		return Origin{}, ErrToken
	}
	if len(c.Audience) != 1 || c.Audience[0] != p.Cluster.Self().ID || c.Method != r.Method || c.URI != r.URL.RequestURI() {
		return Origin{}, ErrToken
	}
	body, err := read(r)
	if err != nil || digest(body) != c.Body {
		return Origin{}, ErrToken
	}
	if !p.seen.First(c.ID, time.Now()) {
		return Origin{}, ErrToken
	}
	return Origin{Replica: c.Subject, IP: c.IP, RequestID: c.RequestID}, nil
}

// read reads a request's body, bounded, and puts it back.
func read(r *http.Request) ([]byte, error) {
	if r.Body == nil || r.Body == http.NoBody {
		return nil, nil
	}
	body, err := io.ReadAll(io.LimitReader(r.Body, maxBody+1))
	if err != nil || len(body) > maxBody {
		return nil, ErrBody
	}
	r.Body = io.NopCloser(bytes.NewReader(body))
	return body, nil
}

type originKey struct{}

// WithOrigin marks a request's context as that of a request which a replica sent on.
func WithOrigin(ctx context.Context, o Origin) context.Context {
	return context.WithValue(ctx, originKey{}, o)
}

// OriginOf is where a request that was sent on came from; ok is false for one that came by itself.
func OriginOf(ctx context.Context) (o Origin, ok bool) {
	o, ok = ctx.Value(originKey{}).(Origin)
	return o, ok
}

// Request is one that belongs to the owner of a bucket.
type Request struct {
	Bucket int
	// Wait is how long an owner is looked for.
	Wait time.Duration
	// Repeatable says that its receiver knows it again: it may be sent once more when nobody knows what
	// became of it.
	Repeatable bool
	IP         string
	RequestID  string
}

// Route finds who acts for the bucket of a request. here says that it is this replica, and nothing was
// done; otherwise the request was answered by the owner, and the answer written to w, or err says why not. A request
// that was sent on once is not sent on again: its sender looks anew.
func (p *Peers) Route(w http.ResponseWriter, r *http.Request, q Request) (here bool, err error) {
	if p.Cluster.Leads(q.Bucket) {
		return true, nil
	}
	if _, forwarded := OriginOf(r.Context()); forwarded {
		w.WriteHeader(http.StatusMisdirectedRequest)
		return false, nil
	}
	body, err := read(r)
	if err != nil {
		return false, err
	}
	ctx, cancel := context.WithTimeout(r.Context(), q.Wait)
	defer cancel()
	for {
		to, self, ok := p.Cluster.Leader(ctx, q.Bucket)
		switch {
		case self:
			return true, nil
		case !ok:
			return false, ErrNobody
		}
		err := p.send(w, r, to, body, q)
		switch {
		case err == nil:
			p.Metrics.Forwarded.WithLabelValues("answered").Inc()
			return false, nil
		case errors.Is(err, errUnsent):
			p.Metrics.Forwarded.WithLabelValues("not_taken").Inc()
		case q.Repeatable:
			p.Metrics.Forwarded.WithLabelValues("repeated").Inc()
		default:
			p.Metrics.Forwarded.WithLabelValues("unknown").Inc()
			return false, fmt.Errorf("%w: %w", ErrUnknown, err)
		}
		p.Cluster.Nudge()
		timer := time.NewTimer(again)
		select {
		case <-ctx.Done():
			timer.Stop()
			p.Log.DebugContext(r.Context(), "request not sent on", slog.String("replica", to.ID), slog.String("err", err.Error()))
			return false, ErrNobody
		case <-timer.C:
		}
	}
}

// hop are the headers that belong to one connection.
func hop(name string) bool {
	switch name {
	case "Connection", "Keep-Alive", "Proxy-Authenticate", "Proxy-Authorization", "Proxy-Connection", "Te", "Trailer", "Transfer-Encoding", "Upgrade", Header:
		return true
	}
	return false
}

func copyHeaders(to, from http.Header) {
	for name, values := range from {
		if !hop(name) {
			to[name] = values
		}
	}
}

// send sends a request on and writes the answer. errUnsent: it had no effect. Another error leaves that open;
// nothing was written to w in either case.
func (p *Peers) send(w http.ResponseWriter, r *http.Request, to store.Peer, body []byte, q Request) error {
	ctx, cancel := context.WithTimeout(r.Context(), answerTimeout)
	defer cancel()
	uri := r.URL.RequestURI()
	req, err := http.NewRequestWithContext(ctx, r.Method, "http://"+to.AdvertiseAddr+uri, bytes.NewReader(body))
	if err != nil {
		return fmt.Errorf("%w: %w", errUnsent, err)
	}
	copyHeaders(req.Header, r.Header)
	req.Host = r.Host // what a browser's headers are compared with
	token, err := p.token(to.ID, r.Method, uri, body, q.IP, q.RequestID)
	if err != nil {
		return fmt.Errorf("%w: %w", errUnsent, err)
	}
	req.Header.Set(Header, token)
	res, err := p.client.Do(req)
	if err != nil {
		if op, ok := errors.AsType[*net.OpError](err); ok && op.Op == "dial" {
			return fmt.Errorf("%w: %w", errUnsent, err)
		}
		return err
	}
	defer func() { _ = res.Body.Close() }()
	switch res.StatusCode {
	case http.StatusMisdirectedRequest:
		return errUnsent // it does not act for the bucket (any more, or not yet)
	case http.StatusUnauthorized:
		if res.Header.Get(Header) != "" {
			return fmt.Errorf("%w: the replica does not take our token", errUnsent)
		}
	}
	answer, err := io.ReadAll(io.LimitReader(res.Body, maxBody))
	if err != nil {
		return err
	}
	copyHeaders(w.Header(), res.Header)
	w.Header().Del("Content-Length")
	w.WriteHeader(res.StatusCode)
	_, _ = w.Write(answer)
	return nil
}

// Look makes a replica look now. It does not wait for it.
func (p *Peers) Look(to store.Peer) {
	busy, _ := p.looks.LoadOrStore(to.ID, make(chan struct{}, 1))
	slot, _ := busy.(chan struct{})
	select {
	case slot <- struct{}{}:
	default:
		return // one is waiting already
	}
	go func() {
		ctx, cancel := context.WithTimeout(context.Background(), lookTimeout)
		defer cancel()
		token, err := p.token(to.ID, http.MethodPost, PathLook, nil, "", "")
		<-slot // what happens from now on needs another one
		if err != nil {
			return
		}
		req, err := http.NewRequestWithContext(ctx, http.MethodPost, "http://"+to.AdvertiseAddr+PathLook, nil)
		if err != nil {
			return
		}
		req.Header.Set(Header, token)
		// When it does not arrive, the replica looks by itself a moment later.
		if res, err := p.client.Do(req); err == nil {
			_ = res.Body.Close()
		}
	}()
}
