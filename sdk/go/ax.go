package ax

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"net"
	"net/http"
	"net/url"
	"os"
	"regexp"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"
)

const (
	sdkVersion      = "0.1.0"
	protocolVersion = 1
)

// Options says who the executor is and where the server is. Server, App and Key are needed.
type Options struct {
	// Server is the base URL of ax-server, such as http://127.0.0.1:8081; several replicas are
	// separated by commas. Needed.
	Server string
	// Namespace holds the app. Default "default".
	Namespace string
	// App is the name under which executors share handlers. Needed.
	App string
	// Key is the app's key: axk_ and 64 hexadecimal digits, shown when the app is created. Needed.
	Key string
	// Listen is the address on which the server's calls arrive. Default "127.0.0.1:0": loopback,
	// any free port. For a server elsewhere use ":9801" or the like.
	Listen string
	// Address is the base URL at which the server reaches this executor: in a container the
	// host's address and the published port, not the container's. Default: made from Listen; when
	// that is all interfaces, with this host's address on the way to the server.
	Address string
	// Dir holds the memory of executions and the results that are not yet delivered. It must
	// outlive the process, and each process needs its own. Default "./ax-executor".
	Dir string
	// Labels are for selectors in a job's routing, such as zone=a.
	Labels map[string]string
	// Workers is how many executions run at once. Default 2·cores+1, at most 1024.
	Workers int
	// Queue is how many accepted executions wait for a worker. Beyond it the answer is "full",
	// and the server tries elsewhere. Default 1024, at most 4096.
	Queue int
	// DrainTimeout is the whole time that leaving may take. After four fifths of it handlers
	// that still run are cancelled with ErrShutdown. Default 30 s, at most 24 h.
	DrainTimeout time.Duration
	// TLS, when set, serves the server's calls by HTTPS; Address is then https.
	TLS *tls.Config
	// Transport carries the calls to the server. Default: one with time limits, which honours the
	// proxy settings of the environment. Set it for client certificates or a private CA.
	Transport http.RoundTripper
	// Logger takes the executor's own log lines; handlers' output goes to the server. Default slog.Default().
	Logger *slog.Logger
}

type namedHandler struct {
	kind string
	run  Handler
}

// Executor takes executions from ax-server and runs them. Make it with New, add handlers, then Run.
type Executor struct {
	opts     Options
	key      []byte
	log      *slog.Logger
	clock    clock
	client   *client
	handlers map[string]namedHandler
	setupErr error

	startID    string
	address    string
	cpu        int
	memoryMB   int64
	journal    *journal
	outputs    *outputs
	seen       replays
	handlerCtx context.Context // what handlers' contexts derive from

	leaveOnce     sync.Once
	leaving       chan struct{}
	knownOnce     sync.Once
	instanceKnown chan struct{}
	beatNow       chan struct{}
	results       chan struct{} // the spool has something to send
	ended         chan struct{} // something ended or was delivered

	takeMu sync.Mutex

	mu       sync.Mutex
	started  bool // Run was called
	instance string
	lease    time.Duration
	draining bool
	trouble  map[string]string // by path: kind of the last failure, until a call succeeds
	runs     map[attemptKey]*run
	byID     map[string]*run
	queue    []*run
	busy     map[shardKey]bool // shards whose handler runs
	running  int
}

