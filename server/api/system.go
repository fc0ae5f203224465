package api

import (
	"context"
	"net/http"
	"strconv"
	"strings"

	"github.com/ax-scheduler/ax/internal/auth"
	"github.com/ax-scheduler/ax/internal/clock"
	"github.com/ax-scheduler/ax/internal/message"
	"github.com/ax-scheduler/ax/internal/store"
	"github.com/ax-scheduler/ax/server/httpx"
)

// movesShown is how many of the last moves are shown.
const movesShown = 100

type replicaView struct {
	ID        string `json:"id"`
	Address   string `json:"address" doc:"where other servers reach it"`
	Build     string `json:"build"`
	StartedAt string `json:"startedAt"`
	State     string `json:"state" enum:"up,draining,leaving,down" doc:"draining: it takes no buckets, as somebody asked; leaving: it stops; down: it was not heard of in time"`
	Answering bool   `json:"answering" doc:"it is the one that answered this"`
	Buckets   int    `json:"buckets"`
}

type bucketView struct {
	Bucket     int      `json:"bucket"`
	Owner      string   `json:"owner" doc:"replica; empty = nobody"`
	Epoch      int64    `json:"epoch" doc:"how often it was taken"`
	TakenAt    *string  `json:"takenAt"`
	LagMs      int64    `json:"lagMs" doc:"how far behind the oldest firing is that was not made into a batch"`
	PinnedTo   string   `json:"pinnedTo" doc:"replica where somebody wants it; empty = wherever it is even"`
	Namespaces []string `json:"namespaces"`
}

type moveView struct {
	At     string      `json:"at"`
	Bucket int         `json:"bucket"`
	Epoch  int64       `json:"epoch"`
	From   string      `json:"from"`
	To     string      `json:"to"`
	Reason *reasonView `json:"reason"`
}

type systemView struct {
	Replicas []replicaView `json:"replicas"`
	Buckets  []bucketView  `json:"buckets"`
	Moves    []moveView    `json:"moves" doc:"the last ones, newest first"`
}

type replicaInput struct {
	Replica string `path:"replica" maxLength:"64"`
}

type moveInput struct {
	Bucket int `path:"bucket" minimum:"0" maximum:"63"`
	Body   struct {
		To string `json:"to" maxLength:"64" doc:"replica; empty = wherever it is even"`
	}
}

func (a *API) system() {
	const path = "/api/v1/system"
	add(a, http.MethodGet, path, "getSystem", "Replicas, buckets, who owns what, and what moved last", onPlatform(auth.SystemRead), a.getSystem)
	add(a, http.MethodPost, path+"/replicas/{replica}/drain", "drainReplica", "Make a replica hand over every bucket; it goes on serving", onPlatform(auth.SystemUpdate), a.drainReplica)
	add(a, http.MethodPost, path+"/replicas/{replica}/resume", "resumeReplica", "Give a drained replica its share again", onPlatform(auth.SystemUpdate), a.resumeReplica)
	add(a, http.MethodPost, path+"/buckets/{bucket}/move", "moveBucket", "Say at which replica a bucket is to be; its owner hands it over within a second", onPlatform(auth.SystemUpdate), a.moveBucket)
}

func stateOf(p store.Peer) string {
	switch {
	case !p.Alive:
		return "down"
	case p.Draining == store.Leaving:
		return "leaving"
	case p.Draining == store.AskedToDrain:
		return "draining"
	}
	return "up"
}

func (a *API) getSystem(ctx context.Context, _ *struct{}) (*body[systemView], error) {
	m, err := a.Store.Membership(ctx)
	if err != nil {
		return nil, err
	}
	oldest, err := a.Store.NextHints(ctx)
	if err != nil {
		return nil, err
	}
	moves, err := a.Store.Moves(ctx, movesShown)
	if err != nil {
		return nil, err
	}
	all, err := a.Store.Namespaces(ctx)
	if err != nil {
		return nil, err
	}
	names := map[int][]string{}
	for _, n := range all {
		names[n.Bucket] = append(names[n.Bucket], n.Name)
	}
	out := systemView{Replicas: []replicaView{}, Buckets: []bucketView{}, Moves: []moveView{}}
	count := map[string]int{}
	now := clock.Millis(a.Clock)
	for _, l := range m.Leases {
		count[l.Owner]++
		v := bucketView{Bucket: l.Bucket, Owner: l.Owner, Epoch: l.Epoch, TakenAt: at(l.TakenAt), PinnedTo: l.PinnedTo, Namespaces: names[l.Bucket]}
		if v.Namespaces == nil {
			v.Namespaces = []string{}
		}
		if due, ok := oldest[l.Bucket]; ok {
			v.LagMs = max(now-due, 0)
		}
		out.Buckets = append(out.Buckets, v)
	}
	for _, p := range m.Peers {
		out.Replicas = append(out.Replicas, replicaView{
			ID: p.ID, Address: p.AdvertiseAddr, Build: p.Build, StartedAt: stamp(p.StartedAt), State: stateOf(p), Answering: p.ID == a.Cluster.Self().ID, Buckets: count[p.ID],
		})
	}
	for _, x := range moves {
		out.Moves = append(out.Moves, moveView{At: stamp(x.At), Bucket: x.Bucket, Epoch: x.Epoch, From: x.From, To: x.To, Reason: reasonOf("move_"+x.Reason, "")})
	}
	return &body[systemView]{out}, nil
}

