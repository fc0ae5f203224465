import { useQuery, useQueryClient } from '@tanstack/react-query'
import { Link, useBlocker, useNavigate, useParams, useSearch } from '@tanstack/react-router'
import { App, AutoComplete, Button, Input, InputNumber, Modal, Switch } from 'antd'
import { useMemo, useRef, useState } from 'react'
import { api, must, refusedOf } from '../api/client'
import { appsQuery, calendarsQuery, executorsQuery, jobQuery } from '../api/queries'
import type { Invalid, Job, JobInput } from '../api/types'
import { CopyButton, ErrorBox, Field, Guarded, PageHead, Skeleton } from '../components/basics'
import { useShowError } from '../components/mutations'
import { PreviewPanel } from '../components/PreviewPanel'
import { otherFields, shownFields as shownOfTrigger, TriggerEditor, useRefusalsAt } from '../components/TriggerEditor'
import { usePreview } from '../components/usePreview'
import { useT, useText } from '../i18n/useText'
import { baseURL } from '../lib/base'
import {
  type Change,
  changes,
  concurrencyPolicies,
  curlOf,
  emptyJob,
  misfirePolicies,
  show,
  strategies,
  writable,
} from '../lib/job'
import { NotFound } from '../shell/errors'
import { useCan, useNamespace } from '../shell/namespace'

export function NewJob() {
  const t = useT()
  const ns = useNamespace()
  const { clone } = useSearch({ from: '/ns/$ns/jobs/new' })
  const apps = useQuery(appsQuery(ns))
  const source = useQuery({ ...jobQuery(ns, clone ?? ''), enabled: clone !== undefined })
  if (apps.isPending || (clone !== undefined && source.isPending)) return <Skeleton />
  if (!apps.data) return <ErrorBox error={apps.error} retry={() => void apps.refetch()} />
  if (clone !== undefined && !source.data) return <ErrorBox error={source.error} retry={() => void source.refetch()} />
  let start = emptyJob(apps.data.items[0]?.name ?? '')
  if (source.data) {
    start = writable(source.data)
    start.name = t('form.cloneName', { name: start.name })
    // A trigger's number is its own; the copy gets new ones.
    start.triggers = start.triggers.map(({ no: _, ...trigger }) => trigger)
  }
  return <JobForm key={clone ?? 'new'} start={start} base={null} />
}

export function EditJob() {
  const ns = useNamespace()
  const { id } = useParams({ from: '/ns/$ns/jobs/$id/edit' })
  // What is being edited must not change under the hands of who edits it.
  const job = useQuery({ ...jobQuery(ns, id), refetchOnWindowFocus: false, staleTime: 0 })
  const [generation, setGeneration] = useState(0)
  if (job.isPending || (job.isFetching && !job.isFetchedAfterMount)) return <Skeleton />
  if (!job.data) {
    if (refusedOf(job.error).status === 404) return <NotFound />
    return <ErrorBox error={job.error} retry={() => void job.refetch()} />
  }
  return (
    <JobForm
      key={`${id}-${generation}`}
      start={writable(job.data)}
      base={job.data}
      reload={async () => {
        await job.refetch()
        setGeneration((n) => n + 1)
      }}
    />
  )
}

const sections = ['basics', 'schedule', 'params', 'routing', 'retry', 'limits', 'misfire'] as const

