// Package app builds a server once, in one straight function, runs its loops and drains them
// in reverse order.
package app

import (
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
	"net/netip"
	"net/url"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"github.com/gin-gonic/gin"
	"github.com/gofrs/flock"
	"golang.org/x/sync/errgroup"

	"github.com/ax-scheduler/ax/internal/appkey"
	"github.com/ax-scheduler/ax/internal/audit"
	"github.com/ax-scheduler/ax/internal/auth"
	"github.com/ax-scheduler/ax/internal/clock"
	"github.com/ax-scheduler/ax/internal/cluster"
	"github.com/ax-scheduler/ax/internal/config"
	"github.com/ax-scheduler/ax/internal/dispatch"
	"github.com/ax-scheduler/ax/internal/egress"
	"github.com/ax-scheduler/ax/internal/job"
	"github.com/ax-scheduler/ax/internal/metric"
	"github.com/ax-scheduler/ax/internal/outcome"
	"github.com/ax-scheduler/ax/internal/protocol"
	"github.com/ax-scheduler/ax/internal/ready"
	"github.com/ax-scheduler/ax/internal/registry"
	"github.com/ax-scheduler/ax/internal/routing"
	"github.com/ax-scheduler/ax/internal/seal"
	"github.com/ax-scheduler/ax/internal/secret"
	"github.com/ax-scheduler/ax/internal/store"
	"github.com/ax-scheduler/ax/internal/sweep"
	"github.com/ax-scheduler/ax/internal/trigger"
	"github.com/ax-scheduler/ax/server/api"
	"github.com/ax-scheduler/ax/server/executorapi"
	"github.com/ax-scheduler/ax/server/peer"
)

// Version and Commit are set by the build.
var (
	Version = "0.1.0-dev" //nolint:gochecknoglobals // set by -ldflags
	Commit  = "unknown"   //nolint:gochecknoglobals // set by -ldflags
)

const (
	// retryDatabase is how often a database that is not there is tried again.
	retryDatabase = time.Second
	shutdownLimit = 20 * time.Second
	// requestLimit bounds one request that is no stream, whatever the database does.
	requestLimit = 25 * time.Second
	// readyFor is how old the database's last good answer may be for /readyz.
	readyFor = 5 * time.Second
	// hopelessAfter is how old it may be before requests are refused unasked.
	hopelessAfter = 12 * time.Second
)

// App is one server.
type App struct {
	config   config.Config
	log      *slog.Logger
	out      io.Writer
	listener net.Listener
	lock     *flock.Flock

	store    *store.Store
	sealer   *seal.Sealer
	clock    *clock.Referenced
	metrics  *metric.Metrics
	auth     *auth.Auth
	ring     *appkey.Ring
	cluster  *cluster.Cluster
	registry *registry.Registry
	ready    *ready.Ready
	trigger  *trigger.Trigger
	dispatch *dispatch.Dispatch
	outcome  *outcome.Outcome
	sweep    *sweep.Sweep
	api      *api.API
	handler  http.Handler

	peers     *peer.Peers
	executors *executorapi.API

	started  atomic.Bool  // the database was reached, the schema fits, the loops run
	draining atomic.Bool  //
	reached  atomic.Int64 // host time of the database's last good answer, milliseconds
	trouble  atomic.Value // string: why not started
}

// New reads keys and builds everything; it listens, but serves nothing yet. out gets what
// is for the person who starts the server and not for the log: the setup link.
func New(c config.Config, log *slog.Logger, out io.Writer) (*App, error) {
	a := &App{config: c, log: log, out: out}
	if err := os.MkdirAll(c.Data, 0o700); err != nil {
		return nil, fmt.Errorf("data directory: %w", err)
	}
	if c.Database == "" {
		// Two processes on one SQLite would both own every bucket.
		a.lock = flock.New(filepath.Join(c.Data, "ax.lock"))
		got, err := a.lock.TryLock()
		if err != nil {
			return nil, fmt.Errorf("data directory: %w", err)
		}
		if !got {
			return nil, fmt.Errorf("another ax-server uses the data directory %s; stop it, or give this one its own with --data", c.Data)
		}
	}
	if err := a.build(); err != nil {
		return nil, errors.Join(err, a.close())
	}
	return a, nil
}

