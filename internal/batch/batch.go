// Package batch is the state machine of ax: what a batch (one firing of a job) and an
// execution (one attempt of one shard) can be, what may happen to them, and what
// follows when an attempt has ended.
//
// It decides and writes nothing. Package store makes its answers durable, package outcome
// is the one caller that ends things.
package batch

import (
	"errors"
	"fmt"
)

// State is the state of a batch, equal to the stored value.
type State string

// The states of a batch, each with its writer.
const (
	Waiting     State = "WAITING"     // trigger; dependencies are not met
	Delayed     State = "DELAYED"     // trigger, outcome; the planned time or the retry's time is ahead
	Ready       State = "READY"       // dispatch; due, and waits for an executor, a slot or its turn
	Dispatching State = "DISPATCHING" // dispatch; assigned to an executor, a request is on its way
	Running     State = "RUNNING"     // outcome; an executor has accepted a shard of it
	Unknown     State = "UNKNOWN"     // sweep; the owner restarted or the executor is silent, the true state is being asked
	Succeeded   State = "SUCCEEDED"   // outcome; final
	Failed      State = "FAILED"      // outcome; final
	TimedOut    State = "TIMED_OUT"   // outcome; final
	Cancelled   State = "CANCELLED"   // outcome; final, by hand
	Skipped     State = "SKIPPED"     // outcome; final, a policy decided against the run
	Missed      State = "MISSED"      // trigger; final, its time passed while nobody could fire it
)

// Unstarted tells that nothing of a batch has gone to an executor yet, or all of it came back.
func (s State) Unstarted() bool { return s == Waiting || s == Delayed || s == Ready }

// Event is what can happen to a batch.
type Event string

// The events of a batch.
const (
	EventDue      Event = "due"      // the planned time has come and it waits
	EventAssign   Event = "assign"   // an executor was chosen for one of its shards
	EventStart    Event = "start"    // an executor accepted a shard
	EventUnassign Event = "unassign" // the request certainly did not arrive
	EventRetry    Event = "retry"    // its only shard will be tried again later
	EventUnsure   Event = "unsure"   // its true state has to be asked for
	EventSucceed  Event = "succeed"
	EventFail     Event = "fail"
	EventTimeOut  Event = "timeOut"
	EventCancel   Event = "cancel"
	EventSkip     Event = "skip"
	EventMiss     Event = "miss"
	EventReopen   Event = "reopen" // somebody asked by hand that failed shards be tried again
)

// Run is the state of an execution, equal to the stored value.
type Run string

// The states of an execution, each with its writer.
const (
	RunScheduled   Run = "SCHEDULED"   // trigger, outcome; waits for its time or for its turn
	RunDispatching Run = "DISPATCHING" // dispatch; assigned, a request is on its way
	RunRunning     Run = "RUNNING"     // outcome; the executor accepted it
	RunStopping    Run = "STOPPING"    // outcome; stop asked, not yet confirmed
	RunUnknown     Run = "UNKNOWN"     // sweep; the executor is being asked
	RunSucceeded   Run = "SUCCEEDED"   // outcome; final
	RunFailed      Run = "FAILED"      // outcome; final
	RunTimedOut    Run = "TIMED_OUT"   // outcome; final
	RunCancelled   Run = "CANCELLED"   // outcome; final
	RunRejected    Run = "REJECTED"    // outcome; final, it never started: executor full, no handler, nobody there
	RunLost        Run = "LOST"        // outcome; final, its executor is gone and no result came
)

// RunEvent is what can happen to an execution.
type RunEvent string

// The events of an execution.
const (
	RunAssign   RunEvent = "assign"   // an executor was chosen, durable before the request leaves
	RunUnassign RunEvent = "unassign" // the request certainly did not arrive
	RunAccept   RunEvent = "accept"   // the executor took it
	RunSee      RunEvent = "see"      // the executor lists it as running
	RunUnsure   RunEvent = "unsure"   // its true state has to be asked for
	RunAskStop  RunEvent = "askStop"  // somebody or a limit wants it to stop
	RunSucceed  RunEvent = "succeed"
	RunFail     RunEvent = "fail"
	RunTimeOut  RunEvent = "timeOut"
	RunCancel   RunEvent = "cancel"
	RunReject   RunEvent = "reject"
	RunLose     RunEvent = "lose"
)

