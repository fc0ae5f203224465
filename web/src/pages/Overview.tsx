import { useQuery } from '@tanstack/react-query'
import { Link, useNavigate } from '@tanstack/react-router'
import { Button } from 'antd'
import type { ReactNode } from 'react'
import { appsQuery, latestBatches, summaryQuery } from '../api/queries'
import { CopyButton, ErrorBox, Guarded, PageHead, Skeleton } from '../components/basics'
import { lookOf } from '../components/StatusTag'
import { useT } from '../i18n/useText'
import { useEvery } from '../lib/live'
import type { BatchSearch } from '../lib/search'
import { formatSpan } from '../lib/time'
import { useCan, useNamespace } from '../shell/namespace'
import { BatchTable } from './BatchTable'
import { goExecutor } from './snippet'

export function Overview() {
  const t = useT()
  const ns = useNamespace()
  const summary = useQuery({ ...summaryQuery(ns), refetchInterval: useEvery(3_000) })
  const data = summary.data
  return (
    <>
      <PageHead title={t('overview.title')} />
      {summary.isPending ? (
        <Skeleton />
      ) : data ? (
        <>
          <div className="tiles">
            <BatchTile
              label={t('overview.running')}
              state="RUNNING"
              value={data.running}
              search={{ state: 'DISPATCHING,RUNNING,UNKNOWN' }}
            />
            <BatchTile
              label={t('overview.queued')}
              state="WAITING"
              value={data.queued}
              search={{ state: 'WAITING,DELAYED,READY' }}
            />
            <BatchTile
              label={t('overview.succeeded')}
              state="SUCCEEDED"
              value={data.succeeded1h}
              search={{ state: 'SUCCEEDED', range: '1h' }}
            />
            <BatchTile
              label={t('overview.failed')}
              state="FAILED"
              alarm="bad"
              value={data.failed1h}
              search={{ state: 'FAILED,TIMED_OUT', range: '1h' }}
            />
            <BatchTile
              label={t('overview.missed')}
              state="MISSED"
              alarm="late"
              value={data.missed1h}
              more={data.skipped1h > 0 ? t('overview.skipped', { count: data.skipped1h }) : undefined}
              search={{ state: 'SKIPPED,MISSED', range: '1h' }}
            />
            <Link className="tile" to="/ns/$ns/executors" params={{ ns }} search={{ state: 'ONLINE' }}>
              <TileText label={t('overview.executors')} state="ONLINE">
                {data.executorsOnline} <small>{t('overview.ofTotal', { total: data.executorsTotal })}</small>
              </TileText>
            </Link>
            <Link className="tile" to="/ns/$ns/jobs" params={{ ns }} search={{ state: 'enabled' }}>
              <TileText label={t('overview.jobs')} state="ENABLED">
                {data.jobsEnabled} <small>{t('overview.ofTotal', { total: data.jobs })}</small>
              </TileText>
            </Link>
            <Link className="tile" to="/ns/$ns/executions" params={{ ns }} search={{ range: '1h' }}>
              <span title={t('overview.p99Help')}>
                <TileText label={t('overview.p99')} state="TIMED_OUT">
                  {data.triggerErrorP99Ms === null || data.triggerErrorP99Ms === undefined
                    ? '–'
                    : `≤ ${formatSpan(data.triggerErrorP99Ms)}`}
                </TileText>
              </span>
            </Link>
          </div>
          {data.jobs === 0 ? <FirstSteps online={data.executorsOnline} jobs={data.jobs} /> : <Latest />}
        </>
      ) : (
        <ErrorBox error={summary.error} retry={() => void summary.refetch()} />
      )}
    </>
  )
}

function TileText({ label, state, children }: { label: string; state: string; children: ReactNode }) {
  const { icon: Icon } = lookOf(state)
  return (
    <>
      <span className="what">
        <span aria-hidden="true">
          <Icon />
        </span>
        {label}
      </span>
      <span className="count">{children}</span>
    </>
  )
}