func (a *App) build() error {
	c := a.config
	var err error
	if a.listener, err = (&net.ListenConfig{}).Listen(context.Background(), "tcp", c.Listen); err != nil {
		return fmt.Errorf("listen on %s: %w; choose another address with --listen", c.Listen, err)
	}
	if a.sealer, _, err = seal.LoadOrCreate(filepath.Join(c.Data, "master.key")); err != nil {
		return err
	}
	keys, err := audit.KeysOf(a.sealer.Derive)
	if err != nil {
		return err
	}
	if a.store, err = store.Open(store.Config{DSN: c.Database, Dir: c.Data, AuditKey: keys.Entry}); err != nil {
		return err
	}
	a.metrics = metric.New(Version, Commit)
	a.clock = clock.New(a.store.Now, a.log)
	a.auth = auth.New(auth.Config{Store: a.store, Sealer: a.sealer, Clock: a.clock, Metrics: a.metrics, Log: a.log})
	a.ring = appkey.New(a.store, a.sealer, a.clock)
	router := routing.New(strategies()...)
	a.ready = ready.New(a.clock.Now())
	policy := egress.NewPolicy(a.own(), c.Loopback())
	client := dispatch.NewClient(policy, a.ring.ByID, a.clock)
	a.registry = registry.New(a.store, a.clock, a.log, registry.Settings{Heartbeat: c.Heartbeat, ProbeDelay: c.ProbeDelay, Lease: c.Lease, StormShare: float64(c.StormPercent) / 100, StormWindow: c.StormWindow, Redispatch: c.RedispatchLimit}, client.Probe, a.ready.Nudge)
	var id [8]byte
	_, _ = rand.Read(id[:])
	a.cluster = cluster.New(cluster.Config{
		Store: a.store, Replica: store.Replica{ID: hex.EncodeToString(id[:]), AdvertiseAddr: a.advertise(), Build: Version}, Log: a.log,
		Taken: func(ctx context.Context, f store.Fence) error {
			if err := a.registry.Load(ctx, f.Bucket); err != nil {
				return err
			}
			if err := a.outcome.TakeUp(ctx, f); err != nil {
				return err
			}
			a.trigger.Nudge()
			return nil
		},
		Drained: a.drained,
		Gone: func(f store.Fence) {
			a.ready.Drop(f.Bucket)
			a.outcome.Forget(f.Bucket)
			a.registry.Drop(f.Bucket)
		},
		Moved: func(p store.Peer) { a.peers.Look(p) },
	})
	key, err := a.sealer.Derive(peer.Purpose)
	if err != nil {
		return err
	}
	a.peers = peer.New(peer.Config{Cluster: a.cluster, Key: key, Clock: a.clock, Metrics: a.metrics, Log: a.log})
	a.outcome = outcome.New(outcome.Config{
		Store: a.store, Cluster: a.cluster, Ready: a.ready, Registry: a.registry, Clock: a.clock, Metrics: a.metrics, Log: a.log,
		Planned: func() { a.trigger.Nudge() },
		Drift: func() time.Duration {
			if s := a.clock.Status(); s.Alarm() {
				return s.Drift
			}
			return 0
		},
	})
	a.trigger = trigger.New(trigger.Config{
		Store: a.store, Cluster: a.cluster, Ready: a.ready, Outcome: a.outcome, Clock: a.clock, Metrics: a.metrics, Log: a.log, Near: c.DelayedInMemory,
		Foresee:  func(e *ready.Execution) *ready.Bound { return a.dispatch.Foresee(e) },
		Eligible: func(b *ready.Batch) int { return a.dispatch.Eligible(b) },
	})
	_, port, _ := net.SplitHostPort(a.listener.Addr().String())
	portNumber, _ := strconv.Atoi(port)
	secrets, err := secret.New(a.store, a.sealer)
	if err != nil {
		return err
	}
	a.dispatch = dispatch.New(dispatch.Config{
		Fill: func(ctx context.Context, b *ready.Batch) (string, error) {
			return secrets.Fill(ctx, b.NS, b.Def.Params, b.Params)
		},
		NoSecret: func(err error) bool {
			_, ok := errors.AsType[*secret.MissingError](err)
			return ok
		},
		Store: a.store, Cluster: a.cluster, Ready: a.ready, Registry: a.registry, Outcome: a.outcome, Router: router, Clock: a.clock, Metrics: a.metrics, Log: a.log,
		Client: client, Port: portNumber, Settings: dispatch.Settings{AckTimeout: c.AckTimeout, ExecutorWait: c.ExecutorWait, WaitLimit: c.WaitLimit, PerRequest: c.PerRequest},
	})
	a.sweep = sweep.New(sweep.Config{Store: a.store, Cluster: a.cluster, Registry: a.registry, Ready: a.ready, Outcome: a.outcome, Clock: a.clock, Log: a.log, Settings: sweep.Settings{Retention: c.Retention, OutputRetention: min(c.OutputRetention, c.Retention)}, AuditKey: keys.Sign, Digested: a.keepDigest})
	a.gauges()
	output := api.NewOutput()
	a.executors = executorapi.New(executorapi.Config{
		Store: a.store, Cluster: a.cluster, Peers: a.peers, Ring: a.ring, Registry: a.registry, Outcome: a.outcome, Clock: a.clock, Metrics: a.metrics, Log: a.log, Output: output.Arrived, Secrets: secrets.Used,
		OutputLimit: int64(c.OutputLimit) << 20, OutputPerDay: int64(c.OutputPerDay) << 20,
	})
	a.handler = a.routes(api.Config{
		Store: a.store, Auth: a.auth, Ring: a.ring, Cluster: a.cluster, Peers: a.peers, Registry: a.registry, Ready: a.ready, Trigger: a.trigger, Outcome: a.outcome, Router: router, Clock: a.clock,
		ClockStatus: a.clock.Status,
		Explain:     a.dispatch.Explain,
		Secrets:     secrets,
		Metrics:     a.metrics, Log: a.log, Output: output, Version: Version, Commit: Commit, Demo: c.Demo, Secure: c.BehindTLSProxy,
	})
	a.trouble.Store("the database was not reached yet")
	return nil
}