// ErrNotAllowed is what Next and NextRun return for an event that the state does not take.
var ErrNotAllowed = errors.New("not allowed in this state")

// EndedError is ErrNotAllowed, of a batch that has ended.
type EndedError struct{ State State }

func (e *EndedError) Error() string { return "batch has ended: " + string(e.State) }

// Is says that having ended is a way of not being allowed.
func (e *EndedError) Is(target error) bool { return target == ErrNotAllowed }

// States lists every state of a batch in the order of its life.
func States() []State {
	return []State{Waiting, Delayed, Ready, Dispatching, Running, Unknown, Succeeded, Failed, TimedOut, Cancelled, Skipped, Missed}
}

// Events lists every event of a batch.
func Events() []Event {
	return []Event{EventDue, EventAssign, EventStart, EventUnassign, EventRetry, EventUnsure, EventSucceed, EventFail, EventTimeOut, EventCancel, EventSkip, EventMiss, EventReopen}
}

// Runs lists every state of an execution in the order of its life.
func Runs() []Run {
	return []Run{RunScheduled, RunDispatching, RunRunning, RunStopping, RunUnknown, RunSucceeded, RunFailed, RunTimedOut, RunCancelled, RunRejected, RunLost}
}

// RunEvents lists every event of an execution.
func RunEvents() []RunEvent {
	return []RunEvent{RunAssign, RunUnassign, RunAccept, RunSee, RunUnsure, RunAskStop, RunSucceed, RunFail, RunTimeOut, RunCancel, RunReject, RunLose}
}

// The table state × event → state. What is not here is refused. It is printed to
// testdata/transitions.golden and from there into docs/state-machine.md.
func transitions() map[State]map[Event]State {
	return map[State]map[Event]State{
		Waiting: {EventDue: Ready, EventCancel: Cancelled, EventSkip: Skipped, EventMiss: Missed},
		Delayed: {
			EventDue: Ready, EventAssign: Dispatching, EventStart: Running, EventRetry: Delayed, EventUnsure: Unknown,
			EventCancel: Cancelled, EventSkip: Skipped, EventMiss: Missed, EventFail: Failed, EventTimeOut: TimedOut, EventSucceed: Succeeded,
		},
		Ready: {
			EventAssign: Dispatching, EventRetry: Delayed, EventUnsure: Unknown, EventStart: Running,
			EventCancel: Cancelled, EventSkip: Skipped, EventMiss: Missed, EventFail: Failed, EventTimeOut: TimedOut, EventSucceed: Succeeded,
		},
		Dispatching: {
			EventAssign: Dispatching, EventStart: Running, EventUnassign: Ready, EventRetry: Delayed, EventUnsure: Unknown,
			EventSucceed: Succeeded, EventFail: Failed, EventTimeOut: TimedOut, EventCancel: Cancelled,
		},
		Running: {
			EventAssign: Running, EventStart: Running, EventUnassign: Running, EventRetry: Delayed, EventUnsure: Unknown,
			EventSucceed: Succeeded, EventFail: Failed, EventTimeOut: TimedOut, EventCancel: Cancelled,
		},
		Unknown: {
			EventAssign: Dispatching, EventStart: Running, EventUnassign: Ready, EventRetry: Delayed, EventUnsure: Unknown,
			EventSucceed: Succeeded, EventFail: Failed, EventTimeOut: TimedOut, EventCancel: Cancelled,
		},
		// With a quorum a batch succeeds although some shards failed; those may be tried again.
		Succeeded: {EventReopen: Ready},
		Failed:    {EventReopen: Ready},
		TimedOut:  {EventReopen: Ready},
		Cancelled: {EventReopen: Ready},
		Skipped:   {},
		Missed:    {},
	}
}

