// Package job is what a job is: its definition, the policies in it, and what makes a
// definition acceptable. It decides nothing about a single run.
//
// Package schedule knows when a job is due, batch what becomes of a firing, routing who runs it.
package job

import (
	"math"
	"strings"
	"time"

	"github.com/ax-scheduler/ax/internal/routing"
	"github.com/ax-scheduler/ax/internal/schedule"
)

// Definition is what somebody writes: the part of a job that is versioned as a whole
// and that every batch of it is pinned to.
type Definition struct {
	Name        string          `json:"name"`
	App         string          `json:"app"`
	Handler     string          `json:"handler"`
	Description string          `json:"description,omitempty"`
	Triggers    []schedule.Spec `json:"triggers"`
	Params      string          `json:"params,omitempty"`
	Routing     Routing         `json:"routing"`
	Retry       Retry           `json:"retry"`
	// Timeout bounds the run of one execution from the start of its handler. 0 is no limit.
	Timeout schedule.Duration `json:"timeout"`
	// Wait bounds how long an execution whose turn has come may wait for an executor.
	Wait        Wait        `json:"wait,omitzero"`
	Concurrency Concurrency `json:"concurrency"`
	Misfire     Misfire     `json:"misfire"`
	// Priority is the level of the ready queue, 0 (default) to 5 (first).
	Priority int `json:"priority"`
	// Resources are what one execution takes of its executor.
	Resources Resources `json:"resources,omitzero"`
	// Limits are the names of limits that its executions share with those of other jobs.
	Limits []string `json:"limits,omitempty"`
}

// Routing says which executor runs an execution.
type Routing struct {
	// Strategy is one of routing.Strategies. Default roundRobin.
	Strategy string `json:"strategy"`
	// HashKey names the field of the parameters (JSON) whose value consistentHash places;
	// empty places by the job's id.
	HashKey string `json:"hashKey,omitempty"`
	// Selector says by labels and addresses which executors may run it; empty = all of the app.
	Selector string `json:"selector,omitempty"`
	// Rule is an expression in CEL that lets an executor pass or ranks it; empty = none.
	Rule string `json:"rule,omitempty"`
	// Shards is a fixed number of shards, whatever executors there are. 0 = with shardingBroadcast PerExecutor for
	// each executor that may run it when the batch is made, else one.
	Shards int `json:"shards,omitempty"`
	// PerExecutor is how many shards shardingBroadcast makes for each executor. Default 1.
	PerExecutor int `json:"perExecutor,omitempty"`
	// Quorum is how many per cent of the shards have to succeed. Default 100.
	Quorum int `json:"quorum,omitempty"`
}

// Enough tells whether so many shards of total are a success.
func (r Routing) Enough(succeeded, total int) bool {
	quorum := r.Quorum
	if quorum == 0 {
		quorum = 100
	}
	return succeeded*100 >= quorum*total
}

// Resources are declared, not measured: the server counts them against what an executor registered.
type Resources struct {
	// CPU in cores; 0 = not declared.
	CPU float64 `json:"cpu,omitempty"`
	// MemoryMB in MiB; 0 = not declared.
	MemoryMB int64 `json:"memoryMB,omitempty"`
	// Slots of the executor's pool; 0 = not declared: then it counts as one and may wait in the executor's queue.
	Slots int `json:"slots,omitempty"`
}

// Needs is the same in the words of routing.
func (r Resources) Needs() routing.Needs {
	return routing.Needs{CPUMilli: int64(math.Round(r.CPU * 1000)), MemoryMB: r.MemoryMB, Slots: r.Slots}
}

// What becomes of an execution that waited too long for an executor.
const (
	WaitFail = "fail" // the attempt is REJECTED and its batch fails
	WaitSkip = "skip" // a firing none of which has been sent is SKIPPED; anything else fails
)

// Wait is how long an execution may wait for an executor, beside its run.
type Wait struct {
	// Limit is the longest wait; 0 = as the server's setting dispatch-wait-limit says (default 30m).
	Limit schedule.Duration `json:"limit,omitempty"`
	// Do is one of the Wait constants. Default fail.
	Do string `json:"do,omitempty"`
}

