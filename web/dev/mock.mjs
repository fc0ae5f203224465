// A stand-in for the server's API, for work on the console alone. Everything is in
// memory; jobs run by themselves, so that lists, outputs and counters move.
//
//	node dev/mock.mjs [port]        user admin, password "correct horse battery"
//
// MOCK_EMPTY=1 starts without apps and jobs; MOCK_SETUP=1 without an administrator.
import { createServer } from 'node:http'
import { fires, inZone, Refused, spanMillis } from './cron.mjs'

const port = Number(process.argv[2] ?? 8081)
const user = { id: '1', name: 'admin', displayName: 'Lin Admin' }
const password = 'correct horse battery'
let setupRequired = process.env.MOCK_SETUP === '1'
const tokens = new Set()
const cookies = new Set()
let serial = 1000
const nextId = () => String(++serial)
const now = () => Date.now()
const iso = (at) => (at === null || at === undefined ? null : new Date(at).toISOString())
const text = (en, zh) => ({ en, zh })
const permissions = [
  'job.create',
  'job.update',
  'job.delete',
  'job.run',
  'job.pause',
  'batch.cancel',
  'batch.retry',
  'log.read',
  'audit.read',
  'app.create',
]
const namespaces = [
  { name: 'default', displayName: 'Default', role: 'admin', can: permissions },
  { name: 'billing', displayName: '计费', role: 'viewer', can: ['log.read', 'audit.read'] },
]

const store = {}
for (const { name } of namespaces) store[name] = { apps: [], jobs: [], batches: [], executors: [] }
const audit = []

function note(ns, action, object, before, after) {
  const diff = []
  for (const key of new Set([...Object.keys(before ?? {}), ...Object.keys(after ?? {})])) {
    const [a, b] = [before?.[key], after?.[key]]
    if (JSON.stringify(a) !== JSON.stringify(b)) {
      diff.push({
        op: a === undefined ? 'add' : b === undefined ? 'remove' : 'replace',
        path: `/${key}`,
        from: a ?? null,
        value: b ?? null,
      })
    }
  }
  audit.unshift({
    id: nextId(),
    at: iso(now()),
    namespace: ns,
    actor: { type: 'user', id: user.id, name: user.name },
    ip: '10.20.0.7',
    action,
    object,
    outcome: 'ok',
    requestId: `r-${nextId()}`,
    before: before ?? null,
    after: after ?? null,
    diff,
  })
}

function words(job) {
  const [t] = job.triggers
  if (!t) return text('Manual only', '仅手动')
  if (t.kind === 'fixedRate') return text(`every ${t.every}`, `每 ${t.every} 一次`)
  if (t.kind === 'fixedDelay') return text(`${t.every} after the last end`, `上次结束后 ${t.every}`)
  const known = {
    '0 0/5 * * * ?': text('every 5 minutes', '每 5 分钟'),
    '0 0 8 * * ?': text('every day at 08:00', '每天 08:00'),
    '0 30 2 * * ?': text('every day at 02:30', '每天 02:30'),
    '0 0 9 ? * MON-FRI': text('Monday to Friday at 09:00', '周一至周五 09:00'),
    '0/20 * * * * ?': text('every 20 seconds', '每 20 秒'),
  }
  return known[t.expr] ?? text(`cron ${t.expr}`, `cron ${t.expr}`)
}

function nextOf(job) {
  const times = job.triggers.flatMap((t) => {
    try {
      if (t.kind === 'cron') return fires(t, now(), 1).map((fire) => fire.instant)
      return [now() + spanMillis(t.every)]
    } catch {
      return []
    }
  })
  return times.length > 0 ? Math.min(...times) : null
}

function jobView(ns, job) {
  const last = store[ns].batches.filter((b) => b.jobId === job.id).slice(0, 20)
  return {
    ...job,
    scheduleText: words(job),
    nextTriggerAt: job.enabled ? iso(nextOf(job)) : null,
    lastTriggerAt: last[0]?.dueAt ?? null,
    lastBatches: last.map(({ batchId, state, dueAt }) => ({ batchId, state, dueAt })),
  }
}

const outputs = new Map()
function say(execution, line) {
  const at = new Date().toISOString().slice(11, 23)
  const whole = outputs.get(execution.id) ?? ''
  outputs.set(execution.id, `${whole}${at} ${line}\n`)
  execution.outputBytes = Buffer.byteLength(outputs.get(execution.id))
}

