// Package registry knows the executors that are alive: heartbeats come in, the list of
// candidates and what each is running go out.
//
// It lives in memory; what changes of the membership (not each heartbeat) is written to the
// store, so that a restarted server knows whom to wait for. Package executorapi feeds it,
// dispatch and sweep read it.
package registry

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net/url"
	"slices"
	"sort"
	"strconv"
	"sync"
	"syscall"
	"time"

	"github.com/ax-scheduler/ax/internal/clock"
	"github.com/ax-scheduler/ax/internal/egress"
	"github.com/ax-scheduler/ax/internal/protocol"
	"github.com/ax-scheduler/ax/internal/routing"
	"github.com/ax-scheduler/ax/internal/store"
)

// Settings of the registry.
type Settings struct {
	// Heartbeat is how often executors report. Default 10s.
	Heartbeat time.Duration
	// ProbeDelay is how long a suspect executor (three heartbeats missed) is left alone before it
	// is asked. Default 15s.
	ProbeDelay time.Duration
	// Lease is how long a running execution is left alone while its executor can not be
	// reached. Default 10m.
	Lease time.Duration
	// StormShare is the share of an app's executors, or of all, above which their going at once is taken for a
	// fault of the network and not of theirs: see Storm. Default 0.5; 1 = never.
	StormShare float64
	// StormWindow is what counts as at once. Default 1m.
	StormWindow time.Duration
	// Redispatch is how many executions whose lease lapsed may move in a minute. Default 50; 0 = no limit.
	Redispatch int
}

const (
	missedBeats = 3
	// refusedProbes is how many refused connections in a row say that the process is gone. A
	// paused process does not refuse: its kernel still answers.
	refusedProbes = 2
	probeTimeout  = 3 * time.Second
	challengers   = 64
	// unanswered is how many requests in a row stay without an answer before an executor gets no more.
	unanswered = 3
	// maxPatience bounds the wait before an executor that went silent on requests is tried again.
	maxPatience = 5 * time.Minute
	forgetAfter = 24 * time.Hour
)

// Reasons of a state. The console has a sentence for each in both languages.
const (
	ReasonChallenge   = "challenge_pending"
	ReasonUnreachable = "address_unreachable"
	ReasonBlocked     = "address_blocked"
	ReasonForeign     = "address_foreign"
	ReasonBadAddress  = "address_invalid"
	ReasonSilent      = "heartbeats_missed"
	ReasonGone        = "process_gone"
	ReasonLeft        = "left"
	ReasonDraining    = "draining"
	ReasonDeaf        = "requests_unanswered"
	ReasonDrained     = "drained_by_operator"
	ReasonStorm       = "storm_held"
	ReasonVersion     = "protocol_version"
)

// Prober asks an executor whether it lives. dispatch makes it: it is the one client to executors.
type Prober func(ctx context.Context, e store.Executor, nonce string) (protocol.Probed, error)

// Executor is one as the registry sees it.
type Executor struct {
	store.Executor
	Handlers []protocol.Handler
	Labels   map[string]string
	// BeatAt is when it was last heard of, by this process's monotonic clock.
	BeatAt time.Time
	// Beats counts heartbeats since this server took it up.
	Beats int
	Busy  int
	// Bucket is that of its namespace.
	Bucket int
	// Gone says that its process is known not to exist any more.
	Gone bool

	running   map[int64]runInfo
	holds     map[int64]routing.Load // executions that we have given it
	same      map[string]int         // how many of those are of each handler
	taken     routing.Needs          // the sum of what those declare; undeclared slots count as one
	suspectAt time.Time
	// unreached says that it is suspect because it can not be reached, whatever it reports itself; deaf counts
	// the requests in a row that it did not answer, trips how often that made it suspect.
	unreached bool
	deaf      int
	trips     int
	// goneAt is when it was removed although it had not signed off; held says that its removal waits
	// because too many go at once.
	goneAt time.Time
	held   bool
	// written is the state that the store knows.
	written standing
	refused int
	probing bool
	probeAt time.Time
}

// standing is a state with its reason.
type standing struct{ state, reason string }

func (x *Executor) standing() standing { return standing{x.State, x.Reason} }

// Shown is its state and reason as people see it: one that an operator drains is DRAINING.
func (x *Executor) Shown() (state, reason string) {
	switch {
	case x.DrainedAt > 0 && x.State == store.ExecutorOnline:
		return store.ExecutorDrained, ReasonDrained
	case x.held:
		return x.State, ReasonStorm
	}
	return x.State, x.Reason
}

