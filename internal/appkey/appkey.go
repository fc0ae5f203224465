// Package appkey finds an app's signing keys and its namespace's egress rules, by name for
// what executors send and by id for what is sent to them. Answers are kept for a second.
package appkey

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"sync"
	"time"

	"github.com/ax-scheduler/ax/internal/clock"
	"github.com/ax-scheduler/ax/internal/egress"
	"github.com/ax-scheduler/ax/internal/protocol"
	"github.com/ax-scheduler/ax/internal/seal"
	"github.com/ax-scheduler/ax/internal/store"
)

const (
	keepFor = time.Second
	// staleFor is how long an answer is good while the database can not be asked: heartbeats must
	// not stop for its sake. A key that was revoked meanwhile works that much longer at most.
	staleFor = 5 * time.Minute
	// limit bounds what is kept; names come from outside.
	limit = 10_000
	// lookups bounds what is asked of the database at a time, whoever asks for whatever names.
	lookups = 16
)

// Entry is an app with its unsealed keys.
type Entry struct {
	App       store.App
	Namespace store.Namespace
	Keys      []protocol.Key
	Rules     []egress.Rule
}

type kept struct {
	entry Entry
	at    time.Time
}

// Ring is safe for concurrent use.
type Ring struct {
	store  *store.Store
	sealer *seal.Sealer
	clock  clock.Clock

	mu     sync.Mutex
	byName map[string]kept
	byID   map[int64]string     // app id → name in byName
	nobody map[string]time.Time // names without an app
	slots  chan struct{}
}

// New makes a ring.
func New(s *store.Store, sealer *seal.Sealer, c clock.Clock) *Ring {
	return &Ring{store: s, sealer: sealer, clock: c, byName: map[string]kept{}, byID: map[int64]string{}, nobody: map[string]time.Time{}, slots: make(chan struct{}, lookups)}
}

// aad binds a sealed key to its app, so that a row that is moved to another app opens nothing.
func aad(ns, app int64) string {
	return "app_key|" + strconv.FormatInt(ns, 10) + "|" + strconv.FormatInt(app, 10)
}

// Seal seals a new key for an app.
func (r *Ring) Seal(ns, app int64, key protocol.Key) (string, error) {
	return r.sealer.Seal(aad(ns, app), key)
}

// ByName finds an app by the names in a request. store.ErrNotFound: there is none.
func (r *Ring) ByName(ctx context.Context, namespace, app string) (Entry, error) {
	name := namespace + "/" + app
	r.mu.Lock()
	k, ok := r.byName[name]
	none := time.Since(r.nobody[name]) < keepFor
	r.mu.Unlock()
	switch {
	case ok && time.Since(k.at) < keepFor:
		return k.entry, nil
	case none:
		return Entry{}, store.ErrNotFound
	}
	select {
	case r.slots <- struct{}{}:
	default:
		if ok && time.Since(k.at) < staleFor {
			return k.entry, nil // strangers keep the database busy
		}
		select {
		case r.slots <- struct{}{}:
		case <-ctx.Done():
			return Entry{}, ctx.Err()
		}
	}
	defer func() { <-r.slots }()
	found, err := r.store.KeyedApp(ctx, namespace, app, clock.Millis(r.clock))
	if errors.Is(err, store.ErrUnavailable) && ok && time.Since(k.at) < staleFor {
		return k.entry, nil
	}
	if errors.Is(err, store.ErrNotFound) {
		r.mu.Lock()
		if len(r.nobody) >= limit {
			clear(r.nobody)
		}
		r.nobody[name] = time.Now()
		r.mu.Unlock()
	}
	if err != nil {
		return Entry{}, err
	}
	e := Entry{App: found.App, Namespace: found.Namespace}
	for _, row := range found.Keys {
		key, err := r.sealer.Open(aad(found.Namespace.ID, found.ID), row.SealedKey)
		if err != nil {
			return Entry{}, fmt.Errorf("key %d of app %s: %w", row.ID, name, err)
		}
		e.Keys = append(e.Keys, key)
	}
	var allow []string
	if err := json.Unmarshal([]byte(found.Namespace.Egress), &allow); err != nil {
		return Entry{}, fmt.Errorf("egress rules of %s: %w", namespace, err)
	}
	if e.Rules, err = egress.ParseRules(allow); err != nil {
		return Entry{}, fmt.Errorf("egress rules of %s: %w", namespace, err)
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if len(r.byName) >= limit {
		r.byName, r.byID = map[string]kept{}, map[int64]string{}
	}
	r.byName[name] = kept{e, time.Now()}
	r.byID[e.App.ID] = name
	return e, nil
}

// ByID finds an app by its id: the form that package dispatch asks for.
func (r *Ring) ByID(ctx context.Context, nsID, appID int64) (namespace string, keys []protocol.Key, rules []egress.Rule, err error) {
	r.mu.Lock()
	name, ok := r.byID[appID]
	k := r.byName[name]
	r.mu.Unlock()
	if !ok || time.Since(k.at) >= keepFor {
		ns, app, err := r.store.AppNames(ctx, nsID, appID)
		if errors.Is(err, store.ErrUnavailable) && ok && time.Since(k.at) < staleFor {
			return k.entry.Namespace.Name, k.entry.Keys, k.entry.Rules, nil
		}
		if err != nil {
			return "", nil, nil, err
		}
		e, err := r.ByName(ctx, ns, app)
		return e.Namespace.Name, e.Keys, e.Rules, err
	}
	return k.entry.Namespace.Name, k.entry.Keys, k.entry.Rules, nil
}
