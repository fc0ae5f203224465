package ax

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"
)

const (
	pathRegistry   = "/ax/registry"
	pathRemove     = "/ax/registry/remove"
	pathResults    = "/ax/results"
	pathLease      = "/ax/lease"
	pathLog        = "/ax/log"
	pathRun        = "/ax/executor/run"
	pathKill       = "/ax/executor/kill"
	pathProbe      = "/ax/executor/probe"
	pathUnregister = "/ax/executor/unregister"
)

const (
	maxBody    = 1 << 20
	maxHeader  = 16 << 10
	maxMessage = 4 << 10
	maxResult  = 64 << 10
	maxBatch   = 500 // results or leases in one message
)

// state is how an execution ended, as the server stores it.
type state string

const (
	succeeded state = "SUCCEEDED" // the handler returned nil
	failed    state = "FAILED"    // the handler returned an error, panicked, or its process ended
	timedOut  state = "TIMED_OUT" // the execution's limit struck; the handler has returned
	cancelled state = "CANCELLED" // the server asked to stop; the handler has returned
	rejected  state = "REJECTED"  // accepted and never started; safe to run elsewhere
)

// header is what every message begins with. The signature does not cover the path, so the
// type must say which path the message is for.
type header struct {
	Type      string `json:"type"`
	Namespace string `json:"namespace"`
	App       string `json:"app"`
	Instance  string `json:"instance,omitempty"`
}

type fence struct {
	Attempt int   `json:"attempt"`
	Epoch   int64 `json:"epoch"`
}

type executionRef struct {
	BatchID     string `json:"batchId"`
	ExecutionID string `json:"executionId"`
}

type fencedRef struct {
	executionRef
	Fence fence `json:"fence"`
}

// runningRef is an item of the list of what is here.
type runningRef struct {
	fencedRef
	RanMs int64 `json:"ranMs"` // since the handler started; -1 while it waits in the pool or in the spool
}

type handlerInfo struct {
	Name string `json:"name"`
	Kind string `json:"kind"`
}

type registerMessage struct {
	header
	Address  string            `json:"address"`
	StartID  string            `json:"startId"`
	Labels   map[string]string `json:"labels"`
	CPU      int               `json:"cpu"`
	MemoryMB int64             `json:"memoryMB"`
	Slots    int               `json:"slots"`
	Handlers []handlerInfo     `json:"handlers"`
	Running  []runningRef      `json:"running"`
	SDK      string            `json:"sdk"`
	Draining bool              `json:"draining"`
	Protocol int               `json:"protocol"`
}

type registerReply struct {
	State       string         `json:"state"`
	Reason      string         `json:"reason"`
	Instance    string         `json:"instance"`
	HeartbeatMs int64          `json:"heartbeatMs"`
	LeaseMs     int64          `json:"leaseMs"`
	ServerTime  int64          `json:"serverTime"`
	Owner       string         `json:"owner"`
	Stop        []executionRef `json:"stop"`
}

type removeMessage struct {
	header
	StartID string `json:"startId"`
}

type probeMessage struct {
	header
	Nonce string `json:"nonce"`
}

type probeReply struct {
	Nonce     string       `json:"nonce"`
	Namespace string       `json:"namespace"`
	App       string       `json:"app"`
	StartID   string       `json:"startId"`
	Running   []runningRef `json:"running"`
}

type runMessage struct {
	header
	Executions []execution `json:"executions"`
}

type jobInfo struct {
	ID      string `json:"id"`
	Name    string `json:"name"`
	Version int    `json:"version"`
}

type execution struct {
	executionRef
	Fence         fence           `json:"fence"`
	Job           jobInfo         `json:"job"`
	Handler       string          `json:"handler"`
	Params        string          `json:"params"`
	ShardingID    int             `json:"shardingId"`
	ShardingTotal int             `json:"shardingTotal"`
	Attempt       int             `json:"attempt"`
	DueAt         int64           `json:"dueAt"`
	PlannedFor    int64           `json:"plannedFor"`
	Zone          string          `json:"zone"`
	TimeoutMs     int64           `json:"timeoutMs"`
	LeaseMs       int64           `json:"leaseMs"`
	Trigger       string          `json:"trigger"`
	Event         json.RawMessage `json:"event"`
	TraceID       string          `json:"traceId"`
}

type answer struct {
	ExecutionID string `json:"executionId"`
	Answer      string `json:"answer"`
	Next        int64  `json:"next,omitempty"`     // of /ax/log
	Deadline    int64  `json:"deadline,omitempty"` // of /ax/lease
}

