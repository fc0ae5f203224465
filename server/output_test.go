package main

import (
	"bufio"
	"encoding/json"
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/ax-scheduler/ax/server/axtest"
)

// What executions write: the cases share a server for each database, with small quotas.
func TestOutput(t *testing.T) {
	cases := []shared{
		{"it comes while it runs, in order, and a stream goes on where it broke off", outputLive},
		{"chunks are stored once, in order, whatever is sent", outputOrder},
		{"each shard has its own", outputOfShards},
		{"an execution's quota cuts with a mark", outputQuota},
	}
	axtest.Both(t, func(t *testing.T, o ...axtest.Option) {
		s := axtest.Start(t, append(o, axtest.Set("output-limit", "2"))...)
		runShared(t, s, cases)
	})
}

// writing starts a run that goes on until the test ends.
func writing(t *testing.T, ns *axtest.Namespace) (x *axtest.Executor, run axtest.Run) {
	t.Helper()
	x = ns.App("app").Worker(axtest.UntilStopped)
	id := ns.Trigger(ns.Job(axtest.Def{}))
	ns.Reaches(id, "RUNNING")
	return x, x.Starts()[0].Run
}

// send sends chunks of a run and returns the answer.
func send(x *axtest.Executor, ns *axtest.Namespace, run axtest.Run, chunks ...map[string]any) (answer string, next int64) {
	for _, c := range chunks {
		c["batchId"], c["executionId"] = run.BatchID, run.ExecutionID
	}
	status, raw := x.Post("/ax/log", map[string]any{"type": "log", "namespace": ns.Name, "app": "app", "instance": x.Instance(), "chunks": chunks})
	var reply struct {
		Answers []struct {
			Answer string
			Next   int64
		}
	}
	if status != http.StatusOK || json.Unmarshal(raw, &reply) != nil || len(reply.Answers) != 1 {
		return strconv.Itoa(status), 0
	}
	return reply.Answers[0].Answer, reply.Answers[0].Next
}

func chunk(seq int, text string) map[string]any { return map[string]any{"seq": seq, "text": text} }

type streamed struct{ id, event, text string }

// stream reads events of an execution's output from an offset until the given number of output events came.
func stream(t *testing.T, ns *axtest.Namespace, execution, last string, events int) []streamed {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, ns.Server.URL()+ns.Path("/executions/"+execution+"/output/stream"), nil)
	require.NoError(t, err)
	req.Header.Set("Authorization", "Bearer "+ns.Client.Token)
	if last != "" {
		req.Header.Set("Last-Event-ID", last)
	}
	res, err := (&http.Client{Timeout: axtest.Patience}).Do(req)
	require.NoError(t, err)
	defer func() { _ = res.Body.Close() }()
	require.Equal(t, http.StatusOK, res.StatusCode)
	var out []streamed
	var now streamed
	lines := bufio.NewScanner(res.Body)
	lines.Buffer(nil, 1<<20)
	for len(out) < events && lines.Scan() {
		switch name, value, _ := strings.Cut(lines.Text(), ": "); name {
		case "id":
			now.id = value
		case "event":
			now.event = value
		case "data":
			var data struct{ Text string }
			require.NoError(t, json.Unmarshal([]byte(value), &data))
			now.text = data.Text
			if now.event == "output" {
				out = append(out, now)
			}
			now = streamed{}
		}
	}
	require.Len(t, out, events)
	return out
}

func outputLive(t *testing.T, ns *axtest.Namespace) {
	x, run := writing(t, ns)
	var got []streamed
	var wait sync.WaitGroup
	wait.Go(func() { got = stream(t, ns, run.ExecutionID, "", 1) })
	answer, next := send(x, ns, run, chunk(1, "eins 一\n"))
	require.Equal(t, []any{"stored", int64(2)}, []any{answer, next})
	wait.Wait()
	require.Equal(t, "eins 一\n", got[0].text, "while it runs")
	for i := 2; i <= 5; i++ {
		answer, _ = send(x, ns, run, map[string]any{"seq": i, "text": fmt.Sprintf("line %d\n", i), "progress": 20 * i})
		require.Equal(t, "stored", answer)
	}
	rest := stream(t, ns, run.ExecutionID, got[0].id, 1)
	require.Equal(t, "line 2\nline 3\nline 4\nline 5\n", rest[0].text, "nothing twice, nothing left out")
	var v struct{ Progress int }
	ns.Client.Get(t, ns.Path("/executions/"+run.ExecutionID), &v)
	require.Equal(t, 100, v.Progress)
	a := ns.Client.Do(t, http.MethodGet, ns.Path("/executions/"+run.ExecutionID+"/output/download"), nil)
	require.Equal(t, "eins 一\nline 2\nline 3\nline 4\nline 5\n", a.Text())
}