// Backoff kinds of a retry policy.
const (
	BackoffExponential = "exponential"
	BackoffFixed       = "fixed"
)

// Retry says whether and when a failed attempt is tried again. The attempts beyond the
// first are counted: Max 3 means four attempts at most.
type Retry struct {
	// Max is the number of extra attempts, 0 to 100. Default 3. Ignored when Steps is set.
	Max int `json:"max"`
	// Backoff is "exponential" (default; Initial, then twice as long each time) or "fixed".
	Backoff string `json:"backoff,omitempty"`
	// Initial is the wait before the second attempt. Default 1s.
	Initial schedule.Duration `json:"initial,omitempty"`
	// Jitter is by how many percent of itself a wait grows at most, 0 to 100, so that what failed together
	// is not tried again together. Default 10. Steps are taken as they are.
	Jitter int `json:"jitter,omitempty"`
	// Steps are the waits before each extra attempt, when set instead of the above.
	Steps []schedule.Duration `json:"steps,omitempty"`
	// Rules say for what an attempt ended with whether it is tried again; the first that fits counts.
	Rules []RetryRule `json:"rules,omitempty"`
}

// What a retry rule says.
const (
	DoNever = "never" // it can not heal
	DoNow   = "now"   // the next attempt follows without a wait; it counts like any other
)

// RetryRule is for attempts that ended with one of its codes.
type RetryRule struct {
	// Codes are those that handlers fail with, or reasons such as timed_out; a "*" at the end of one stands
	// for anything that follows.
	Codes []string `json:"codes"`
	// Do is one of the Do constants.
	Do string `json:"do"`
}

// Rule is what the rules say of a code: one of the Do constants, or "" for nothing.
func (r Retry) Rule(code string) string {
	for _, rule := range r.Rules {
		for _, c := range rule.Codes {
			if prefix, open := strings.CutSuffix(c, "*"); c == code || open && strings.HasPrefix(code, prefix) {
				return rule.Do
			}
		}
	}
	return ""
}

// maxBackoff bounds the exponential wait, so that a long series still ends.
const maxBackoff = time.Hour

// Extra is the number of attempts beyond the first.
func (r Retry) Extra() int {
	if len(r.Steps) > 0 {
		return len(r.Steps)
	}
	return r.Max
}

// Delay returns how long to wait after failed attempt number `attempt` (from 1), and
// whether there is another attempt at all. chance, 0 to 1, says how much of the jitter it gets.
func (r Retry) Delay(attempt int, chance float64) (time.Duration, bool) {
	if attempt > r.Extra() {
		return 0, false
	}
	if len(r.Steps) > 0 {
		return time.Duration(r.Steps[attempt-1]), true
	}
	wait := r.backoff(attempt)
	return wait + time.Duration(float64(wait)*float64(r.Jitter)/100*chance), true
}

func (r Retry) backoff(attempt int) time.Duration {
	wait := time.Duration(r.Initial)
	if r.Backoff == BackoffFixed {
		return wait
	}
	for range attempt - 1 {
		wait *= 2
		if wait > maxBackoff {
			return maxBackoff
		}
	}
	return wait
}

// RetryOf is the retry policy for batches of a kind. Where the job leaves the default (three attempts more,
// after 1, 2 and 4 s), a delayed task has steps of its own: nobody waits for it, and what it calls may be
// away for a while.
func (d *Definition) RetryOf(kind schedule.Kind) Retry {
	if kind == schedule.Delayed && d.Retry.standard() {
		return Retry{Steps: []schedule.Duration{
			schedule.Duration(5 * time.Second), schedule.Duration(30 * time.Second), schedule.Duration(2 * time.Minute), schedule.Duration(10 * time.Minute), schedule.Duration(30 * time.Minute),
		}, Rules: d.Retry.Rules}
	}
	return d.Retry
}

// DefaultRetries is how many extra attempts there are, and DefaultJitter by how many percent a wait grows
// at most, unless a job says otherwise.
const (
	DefaultRetries = 3
	DefaultJitter  = 10
)