type answersReply struct {
	Answers []answer `json:"answers"`
}

type killMessage struct {
	header
	Executions []killRef `json:"executions"`
}

type killRef struct {
	executionRef
	Reason string `json:"reason"`
}

type result struct {
	executionRef
	ShardingID   int    `json:"shardingId"`
	Fence        fence  `json:"fence"`
	State        state  `json:"state"`
	Message      string `json:"message"`
	Code         string `json:"code,omitempty"`
	Result       string `json:"result,omitempty"`
	WaitedMs     int64  `json:"waitedMs"`
	DurationMs   int64  `json:"durationMs"`
	PeakMemoryMB int64  `json:"peakMemoryMB"`
	NoRetry      bool   `json:"noRetry"`
}

type resultsMessage struct {
	header
	Results []json.RawMessage `json:"results"` // of result
}

type leaseMessage struct {
	header
	Executions []leaseRef `json:"executions"`
}

type leaseRef struct {
	fencedRef
	ExtendMs int64 `json:"extendMs"`
}

type logMessage struct {
	header
	Chunks []json.RawMessage `json:"chunks"` // of logChunk
}

type logChunk struct {
	executionRef
	Seq      int64  `json:"seq"`
	Text     string `json:"text"`
	Progress int    `json:"progress"`
}

type errorReply struct {
	Code    string `json:"code"`
	Message string `json:"message"`
}

// parseRun decodes the body of a run message and checks what a run can not do without.
func parseRun(body []byte) (*runMessage, error) {
	var m runMessage
	if err := json.Unmarshal(body, &m); err != nil {
		return nil, err
	}
	if m.Type != "run" {
		return nil, fmt.Errorf("type is %q, want run", m.Type)
	}
	if len(m.Executions) == 0 {
		return nil, errors.New("no executions")
	}
	seen := make(map[string]bool, len(m.Executions))
	for i := range m.Executions {
		e := &m.Executions[i]
		if err := e.check(); err != nil {
			return nil, fmt.Errorf("execution %d: %w", i, err)
		}
		if seen[e.ExecutionID] {
			return nil, fmt.Errorf("execution %d: executionId %s is there twice", i, e.ExecutionID)
		}
		seen[e.ExecutionID] = true
	}
	return &m, nil
}

func (e *execution) check() error {
	switch {
	case e.BatchID == "" || len(e.BatchID) > 128:
		return errors.New("batchId is empty or longer than 128")
	case !isExecutionID(e.ExecutionID):
		return errors.New("executionId is not a decimal number below 2^53")
	case e.Fence.Attempt < 1:
		return errors.New("fence.attempt is below 1")
	case e.ShardingTotal < 1 || e.ShardingID < 0 || e.ShardingID >= e.ShardingTotal:
		return fmt.Errorf("shardingId %d of %d", e.ShardingID, e.ShardingTotal)
	case e.TimeoutMs < 0 || e.TimeoutMs > maxSpanMs || e.LeaseMs < 0 || e.LeaseMs > maxSpanMs:
		return errors.New("timeoutMs or leaseMs is negative or beyond ten years")
	}
	e.Event = eventBody(e.Event)
	return nil
}

// eventBody takes the event's body out of the string in which it travels; a body that is no
// JSON stays the string that it is. Null and empty are nil.
func eventBody(raw json.RawMessage) json.RawMessage {
	if len(raw) == 0 || string(raw) == "null" {
		return nil
	}
	var text string
	if json.Unmarshal(raw, &text) != nil {
		return raw
	}
	if text == "" {
		return nil
	}
	if json.Valid([]byte(text)) {
		return json.RawMessage(text)
	}
	return raw
}

// maxSpanMs keeps spans far from overflow when they become a time.Duration.
const maxSpanMs = 10 * 366 * 24 * 3600 * 1000

func isExecutionID(s string) bool {
	if s == "" || len(s) > 16 {
		return false
	}
	var n uint64
	for _, c := range []byte(s) {
		if c < '0' || c > '9' {
			return false
		}
		n = n*10 + uint64(c-'0')
	}
	return n < 1<<53
}

// cut shortens s to at most limit bytes, at a character's border, and says that it did.
func cut(s string, limit int) string {
	s = strings.ToValidUTF8(s, "\uFFFD")
	if len(s) <= limit {
		return s
	}
	mark := fmt.Sprintf("… [cut from %d bytes]", len(s))
	keep := limit - len(mark)
	for keep > 0 && s[keep]&0xC0 == 0x80 {
		keep--
	}
	return s[:keep] + mark
}