const reasons = {
  FAILED: {
    code: 'shard_failed',
    en: '1 of 3 shards failed after 3 attempts: order 8812 has no customer',
    zh: '3 个分片中有 1 个在 3 次尝试后失败：订单 8812 没有客户',
  },
  TIMED_OUT: {
    code: 'timeout',
    en: 'It did not end within 30s; the executor confirmed the stop',
    zh: '未在 30s 内结束；执行器已确认停止',
  },
  SKIPPED: {
    code: 'still_running',
    en: 'The batch before it was still running, and the job skips then',
    zh: '前一批次仍在执行，按阻塞策略丢弃',
  },
  MISSED: {
    code: 'no_server',
    en: 'No server was up at 02:30; the window of 1h had passed when one was',
    zh: '02:30 没有服务器在线；恢复时已超过 1h 的补跑窗口',
  },
  CANCELLED: { code: 'by_person', en: 'Cancelled by admin', zh: '由 admin 取消' },
}

function batchIdOf(job, at) {
  return `${job.id}-${inZone(at, 'Asia/Shanghai').slice(0, 19).replace(/[-T:]/g, '')}`
}

function openBatch(ns, job, at, trigger, state = 'READY', params = job.params) {
  const shards = job.routing.strategy === 'shardingBroadcast' ? 3 : 1
  let batchId = batchIdOf(job, at)
  if (trigger === 'manual') batchId += `.${nextId()}`
  const batch = {
    batchId,
    jobId: job.id,
    jobName: job.name,
    app: job.app,
    trigger,
    triggerNo: trigger === 'manual' ? 0 : 1,
    state,
    reason: reasons[state] ?? null,
    dueAt: iso(at),
    plannedFor: iso(at),
    startedAt: null,
    finishedAt: null,
    durationMs: null,
    shardTotal: shards,
    shardsDone: 0,
    shardsFailed: 0,
    attempts: 0,
    jobVersion: job.version,
    params,
    createdBy: trigger === 'manual' ? user.name : '',
    executions: [],
  }
  store[ns].batches.unshift(batch)
  return batch
}

function execution(batch, shard, attempt, executor, at) {
  const one = {
    id: nextId(),
    batchId: batch.batchId,
    shard,
    shardTotal: batch.shardTotal,
    attempt,
    state: 'RUNNING',
    executor: { id: executor.id, address: executor.address },
    dueAt: batch.dueAt,
    startedAt: iso(at),
    finishedAt: null,
    durationMs: null,
    waitedMs: at - Date.parse(batch.dueAt),
    error: '',
    result: '',
    progress: 0,
    outputBytes: 0,
    stopAsked: false,
    stopConfirmed: false,
    events: [
      { at: iso(at - 30), kind: 'dispatched', detail: `to ${executor.address}` },
      { at: iso(at), kind: 'started', detail: '' },
    ],
  }
  batch.executions.push(one)
  return one
}

function finish(one, state, at, error = '') {
  one.state = state
  one.finishedAt = iso(at)
  one.durationMs = at - Date.parse(one.startedAt)
  one.error = error
  one.progress = state === 'SUCCEEDED' ? 100 : one.progress
  one.result = state === 'SUCCEEDED' ? JSON.stringify({ rows: 1200 + one.shard }) : ''
  one.events.push({ at: iso(at), kind: 'finished', detail: state })
}

function close(batch, state, at) {
  batch.state = state
  batch.reason = batch.reason ?? reasons[state] ?? null
  batch.finishedAt = iso(at)
  batch.durationMs = at - Date.parse(batch.startedAt ?? batch.dueAt)
  batch.shardsDone = batch.shardTotal
  batch.shardsFailed = new Set(batch.executions.filter((e) => e.state !== 'SUCCEEDED').map((e) => e.shard)).size
  for (const e of batch.executions)
    if (e.state === 'SUCCEEDED')
      batch.shardsFailed -= batch.executions.some((o) => o.shard === e.shard && o.state !== 'SUCCEEDED') ? 1 : 0
}