func outputOrder(t *testing.T, ns *axtest.Namespace) {
	x, run := writing(t, ns)
	answer, next := send(x, ns, run, chunk(2, "too early\n"))
	require.Equal(t, []any{"gap", int64(1)}, []any{answer, next})
	var wait sync.WaitGroup
	for range 8 { // the same from several connections
		wait.Go(func() { send(x, ns, run, chunk(1, "one\n"), chunk(2, "two\n"), chunk(3, "three\n")) })
	}
	wait.Wait()
	require.Equal(t, "one\ntwo\nthree\n", ns.Output(run.ExecutionID))
	// Progress alone takes a number and no room.
	for i := 4; i < 260; i++ {
		answer, _ = send(x, ns, run, map[string]any{"seq": i, "text": "", "progress": i % 100})
		require.Equal(t, "stored", answer)
	}
	answer, _ = send(x, ns, run, chunk(260, "four\n"))
	require.Equal(t, "stored", answer)
	require.Equal(t, "one\ntwo\nthree\nfour\n", ns.Output(run.ExecutionID))
	other := run
	other.ExecutionID = "12345678901234"
	answer, _ = send(x, ns, other, chunk(1, "whose?\n"))
	require.Equal(t, "refused", answer)
}

func outputOfShards(t *testing.T, ns *axtest.Namespace) {
	app := ns.App("app")
	list := []*axtest.Executor{app.Worker(axtest.UntilStopped), app.Worker(axtest.UntilStopped)}
	id := ns.Trigger(ns.Job(axtest.Def{"routing": strategy("shardingBroadcast")}))
	axtest.WaitFor(t, "both shards run", func() bool { return len(axtest.Ledger(list...)) == 2 })
	for _, s := range axtest.Ledger(list...) {
		answer, _ := send(s.On, ns, s.Run, chunk(1, fmt.Sprintf("shard %d\n", s.Run.ShardingID)))
		require.Equal(t, "stored", answer)
	}
	for _, e := range ns.Batch(id).Executions {
		require.Equal(t, fmt.Sprintf("shard %d\n", e.Shard), ns.Output(e.ID))
	}
}

func outputQuota(t *testing.T, ns *axtest.Namespace) {
	x, run := writing(t, ns)
	const line = "0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcde\n"
	full := ""
	for i := 1; ; i++ {
		answer, _ := send(x, ns, run, chunk(i, strings.Repeat(line, 3000)))
		if full = answer; answer != "stored" {
			break
		}
		require.Less(t, i, 20)
	}
	require.Equal(t, "refused", full)
	text := ns.Output(run.ExecutionID)
	require.LessOrEqual(t, len(text), 2<<20+200)
	const mark = "\n[ax: output ends here: the quota of an execution (2 MiB) is reached; the rest was not kept]\n"
	require.True(t, strings.HasSuffix(text, mark), text[len(text)-200:])
	require.True(t, strings.HasSuffix(strings.TrimSuffix(text, mark)+"\n", line), "whole lines")
	// Whoever goes on sending changes nothing.
	for seq := range 100 {
		answer, _ := send(x, ns, run, chunk(seq+1, line))
		if answer == "refused" {
			continue
		}
	}
	require.Equal(t, text, ns.Output(run.ExecutionID))
}

