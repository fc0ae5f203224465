// Package protocol is the executor protocol: its messages and its signatures.
//
// docs/executor-protocol.md says what they mean; sdk/contract holds the golden files that
// this package's tests and every SDK's tests read.
package protocol

import "bytes"

// WithoutBOM is a message without the mark that some libraries put before UTF-8.
func WithoutBOM(message []byte) []byte { return bytes.TrimPrefix(message, []byte("\xef\xbb\xbf")) }

// Paths that the server serves.
const (
	PathRegister = "/ax/registry"
	PathRemove   = "/ax/registry/remove"
	PathResults  = "/ax/results"
	PathLease    = "/ax/lease"
	PathLog      = "/ax/log"
)

// Paths that an executor serves.
const (
	PathRun        = "/ax/executor/run"
	PathKill       = "/ax/executor/kill"
	PathProbe      = "/ax/executor/probe"
	PathUnregister = "/ax/executor/unregister"
)

// Version is that of this protocol. An executor of a later one is refused.
const Version = 1

// Types of messages; a receiver refuses a type that is not its path's.
const (
	TypeRegister = "register"
	TypeRemove   = "remove"
	TypeResults  = "results"
	TypeLease    = "lease"
	TypeLog      = "log"
	TypeRun      = "run"
	TypeKill     = "kill"
	TypeProbe    = "probe"
)

// Fence orders the attempts of one shard: attempt first, then epoch.
type Fence struct {
	Attempt int   `json:"attempt"`
	Epoch   int64 `json:"epoch"`
}

// Ref names one execution.
type Ref struct {
	BatchID     string `json:"batchId"`
	ExecutionID string `json:"executionId"`
	Fence       Fence  `json:"fence"`
	// RanMs is how long the handler has run; -1 while it waits in the pool. Only in Running lists.
	RanMs *int64 `json:"ranMs,omitempty"`
	// ExtendMs asks for more time. Only in Lease.
	ExtendMs int64 `json:"extendMs,omitempty"`
	// Reason says why to stop. Only in Kill.
	Reason string `json:"reason,omitempty"`
}

// Head is what every message says about its sender.
type Head struct {
	Type      string `json:"type"`
	Namespace string `json:"namespace"`
	App       string `json:"app"`
	Instance  string `json:"instance,omitempty"`
}

// Handler is one that an executor offers.
type Handler struct {
	Name string `json:"name"`
	Kind string `json:"kind"`
}

// Register is a registration and a heartbeat.
type Register struct {
	Head
	Address  string            `json:"address"`
	StartID  string            `json:"startId"`
	Labels   map[string]string `json:"labels,omitempty"`
	CPU      int               `json:"cpu"`
	MemoryMB int64             `json:"memoryMB"`
	Slots    int               `json:"slots"`
	Handlers []Handler         `json:"handlers"`
	Running  []Ref             `json:"running"`
	SDK      string            `json:"sdk"`
	Draining bool              `json:"draining"`
	// Protocol is the version that the executor speaks; absent = 1.
	Protocol int `json:"protocol,omitempty"`
}

// Registered answers a Register.
type Registered struct {
	State       string `json:"state"`
	Reason      string `json:"reason,omitempty"`
	Instance    string `json:"instance"`
	HeartbeatMs int64  `json:"heartbeatMs"`
	LeaseMs     int64  `json:"leaseMs"`
	ServerTime  int64  `json:"serverTime"`
	Owner       string `json:"owner"`
	Stop        []Ref  `json:"stop"`
}

// Remove takes an executor off the list.
type Remove struct {
	Head
	StartID string `json:"startId"`
}

// Probe asks an address whether an executor lives there.
type Probe struct {
	Head
	Nonce string `json:"nonce"`
}

// Probed answers a Probe.
type Probed struct {
	Nonce     string `json:"nonce"`
	Namespace string `json:"namespace"`
	App       string `json:"app"`
	StartID   string `json:"startId"`
	Running   []Ref  `json:"running"`
}

// RunJob tells which job an execution belongs to.
type RunJob struct {
	ID      string `json:"id"`
	Name    string `json:"name"`
	Version int64  `json:"version"`
}

// RunExecution is one execution to start.
type RunExecution struct {
	BatchID       string  `json:"batchId"`
	ExecutionID   string  `json:"executionId"`
	Fence         Fence   `json:"fence"`
	Job           RunJob  `json:"job"`
	Handler       string  `json:"handler"`
	Params        string  `json:"params"`
	ShardingID    int     `json:"shardingId"`
	ShardingTotal int     `json:"shardingTotal"`
	Attempt       int     `json:"attempt"`
	DueAt         int64   `json:"dueAt"`
	PlannedFor    int64   `json:"plannedFor"`
	Zone          string  `json:"zone"`
	TimeoutMs     int64   `json:"timeoutMs"`
	LeaseMs       int64   `json:"leaseMs"`
	Trigger       string  `json:"trigger"`
	Event         *string `json:"event"`
	TraceID       string  `json:"traceId"`
}

// Run starts executions.
type Run struct {
	Head
	Executions []RunExecution `json:"executions"`
}

// Answers to one execution of a Run.
const (
	Accepted  = "accepted"
	Duplicate = "duplicate"
	Stale     = "stale"
	Full      = "full"
	NoHandler = "no_handler"
	Draining  = "draining"
)

// Asked answers one execution of a Kill that the executor knows: it was told to stop.
const Asked = "asked"

// Answer tells of one execution.
type Answer struct {
	ExecutionID string `json:"executionId"`
	Answer      string `json:"answer"`
	// Deadline is set by Lease: when the execution must have ended, 0 = no limit.
	Deadline *int64 `json:"deadline,omitempty"`
	// Next is set by Log: the sequence number that is wanted.
	Next int64 `json:"next,omitempty"`
}

// Answers answers Run, Kill, Results, Lease and Log.
type Answers struct {
	Answers []Answer `json:"answers"`
}

// Kill stops executions.
type Kill struct {
	Head
	Executions []Ref `json:"executions"`
}

// Result is the end of one execution.
type Result struct {
	BatchID     string `json:"batchId"`
	ExecutionID string `json:"executionId"`
	ShardingID  int    `json:"shardingId"`
	Fence       Fence  `json:"fence"`
	State       string `json:"state"`
	Message     string `json:"message"`
	// Code is what the handler calls its failure, for the job's retry rules.
	Code         string  `json:"code,omitempty"`
	Result       *string `json:"result,omitempty"`
	WaitedMs     int64   `json:"waitedMs"`
	DurationMs   int64   `json:"durationMs"`
	PeakMemoryMB int64   `json:"peakMemoryMB"`
	NoRetry      bool    `json:"noRetry"`
}

// Answers to one result.
const (
	Recorded = "recorded"
	Repeated = "repeated"
	Late     = "late"
	Unknown  = "unknown"
)

// MaxResults bounds one Results message.
const MaxResults = 500

// Results reports ends.
type Results struct {
	Head
	Results []Result `json:"results"`
}

// Lease renews leases.
type Lease struct {
	Head
	Executions []Ref `json:"executions"`
}

// Chunk is a piece of output.
type Chunk struct {
	BatchID     string `json:"batchId"`
	ExecutionID string `json:"executionId"`
	Seq         int64  `json:"seq"`
	Text        string `json:"text"`
	Progress    *int   `json:"progress,omitempty"`
}

// Log brings output.
type Log struct {
	Head
	Chunks []Chunk `json:"chunks"`
}

// Error is the body of an answer that is not 200.
type Error struct {
	Code    string `json:"code"`
	Message string `json:"message"`
}
