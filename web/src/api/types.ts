// The names the pages use for what the API returns. This is the one place that
// follows when the generated schema names a thing otherwise.
import type { components } from './schema'

type S = components['schemas']

export type Text = S['Text']
export type Reason = S['ReasonView']
export type Invalid = S['Invalid']
export type Problem = S['Problem']
export type Session = S['TokenView']
export type User = S['UserView']
export type AppCreated = S['CreatedAppView']
export type Trigger = S['TriggerBody']
export type Job = S['JobView']
export type Preview = S['PreviewView']
export type Fire = S['FireView']
export type Batch = S['BatchView']
export type BatchState = Batch['state']
export type Execution = S['ExecutionView']
export type ExecutionState = Execution['state']
export type Executor = S['ExecutorView']
export type ExecutorState = Executor['state']
export type Calendar = S['CalendarView']
export type DelayedTask = S['DelayedView']
export type Secret = S['SecretView']
export type Limit = S['LimitView']
export type System = S['SystemView']
export type Replica = S['ReplicaView']
export type Bucket = S['BucketView']
export type Move = S['MoveView']
export type AuditEntry = S['AuditView']
export type Person = S['PersonView']
export type Member = S['MemberView']
export type Version = S['VersionView']

// JobInput is the part of a job that a person may change. The server fills in what a
// call leaves out; the form always sends the whole.
export type JobInput = Pick<
  Job,
  | 'name'
  | 'app'
  | 'handler'
  | 'description'
  | 'triggers'
  | 'params'
  | 'routing'
  | 'retry'
  | 'timeout'
  | 'wait'
  | 'concurrency'
  | 'misfire'
  | 'priority'
  | 'resources'
  | 'limits'
  | 'enabled'
>

export const batchStates = [
  'WAITING',
  'DELAYED',
  'READY',
  'DISPATCHING',
  'RUNNING',
  'UNKNOWN',
  'SUCCEEDED',
  'FAILED',
  'TIMED_OUT',
  'CANCELLED',
  'SKIPPED',
  'MISSED',
] as const satisfies readonly BatchState[]

export const executorStates = [
  'PENDING',
  'ONLINE',
  'SUSPECT',
  'OFFLINE',
  'DRAINING',
  'REFUSED',
] as const satisfies readonly ExecutorState[]

const finalStates: ReadonlySet<string> = new Set([
  'SUCCEEDED',
  'FAILED',
  'TIMED_OUT',
  'CANCELLED',
  'SKIPPED',
  'MISSED',
  'REJECTED',
  'LOST',
])

export function isFinal(state: BatchState | ExecutionState): boolean {
  return finalStates.has(state)
}
