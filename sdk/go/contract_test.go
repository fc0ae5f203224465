package ax

import (
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"
)

func goldenBytes(t *testing.T, name string) []byte {
	t.Helper()
	raw, err := os.ReadFile(filepath.Join("..", "contract", "golden", name+".json"))
	must(t, err)
	return raw
}

// What the executor receives is understood field by field, and unknown fields do no harm.
func TestReceivedGoldens(t *testing.T) {
	ref := executionRef{"10001-20261130080000", "123"}
	const big = "9007199254740991"
	us := header{"", "default", "order-service", "17"}
	head := func(kind string) header { h := us; h.Type = kind; return h }
	for name, want := range map[string]any{
		"register-reply":         &registerReply{State: "PENDING", Instance: "17", HeartbeatMs: 10000, LeaseMs: 600000, ServerTime: 1796000000000, Stop: []executionRef{ref}},
		"register-reply-online":  &registerReply{State: "ONLINE", Instance: "17", HeartbeatMs: 10000, LeaseMs: 600000, ServerTime: 1796000000000, Owner: "http://127.0.0.1:8082", Stop: []executionRef{}},
		"register-reply-refused": &registerReply{State: "REFUSED", Reason: "the server could not reach http://127.0.0.1:9801: connection refused", Instance: "17", HeartbeatMs: 10000, LeaseMs: 600000, ServerTime: 1796000000000, Stop: []executionRef{}},
		"results-reply":          &answersReply{[]answer{{ExecutionID: "123", Answer: "recorded"}, {ExecutionID: big, Answer: "late"}}},
		"lease-reply":            &answersReply{[]answer{{ExecutionID: "123", Answer: "renewed", Deadline: 1796000600000}, {ExecutionID: big, Answer: "extended", Deadline: 1796001200000}}},
		"log-reply":              &answersReply{[]answer{{ExecutionID: "123", Answer: "stored", Next: 2}, {ExecutionID: big, Answer: "gap", Next: 2}}},
		"kill":                   &killMessage{head("kill"), []killRef{{ref, "stopped by operator"}, {executionRef{ref.BatchID, "999"}, ""}}},
		"probe":                  &probeMessage{header{"probe", "default", "order-service", ""}, "5b0c6c1f2e8d4a7b9c3d"},
		"error":                  &errorReply{"bad_signature", "no signature of the message matches the key of default/order-service"},
	} {
		raw := goldenBytes(t, name)
		for _, text := range []string{string(raw), strings.Replace(string(raw), "{", `{"unknownField": {"x": [1]},`, 1)} {
			got := reflect.New(reflect.TypeOf(want).Elem())
			must(t, json.Unmarshal([]byte(text), got.Interface()))
			if !reflect.DeepEqual(got.Interface(), want) {
				t.Errorf("%s: got %+v, want %+v", name, got.Interface(), want)
			}
		}
	}
	m, err := parseRun(goldenBytes(t, "run"))
	must(t, err)
	want := []execution{
		{ref, fence{1, 7}, jobInfo{"10001", "order-sync", 3}, "syncOrders", `{"day":"yesterday"}`, 0, 4, 1, 1796000000000, 1796000000000, "Asia/Shanghai", 120000, 600000, "cron", nil, "10001-20261130080000#123"},
		{executionRef{"10002-20261130080500z.t2", big}, fence{2, 8}, jobInfo{"10002", "Abgleich für Überweisungen 对账", 1}, "healthCheck", "", 0, 1, 2, 1796000300000, 1795996800000, "UTC", 0, 600000, "event", json.RawMessage(`{"orderId":42,"kind":"paid"}`), "10002-20261130080500z.t2#" + big},
	}
	if !reflect.DeepEqual(m.Executions, want) || m.header != head("run") {
		t.Errorf("run: got %+v", m)
	}
}

// What the executor sends has the fields and kinds of the contract, no more and no fewer.
func TestSentGoldens(t *testing.T) {
	ref := executionRef{"10001-20261130080000", "123"}
	head := func(kind string) header { return header{kind, "default", "order-service", "17"} }
	raw := func(v any) json.RawMessage {
		b, err := json.Marshal(v)
		must(t, err)
		return b
	}
	for name, message := range map[string]any{
		"remove":    removeMessage{head("remove"), "0f5c2a9b7d3e41c88a6b5f4e3d2c1b0a"},
		"results":   resultsMessage{head("results"), []json.RawMessage{raw(result{executionRef: ref, State: succeeded, Result: "{}"})}},
		"lease":     leaseMessage{head("lease"), []leaseRef{{fencedRef{ref, fence{1, 7}}, 0}}},
		"log":       logMessage{head("log"), []json.RawMessage{raw(logChunk{ref, 1, "text\n", 40})}},
		"run-reply": answersReply{[]answer{{ExecutionID: "123", Answer: "accepted"}}},
		"probe-reply": probeReply{"n", "default", "order-service", "s", []runningRef{
			{fencedRef{ref, fence{1, 7}}, 1500},
		}},
	} {
		var got, want any
		must(t, json.Unmarshal(raw(message), &got))
		must(t, json.Unmarshal(goldenBytes(t, name), &want))
		if g, w := outline(got), outline(want); g != w {
			t.Errorf("%s:\n got %s\nwant %s", name, g, w)
		}
	}
}

// outline writes the keys and kinds of a decoded message; of a list, those of the first element.
func outline(v any) string {
	switch v := v.(type) {
	case map[string]any:
		var parts []string
		for _, k := range slices.Sorted(maps.Keys(v)) {
			parts = append(parts, k+":"+outline(v[k]))
		}
		return "{" + strings.Join(parts, " ") + "}"
	case []any:
		if len(v) == 0 {
			return "[]"
		}
		return "[" + outline(v[0]) + "]"
	default:
		return fmt.Sprintf("%T", v)
	}
}

func TestEventBody(t *testing.T) {
	for in, want := range map[string]string{
		``: ``, `null`: ``, `""`: ``, `"{\"a\":1}"`: `{"a":1}`, `"plain text"`: `"plain text"`, `{"a":1}`: `{"a":1}`, `"7"`: `7`,
	} {
		if got := string(eventBody(json.RawMessage(in))); got != want {
			t.Errorf("%s: got %s, want %s", in, got, want)
		}
	}
}
