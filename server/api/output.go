package api

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"net/http"
	"sync"
	"time"

	"github.com/danielgtaylor/huma/v2"
	"github.com/danielgtaylor/huma/v2/adapters/humagin"

	"github.com/ax-scheduler/ax/server/httpx"
)

type outputInput struct {
	ExecutionPath
	Offset int64 `query:"offset" minimum:"0" doc:"in bytes; from nextOffset of the answer before"`
	Limit  int   `query:"limit" default:"262144" minimum:"1024" maximum:"1048576" doc:"in bytes"`
}

type outputView struct {
	Text       string `json:"text"`
	NextOffset int64  `json:"nextOffset"`
	End        bool   `json:"end" doc:"the execution has ended and there is nothing more"`
}

func (a *API) getOutput(ctx context.Context, in *outputInput) (*body[outputView], error) {
	e, err := a.execution(ctx, in.ID)
	if err != nil {
		return nil, err
	}
	text, next, err := a.Store.Output(ctx, nsOf(ctx).ID, e.ID, in.Offset, in.Limit)
	if err != nil {
		return nil, err
	}
	return &body[outputView]{outputView{Text: text, NextOffset: next, End: text == "" && e.Status.Final()}}, nil
}

func isText(op *huma.Operation) {
	op.Responses = map[string]*huma.Response{"200": {Description: "What there is so far", Content: map[string]*huma.MediaType{"text/plain": {Schema: &huma.Schema{Type: huma.TypeString}}}}}
}

// downloadFor bounds the sending of one page of a download.
const downloadFor = 30 * time.Second

func (a *API) downloadOutput(ctx context.Context, in *ExecutionPath) (*huma.StreamResponse, error) {
	e, err := a.execution(ctx, in.ID)
	if err != nil {
		return nil, err
	}
	ns := nsOf(ctx).ID
	return &huma.StreamResponse{Body: func(hc huma.Context) {
		hc.SetHeader("Content-Type", "text/plain; charset=utf-8")
		hc.SetHeader("Content-Disposition", fmt.Sprintf(`attachment; filename="%s-%d-%d.log"`, e.BatchID, e.Shard, e.Attempt))
		hc.SetHeader("Cache-Control", "no-store")
		gc := humagin.Unwrap(hc)
		control := http.NewResponseController(gc.Writer)
		for offset := int64(0); ; {
			_ = control.SetWriteDeadline(time.Now().Add(downloadFor))
			text, next, err := a.Store.Output(hc.Context(), ns, e.ID, offset, streamChunk)
			if err != nil {
				// The status is sent already; a connection that breaks off says that it is not whole.
				a.Log.WarnContext(hc.Context(), "download of output broke off", slog.Int64("execution_id", e.ID), slog.String("err", err.Error()))
				panic(http.ErrAbortHandler)
			}
			if text == "" {
				return
			}
			if _, err := gc.Writer.WriteString(text); err != nil {
				return
			}
			offset = next
		}
	}}, nil
}

// Output tells streams that an execution has new output. It is safe for concurrent use.
type Output struct {
	mu   sync.Mutex
	subs map[int64]map[chan struct{}]struct{}
	open int
}

// NewOutput makes one.
func NewOutput() *Output { return &Output{subs: map[int64]map[chan struct{}]struct{}{}} }

// maxStreams bounds the open streams of one server.
const maxStreams = 2000

// Arrived tells that an execution has new output.
func (o *Output) Arrived(executionID int64) {
	o.mu.Lock()
	defer o.mu.Unlock()
	for ch := range o.subs[executionID] {
		select {
		case ch <- struct{}{}:
		default:
		}
	}
}

