import { useQuery, useQueryClient } from '@tanstack/react-query'
import { useNavigate, useParams, useSearch } from '@tanstack/react-router'
import { App, Button } from 'antd'
import { useEffect, useState } from 'react'
import { api, must, refusedOf } from '../api/client'
import { batchQuery, jobQuery, unlessGone } from '../api/queries'
import { type Batch, type Execution, isFinal, type Job } from '../api/types'
import { CopyButton, ErrorBox, Facts, Guarded, PageHead, Skeleton, Tabs } from '../components/basics'
import { type Column, DataTable } from '../components/DataTable'
import { Gantt, startOf } from '../components/Gantt'
import { LogView } from '../components/LogView'
import { useBatchToast, useShowError } from '../components/mutations'
import { StatusTag } from '../components/StatusTag'
import { JobZoneProvider, Time, useZone } from '../components/Time'
import { WhyHere } from '../components/WhyHere'
import { useT, useText } from '../i18n/useText'
import { baseURL } from '../lib/base'
import { curlOf, wordOf, zoneOf } from '../lib/job'
import { useEvery } from '../lib/live'
import type { BatchDetailSearch } from '../lib/search'
import { formatBytes, formatSpan, formatTime } from '../lib/time'
import { NotFound } from '../shell/errors'
import { useCan, useNamespace } from '../shell/namespace'
import { delayOf, JobLink, useTriggerWord } from './BatchTable'

export function BatchPage() {
  const ns = useNamespace()
  const { batchId } = useParams({ from: '/ns/$ns/executions/$batchId' })
  const every = useEvery(1_500)
  const query = useQuery({
    ...batchQuery(ns, batchId),
    refetchInterval: (asked) =>
      asked.state.data && isFinal(asked.state.data.state) ? false : unlessGone<Batch>(every)(asked),
  })
  const job = useQuery({ ...jobQuery(ns, query.data?.jobId ?? ''), enabled: Boolean(query.data), retry: false })
  if (query.isPending) return <Skeleton />
  if (!query.data) {
    if (refusedOf(query.error).status === 404) return <NotFound />
    return <ErrorBox error={query.error} retry={() => void query.refetch()} />
  }
  return (
    <JobZoneProvider zone={zoneOf(job.data)}>
      <Detail batch={query.data} job={job.data} />
    </JobZoneProvider>
  )
}

// firstToShow is the execution a person most likely came for: one that runs, else one
// that failed, else the last.
function firstToShow(executions: Execution[]): Execution | undefined {
  return (
    executions.find((one) => one.state === 'RUNNING' || one.state === 'STOPPING') ??
    executions.findLast((one) => isFinal(one.state) && one.state !== 'SUCCEEDED') ??
    executions.at(-1)
  )
}

