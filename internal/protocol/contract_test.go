package protocol_test

import (
	"encoding/hex"
	"encoding/json"
	"net/http"
	"os"
	"path/filepath"
	"reflect"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/ax-scheduler/ax/internal/protocol"
)

const contract = "../../sdk/contract"

func golden(t *testing.T, name string) []byte {
	t.Helper()
	raw, err := os.ReadFile(filepath.Join(contract, "golden", name+".json"))
	require.NoError(t, err)
	return raw
}

func head(kind string) protocol.Head {
	return protocol.Head{Type: kind, Namespace: "default", App: "order-service", Instance: "17"}
}

const (
	batchA  = "10001-20261130080000"
	batchB  = "10002-20261130080500z.t2"
	largest = "9007199254740991"
	startID = "0f5c2a9b7d3e41c88a6b5f4e3d2c1b0a"
)

func fenceA() protocol.Fence { return protocol.Fence{Attempt: 1, Epoch: 7} }
func fenceB() protocol.Fence { return protocol.Fence{Attempt: 2, Epoch: 8} }

// messages are the goldens with every field written out, as this side means them.
func messages() map[string]any {
	register := head("register")
	register.Instance = ""
	probe := head("probe")
	probe.Instance = ""
	running := []protocol.Ref{{BatchID: batchA, ExecutionID: "123", Fence: fenceA(), RanMs: new(int64(1500))}}
	registered := func(state, reason, owner string, stop []protocol.Ref) *protocol.Registered {
		return &protocol.Registered{State: state, Reason: reason, Instance: "17", HeartbeatMs: 10_000, LeaseMs: 600_000, ServerTime: 1_796_000_000_000, Owner: owner, Stop: stop}
	}
	return map[string]any{
		"register": &protocol.Register{
			Head: register, Address: "http://127.0.0.1:9801", StartID: startID, Labels: map[string]string{"zone": "a"}, CPU: 2, MemoryMB: 4096, Slots: 5,
			Handlers: []protocol.Handler{{Name: "syncOrders", Kind: "sharding"}, {Name: "healthCheck", Kind: "simple"}}, Running: running, SDK: "go/0.1.0", Protocol: 1,
		},
		"register-reply":         registered("PENDING", "", "", []protocol.Ref{{BatchID: batchA, ExecutionID: "123"}}),
		"register-reply-online":  registered("ONLINE", "", "http://127.0.0.1:8082", []protocol.Ref{}),
		"register-reply-refused": registered("REFUSED", "the server could not reach http://127.0.0.1:9801: connection refused", "", []protocol.Ref{}),
		"remove":                 &protocol.Remove{Head: head("remove"), StartID: startID},
		"probe":                  &protocol.Probe{Head: probe, Nonce: "5b0c6c1f2e8d4a7b9c3d"},
		"probe-reply":            &protocol.Probed{Nonce: "5b0c6c1f2e8d4a7b9c3d", Namespace: "default", App: "order-service", StartID: startID, Running: running},
		"kill": &protocol.Kill{Head: head("kill"), Executions: []protocol.Ref{
			{BatchID: batchA, ExecutionID: "123", Reason: "stopped by operator"}, {BatchID: batchA, ExecutionID: "999"},
		}},
		"kill-reply": &protocol.Answers{Answers: []protocol.Answer{{ExecutionID: "123", Answer: "asked"}, {ExecutionID: "999", Answer: "unknown"}}},
		"lease": &protocol.Lease{Head: head("lease"), Executions: []protocol.Ref{
			{BatchID: batchA, ExecutionID: "123", Fence: fenceA()}, {BatchID: batchB, ExecutionID: largest, Fence: fenceB(), ExtendMs: 600_000},
		}},
		"lease-reply": &protocol.Answers{Answers: []protocol.Answer{
			{ExecutionID: "123", Answer: "renewed", Deadline: new(int64(1_796_000_600_000))}, {ExecutionID: largest, Answer: "extended", Deadline: new(int64(1_796_001_200_000))},
		}},
		"log": &protocol.Log{Head: head("log"), Chunks: []protocol.Chunk{
			{BatchID: batchA, ExecutionID: "123", Seq: 1, Text: "shard 0 of 4\ncopied 200 orders\n", Progress: new(40)},
			{BatchID: batchB, ExecutionID: largest, Seq: 3, Text: "数据库 ok\n", Progress: new(-1)},
		}},
		"log-reply": &protocol.Answers{Answers: []protocol.Answer{{ExecutionID: "123", Answer: "stored", Next: 2}, {ExecutionID: largest, Answer: "gap", Next: 2}}},
		"results": &protocol.Results{Head: head("results"), Results: []protocol.Result{
			{BatchID: batchA, ExecutionID: "123", Fence: fenceA(), State: "SUCCEEDED", Message: "copied 2481 orders", Result: new(`{"copied":2481}`), WaitedMs: 3, DurationMs: 1870, PeakMemoryMB: 31},
			{BatchID: batchB, ExecutionID: largest, Fence: fenceB(), State: "FAILED", Message: "params: unknown day", Code: "BAD_DAY", DurationMs: 1, PeakMemoryMB: 31, NoRetry: true},
		}},
		"results-reply": &protocol.Answers{Answers: []protocol.Answer{{ExecutionID: "123", Answer: protocol.Recorded}, {ExecutionID: largest, Answer: protocol.Late}}},
		"run": &protocol.Run{Head: head("run"), Executions: []protocol.RunExecution{
			{
				BatchID: batchA, ExecutionID: "123", Fence: fenceA(), Job: protocol.RunJob{ID: "10001", Name: "order-sync", Version: 3}, Handler: "syncOrders", Params: `{"day":"yesterday"}`,
				ShardingTotal: 4, Attempt: 1, DueAt: 1_796_000_000_000, PlannedFor: 1_796_000_000_000, Zone: "Asia/Shanghai", TimeoutMs: 120_000, LeaseMs: 600_000, Trigger: "cron", TraceID: batchA + "#123",
			},
			{
				BatchID: batchB, ExecutionID: largest, Fence: fenceB(), Job: protocol.RunJob{ID: "10002", Name: "Abgleich für Überweisungen 对账", Version: 1}, Handler: "healthCheck",
				ShardingTotal: 1, Attempt: 2, DueAt: 1_796_000_300_000, PlannedFor: 1_795_996_800_000, Zone: "UTC", LeaseMs: 600_000, Trigger: "event", Event: new(`{"orderId":42,"kind":"paid"}`), TraceID: batchB + "#" + largest,
			},
		}},
		"run-reply": &protocol.Answers{Answers: []protocol.Answer{{ExecutionID: "123", Answer: protocol.Accepted}, {ExecutionID: largest, Answer: protocol.Duplicate}}},
		"run-reply-refusals": &protocol.Answers{Answers: []protocol.Answer{
			{ExecutionID: "124", Answer: protocol.Stale}, {ExecutionID: "125", Answer: protocol.Full}, {ExecutionID: "126", Answer: protocol.NoHandler}, {ExecutionID: "127", Answer: protocol.Draining},
		}},
		"error":            &protocol.Error{Code: "bad_signature", Message: "no signature of the message matches the key of default/order-service"},
		"remove-reply":     &struct{}{},
		"unregister":       new(head("unregister")),
		"unregister-reply": &struct{}{},
	}
}