func runTransitions() map[Run]map[RunEvent]Run {
	return map[Run]map[RunEvent]Run{
		// An execution may be sent from here: its executor was chosen and made durable when the row was
		// written. What the executor then says can arrive before the answer to the request.
		RunScheduled: {
			RunAssign: RunDispatching, RunAccept: RunRunning, RunSee: RunRunning, RunAskStop: RunStopping,
			RunSucceed: RunSucceeded, RunFail: RunFailed, RunTimeOut: RunTimedOut, RunCancel: RunCancelled, RunReject: RunRejected, RunLose: RunLost,
		},
		RunDispatching: {
			RunUnassign: RunScheduled, RunAccept: RunRunning, RunSee: RunRunning, RunUnsure: RunUnknown, RunAskStop: RunStopping,
			RunSucceed: RunSucceeded, RunFail: RunFailed, RunTimeOut: RunTimedOut, RunCancel: RunCancelled, RunReject: RunRejected, RunLose: RunLost,
		},
		RunRunning: {
			RunSee: RunRunning, RunUnsure: RunUnknown, RunAskStop: RunStopping,
			RunSucceed: RunSucceeded, RunFail: RunFailed, RunTimeOut: RunTimedOut, RunCancel: RunCancelled, RunReject: RunRejected, RunLose: RunLost,
		},
		RunStopping: {
			RunSee: RunStopping, RunAccept: RunStopping, RunAskStop: RunStopping,
			RunSucceed: RunSucceeded, RunFail: RunFailed, RunTimeOut: RunTimedOut, RunCancel: RunCancelled, RunReject: RunRejected, RunLose: RunLost,
		},
		RunUnknown: {
			RunAccept: RunRunning, RunSee: RunRunning, RunUnsure: RunUnknown, RunAskStop: RunStopping, RunUnassign: RunScheduled,
			RunSucceed: RunSucceeded, RunFail: RunFailed, RunTimeOut: RunTimedOut, RunCancel: RunCancelled, RunReject: RunRejected, RunLose: RunLost,
		},
		RunSucceeded: {},
		RunFailed:    {},
		RunTimedOut:  {},
		RunCancelled: {},
		RunRejected:  {},
		RunLost:      {},
	}
}

// Machine holds the two tables, made once. It is immutable and safe for concurrent use.
type Machine struct {
	batch map[State]map[Event]State
	run   map[Run]map[RunEvent]Run
	from  map[RunEvent][]Run
	bfrom map[Event][]State
}

// NewMachine makes the state machine.
func NewMachine() *Machine {
	m := &Machine{batch: transitions(), run: runTransitions(), from: map[RunEvent][]Run{}, bfrom: map[Event][]State{}}
	for _, s := range Runs() {
		for _, e := range RunEvents() {
			if _, ok := m.run[s][e]; ok {
				m.from[e] = append(m.from[e], s)
			}
		}
	}
	for _, s := range States() {
		for _, e := range Events() {
			if _, ok := m.batch[s][e]; ok {
				m.bfrom[e] = append(m.bfrom[e], s)
			}
		}
	}
	return m
}

// Next returns the state that a batch in s has after e, or ErrNotAllowed.
func (m *Machine) Next(s State, e Event) (State, error) {
	to, ok := m.batch[s][e]
	if !ok {
		return s, fmt.Errorf("batch is %s, event %s: %w", s, e, ErrNotAllowed)
	}
	return to, nil
}

// NextRun returns the state that an execution in s has after e, or ErrNotAllowed.
func (m *Machine) NextRun(s Run, e RunEvent) (Run, error) {
	to, ok := m.run[s][e]
	if !ok {
		return s, fmt.Errorf("execution is %s, event %s: %w", s, e, ErrNotAllowed)
	}
	return to, nil
}

// RunsTaking lists the states of an execution that take e, for the guard of a grouped update.
func (m *Machine) RunsTaking(e RunEvent) []Run { return m.from[e] }

// StatesTaking lists the states of a batch that take e, for the guard of a grouped update.
func (m *Machine) StatesTaking(e Event) []State { return m.bfrom[e] }

// Final tells whether s is an end.
func (s State) Final() bool {
	switch s {
	case Succeeded, Failed, TimedOut, Cancelled, Skipped, Missed:
		return true
	case Waiting, Delayed, Ready, Dispatching, Running, Unknown:
		return false
	}
	return false
}

// Valid tells whether s is a state that this release knows.
func (s State) Valid() bool {
	_, ok := transitions()[s]
	return ok
}

// Final tells whether r is an end.
func (r Run) Final() bool {
	switch r {
	case RunSucceeded, RunFailed, RunTimedOut, RunCancelled, RunRejected, RunLost:
		return true
	case RunScheduled, RunDispatching, RunRunning, RunStopping, RunUnknown:
		return false
	}
	return false
}

// Valid tells whether r is a state that this release knows.
func (r Run) Valid() bool {
	_, ok := runTransitions()[r]
	return ok
}
