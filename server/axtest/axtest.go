// Package axtest runs a whole ax-server for tests, on SQLite or MariaDB, inside the test or as a
// process of its own, with fake executors that speak the protocol with code of their own.
//
// Verbs such as Namespace, App, Job, Trigger and WaitFor go through the HTTP API like everybody
// else; what a test wants to know of the executors' side it asks their ledgers.
package axtest

import (
	"bufio"
	"bytes"
	"context"
	"flag"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/spf13/pflag"
	"github.com/stretchr/testify/require"

	"github.com/ax-scheduler/ax/internal/audit"
	"github.com/ax-scheduler/ax/internal/config"
	"github.com/ax-scheduler/ax/internal/ledger"
	"github.com/ax-scheduler/ax/internal/seal"
	"github.com/ax-scheduler/ax/internal/store"
	"github.com/ax-scheduler/ax/internal/storetest"
	"github.com/ax-scheduler/ax/server/app"
	"github.com/ax-scheduler/ax/server/cli"
)

// Password is the administrator's, and that of every user a Server makes.
const Password = "vier Uhren im gruenen Garten"

// Patience is how long WaitFor waits: far longer than anything takes on an idle machine, so that
// a busy one fails no test.
const Patience = 60 * time.Second

const (
	look      = 50 * time.Millisecond
	processes = "AXTEST_SERVE" // in the environment of a test binary that is to be a server
)

// Main runs a package's tests. The binary also is the server of those that ask for a Process.
// Tests of a whole server mostly wait, so more of them run at once than there are processors.
func Main(m *testing.M) {
	if os.Getenv(processes) != "" {
		ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
		defer stop()
		os.Exit(cli.Run(ctx, os.Args[1:], os.Stdin, os.Stdout, os.Stderr))
	}
	flag.Parse()
	if err := flag.Set("test.parallel", "16"); err != nil {
		panic(err)
	}
	os.Exit(m.Run())
}

// Server is a running ax-server.
type Server struct {
	t       testing.TB
	set     map[string]string
	process bool
	several bool // it shares the buckets with others
	log     *journal
	store   *store.Store

	mu    sync.Mutex
	url   string
	app   *app.App
	cmd   *exec.Cmd
	stop  context.CancelFunc
	ended chan error

	admin         sync.Mutex // held while the administrator logs in
	administrator *Client
}

// Option changes how a Server starts.
type Option func(s *Server)

// Set sets a setting by its key.
func Set(key, value string) Option { return func(s *Server) { s.set[key] = value } }

// Database makes the server use a MariaDB.
func Database(dsn string) Option { return Set("database", dsn) }

// Replicas starts n servers that share a MariaDB database, each a process of its own, and waits until they share
// its buckets evenly.
func Replicas(t testing.TB, n int, options ...Option) []*Server {
	t.Helper()
	dsns := make([]string, n)
	dsns[0] = storetest.Database(t)
	for i := range dsns {
		dsns[i] = dsns[0]
	}
	return ReplicasOn(t, dsns, options...)
}

// ReplicasOn is Replicas for databases that are there: a server for each DSN, which may be ways to one database.
func ReplicasOn(t testing.TB, dsns []string, options ...Option) []*Server {
	t.Helper()
	list := make([]*Server, len(dsns))
	for i, dsn := range dsns {
		list[i] = New(t, append([]Option{Database(dsn), Process()}, options...)...)
		list[i].several = true
		if i > 0 {
			list[i].sameKey(list[0])
		}
		list[i].start() // one after the other: the first migrates and makes the key
	}
	Even(t, list...)
	return list
}

// Beside makes another server on this one's database and does not start it.
func (s *Server) Beside(options ...Option) *Server {
	s.t.Helper()
	o := New(s.t, append([]Option{Database(s.set["database"])}, options...)...)
	o.several, s.several = true, true
	o.sameKey(s)
	return o
}

func (s *Server) sameKey(as *Server) {
	s.t.Helper()
	key, err := os.ReadFile(filepath.Join(as.Data(), "master.key"))
	require.NoError(s.t, err)
	require.NoError(s.t, os.MkdirAll(s.Data(), 0o700))
	require.NoError(s.t, os.WriteFile(filepath.Join(s.Data(), "master.key"), key, 0o600))
}