func (o *Output) follow(executionID int64) (news chan struct{}, stop func(), ok bool) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.open >= maxStreams {
		return nil, nil, false
	}
	o.open++
	news = make(chan struct{}, 1)
	if o.subs[executionID] == nil {
		o.subs[executionID] = map[chan struct{}]struct{}{}
	}
	o.subs[executionID][news] = struct{}{}
	return news, func() {
		o.mu.Lock()
		defer o.mu.Unlock()
		o.open--
		delete(o.subs[executionID], news)
		if len(o.subs[executionID]) == 0 {
			delete(o.subs, executionID)
		}
	}, true
}

func streams(op *huma.Operation) {
	op.Responses = map[string]*huma.Response{"200": {
		Description: "Events output {text, nextOffset}, progress {progress} and end {state}; the id of each is the offset to go on from; a comment every 15 s",
		Content:     map[string]*huma.MediaType{"text/event-stream": {Schema: &huma.Schema{Type: huma.TypeString}}},
	}}
}

type streamInput struct {
	ExecutionPath
	Offset int64  `query:"offset" minimum:"0"`
	Last   string `header:"Last-Event-ID"`
}

const (
	streamChunk = 256 << 10
	streamBeat  = 15 * time.Second
	// streamLook is how often a stream looks by itself: output may arrive at another replica.
	streamLook = 2 * time.Second
	// streamFor ends a stream so that its caller's rights are looked at again.
	streamFor = 10 * time.Minute
)

func (a *API) streamOutput(ctx context.Context, in *streamInput) (*huma.StreamResponse, error) {
	e, err := a.execution(ctx, in.ID)
	if err != nil {
		return nil, err
	}
	offset := in.Offset
	if in.Last != "" {
		if _, err := fmt.Sscan(in.Last, &offset); err != nil || offset < 0 {
			return nil, httpx.Invalid(ctx, "bad_offset", "Last-Event-ID", in.Last, "It is a byte offset.", "应为字节偏移量。")
		}
	}
	news, stop, ok := a.Output.follow(e.ID)
	if !ok {
		return nil, httpx.NewProblem(ctx, http.StatusServiceUnavailable, "busy", textBusy())
	}
	ns := nsOf(ctx).ID
	return &huma.StreamResponse{Body: func(hc huma.Context) {
		defer stop()
		hc.SetHeader("Content-Type", "text/event-stream")
		hc.SetHeader("Cache-Control", "no-store")
		hc.SetHeader("X-Accel-Buffering", "no")
		gc := humagin.Unwrap(hc)
		control := http.NewResponseController(gc.Writer)
		_ = control.SetWriteDeadline(time.Now().Add(streamFor + time.Minute))
		ctx, cancel := context.WithTimeout(hc.Context(), streamFor)
		defer cancel()
		send := func(event string, data any) bool {
			raw, err := json.Marshal(data)
			if err != nil {
				return false
			}
			if _, err := fmt.Fprintf(gc.Writer, "id: %d\nevent: %s\ndata: %s\n\n", offset, event, raw); err != nil {
				return false
			}
			return control.Flush() == nil
		}
		look := time.NewTicker(streamLook)
		defer look.Stop()
		beat := time.NewTicker(streamBeat)
		defer beat.Stop()
		progress := int64(-1)
		for {
			e, err := a.Store.Attempt(ctx, ns, e.ID)
			if err != nil {
				return
			}
			for {
				text, next, err := a.Store.Output(ctx, ns, e.ID, offset, streamChunk)
				if err != nil {
					return
				}
				if text == "" {
					break
				}
				offset = next
				if !send("output", map[string]any{"text": text, "nextOffset": next}) {
					return
				}
			}
			if e.Progress.Valid && e.Progress.Int64 != progress {
				progress = e.Progress.Int64
				if !send("progress", map[string]any{"progress": progress}) {
					return
				}
			}
			if e.Status.Final() {
				send("end", map[string]any{"state": e.Status})
				return
			}
			select {
			case <-ctx.Done():
				return
			case <-news:
			case <-look.C:
			case <-beat.C:
				if _, err := gc.Writer.WriteString(": still here\n\n"); err != nil || control.Flush() != nil {
					return
				}
			}
		}
	}}, nil
}