func (a *App) gauges() {
	a.metrics.Gauge("ax_queue_depth", "Executions that are due and wait for an executor or their turn.", func() float64 { return float64(a.ready.Len()) })
	a.metrics.Gauge("ax_dispatch_in_flight", "Requests to executors on their way.", func() float64 { return float64(a.dispatch.Working()) })
	a.metrics.Gauge("ax_dispatch_queued", "Executions assigned to an executor and not yet sent.", func() float64 { return float64(a.dispatch.Queued()) })
	a.metrics.Gauge("ax_clock_refused_step_seconds", "A step of the database's clock that is not followed until the host's agrees.", func() float64 { return a.clock.Status().Refused.Seconds() })
	a.metrics.Gauge("ax_clock_steps", "Large steps of the clocks that ax time has followed since the start.", func() float64 { return float64(a.clock.Status().Steps) })
	a.metrics.Gauge("ax_buckets_owned", "Buckets that this server owns.", func() float64 { return float64(len(a.cluster.Owned())) })
	a.metrics.Gauge("ax_executors_held", "Silent executors whose removal is held because too many went at once.", func() float64 { return float64(a.registry.Held()) })
	a.metrics.Gauge("ax_executor_statements", "Statements by which this server has written executors since its start.", func() float64 { return float64(a.registry.Statements()) })
	a.metrics.Gauge("ax_executors_online", "Executors that take work.", func() float64 { return float64(a.registry.Count(store.ExecutorOnline)) })
}

// drained waits until nothing of a bucket is on its way, so that it can be handed over.
func (a *App) drained(ctx context.Context, f store.Fence) {
	const look = 2 * time.Millisecond
	tick := time.NewTicker(look)
	defer tick.Stop()
	for a.dispatch.InHand(f.Bucket) > 0 || a.outcome.InHand(f.Bucket) > 0 {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
	}
}

// advertise is where other servers, and executors that look for the owner of their namespace, reach this one.
func (a *App) advertise() string {
	if a.config.AdvertiseAddr != "" {
		return a.config.AdvertiseAddr
	}
	host, port, err := net.SplitHostPort(a.listener.Addr().String())
	if ip := net.ParseIP(host); err != nil || ip == nil || !ip.IsUnspecified() {
		return a.listener.Addr().String()
	}
	// It listens everywhere: the address that this host has on the way to the database is one that the others have
	// a way to. No packet is sent; the system only says which one it would use.
	host = "127.0.0.1"
	if u, err := url.Parse(a.config.Database); err == nil && u.Hostname() != "" {
		if c, err := (&net.Dialer{Timeout: time.Second}).Dial("udp", net.JoinHostPort(u.Hostname(), "3306")); err == nil {
			host, _, _ = net.SplitHostPort(c.LocalAddr().String())
			_ = c.Close()
		}
	}
	return net.JoinHostPort(host, port)
}