// run plays a batch in real time.
async function run(ns, batch, seconds = 8) {
  const online = store[ns].executors.filter((e) => e.state === 'ONLINE' && e.app === batch.app)
  const sleep = (ms) => new Promise((resolve) => setTimeout(resolve, ms))
  await sleep(200)
  if (online.length === 0) return
  batch.state = 'DISPATCHING'
  await sleep(150)
  batch.state = 'RUNNING'
  batch.startedAt = iso(now())
  batch.attempts = 1
  const all = Array.from({ length: batch.shardTotal }, (_, shard) =>
    execution(batch, shard, 1, online[shard % online.length], now()),
  )
  for (const one of all)
    say(one, `INFO  ${batch.jobName} starts, shard ${one.shard} of ${one.shardTotal} 中文 ✓ <b>not bold</b>`)
  const steps = seconds * 4
  for (let step = 1; step <= steps; step++) {
    await sleep(250)
    for (const one of all) {
      if (one.state === 'STOPPING') {
        one.stopConfirmed = true
        say(one, 'WARN  stop was asked for, leaving')
        finish(one, 'CANCELLED', now())
      }
      if (one.state !== 'RUNNING') continue
      one.progress = Math.round((step / steps) * 100)
      say(one, `INFO  copied ${step * 50} rows of ${steps * 50}`)
      if (step === 7 && one.shard === 1)
        say(
          one,
          'ERROR order 8812 has no customer\njava.lang.IllegalStateException: no customer\n\tat shop.Orders.copy(Orders.java:88)',
        )
    }
  }
  for (const one of all) if (one.state === 'RUNNING') finish(one, 'SUCCEEDED', now())
  close(batch, all.some((one) => one.state === 'CANCELLED') ? 'CANCELLED' : 'SUCCEEDED', now())
}

function seedJob(ns, fields) {
  const job = {
    id: nextId(),
    name: '',
    app: 'order-service',
    handler: 'syncOrders',
    description: '',
    triggers: [],
    params: '',
    routing: { strategy: 'roundRobin' },
    retry: { max: 3, backoff: 'exponential', initial: '1s' },
    timeout: '0s',
    concurrency: { policy: 'skip', max: 1 },
    misfire: { policy: 'once', window: '1h', max: 100 },
    priority: 2,
    enabled: true,
    version: 1,
    createdAt: iso(now() - 9e8),
    updatedAt: iso(now() - 3e8),
    updatedBy: 'admin',
    ...fields,
  }
  store[ns].jobs.push(job)
  return job
}

function seedBatch(ns, job, at, state, seconds) {
  const batch = openBatch(ns, job, at, 'cron', state)
  if (state === 'SKIPPED' || state === 'MISSED' || state === 'DELAYED') return batch
  const online = store[ns].executors.filter((e) => e.app === job.app)
  batch.startedAt = iso(at + 18)
  batch.attempts = state === 'FAILED' ? 3 : 1
  for (let shard = 0; shard < batch.shardTotal; shard++) {
    const bad = state !== 'SUCCEEDED' && (shard === 1 || batch.shardTotal === 1)
    const attempts = bad && state === 'FAILED' ? 3 : 1
    for (let attempt = 1; attempt <= attempts; attempt++) {
      const start = at + 18 + shard * 40 + (attempt - 1) * (seconds * 400)
      const one = execution(batch, shard, attempt, online[(shard + attempt) % online.length], start)
      outputs.set(
        one.id,
        Array.from(
          { length: 400 },
          (_, i) => `08:00:0${i % 10}.${100 + i} INFO  copied ${i * 50} rows of shard ${shard}`,
        ).join('\n') +
          (bad
            ? '\n08:00:09.900 ERROR order 8812 has no customer\njava.lang.IllegalStateException: no customer\n\tat shop.Orders.copy(Orders.java:88)\n'
            : '\n'),
      )
      one.outputBytes = Buffer.byteLength(outputs.get(one.id))
      one.progress = bad ? 40 : 100
      finish(
        one,
        bad ? (state === 'TIMED_OUT' ? 'TIMED_OUT' : 'FAILED') : 'SUCCEEDED',
        start + seconds * 300,
        bad ? 'IllegalStateException: order 8812 has no customer' : '',
      )
    }
  }
  close(batch, state, at + seconds * 1000)
  return batch
}

