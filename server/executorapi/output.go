package executorapi

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"net/url"
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
		answer := protocol.Answer{ExecutionID: part[0].ExecutionID, Answer: "stored"}
		app, jobID, err := a.store.AppOf(c.Request.Context(), from.app.Namespace.ID, id)
		if err != nil && !errors.Is(err, store.ErrNotFound) {
			return nil, err
		}
		if app != from.app.App.Name {
			answer.Answer = "refused"
			out.Answers = append(out.Answers, answer)
			continue
		}
		hide, err := a.hide(c.Request.Context(), from.app.Namespace.ID, jobID)
		if err != nil {
			return nil, err
		}
		chunks := make([]store.Chunk, len(part))
		for i, p := range part {
			chunks[i] = store.Chunk{ExecutionID: id, NS: from.app.Namespace.ID, Seq: p.Seq, Text: hide(jobID)(p.Text), Progress: -1}
			if p.Progress != nil && *p.Progress >= 0 {
				chunks[i].Progress = min(*p.Progress, 100)
			}
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

// hide returns what takes the secrets of a job's runs out of a text.
func (a *API) hide(ctx context.Context, ns int64, jobs ...int64) (func(job int64) func(string) string, error) {
	as := func(s string) string { return s }
	if a.secrets == nil || len(jobs) == 0 {
		return func(int64) func(string) string { return as }, nil
	}
	used, err := a.secrets(ctx, ns, jobs...)
	if err != nil {
		return nil, err
	}
	masks := make(map[int64]func(string) string, len(used))
	for id, values := range used {
		masks[id] = mask(values)
	}
	return func(id int64) func(string) string {
		if m, ok := masks[id]; ok {
			return m
		}
		return as
	}, nil
}

// veil takes secrets out of the messages and results of a message in place. Those that say nothing cost nothing.
func (a *API) veil(ctx context.Context, ns int64, list []json.RawMessage) error {
	results := map[int]protocol.Result{}
	var jobs []int64
	for i, raw := range list {
		var r protocol.Result
		if json.Unmarshal(raw, &r) != nil || r.Message == "" && r.Result == nil {
			continue
		}
		if id, _, ok := batch.ParseID(r.BatchID); ok {
			results[i] = r
			if !slices.Contains(jobs, id) {
				jobs = append(jobs, id)
			}
		}
	}
	hide, err := a.hide(ctx, ns, jobs...)
	if err != nil {
		return err
	}
	for i, r := range results {
		id, _, _ := batch.ParseID(r.BatchID)
		message, result := hide(id)(r.Message), r.Result
		if result != nil {
			text := hide(id)(*result)
			result = &text
		}
		if message == r.Message && (result == nil || *result == *r.Result) {
			continue
		}
		r.Message, r.Result = message, result
		raw, err := json.Marshal(r)
		if err != nil {
			return err
		}
		list[i] = raw
	}
	return nil
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
		// As it stands in an address, in a header and in JSON.
		for _, form := range []string{url.QueryEscape(v), url.PathEscape(v), base64.StdEncoding.EncodeToString([]byte(v)), base64.RawURLEncoding.EncodeToString([]byte(v)), quoted(v)} {
			if form != v {
				list = append(list, form)
			}
		}
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

// quoted is a text as it stands inside a string of JSON.
func quoted(s string) string {
	raw, err := json.Marshal(s)
	if err != nil {
		return s
	}
	return string(raw[1 : len(raw)-1])
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
