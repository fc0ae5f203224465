import type { Job, JobInput } from '../api/types'
import { localZone } from './time'

export const strategies = [
  'roundRobin',
  'consistentHash',
  'shardingBroadcast',
  'first',
  'last',
  'random',
  'leastUsed',
  'leastRecent',
  'leastBusy',
  'failover',
  'weighted',
] as const
export const concurrencyPolicies = ['skip', 'queueOne', 'queueAll', 'cover', 'allow'] as const
export const misfirePolicies = ['skip', 'once', 'all'] as const

export function emptyJob(app: string): JobInput {
  return {
    name: '',
    app,
    handler: '',
    description: '',
    triggers: [{ kind: 'cron', expr: '0 0 8 * * ?', dialect: 'quartz', zone: localZone, clockChange: 'once' }],
    params: '',
    routing: { strategy: 'roundRobin', hashKey: '', selector: '', rule: '' },
    retry: { max: 3, backoff: 'exponential', initial: '1s', jitter: 10 },
    timeout: '0s',
    wait: { limit: '0s', do: 'fail' },
    concurrency: { policy: 'skip', max: 1 },
    misfire: { policy: 'once', window: '1h', max: 100, order: 'oldest', rate: 10 },
    priority: 0,
    resources: {},
    limits: [],
    enabled: true,
  }
}

// writable is the part of a job that a person may change.
export function writable(job: Job | JobInput): JobInput {
  const {
    name,
    app,
    handler,
    description,
    triggers,
    params,
    routing,
    retry,
    timeout,
    wait,
    concurrency,
    misfire,
    priority,
    resources,
    limits,
    enabled,
  } = job
  return {
    name,
    app,
    handler,
    description,
    triggers,
    params,
    routing,
    retry,
    timeout,
    wait,
    concurrency,
    misfire,
    priority,
    resources,
    limits,
    enabled,
  }
}

export interface Change {
  path: string
  from: unknown
  to: unknown
}

function same(a: unknown, b: unknown): boolean {
  const empty = (value: unknown) => value === undefined || value === null || value === ''
  return (empty(a) && empty(b)) || a === b
}

// changes lists what differs between two values, field by field, deepest first named.
export function changes(from: unknown, to: unknown, path = ''): Change[] {
  const both = (test: (value: unknown) => boolean) => test(from) && test(to)
  if (both(Array.isArray)) {
    const [a, b] = [from as unknown[], to as unknown[]]
    return Array.from({ length: Math.max(a.length, b.length) }).flatMap((_, i) => changes(a[i], b[i], `${path}[${i}]`))
  }
  const isObject = (value: unknown) => typeof value === 'object' && value !== null && !Array.isArray(value)
  if (both(isObject)) {
    const [a, b] = [from as Record<string, unknown>, to as Record<string, unknown>]
    return [...new Set([...Object.keys(a), ...Object.keys(b)])].flatMap((key) =>
      changes(a[key], b[key], path ? `${path}.${key}` : key),
    )
  }
  return same(from, to) ? [] : [{ path, from, to }]
}

export function show(value: unknown): string {
  if (value === undefined || value === null || value === '') return ''
  return typeof value === 'object' ? JSON.stringify(value) : String(value)
}

// zoneOf is the zone a job's pages may follow: that of its first trigger that has one.
export function zoneOf(job: Pick<Job, 'triggers'> | undefined): string | undefined {
  return job?.triggers.find((trigger) => trigger.zone)?.zone
}

// curlOf writes a call as a command line. The quoting is a POSIX shell's.
export function curlOf(method: string, url: string, body?: unknown): string {
  const quote = (text: string) => `'${text.replaceAll("'", "'\\''")}'`
  const lines = [`curl -X ${method} ${quote(url)}`, `-H "Authorization: Bearer $AX_TOKEN"`]
  if (body !== undefined)
    lines.push(`-H 'Content-Type: application/json'`, `--data ${quote(JSON.stringify(body, null, 2))}`)
  return lines.join(' \\\n  ')
}

// wordOf is the word for a value that is known, else the value.
export function wordOf<K extends string>(known: readonly K[], value: string, word: (key: K) => string): string {
  const key = known.find((one) => one === value)
  return key ? word(key) : value
}