// open tells whether it takes new work.
func (x *Executor) open() bool { return x.State == store.ExecutorOnline && x.DrainedAt == 0 }

type runInfo struct {
	ranMs int64
	at    time.Time
}

type use struct {
	count int64
	last  int64
}

// Registry is safe for concurrent use.
type Registry struct {
	store    *store.Store
	clock    clock.Clock
	log      *slog.Logger
	settings Settings
	probe    Prober
	slots    chan struct{}
	// changed is called when an executor becomes able to take work.
	changed func()

	mu      sync.RWMutex
	byID    map[int64]*Executor
	byPlace map[place]*Executor // the latest process at an address
	storm   storm
	writer  writer
	uses    map[int64]map[int64]use // job → executor → use
}

// New makes an empty registry. changed is called when capacity has come.
func New(s *store.Store, c clock.Clock, log *slog.Logger, settings Settings, probe Prober, changed func()) *Registry {
	return &Registry{store: s, clock: c, log: log, settings: settings, probe: probe, changed: changed, slots: make(chan struct{}, challengers), byID: map[int64]*Executor{}, byPlace: map[place]*Executor{}, storm: newStorm(), uses: map[int64]map[int64]use{}}
}

// Settings returns the settings.
func (r *Registry) Settings() Settings { return r.settings }