// own are the addresses that nobody may make the server call.
func (a *App) own() []netip.AddrPort {
	var out []netip.AddrPort
	if p, err := netip.ParseAddrPort(a.listener.Addr().String()); err == nil {
		out = append(out, netip.AddrPortFrom(p.Addr().Unmap(), p.Port()))
	}
	if a.config.Database != "" {
		if u, err := url.Parse(a.config.Database); err == nil {
			port, _ := strconv.Atoi(u.Port())
			if port == 0 {
				port = 3306
			}
			ips, _ := net.DefaultResolver.LookupNetIP(context.Background(), "ip", u.Hostname())
			for _, ip := range ips {
				out = append(out, netip.AddrPortFrom(ip.Unmap(), uint16(port)))
			}
		}
	}
	return out
}

// URL is where the server can be reached on this host.
func (a *App) URL() string {
	host, port, _ := net.SplitHostPort(a.listener.Addr().String())
	if ip := net.ParseIP(host); ip != nil && ip.IsUnspecified() {
		host = "127.0.0.1"
	}
	return "http://" + net.JoinHostPort(host, port)
}

// Started tells whether the server does its work.
func (a *App) Started() bool { return a.started.Load() }

// Run serves until ctx ends, then drains. The database may come later or go away: the server
// says so on /readyz and keeps trying. An error that waiting can not heal ends it.
func (a *App) Run(ctx context.Context) error {
	defer func() { _ = a.close() }()
	server := &http.Server{
		Handler: a.handler, ReadHeaderTimeout: 5 * time.Second, ReadTimeout: 30 * time.Second, WriteTimeout: 60 * time.Second, IdleTimeout: 90 * time.Second, MaxHeaderBytes: 16 << 10,
		ErrorLog: slog.NewLogLogger(a.log.Handler(), slog.LevelDebug),
	}
	served := make(chan error, 1)
	go func() { served <- server.Serve(a.listener) }()
	a.log.InfoContext(ctx, "server listening", slog.String("address", a.URL()), slog.String("version", Version), slog.String("database", a.databaseName()))

	err := a.work(ctx, server)
	if stop := <-served; err == nil && !errors.Is(stop, http.ErrServerClosed) {
		err = fmt.Errorf("serve: %w", stop)
	}
	a.log.InfoContext(ctx, "server stopped")
	return err
}

func (a *App) databaseName() string {
	if a.config.Database == "" {
		return "sqlite in " + a.config.Data
	}
	return config.Masked(a.config.Database)
}