func TestGoldensAreRead(t *testing.T) {
	files, err := filepath.Glob(filepath.Join(contract, "golden", "*.json"))
	require.NoError(t, err)
	require.Len(t, files, len(messages()), "every golden has its message here")
	for name, want := range messages() {
		t.Run(name, func(t *testing.T) {
			got := reflect.New(reflect.TypeOf(want).Elem()).Interface()
			require.NoError(t, json.Unmarshal(golden(t, name), got))
			require.Equal(t, want, got)

			// What a newer side adds is ignored, at the top and inside.
			var m map[string]any
			require.NoError(t, json.Unmarshal(golden(t, name), &m))
			widen(m)
			raw, err := json.Marshal(m)
			require.NoError(t, err)
			got = reflect.New(reflect.TypeOf(want).Elem()).Interface()
			require.NoError(t, json.Unmarshal(raw, got))
			require.Equal(t, want, got)
		})
	}
}

// widen adds a field to every object that is not a map of labels.
func widen(m map[string]any) {
	for key, v := range m {
		switch x := v.(type) {
		case map[string]any:
			if key != "labels" {
				widen(x)
			}
		case []any:
			for _, e := range x {
				if o, ok := e.(map[string]any); ok {
					widen(o)
				}
			}
		}
	}
	m["fieldOfALaterRelease"] = map[string]any{"deep": []any{1, "x", nil}}
}

// What this side sends has the golden's fields, and values of the same kind.
func TestWhatIsSentHasTheGoldensForm(t *testing.T) {
	for _, name := range []string{"run", "kill", "probe", "register-reply", "register-reply-online", "register-reply-refused", "results-reply", "lease-reply", "log-reply", "remove-reply", "error"} {
		t.Run(name, func(t *testing.T) {
			raw, err := json.Marshal(messages()[name])
			require.NoError(t, err)
			var got, want any
			require.NoError(t, json.Unmarshal(raw, &got))
			require.NoError(t, json.Unmarshal(golden(t, name), &want))
			contains(t, name, want, got)
		})
	}
}

