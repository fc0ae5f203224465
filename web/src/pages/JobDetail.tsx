import { useQuery } from '@tanstack/react-query'
import { Link, useNavigate, useParams, useSearch } from '@tanstack/react-router'
import { useState } from 'react'
import { refusedOf } from '../api/client'
import { jobQuery, latestBatches, unlessGone } from '../api/queries'
import type { Job } from '../api/types'
import { BackfillModal } from '../components/BackfillModal'
import { CopyButton, ErrorBox, Facts, Guarded, PageHead, Skeleton, Tabs } from '../components/basics'
import { DataPage } from '../components/DataTable'
import { useJobActions } from '../components/mutations'
import { PreviewPanel } from '../components/PreviewPanel'
import { ResultStrip } from '../components/ResultStrip'
import { RunModal } from '../components/RunModal'
import { StatusTag } from '../components/StatusTag'
import { JobZoneProvider, Time, useZone } from '../components/Time'
import { useBatchList } from '../components/useBatchList'
import { usePreview } from '../components/usePreview'
import { VersionsTab } from '../components/VersionsTab'
import { useT, useText } from '../i18n/useText'
import { baseURL } from '../lib/base'
import { concurrencyPolicies, curlOf, misfirePolicies, strategies, wordOf, writable, zoneOf } from '../lib/job'
import { useEvery } from '../lib/live'
import { formatTime } from '../lib/time'
import { NotFound } from '../shell/errors'
import { useCan, useNamespace } from '../shell/namespace'
import { BatchTable } from './BatchTable'

export function JobDetail() {
  const ns = useNamespace()
  const { id } = useParams({ from: '/ns/$ns/jobs/$id' })
  const query = useQuery({ ...jobQuery(ns, id), refetchInterval: unlessGone(useEvery(4_000)) })
  if (query.isPending) return <Skeleton />
  if (!query.data) {
    if (refusedOf(query.error).status === 404) return <NotFound />
    return <ErrorBox error={query.error} retry={() => void query.refetch()} />
  }
  return (
    <JobZoneProvider zone={zoneOf(query.data)}>
      <Detail job={query.data} />
    </JobZoneProvider>
  )
}

function Detail({ job }: { job: Job }) {
  const t = useT()
  const ns = useNamespace()
  const can = useCan()
  const actions = useJobActions()
  const search = useSearch({ from: '/ns/$ns/jobs/$id' })
  const navigate = useNavigate({ from: '/ns/$ns/jobs/$id' })
  const [running, setRunning] = useState(false)
  const [filling, setFilling] = useState(false)
  const tab = search.tab ?? 'overview'
  return (
    <>
      <PageHead title={job.name} tag={<StatusTag state={job.enabled ? 'ENABLED' : 'DISABLED'} />}>
        <Guarded allowed={can('job.run')} permission="job.run" type="primary" onClick={() => setRunning(true)}>
          {t('jobs.run')}
        </Guarded>
        <Guarded allowed={can('job.run')} permission="job.run" onClick={() => setFilling(true)}>
          {t('backfill.action')}
        </Guarded>
        <Guarded
          allowed={can('job.pause')}
          permission="job.pause"
          onClick={() => void (job.enabled ? actions.disable(job) : actions.enable(job))}
        >
          {job.enabled ? t('jobs.disable') : t('jobs.enable')}
        </Guarded>
        <Guarded
          allowed={can('job.update')}
          permission="job.update"
          onClick={() => void navigate({ to: '/ns/$ns/jobs/$id/edit', params: { ns, id: job.id } })}
        >
          {t('common.edit')}
        </Guarded>
        <Guarded
          allowed={can('job.create')}
          permission="job.create"
          onClick={() => void navigate({ to: '/ns/$ns/jobs/new', params: { ns }, search: { clone: job.id } })}
        >
          {t('common.clone')}
        </Guarded>
        <Guarded
          allowed={can('job.delete')}
          permission="job.delete"
          danger
          onClick={() =>
            void actions.remove(job, () => void navigate({ to: '/ns/$ns/jobs', params: { ns }, search: {} }))
          }
        >
          {t('common.delete')}
        </Guarded>
      </PageHead>
      <Tabs
        label={t('common.details')}
        active={tab}
        onChange={(key) => void navigate({ search: { tab: key === 'overview' ? undefined : key }, replace: true })}
        tabs={[
          { key: 'overview', title: t('job.overview') },
          { key: 'executions', title: t('job.executions') },
          { key: 'definition', title: t('job.definition') },
          { key: 'versions', title: t('versions.title') },
        ]}
      />
      {tab === 'overview' && <OverviewTab job={job} />}
      {tab === 'executions' && <ExecutionsTab job={job} />}
      {tab === 'definition' && <DefinitionTab job={job} />}
      {tab === 'versions' && <VersionsTab job={job} />}
      {running && <RunModal job={job} onClose={() => setRunning(false)} />}
      {filling && <BackfillModal job={job} onClose={() => setFilling(false)} />}
    </>
  )
}

