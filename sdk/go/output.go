package ax

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"
)

const (
	flushEvery  = 500 * time.Millisecond
	chunkSize   = 32 << 10
	maxLine     = 16 << 10  // so that a chunk always holds a whole line
	maxWaiting  = 256 << 10 // an execution
	maxBuffered = 8 << 20   // all executions
	// maxLogBody leaves room below the server's 256 KiB for what is around the chunks.
	maxLogBody = 240 << 10
)

// outputs collects what handlers print and brings it to the server.
type outputs struct {
	ex     *Executor
	dirty  chan struct{} // something waits
	urgent chan struct{} // a chunk is full, or an execution has ended

	mu    sync.Mutex
	list  []*output // those with something to send
	bytes int
}

// output is what one execution printed and the server has not yet stored. Its fields are
// guarded by outputs.mu.
type output struct {
	all      *outputs
	ref      executionRef
	text     []byte // whole lines that are in no chunk yet
	cutLines int    // left out since the last line of text
	cutBytes int
	progress int // -1: nothing new
	seq      int64
	sending  *logChunk // made and not yet stored; repeated as it is, so that seq has no holes
	gaps     int       // in a row
	listed   bool
	closed   bool // the handler has returned, or the server wants no more
}

func newOutputs(ex *Executor) *outputs {
	return &outputs{ex: ex, dirty: make(chan struct{}, 1), urgent: make(chan struct{}, 1)}
}

func (all *outputs) open(ref executionRef) *output {
	return &output{all: all, ref: ref, progress: -1}
}

func poke(c chan struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}

// write adds text as one or more lines.
func (o *output) write(text string) {
	text = strings.TrimSuffix(strings.ToValidUTF8(text, "\uFFFD"), "\n")
	o.all.mu.Lock()
	defer o.all.mu.Unlock()
	if o.closed {
		return
	}
	for line := range strings.SplitSeq(text, "\n") {
		o.line(cut(line, maxLine-1))
	}
	o.list()
}

func (o *output) line(s string) {
	n := len(s) + 1
	if len(o.text)+n > maxWaiting || o.all.bytes+n > maxBuffered {
		o.cutLines++
		o.cutBytes += n
		return
	}
	o.mark()
	o.text = append(append(o.text, s...), '\n')
	o.all.bytes += n
	if len(o.text) >= chunkSize {
		poke(o.all.urgent)
	}
}

// mark says what was left out at this place.
func (o *output) mark() {
	if o.cutLines == 0 {
		return
	}
	m := fmt.Sprintf("[ax: %d lines (%d bytes) are missing here: they came faster than the server took them]\n", o.cutLines, o.cutBytes)
	o.text = append(o.text, m...)
	o.all.bytes += len(m)
	o.cutLines, o.cutBytes = 0, 0
}

func (o *output) progressed(percent int) {
	o.all.mu.Lock()
	defer o.all.mu.Unlock()
	if o.closed {
		return
	}
	o.progress = percent
	o.list()
}

func (o *output) list() {
	if !o.listed {
		o.listed = true
		o.all.list = append(o.all.list, o)
	}
	poke(o.all.dirty)
}

// close ends the output: what was written is still sent, and at once.
func (o *output) close() {
	o.all.mu.Lock()
	defer o.all.mu.Unlock()
	o.closed = true
	if o.listed {
		poke(o.all.urgent)
	}
}

// discard gives up what waits. mu is held.
func (o *output) discard() {
	o.all.bytes -= len(o.text)
	if o.sending != nil {
		o.all.bytes -= len(o.sending.Text)
	}
	o.text, o.sending, o.cutLines, o.cutBytes, o.progress, o.closed = nil, nil, 0, 0, -1, true
}

func (o *output) waits() bool {
	return o.sending != nil || len(o.text) > 0 || o.cutLines > 0 || o.progress >= 0
}

// chunk returns the next chunk to send; nil when there is none. mu is held.
func (o *output) chunk() *logChunk {
	if o.sending != nil {
		return o.sending
	}
	if len(o.text) == 0 {
		o.mark()
	}
	if len(o.text) == 0 && o.progress < 0 {
		return nil
	}
	n := len(o.text)
	if n > chunkSize {
		n = bytes.LastIndexByte(o.text[:chunkSize], '\n') + 1
	}
	o.seq++
	o.sending = &logChunk{executionRef: o.ref, Seq: o.seq, Text: string(o.text[:n]), Progress: o.progress}
	o.text = append(o.text[:0:0], o.text[n:]...)
	o.progress = -1
	return o.sending
}

