package ax

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"slices"
	"time"
)

const (
	heartbeatDefault = 10 * time.Second
	heartbeatLeast   = 500 * time.Millisecond
	heartbeatMost    = time.Minute

	// The server's look at the address takes some milliseconds; when it takes long, it is a
	// connection that hangs, and asking often does not help.
	pendingEvery  = 250 * time.Millisecond
	pendingSlowly = time.Second
	pendingOften  = 8 // times
)

// registryLoop registers and heartbeats until ctx ends.
func (ex *Executor) registryLoop(ctx context.Context) {
	b := &beat{ex: ex, every: heartbeatDefault}
	for {
		if !wait(ctx, b.once(ctx), ex.beatNow) {
			return
		}
	}
}

// beat is what the heartbeat remembers from one time to the next.
type beat struct {
	ex     *Executor
	every  time.Duration
	pause  backoff
	state  string
	reason string
	online bool // was once
	asked  int  // while pending
}

// once sends one heartbeat and returns the pause until the next.
func (b *beat) once(ctx context.Context) time.Duration {
	ex := b.ex
	m := registerMessage{
		header: ex.header("register"), Address: ex.address, StartID: ex.startID, Labels: ex.opts.Labels,
		CPU: ex.cpu, MemoryMB: ex.memoryMB, Slots: ex.opts.Workers, Handlers: ex.handlerInfos(),
		Running: ex.runningRefs(), SDK: "go/" + sdkVersion, Draining: ex.isDraining(), Protocol: protocolVersion,
	}
	m.Instance = "" // the server knows us by address and start id
	var reply registerReply
	if err := ex.client.post(ctx, pathRegistry, m, &reply); err != nil {
		if ctx.Err() == nil {
			ex.callFailed(pathRegistry, err)
		}
		b.pause.most = b.every
		return b.pause.after(err)
	}
	b.pause.reset()
	ex.delivered(pathRegistry)
	if reply.HeartbeatMs > 0 {
		b.every = min(max(time.Duration(min(reply.HeartbeatMs, maxSpanMs))*time.Millisecond, heartbeatLeast), heartbeatMost)
	}
	ex.client.setOwner(ownerURL(reply.Owner))
	ex.registered(reply.Instance, reply.LeaseMs)
	for _, ref := range reply.Stop {
		ex.kill(ref, "asked by the server")
	}
	b.note(&reply)
	if reply.State != "PENDING" {
		b.asked = 0
		return b.every
	}
	if b.asked++; b.asked <= pendingOften {
		return pendingEvery
	}
	return min(pendingSlowly, b.every)
}

// note logs what changed.
func (b *beat) note(reply *registerReply) {
	ex := b.ex
	if reply.State == b.state && reply.Reason == b.reason {
		return
	}
	b.state, b.reason = reply.State, reply.Reason
	switch reply.State {
	case "ONLINE":
		if !b.online {
			b.online = true
			ex.log.Info("register to scheduler success", slog.String("app", ex.opts.Namespace+"/"+ex.opts.App),
				slog.String("address", ex.address), slog.String("instance", reply.Instance))
			return
		}
		ex.log.Info("executor is online again", slog.String("instance", reply.Instance))
	case "REFUSED":
		ex.log.Error("server refuses this executor", slog.String("reason", cut(reply.Reason, 500)), slog.String("address", ex.address),
			slog.String("what_to_do", "make the address reachable from the server (Options.Address, published ports, network policy) "+
				"and allowed by the namespace's egress policy; the executor goes on asking"))
	case "PENDING":
		ex.log.Debug("server checks the address", slog.String("address", ex.address))
	default:
		ex.log.Warn("server answered a state that this SDK does not know", slog.String("state", cut(reply.State, 40)))
	}
}

// ownerURL is the server's hint where to send, if it is one.
func ownerURL(s string) string {
	if s == "" || checkBaseURL(s) != nil {
		return ""
	}
	return s
}

// callFailed logs why a call did not succeed, once for each path and kind of reason.
func (ex *Executor) callFailed(path string, err error) {
	kind, level, todo := "silent", slog.LevelWarn, "check that ax-server runs and Options.Server is its address; work goes on, results are kept in "+ex.opts.Dir
	var said *serverError
	switch {
	case errors.Is(err, errUnsignedReply):
		kind, level, todo = "unsigned", slog.LevelError, "check Options.Server and Options.Key"
	case !errors.As(err, &said):
	case said.Code == "bad_signature" || said.Code == "wrong_app":
		kind, level = said.Code, slog.LevelError
		todo = fmt.Sprintf("check that Options.Key is the current key of app %s in namespace %s", ex.opts.App, ex.opts.Namespace)
	case said.Code == "wrong_instance":
		kind, todo = said.Code, "nothing: the executor registers again"
		poke(ex.beatNow)
	case said.Status == http.StatusServiceUnavailable || said.Status == http.StatusTooManyRequests:
		kind, todo = "busy", "nothing: the executor tries again later"
	default:
		kind, level, todo = fmt.Sprint(said.Status, said.Code), slog.LevelError, "see the message; the executor goes on asking"
	}
	ex.mu.Lock()
	known := ex.trouble[path] == kind
	ex.trouble[path] = kind
	ex.mu.Unlock()
	if known {
		level = slog.LevelDebug
	}
	ex.log.Log(context.Background(), level, "call to scheduler did not succeed", slog.String("path", path), slog.Any("err", err), slog.String("what_to_do", todo))
}

// delivered notes that the server takes calls to path.
func (ex *Executor) delivered(path string) {
	ex.mu.Lock()
	was := ex.trouble[path]
	delete(ex.trouble, path)
	ex.mu.Unlock()
	if was != "" {
		ex.log.Info("scheduler answers again", slog.String("path", path))
	}
}

// registered takes in who we are for the server.
func (ex *Executor) registered(instance string, leaseMs int64) {
	ex.mu.Lock()
	defer ex.mu.Unlock()
	ex.lease = time.Duration(min(max(leaseMs, 0), maxSpanMs)) * time.Millisecond
	if instance == "" || instance == ex.instance {
		return
	}
	ex.instance = instance
	ex.knownOnce.Do(func() { close(ex.instanceKnown) })
}

func (ex *Executor) instanceID() string {
	ex.mu.Lock()
	defer ex.mu.Unlock()
	return ex.instance
}

// waitInstance blocks until the server has given an instance id; false when ctx ended before.
func (ex *Executor) waitInstance(ctx context.Context) bool {
	select {
	case <-ctx.Done():
		return false
	case <-ex.instanceKnown:
		return true
	}
}

func (ex *Executor) header(kind string) header {
	return header{Type: kind, Namespace: ex.opts.Namespace, App: ex.opts.App, Instance: ex.instanceID()}
}

// renewLeases keeps the leases while the executor leaves and no longer heartbeats.
func (ex *Executor) renewLeases(ctx context.Context) {
	ex.mu.Lock()
	lease := ex.lease
	ex.mu.Unlock()
	if lease <= 0 {
		return
	}
	for wait(ctx, max(lease/3, time.Second), nil) {
		refs := ex.runningRefs()
		if len(refs) == 0 {
			continue
		}
		for part := range slices.Chunk(refs, maxBatch) {
			m := leaseMessage{header: ex.header("lease")}
			for _, ref := range part {
				m.Executions = append(m.Executions, leaseRef{fencedRef: ref.fencedRef})
			}
			var reply answersReply
			if err := ex.client.post(ctx, pathLease, m, &reply); err != nil && ctx.Err() == nil {
				ex.callFailed(pathLease, err)
			}
		}
	}
}