function seed() {
  const ns = 'default'
  const s = store[ns]
  s.apps.push(
    { name: 'order-service', protocol: 'ax', createdAt: iso(now() - 9e8) },
    { name: 'report-service', protocol: 'ax', createdAt: iso(now() - 5e8) },
  )
  const handlers = [
    { name: 'syncOrders', kind: 'sharding' },
    { name: 'healthCheck', kind: 'simple' },
    { name: 'hello', kind: 'simple' },
  ]
  const executor = (fields) => ({
    id: nextId(),
    app: 'order-service',
    address: '',
    state: 'ONLINE',
    reason: null,
    heartbeatAgeMs: 0,
    labels: { zone: 'a', disk: 'ssd' },
    cpu: 4,
    memoryMB: 8192,
    slots: 8,
    running: 2,
    handlers,
    sdk: 'go/0.1.0',
    registeredAt: iso(now() - 8e7),
    startId: '0f5c3a9e0f5c3a9e0f5c3a9e0f5c3a9e',
    ...fields,
  })
  s.executors.push(
    executor({ address: 'http://10.20.0.11:9801', running: 3 }),
    executor({ address: 'http://10.20.0.12:9801', labels: { zone: 'b' }, running: 8 }),
    executor({
      address: 'http://10.20.0.13:9801',
      state: 'SUSPECT',
      running: 1,
      reason: {
        code: 'late',
        en: 'No heartbeat for 34 s; its runs are being asked for',
        zh: '34 秒没有心跳；正在询问其执行状态',
      },
    }),
    executor({
      address: 'http://10.20.0.14:9801',
      state: 'DRAINING',
      running: 1,
      reason: { code: 'draining', en: 'It is shutting down and takes nothing new', zh: '正在关闭，不再接收新的执行' },
    }),
    executor({
      app: 'report-service',
      address: 'http://10.20.0.21:9801',
      sdk: 'java/0.1.0',
      handlers: [{ name: 'dailyReport', kind: 'simple' }],
      state: 'OFFLINE',
      running: 0,
      reason: { code: 'gone', en: 'No heartbeat for 12 min', zh: '12 分钟没有心跳' },
    }),
    executor({
      app: 'report-service',
      address: 'http://192.168.7.9:9801',
      sdk: 'python/0.1.0',
      handlers: [],
      state: 'REFUSED',
      running: 0,
      reason: {
        code: 'egress',
        en: 'The address 192.168.7.9:9801 is not in the egress list of this namespace',
        zh: '地址 192.168.7.9:9801 不在该命名空间的出口白名单中',
      },
    }),
  )
  const shanghai = { zone: 'Asia/Shanghai', dialect: 'quartz', clockChange: 'once', kind: 'cron', no: 1 }
  const sync = seedJob(ns, {
    name: 'sync-orders',
    triggers: [{ ...shanghai, expr: '0 0/5 * * * ?' }],
    routing: { strategy: 'shardingBroadcast' },
    version: 4,
    timeout: '30s',
    description: 'Copies new orders into the warehouse 将新订单复制到数仓',
    params: '{"table":"orders","batch":500}',
  })
  const nightly = seedJob(ns, {
    name: 'nightly-report',
    app: 'report-service',
    handler: 'dailyReport',
    triggers: [{ ...shanghai, expr: '0 30 2 * * ?', zone: 'America/New_York' }],
    priority: 4,
  })
  seedJob(ns, {
    name: 'health-check',
    handler: 'healthCheck',
    triggers: [{ kind: 'fixedRate', every: '30s', no: 1 }],
    priority: 0,
  })
  seedJob(ns, {
    name: '对账任务',
    handler: 'reconcile',
    triggers: [{ ...shanghai, expr: '0 0 9 ? * MON-FRI' }],
    enabled: false,
  })
  seedJob(ns, { name: '<img src=x onerror=alert(1)>', handler: 'hello', params: '<script>alert(1)</script>' })
  for (let i = 130; i > 0; i--) {
    const at = Math.floor(now() / 300_000) * 300_000 - i * 300_000
    seedBatch(
      ns,
      sync,
      at,
      i % 23 === 3 ? 'FAILED' : i % 31 === 5 ? 'TIMED_OUT' : i % 29 === 4 ? 'SKIPPED' : 'SUCCEEDED',
      4 + (i % 7),
    )
    if (i % 60 === 9) seedBatch(ns, nightly, at + 1000, i % 2 ? 'SUCCEEDED' : 'MISSED', 9)
  }
  seedBatch(ns, nightly, now() + 900_000, 'DELAYED', 0)
  store[ns].batches.sort((a, b) => (a.dueAt < b.dueAt ? 1 : -1))
  note(ns, 'app.create', { type: 'app', id: 'order-service', name: 'order-service' }, null, {
    name: 'order-service',
    protocol: 'ax',
  })
  note(
    ns,
    'job.update',
    { type: 'job', id: sync.id, name: sync.name },
    { timeout: '0s', priority: 1 },
    { timeout: '30s', priority: 2 },
  )
  setInterval(() => {
    const batch = openBatch(ns, sync, now(), 'cron')
    void run(ns, batch, 6)
  }, 20_000).unref()
  void run(ns, openBatch(ns, sync, now(), 'cron'), 60)
}
if (process.env.MOCK_EMPTY !== '1' && !setupRequired) seed()