// Even waits until servers own every bucket between them and none has more than its share.
func Even(t testing.TB, list ...*Server) {
	t.Helper()
	WaitFor(t, "the buckets are shared evenly", func() bool {
		sum, low, high := 0, store.Buckets, 0
		for _, s := range list {
			n := int(s.Metric("ax_buckets_owned"))
			sum, low, high = sum+n, min(low, n), max(high, n)
		}
		return sum == store.Buckets && high-low <= 1
	})
}

// Signal sends a Process a signal.
func (s *Server) Signal(sig os.Signal) {
	s.t.Helper()
	s.mu.Lock()
	cmd := s.cmd
	s.mu.Unlock()
	require.NotNil(s.t, cmd, "only a running Process can be sent a signal")
	require.NoError(s.t, cmd.Process.Signal(sig))
}

// Owns tells whether the server owns the bucket of a namespace, as the database says.
func (s *Server) Owns(n *Namespace) bool {
	s.t.Helper()
	ns, err := s.Store().NamespaceByName(context.Background(), n.Name)
	require.NoError(s.t, err)
	m, err := s.Store().Membership(context.Background())
	require.NoError(s.t, err)
	p, ok := m.Peer(m.Leases[ns.Bucket].Owner)
	return ok && "http://"+p.AdvertiseAddr == s.URL()
}

// Owner is the one of some servers that owns the bucket of a namespace.
func Owner(t testing.TB, n *Namespace, list ...*Server) (owner *Server, others []*Server) {
	t.Helper()
	WaitFor(t, "somebody owns the namespace", func() bool {
		owner, others = nil, nil
		for _, s := range list {
			if s.Owns(n) {
				owner = s
			} else {
				others = append(others, s)
			}
		}
		return owner != nil
	})
	return owner, others
}

// Process makes the server a process of its own, which can be killed.
func Process() Option { return func(s *Server) { s.process = true } }

// Both runs f on SQLite and on MariaDB, side by side.
func Both(t *testing.T, f func(t *testing.T, o ...Option)) {
	t.Helper()
	t.Parallel()
	t.Run("sqlite", func(t *testing.T) {
		t.Parallel()
		f(t)
	})
	t.Run("mysql", func(t *testing.T) {
		t.Parallel()
		f(t, Database(storetest.Database(t)))
	})
}

// Start starts a server with short spans on a free port and a fresh data directory, and waits
// until it is ready. It stops with the test.
func Start(t testing.TB, options ...Option) *Server {
	t.Helper()
	s := New(t, options...)
	s.start()
	return s
}

// New prepares a server and does not start it.
func New(t testing.TB, options ...Option) *Server {
	t.Helper()
	dir := t.TempDir()
	password := filepath.Join(dir, "admin-password")
	require.NoError(t, os.WriteFile(password, []byte(Password), 0o600))
	s := &Server{t: t, log: &journal{}, set: map[string]string{
		"listen": "127.0.0.1:0", "data": filepath.Join(dir, "data"), "database": "", "admin-password-file": password, "log-level": "info", "executor-heartbeat": "1s", "executor-probe-delay": "1s",
		"executor-lease": "30s", "executor-storm-percent": "100", "dispatch-ack-timeout": "1s", "dispatch-executor-wait": "1s", "dispatch-wait-limit": "20s",
	}}
	for _, o := range options {
		o(s)
	}
	t.Cleanup(func() {
		if s.store != nil {
			_ = s.store.Close()
		}
		s.Stop()
		if t.Failed() {
			t.Log("the server's warnings and errors:\n" + s.log.worse(12_000) + "\nthe end of its log:\n" + s.log.tail(6_000))
		}
	})
	return s
}

// Config is the server's settings, read as the command line reads them.
func (s *Server) Config() config.Config {
	s.t.Helper()
	flags := pflag.NewFlagSet("axtest", pflag.ContinueOnError)
	config.Flags(flags)
	for key, value := range s.set {
		require.NoError(s.t, flags.Set(key, value))
	}
	c, err := config.Load(flags)
	require.NoError(s.t, err)
	return c
}

func (s *Server) start() {
	s.t.Helper()
	s.Begin()
	s.WaitReady()
}

// Begin starts the server and does not wait until it is ready.
func (s *Server) Begin() {
	s.t.Helper()
	s.ended = make(chan error, 1)
	if s.process {
		s.spawn()
		return
	}
	a, err := app.New(s.Config(), slog.New(slog.NewTextHandler(s.log, nil)), s.log)
	require.NoError(s.t, err)
	ctx, stop := context.WithCancel(context.Background())
	ended := s.ended
	go func() { ended <- a.Run(ctx) }()
	s.mu.Lock()
	s.app, s.stop, s.url = a, stop, a.URL()
	s.mu.Unlock()
}