function OverviewTab({ job }: { job: Job }) {
  const t = useT()
  const text = useText()
  const ns = useNamespace()
  const zone = useZone()
  const preview = usePreview(job.triggers)
  const last = useQuery({
    ...latestBatches(ns, { job: job.id, range: '30d' }, 8),
    refetchInterval: useEvery(4_000),
  })
  const { max, initial, backoff, steps } = job.retry
  const retry = steps?.length
    ? t('job.retrySteps', { count: steps.length, steps: steps.join(', ') })
    : max === 0
      ? t('job.retryNone')
      : backoff === 'fixed'
        ? t('job.retryFixed', { count: max, initial })
        : t('job.retryExponential', { count: max, initial })
  return (
    <>
      <div className="cols">
        <section className="card">
          <h2>{t('job.inWords')}</h2>
          <p style={{ fontSize: 16, marginBottom: 14 }}>{text(job.scheduleText) || t('form.manualOnly')}</p>
          <Facts
            items={[
              [t('jobs.app'), job.app],
              [t('jobs.handler'), <code key="handler">{job.handler}</code>],
              [
                t('form.strategy'),
                `${wordOf(strategies, job.routing.strategy, (key) => t(`strategy.${key}`))}${
                  job.routing.hashKey ? ` (${job.routing.hashKey})` : ''
                }`,
              ],
              [t('form.retry'), retry],
              [t('form.timeout'), /^0s?$/.test(job.timeout) ? t('job.noTimeout') : job.timeout],
              [
                t('form.concurrency'),
                wordOf(concurrencyPolicies, job.concurrency.policy, (key) => t(`concurrency.${key}`)),
              ],
              [t('form.misfire'), wordOf(misfirePolicies, job.misfire.policy, (key) => t(`misfire.${key}`))],
              [t('form.priority'), job.priority],
              [t('jobs.next'), job.enabled ? <Time key="next" at={job.nextTriggerAt} /> : t('jobs.noNext')],
              [t('jobs.version'), job.version],
              [
                t('job.updated'),
                t('job.updatedBy', { at: formatTime(job.updatedAt, zone), who: job.updatedBy || '–' }),
              ],
              [t('job.id'), job.id],
              [t('jobs.results'), <ResultStrip key="strip" batches={job.lastBatches} />],
            ]}
          />
          {job.description && <p className="why">{job.description}</p>}
          {job.params && (
            <>
              <h3 style={{ margin: '16px 0 8px' }}>{t('job.params')}</h3>
              <pre>{job.params}</pre>
            </>
          )}
        </section>
        <section className="card">
          <h2>{t('job.nextFires')}</h2>
          {!job.enabled && job.triggers.length > 0 && (
            <p className="note" style={{ marginBottom: 8 }}>
              {t('job.notEnabled')}
            </p>
          )}
          <PreviewPanel state={preview} triggers={job.triggers.length} />
        </section>
      </div>
      <section className="card">
        <div className="cardhead">
          <h2>{t('job.lastRuns')}</h2>
          <span className="grow" />
          <Link to="/ns/$ns/executions" params={{ ns }} search={{ job: job.id }}>
            {t('overview.allExecutions')}
          </Link>
        </div>
        {last.data?.items.length ? (
          <BatchTable rows={last.data.items} caption={t('job.lastRuns')} short="job" />
        ) : (
          <p className="muted">{last.data ? t('jobs.never') : t('common.loading')}</p>
        )}
      </section>
    </>
  )
}

function ExecutionsTab({ job }: { job: Job }) {
  const t = useT()
  const ns = useNamespace()
  const [search] = useState({ job: job.id, range: '30d' as const })
  const { list, rows, newCount, showNew } = useBatchList(ns, search)
  return (
    <>
      <p className="muted" style={{ marginBottom: 8 }}>
        {t('executions.range30d')}
      </p>
      {newCount > 0 && (
        <button type="button" className="newrows" onClick={() => void showNew()}>
          {t('executions.newRows', { count: newCount })}
        </button>
      )}
      <DataPage query={list} rows={rows} filtered={false} onClear={() => {}} empty={<p>{t('executions.empty')}</p>}>
        <BatchTable rows={rows} caption={t('executions.title')} short="job" />
      </DataPage>
    </>
  )
}

function DefinitionTab({ job }: { job: Job }) {
  const t = useT()
  const ns = useNamespace()
  const definition = writable(job)
  const json = JSON.stringify(definition, null, 2)
  return (
    <section className="card">
      <div className="cardhead">
        <h2>{t('job.json')}</h2>
        <span className="grow" />
        <CopyButton text={json} />
        <CopyButton
          label={t('common.copyCurl')}
          text={curlOf('PUT', `${baseURL}/api/v1/namespaces/${ns}/jobs/${job.id}`, {
            ...definition,
            version: job.version,
          })}
        />
      </div>
      <pre>{json}</pre>
    </section>
  )
}