class Problem extends Error {
  constructor(status, code, en, zh, errors = []) {
    super(en)
    Object.assign(this, { status, code, detail: text(en, zh), errors })
  }
}
const notFound = () => new Problem(404, 'not_found', 'There is no such thing.', '不存在。')

function check(job) {
  const errors = []
  const bad = (field, code, en, zh, suggestion = '') =>
    errors.push({ field, code, token: '', message: text(en, zh), suggestion })
  if (!job.name?.trim()) bad('name', 'required', 'A name is needed.', '请填写名称。')
  if (!job.handler?.trim()) bad('handler', 'required', 'A handler is needed.', '请填写处理器。')
  if (!/^(\d+(\.\d+)?(ms|s|m|h))+$/.test(job.timeout ?? ''))
    bad(
      'timeout',
      'bad_span',
      `${job.timeout} is not a span such as 30s.`,
      `${job.timeout} 不是时长，请写成 30s。`,
      '30s',
    )
  return errors.concat(preview(job.triggers ?? [], 1).errors)
}

function preview(triggers, count) {
  const errors = []
  const all = []
  const warnings = []
  for (const [i, trigger] of triggers.entries()) {
    try {
      if (trigger.kind === 'cron') {
        for (const fire of fires(trigger, now(), count)) all.push({ ...fire, trigger: i + 1, note: null })
        if (trigger.expr.startsWith('* ')) {
          warnings.push({
            code: 'every_second',
            trigger: i + 1,
            message: text('Fires every second of the matching minutes.', '在匹配的分钟内每秒触发。'),
          })
        }
      } else {
        const every = spanMillis(trigger.every)
        const n = trigger.kind === 'fixedDelay' ? 1 : count
        for (let k = 1; k <= n; k++) {
          const at = now() + k * every
          all.push({
            at: inZone(at, 'UTC'),
            instant: at,
            trigger: i + 1,
            note:
              trigger.kind === 'fixedDelay'
                ? text('Counted from the end of the run before it', '从上一次执行结束时算起')
                : null,
          })
        }
      }
    } catch (error) {
      if (!(error instanceof Refused)) throw error
      errors.push({ field: `triggers[${i}].${error.field ?? 'expr'}`, ...error.invalid })
    }
  }
  all.sort((a, b) => a.instant - b.instant)
  return {
    errors,
    body: { fires: all.slice(0, count).map(({ at, trigger, note }) => ({ at, trigger, note })), warnings },
  }
}

function refuse(errors) {
  if (errors.length > 0) throw new Problem(422, 'invalid', 'Some values were refused.', '部分值被拒绝。', errors)
}

function page(items, query) {
  const limit = Math.min(200, Number(query.get('limit') ?? 50))
  const from = Number(query.get('cursor') || 0)
  const next = from + limit < items.length ? String(from + limit) : ''
  return { items: items.slice(from, from + limit), nextCursor: next }
}

function session(response) {
  const token = `at-${nextId()}-${Math.random()}`
  const cookie = `rt-${nextId()}-${Math.random()}`
  tokens.add(token)
  cookies.add(cookie)
  response.setHeader('Set-Cookie', `ax_rt=${cookie}; HttpOnly; SameSite=Strict; Path=/`)
  return { accessToken: token, expiresIn: 600, user }
}

const routes = []
const on = (method, path, handle) =>
  routes.push({ method, pattern: new RegExp(`^${path.replace(/\{(\w+)\}/g, '(?<$1>[^/]+)')}$`), handle })
const N = '/api/v1/namespaces/{ns}'