var namePattern = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9._-]{0,63}$`)

// New checks the options, says everything that is wrong with them in one error, and makes an
// executor. It starts nothing.
func New(opts Options) (*Executor, error) {
	var wrong []error
	bad := func(name, format string, args ...any) {
		wrong = append(wrong, fmt.Errorf("ax: Options."+name+": "+format, args...))
	}
	if opts.Namespace == "" {
		opts.Namespace = "default"
	}
	if !namePattern.MatchString(opts.Namespace) {
		bad("Namespace", "%q is no name (letters, digits, '.', '_', '-', at most 64)", opts.Namespace)
	}
	if opts.App == "" {
		bad("App", "is missing: the name of the app as created in the console")
	} else if !namePattern.MatchString(opts.App) {
		bad("App", "%q is no name (letters, digits, '.', '_', '-', at most 64)", opts.App)
	}
	var servers []string
	for s := range strings.SplitSeq(opts.Server, ",") {
		if s = strings.TrimRight(strings.TrimSpace(s), "/"); s == "" {
			continue
		}
		if err := checkBaseURL(s); err != nil {
			bad("Server", "%w", err)
		}
		servers = append(servers, s)
	}
	if len(servers) == 0 {
		bad("Server", "is missing: the base URL of ax-server, such as http://127.0.0.1:8081")
	}
	var key []byte
	if opts.Key == "" {
		bad("Key", "is missing: the app's key (axk_…), shown when the app is created; pass it by a file or the environment")
	} else {
		var err error
		if key, err = parseKey(strings.TrimSpace(opts.Key)); err != nil {
			bad("Key", "%w", err) // never the key itself
		}
	}
	if opts.Listen == "" {
		opts.Listen = "127.0.0.1:0"
	}
	if _, port, err := net.SplitHostPort(opts.Listen); err != nil {
		bad("Listen", "%q is not host:port", opts.Listen)
	} else if n, err := strconv.Atoi(port); err != nil || n < 0 || n > 65535 {
		bad("Listen", "%q has no port from 0 to 65535", opts.Listen)
	}
	if opts.Address != "" {
		opts.Address = strings.TrimRight(opts.Address, "/")
		if err := checkAddress(opts.Address); err != nil {
			bad("Address", "%w", err)
		}
	}
	if opts.Dir == "" {
		opts.Dir = "./ax-executor"
	}
	if len(opts.Labels) > 64 {
		bad("Labels", "%d labels, at most 64", len(opts.Labels))
	}
	for k, v := range opts.Labels {
		if k == "" || len(k) > 64 || len(v) > 256 {
			bad("Labels", "%q: a label has a name of 1 to 64 bytes and a value of at most 256", cut(k, 64))
		}
	}
	opts.Labels = maps.Clone(opts.Labels)
	if opts.Labels == nil {
		opts.Labels = map[string]string{}
	}
	if opts.Workers == 0 {
		opts.Workers = 2*runtime.GOMAXPROCS(0) + 1
	}
	if opts.Workers < 0 || opts.Workers > 1024 {
		bad("Workers", "%d is not from 1 to 1024", opts.Workers)
	}
	if opts.Queue == 0 {
		opts.Queue = 1024
	}
	if opts.Queue < 0 || opts.Queue > 4096 {
		bad("Queue", "%d is not from 1 to 4096", opts.Queue)
	}
	if opts.DrainTimeout == 0 {
		opts.DrainTimeout = 30 * time.Second
	}
	if opts.DrainTimeout < 0 || opts.DrainTimeout > 24*time.Hour {
		bad("DrainTimeout", "%s is not from 0 to 24h", opts.DrainTimeout)
	}
	if opts.Logger == nil {
		opts.Logger = slog.Default()
	}
	if len(wrong) > 0 {
		return nil, errors.Join(wrong...)
	}

	transport := opts.Transport
	if transport == nil {
		transport = newTransport()
	}
	ex := &Executor{
		opts: opts, key: key, log: opts.Logger, handlers: make(map[string]namedHandler),
		startID: newID("", 16), cpu: runtime.GOMAXPROCS(0), memoryMB: hostMemoryMB(),
		seen:    replays{max: 100_000},
		leaving: make(chan struct{}), instanceKnown: make(chan struct{}),
		beatNow: make(chan struct{}, 1), results: make(chan struct{}, 1), ended: make(chan struct{}, 1),
		runs: make(map[attemptKey]*run), byID: make(map[string]*run), busy: make(map[shardKey]bool), trouble: make(map[string]string),
	}
	ex.outputs = newOutputs(ex)
	ex.client = &client{
		key: key, app: opts.Namespace + "/" + opts.App, servers: servers, clock: &ex.clock, log: opts.Logger,
		http: &http.Client{
			Transport: transport,
			// A redirect would carry a signed message to somebody else.
			CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
		},
	}
	return ex, nil
}

// Simple adds a handler for jobs without shards. All handlers are added before Run.
func (ex *Executor) Simple(name string, h Handler) { ex.add(name, "simple", h) }

// Sharding adds a handler that takes one shard of a batch at a time: its part is number
// ShardingID of ShardingTotal.
func (ex *Executor) Sharding(name string, h Handler) { ex.add(name, "sharding", h) }

func (ex *Executor) add(name, kind string, h Handler) {
	ex.mu.Lock()
	defer ex.mu.Unlock()
	var err error
	switch _, twice := ex.handlers[name]; {
	case ex.started:
		err = fmt.Errorf("ax: handler %q: handlers are added before Run", name)
	case name == "" || len(name) > 128:
		err = fmt.Errorf("ax: handler %q: a name has 1 to 128 bytes", cut(name, 140))
	case h == nil:
		err = fmt.Errorf("ax: handler %q is nil", name)
	case twice:
		err = fmt.Errorf("ax: handler %q is there twice", name)
	default:
		ex.handlers[name] = namedHandler{kind, h}
	}
	ex.setupErr = errors.Join(ex.setupErr, err)
}

func (ex *Executor) handlerInfos() []handlerInfo {
	list := make([]handlerInfo, 0, len(ex.handlers))
	for _, name := range slices.Sorted(maps.Keys(ex.handlers)) {
		list = append(list, handlerInfo{name, ex.handlers[name].kind})
	}
	return list
}

// Run serves, registers and works until ctx ends or the executor is unregistered. Then it
// leaves: it takes no new work, hands back what has not started, lets running handlers finish
// within Options.DrainTimeout, reports, and returns nil. It may be called once. The server being
// away is no error: Run goes on trying, and keeps results on disk.
func (ex *Executor) Run(ctx context.Context) error {
	ex.mu.Lock()
	again, err := ex.started, ex.setupErr
	ex.started = true
	ex.mu.Unlock()
	if again {
		return errors.New("ax: Run was called twice; make a new Executor")
	}
	if err != nil {
		return err
	}
	if len(ex.handlers) == 0 {
		return errors.New("ax: no handlers; add some with Simple or Sharding")
	}
	journal, err := openJournal(ex.opts.Dir, ex.log, time.Now())
	if err != nil {
		return fmt.Errorf("ax: %w", err)
	}
	ex.journal = journal
	defer func() {
		if err := journal.close(); err != nil {
			ex.log.Error("journal could not be closed", slog.Any("err", err))
		}
	}()
	listener, err := net.Listen("tcp", ex.opts.Listen)
	if err != nil {
		return fmt.Errorf("ax: listen: %w", err)
	}
	if ex.address, err = ex.advertise(listener.Addr()); err != nil {
		listener.Close()
		return fmt.Errorf("ax: Options.Address: %w", err)
	}
	if ex.opts.TLS != nil {
		listener = tls.NewListener(listener, ex.opts.TLS)
	}

	// Handlers and loops outlive ctx: its end begins the drain.
	base, stop := context.WithCancel(context.WithoutCancel(ctx))
	defer stop()
	ex.handlerCtx = base
	beatCtx, stopBeat := context.WithCancel(base)
	defer stopBeat()
	server := ex.httpServer()
	var loops, heart sync.WaitGroup
	serveErr := make(chan error, 1)
	loops.Go(func() { serveErr <- server.Serve(listener) })
	loops.Go(func() { ex.resultLoop(base) })
	loops.Go(func() { ex.outputs.loop(base) })
	loops.Go(func() { ex.upkeep(base) })
	heart.Go(func() { ex.registryLoop(beatCtx) })

	var failure error
	select {
	case <-ctx.Done():
	case <-ex.leaving:
	case err := <-serveErr:
		failure = fmt.Errorf("ax: serve: %w", err)
	}
	ex.drain(base, stopBeat, heart.Wait)

	closing, cancel := context.WithTimeout(base, time.Second)
	defer cancel()
	if server.Shutdown(closing) != nil {
		server.Close()
	}
	stop()
	loops.Wait()
	ex.client.http.CloseIdleConnections()
	return failure
}

// leave begins the drain, as the end of Run's context does.
func (ex *Executor) leave() { ex.leaveOnce.Do(func() { close(ex.leaving) }) }

func (ex *Executor) isDraining() bool {
	ex.mu.Lock()
	defer ex.mu.Unlock()
	return ex.draining
}

// drain leaves in order: no new work, not-started executions back, goodbye, running ones finish,
// everything is reported. It is over after DrainTimeout in any case.
func (ex *Executor) drain(base context.Context, stopBeat func(), beatStopped func()) {
	begun := time.Now()
	end := begun.Add(ex.opts.DrainTimeout)
	ctx, cancel := context.WithDeadline(base, end)
	defer cancel()

	// Under takeMu, so that a run message is either wholly before or wholly after.
	ex.takeMu.Lock()
	ex.mu.Lock()
	ex.draining = true
	waiting := ex.queue
	ex.queue = nil
	running := ex.running
	ex.mu.Unlock()
	ex.takeMu.Unlock()
	ex.log.Info("executor leaves", slog.Int("running", running), slog.Int("handed_back", len(waiting)), slog.Duration("drain_timeout", ex.opts.DrainTimeout))
	var handBack sync.WaitGroup
	for _, r := range waiting {
		// All at once, so that they share the writes to the disk.
		handBack.Go(func() { ex.endUnstarted(r, rejected, "the executor shuts down; it had not started") })
	}
	handBack.Wait()
	stopBeat()
	beatStopped()

	var helpers sync.WaitGroup
	helpersCtx, stopHelpers := context.WithCancel(ctx)
	defer func() { stopHelpers(); helpers.Wait() }()
	gone := make(chan struct{}) // the server knows that we leave, or never knew us
	if ex.instanceID() == "" {
		close(gone)
	} else {
		helpers.Go(func() {
			ex.sayGoodbye(helpersCtx)
			close(gone)
		})
	}
	helpers.Go(func() { ex.renewLeases(helpersCtx) })

	stopAt := time.NewTimer(time.Until(begun.Add(ex.opts.DrainTimeout * 4 / 5)))
	defer stopAt.Stop()
	for ex.active() > 0 && ctx.Err() == nil {
		select {
		case <-ctx.Done():
		case <-ex.ended:
		case <-stopAt.C:
			ex.mu.Lock()
			left := slices.Collect(maps.Values(ex.runs))
			ex.mu.Unlock()
			for _, r := range left {
				ex.stop(r, &stopError{ErrShutdown, "the time for finishing is over"})
			}
		}
	}
	if n := ex.active(); n > 0 {
		ex.log.Error("handlers ignore their cancellation and are left behind", slog.Int("running", n))
	}

	// Deliver what there is. It is on disk, so a server that is away is not waited for long.
	deliver, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	for deliver.Err() == nil && ex.instanceID() != "" {
		results, _ := ex.journal.backlog()
		if results == 0 && ex.outputs.empty() {
			break
		}
		wait(deliver, 20*time.Millisecond, ex.ended)
	}
	select {
	case <-gone:
	case <-deliver.Done():
	}
	if results, _ := ex.journal.backlog(); results > 0 {
		ex.log.Warn("results are left for the next start", slog.Int("results", results), slog.String("dir", ex.opts.Dir))
	}
}

// active counts the executions that are here and have not ended.
func (ex *Executor) active() int {
	ex.mu.Lock()
	defer ex.mu.Unlock()
	return len(ex.runs)
}

// sayGoodbye tells the server that we leave, for as long as ctx lasts.
func (ex *Executor) sayGoodbye(ctx context.Context) {
	var pause backoff
	for {
		var reply struct{}
		err := ex.client.post(ctx, pathRemove, removeMessage{ex.header("remove"), ex.startID}, &reply)
		if err == nil || ctx.Err() != nil {
			return
		}
		ex.callFailed(pathRemove, err)
		if !wait(ctx, pause.after(err), nil) {
			return
		}
	}
}

// advertise returns the address to register.
func (ex *Executor) advertise(bound net.Addr) (string, error) {
	if ex.opts.Address != "" {
		return ex.opts.Address, nil
	}
	scheme := "http"
	if ex.opts.TLS != nil {
		scheme = "https"
	}
	tcp, ok := bound.(*net.TCPAddr)
	if !ok {
		return "", fmt.Errorf("can not be made from %s, set it", bound)
	}
	host := tcp.IP.String()
	if tcp.IP.IsUnspecified() {
		u, err := url.Parse(ex.client.servers[0])
		if err != nil {
			return "", err
		}
		port := u.Port()
		if port == "" {
			port = "80"
		}
		// No packet is sent: this only asks the system which of our addresses it would use.
		c, err := net.Dial("udp", net.JoinHostPort(u.Hostname(), port))
		if err != nil {
			return "", fmt.Errorf("can not be made while the way to the server is unknown, set it: %w", err)
		}
		defer c.Close()
		host, _, err = net.SplitHostPort(c.LocalAddr().String())
		if err != nil {
			return "", err
		}
	}
	return scheme + "://" + net.JoinHostPort(host, strconv.Itoa(tcp.Port)), nil
}

// checkBaseURL accepts http://host[:port][/path] without anything else.
func checkBaseURL(s string) error {
	u, err := url.Parse(s)
	switch {
	case err != nil:
		return fmt.Errorf("%q is no URL", s)
	case u.Scheme != "http" && u.Scheme != "https":
		return fmt.Errorf("%q does not begin with http:// or https://", s)
	case u.Hostname() == "":
		return fmt.Errorf("%q has no host", s)
	case u.User != nil || u.RawQuery != "" || u.Fragment != "":
		return fmt.Errorf("%q has more than scheme, host, port and path", u.Redacted())
	}
	return nil
}

// checkAddress accepts what a server can call: http://host:port with a host that means something there.
func checkAddress(s string) error {
	if err := checkBaseURL(s); err != nil {
		return err
	}
	u, _ := url.Parse(s)
	if n, err := strconv.Atoi(u.Port()); err != nil || n < 1 || n > 65535 {
		return fmt.Errorf("%q needs a port from 1 to 65535", s)
	}
	if u.Path != "" {
		return fmt.Errorf("%q has a path; the address is scheme, host and port", s)
	}
	if ip := net.ParseIP(u.Hostname()); ip != nil && (ip.IsUnspecified() || ip.IsMulticast()) {
		return fmt.Errorf("%q is not an address that a server can call; use the host's own", s)
	}
	return nil
}

// hostMemoryMB is the memory that this process may use: the container's limit, otherwise the
// host's; 0 when unknown.
func hostMemoryMB() int64 {
	read := func(name string) string {
		b, err := os.ReadFile(name)
		if err != nil {
			return ""
		}
		return strings.TrimSpace(string(b))
	}
	var total int64
	for line := range strings.SplitSeq(read("/proc/meminfo"), "\n") {
		if f := strings.Fields(line); len(f) >= 2 && f[0] == "MemTotal:" {
			kb, _ := strconv.ParseInt(f[1], 10, 64)
			total = kb >> 10
		}
	}
	if limit, err := strconv.ParseInt(read("/sys/fs/cgroup/memory.max"), 10, 64); err == nil && limit>>20 > 0 && (total == 0 || limit>>20 < total) {
		return limit >> 20
	}
	return total
}