func (r Retry) standard() bool {
	return len(r.Steps) == 0 && r.Max == DefaultRetries && r.Backoff == BackoffExponential && r.Initial == schedule.Duration(time.Second)
}

// Overlap policies: what happens to a firing while Max batches of the job are active.
const (
	OverlapSkip     = "skip"     // the new one is recorded as skipped
	OverlapQueueOne = "queueOne" // one waits, further ones are skipped
	OverlapQueueAll = "queueAll" // all wait, up to Queue
	OverlapCover    = "cover"    // the running one is stopped, the new one runs once that is confirmed
	OverlapAllow    = "allow"    // they run side by side
)

// QueueLimit is how many batches of a job may wait for others of it, unless it says otherwise, and MaxQueue the most that it may say.
const (
	QueueLimit = 1000
	MaxQueue   = 10_000
)

// Concurrency says what happens when a job is due while it still runs, counted over
// the whole cluster.
type Concurrency struct {
	// Policy is one of the Overlap constants. Default skip.
	Policy string `json:"policy"`
	// Max is how many batches of the job may be active at once. Default 1; with policy allow 0 = no limit.
	Max int `json:"max"`
	// Queue is how many batches may wait with the policies queueAll and allow; what is too much is skipped. Default 1000.
	Queue int `json:"queue,omitempty"`
}

// QueueOf is how many batches may wait; definitions that do not say so have the default.
func (c Concurrency) QueueOf() int {
	if c.Queue == 0 {
		return QueueLimit
	}
	return c.Queue
}

// Misfire policies: what happens to firings whose time passed while nobody could fire them.
const (
	MisfireSkip = "skip" // recorded as missed
	MisfireOnce = "once" // the newest one inside the window runs, the others are recorded as missed
	MisfireAll  = "all"  // all inside the window run, up to Max
)

// Orders in which policy all starts what was missed.
const (
	OrderOldest = "oldest"
	OrderNewest = "newest"
)

// Drain rates: how many missed firings are started in a second. What an app's executors stand is a
// field of the app, 0 for no limit.
const (
	DefaultRate    = 10.0
	MinRate        = 0.01
	MaxRate        = 1000.0
	DefaultAppRate = 100.0
	MaxAppRate     = 10_000.0
)

// Misfire is the policy for firings that are more than MisfireAfter late.
type Misfire struct {
	// Policy is one of the Misfire constants. Default once.
	Policy string `json:"policy"`
	// Window is the latest start: a firing older than this is missed whatever the policy. Default 1h.
	Window schedule.Duration `json:"window"`
	// Max bounds what policy all catches up with: the newest so many. Default 100.
	Max int `json:"max"`
	// Order is which of them start first: oldest (default) or newest.
	Order string `json:"order,omitempty"`
	// Rate is how many missed firings of the job are started in a second. Default 10.
	Rate float64 `json:"rate,omitempty"`
}

// PerSecond is the drain rate; definitions that were saved before there was one have the default.
func (m Misfire) PerSecond() float64 {
	if m.Rate == 0 {
		return DefaultRate
	}
	return m.Rate
}

// MisfireAfter is the lateness up to which a firing counts as on time. It is not a
// setting: below it a late firing runs as usual, at and above it the policy decides.
const MisfireAfter = 5 * time.Second

// SharedLimit stands before the name of a limit that is the platform's and not the namespace's own.
const SharedLimit = "platform/"

// Limits of a definition's fields, in characters unless said otherwise.
const (
	MaxName        = 128
	MaxHandler     = 128
	MaxDescription = 1024
	MaxParams      = 64 << 10 // bytes
	MaxTriggers    = 20
	MaxPriority    = 5
	MaxRetries     = 100
	MaxShards      = 5000
	MaxPerExecutor = 100
	MaxLimits      = 10
	MaxCPU         = 1024.0    // cores
	MaxMemoryMB    = 100 << 20 // MiB
	MaxSlots       = 100_000
	MaxRetryRules  = 20
	MaxRetryCodes  = 50 // of one rule
)