// able lists the replicas that may own buckets, other than one.
func able(m store.Membership, but string) (ids []string) {
	for _, p := range m.Peers {
		if p.ID != but && stateOf(p) == "up" {
			ids = append(ids, p.ID)
		}
	}
	return ids
}

func (a *API) drainReplica(ctx context.Context, in *replicaInput) (*body[systemView], error) {
	m, err := a.Store.Membership(ctx)
	if err != nil {
		return nil, err
	}
	if p, ok := m.Peer(in.Replica); ok && p.Alive && len(able(m, in.Replica)) == 0 {
		return nil, httpx.NewProblem(ctx, http.StatusConflict, "last_replica", message.Text{
			EN: "No other replica would take its buckets: start another one, or resume one, first.", ZH: "没有其他副本可以接管它的分桶，请先启动或恢复另一个副本。",
		})
	}
	return a.setDraining(ctx, m, in.Replica, store.AskedToDrain)
}

func (a *API) resumeReplica(ctx context.Context, in *replicaInput) (*body[systemView], error) {
	m, err := a.Store.Membership(ctx)
	if err != nil {
		return nil, err
	}
	return a.setDraining(ctx, m, in.Replica, store.NotDraining)
}

func (a *API) setDraining(ctx context.Context, m store.Membership, replica string, to store.Draining) (*body[systemView], error) {
	p, ok := m.Peer(replica)
	if !ok {
		return nil, store.ErrNotFound
	}
	entry, err := a.entry(ctx, auth.SystemUpdate, "system", 0, "replica "+p.AdvertiseAddr, map[string]any{"draining": p.Draining != store.NotDraining}, map[string]any{"draining": to != store.NotDraining})
	if err != nil {
		return nil, err
	}
	entry.ObjectID = p.ID
	if err := a.Store.SetDraining(ctx, p.ID, to, entry); err != nil {
		return nil, err
	}
	a.everybodyLooks(m)
	return a.getSystem(ctx, nil)
}

func (a *API) moveBucket(ctx context.Context, in *moveInput) (*body[systemView], error) {
	m, err := a.Store.Membership(ctx)
	if err != nil {
		return nil, err
	}
	if p, ok := m.Peer(in.Body.To); in.Body.To != "" && (!ok || stateOf(p) != "up") {
		allowed := strings.Join(able(m, ""), ", ")
		return nil, httpx.Invalid(ctx, "bad_replica", "to", in.Body.To, "Name a replica that is up, or leave it empty; these are up: "+allowed+".", "请填写状态正常的副本，或留空；当前可用："+allowed+"。")
	}
	l := m.Leases[in.Bucket]
	entry, err := a.entry(ctx, auth.SystemUpdate, "system", 0, "bucket "+strconv.Itoa(in.Bucket), map[string]any{"pinnedTo": l.PinnedTo}, map[string]any{"pinnedTo": in.Body.To})
	if err != nil {
		return nil, err
	}
	entry.ObjectID = strconv.Itoa(in.Bucket)
	if err := a.Store.Pin(ctx, in.Bucket, in.Body.To, entry); err != nil {
		return nil, err
	}
	a.everybodyLooks(m)
	return a.getSystem(ctx, nil)
}

func (a *API) everybodyLooks(m store.Membership) {
	a.Cluster.Nudge()
	for _, p := range m.Peers {
		if p.Alive && p.ID != a.Cluster.Self().ID {
			a.Peers.Look(p)
		}
	}
}
