package registry

import (
	"context"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/ax-scheduler/ax/internal/store"
)

const (
	// writeEvery is how often changes of states are written at most: an executor that comes and goes in between
	// costs nothing, and a fleet that does is a few statements.
	writeEvery = 250 * time.Millisecond
	// writeLinger is how long a new process waits for others that come with it.
	writeLinger = 5 * time.Millisecond
	writeLimit  = 2000
	saveTimeout = 5 * time.Second
	// flushTimeout bounds the writing of what is left at the end.
	flushTimeout = 3 * time.Second
)

// writer collects what is to be written of executors.
type writer struct {
	mu      sync.Mutex
	working bool
	idle    chan struct{}  // closed when the work in hand is done
	hurry   chan struct{}  // a new process waits
	dirty   map[int64]bool // executor → whole
	fresh   []newcomer
	// statements counts what was sent to the database.
	statements int
}

// newcomer is a new process that waits for its id.
type newcomer struct {
	row  *store.Executor
	anew bool
	done chan error
}

// note sees to it that an executor's row gets to say what is known. r.mu is held.
func (r *Registry) note(x *Executor, whole bool) {
	if !whole && x.written == x.standing() {
		return
	}
	w := &r.writer
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.dirty == nil {
		w.dirty = map[int64]bool{}
	}
	w.dirty[x.ID] = w.dirty[x.ID] || whole
	r.wake()
}

// register gives a new process its row and its id; anew: not that of an earlier registration.
func (r *Registry) register(ctx context.Context, row *store.Executor, anew bool) error {
	n := newcomer{row, anew, make(chan error, 1)}
	w := &r.writer
	w.mu.Lock()
	if len(w.fresh) >= 10*writeLimit {
		w.mu.Unlock()
		return fmt.Errorf("too many executors register at once: %w", store.ErrUnavailable)
	}
	w.fresh = append(w.fresh, n)
	r.wake()
	select {
	case w.hurry <- struct{}{}:
	default:
	}
	w.mu.Unlock()
	select {
	case err := <-n.done:
		return err
	case <-ctx.Done():
		return ctx.Err()
	}
}

// wake starts the work if it rests. w.mu is held.
func (r *Registry) wake() {
	w := &r.writer
	if w.working {
		return
	}
	w.working, w.idle = true, make(chan struct{})
	if w.hurry == nil {
		w.hurry = make(chan struct{}, 1)
	}
	go r.write()
}

// write writes until nothing is left.
func (r *Registry) write() {
	w := &r.writer
	pause := time.NewTimer(writeLinger)
	defer pause.Stop()
	<-pause.C
	for {
		w.mu.Lock()
		dirty, fresh := w.dirty, w.fresh
		w.dirty, w.fresh = nil, nil
		if len(dirty) == 0 && len(fresh) == 0 {
			w.working = false
			close(w.idle)
			w.mu.Unlock()
			return
		}
		// One at an address at a time: the later process replaces the earlier one.
		seen := map[place]bool{}
		var now []newcomer
		for i, n := range fresh {
			at := place{n.row.AppID, n.row.Address}
			if seen[at] || i >= writeLimit {
				w.fresh = append(w.fresh, n)
				continue
			}
			seen[at] = true
			now = append(now, n)
		}
		more := len(w.fresh) > 0
		w.mu.Unlock()
		r.save(dirty, now)
		if more {
			continue
		}
		pause.Reset(writeEvery)
		select {
		case <-pause.C:
		case <-w.hurry:
			pause.Reset(writeLinger)
			<-pause.C
		}
	}
}

func (r *Registry) save(dirty map[int64]bool, fresh []newcomer) {
	list := make([]store.ExecutorChange, 0, len(dirty)+len(fresh))
	r.mu.RLock()
	for id, whole := range dirty {
		if x, ok := r.byID[id]; ok && (whole || x.written != x.standing()) {
			row := x.Executor
			list = append(list, store.ExecutorChange{Executor: &row, Whole: whole})
		}
	}
	r.mu.RUnlock()
	for _, n := range fresh {
		list = append(list, store.ExecutorChange{Executor: n.row, Whole: true, Anew: n.anew})
	}
	if len(list) == 0 {
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), saveTimeout)
	defer cancel()
	statements, err := r.store.SaveExecutors(ctx, list)
	r.writer.mu.Lock()
	r.writer.statements += statements
	r.writer.mu.Unlock()
	for _, n := range fresh {
		n.done <- err
	}
	if err != nil {
		// The next look at the executors notes them once more.
		r.log.WarnContext(ctx, "executors not saved", slog.Int("count", len(list)), slog.String("err", err.Error()))
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, c := range list {
		if x, ok := r.byID[c.ID]; ok {
			x.written = standing{c.State, c.Reason}
		}
	}
}

// Flush waits until what has changed so far is written.
func (r *Registry) Flush(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, flushTimeout)
	defer cancel()
	w := &r.writer
	w.mu.Lock()
	working, idle := w.working, w.idle
	w.mu.Unlock()
	if !working {
		return nil
	}
	select {
	case w.hurry <- struct{}{}:
	default:
	}
	select {
	case <-idle:
	case <-ctx.Done():
		r.log.WarnContext(ctx, "changes of executors not written at the end")
	}
	return nil
}

// Statements counts the statements by which executors were written; for metrics.
func (r *Registry) Statements() int {
	r.writer.mu.Lock()
	defer r.writer.mu.Unlock()
	return r.writer.statements
}
