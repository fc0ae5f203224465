import { useQuery } from '@tanstack/react-query'
import { useNavigate, useSearch } from '@tanstack/react-router'
import { Button } from 'antd'
import { batchesPage, everyPage, jobQuery, jobsPage } from '../api/queries'
import { type Batch, batchStates } from '../api/types'
import { PageHead } from '../components/basics'
import { DataPage } from '../components/DataTable'
import { ExportMenu } from '../components/ExportMenu'
import { StateFilter } from '../components/StateFilter'
import { useZone } from '../components/Time'
import { TimeRange } from '../components/TimeRange'
import { useBatchList } from '../components/useBatchList'
import { useT, useText } from '../i18n/useText'
import { type BatchSearch, bounds } from '../lib/search'
import { formatTime } from '../lib/time'
import { useNamespace } from '../shell/namespace'
import { BatchTable, delayOf } from './BatchTable'

export function Executions() {
  const t = useT()
  const text = useText()
  const ns = useNamespace()
  const zone = useZone()
  const search = useSearch({ from: '/ns/$ns/executions' })
  const navigate = useNavigate({ from: '/ns/$ns/executions' })
  const { list, rows, newCount, showNew } = useBatchList(ns, search)
  const set = (change: BatchSearch) =>
    void navigate({ search: (old: BatchSearch) => ({ ...old, ...change }), replace: true })

  return (
    <>
      <PageHead title={t('executions.title')}>
        <ExportMenu<Batch>
          name={`executions-${ns}`}
          load={() => {
            const window = bounds(search, Date.now())
            return everyPage((cursor) => batchesPage(ns, search, window, cursor, 200))
          }}
          header={[
            'batchId',
            'jobId',
            'job',
            'trigger',
            'state',
            'shardsOk',
            'shardTotal',
            'dueAt',
            'startedAt',
            'finishedAt',
            'delayMs',
            'durationMs',
            'reason',
          ]}
          row={(batch) => [
            batch.batchId,
            batch.jobId,
            batch.jobName,
            batch.trigger,
            batch.state,
            batch.shardsDone - batch.shardsFailed,
            batch.shardTotal,
            formatTime(batch.dueAt, zone),
            formatTime(batch.startedAt, zone),
            formatTime(batch.finishedAt, zone),
            delayOf(batch),
            batch.durationMs,
            text(batch.reason),
          ]}
        />
      </PageHead>
      <search className="toolbar">
        <JobFilter value={search.job} onChange={(job) => set({ job })} />
        <StateFilter states={batchStates} value={search.state} onChange={(state) => set({ state })} />
        <span className="grow" />
        <TimeRange
          value={search}
          onChange={(window) => set({ range: window.range, from: window.from, to: window.to })}
        />
      </search>
      {newCount > 0 && (
        <button type="button" className="newrows" onClick={() => void showNew()}>
          {t('executions.newRows', { count: newCount })}
        </button>
      )}
      <DataPage
        query={list}
        rows={rows}
        filtered={Boolean(search.job || search.state)}
        onClear={() => set({ job: undefined, state: undefined })}
        empty={
          <>
            <p>{t('executions.empty')}</p>
            <Button onClick={() => set({ range: '30d', from: undefined, to: undefined })}>
              {t('executions.widen')}
            </Button>
          </>
        }
      >
        <BatchTable rows={rows} caption={t('executions.title')} />
      </DataPage>
    </>
  )
}

// JobFilter narrows a list to one job of the namespace.
export function JobFilter({
  value,
  onChange,
}: {
  value: string | undefined
  onChange: (job: string | undefined) => void
}) {
  const t = useT()
  const ns = useNamespace()
  const jobs = useQuery({
    queryKey: [ns, 'jobs', 'names'],
    queryFn: () => jobsPage(ns, {}, '', 200),
    staleTime: 30_000,
  })
  const listed = jobs.data?.items ?? []
  const missing = value !== undefined && jobs.isSuccess && !listed.some((job) => job.id === value)
  const one = useQuery({ ...jobQuery(ns, value ?? ''), enabled: missing, retry: false })
  return (
    <select
      className="select"
      aria-label={t('executions.job')}
      value={value ?? ''}
      onChange={(event) => onChange(event.target.value || undefined)}
    >
      <option value="">{t('executions.allJobs')}</option>
      {value !== undefined && !listed.some((job) => job.id === value) && (
        <option value={value}>{one.data?.name ?? value}</option>
      )}
      {listed.map((job) => (
        <option key={job.id} value={job.id}>
          {job.name}
        </option>
      ))}
    </select>
  )
}
