package peer_test

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/ax-scheduler/ax/internal/clock"
	"github.com/ax-scheduler/ax/internal/cluster"
	"github.com/ax-scheduler/ax/internal/metric"
	"github.com/ax-scheduler/ax/internal/store"
	"github.com/ax-scheduler/ax/internal/storetest"
	"github.com/ax-scheduler/ax/server/peer"
)

// node is a replica that answers with what reached it.
type node struct {
	*cluster.Cluster
	peers *peer.Peers
	srv   *httptest.Server
	got   []string
	do    func(w http.ResponseWriter) bool
}

func key(b byte) []byte { return []byte(strings.Repeat(string(b), 32)) }

func newNode(t *testing.T, s *store.Store, id string, secret []byte) *node {
	t.Helper()
	n := &node{}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	log := slog.New(slog.DiscardHandler)
	n.Cluster = cluster.New(cluster.Config{
		Store: s, Replica: store.Replica{ID: id, AdvertiseAddr: l.Addr().String()}, Log: log,
		Taken: func(context.Context, store.Fence) error { return nil }, Gone: func(store.Fence) {},
	})
	n.peers = peer.New(peer.Config{Cluster: n.Cluster, Key: secret, Clock: clock.NewManual(time.UnixMilli(1_796_000_000_000)), Metrics: metric.New("test", "test"), Log: log})
	n.srv = &httptest.Server{Listener: l, Config: &http.Server{ReadHeaderTimeout: 5 * time.Second, Handler: http.HandlerFunc(n.serve)}}
	n.srv.Start()
	t.Cleanup(n.srv.Close)
	return n
}

func (n *node) serve(w http.ResponseWriter, r *http.Request) {
	ctx := r.Context()
	if r.Header.Get(peer.Header) != "" {
		origin, err := n.peers.Receive(r)
		if err != nil {
			w.Header().Set(peer.Header, "refused")
			w.WriteHeader(http.StatusUnauthorized)
			return
		}
		ctx = peer.WithOrigin(ctx, origin)
	}
	here, err := n.peers.Route(w, r.WithContext(ctx), peer.Request{Bucket: 3, Wait: 400 * time.Millisecond, Repeatable: r.Method == http.MethodGet, IP: "192.0.2.7", RequestID: "r1"})
	switch {
	case err != nil:
		http.Error(w, err.Error(), http.StatusServiceUnavailable)
	case here:
		if n.do != nil && n.do(w) {
			return
		}
		body, _ := io.ReadAll(r.Body)
		origin, _ := peer.OriginOf(ctx)
		n.got = append(n.got, fmt.Sprintf("%s %s %s %q %s %s", r.Method, r.Host, r.URL.RequestURI(), body, r.Header.Get("Authorization"), origin.IP))
		w.Header().Set("X-From", n.Self().ID)
		w.WriteHeader(http.StatusCreated)
		_, _ = io.WriteString(w, "done")
	}
}

func (n *node) once(t *testing.T) {
	t.Helper()
	_, err := n.RunOnce(t.Context(), true)
	require.NoError(t, err)
}

func (n *node) ask(t *testing.T, method, body string, header ...string) (int, string, http.Header) {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), method, n.srv.URL+"/a/b%20c?x=1&y=%2F", strings.NewReader(body))
	require.NoError(t, err)
	req.Header.Set("Authorization", "Bearer token")
	req.Host = "ax.example.com"
	for i := 0; i < len(header); i += 2 {
		req.Header.Set(header[i], header[i+1])
	}
	res, err := http.DefaultClient.Do(req)
	require.NoError(t, err)
	defer func() { _ = res.Body.Close() }()
	raw, err := io.ReadAll(res.Body)
	require.NoError(t, err)
	return res.StatusCode, string(raw), res.Header
}

// pair is two replicas of which a owns everything.
func pair(t *testing.T) (s *store.Store, a, b *node) {
	t.Helper()
	s = storetest.New(t)
	a, b = newNode(t, s, "a", key('k')), newNode(t, s, "b", key('k'))
	a.once(t)
	b.once(t)
	require.True(t, a.Leads(3))
	return s, a, b
}

// B17: what belongs to the owner is sent on as it came, and its answer comes back as it is.
func TestARequestIsSentOnAsItCame(t *testing.T) {
	_, a, b := pair(t)
	status, text, header := b.ask(t, http.MethodPost, `{"a":1}`, "Connection", "keep-alive, X-Drop")
	require.Equal(t, http.StatusCreated, status)
	require.Equal(t, "done", text)
	require.Equal(t, "a", header.Get("X-From"))
	require.Equal(t, []string{`POST ax.example.com /a/b%20c?x=1&y=%2F "{\"a\":1}" Bearer token 192.0.2.7`}, a.got)
	require.Empty(t, b.got)
}