// contains asks that got has everything that want has, with the same values where they are texts
// or numbers; more is allowed.
func contains(t *testing.T, at string, want, got any) {
	t.Helper()
	switch w := want.(type) {
	case map[string]any:
		g, ok := got.(map[string]any)
		require.True(t, ok, at)
		for k, v := range w {
			if v == "" && g[k] == nil {
				continue // an empty text may be left out
			}
			require.Contains(t, g, k, at)
			contains(t, at+"."+k, v, g[k])
		}
	case []any:
		g, ok := got.([]any)
		require.True(t, ok, at)
		require.Len(t, g, len(w), at)
		for i := range w {
			contains(t, at+"["+strconv.Itoa(i)+"]", w[i], g[i])
		}
	default:
		require.Equal(t, want, got, at)
	}
}

type signatures struct {
	Vectors []struct {
		Name, Key, ID, Timestamp, Body, Signature, Reason string
		Good                                              bool
	}
	StandardWebhooks struct{ RawKeyHex, ID, Timestamp, Body, Signature string }
	Clock            []struct {
		OffsetSeconds int
		Accepted      bool
	}
	BadKeys []struct{ Key, Reason string }
}

func vectors(t *testing.T) signatures {
	t.Helper()
	raw, err := os.ReadFile(filepath.Join(contract, "signatures.json"))
	require.NoError(t, err)
	var s signatures
	require.NoError(t, json.Unmarshal(raw, &s))
	require.NotEmpty(t, s.Vectors)
	require.NotEmpty(t, s.Clock)
	require.NotEmpty(t, s.BadKeys)
	return s
}

func headers(id, timestamp, signature string) http.Header {
	h := http.Header{}
	h.Set("webhook-id", id)
	h.Set("webhook-timestamp", timestamp)
	h.Set("webhook-signature", signature)
	return h
}

// T-EXE-2, T-EXE-9: the vectors that every SDK passes too.
func TestSignatureVectors(t *testing.T) {
	for _, v := range vectors(t).Vectors {
		t.Run(v.Name, func(t *testing.T) {
			key, err := protocol.ParseKey(v.Key)
			require.NoError(t, err)
			stamp, _ := strconv.ParseInt(v.Timestamp, 10, 64)
			at := time.Unix(stamp, 0)
			err = protocol.Verify(headers(v.ID, v.Timestamp, v.Signature), []byte(v.Body), at, key)
			if !v.Good {
				require.ErrorIs(t, err, protocol.ErrSignature, v.Reason)
				return
			}
			require.NoError(t, err)
			if !strings.Contains(v.Signature, " ") {
				h := http.Header{}
				require.NoError(t, protocol.Sign(h, v.ID, at, []byte(v.Body), key))
				require.Equal(t, headers(v.ID, v.Timestamp, v.Signature), h)
			}
		})
	}
	t.Run("the definition of Standard Webhooks", func(t *testing.T) {
		v := vectors(t).StandardWebhooks
		key, err := hex.DecodeString(v.RawKeyHex)
		require.NoError(t, err)
		stamp, err := strconv.ParseInt(v.Timestamp, 10, 64)
		require.NoError(t, err)
		h := http.Header{}
		require.NoError(t, protocol.Sign(h, v.ID, time.Unix(stamp, 0), []byte(v.Body), protocol.Key(key)))
		require.Equal(t, v.Signature, h.Get("webhook-signature"))
	})
}

// T-EXE-4: clocks may differ by 300 s, and only who holds the key is told that they do.
func TestClocks(t *testing.T) {
	key, _ := protocol.NewKey()
	other, _ := protocol.NewKey()
	now := time.Unix(1_796_000_000, 0)
	for _, c := range vectors(t).Clock {
		h := http.Header{}
		require.NoError(t, protocol.Sign(h, "msg_12345678", now.Add(time.Duration(c.OffsetSeconds)*time.Second), []byte("{}"), key))
		err := protocol.Verify(h, []byte("{}"), now, key)
		if c.Accepted {
			require.NoError(t, err, c.OffsetSeconds)
		} else {
			require.ErrorIs(t, err, protocol.ErrClock, c.OffsetSeconds)
		}
		require.ErrorIs(t, protocol.Verify(h, []byte("{}"), now, other), protocol.ErrSignature)
	}
}

func TestBadKeysAreRefused(t *testing.T) {
	for _, bad := range vectors(t).BadKeys {
		_, err := protocol.ParseKey(bad.Key)
		require.Error(t, err, bad.Reason)
		if len(bad.Key) > 10 {
			require.NotContains(t, err.Error(), bad.Key, "a key is not told, not even a bad one")
		}
	}
	key, text := protocol.NewKey()
	again, err := protocol.ParseKey(text)
	require.NoError(t, err)
	require.Equal(t, key, again)
	require.Equal(t, text, again.Text())
}