// Load takes up the persisted membership of a bucket when this server becomes responsible for it: executors
// that it has not heard of lately get a full grace from now, since they reported to another server.
func (r *Registry) Load(ctx context.Context, bucket int) error {
	list, err := r.store.ExecutorsIn(ctx, bucket)
	if err != nil {
		return fmt.Errorf("load executors: %w", err)
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, e := range list {
		if x, ok := r.byID[e.ID]; ok {
			if time.Since(x.BeatAt) > missedBeats*r.settings.Heartbeat {
				x.Executor, x.BeatAt, x.Beats, x.written = e, time.Now(), 0, standing{e.State, e.Reason}
			}
			continue
		}
		x := &Executor{Executor: e, Bucket: bucket, BeatAt: time.Now(), running: map[int64]runInfo{}, holds: map[int64]routing.Load{}}
		_ = json.Unmarshal([]byte(e.Handlers), &x.Handlers)
		_ = json.Unmarshal([]byte(e.Labels), &x.Labels)
		x.written = x.standing()
		r.put(x)
	}
	return nil
}

// place is where an executor is.
type place struct {
	app     int64
	address string
}

// put takes an executor in, as the latest process at its address. r.mu is held.
func (r *Registry) put(x *Executor) {
	r.byID[x.ID] = x
	at := place{x.AppID, x.Address}
	if old := r.byPlace[at]; old == nil || old.ID <= x.ID || r.byID[old.ID] != old {
		r.byPlace[at] = x
	}
}

// Drop forgets the executors of a bucket that this server is not responsible for any more: it hears nothing of
// them and must not judge them.
func (r *Registry) Drop(bucket int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for id, x := range r.byID {
		if x.Bucket == bucket {
			delete(r.byID, id)
			if at := (place{x.AppID, x.Address}); r.byPlace[at] == x {
				delete(r.byPlace, at)
			}
		}
	}
}

// ErrInstance says that a message names an executor that its sender is not.
var ErrInstance = errors.New("this instance is not the sender's: register again")

// Beat takes a registration or heartbeat of an executor whose namespace is in a bucket. It answers what the server thinks of the executor.
// A new process is written to the store before it is answered; its address is then challenged in the background.
func (r *Registry) Beat(ctx context.Context, bucket int, app store.App, m protocol.Register) (Executor, error) {
	now := clock.Millis(r.clock)
	if err := checkAddress(m.Address); err != nil {
		return Executor{Executor: store.Executor{State: store.ExecutorRefused, Reason: ReasonBadAddress}}, nil
	}
	if m.Protocol > protocol.Version {
		return Executor{Executor: store.Executor{State: store.ExecutorRefused, Reason: ReasonVersion}}, nil
	}
	labels, err := json.Marshal(m.Labels)
	if err != nil {
		return Executor{}, fmt.Errorf("labels: %w", err)
	}
	handlers, err := json.Marshal(m.Handlers)
	if err != nil {
		return Executor{}, fmt.Errorf("handlers: %w", err)
	}
	r.mu.Lock()
	x := r.find(app.ID, m.Address)
	if x != nil && x.StartID != m.StartID {
		// Another process answers at this address: what the old one ran is known to be gone.
		x.Gone, x.State, x.Reason = true, store.ExecutorOffline, ReasonGone
		x = nil
	}
	if x == nil {
		old := r.byPlace[place{app.ID, m.Address}]
		anew := old != nil && old.Gone
		r.mu.Unlock()
		row := store.Executor{
			NSID: app.NSID, AppID: app.ID, AppName: app.Name, Address: m.Address, StartID: m.StartID, State: store.ExecutorPending, Reason: ReasonChallenge,
			Labels: string(labels), Handlers: string(handlers), CPU: m.CPU, MemoryMB: m.MemoryMB, Slots: max(m.Slots, 1), SDK: limit(m.SDK, 64), RegisteredAt: now, ChangedAt: now,
		}
		if err := r.register(ctx, &row, anew); err != nil {
			return Executor{}, fmt.Errorf("register %s: %w", m.Address, err)
		}
		r.mu.Lock()
		x = r.find(app.ID, m.Address)
		if x == nil || x.StartID != m.StartID {
			x = &Executor{Executor: row, Bucket: bucket, running: map[int64]runInfo{}, holds: map[int64]routing.Load{}}
			x.written = x.standing()
			r.put(x)
		}
		r.log.InfoContext(ctx, "executor registered", slog.String("executor", m.Address), slog.String("app", app.Name), slog.Int64("executor_id", row.ID))
	}
	x.BeatAt, x.Handlers, x.Labels = time.Now(), m.Handlers, m.Labels
	x.Beats++
	x.refused = 0
	x.running = make(map[int64]runInfo, len(m.Running))
	for _, ref := range m.Running {
		if id, err := strconv.ParseInt(ref.ExecutionID, 10, 64); err == nil {
			info := runInfo{ranMs: -1, at: x.BeatAt}
			if ref.RanMs != nil {
				info.ranMs = *ref.RanMs
			}
			x.running[id] = info
		}
	}
	dirty := x.Executor.Labels != string(labels) || x.Executor.Handlers != string(handlers) || x.Slots != max(m.Slots, 1) || x.CPU != m.CPU || x.MemoryMB != m.MemoryMB
	x.Executor.Labels, x.Executor.Handlers, x.Slots, x.CPU, x.MemoryMB = string(labels), string(handlers), max(m.Slots, 1), m.CPU, m.MemoryMB
	came := false
	switch {
	case m.Draining:
		x.State, x.Reason = store.ExecutorDrained, ReasonDraining
	case x.State == store.ExecutorSuspect && x.unreached:
		// It reports, and does not hear: only an answer brings it back.
	case x.State == store.ExecutorSuspect:
		x.State, x.Reason, x.held, came = store.ExecutorOnline, "", false, true
	case x.State == store.ExecutorOffline, x.State == store.ExecutorDrained:
		x.State, x.Reason, x.unreached, x.deaf = store.ExecutorPending, ReasonChallenge, false, 0
	case x.State == store.ExecutorOnline, x.State == store.ExecutorPending, x.State == store.ExecutorRefused:
	}
	x.Gone = false
	challenge := (x.State == store.ExecutorPending || x.State == store.ExecutorRefused) && !x.probing
	if challenge {
		x.probing = true
	}
	if dirty || x.written != x.standing() {
		x.ChangedAt = now
	}
	r.note(x, dirty)
	row, out := x.Executor, copyOf(x)
	r.mu.Unlock()
	if came {
		r.changed()
	}
	if challenge {
		go r.challenge(context.WithoutCancel(ctx), row)
	}
	return out, nil
}

func (r *Registry) find(appID int64, address string) *Executor {
	if x := r.byPlace[place{appID, address}]; x != nil && !x.Gone && r.byID[x.ID] == x {
		return x
	}
	return nil
}

func copyOf(x *Executor) Executor {
	out := *x
	out.running, out.holds, out.same = nil, nil, nil
	return out
}

// challenge proves that a holder of the app's key answers at the address.
func (r *Registry) challenge(ctx context.Context, e store.Executor) {
	r.slots <- struct{}{}
	defer func() { <-r.slots }()
	ctx, cancel := context.WithTimeout(ctx, probeTimeout)
	defer cancel()
	answer, err := r.probe(ctx, e, protocol.NewMessageID())
	state, reason := store.ExecutorOnline, ""
	switch {
	case errors.Is(err, egress.ErrBlocked):
		state, reason = store.ExecutorRefused, ReasonBlocked
	case errors.Is(err, protocol.ErrSignature):
		state, reason = store.ExecutorRefused, ReasonForeign
	case err != nil:
		state, reason = store.ExecutorRefused, ReasonUnreachable
	case answer.StartID != e.StartID:
		state, reason = store.ExecutorRefused, ReasonForeign
	}
	r.mu.Lock()
	x, ok := r.byID[e.ID]
	if !ok {
		r.mu.Unlock()
		return
	}
	x.probing = false
	changed := x.State != state
	if x.State == store.ExecutorPending || x.State == store.ExecutorRefused {
		x.State, x.Reason, x.ChangedAt = state, reason, clock.Millis(r.clock)
	}
	r.note(x, false)
	row := x.Executor
	r.mu.Unlock()
	if !changed {
		return
	}
	if state == store.ExecutorOnline {
		r.log.InfoContext(ctx, "executor online", slog.String("executor", row.Address), slog.String("app", row.AppName))
		r.changed()
		return
	}
	attrs := []any{slog.String("executor", row.Address), slog.String("app", row.AppName), slog.String("reason", reason)}
	if err != nil {
		attrs = append(attrs, slog.String("err", err.Error()))
	}
	r.log.WarnContext(ctx, "executor refused", attrs...)
}

// Remove takes an executor off the list: it said that it leaves.
func (r *Registry) Remove(ctx context.Context, appID, id int64, startID string) error {
	r.mu.Lock()
	x, ok := r.byID[id]
	if !ok || x.AppID != appID || x.StartID != startID {
		r.mu.Unlock()
		return ErrInstance
	}
	x.State, x.Reason, x.ChangedAt, x.held = store.ExecutorOffline, ReasonLeft, clock.Millis(r.clock), false
	r.note(x, false)
	row := x.Executor
	r.mu.Unlock()
	r.log.InfoContext(ctx, "executor left", slog.String("executor", row.Address), slog.String("app", row.AppName))
	return nil
}

// Instance checks that a message's instance belongs to the sender's app and returns it.
func (r *Registry) Instance(appID int64, instance string) (Executor, error) {
	id, err := strconv.ParseInt(instance, 10, 64)
	if err != nil {
		return Executor{}, ErrInstance
	}
	r.mu.RLock()
	defer r.mu.RUnlock()
	x, ok := r.byID[id]
	if !ok || x.AppID != appID {
		return Executor{}, ErrInstance
	}
	return copyOf(x), nil
}

// Executor returns one by id.
func (r *Registry) Executor(id int64) (Executor, bool) {
	r.mu.RLock()
	defer r.mu.RUnlock()
	x, ok := r.byID[id]
	if !ok {
		return Executor{}, false
	}
	return copyOf(x), true
}

// List lists a namespace's executors by id.
func (r *Registry) List(ns int64) []Executor {
	r.mu.RLock()
	defer r.mu.RUnlock()
	var out []Executor
	for _, x := range r.byID {
		if x.NSID == ns {
			out = append(out, copyOf(x))
		}
	}
	sort.Slice(out, func(i, j int) bool { return out[i].ID < out[j].ID })
	return out
}

// Online counts the executors of an app that take work.
func (r *Registry) Online(appID int64) int {
	r.mu.RLock()
	defer r.mu.RUnlock()
	n := 0
	for _, x := range r.byID {
		if x.AppID == appID && x.open() {
			n++
		}
	}
	return n
}

// queueAllowance is how much more than its workers an executor is sent: its own queue
// takes 1024, and what is there needs no round trip to start.
const queueAllowance = 1000

// Want says for whom candidates are listed.
type Want struct {
	AppID, JobID int64
	Handler      string
	// Avoid are executors that refused it or could not be reached.
	Avoid []int64
}

// Candidates lists an app's executors for routing, with the reason why one may not be
// taken. offered says whether any of them, barred or not, has the handler.
func (r *Registry) Candidates(w Want) (list []routing.Candidate, online, offered bool) {
	r.mu.RLock()
	defer r.mu.RUnlock()
	for _, x := range r.byID {
		if x.AppID != w.AppID || x.State == store.ExecutorOffline {
			continue
		}
		u := r.uses[w.JobID][x.ID]
		c := routing.Candidate{
			ID: x.ID, Address: x.Address, Labels: x.Labels, Slots: x.Slots, Busy: x.Busy, Same: x.same[w.Handler], Used: u.count, LastUsed: u.last,
			CPUMilli: int64(x.CPU) * 1000, MemoryMB: x.MemoryMB, UsedCPU: x.taken.CPUMilli, UsedMemory: x.taken.MemoryMB, UsedSlots: x.taken.Slots,
		}
		has := false
		for _, h := range x.Handlers {
			has = has || h.Name == w.Handler
		}
		switch {
		case x.State == store.ExecutorSuspect:
			c.Barred = routing.BarSuspect
		case x.State == store.ExecutorDrained, x.DrainedAt > 0:
			c.Barred = routing.BarDraining
		case x.State != store.ExecutorOnline:
			c.Barred = routing.BarOffline
		case !has:
			c.Barred = routing.BarHandler
		case x.Busy >= x.Slots+queueAllowance:
			c.Barred = routing.BarFull
		}
		online = online || x.open()
		offered = offered || has && x.open()
		for _, a := range w.Avoid {
			if a == x.ID && c.Barred == "" {
				c.Barred = routing.BarBefore
			}
		}
		list = append(list, c)
	}
	return list, online, offered
}

// Takes tells whether an executor, still the same process, takes an execution of a handler now.
func (r *Registry) Takes(id int64, startID, handler string) (Executor, bool) {
	r.mu.RLock()
	defer r.mu.RUnlock()
	x, ok := r.byID[id]
	if !ok || x.StartID != startID || !x.open() || x.Busy >= x.Slots+queueAllowance || !slices.ContainsFunc(x.Handlers, func(h protocol.Handler) bool { return h.Name == handler }) {
		return Executor{}, false
	}
	return copyOf(x), true
}

// Took counts an execution against an executor, and the job's use of it. Counting the
// same execution again changes nothing.
func (r *Registry) Took(id, jobID, execution, now int64, load routing.Load) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if x, ok := r.byID[id]; ok {
		if _, counted := x.holds[execution]; counted {
			return
		}
		x.holds[execution] = load
		x.count(load, 1)
	}
	if r.uses[jobID] == nil {
		r.uses[jobID] = map[int64]use{}
	}
	u := r.uses[jobID][id]
	r.uses[jobID][id] = use{u.count + 1, now}
}