// A bucket that has moved is followed; a request that was sent on once is not sent on again.
func TestABucketThatMovedIsFollowed(t *testing.T) {
	s, a, b := pair(t)
	f, _ := a.Fence(3)
	require.NoError(t, s.HandOver(t.Context(), f, "b", store.MoveAsked))
	a.once(t)
	require.False(t, a.Leads(3))
	// a knows that it is b's; b has not taken it up yet and does so while a asks.
	took := make(chan error, 1)
	go func() {
		_, err := b.RunOnce(context.Background(), true)
		took <- err
	}()
	status, _, header := a.ask(t, http.MethodPost, "x")
	require.NoError(t, <-took)
	require.Equal(t, http.StatusCreated, status)
	require.Equal(t, "b", header.Get("X-From"))
	require.Len(t, b.got, 1, "once")
}

// What certainly reached nobody is tried again and then refused; what may have been carried out is never repeated
// by itself.
func TestAnOwnerThatDoesNotAnswer(t *testing.T) {
	_, a, b := pair(t)
	calls := 0
	a.do = func(http.ResponseWriter) bool {
		calls++
		panic(http.ErrAbortHandler)
	}
	status, text, _ := b.ask(t, http.MethodPost, "x")
	require.Equal(t, http.StatusServiceUnavailable, status)
	require.Contains(t, text, peer.ErrUnknown.Error())
	require.Equal(t, 1, calls, "whether it was carried out is not known")
	status, _, _ = b.ask(t, http.MethodGet, "")
	require.Equal(t, http.StatusServiceUnavailable, status)
	require.Greater(t, calls, 2, "what changes nothing is asked again")
	a.srv.Close()
	status, text, _ = b.ask(t, http.MethodPost, "x")
	require.Equal(t, http.StatusServiceUnavailable, status)
	require.Contains(t, text, peer.ErrNobody.Error())
}

// Nobody without the master key speaks for a replica, and no token is good for another request.
func TestOnlyReplicasAreBelieved(t *testing.T) {
	s, a, b := pair(t)
	stranger := newNode(t, s, "c", key('x'))
	stranger.once(t)
	status, text, _ := stranger.ask(t, http.MethodPost, "x")
	require.Equal(t, http.StatusServiceUnavailable, status, text)
	require.Empty(t, a.got)

	var token string
	catcher := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { token = r.Header.Get(peer.Header) }))
	defer catcher.Close()
	require.NoError(t, s.Announce(t.Context(), store.Replica{ID: "a", AdvertiseAddr: strings.TrimPrefix(catcher.URL, "http://")}, time.Minute))
	_, err := b.RunOnce(t.Context(), true)
	require.NoError(t, err)
	b.ask(t, http.MethodPost, "x")
	require.NotEmpty(t, token)
	refused := func(what, method, body string, change func(r *http.Request)) {
		t.Helper()
		req, err := http.NewRequestWithContext(t.Context(), method, a.srv.URL+"/a/b%20c?x=1&y=%2F", strings.NewReader(body))
		require.NoError(t, err)
		req.Header.Set(peer.Header, token)
		if change != nil {
			change(req)
		}
		res, err := http.DefaultClient.Do(req)
		require.NoError(t, err)
		_ = res.Body.Close()
		require.Equal(t, http.StatusUnauthorized, res.StatusCode, what)
	}
	refused("another body", http.MethodPost, "y", nil)
	refused("another method", http.MethodPut, "x", nil)
	refused("another path", http.MethodPost, "x", func(r *http.Request) { r.URL.RawQuery = "x=2" })
	refused("another signature", http.MethodPost, "x", func(r *http.Request) { r.Header.Set(peer.Header, token[:len(token)-4]+"AAAA") })
	req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, a.srv.URL+"/a/b%20c?x=1&y=%2F", strings.NewReader("x"))
	require.NoError(t, err)
	req.Header.Set(peer.Header, token)
	res, err := http.DefaultClient.Do(req)
	require.NoError(t, err)
	_ = res.Body.Close()
	require.Equal(t, http.StatusCreated, res.StatusCode, "as it was it is good")
	refused("a second time", http.MethodPost, "x", nil)
}
