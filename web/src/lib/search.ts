// Filters live in the URL, as plain text: ?state=FAILED,TIMED_OUT&range=24h. What a
// hand-edited address holds that is not a filter's value is dropped.
import { type BatchState, batchStates, type ExecutorState, executorStates } from '../api/types'

type Raw = Record<string, unknown>

export function parseSearch(search: string): Record<string, string> {
  return Object.fromEntries(new URLSearchParams(search))
}

export function stringifySearch(search: Raw): string {
  const params = new URLSearchParams()
  for (const [key, value] of Object.entries(search)) {
    if (value !== undefined && value !== null && value !== '') params.set(key, String(value))
  }
  // Commas and colons are legal in a query and stay readable.
  const text = params.toString().replaceAll('%2C', ',').replaceAll('%3A', ':')
  return text ? `?${text}` : ''
}

function text(raw: Raw, key: string): string | undefined {
  const value = raw[key]
  return typeof value === 'string' && value !== '' ? value : undefined
}

function oneOf<T extends string>(raw: Raw, key: string, allowed: readonly T[]): T | undefined {
  return allowed.find((value) => value === raw[key])
}

export function splitList<T extends string>(value: string | undefined, allowed: readonly T[]): T[] {
  const parts = new Set((value ?? '').split(','))
  return allowed.filter((one) => parts.has(one))
}

function list<T extends string>(raw: Raw, key: string, allowed: readonly T[]): string | undefined {
  return splitList(text(raw, key), allowed).join(',') || undefined
}

export const ranges = ['15m', '1h', '6h', '24h', '7d', '30d'] as const
export type Range = (typeof ranges)[number]

const rangeMillis: Record<Range, number> = {
  '15m': 900_000,
  '1h': 3_600_000,
  '6h': 21_600_000,
  '24h': 86_400_000,
  '7d': 604_800_000,
  '30d': 2_592_000_000,
}

export interface Window {
  range?: Range
  from?: string
  to?: string
}

function instant(raw: Raw, key: string): string | undefined {
  const value = text(raw, key)
  return value && Number.isFinite(Date.parse(value)) ? value : undefined
}

function window(raw: Raw): Window {
  const from = instant(raw, 'from')
  const to = instant(raw, 'to')
  if (from || to) return { from, to }
  return { range: oneOf(raw, 'range', ranges) }
}

// bounds turns a window into the two ends that the API takes. A relative one has no
// end: it means until now, and later.
export function bounds(w: Window, now: number): { from?: string; to?: string } {
  if (w.from || w.to) return { from: w.from, to: w.to }
  return { from: new Date(now - rangeMillis[w.range ?? '24h']).toISOString() }
}

export interface JobSearch {
  q?: string
  app?: string
  state?: 'enabled' | 'disabled'
}
export const jobSearch = (raw: Raw): JobSearch => ({
  q: text(raw, 'q'),
  app: text(raw, 'app'),
  state: oneOf(raw, 'state', ['enabled', 'disabled']),
})

export interface BatchSearch extends Window {
  job?: string
  state?: string
}
export const batchSearch = (raw: Raw): BatchSearch => ({
  job: text(raw, 'job'),
  state: list<BatchState>(raw, 'state', batchStates),
  ...window(raw),
})

export interface DelayedSearch {
  job?: string
  key?: string
  state?: string
}
export const delayedSearch = (raw: Raw): DelayedSearch => ({
  job: text(raw, 'job'),
  key: text(raw, 'key'),
  state: list<BatchState>(raw, 'state', batchStates),
})

export interface ExecutorSearch {
  q?: string
  app?: string
  state?: string
}
export const executorSearch = (raw: Raw): ExecutorSearch => ({
  q: text(raw, 'q'),
  app: text(raw, 'app'),
  state: list<ExecutorState>(raw, 'state', executorStates),
})

export interface AuditSearch extends Window {
  actor?: string
  action?: string
  object?: string
  open?: string
}
export const auditSearch = (raw: Raw): AuditSearch => ({
  actor: text(raw, 'actor'),
  action: text(raw, 'action'),
  object: text(raw, 'object'),
  open: text(raw, 'open'),
  ...window(raw),
})

export const jobTabs = ['overview', 'executions', 'definition', 'versions'] as const
export interface JobDetailSearch {
  tab?: (typeof jobTabs)[number]
}
export const jobDetailSearch = (raw: Raw): JobDetailSearch => ({ tab: oneOf(raw, 'tab', jobTabs) })

export const batchTabs = ['output', 'data', 'choice', 'events'] as const
export interface BatchDetailSearch {
  tab?: (typeof batchTabs)[number]
  exec?: string
}
export const batchDetailSearch = (raw: Raw): BatchDetailSearch => ({
  tab: oneOf(raw, 'tab', batchTabs),
  exec: text(raw, 'exec'),
})

export interface NewJobSearch {
  clone?: string
}
export const newJobSearch = (raw: Raw): NewJobSearch => ({ clone: text(raw, 'clone') })

export interface LoginSearch {
  to?: string
}
// Only a path inside the console may follow the login, never another site.
export const loginSearch = (raw: Raw): LoginSearch => {
  const to = text(raw, 'to')
  return { to: to && /^\/(?![/\\])/.test(to) ? to : undefined }
}

export interface SetupSearch {
  token?: string
}
export const setupSearch = (raw: Raw): SetupSearch => ({ token: text(raw, 'token') })