// A namespace's quota of a day, over all its executions and over a restart; the next one is free.
func TestOutputQuotaOfANamespace(t *testing.T) {
	axtest.Both(t, func(t *testing.T, o ...axtest.Option) {
		s := axtest.Start(t, append(o, axtest.Set("output-per-day", "1"))...)
		ns, other := s.Namespace(t), s.Namespace(t)
		x, run := writing(t, ns)
		text := strings.Repeat("0123456789abcde\n", 8<<10) // 128 KiB
		for i := 1; i <= 6; i++ {
			answer, _ := send(x, ns, run, chunk(i, text))
			require.Equal(t, "stored", answer)
		}
		second := ns.Trigger(ns.Job(axtest.Def{"name": "second"}))
		ns.Reaches(second, "RUNNING")
		run = x.Starts()[1].Run
		var answer string
		for i := 1; i <= 3; i++ {
			answer, _ = send(x, ns, run, chunk(i, text))
		}
		require.Equal(t, "refused", answer)
		const mark = "\n[ax: output ends here: the namespace's quota of the day is used up; the rest was not kept]\n"
		require.True(t, strings.HasSuffix(ns.Output(run.ExecutionID), mark))
		y, free := writing(t, other)
		answer, _ = send(y, other, free, chunk(1, text))
		require.Equal(t, "stored", answer, "another namespace has its own")
	})
}

// What was answered as stored is there after the server was killed, and the executor goes on with the number
// that is wanted.
func TestStoredOutputSurvivesKill(t *testing.T) {
	axtest.Both(t, func(t *testing.T, o ...axtest.Option) {
		s := axtest.Start(t, append(o, axtest.Process())...)
		ns := s.Namespace(t)
		x, run := writing(t, ns)
		stored := 0
		for round := range 3 {
			axtest.WaitFor(t, "a line is stored", func() bool {
				answer, _ := send(x, ns, run, chunk(stored+1, fmt.Sprintf("line %d\n", stored+1)))
				return answer == "stored"
			})
			stored++
			killed := make(chan struct{})
			go func() {
				axtest.Pause(time.Duration(150+100*round) * time.Millisecond)
				s.Kill()
				close(killed)
			}()
			for seq := stored + 1; ; seq++ {
				answer, _ := send(x, ns, run, chunk(seq, fmt.Sprintf("line %d\n", seq)))
				if answer != "stored" {
					break
				}
				stored = seq
			}
			<-killed
			s.Again()
			// One more may have been stored whose answer was lost.
			axtest.WaitFor(t, "the executor is known again", func() bool {
				answer, next := send(x, ns, run, chunk(stored+5, "far ahead\n"))
				if answer != "gap" {
					return false
				}
				require.GreaterOrEqual(t, next, int64(stored+1))
				require.LessOrEqual(t, next, int64(stored+2))
				stored = int(next) - 1
				return true
			})
		}
		var want strings.Builder
		for seq := 1; seq <= stored; seq++ {
			fmt.Fprintf(&want, "line %d\n", seq)
		}
		require.Equal(t, want.String(), ns.Output(run.ExecutionID))
	})
}

// 200 000 lines are read page by page, and from anywhere among them, without reading what is before.
func TestTwoHundredThousandLines(t *testing.T) {
	axtest.Both(t, func(t *testing.T, o ...axtest.Option) {
		s := axtest.Start(t, o...)
		ns := s.Namespace(t)
		x, run := writing(t, ns)
		const lines, each = 200_000, 3000
		seq := 0
		for from := 0; from < lines; from += each {
			var b strings.Builder
			for i := from; i < min(from+each, lines); i++ {
				fmt.Fprintf(&b, "%06d something that a handler says of its work\n", i)
			}
			seq++
			answer, _ := send(x, ns, run, chunk(seq, b.String()))
			require.Equal(t, "stored", answer)
		}
		at := time.Now()
		text := ns.Output(run.ExecutionID)
		took := time.Since(at)
		require.Equal(t, lines, strings.Count(text, "\n"))
		for i, line := range strings.Split(strings.TrimSuffix(text, "\n"), "\n") {
			if i%10_007 == 0 {
				require.True(t, strings.HasPrefix(line, fmt.Sprintf("%06d ", i)), line)
			}
		}
		t.Logf("%d bytes in %s", len(text), took)
		const size = len("000000 something that a handler says of its work\n")
		var page struct {
			Text       string
			NextOffset int64
		}
		ns.Client.Get(t, ns.Path(fmt.Sprintf("/executions/%s/output?offset=%d&limit=1024", run.ExecutionID, 150_000*size)), &page)
		require.True(t, strings.HasPrefix(page.Text, "150000 "), page.Text[:20])
		require.LessOrEqual(t, len(page.Text), 1024)
	})
}