function BatchTile({
  label,
  state,
  value,
  more,
  search,
  alarm,
}: {
  label: string
  state: string
  value: number
  more?: string
  search: BatchSearch
  alarm?: 'bad' | 'late'
}) {
  const ns = useNamespace()
  return (
    <Link
      className={alarm && value > 0 ? `tile ${alarm}` : 'tile'}
      to="/ns/$ns/executions"
      params={{ ns }}
      search={search}
    >
      <TileText label={label} state={state}>
        {value} {more && <small>{more}</small>}
      </TileText>
    </Link>
  )
}

const failedStates = { state: 'FAILED,TIMED_OUT,MISSED', range: '24h' } as const

function Latest() {
  const t = useT()
  const ns = useNamespace()
  const every = useEvery(4_000)
  const recent = useQuery({ ...latestBatches(ns, { range: '24h' }, 8), refetchInterval: every })
  const failures = useQuery({ ...latestBatches(ns, failedStates, 5), refetchInterval: every })
  return (
    <>
      <section className="card">
        <div className="cardhead">
          <h2>{t('overview.failures')}</h2>
          <span className="grow" />
          <Link to="/ns/$ns/executions" params={{ ns }} search={failedStates}>
            {t('overview.allExecutions')}
          </Link>
        </div>
        {failures.data?.items.length ? (
          <BatchTable rows={failures.data.items} caption={t('overview.failures')} short="reason" />
        ) : (
          <p className="muted">{failures.data ? t('overview.noFailures') : t('common.loading')}</p>
        )}
      </section>
      <section className="card">
        <div className="cardhead">
          <h2>{t('overview.recent')}</h2>
          <span className="grow" />
          <Link to="/ns/$ns/executions" params={{ ns }}>
            {t('overview.allExecutions')}
          </Link>
        </div>
        {recent.data?.items.length ? (
          <BatchTable rows={recent.data.items} caption={t('overview.recent')} short="times" />
        ) : (
          <p className="muted">{recent.data ? t('executions.empty') : t('common.loading')}</p>
        )}
      </section>
    </>
  )
}

function FirstSteps({ online, jobs }: { online: number; jobs: number }) {
  const t = useT()
  const ns = useNamespace()
  const can = useCan()
  const navigate = useNavigate()
  const apps = useQuery(appsQuery(ns))
  const app = apps.data?.items[0]
  const snippet = goExecutor(ns, app?.name ?? '')
  return (
    <section className="card">
      <h2>{t('overview.firstTitle')}</h2>
      <ol className="steps">
        <li>
          <span className="no">1</span>
          <div>
            <h3>{t('overview.step1')}</h3>
            <p className="muted">
              {app && online > 0
                ? t('overview.step1Done', { count: online })
                : app
                  ? t('overview.step1Wait')
                  : t('overview.step1Text')}
            </p>
          </div>
          <Guarded
            allowed={can('app.create')}
            permission="app.create"
            type={app ? 'default' : 'primary'}
            onClick={() => void navigate({ to: '/ns/$ns/apps', params: { ns } })}
          >
            {t('overview.step1Button')}
          </Guarded>
          {app && online === 0 && (
            <div className="wide">
              <pre>{snippet}</pre>
              <div style={{ marginTop: 8 }}>
                <CopyButton text={snippet} />
              </div>
            </div>
          )}
        </li>
        <li>
          <span className="no">2</span>
          <div>
            <h3>{t('overview.step2')}</h3>
            <p className="muted">{jobs > 0 ? t('overview.step2Done', { count: jobs }) : t('overview.step2Text')}</p>
          </div>
          <Guarded
            allowed={can('job.create')}
            permission="job.create"
            type={app && online > 0 ? 'primary' : 'default'}
            onClick={() => void navigate({ to: '/ns/$ns/jobs/new', params: { ns }, search: {} })}
          >
            {t('overview.step2Button')}
          </Guarded>
        </li>
        <li>
          <span className="no">3</span>
          <div>
            <h3>{t('overview.step3')}</h3>
            <p className="muted">{t('overview.step3Text')}</p>
          </div>
          <Button onClick={() => void navigate({ to: '/ns/$ns/jobs', params: { ns } })}>
            {t('overview.step3Button')}
          </Button>
        </li>
      </ol>
    </section>
  )
}