function Detail({ batch, job }: { batch: Batch; job: Job | undefined }) {
  const t = useT()
  const text = useText()
  const ns = useNamespace()
  const can = useCan()
  const client = useQueryClient()
  const { message, modal } = App.useApp()
  const toast = useBatchToast()
  const showError = useShowError()
  const triggerWord = useTriggerWord()
  const zone = useZone()
  const search = useSearch({ from: '/ns/$ns/executions/$batchId' })
  const navigate = useNavigate({ from: '/ns/$ns/executions/$batchId' })
  const tab = search.tab ?? 'output'
  const executions = [...(batch.executions ?? [])].sort((a, b) => a.shard - b.shard || a.attempt - b.attempt)
  const chosen = executions.find((one) => one.id === search.exec) ?? firstToShow(executions)
  const [progress, setProgress] = useState<{ id: string; value: number } | null>(null)
  const [now, setNow] = useState(Date.now)
  const final = isFinal(batch.state)

  useEffect(() => {
    if (final) return
    const timer = setInterval(() => setNow(Date.now()), 1_000)
    return () => clearInterval(timer)
  }, [final])

  const set = (change: BatchDetailSearch) =>
    void navigate({ search: (old: BatchDetailSearch) => ({ ...old, ...change }), replace: true })

  function act(kind: 'cancel' | 'retry') {
    const id = batch.batchId
    modal.confirm({
      title: t(`batch.${kind}Title`),
      content: t(`batch.${kind}Text`),
      okText: t(`batch.${kind}`),
      okButtonProps: { danger: kind === 'cancel' },
      cancelText: t('common.close'),
      onOk: async () => {
        const params = { path: { namespace: ns, batchId: id } }
        try {
          if (kind === 'cancel') {
            await must(api.POST('/api/v1/namespaces/{namespace}/batches/{batchId}/cancel', { params }))
            message.success(t('batch.cancelAsked', { id }))
          } else {
            const next = await must(api.POST('/api/v1/namespaces/{namespace}/batches/{batchId}/retry', { params }))
            const text = t('batch.retried', { id: next.batchId })
            if (next.batchId === id) message.success(text)
            else toast(next.batchId, text)
          }
        } catch (error) {
          showError(error)
        }
        await client.invalidateQueries({ queryKey: [ns] })
      },
    })
  }

  const columns: Column<Execution>[] = [
    {
      key: 'shard',
      title: t('batch.shard'),
      cell: (one) => (
        <button
          type="button"
          className="plain link nowrap"
          title={t('batch.pick', { shard: one.shard, attempt: one.attempt })}
          aria-pressed={one.id === chosen?.id}
          onClick={() => set({ exec: one.id, tab: undefined })}
        >
          {one.shard}
        </button>
      ),
    },
    { key: 'attempt', title: t('batch.attempt'), num: true, cell: (one) => one.attempt },
    { key: 'executor', title: t('batch.executor'), cell: (one) => one.executor?.address ?? '–' },
    {
      key: 'state',
      title: t('common.state'),
      cell: (one) => (
        <>
          <StatusTag state={one.state} />
          {one.stop && <StopNote stop={one.stop} />}
        </>
      ),
    },
    {
      key: 'start',
      title: t('executions.start'),
      cell: (one) => <Time at={iso(startOf(one))} millis />,
    },
    { key: 'waited', title: t('batch.waited'), num: true, cell: (one) => formatSpan(one.waitedMs) || '–' },
    {
      key: 'memory',
      title: t('batch.memory'),
      num: true,
      cell: (one) => (one.peakMemoryMB ? `${one.peakMemoryMB} MB` : '–'),
    },
    { key: 'duration', title: t('executions.duration'), num: true, cell: (one) => formatSpan(one.durationMs) || '–' },
    {
      key: 'error',
      title: t('batch.error'),
      clip: true,
      cell: (one) => {
        const why = one.error || text(one.reason) || one.message
        return <span title={why}>{why}</span>
      },
    },
  ]

  const shownProgress = progress && progress.id === chosen?.id ? progress.value : chosen?.progress
  const events = eventsOf(batch, executions)
  const took = batch.durationMs ?? (!final && batch.startedAt ? now - Date.parse(batch.startedAt) : null)
  const missedFact: [string, string] = [
    t('batch.missed'),
    t('batch.missedText', { count: batch.missedCount, at: formatTime(batch.missedLastAt ?? batch.dueAt, zone) }),
  ]
  // The definition may have changed since; then only the batch's own parameters are certain.
  const jobParams = job?.version === batch.jobVersion ? job.params : ''
  // With a quorum a batch succeeds although some shards failed.
  const failed =
    (final && batch.shardsFailed > 0) ||
    batch.state === 'FAILED' ||
    batch.state === 'TIMED_OUT' ||
    batch.state === 'CANCELLED'

  return (
    <>
      <PageHead title={t('batch.title', { id: batch.batchId })} tag={<StatusTag state={batch.state} />}>
        <CopyButton
          label={t('common.copyCurl')}
          text={curlOf('GET', `${baseURL}/api/v1/namespaces/${ns}/batches/${batch.batchId}`)}
        />
        <Guarded allowed={can('batch.retry')} permission="batch.retry" disabled={!failed} onClick={() => act('retry')}>
          {t('batch.retry')}
        </Guarded>
        <Guarded
          allowed={can('batch.cancel')}
          permission="batch.cancel"
          danger
          disabled={final}
          onClick={() => act('cancel')}
        >
          {t('batch.cancel')}
        </Guarded>
      </PageHead>
      <section className="card">
        <h2 className="offscreen">{t('common.details')}</h2>
        <Facts
          items={[
            [t('executions.job'), <JobLink key="job" batch={batch} />],
            [t('jobs.app'), batch.app],
            [
              t('executions.trigger'),
              `${triggerWord(batch.trigger)}${batch.triggerNo > 0 ? ` #${batch.triggerNo}` : ''}`,
            ],
            [t('batch.startedBy'), batch.createdBy === 'schedule' ? t('batch.bySchedule') : batch.createdBy || '–'],
            [t('executions.due'), <Time key="due" at={batch.dueAt} />],
            [t('executions.start'), <Time key="start" at={batch.startedAt} millis />],
            [t('batch.finished'), <Time key="end" at={batch.finishedAt} millis />],
            [t('executions.delay'), formatSpan(delayOf(batch)) || '–'],
            [t('executions.duration'), formatSpan(took) || '–'],
            [t('executions.shards'), `${batch.shardsDone - batch.shardsFailed} / ${batch.shardTotal}`],
            [t('batch.attempts'), Math.max(0, ...executions.map((one) => one.attempt))],
            [t('batch.jobVersion'), batch.jobVersion],
            ...(batch.missedCount > 0 ? [missedFact] : []),
          ]}
        />
        {batch.waiting?.reason && (
          <p className="why">
            <strong>{t('batch.waits')}: </strong>
            {text(batch.waiting.reason)} {batch.waiting.reason.detail}{' '}
            <span className="muted">{t('batch.waitsAt', batch.waiting)}</span>
          </p>
        )}
        {batch.reason && (
          <p className="why">
            <strong>{t('batch.why')}: </strong>
            {text(batch.reason)} <span className="muted mono">{batch.reason.code}</span>
          </p>
        )}
      </section>
      {executions.length === 0 ? (
        <section className="card">
          <p className="muted">{t('batch.notStarted')}</p>
        </section>
      ) : (
        <>
          <section className="card">
            <h2>{t('batch.timeline')}</h2>
            <Gantt executions={executions} now={now} />
          </section>
          <section className="card">
            <h2>{t('batch.executions')}</h2>
            <DataTable
              caption={t('batch.executions')}
              columns={columns}
              rows={executions}
              rowKey={(one) => one.id}
              selected={chosen?.id}
              onRow={(one) => set({ exec: one.id, tab: undefined })}
            />
          </section>
        </>
      )}
      <section className="card">
        <Tabs
          label={t('common.details')}
          active={tab}
          onChange={(key) => set({ tab: key === 'output' ? undefined : key })}
          tabs={[
            { key: 'output', title: t('batch.output') },
            { key: 'data', title: t('batch.data') },
            { key: 'choice', title: t('batch.choice') },
            { key: 'events', title: `${t('batch.events')} (${events.length})` },
          ]}
        />
        {tab === 'output' &&
          (chosen ? (
            <>
              <div className="cardhead">
                <h3>{t('batch.outputOf', { shard: chosen.shard, attempt: chosen.attempt })}</h3>
                <StatusTag state={chosen.state} />
                <span className="muted">{formatBytes(chosen.outputBytes)}</span>
                <span className="grow" />
                {shownProgress !== null && shownProgress !== undefined && (
                  <span className="progress" style={{ width: 260 }}>
                    <progress max={100} value={shownProgress} aria-label={t('batch.progress')} />
                    {shownProgress} %
                  </span>
                )}
              </div>
              {can('log.read') ? (
                <LogView
                  key={chosen.id}
                  namespace={ns}
                  executionId={chosen.id}
                  onProgress={(value) => setProgress({ id: chosen.id, value })}
                  onEnd={() => void client.invalidateQueries({ queryKey: [ns, 'batch', batch.batchId] })}
                />
              ) : (
                <p className="muted">{t('common.forbidden', { permission: 'log.read' })}</p>
              )}
            </>
          ) : (
            <p className="muted">{t('batch.notStarted')}</p>
          ))}
        {tab === 'data' && (
          <div className="cols even">
            <div>
              <h3 style={{ marginBottom: 8 }}>{t('batch.params')}</h3>
              {batch.params === null && (
                <p className="muted" style={{ marginBottom: 8 }}>
                  {t('batch.asJob')}
                </p>
              )}
              {batch.params || jobParams ? (
                <pre>{batch.params ?? jobParams}</pre>
              ) : (
                batch.params !== null && <p className="muted">{t('job.noParams')}</p>
              )}
            </div>
            <div>
              <h3 style={{ marginBottom: 8 }}>{t('batch.result')}</h3>
              {chosen?.error && <pre style={{ marginBottom: 8 }}>{chosen.error}</pre>}
              {chosen?.result ? <pre>{chosen.result}</pre> : <p className="muted">{t('batch.noResult')}</p>}
            </div>
          </div>
        )}
        {tab === 'choice' &&
          (chosen ? (
            <WhyHere key={chosen.id} namespace={ns} execution={chosen} />
          ) : (
            <p className="muted">{t('batch.choiceNone')}</p>
          ))}
        {tab === 'events' &&
          (events.length === 0 ? (
            <p className="muted">{t('batch.noEvents')}</p>
          ) : (
            <DataTable
              caption={t('batch.events')}
              rows={events}
              rowKey={(event) => event.key}
              columns={[
                { key: 'at', title: t('batch.eventAt'), cell: (event) => <Time at={event.at} millis /> },
                {
                  key: 'shard',
                  title: t('batch.shard'),
                  cell: (event) => (event.one ? `${event.one.shard} · #${event.one.attempt}` : '–'),
                },
                {
                  key: 'kind',
                  title: t('batch.eventKind'),
                  cell: (event) =>
                    event.state ? (
                      <StatusTag state={event.state} />
                    ) : (
                      wordOf(eventKinds, event.kind, (key) => t(`batch.event.${key}`))
                    ),
                },
                {
                  key: 'detail',
                  title: t('batch.eventDetail'),
                  cell: (event) =>
                    event.next
                      ? t('batch.retryAt', {
                          attempt: event.next.attempt,
                          at: formatTime(event.next.notBefore, zone),
                        })
                      : event.detail,
                },
              ]}
            />
          ))}
      </section>
      {refusedNote(executions, t('batch.stopUnconfirmed'))}
      <Button
        type="link"
        style={{ paddingLeft: 0 }}
        onClick={() => void navigate({ to: '/ns/$ns/executions', params: { ns }, search: { job: batch.jobId } })}
      >
        {t('batch.allOfJob')}
      </Button>
    </>
  )
}

