package executorapi

import (
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/gin-gonic/gin"

	"github.com/ax-scheduler/ax/internal/clock"
	"github.com/ax-scheduler/ax/internal/outcome"
	"github.com/ax-scheduler/ax/internal/protocol"
	"github.com/ax-scheduler/ax/internal/store"
	"github.com/ax-scheduler/ax/server/httpx"
	"github.com/ax-scheduler/ax/server/peer"
)

// An executor may call any replica. What belongs to another one's bucket is sent on to it as it came, and its
// answer goes back as it is: the signatures are the executor's and the owner's. While the owner can not be reached,
// results and heartbeats are made durable in the bucket's inbox instead, and output is stored directly; what needs an answer of
// the owner is refused with the request to send it again.
const (
	// routeFor is how long the owner is looked for before the inbox is used.
	routeFor = time.Second
	// tries bounds how often a message is handled whose bucket comes and goes.
	tries = 3
	// inboxEvery is how often an owner looks for what others have kept for it.
	inboxEvery = 500 * time.Millisecond
	inboxPage  = 500
	// inboxFor bounds the applying of one page.
	inboxFor = 10 * time.Second
)

// moved tells whether an error says that the bucket went elsewhere while a message was handled. Nothing
// was written then.
func moved(err error) bool {
	return errors.Is(err, outcome.ErrNotOwner) || errors.Is(err, store.ErrFenced)
}

// route sends a message on to the owner of its namespace. here says that it is for this replica; otherwise it
// was answered, or err says that nobody could be reached.
func (a *API) route(c *gin.Context, kind string, from sender) (here bool, err error) {
	if kind == protocol.TypeRegister && a.cluster.Alone(from.app.Namespace.Bucket) {
		return true, nil // also while the database is away: a heartbeat needs none
	}
	caller := httpx.CallerOf(c.Request.Context())
	return a.peers.Route(c.Writer, c.Request, peer.Request{Bucket: from.app.Namespace.Bucket, Wait: routeFor, Repeatable: true, IP: caller.IP, RequestID: caller.RequestID})
}

// keep takes a message for an owner that can not be reached, if that is possible.
func (a *API) keep(c *gin.Context, kind string, from sender, body []byte) (any, error) {
	if _, forwarded := peer.OriginOf(c.Request.Context()); forwarded {
		return nil, outcome.ErrNotOwner
	}
	switch kind {
	case protocol.TypeRegister:
		return a.keepBeat(c.Request.Context(), from, body)
	case protocol.TypeResults:
		return a.keepResults(c.Request.Context(), from, body)
	case protocol.TypeLog:
		var m logMessage
		if err := decode(body, &m); err != nil {
			return nil, err
		}
		// Output needs no owner: the row of its execution orders it.
		if err := a.remembered(c.Request.Context(), from, m.Instance); err != nil {
			return nil, err
		}
		return a.output_(c, from, m)
	}
	return nil, outcome.ErrNotOwner
}

// remembered looks for the executor that a message names in the database: this replica has not heard of it.
func (a *API) remembered(ctx context.Context, from sender, instance string) error {
	id, err := strconv.ParseInt(instance, 10, 64)
	if err != nil || id <= 0 {
		return refuse(http.StatusForbidden, "wrong_instance", "this instance is not the sender's: register again")
	}
	_, err = a.store.Executor(ctx, from.app.App.ID, id, "", "")
	if errors.Is(err, store.ErrNotFound) {
		return refuse(http.StatusForbidden, "wrong_instance", "this instance is not the sender's: register again")
	}
	return err
}

func (a *API) put(ctx context.Context, from sender, kind, key string, body []byte) error {
	err := a.store.PutInbox(ctx, store.InboxRow{Bucket: from.app.Namespace.Bucket, Kind: kind, Key: key, Body: body, CreatedAt: clock.Millis(a.clock)})
	if errors.Is(err, store.ErrInboxFull) {
		return outcome.ErrBusy
	}
	if err == nil {
		a.metrics.Inbox.WithLabelValues(kind, "kept").Inc()
	}
	return err
}

// keepBeat keeps a heartbeat: of each executor the last one counts. Who is not known yet needs the owner.
func (a *API) keepBeat(ctx context.Context, from sender, body []byte) (any, error) {
	var m registerMessage
	if err := decode(body, &m); err != nil {
		return nil, err
	}
	if err := a.check(protocol.TypeRegister, from, m.Head); err != nil {
		return nil, err
	}
	x, err := a.store.Executor(ctx, from.app.App.ID, 0, m.Address, m.StartID)
	if errors.Is(err, store.ErrNotFound) {
		return nil, outcome.ErrNotOwner
	}
	if err != nil {
		return nil, err
	}
	if err := a.put(ctx, from, protocol.TypeRegister, strconv.FormatInt(x.ID, 10), body); err != nil {
		return nil, err
	}
	return a.registered(ctx, from, x, m)
}

