// The names the pages use for what the API returns. This is the one place that
// follows when the generated schema names a thing otherwise.
import type { components } from './schema'

type S = components['schemas']

export type Text = S['Text']
export type Reason = S['Reason']
export type Invalid = S['Invalid']
export type Problem = S['Problem']
export type Session = S['Session']
export type User = S['User']
export type Me = S['Me']
export type Meta = S['Meta']
export type Membership = S['Membership']
export type App = S['App']
export type AppCreated = S['AppCreated']
export type Trigger = S['Trigger']
export type Job = S['Job']
export type JobInput = S['JobInput']
export type Preview = S['Preview']
export type Fire = S['Fire']
export type Batch = S['Batch']
export type BatchDetail = S['BatchDetail']
export type BatchState = S['BatchState']
export type Execution = S['Execution']
export type ExecutionState = S['ExecutionState']
export type ExecutionEvent = S['ExecutionEvent']
export type Executor = S['Executor']
export type ExecutorState = S['ExecutorState']
export type AuditEntry = S['AuditEntry']
export type Summary = S['Summary']

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
