package ax

import (
	"context"
	"encoding/json"
	"log/slog"
	"time"
)

// maxResultBytes keeps a message with results below the server's limit of 1 MiB.
const maxResultBytes = 900 << 10

// resultLoop brings results to the server until ctx ends. A result leaves the spool only after
// a signed 200 that answers it.
func (ex *Executor) resultLoop(ctx context.Context) {
	if !ex.waitInstance(ctx) {
		return
	}
	pause := backoff{}
	most := maxBatch
	poke(ex.results) // what an earlier process left
	for {
		select {
		case <-ctx.Done():
			return
		case <-ex.results:
		}
		for {
			batch := ex.journal.pending(most, maxResultBytes)
			if len(batch) == 0 {
				break
			}
			err := ex.sendResults(ctx, batch)
			if err == nil {
				pause.reset()
				most = maxBatch
				continue
			}
			if ctx.Err() != nil {
				return
			}
			if poison(err) {
				if len(batch) > 1 {
					most = 1 // find out which one it is
					continue
				}
				ex.log.Error("result refused, kept for later",
					slog.String("execution_id", batch[0].ref.ExecutionID), slog.Any("err", err))
				ex.journal.postpone(batch[0])
			}
			ex.callFailed(pathResults, err)
			if !wait(ctx, pause.after(err), nil) {
				return
			}
		}
	}
}

func (ex *Executor) sendResults(ctx context.Context, batch []*spooled) error {
	m := resultsMessage{header: ex.header("results"), Results: make([]json.RawMessage, len(batch))}
	for i, s := range batch {
		m.Results[i] = s.body
	}
	var reply answersReply
	if err := ex.client.post(ctx, pathResults, m, &reply); err != nil {
		return err
	}
	ex.delivered(pathResults)
	var done []string
	for _, a := range reply.Answers {
		switch a.Answer {
		case "recorded", "repeated", "late", "unknown":
			done = append(done, a.ExecutionID)
		}
	}
	if err := ex.journal.sent(done); err != nil {
		ex.log.Error("journal could not note delivered results, they will be repeated", slog.Any("err", err))
	}
	poke(ex.ended)
	if len(done) < len(batch) {
		return &serverError{Status: 200, Code: "incomplete", Message: "the server did not answer all results"}
	}
	return nil
}

// upkeep samples memory and keeps the journal small, until ctx ends.
func (ex *Executor) upkeep(ctx context.Context) {
	tick := time.NewTicker(time.Second)
	defer tick.Stop()
	for n := 1; ; n++ {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		ex.mu.Lock()
		if ex.running > 0 {
			mb := memoryMB()
			for _, r := range ex.runs {
				if !r.startedAt.IsZero() {
					r.peakMB = max(r.peakMB, mb)
				}
			}
		}
		ex.mu.Unlock()
		if n%60 == 0 {
			if err := ex.journal.compactIfWorth(time.Now(), ex.busyShards()); err != nil {
				ex.log.Error("journal could not be rewritten", slog.Any("err", err))
			}
		}
	}
}
