package executorapi

import (
	"context"
	"errors"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/gin-gonic/gin"

	"github.com/ax-scheduler/ax/internal/batch"
	"github.com/ax-scheduler/ax/internal/clock"
	"github.com/ax-scheduler/ax/internal/protocol"
	"github.com/ax-scheduler/ax/internal/store"
)

func (a *API) output_(c *gin.Context, from sender, m logMessage) (any, error) {
	out := protocol.Answers{Answers: make([]protocol.Answer, 0, len(m.Chunks))}
	for start := 0; start < len(m.Chunks); {
		end := start + 1
		for end < len(m.Chunks) && m.Chunks[end].ExecutionID == m.Chunks[start].ExecutionID {
			end++
		}
		part := m.Chunks[start:end]
		start = end
		id, err := strconv.ParseInt(part[0].ExecutionID, 10, 64)
		if err != nil || id <= 0 {
			out.Answers = append(out.Answers, protocol.Answer{ExecutionID: part[0].ExecutionID, Answer: protocol.Unknown})
			continue
		}
		hide := a.hide(c.Request.Context(), id)
		chunks := make([]store.Chunk, len(part))
		for i, p := range part {
			chunks[i] = store.Chunk{ExecutionID: id, NS: from.app.Namespace.ID, Seq: p.Seq, Text: hide(p.Text), Progress: -1}
			if p.Progress != nil && *p.Progress >= 0 {
				chunks[i].Progress = min(*p.Progress, 100)
			}
		}
		answer := protocol.Answer{ExecutionID: part[0].ExecutionID, Answer: "stored"}
		app, err := a.store.AppOf(c.Request.Context(), from.app.Namespace.ID, id)
		if err != nil && !errors.Is(err, store.ErrNotFound) {
			return nil, err
		}
		if app != from.app.App.Name {
			answer.Answer = "refused"
			out.Answers = append(out.Answers, answer)
			continue
		}
		room, err := a.quota.room(c.Request.Context(), from.app.Namespace.ID)
		if err != nil {
			return nil, err
		}
		var stored int64
		answer.Next, stored, err = a.store.AppendOutput(c.Request.Context(), from.app.Namespace.ID, id, batch.ExecutionDay(id), chunks, room, clock.Millis(a.clock))
		a.quota.used(from.app.Namespace.ID, stored)
		switch {
		case errors.Is(err, store.ErrNotFound):
			answer.Answer = "refused"
		case errors.Is(err, store.ErrGap):
			answer.Answer = "gap"
		case errors.Is(err, store.ErrQuota):
			answer.Answer = "refused"
		case err != nil:
			return nil, err
		}
		if stored > 0 || err == nil {
			a.output(id)
		}
		out.Answers = append(out.Answers, answer)
	}
	return out, nil
}

// masked stands for what nobody may read.
const masked = "******"

// shortSecret is the length below which a line of a secret with several lines is no secret by itself.
const shortSecret = 8

// hide returns what takes the secrets of an execution out of a text.
func (a *API) hide(ctx context.Context, executionID int64) func(string) string {
	if a.secrets == nil {
		return func(s string) string { return s }
	}
	return mask(a.secrets(ctx, executionID))
}

// mask makes a function that replaces values wherever they stand. Output comes in whole lines, so that a value is
// never divided between two texts; of one with several lines each line counts too.
func mask(values []string) func(string) string {
	var list []string
	for _, v := range values {
		if v = strings.TrimSpace(v); v == "" {
			continue
		}
		list = append(list, v)
		if !strings.Contains(v, "\n") {
			continue
		}
		for line := range strings.SplitSeq(v, "\n") {
			if line = strings.TrimSpace(line); len(line) >= shortSecret {
				list = append(list, line)
			}
		}
	}
	if len(list) == 0 {
		return func(s string) string { return s }
	}
	// The longest first: one may be the beginning of another.
	slices.SortStableFunc(list, func(a, b string) int { return len(b) - len(a) })
	pairs := make([]string, 0, 2*len(list))
	for _, v := range list {
		pairs = append(pairs, v, masked)
	}
	return strings.NewReplacer(pairs...).Replace
}

// quotaEvery is how often what was written is added to the database's sum, at the latest when something is
// written after it.
const quotaEvery = 5 * time.Second

// quota counts what the executions of each namespace write in a day. It is exact within what the replicas write
// in quotaEvery.
type quota struct {
	store         *store.Store
	clock         clock.Clock
	limit, perDay int64

	mu    sync.Mutex
	spent map[int64]*spending
}

type spending struct {
	day   int
	known int64 // of all replicas, as far as the database knows
	own   int64 // since then
	at    time.Time
}

func newQuota(c Config) *quota {
	return &quota{store: c.Store, clock: c.Clock, limit: c.OutputLimit, perDay: c.OutputPerDay, spent: map[int64]*spending{}}
}

// room is how much may be stored for an execution of a namespace.
func (q *quota) room(ctx context.Context, ns int64) (store.Room, error) {
	day := batch.Day(clock.Millis(q.clock))
	q.mu.Lock()
	s := q.spent[ns]
	fresh := s != nil && s.day == day && time.Since(s.at) < quotaEvery
	var add int64
	var of int
	if s != nil && !fresh {
		add, of, s.own = s.own, s.day, 0
	}
	q.mu.Unlock()
	if !fresh {
		if add > 0 {
			if err := q.store.AddOutputUsed(ctx, ns, of, add); err != nil {
				q.used(ns, add)
				return store.Room{}, err
			}
		}
		known, err := q.store.OutputUsed(ctx, ns, day)
		if err != nil {
			return store.Room{}, err
		}
		q.mu.Lock()
		if s = q.spent[ns]; s == nil {
			s = &spending{}
			q.spent[ns] = s
		}
		s.day, s.known, s.at = day, known, time.Now()
		q.mu.Unlock()
	}
	q.mu.Lock()
	defer q.mu.Unlock()
	return store.Room{Execution: q.limit, Namespace: max(q.perDay-s.known-s.own, 0)}, nil
}

// used notes what was stored.
func (q *quota) used(ns, bytes int64) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if s := q.spent[ns]; s != nil {
		s.own += bytes
	}
}