// WaitReady waits until the server says that it is ready.
func (s *Server) WaitReady() {
	s.t.Helper()
	WaitFor(s.t, "the server is ready", func() bool {
		select {
		case err := <-s.ended:
			s.ended <- err
			require.NoError(s.t, err, "the server ended")
			return false
		default:
		}
		return s.Status("/readyz") == http.StatusOK
	})
	if !s.several {
		WaitFor(s.t, "the server owns every bucket", func() bool { return s.Metric("ax_buckets_owned") == store.Buckets })
	}
}

// Metric reads a metric without labels; -1 when it is not there.
func (s *Server) Metric(name string) float64 {
	a, err := s.Anonymous().Try(http.MethodGet, "/metrics", nil)
	if err != nil {
		return -1
	}
	for line := range strings.Lines(a.Text()) {
		var v float64
		if rest, ok := strings.CutPrefix(line, name+" "); ok {
			if _, err := fmt.Sscan(rest, &v); err == nil {
				return v
			}
		}
	}
	return -1
}

var listening = regexp.MustCompile(`msg="server listening" address=(\S+)`)

func (s *Server) spawn() {
	s.t.Helper()
	args := []string{"serve"}
	for key, value := range s.set {
		args = append(args, "--"+key+"="+value)
	}
	cmd := exec.Command(os.Args[0], args...)
	cmd.Env = append(os.Environ(), processes+"=1")
	pipe, err := cmd.StderrPipe()
	require.NoError(s.t, err)
	require.NoError(s.t, cmd.Start())
	address := make(chan string, 1)
	ended := s.ended
	go func() {
		scan := bufio.NewScanner(pipe)
		scan.Buffer(nil, 1<<20)
		for scan.Scan() {
			_, _ = s.log.Write(append(scan.Bytes(), '\n'))
			if m := listening.FindStringSubmatch(scan.Text()); m != nil {
				select {
				case address <- m[1]:
				default:
				}
			}
		}
		ended <- cmd.Wait()
	}()
	deadline := time.NewTimer(Patience)
	defer deadline.Stop()
	select {
	case url := <-address:
		s.mu.Lock()
		s.cmd, s.url = cmd, url
		s.mu.Unlock()
	case err := <-ended:
		require.FailNow(s.t, "the server ended at once", "%v\n%s", err, s.log.tail(4000))
	case <-deadline.C:
		_ = cmd.Process.Kill()
		require.FailNow(s.t, "the server does not listen", s.log.tail(4000))
	}
}

// Stop ends the server as SIGTERM does and waits for its end. A server that has ended already is
// left alone.
func (s *Server) Stop() {
	s.t.Helper()
	s.mu.Lock()
	stop, cmd := s.stop, s.cmd
	s.stop, s.cmd, s.app = nil, nil, nil
	s.mu.Unlock()
	switch {
	case stop != nil:
		stop()
		if err := <-s.ended; err != nil {
			s.t.Errorf("the server ended with: %v", err)
		}
	case cmd != nil:
		_ = cmd.Process.Signal(syscall.SIGCONT)
		_ = cmd.Process.Signal(syscall.SIGTERM)
		if err := <-s.ended; err != nil {
			s.t.Errorf("the server ended with: %v", err)
		}
	}
}

// Kill ends a Process at once, with no chance to clean up.
func (s *Server) Kill() {
	s.t.Helper()
	s.mu.Lock()
	cmd := s.cmd
	s.cmd = nil
	s.mu.Unlock()
	require.NotNil(s.t, cmd, "only a running Process can be killed")
	require.NoError(s.t, cmd.Process.Kill())
	<-s.ended
}

// Again starts a server that was stopped or killed on the same data.
func (s *Server) Again() {
	s.t.Helper()
	s.start()
}

// Restart stops the server and starts it on the same data.
func (s *Server) Restart() {
	s.t.Helper()
	s.Stop()
	s.Again()
}

// URL is where the server listens now; a restart changes it.
func (s *Server) URL() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.url
}

// Log is what the server has written so far.
func (s *Server) Log() string { return s.log.tail(1 << 30) }

// Data is the server's data directory.
func (s *Server) Data() string { return s.set["data"] }

// Status asks for a path and tells the status; 0 when there is no answer.
func (s *Server) Status(path string) int {
	res, err := (&http.Client{Timeout: 5 * time.Second}).Get(s.URL() + path)
	if err != nil {
		return 0
	}
	defer func() { _ = res.Body.Close() }()
	_, _ = io.Copy(io.Discard, res.Body)
	return res.StatusCode
}