const eventKinds = [
  'sent',
  'started',
  'retry',
  'cancel_asked',
  'stop_asked',
  'retry_by_hand',
  'refused_transition',
  'not_delivered',
  'late_result',
] as const

interface Happening {
  key: string
  at: string
  kind: string
  detail: string
  one: Execution | undefined
  // The state that an execution ended with.
  state?: string
  // The attempt that a retry announces.
  next?: Execution
}

// eventsOf is the course of a batch: what each execution says of itself by its times,
// and what was recorded beside that.
function eventsOf(batch: Batch, executions: Execution[]): Happening[] {
  const out: Omit<Happening, 'key'>[] = []
  for (const one of executions) {
    const add = (at: string | null, kind: string, detail: string, state?: string) => {
      if (at) out.push({ at, kind, detail, one, state })
    }
    add(one.dispatchedAt, 'sent', one.executor?.address ?? '')
    add(iso(startOf(one)), 'started', '')
    add(one.finishedAt, 'finished', one.error, one.state)
  }
  for (const event of batch.events ?? []) {
    const one = executions.find((other) => other.id === event.executionId)
    const next =
      event.kind === 'retry' && one
        ? executions.find((other) => other.shard === one.shard && other.attempt === one.attempt + 1)
        : undefined
    out.push({ ...event, one, next })
  }
  return out.sort((a, b) => Date.parse(a.at) - Date.parse(b.at)).map((event, index) => ({ ...event, key: `${index}` }))
}