// Recall replaces what is known of where jobs went before, for a new owner that read it from their rows.
func (r *Registry) Recall(list []store.Use) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, u := range list {
		delete(r.uses, u.JobID)
	}
	for _, u := range list {
		if r.uses[u.JobID] == nil {
			r.uses[u.JobID] = map[int64]use{}
		}
		r.uses[u.JobID][u.WorkerID] = use{u.Count, u.LastAt}
	}
}

// count adds a load to an executor's account, or takes it off with sign -1.
func (x *Executor) count(l routing.Load, sign int) {
	x.Busy = len(x.holds)
	x.taken.CPUMilli += int64(sign) * l.CPUMilli
	x.taken.MemoryMB += int64(sign) * l.MemoryMB
	x.taken.Slots += sign * max(l.Slots, 1)
	if x.same == nil {
		x.same = map[string]int{}
	}
	if x.same[l.Handler] += sign; x.same[l.Handler] == 0 {
		delete(x.same, l.Handler)
	}
}

// Gave takes an execution off an executor's account.
func (r *Registry) Gave(id, execution int64) {
	r.mu.Lock()
	waited := false
	if x, ok := r.byID[id]; ok {
		if load, has := x.holds[execution]; has {
			// Somebody may wait for just this room.
			waited = x.Busy >= x.Slots+queueAllowance || load.Any()
			delete(x.holds, execution)
			x.count(load, -1)
		}
	}
	r.mu.Unlock()
	if waited {
		r.changed()
	}
}