// keepResults keeps results, which are durable then and applied by the next owner at the latest.
func (a *API) keepResults(ctx context.Context, from sender, body []byte) (any, error) {
	var m resultsMessage
	if err := decode(body, &m); err != nil {
		return nil, err
	}
	if err := a.check(protocol.TypeResults, from, m.Head); err != nil {
		return nil, err
	}
	if err := a.remembered(ctx, from, m.Instance); err != nil {
		return nil, err
	}
	reports, out, at, err := a.reports(ctx, from, m)
	if err != nil {
		return nil, err
	}
	if len(reports) > 0 {
		if body, err = json.Marshal(m); err != nil { // as it is now: without secrets
			return nil, err
		}
		if err := a.put(ctx, from, protocol.TypeResults, protocol.NewMessageID(), body); err != nil {
			return nil, err
		}
	}
	for _, i := range at {
		out.Answers[i].Answer = protocol.Recorded
	}
	return out, nil
}

// Look makes the owner look into its inboxes now.
func (a *API) Look() {
	select {
	case a.wake <- struct{}{}:
	default:
	}
}

// Run applies what other replicas have kept for this one until ctx ends.
func (a *API) Run(ctx context.Context) error {
	tick := time.NewTicker(inboxEvery)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
		case <-a.wake:
		}
		if err := a.RunOnce(ctx); err != nil && ctx.Err() == nil && !errors.Is(err, store.ErrUnavailable) && !moved(err) {
			a.log.WarnContext(ctx, "inbox not applied", slog.String("err", err.Error()))
		}
	}
}

// RunOnce applies what waits in the inboxes of the buckets that this replica owns. Applying twice has no further
// effect, so a message is deleted after it was applied.
func (a *API) RunOnce(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, inboxFor)
	defer cancel()
	var buckets []int
	for _, f := range a.cluster.Owned() {
		buckets = append(buckets, f.Bucket)
	}
	for {
		rows, err := a.store.Inbox(ctx, buckets, inboxPage)
		if err != nil {
			return err
		}
		for _, row := range rows {
			if err := a.apply(ctx, row); err != nil {
				return err
			}
			if err := a.store.TakeInbox(ctx, row); err != nil {
				return err
			}
			a.metrics.Inbox.WithLabelValues(row.Kind, "applied").Inc()
		}
		if len(rows) < inboxPage {
			return nil
		}
	}
}

// apply does what a message says. What can not be understood, or belongs to nobody any more, is dropped with a word in the log.
func (a *API) apply(ctx context.Context, row store.InboxRow) error {
	var head struct{ protocol.Head }
	drop := func(err error) error {
		a.log.WarnContext(ctx, "message of the inbox dropped", slog.String("type", row.Kind), slog.String("err", err.Error()))
		return nil
	}
	if err := json.Unmarshal(row.Body, &head); err != nil {
		return drop(err)
	}
	entry, err := a.ring.ByName(ctx, head.Namespace, head.App)
	if errors.Is(err, store.ErrNotFound) {
		return drop(err)
	}
	if err != nil {
		return err
	}
	from := sender{app: entry}
	switch row.Kind {
	case protocol.TypeRegister:
		var m registerMessage
		if err := decode(row.Body, &m); err != nil {
			return drop(err)
		}
		_, err := a.registry.Beat(ctx, entry.Namespace.Bucket, entry.App, m.Register)
		return err
	case protocol.TypeResults:
		var m resultsMessage
		if err := decode(row.Body, &m); err != nil {
			return drop(err)
		}
		reports, _, _, err := a.reports(ctx, from, m)
		if err != nil {
			return drop(err)
		}
		_, err = a.outcome.Record(ctx, reports)
		return err
	}
	return drop(errors.New("unknown kind " + strconv.Quote(row.Kind)))
}

// owner is the base URL at which an executor reaches the replica that acts for a bucket; "" = not known.
func (a *API) owner(bucket int) string {
	self := a.cluster.Self()
	if a.cluster.Leads(bucket) {
		return baseURL(self.AdvertiseAddr)
	}
	m, _ := a.cluster.View()
	if len(m.Leases) > bucket {
		if p, ok := m.Peer(m.Leases[bucket].Owner); ok && p.Alive {
			return baseURL(p.AdvertiseAddr)
		}
	}
	return ""
}

func baseURL(address string) string {
	if address == "" || strings.Contains(address, "://") {
		return address
	}
	return "http://" + address
}