// Store opens the server's database beside it, for what has no API yet.
func (s *Server) Store() *store.Store {
	s.t.Helper()
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.store == nil {
		sealer, _, err := seal.LoadOrCreate(filepath.Join(s.set["data"], "master.key"))
		require.NoError(s.t, err)
		keys, err := audit.KeysOf(sealer.Derive)
		require.NoError(s.t, err)
		opened, err := store.Open(store.Config{DSN: s.set["database"], Dir: s.set["data"], AuditKey: keys.Entry})
		require.NoError(s.t, err)
		s.store = opened
	}
	return s.store
}

// LedgerClean requires that every planned firing of this server's database has exactly one fate.
func (s *Server) LedgerClean(t testing.TB) {
	t.Helper()
	r, err := ledger.Check(context.Background(), s.Store(), ledger.Options{})
	require.NoError(t, err)
	require.True(t, r.Clean(), "%v: %+v", r.Counts, r.Found)
	require.NotZero(t, r.Batches, "nothing was there to be checked")
}

// User makes a user with the administrator's password and, where namespace is not empty, a role in
// it. platform is a role of the platform or empty.
func (s *Server) User(t testing.TB, name, platform, namespace, role string) *Client {
	t.Helper()
	ctx := context.Background()
	admin, err := s.Store().UserByName(ctx, "admin")
	require.NoError(t, err)
	var ns int64
	if namespace != "" {
		n, err := s.Store().NamespaceByName(ctx, namespace)
		require.NoError(t, err)
		ns = n.ID
	}
	now := time.Now().UnixMilli()
	u := store.User{Name: name, DisplayName: name, PasswordHash: admin.PasswordHash, Status: store.UserActive, PlatformRole: platform, CreatedAt: now}
	require.NoError(t, s.Store().CreateUser(ctx, &u, ns, role, &store.AuditEntry{At: now, NSID: ns, ActorType: "system", ActorName: "axtest", Action: "user.create", ObjectType: "user", Outcome: "success"}))
	return s.Login(t, name, Password)
}

// WaitFor waits until done, and fails the test when that does not come within Patience.
func WaitFor(t testing.TB, what string, done func() bool) {
	t.Helper()
	WaitUpTo(t, Patience, what, done)
}

// WaitUpTo waits until done for at most limit.
func WaitUpTo(t testing.TB, limit time.Duration, what string, done func() bool) {
	t.Helper()
	deadline := time.NewTimer(limit)
	defer deadline.Stop()
	tick := time.NewTicker(look)
	defer tick.Stop()
	for !done() {
		select {
		case <-tick.C:
		case <-deadline.C:
			require.FailNow(t, "waited in vain", "%s for: %s", limit, what)
		}
	}
}

// Stays watches for a span that something stays as it is.
func Stays(t testing.TB, span time.Duration, what string, holds func() bool) {
	t.Helper()
	end := time.NewTimer(span)
	defer end.Stop()
	tick := time.NewTicker(look)
	defer tick.Stop()
	for {
		require.True(t, holds(), what)
		select {
		case <-tick.C:
		case <-end.C:
			return
		}
	}
}

// Pause lets time pass, where the passing of time itself is what a test is about.
func Pause(span time.Duration) {
	timer := time.NewTimer(span)
	defer timer.Stop()
	<-timer.C
}

// journal keeps what was written.
type journal struct {
	mu  sync.Mutex
	buf bytes.Buffer
}

// Write is io.Writer's.
func (j *journal) Write(p []byte) (int, error) {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.buf.Write(p)
}

func (j *journal) tail(n int) string {
	j.mu.Lock()
	defer j.mu.Unlock()
	text := j.buf.String()
	if len(text) > n {
		text = "…" + text[len(text)-n:]
	}
	return strings.TrimRight(text, "\n")
}

// String is fmt.Stringer's.
// worse is the first n bytes of what is worse than information.
func (j *journal) worse(n int) string {
	var out strings.Builder
	for line := range strings.Lines(j.String()) {
		if strings.Contains(line, "level=WARN") || strings.Contains(line, "level=ERROR") {
			if out.Len()+len(line) > n {
				out.WriteString("…")
				break
			}
			out.WriteString(line)
		}
	}
	return out.String()
}

func (j *journal) String() string { return fmt.Sprint(j.tail(1 << 30)) }