// Word is what an executor last said about one execution.
type Word struct {
	Known bool  // the executor is in the registry
	Gone  bool  // its process does not exist any more
	Beats int   // heartbeats since this server took it up
	Lists bool  // its last heartbeat lists the execution
	RanMs int64 // how long the handler had run at that heartbeat; -1 = waiting
	// SilentFor is the age of the last heartbeat.
	SilentFor time.Duration
	// Held: too many went at once, so what it ran is left alone even when its lease has lapsed.
	Held bool
}

// Word tells what an executor last said about one execution.
func (r *Registry) Word(id int64, startID string, execution int64) Word {
	r.mu.RLock()
	defer r.mu.RUnlock()
	x, ok := r.byID[id]
	if !ok || x.StartID != startID {
		return Word{Gone: !ok || x.StartID != startID}
	}
	w := Word{Known: true, Gone: x.Gone, Beats: x.Beats, SilentFor: time.Since(x.BeatAt), RanMs: -1, Held: x.held}
	if info, ok := x.running[execution]; ok {
		w.Lists, w.RanMs = true, info.ranMs
	}
	return w
}

// Refused makes the registry look at an executor now: a connection to it was refused.
func (r *Registry) Refused(ctx context.Context, id int64) {
	r.distrust(ctx, id, ReasonUnreachable, func(x *Executor) bool {
		x.suspectAt = time.Now().Add(-r.settings.ProbeDelay)
		return true
	})
}

