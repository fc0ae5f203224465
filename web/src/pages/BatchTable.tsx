import { Link, useNavigate } from '@tanstack/react-router'
import type { Batch } from '../api/types'
import { type Column, DataTable } from '../components/DataTable'
import { StatusTag } from '../components/StatusTag'
import { Time } from '../components/Time'
import { useT, useText } from '../i18n/useText'
import { formatSpan } from '../lib/time'
import { useNamespace } from '../shell/namespace'

// delayOf is how long after its planned moment a batch began.
export function delayOf(batch: Pick<Batch, 'dueAt' | 'startedAt'>): number | null {
  return batch.startedAt ? Date.parse(batch.startedAt) - Date.parse(batch.dueAt) : null
}

const kinds = [
  'cron',
  'fixedRate',
  'fixedDelay',
  'once',
  'manual',
  'api',
  'event',
  'dependency',
  'delay',
  'delayed',
  'retry',
  'backfill',
] as const

export function useTriggerWord(): (kind: string) => string {
  const t = useT()
  return (kind) => {
    const known = kinds.find((one) => one === kind)
    return known ? t(`trigger.${known}`) : kind
  }
}

export function useBatchColumns(): Record<string, Column<Batch>> {
  const t = useT()
  const text = useText()
  const ns = useNamespace()
  const triggerWord = useTriggerWord()
  return {
    batch: {
      key: 'batch',
      title: t('executions.batch'),
      cell: (batch) => (
        <Link
          className="mono nowrap"
          to="/ns/$ns/executions/$batchId"
          params={{ ns, batchId: batch.batchId }}
          preload={false}
        >
          {batch.batchId}
        </Link>
      ),
    },
    job: {
      key: 'job',
      title: t('executions.job'),
      cell: (batch) => <JobLink batch={batch} />,
    },
    trigger: {
      key: 'trigger',
      title: t('executions.trigger'),
      cell: (batch) => <span className="nowrap">{triggerWord(batch.trigger)}</span>,
    },
    state: { key: 'state', title: t('common.state'), cell: (batch) => <StatusTag state={batch.state} /> },
    shards: {
      key: 'shards',
      title: t('executions.shardsShort'),
      num: true,
      cell: (batch) => `${batch.shardsDone - batch.shardsFailed} / ${batch.shardTotal}`,
    },
    due: { key: 'due', title: t('executions.due'), cell: (batch) => <Time at={batch.dueAt} /> },
    dueStart: {
      key: 'dueStart',
      title: `${t('executions.due')} / ${t('executions.start')}`,
      cell: (batch) => (
        <>
          <Time at={batch.dueAt} />
          <span className="two">
            <Time at={batch.startedAt} />
          </span>
        </>
      ),
    },
    batchJob: {
      key: 'batchJob',
      title: `${t('executions.batch')} / ${t('executions.job')}`,
      cell: (batch) => (
        <>
          <Link
            className="mono nowrap"
            to="/ns/$ns/executions/$batchId"
            params={{ ns, batchId: batch.batchId }}
            preload={false}
          >
            {batch.batchId}
          </Link>
          <span className="two">
            <JobLink batch={batch} />
          </span>
        </>
      ),
    },
    delay: {
      key: 'delay',
      title: t('executions.delay'),
      num: true,
      cell: (batch) => <span className="nowrap">{formatSpan(delayOf(batch)) || '–'}</span>,
    },
    duration: {
      key: 'duration',
      title: t('executions.duration'),
      num: true,
      cell: (batch) => <span className="nowrap">{formatSpan(batch.durationMs) || '–'}</span>,
    },
    reason: {
      key: 'reason',
      title: t('executions.reason'),
      clip: true,
      cell: (batch) => <span title={text(batch.reason)}>{text(batch.reason)}</span>,
    },
  }
}

// JobLink names the job of a batch; that of a deleted one leads nowhere.
export function JobLink({ batch }: { batch: Pick<Batch, 'jobId' | 'jobName'> }) {
  const t = useT()
  const ns = useNamespace()
  if (!batch.jobName) return <span className="muted">{t('batch.deletedJob', { id: batch.jobId })}</span>
  return (
    <Link to="/ns/$ns/jobs/$id" params={{ ns, id: batch.jobId }} preload={false}>
      {batch.jobName}
    </Link>
  )
}

const shown = {
  all: ['batchJob', 'trigger', 'state', 'shards', 'dueStart', 'delay', 'duration', 'reason'],
  times: ['batch', 'job', 'trigger', 'state', 'due', 'delay', 'duration'],
  reason: ['batch', 'job', 'state', 'due', 'reason'],
  job: ['batch', 'trigger', 'state', 'shards', 'due', 'delay', 'duration', 'reason'],
} as const

export function BatchTable({
  rows,
  caption,
  short = 'all',
}: {
  rows: Batch[]
  caption: string
  short?: keyof typeof shown
}) {
  const columns = useBatchColumns()
  // Most batches need no reason; a column of nothing only takes room.
  const reasons = short === 'reason' || rows.some((batch) => batch.reason)
  const navigate = useNavigate()
  const ns = useNamespace()
  return (
    <DataTable
      caption={caption}
      columns={shown[short].filter((key) => key !== 'reason' || reasons).flatMap((key) => columns[key] ?? [])}
      rows={rows}
      rowKey={(batch) => batch.batchId}
      onRow={(batch) => void navigate({ to: '/ns/$ns/executions/$batchId', params: { ns, batchId: batch.batchId } })}
    />
  )
}