// next collects one chunk of each execution, as far as they fit into one message, and at most n.
func (all *outputs) next(n int) (list []*output, chunks []json.RawMessage) {
	all.mu.Lock()
	defer all.mu.Unlock()
	room := maxLogBody
	for _, o := range all.list {
		if len(list) == n {
			break
		}
		c := o.chunk()
		if c == nil {
			continue
		}
		b, err := json.Marshal(c)
		if err != nil {
			o.discard() // can not happen: strings and numbers
			continue
		}
		if len(list) > 0 && len(b) > room {
			break
		}
		room -= len(b)
		list, chunks = append(list, o), append(chunks, b)
	}
	return list, chunks
}

// stored takes in the server's answers to one message.
func (all *outputs) stored(list []*output, answers []answer) {
	byID := make(map[string]answer, len(answers))
	for _, a := range answers {
		byID[a.ExecutionID] = a
	}
	all.mu.Lock()
	defer all.mu.Unlock()
	for _, o := range list {
		a, ok := byID[o.ref.ExecutionID]
		switch {
		case o.sending == nil:
		case !ok && o.gaps < 3: // not answered: once more
			o.gaps++
		case a.Answer == "stored":
			all.bytes -= len(o.sending.Text)
			o.sending, o.gaps = nil, 0
		case a.Answer == "gap" && a.Next > 0 && o.gaps < 3:
			// The server has lost chunks that it had stored, and they are gone here too. Go on
			// with the number that it wants; the line says that something is missing.
			o.gaps++
			if a.Next < o.sending.Seq && o.gaps == 1 {
				const lost = "[ax: earlier lines were lost by the server]\n"
				o.sending.Text = lost + o.sending.Text
				all.bytes += len(lost)
			}
			o.sending.Seq, o.seq = a.Next, a.Next
		default: // refused, or an answer that makes no sense: no more of this execution
			o.discard()
		}
	}
	// Those served go behind the others.
	rest := slices.DeleteFunc(slices.Clone(all.list), func(o *output) bool { return slices.Contains(list, o) })
	all.list = slices.DeleteFunc(append(rest, list...), func(o *output) bool {
		if o.waits() {
			return false
		}
		o.listed = false
		return true
	})
}

func (all *outputs) empty() bool {
	all.mu.Lock()
	defer all.mu.Unlock()
	return len(all.list) == 0
}

// loop sends until ctx ends.
func (all *outputs) loop(ctx context.Context) {
	ex := all.ex
	if !ex.waitInstance(ctx) {
		return
	}
	pause := backoff{}
	most := 500
	for {
		select {
		case <-ctx.Done():
			return
		case <-all.dirty:
		}
		if !wait(ctx, flushEvery, all.urgent) {
			return
		}
		for {
			list, chunks := all.next(most)
			if len(list) == 0 {
				break
			}
			var reply answersReply
			err := ex.client.post(ctx, pathLog, logMessage{header: ex.header("log"), Chunks: chunks}, &reply)
			if err == nil {
				all.stored(list, reply.Answers)
				pause.reset()
				most = 500
				ex.delivered(pathLog)
				if ex.isDraining() || all.full() {
					continue
				}
				break
			}
			if ctx.Err() != nil {
				return
			}
			if poison(err) {
				if len(list) == 1 {
					ex.log.Warn("output refused", slog.String("execution_id", list[0].ref.ExecutionID), slog.Any("err", err))
					all.mu.Lock()
					list[0].discard()
					all.mu.Unlock()
					all.stored(list, nil)
				}
				most = 1
				continue
			}
			ex.callFailed(pathLog, err)
			if !wait(ctx, pause.after(err), nil) {
				return
			}
		}
		if !all.empty() {
			poke(all.dirty)
		}
	}
}

// full reports whether some output has a whole chunk waiting, so that the pause would only make it wait.
func (all *outputs) full() bool {
	all.mu.Lock()
	defer all.mu.Unlock()
	return slices.ContainsFunc(all.list, func(o *output) bool { return o.closed || len(o.text) >= chunkSize })
}

// poison reports that the server does not understand the message, so that repeating the whole of it is no use.
func poison(err error) bool {
	var said *serverError
	return errors.As(err, &said) && (said.Status == http.StatusBadRequest || said.Status == http.StatusRequestEntityTooLarge)
}

// wait pauses for d, or until early is poked. It reports false when ctx ended.
func wait(ctx context.Context, d time.Duration, early <-chan struct{}) bool {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-ctx.Done():
		return false
	case <-t.C:
	case <-early:
	}
	return true
}

type outputWriter struct{ o *output }

func (w outputWriter) Write(p []byte) (int, error) {
	w.o.write(string(p))
	return len(p), nil
}