// Unanswered tells that an executor did not answer a request in time. Several in a row make it suspect: it
// reports, and takes no work. It gets its next chance after the probe delay, and after twice as long each
// time that it fails again.
func (r *Registry) Unanswered(ctx context.Context, id int64) {
	r.distrust(ctx, id, ReasonDeaf, func(x *Executor) bool {
		if x.deaf++; x.deaf < unanswered {
			return false
		}
		x.deaf = 0
		x.suspectAt = time.Now().Add(min(r.settings.ProbeDelay<<min(x.trips, 8), maxPatience) - r.settings.ProbeDelay)
		x.trips++
		return true
	})
}

// Answered tells that an executor answered a request to run something.
func (r *Registry) Answered(id int64) {
	r.mu.RLock()
	x, ok := r.byID[id]
	fine := !ok || x.deaf == 0 && x.trips == 0
	r.mu.RUnlock()
	if fine {
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	x.deaf, x.trips = 0, 0
}

func (r *Registry) distrust(ctx context.Context, id int64, reason string, is func(x *Executor) bool) {
	r.mu.Lock()
	x, ok := r.byID[id]
	if !ok || x.State != store.ExecutorOnline || !is(x) {
		r.mu.Unlock()
		return
	}
	x.State, x.Reason, x.unreached, x.ChangedAt = store.ExecutorSuspect, reason, true, clock.Millis(r.clock)
	r.note(x, false)
	row := x.Executor
	r.mu.Unlock()
	r.log.WarnContext(ctx, "executor suspect", slog.String("executor", row.Address), slog.String("app", row.AppName), slog.String("reason", row.Reason))
}

// Run looks after silent executors until ctx ends, in the buckets for which responsible says that this server
// acts: of others it hears nothing.
func (r *Registry) Run(ctx context.Context, responsible func(bucket int) bool) error {
	tick := time.NewTicker(min(time.Second, r.settings.Heartbeat/2))
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return r.Flush(context.WithoutCancel(ctx))
		case <-tick.C:
			r.RunOnce(ctx, time.Now(), responsible)
		}
	}
}

// RunOnce marks executors that have been silent for three heartbeats and probes those
// that stayed so for ProbeDelay. now is a reading of the monotonic clock.
func (r *Registry) RunOnce(ctx context.Context, now time.Time, responsible func(bucket int) bool) {
	var silent, probe []store.Executor
	r.mu.Lock()
	for id, x := range r.byID {
		quiet := now.Sub(x.BeatAt) > missedBeats*r.settings.Heartbeat
		switch {
		case !responsible(x.Bucket):
			continue
		case (x.State == store.ExecutorOnline || x.State == store.ExecutorDrained) && quiet:
			x.State, x.Reason, x.suspectAt, x.ChangedAt = store.ExecutorSuspect, ReasonSilent, now, clock.Millis(r.clock)
			silent = append(silent, x.Executor)
		case x.State == store.ExecutorSuspect && now.Sub(x.suspectAt) >= r.settings.ProbeDelay && !x.probing && now.Sub(x.probeAt) >= r.settings.Heartbeat/2:
			x.probing, x.probeAt = true, now
			probe = append(probe, x.Executor)
		case (x.State == store.ExecutorPending || x.State == store.ExecutorRefused) && quiet:
			x.State, x.Reason, x.ChangedAt = store.ExecutorOffline, ReasonSilent, clock.Millis(r.clock)
			silent = append(silent, x.Executor)
		case x.State == store.ExecutorOffline && x.Busy == 0 && now.Sub(x.BeatAt) > forgetAfter:
			delete(r.byID, id)
			if at := (place{x.AppID, x.Address}); r.byPlace[at] == x {
				delete(r.byPlace, at)
			}
			continue
		}
		r.note(x, false) // what changed, and what a failed write left behind
	}
	r.weather(ctx, now)
	r.mu.Unlock()
	for _, row := range silent {
		r.log.WarnContext(ctx, "executor silent", slog.String("executor", row.Address), slog.String("app", row.AppName), slog.String("state", row.State))
	}
	for _, row := range probe {
		go r.probeSilent(ctx, row, now)
	}
}