on('POST', '/api/v1/auth/login', ({ body, response }) => {
  if (body.username !== user.name || body.password !== password)
    throw new Problem(401, 'bad_credentials', 'User name or password is wrong.', '用户名或密码错误。')
  return session(response)
})
on('POST', '/api/v1/auth/refresh', ({ request, response }) => {
  const cookie = /ax_rt=([^;]+)/.exec(request.headers.cookie ?? '')?.[1]
  if (!cookies.has(cookie)) throw new Problem(401, 'no_session', 'No session.', '没有会话。')
  return session(response)
})
on('POST', '/api/v1/auth/logout', ({ response }) => {
  response.setHeader('Set-Cookie', 'ax_rt=; Max-Age=0; Path=/')
  cookies.clear()
  return null
})
on('GET', '/api/v1/meta', () => ({
  version: '0.1.0',
  commit: '3e472bd',
  console: true,
  setupRequired,
  serverTime: iso(now()),
  clockDriftMs: 2,
  demo: true,
}))
on('POST', '/api/v1/setup', ({ body, response }) => {
  if (!setupRequired) throw new Problem(410, 'done', 'Already set up.', '已完成初始化。')
  if (body.token !== 'axb_dev')
    refuse([
      {
        field: 'token',
        code: 'bad_token',
        token: '',
        message: text('The setup link is not valid any more.', '初始化链接已失效。'),
        suggestion: '',
      },
    ])
  user.name = body.username
  setupRequired = false
  return session(response)
})
on('GET', '/api/v1/me', () => ({ ...user, platformAdmin: false, namespaces }))
on('GET', `${N}/summary`, ({ s }) => {
  const hour = (states) =>
    s.batches.filter((b) => states.includes(b.state) && Date.parse(b.dueAt) > now() - 3_600_000).length
  const have = (states) => s.batches.filter((b) => states.includes(b.state)).length
  return {
    jobs: s.jobs.length,
    jobsEnabled: s.jobs.filter((j) => j.enabled).length,
    running: have(['RUNNING', 'DISPATCHING', 'UNKNOWN']),
    queued: have(['READY', 'WAITING', 'DELAYED']),
    succeeded1h: hour(['SUCCEEDED']),
    failed1h: hour(['FAILED', 'TIMED_OUT']),
    missed1h: hour(['MISSED']),
    executorsOnline: s.executors.filter((e) => e.state === 'ONLINE').length,
    executorsTotal: s.executors.length,
    triggerErrorP99Ms: s.batches.length ? 38.4 : null,
  }
})
const appView = (s, app) => ({
  ...app,
  jobs: s.jobs.filter((j) => j.app === app.name).length,
  executors: {
    online: s.executors.filter((e) => e.app === app.name && e.state === 'ONLINE').length,
    total: s.executors.filter((e) => e.app === app.name).length,
  },
})
on('GET', `${N}/apps`, ({ s }) => ({ items: s.apps.map((app) => appView(s, app)) }))
on('POST', `${N}/apps`, ({ s, ns, body }) => {
  if (!/^[a-z][a-z0-9-]{1,62}$/.test(body.name)) {
    const good = body.name
      .toLowerCase()
      .replace(/[^a-z0-9]+/g, '-')
      .replace(/^-|-$/g, '')
    refuse([
      {
        field: 'name',
        code: 'bad_name',
        token: body.name,
        message: text(
          `${body.name} is not a name: lower-case letters, digits and hyphens, beginning with a letter.`,
          `${body.name} 不是合法名称：请用小写字母、数字和连字符，并以字母开头。`,
        ),
        suggestion: good,
      },
    ])
  }
  if (s.apps.some((a) => a.name === body.name))
    throw new Problem(409, 'exists', `The app ${body.name} is there already.`, `应用 ${body.name} 已存在。`)
  const app = { name: body.name, protocol: body.protocol, createdAt: iso(now()) }
  s.apps.push(app)
  note(ns, 'app.create', { type: 'app', id: app.name, name: app.name }, null, app)
  return [201, { ...appView(s, app), key: `axk_${'0123456789abcdef'.repeat(4)}` }]
})
on('GET', `${N}/jobs`, ({ s, ns, query }) => {
  const q = (query.get('q') ?? '').toLowerCase()
  const hit = s.jobs.filter(
    (j) =>
      (!q || `${j.name} ${j.handler}`.toLowerCase().includes(q)) &&
      (!query.get('app') || j.app === query.get('app')) &&
      (!query.get('state') || j.enabled === (query.get('state') === 'enabled')),
  )
  return page(
    hit.map((j) => jobView(ns, j)),
    query,
  )
})
on('POST', `${N}/jobs`, ({ s, ns, body }) => {
  refuse(check(body))
  const job = seedJob(ns, {
    ...body,
    triggers: body.triggers.map((t, i) => ({ no: i + 1, ...t })),
    createdAt: iso(now()),
    updatedAt: iso(now()),
    updatedBy: user.name,
  })
  note(ns, 'job.create', { type: 'job', id: job.id, name: job.name }, null, body)
  void s
  return [201, jobView(ns, job)]
})
const jobOf = (s, id) => {
  const job = s.jobs.find((j) => j.id === id)
  if (!job) throw notFound()
  return job
}
const current = (job, version) => {
  if (Number(version) !== job.version)
    throw new Problem(409, 'stale_version', 'The job was changed meanwhile.', '任务已被他人修改。')
}
on('GET', `${N}/jobs/{id}`, ({ s, ns, path }) => jobView(ns, jobOf(s, path.id)))
on('PUT', `${N}/jobs/{id}`, ({ s, ns, path, body }) => {
  const job = jobOf(s, path.id)
  current(job, body.version)
  refuse(check(body))
  const before = { ...job }
  Object.assign(job, body, { version: job.version + 1, updatedAt: iso(now()), updatedBy: user.name })
  note(ns, 'job.update', { type: 'job', id: job.id, name: job.name }, before, { ...job })
  return jobView(ns, job)
})
on('DELETE', `${N}/jobs/{id}`, ({ s, ns, path, query }) => {
  const job = jobOf(s, path.id)
  current(job, query.get('version'))
  s.jobs = s.jobs.filter((j) => j !== job)
  note(ns, 'job.delete', { type: 'job', id: job.id, name: job.name }, job, null)
  return null
})
for (const [verb, enabled] of [
  ['enable', true],
  ['disable', false],
]) {
  on('POST', `${N}/jobs/{id}/${verb}`, ({ s, ns, path, body }) => {
    const job = jobOf(s, path.id)
    current(job, body.version)
    note(ns, `job.${verb}`, { type: 'job', id: job.id, name: job.name }, { enabled: job.enabled }, { enabled })
    Object.assign(job, { enabled, version: job.version + 1 })
    return jobView(ns, job)
  })
}
on('POST', `${N}/jobs/{id}/trigger`, ({ s, ns, path, body }) => {
  const job = jobOf(s, path.id)
  const batch = openBatch(ns, job, now(), 'manual', 'READY', body.params ?? job.params)
  void run(ns, batch)
  note(ns, 'job.run', { type: 'job', id: job.id, name: job.name }, null, { batchId: batch.batchId })
  return { batchId: batch.batchId }
})
on('POST', `${N}/schedule/preview`, ({ body }) => {
  const { errors, body: answer } = preview(body.triggers, body.count ?? 10)
  refuse(errors)
  return answer
})
const inWindow = (query, at) =>
  (!query.get('from') || at >= query.get('from')) && (!query.get('to') || at < query.get('to'))