// T-EXE-5: with two keys a message of either is good, in both directions.
func TestRotation(t *testing.T) {
	old, _ := protocol.NewKey()
	next, _ := protocol.NewKey()
	now := time.Unix(1_796_000_000, 0)
	for _, sender := range [][]protocol.Key{{old}, {next}, {old, next}} {
		for _, receiver := range [][]protocol.Key{{old, next}, {next, old}} {
			h := http.Header{}
			require.NoError(t, protocol.Sign(h, "msg_12345678", now, []byte("x"), sender...))
			require.NoError(t, protocol.Verify(h, []byte("x"), now, receiver...))
		}
	}
	h := http.Header{}
	require.NoError(t, protocol.Sign(h, "msg_12345678", now, []byte("x"), old))
	require.ErrorIs(t, protocol.Verify(h, []byte("x"), now, next), protocol.ErrSignature)
	require.ErrorIs(t, protocol.Verify(h, []byte("x"), now), protocol.ErrSignature, "an app without keys believes nobody")
	require.ErrorIs(t, protocol.VerifyReply(h, "msg_87654321", []byte("x"), now, old), protocol.ErrSignature, "the reply to something else")
}

// T-EXE-2, T-EXE-8: whatever is changed in a message, it is not good any more.
func TestEveryChangeIsNoticed(t *testing.T) {
	key, _ := protocol.NewKey()
	now := time.Unix(1_796_000_000, 0)
	rapid.Check(t, func(t *rapid.T) {
		body := rapid.SliceOfN(rapid.Byte(), 0, 200).Draw(t, "body")
		id := rapid.StringMatching(`[A-Za-z0-9_-]{8,64}`).Draw(t, "id")
		h := http.Header{}
		require.NoError(t, protocol.Sign(h, id, now, body, key))
		require.NoError(t, protocol.Verify(h, body, now, key))
		switch rapid.IntRange(0, 3).Draw(t, "what") {
		case 0:
			changed := append([]byte(nil), body...)
			if len(changed) > 0 && rapid.Bool().Draw(t, "flip") {
				changed[rapid.IntRange(0, len(changed)-1).Draw(t, "at")] ^= 1 << rapid.IntRange(0, 7).Draw(t, "bit")
			} else {
				changed = append(changed, rapid.Byte().Draw(t, "more"))
			}
			body = changed
		case 1:
			h.Set("webhook-id", id[1:]+"x")
			if id[1:]+"x" == id {
				h.Set("webhook-id", id+"y")
			}
		case 2:
			h.Set("webhook-timestamp", strconv.FormatInt(now.Unix()+rapid.Int64Range(1, 299).Draw(t, "later"), 10))
		case 3:
			s := []byte(h.Get("webhook-signature"))
			at := rapid.IntRange(0, len(s)-3).Draw(t, "at")
			s[at] = byte(rapid.IntRange(33, 126).Filter(func(c int) bool { return byte(c) != s[at] && c != ' ' && c != ',' }).Draw(t, "c"))
			h.Set("webhook-signature", string(s))
		}
		require.Error(t, protocol.Verify(h, body, now, key))
	})
}

// T-EXE-3: an id is taken once within ten minutes.
func TestReplays(t *testing.T) {
	now := time.Unix(1_796_000_000, 0)
	s := protocol.NewSeen(1000)
	require.True(t, s.First("a", now))
	require.False(t, s.First("a", now))
	require.True(t, s.First("b", now))
	require.False(t, s.First("a", now.Add(9*time.Minute+59*time.Second)))
	require.False(t, s.First("b", now.Add(10*time.Minute)), "the edge belongs to the time")
	require.True(t, s.First("a", now.Add(25*time.Minute)))
	// At most so many are remembered; the newest always are.
	small := protocol.NewSeen(10)
	for i := range 1000 {
		require.True(t, small.First(strconv.Itoa(i), now))
		require.False(t, small.First(strconv.Itoa(i), now))
	}
}

// Every message that is taken is taken once, and within the ten minutes never again.
func TestSeenProperty(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		s := protocol.NewSeen(1_000_000)
		now := time.Unix(1_796_000_000, 0)
		taken := map[string]time.Time{}
		for range rapid.IntRange(1, 200).Draw(t, "n") {
			now = now.Add(time.Duration(rapid.IntRange(0, 120).Draw(t, "s")) * time.Second)
			id := rapid.SampledFrom([]string{"a", "b", "c", "d"}).Draw(t, "id")
			first := s.First(id, now)
			last, known := taken[id]
			if !known {
				require.True(t, first)
			} else if now.Sub(last) < 10*time.Minute {
				require.False(t, first, "%s after %s", id, now.Sub(last))
			}
			if first {
				taken[id] = now
			}
		}
	})
}