// work brings the database up, runs the loops until ctx ends, and drains.
func (a *App) work(ctx context.Context, server *http.Server) error {
	stop := func() error {
		limit, cancel := context.WithTimeout(context.WithoutCancel(ctx), shutdownLimit)
		defer cancel()
		if err := server.Shutdown(limit); err != nil {
			_ = server.Close() // streams that outlive the limit
		}
		return nil
	}
	if err := a.debug(ctx); err != nil {
		_ = stop()
		return err
	}
	if err := a.bringUp(ctx); err != nil {
		_ = stop()
		if ctx.Err() != nil {
			return nil
		}
		return err
	}
	// What moves work stops first, what makes results durable and owns the buckets last.
	background := context.WithoutCancel(ctx)
	last, endLast := context.WithCancel(background)
	defer endLast()
	first, endFirst := context.WithCancel(background)
	defer endFirst()
	failed, fail := context.WithCancelCause(ctx)
	defer fail(nil)
	var keepers, movers errgroup.Group
	loop := func(g *errgroup.Group, ctx context.Context, name string, run func(context.Context) error) {
		g.Go(func() error {
			err := run(ctx)
			if err != nil {
				err = fmt.Errorf("%s: %w", name, err)
				fail(err)
			}
			return err
		})
	}
	loop(&keepers, last, "clock", a.clock.Run)
	loop(&keepers, last, "auth", a.auth.Run)
	loop(&keepers, last, "cluster", a.cluster.Run)
	loop(&keepers, last, "outcome", a.outcome.Run)
	loop(&keepers, last, "health", a.watchDatabase)
	loop(&movers, first, "registry", func(ctx context.Context) error {
		return a.registry.Run(ctx, a.cluster.Leads)
	})
	loop(&movers, first, "inbox", a.executors.Run)
	loop(&movers, first, "watch", a.outcome.Watch)
	loop(&movers, first, "trigger", a.trigger.Run)
	loop(&movers, first, "dispatch", a.dispatch.Run)
	loop(&movers, first, "sweep", a.sweep.Run)
	a.started.Store(true)
	a.log.InfoContext(ctx, "server ready", slog.String("address", a.URL()))

	<-failed.Done()
	a.draining.Store(true)
	if ctx.Err() != nil && a.config.DrainDelay > 0 {
		a.log.InfoContext(ctx, "server draining", slog.Duration("delay", a.config.DrainDelay))
		wait := time.NewTimer(a.config.DrainDelay)
		<-wait.C
	}
	// The others take over while everything here still works: nothing waits for a lease to end.
	a.cluster.Drain(background)
	endFirst()
	err := movers.Wait()
	_ = stop()
	endLast()
	return errors.Join(err, keepers.Wait())
}

// bringUp waits for the database and makes it fit. It returns only errors that waiting
// can not heal, or the end of ctx.
func (a *App) bringUp(ctx context.Context) error {
	timer := time.NewTimer(0)
	defer timer.Stop()
	told := ""
	for {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-timer.C:
		}
		err := a.tryUp(ctx)
		if err == nil {
			return nil
		}
		if !errors.Is(err, store.ErrUnavailable) && !errors.Is(err, auth.ErrBusy) {
			return err
		}
		a.trouble.Store(err.Error())
		if told != err.Error() {
			told = err.Error()
			a.log.WarnContext(ctx, "database not available, trying again", slog.String("database", a.databaseName()), slog.String("err", told))
		}
		timer.Reset(retryDatabase)
	}
}

// keepDigest appends a digest of the audit trail to a file beside the data, where somebody who can change the database can not.
func (a *App) keepDigest(d audit.Digest) error {
	line, err := json.Marshal(d)
	if err != nil {
		return err
	}
	f, err := os.OpenFile(filepath.Join(a.config.Data, audit.DigestFile), os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o600)
	if err != nil {
		return fmt.Errorf("audit digest: %w", err)
	}
	_, err = f.Write(append(line, '\n'))
	if err = errors.Join(err, f.Sync(), f.Close()); err != nil {
		return fmt.Errorf("audit digest: %w", err)
	}
	return nil
}

const canaryName = "master_key_canary"

func (a *App) tryUp(ctx context.Context) error {
	if err := a.store.Ready(ctx); err != nil {
		return a.explain(err)
	}
	if err := a.store.Migrate(ctx); err != nil {
		return err
	}
	if err := a.store.ProtectAudit(ctx); errors.Is(err, store.ErrUnavailable) {
		return err
	} else if err != nil {
		a.log.WarnContext(ctx, "audit trail not append-only", slog.String("err", err.Error()))
	}
	canary, err := a.sealer.Canary()
	if err != nil {
		return err
	}
	if canary, err = a.store.InitValue(ctx, canaryName, canary); err != nil {
		return err
	}
	if err := a.sealer.CheckCanary(canary); err != nil {
		return err
	}
	if err := a.clock.Sample(ctx); err != nil {
		return err
	}
	if a.config.Database == "" {
		// The lock on the data directory says that no other process lives here.
		if err := a.store.ForgetReplicas(ctx); err != nil {
			return err
		}
	}
	if _, err := a.store.KeepPartitions(ctx, a.clock.Now().UnixMilli()); err != nil {
		return err
	}
	if err := a.seedNamespace(ctx); err != nil {
		return err
	}
	if err := a.auth.Load(ctx); err != nil {
		return err
	}
	if err := a.administrator(ctx); err != nil {
		return err
	}
	a.reached.Store(time.Now().UnixMilli())
	return nil
}