on('GET', `${N}/batches`, ({ s, query }) => {
  const states = query.get('state')?.split(',')
  const hit = s.batches.filter(
    (b) =>
      (!query.get('job') || b.jobId === query.get('job')) &&
      (!states || states.includes(b.state)) &&
      inWindow(query, b.dueAt),
  )
  return page(
    hit.map(({ executions: _, ...b }) => b),
    query,
  )
})
const batchOf = (s, id) => {
  const batch = s.batches.find((b) => b.batchId === decodeURIComponent(id))
  if (!batch) throw notFound()
  return batch
}
on('GET', `${N}/batches/{id}`, ({ s, path }) => batchOf(s, path.id))
on('POST', `${N}/batches/{id}/cancel`, ({ s, ns, path }) => {
  const batch = batchOf(s, path.id)
  for (const one of batch.executions) {
    if (one.state === 'RUNNING') Object.assign(one, { state: 'STOPPING', stopAsked: true })
  }
  if (batch.executions.length === 0) close(batch, 'CANCELLED', now())
  note(ns, 'batch.cancel', { type: 'batch', id: batch.batchId, name: batch.batchId }, null, null)
  return [202, batch]
})
on('POST', `${N}/batches/{id}/retry`, ({ s, ns, path }) => {
  const batch = batchOf(s, path.id)
  Object.assign(batch, { state: 'READY', finishedAt: null, durationMs: null, reason: null })
  void run(ns, batch, 4)
  return [202, batch]
})
const executionOf = (s, id) => {
  const one = s.batches.flatMap((b) => b.executions).find((e) => e.id === id)
  if (!one) throw notFound()
  return one
}
on('GET', `${N}/executions/{id}`, ({ s, path }) => executionOf(s, path.id))
const slice = (id, offset, limit) => {
  const bytes = Buffer.from(outputs.get(id) ?? '')
  let end = Math.min(bytes.length, offset + limit)
  while (end < bytes.length && (bytes[end] & 0xc0) === 0x80) end--
  return { text: bytes.subarray(offset, end).toString(), nextOffset: end, whole: end === bytes.length }
}
on('GET', `${N}/executions/{id}/output`, ({ s, path, query }) => {
  const one = executionOf(s, path.id)
  const {
    text: got,
    nextOffset,
    whole,
  } = slice(one.id, Number(query.get('offset') ?? 0), Number(query.get('limit') ?? 262144))
  return { text: got, nextOffset, end: whole && one.finishedAt !== null }
})
on('GET', `${N}/executions/{id}/output/stream`, ({ s, path, query, request, response }) => {
  const one = executionOf(s, path.id)
  let offset = Number(query.get('offset') ?? 0)
  let progress = -1
  response.writeHead(200, { 'Content-Type': 'text/event-stream', 'Cache-Control': 'no-store' })
  const send = (event, data, id) =>
    response.write(`${id === undefined ? '' : `id: ${id}\n`}event: ${event}\ndata: ${JSON.stringify(data)}\n\n`)
  const tick = () => {
    const got = slice(one.id, offset, 65_536)
    if (got.nextOffset > offset) {
      offset = got.nextOffset
      send('output', { text: got.text, nextOffset: offset }, offset)
    }
    if (one.progress !== progress) {
      progress = one.progress
      send('progress', { progress })
    }
    if (one.finishedAt && got.whole) {
      send('end', { state: one.state })
      clearInterval(timer)
      response.end()
    }
  }
  const timer = setInterval(tick, 250)
  response.write(': hello\n\n')
  request.on('close', () => clearInterval(timer))
  return 'streaming'
})
on('GET', `${N}/executors`, ({ s, query }) => ({
  items: s.executors
    .filter(
      (e) =>
        (!query.get('app') || e.app === query.get('app')) &&
        (!query.get('state') || query.get('state').split(',').includes(e.state)),
    )
    .map((e) => ({
      ...e,
      heartbeatAgeMs: e.state === 'OFFLINE' ? 720_000 : e.state === 'SUSPECT' ? 34_000 : now() % 10_000,
    })),
}))
on('GET', '/api/v1/audit', ({ query }) =>
  page(
    audit.filter(
      (e) =>
        (!query.get('namespace') || e.namespace === query.get('namespace')) &&
        (!query.get('actor') || e.actor.name.includes(query.get('actor'))) &&
        (!query.get('action') || e.action.includes(query.get('action'))) &&
        (!query.get('object') || e.object.name.includes(query.get('object'))) &&
        inWindow(query, e.at),
    ),
    query,
  ),
)