// probeSilent asks a suspect executor whether it lives; now is when that was decided.
func (r *Registry) probeSilent(ctx context.Context, e store.Executor, now time.Time) {
	r.slots <- struct{}{}
	defer func() { <-r.slots }()
	ctx, cancel := context.WithTimeout(ctx, probeTimeout)
	defer cancel()
	answer, err := r.probe(ctx, e, protocol.NewMessageID())
	r.mu.Lock()
	x, ok := r.byID[e.ID]
	if !ok {
		r.mu.Unlock()
		return
	}
	x.probing = false
	if x.State != store.ExecutorSuspect {
		r.mu.Unlock()
		return
	}
	reports := now.Sub(x.BeatAt) <= missedBeats*r.settings.Heartbeat
	switch {
	case err == nil && answer.StartID == e.StartID && x.unreached:
		// It can be reached again.
		x.State, x.Reason, x.unreached, x.refused, x.held, x.ChangedAt = store.ExecutorOnline, "", false, 0, false, clock.Millis(r.clock)
		r.note(x, false)
		r.mu.Unlock()
		r.log.InfoContext(ctx, "executor can be reached again", slog.String("executor", e.Address), slog.String("app", e.AppName))
		r.changed()
		return
	case err == nil && answer.StartID == e.StartID:
		// It lives but its heartbeats do not arrive. Its runs are left alone; no new work until it is
		// heard of again.
		x.refused, x.BeatAt, x.suspectAt, x.held = 0, time.Now(), time.Now(), false
		r.mu.Unlock()
		r.log.WarnContext(ctx, "executor answers but its heartbeats do not arrive", slog.String("executor", e.Address), slog.String("app", e.AppName))
		return
	case err == nil: // another process lives there
		x.Gone = true
	case reports:
		// It lives, as it reports, and can not be reached: what it runs goes on.
		r.mu.Unlock()
		return
	case errors.Is(err, syscall.ECONNREFUSED):
		if x.refused++; x.refused < refusedProbes {
			r.mu.Unlock()
			return
		}
		// Nobody listens there any more: that is known, however many it concerns.
		x.Gone = true
	default:
		if !r.mayGo(x, now) {
			r.mu.Unlock()
			return
		}
	}
	x.State, x.Reason, x.held, x.goneAt, x.ChangedAt = store.ExecutorOffline, ReasonSilent, false, now, clock.Millis(r.clock)
	if x.Gone {
		x.Reason = ReasonGone
	}
	r.note(x, false)
	row := x.Executor
	r.mu.Unlock()
	r.log.WarnContext(ctx, "executor removed", slog.String("executor", row.Address), slog.String("app", row.AppName), slog.String("reason", row.Reason))
}

// checkAddress refuses what can not be a base URL of an executor.
func checkAddress(address string) error {
	u, err := url.Parse(address)
	if err != nil || (u.Scheme != "http" && u.Scheme != "https") || u.Host == "" || u.User != nil || u.RawQuery != "" || u.Fragment != "" || len(address) > 200 {
		return errors.New("an executor's address is http://host:port, optionally with a path")
	}
	return nil
}

func limit(s string, n int) string {
	if len(s) > n {
		return s[:n]
	}
	return s
}

// Age is how long ago it was last heard of.
func (x Executor) Age() time.Duration { return time.Since(x.BeatAt) }

// Count counts the executors in a state, for metrics.
func (r *Registry) Count(state string) int {
	r.mu.RLock()
	defer r.mu.RUnlock()
	n := 0
	for _, x := range r.byID {
		if shown, _ := x.Shown(); shown == state {
			n++
		}
	}
	return n
}