// explain adds the remedy to errors that a person has to mend.
func (a *App) explain(err error) error {
	switch text := err.Error(); {
	case strings.Contains(text, "1045"):
		return fmt.Errorf("database %s: user or password is wrong: %w", a.databaseName(), err)
	case strings.Contains(text, "1049"):
		return fmt.Errorf("database %s: there is no such database; make it with sql/init.sql or CREATE DATABASE: %w", a.databaseName(), err)
	case strings.Contains(text, "1044"), strings.Contains(text, "1142"):
		return fmt.Errorf("database %s: the user lacks rights on the database: %w", a.databaseName(), err)
	}
	return err
}

// seedNamespace makes the namespace that a fresh installation begins with.
func (a *App) seedNamespace(ctx context.Context) error {
	all, err := a.store.Namespaces(ctx)
	if err != nil || len(all) > 0 {
		return err
	}
	now := a.clock.Now().UnixMilli()
	n := store.Namespace{Name: "default", DisplayName: "default", Egress: "[]", CreatedAt: now}
	err = a.store.CreateNamespace(ctx, &n, &store.AuditEntry{At: now, ActorType: "system", ActorName: "ax-server", Action: string(auth.NamespaceCreate), ObjectType: "namespace", Outcome: "success"})
	if errors.Is(err, store.ErrExists) {
		return nil // another server was faster
	}
	return err
}

// administrator sees to it that somebody can log in.
func (a *App) administrator(ctx context.Context) error {
	if f := a.config.AdminPasswordFile; f != "" {
		raw, err := os.ReadFile(f)
		if err != nil {
			return fmt.Errorf("admin-password-file: %w", err)
		}
		return a.auth.EnsureAdmin(ctx, "admin", strings.TrimRight(string(raw), "\r\n"))
	}
	token, required, err := a.auth.SetupToken(ctx)
	if err != nil || !required {
		return err
	}
	_, err = fmt.Fprintf(a.out, "\nSet up the first administrator (valid for 30 minutes, once):\n\n    %s%ssetup?token=%s\n\n", a.URL(), a.config.BasePath, token)
	return err
}

// watchDatabase keeps /readyz honest.
func (a *App) watchDatabase(ctx context.Context) error {
	tick := time.NewTicker(time.Second)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
		}
		err := a.store.Ready(ctx)
		switch {
		case err == nil:
			a.reached.Store(time.Now().UnixMilli())
		case ctx.Err() == nil:
			a.trouble.Store(err.Error())
		}
		a.metrics.Drift.Set(a.clock.Status().Drift.Seconds())
	}
}

func (a *App) close() error {
	var errs error
	if a.listener != nil {
		_ = a.listener.Close()
	}
	if a.store != nil {
		errs = errors.Join(errs, a.store.Close())
	}
	if a.lock != nil {
		errs = errors.Join(errs, a.lock.Unlock())
	}
	return errs
}

// NewApp makes an app in a namespace with its key, for the demo: what the console does by hand.
func (a *App) NewApp(ctx context.Context, namespace, name string) (key string, err error) {
	ns, err := a.store.NamespaceByName(ctx, namespace)
	if err != nil {
		return "", err
	}
	now := a.clock.Now().UnixMilli()
	k, text := protocol.NewKey()
	row := store.App{NSID: ns.ID, Name: name, Protocol: "ax", DrainRate: job.DefaultAppRate, CreatedAt: now}
	err = a.store.CreateApp(ctx, &row, func(id int64) (string, error) { return a.ring.Seal(ns.ID, id, k) },
		&store.AuditEntry{At: now, NSID: ns.ID, ActorType: "system", ActorName: "demo", Action: string(auth.AppCreate), ObjectType: "app", Outcome: "success"})
	return text, err
}

// OpenAPI is the document of the console API, the same for every server.
func OpenAPI() ([]byte, error) {
	gin.SetMode(gin.ReleaseMode) // it would print its routes
	_, declared := api.New(gin.New(), api.Config{Version: "1"})
	raw, err := declared.OpenAPI().MarshalJSON()
	if err != nil {
		return nil, fmt.Errorf("openapi: %w", err)
	}
	var pretty bytes.Buffer
	if err := json.Indent(&pretty, raw, "", "  "); err != nil {
		return nil, fmt.Errorf("openapi: %w", err)
	}
	return pretty.Bytes(), nil
}