const open = ['/api/v1/auth/', '/api/v1/meta', '/api/v1/setup']

const server = createServer(async (request, response) => {
  const url = new URL(request.url, 'http://mock')
  const zh = (request.headers['accept-language'] ?? '').startsWith('zh')
  const answer = (status, body, type = 'application/json') => {
    response.writeHead(status, { 'Content-Type': type, 'Cache-Control': 'no-store' })
    response.end(body === null ? undefined : JSON.stringify(body))
  }
  try {
    const token = (request.headers.authorization ?? '').replace('Bearer ', '')
    if (!open.some((path) => url.pathname.startsWith(path)) && !tokens.has(token))
      throw new Problem(401, 'unauthenticated', 'Sign in first.', '请先登录。')
    let raw = ''
    for await (const piece of request) raw += piece
    const route = routes.find((one) => one.method === request.method && one.pattern.test(url.pathname))
    if (!route) throw notFound()
    const path = { ...route.pattern.exec(url.pathname).groups }
    const s = path.ns ? store[path.ns] : undefined
    if (path.ns && !s)
      throw new Problem(403, 'forbidden', 'You are no member of this namespace.', '您不是该命名空间的成员。')
    const result = route.handle({
      request,
      response,
      path,
      query: url.searchParams,
      body: raw ? JSON.parse(raw) : {},
      s,
      ns: path.ns,
    })
    if (result === 'streaming') return
    if (Array.isArray(result)) answer(...result)
    else answer(result === null ? 204 : 200, result)
  } catch (error) {
    if (!(error instanceof Problem)) {
      console.error(error)
      answer(
        500,
        { title: 'Internal error', status: 500, code: 'internal', detail: String(error) },
        'application/problem+json',
      )
      return
    }
    answer(
      error.status,
      {
        type: 'about:blank',
        title: error.code,
        status: error.status,
        code: error.code,
        detail: zh ? error.detail.zh : error.detail.en,
        requestId: `r-${nextId()}`,
        errors: error.errors,
      },
      'application/problem+json',
    )
  }
})
// Longer than a proxy in front keeps a connection, or it would send into a closed one.
server.keepAliveTimeout = 120_000
server.listen(port, '127.0.0.1', () => console.log(`mock API on http://127.0.0.1:${port}`))