function iso(at: number | null): string | null {
  return at === null ? null : new Date(at).toISOString()
}

function refusedNote(executions: Execution[], text: string) {
  const waiting = executions.some((one) => one.stop && !one.stop.confirmed)
  return waiting ? <p className="note">{text}</p> : null
}

/** How far the wish to stop an execution has come: asked, acknowledged, confirmed, each with its time. */
function StopNote({ stop }: { stop: NonNullable<Execution['stop']> }) {
  const t = useT()
  const text = useText()
  const zone = useZone()
  const steps = [
    t('batch.stopSteps.asked', { at: formatTime(stop.askedAt, zone), by: stop.askedBy || 'ax' }),
    stop.acknowledgedAt ? t('batch.stopSteps.acknowledged', { at: formatTime(stop.acknowledgedAt, zone) }) : '',
    stop.confirmedAt ? t('batch.stopSteps.confirmed', { at: formatTime(stop.confirmedAt, zone) }) : '',
    text(stop.reason),
    stop.confirmed ? '' : t('batch.stopUnconfirmed'),
  ]
  const now = stop.confirmed
    ? 'batch.stopConfirmed'
    : stop.acknowledgedAt
      ? 'batch.stopAcknowledged'
      : 'batch.stopAsked'
  return (
    <span className="two" title={steps.filter(Boolean).join('\n')}>
      {t(now)}
    </span>
  )
}