function JobForm({ start, base, reload }: { start: JobInput; base: Job | null; reload?: () => Promise<void> }) {
  const t = useT()
  const ns = useNamespace()
  const can = useCan()
  const navigate = useNavigate()
  const client = useQueryClient()
  const { message } = App.useApp()
  const showError = useShowError()
  const apps = useQuery(appsQuery(ns))
  const executors = useQuery(executorsQuery(ns))
  const calendars = useQuery(calendarsQuery(ns))
  const [job, setJob] = useState(start)
  // The version that the edits are based on; a conflict may move it on.
  const [against, setAgainst] = useState(base)
  const [refused, setRefused] = useState<Invalid[]>([])
  const [stale, setStale] = useState(false)
  const [review, setReview] = useState(false)
  const [busy, setBusy] = useState(false)
  const done = useRef(false)
  const form = useRef<HTMLFormElement>(null)
  const preview = usePreview(job.triggers)

  const dirty = changes(start, job).length > 0
  useBlocker({
    shouldBlockFn: () => dirty && !done.current && !window.confirm(t('form.leave')),
    enableBeforeUnload: () => dirty && !done.current,
  })

  // The preview is the fresher word on the schedule.
  const errors = [...refused.filter((one) => !one.field.startsWith('triggers')), ...preview.errors].concat(
    preview.errors.length === 0 && !preview.preview ? refused.filter((one) => one.field.startsWith('triggers')) : [],
  )
  const at = useRefusalsAt(errors)

  function set(change: Partial<JobInput>) {
    setJob((old) => ({ ...old, ...change }))
    const touched = Object.keys(change)
    setRefused((old) => old.filter((one) => !touched.some((field) => one.field.split(/[.[]/)[0] === field)))
  }

  const handlers = useMemo(() => {
    const offered = new Set<string>()
    for (const one of executors.data?.items ?? []) {
      if (one.app === job.app && one.state === 'ONLINE') for (const handler of one.handlers) offered.add(handler.name)
    }
    return [...offered].sort()
  }, [executors.data, job.app])
  const handlerUnknown = executors.isSuccess && job.handler.trim() !== '' && !handlers.includes(job.handler.trim())

  async function save() {
    setBusy(true)
    const body = { ...job, limits: job.limits.filter(Boolean) }
    try {
      const saved = against
        ? await must(
            api.PUT('/api/v1/namespaces/{namespace}/jobs/{id}', {
              params: { path: { namespace: ns, id: against.id } },
              body: { ...body, version: against.version },
            }),
          )
        : await must(api.POST('/api/v1/namespaces/{namespace}/jobs', { params: { path: { namespace: ns } }, body }))
      done.current = true
      message.success(
        against
          ? t('form.saved', { name: saved.name, version: saved.version })
          : t('form.created', { name: saved.name }),
      )
      client.setQueryData([ns, 'job', saved.id], saved)
      await client.invalidateQueries({ queryKey: [ns] })
      await navigate({ to: '/ns/$ns/jobs/$id', params: { ns, id: saved.id } })
    } catch (error) {
      const answer = refusedOf(error)
      setReview(false)
      if (answer.code === 'stale_version') setStale(true)
      else if (answer.errors.length > 0) {
        setRefused(answer.errors)
        setTimeout(() => form.current?.querySelector<HTMLElement>('[aria-invalid=true]')?.focus(), 50)
      } else showError(error)
    } finally {
      setBusy(false)
    }
  }

  async function compare() {
    if (!against) return
    try {
      const current = await must(
        api.GET('/api/v1/namespaces/{namespace}/jobs/{id}', { params: { path: { namespace: ns, id: against.id } } }),
      )
      setAgainst(current)
      setStale(false)
      setReview(true)
    } catch (error) {
      showError(error)
    }
  }

  const path = against ? `jobs/${against.id}` : 'jobs'
  const curl = curlOf(
    against ? 'PUT' : 'POST',
    `${baseURL}/api/v1/namespaces/${ns}/${path}`,
    against ? { ...job, version: against.version } : job,
  )
  const paramsJSON = useMemo(() => jsonProblem(job.params), [job.params])
  const steps = job.retry.steps && job.retry.steps.length > 0
  const permission = against ? 'job.update' : 'job.create'
  const shown = new Set(shownFields(job))
  const elsewhere = errors.filter((one) => !shown.has(one.field))

  return (
    <>
      <PageHead title={base ? t('form.editTitle', { name: base.name }) : t('form.newTitle')} />
      {stale && (
        <div className="card" role="alert">
          <h2>{t('form.stale')}</h2>
          <p>{t('form.staleText')}</p>
          <div className="pair" style={{ marginTop: 12 }}>
            <Button type="primary" onClick={() => void compare()}>
              {t('form.staleCompare')}
            </Button>
            <Button
              onClick={() => {
                done.current = true
                void reload?.()
              }}
            >
              {t('form.staleReload')}
            </Button>
          </div>
        </div>
      )}
      {refused.length > 0 && (
        <div className="note" role="alert" style={{ marginBottom: 12 }}>
          {t('form.refused', { count: refused.length })}
          <Elsewhere errors={elsewhere} />
        </div>
      )}
      <form
        ref={form}
        noValidate
        onSubmit={(event) => {
          event.preventDefault()
          if (against) setReview(true)
          else void save()
        }}
      >
        <div className="formgrid">
          <div>
            <nav className="chips" aria-label={t('form.sections')} style={{ margin: '0 0 12px' }}>
              {sections.map((section) => (
                <button
                  key={section}
                  type="button"
                  className="chip"
                  onClick={() => document.getElementById(`section-${section}`)?.scrollIntoView({ block: 'start' })}
                >
                  {t(`form.${section}`)}
                </button>
              ))}
            </nav>
            <section className="card" id="section-basics">
              <h2>{t('form.basics')}</h2>
              <div className="fields">
                <Field label={t('form.name')} refusals={at('name')} onSuggestion={(name) => set({ name })}>
                  {(field) => (
                    <Input
                      {...field}
                      autoComplete="off"
                      value={job.name}
                      onChange={(event) => set({ name: event.target.value })}
                    />
                  )}
                </Field>
                <Field
                  label={t('form.app')}
                  refusals={at('app')}
                  warn={
                    apps.data?.items.length === 0 && (
                      <Link to="/ns/$ns/apps" params={{ ns }}>
                        {t('form.appNone')}
                      </Link>
                    )
                  }
                >
                  {({ status: _, ...field }) => (
                    <select
                      {...field}
                      className="select"
                      style={{ width: '100%' }}
                      value={job.app}
                      onChange={(event) => set({ app: event.target.value })}
                    >
                      {!apps.data?.items.some((app) => app.name === job.app) && (
                        <option value={job.app}>{job.app}</option>
                      )}
                      {apps.data?.items.map((app) => (
                        <option key={app.name} value={app.name}>
                          {app.name}
                        </option>
                      ))}
                    </select>
                  )}
                </Field>
                <Field
                  label={t('form.handler')}
                  help={t('form.handlerHelp')}
                  refusals={at('handler')}
                  onSuggestion={(handler) => set({ handler })}
                  warn={handlerUnknown && t('form.handlerUnknown', { app: job.app, handler: job.handler.trim() })}
                >
                  {({ status, ...field }) => (
                    <AutoComplete
                      {...field}
                      status={status}
                      style={{ width: '100%' }}
                      value={job.handler}
                      onChange={(handler: string) => set({ handler })}
                      options={handlers.map((value) => ({ value }))}
                      showSearch={{ filterOption: (typed, option) => String(option?.value ?? '').includes(typed) }}
                    />
                  )}
                </Field>
                <Field label={t('form.description')} refusals={at('description')} wide>
                  {(field) => (
                    <Input
                      {...field}
                      value={job.description}
                      onChange={(event) => set({ description: event.target.value })}
                    />
                  )}
                </Field>
                <Field label={t('form.enabled')} refusals={at('enabled')}>
                  {({ status: _, 'aria-invalid': __, ...field }) => (
                    <Switch {...field} checked={job.enabled} onChange={(enabled) => set({ enabled })} />
                  )}
                </Field>
              </div>
            </section>
            <section className="card" id="section-schedule">
              <h2>{t('form.schedule')}</h2>
              <TriggerEditor
                triggers={job.triggers}
                calendars={(calendars.data?.items ?? []).map((one) => one.name)}
                errors={errors}
                onChange={(triggers) => set({ triggers })}
              />
            </section>
            <section className="card" id="section-params">
              <h2>{t('form.params')}</h2>
              <Field
                label={t('form.params')}
                refusals={at('params')}
                help={
                  <>
                    {t('form.paramsHelp')}{' '}
                    {job.params.trim() !== '' &&
                      (paramsJSON === null ? t('form.paramsJSON') : t('form.paramsText', { message: paramsJSON }))}
                  </>
                }
              >
                {(field) => (
                  <Input.TextArea
                    {...field}
                    className="code"
                    autoSize={{ minRows: 4, maxRows: 20 }}
                    spellCheck={false}
                    value={job.params}
                    onChange={(event) => set({ params: event.target.value })}
                  />
                )}
              </Field>
            </section>
            <section className="card" id="section-routing">
              <h2>{t('form.routing')}</h2>
              <div className="fields">
                <Choice
                  label={t('form.strategy')}
                  refusals={at('routing.strategy')}
                  value={job.routing.strategy}
                  options={strategies.map((value) => [value, t(`strategy.${value}`)])}
                  onChange={(strategy) => set({ routing: sharded({ ...job.routing, strategy }) })}
                />
                {job.routing.strategy === 'consistentHash' && (
                  <Text
                    label={t('form.hashKey')}
                    help={t('form.hashKeyHelp')}
                    refusals={at('routing.hashKey')}
                    value={job.routing.hashKey}
                    onChange={(hashKey) => set({ routing: { ...job.routing, hashKey } })}
                  />
                )}
                <Text
                  label={t('form.selector')}
                  help={t('form.selectorHelp')}
                  refusals={at('routing.selector')}
                  value={job.routing.selector}
                  onChange={(selector) => set({ routing: { ...job.routing, selector } })}
                />
                <Text
                  label={t('form.rule')}
                  help={t('form.ruleHelp')}
                  refusals={at('routing.rule')}
                  value={job.routing.rule}
                  onChange={(rule) => set({ routing: { ...job.routing, rule } })}
                />
                <Num
                  label={t('form.shards')}
                  help={t('form.shardsHelp')}
                  refusals={at('routing.shards')}
                  min={0}
                  max={5000}
                  value={job.routing.shards ?? 0}
                  onChange={(n) => set({ routing: sharded({ ...job.routing, shards: n || undefined }) })}
                />
                {broadcasts(job.routing) && (
                  <Num
                    label={t('form.perExecutor')}
                    refusals={at('routing.perExecutor')}
                    min={1}
                    max={100}
                    value={job.routing.perExecutor ?? 1}
                    onChange={(n) => set({ routing: { ...job.routing, perExecutor: n > 1 ? n : undefined } })}
                  />
                )}
                {isSharded(job.routing) && (
                  <Num
                    label={t('form.quorum')}
                    help={t('form.quorumHelp')}
                    refusals={at('routing.quorum')}
                    min={1}
                    max={100}
                    value={job.routing.quorum ?? 100}
                    onChange={(n) => set({ routing: { ...job.routing, quorum: n < 100 ? n : undefined } })}
                  />
                )}
                <Num
                  label={t('form.cpu')}
                  help={t('form.resourcesHelp')}
                  refusals={at('resources.cpu')}
                  min={0}
                  max={1024}
                  precision={2}
                  value={job.resources.cpu ?? 0}
                  onChange={(n) => set({ resources: { ...job.resources, cpu: n || undefined } })}
                />
                <Num
                  label={t('form.memory')}
                  refusals={at('resources.memoryMB')}
                  min={0}
                  max={100 * 1024 * 1024}
                  value={job.resources.memoryMB ?? 0}
                  onChange={(n) => set({ resources: { ...job.resources, memoryMB: n || undefined } })}
                />
                <Num
                  label={t('form.slots')}
                  refusals={at('resources.slots')}
                  min={0}
                  max={100_000}
                  value={job.resources.slots ?? 0}
                  onChange={(n) => set({ resources: { ...job.resources, slots: n || undefined } })}
                />
              </div>
            </section>
            <section className="card" id="section-retry">
              <h2>{t('form.retry')}</h2>
              <div className="fields">
                <Choice
                  label={t('form.backoff')}
                  refusals={at('retry.backoff')}
                  value={steps ? 'steps' : job.retry.backoff}
                  options={[
                    ['exponential', t('form.backoffExponential')],
                    ['fixed', t('form.backoffFixed')],
                    ['steps', t('form.backoffSteps')],
                  ]}
                  onChange={(backoff) =>
                    set({
                      retry:
                        backoff === 'steps'
                          ? { ...job.retry, max: 5, steps: ['5s', '30s', '2m', '10m', '30m'] }
                          : {
                              max: job.retry.max,
                              backoff,
                              initial: firstWait(job.retry.initial),
                              jitter: job.retry.jitter,
                              rules: job.retry.rules,
                            },
                    })
                  }
                />
                {steps ? (
                  <Text
                    label={t('form.steps')}
                    help={t('form.stepsHelp')}
                    refusals={[...at('retry.steps'), ...at('retry.max')]}
                    value={(job.retry.steps ?? []).join(', ')}
                    onChange={(text) => {
                      const list = text.split(/[,，]/).map((step) => step.trim())
                      set({ retry: { ...job.retry, max: list.filter(Boolean).length, steps: list } })
                    }}
                  />
                ) : (
                  <>
                    <Num
                      label={t('form.retryMax')}
                      refusals={at('retry.max')}
                      min={0}
                      max={100}
                      value={job.retry.max}
                      onChange={(max) => set({ retry: { ...job.retry, max } })}
                    />
                    <Text
                      label={t('form.initial')}
                      help={t('form.everyHelp')}
                      refusals={at('retry.initial')}
                      value={job.retry.initial}
                      onChange={(initial) => set({ retry: { ...job.retry, initial } })}
                    />
                    <Num
                      label={t('form.retryJitter')}
                      help={t('form.retryJitterHelp')}
                      refusals={at('retry.jitter')}
                      min={0}
                      max={100}
                      value={job.retry.jitter}
                      onChange={(jitter) => set({ retry: { ...job.retry, jitter } })}
                    />
                  </>
                )}
              </div>
            </section>
            <section className="card" id="section-limits">
              <h2>{t('form.limits')}</h2>
              <div className="fields">
                <Text
                  label={t('form.timeout')}
                  help={t('form.timeoutHelp')}
                  refusals={at('timeout')}
                  value={job.timeout}
                  onChange={(timeout) => set({ timeout })}
                />
                <Text
                  label={t('form.waitLimit')}
                  help={t('form.waitLimitHelp')}
                  refusals={at('wait.limit')}
                  value={job.wait.limit}
                  onChange={(limit) => set({ wait: { ...job.wait, limit } })}
                />
                <Choice
                  label={t('form.waitThen')}
                  refusals={at('wait.do')}
                  value={job.wait.do}
                  options={[
                    ['fail', t('form.waitFail')],
                    ['skip', t('form.waitSkip')],
                  ]}
                  onChange={(action) => set({ wait: { ...job.wait, do: action } })}
                />
                <Choice
                  label={t('form.concurrency')}
                  refusals={at('concurrency.policy')}
                  value={job.concurrency.policy}
                  options={concurrencyPolicies.map((value) => [value, t(`concurrency.${value}`)])}
                  onChange={(policy) => {
                    // Only side by side knows "no limit".
                    const max = policy === 'allow' ? job.concurrency.max : Math.max(1, job.concurrency.max)
                    const queue = queues(policy) ? job.concurrency.queue : undefined
                    set({ concurrency: { policy, max, queue } })
                  }}
                />
                <Num
                  label={t('form.concurrencyMax')}
                  help={job.concurrency.policy === 'allow' ? t('form.concurrencyMaxHelp') : undefined}
                  refusals={at('concurrency.max')}
                  min={job.concurrency.policy === 'allow' ? 0 : 1}
                  max={10_000}
                  value={job.concurrency.max}
                  onChange={(max) => set({ concurrency: { ...job.concurrency, max } })}
                />
                {queues(job.concurrency.policy) && (
                  <Num
                    label={t('form.queue')}
                    help={t('form.queueHelp')}
                    refusals={at('concurrency.queue')}
                    min={1}
                    max={10_000}
                    value={job.concurrency.queue ?? 1000}
                    onChange={(queue) => set({ concurrency: { ...job.concurrency, queue } })}
                  />
                )}
                <Text
                  label={t('form.sharedLimits')}
                  help={t('form.sharedLimitsHelp')}
                  refusals={job.limits.flatMap((_, i) => at(`limits[${i}]`))}
                  value={job.limits.join(', ')}
                  onChange={(text) =>
                    set({ limits: text === '' ? [] : text.split(/[,，]/).map((name) => name.trim()) })
                  }
                />
                <Choice
                  label={t('form.priority')}
                  help={t('form.priorityHelp')}
                  refusals={at('priority')}
                  value={String(job.priority)}
                  options={['0', '1', '2', '3', '4', '5'].map((value) => [value, value])}
                  onChange={(priority) => set({ priority: Number(priority) })}
                />
              </div>
            </section>
            <section className="card" id="section-misfire">
              <h2>{t('form.misfire')}</h2>
              <div className="fields">
                <Choice
                  label={t('form.misfirePolicy')}
                  refusals={at('misfire.policy')}
                  value={job.misfire.policy}
                  options={misfirePolicies.map((value) => [value, t(`misfire.${value}`)])}
                  onChange={(policy) => set({ misfire: { ...job.misfire, policy } })}
                />
                <Text
                  label={t('form.misfireWindow')}
                  help={t('form.misfireWindowHelp')}
                  refusals={at('misfire.window')}
                  value={job.misfire.window}
                  onChange={(window) => set({ misfire: { ...job.misfire, window } })}
                />
                <Num
                  label={t('form.misfireMax')}
                  refusals={at('misfire.max')}
                  min={1}
                  max={100_000}
                  value={job.misfire.max}
                  onChange={(max) => set({ misfire: { ...job.misfire, max } })}
                />
                <Choice
                  label={t('form.misfireOrder')}
                  refusals={at('misfire.order')}
                  value={job.misfire.order ?? 'oldest'}
                  options={(['oldest', 'newest'] as const).map((value) => [value, t(`misfire.${value}`)])}
                  onChange={(order) => set({ misfire: { ...job.misfire, order } })}
                />
                <Num
                  label={t('form.misfireRate')}
                  help={t('form.misfireRateHelp')}
                  refusals={at('misfire.rate')}
                  min={0.01}
                  max={1000}
                  precision={2}
                  value={job.misfire.rate ?? 10}
                  onChange={(rate) => set({ misfire: { ...job.misfire, rate } })}
                />
              </div>
            </section>
          </div>
          <aside className="card" aria-label={t('form.preview')}>
            <h2>{t('form.preview')}</h2>
            <PreviewPanel state={preview} triggers={job.triggers.length} />
          </aside>
        </div>
        <div className="bottombar">
          <Guarded
            allowed={can(permission)}
            permission={permission}
            type="primary"
            htmlType="submit"
            loading={busy}
            disabled={preview.errors.length > 0}
          >
            {against ? t('form.review') : t('common.create')}
          </Guarded>
          <Button
            onClick={() =>
              void (base
                ? navigate({ to: '/ns/$ns/jobs/$id', params: { ns, id: base.id } })
                : navigate({ to: '/ns/$ns/jobs', params: { ns } }))
            }
          >
            {t('common.cancel')}
          </Button>
          <CopyButton text={curl} label={t('common.copyCurl')} />
        </div>
      </form>
      {review && against && (
        <ReviewModal
          list={changes(writable(against), job)}
          busy={busy}
          onSave={() => void save()}
          onClose={() => setReview(false)}
        />
      )}
    </>
  )
}

type Routing = JobInput['routing']

// queues tells whether more than one batch may wait for others of the job.
function queues(policy: string): boolean {
  return policy === 'queueAll' || policy === 'allow'
}

// broadcasts tells whether the shards follow the executors.
function broadcasts(routing: Routing): boolean {
  return routing.strategy === 'shardingBroadcast' && !routing.shards
}

function isSharded(routing: Routing): boolean {
  return routing.strategy === 'shardingBroadcast' || Boolean(routing.shards)
}

// sharded drops what has no meaning without shards, or beside a fixed number of them.
function sharded(routing: Routing): Routing {
  return {
    ...routing,
    perExecutor: broadcasts(routing) ? routing.perExecutor : undefined,
    quorum: isSharded(routing) ? routing.quorum : undefined,
  }
}

// firstWait is the wait to begin with; a job with steps has none.
function firstWait(initial: string): string {
  return /^(?:0+[a-z]*)?$/.test(initial) ? '1s' : initial
}

// jsonProblem is null for JSON, else what the parser says about it.
function jsonProblem(text: string): string | null {
  try {
    JSON.parse(text)
    return null
  } catch (error) {
    return error instanceof Error ? error.message : String(error)
  }
}

// shownFields are the paths that have a place in the form; a refusal of anything else
// is shown at its head.
function shownFields(job: JobInput): string[] {
  return [
    'name',
    'app',
    'handler',
    'description',
    'enabled',
    'params',
    'routing.strategy',
    ...(job.routing.strategy === 'consistentHash' ? ['routing.hashKey'] : []),
    'routing.selector',
    'routing.rule',
    'routing.shards',
    ...(broadcasts(job.routing) ? ['routing.perExecutor'] : []),
    ...(isSharded(job.routing) ? ['routing.quorum'] : []),
    'resources.cpu',
    'resources.memoryMB',
    'resources.slots',
    ...job.limits.map((_, i) => `limits[${i}]`),
    ...(queues(job.concurrency.policy) ? ['concurrency.queue'] : []),
    'retry.backoff',
    'retry.max',
    ...(job.retry.steps?.length ? ['retry.steps'] : ['retry.initial']),
    'timeout',
    'wait.limit',
    'wait.do',
    'concurrency.policy',
    'concurrency.max',
    'priority',
    'misfire.policy',
    'misfire.window',
    'misfire.max',
    ...job.triggers.flatMap((trigger, i) =>
      [...shownOfTrigger(trigger.kind), ...otherFields(trigger).map(([field]) => field)].map(
        (field) => `triggers[${i}].${field}`,
      ),
    ),
  ]
}

function Elsewhere({ errors }: { errors: Invalid[] }) {
  const text = useText()
  if (errors.length === 0) return null
  return (
    <ul style={{ margin: '4px 0 0', paddingLeft: 20 }}>
      {errors.map((one) => (
        <li key={`${one.field}-${one.code}`}>
          <code>{one.field}</code> {text(one.message)}
        </li>
      ))}
    </ul>
  )
}

type Refusals = ReturnType<ReturnType<typeof useRefusalsAt>>

function Text({
  label,
  help,
  refusals,
  value,
  onChange,
}: {
  label: string
  help?: string
  refusals: Refusals
  value: string
  onChange: (value: string) => void
}) {
  return (
    <Field label={label} help={help} refusals={refusals} onSuggestion={onChange}>
      {(field) => (
        <Input {...field} spellCheck={false} value={value} onChange={(event) => onChange(event.target.value)} />
      )}
    </Field>
  )
}

function Num({
  label,
  help,
  refusals,
  min,
  max,
  precision = 0,
  value,
  onChange,
}: {
  label: string
  help?: string
  refusals: Refusals
  min: number
  max: number
  precision?: number
  value: number
  onChange: (value: number) => void
}) {
  return (
    <Field label={label} help={help} refusals={refusals}>
      {(field) => (
        <InputNumber
          {...field}
          style={{ width: '100%' }}
          min={min}
          max={max}
          precision={precision}
          value={value}
          onChange={(next) => next !== null && onChange(next)}
        />
      )}
    </Field>
  )
}

function Choice({
  label,
  help,
  refusals,
  value,
  options,
  onChange,
}: {
  label: string
  help?: string
  refusals: Refusals
  value: string
  options: [string, string][]
  onChange: (value: string) => void
}) {
  return (
    <Field label={label} help={help} refusals={refusals} onSuggestion={onChange}>
      {({ status: _, ...field }) => (
        <select
          {...field}
          className="select"
          style={{ width: '100%' }}
          value={value}
          onChange={(event) => onChange(event.target.value)}
        >
          {!options.some(([key]) => key === value) && <option value={value}>{value}</option>}
          {options.map(([key, word]) => (
            <option key={key} value={key}>
              {word}
            </option>
          ))}
        </select>
      )}
    </Field>
  )
}

function ReviewModal({
  list,
  busy,
  onSave,
  onClose,
}: {
  list: Change[]
  busy: boolean
  onSave: () => void
  onClose: () => void
}) {
  const t = useT()
  return (
    <Modal
      open
      width={680}
      title={t('form.reviewTitle')}
      okText={t('form.confirmSave')}
      cancelText={t('common.cancel')}
      okButtonProps={{ disabled: list.length === 0 }}
      confirmLoading={busy}
      onOk={onSave}
      onCancel={onClose}
    >
      {list.length === 0 ? <p>{t('form.reviewNothing')}</p> : <ChangeTable list={list} />}
    </Modal>
  )
}

function ChangeTable({ list }: { list: Change[] }) {
  const t = useT()
  return (
    <div className="tablewrap">
      <table className="data">
        <thead>
          <tr>
            <th scope="col">{t('form.reviewField')}</th>
            <th scope="col">{t('form.reviewOld')}</th>
            <th scope="col">{t('form.reviewNew')}</th>
          </tr>
        </thead>
        <tbody>
          {list.map((change) => (
            <tr key={change.path}>
              <td className="mono">{change.path}</td>
              <td className="mono old">{show(change.from) || t('form.empty')}</td>
              <td className="mono new">{show(change.to) || t('form.empty')}</td>
            </tr>
          ))}
        </tbody>
      </table>
    </div>
  )
}
