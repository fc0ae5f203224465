import MoreOutlined from '@ant-design/icons/MoreOutlined'
import PlusOutlined from '@ant-design/icons/PlusOutlined'
import { useInfiniteQuery, useQuery } from '@tanstack/react-query'
import { Link, useNavigate, useSearch } from '@tanstack/react-router'
import { Button, Dropdown } from 'antd'
import { useState } from 'react'
import { appsQuery, everyPage, jobsPage } from '../api/queries'
import type { Job } from '../api/types'
import { BacklogBanner } from '../components/BacklogBanner'
import { Guarded, PageHead } from '../components/basics'
import { type Column, DataPage, DataTable } from '../components/DataTable'
import { ExportMenu } from '../components/ExportMenu'
import { useJobActions } from '../components/mutations'
import { ResultStrip } from '../components/ResultStrip'
import { RunModal } from '../components/RunModal'
import { StatusTag } from '../components/StatusTag'
import { TextFilter } from '../components/TextFilter'
import { Time, useZone } from '../components/Time'
import { useT, useText } from '../i18n/useText'
import { useEvery } from '../lib/live'
import type { JobSearch } from '../lib/search'
import { formatTime } from '../lib/time'
import { useCan, useNamespace } from '../shell/namespace'

export function Jobs() {
  const t = useT()
  const text = useText()
  const ns = useNamespace()
  const can = useCan()
  const zone = useZone()
  const search = useSearch({ from: '/ns/$ns/jobs' })
  const navigate = useNavigate({ from: '/ns/$ns/jobs' })
  const every = useEvery(10_000)
  const [running, setRunning] = useState<Job | null>(null)
  const actions = useJobActions()
  const apps = useQuery(appsQuery(ns))

  const query = useInfiniteQuery({
    queryKey: [ns, 'jobs', search],
    queryFn: ({ pageParam }) => jobsPage(ns, search, pageParam),
    initialPageParam: '',
    getNextPageParam: (last) => last.nextCursor || undefined,
    refetchInterval: every,
  })
  const rows = query.data?.pages.flatMap((page) => page.items) ?? []

  const set = (change: JobSearch) =>
    void navigate({ search: (old: JobSearch) => ({ ...old, ...change }), replace: true })

  const columns: Column<Job>[] = [
    {
      key: 'name',
      roomy: true,
      title: t('common.name'),
      cell: (job) => (
        <Link to="/ns/$ns/jobs/$id" params={{ ns, id: job.id }}>
          {job.name}
        </Link>
      ),
    },
    {
      key: 'handler',
      title: t('jobs.appHandler'),
      cell: (job) => (
        <>
          {job.app}
          <span className="two mono">{job.handler}</span>
        </>
      ),
    },
    {
      key: 'schedule',
      title: t('jobs.schedule'),
      cell: (job) => (
        <>
          {text(job.scheduleText) || t('form.manualOnly')}
          <span className="two">
            {job.enabled && job.nextTriggerAt ? (
              <>
                {t('jobs.next')}: <Time at={job.nextTriggerAt} />
              </>
            ) : (
              t('jobs.noNext')
            )}
          </span>
        </>
      ),
    },
    { key: 'results', title: t('jobs.results'), cell: (job) => <ResultStrip batches={job.lastBatches} /> },
    {
      key: 'enabled',
      title: t('common.state'),
      cell: (job) => <StatusTag state={job.enabled ? 'ENABLED' : 'DISABLED'} />,
    },
    { key: 'version', title: t('jobs.version'), num: true, cell: (job) => job.version },
    {
      key: 'actions',
      title: t('common.actions'),
      quiet: true,
      cell: (job) => (
        <span className="pair">
          <Guarded allowed={can('job.run')} permission="job.run" size="small" onClick={() => setRunning(job)}>
            {t('jobs.run')}
          </Guarded>
          <Dropdown
            trigger={['click']}
            menu={{
              items: [
                {
                  key: 'runs',
                  label: (
                    <Link to="/ns/$ns/executions" params={{ ns }} search={{ job: job.id }}>
                      {t('jobs.viewRuns')}
                    </Link>
                  ),
                },
                job.enabled
                  ? {
                      key: 'disable',
                      label: t('jobs.disable'),
                      disabled: !can('job.pause'),
                      onClick: () => void actions.disable(job),
                    }
                  : {
                      key: 'enable',
                      label: t('jobs.enable'),
                      disabled: !can('job.pause'),
                      onClick: () => void actions.enable(job),
                    },
                {
                  key: 'edit',
                  label: t('common.edit'),
                  disabled: !can('job.update'),
                  onClick: () => void navigate({ to: '/ns/$ns/jobs/$id/edit', params: { ns, id: job.id } }),
                },
                {
                  key: 'clone',
                  label: t('common.clone'),
                  disabled: !can('job.create'),
                  onClick: () => void navigate({ to: '/ns/$ns/jobs/new', params: { ns }, search: { clone: job.id } }),
                },
                { type: 'divider' },
                {
                  key: 'delete',
                  label: t('common.delete'),
                  danger: true,
                  disabled: !can('job.delete'),
                  onClick: () => void actions.remove(job),
                },
              ],
            }}
          >
            <Button
              size="small"
              icon={<MoreOutlined />}
              aria-haspopup="menu"
              aria-label={t('common.more', { name: job.name })}
            />
          </Dropdown>
        </span>
      ),
    },
  ]

  return (
    <>
      <PageHead title={t('jobs.title')}>
        <ExportMenu<Job>
          name={`jobs-${ns}`}
          load={() => everyPage((cursor) => jobsPage(ns, search, cursor, 200))}
          header={['id', 'name', 'app', 'handler', 'schedule', 'nextTriggerAt', 'enabled', 'version', 'params']}
          row={(job) => [
            job.id,
            job.name,
            job.app,
            job.handler,
            text(job.scheduleText),
            formatTime(job.nextTriggerAt, zone),
            job.enabled,
            job.version,
            job.params,
          ]}
        />
        <Guarded
          allowed={can('job.create')}
          permission="job.create"
          type="primary"
          icon={<PlusOutlined />}
          onClick={() => void navigate({ to: '/ns/$ns/jobs/new', params: { ns }, search: {} })}
        >
          {t('jobs.new')}
        </Guarded>
      </PageHead>
      <BacklogBanner />
      <search className="toolbar">
        <TextFilter label={t('jobs.search')} value={search.q ?? ''} onChange={(q) => set({ q: q || undefined })} />
        <select
          className="select"
          aria-label={t('jobs.app')}
          value={search.app ?? ''}
          onChange={(event) => set({ app: event.target.value || undefined })}
        >
          <option value="">{`${t('jobs.app')}: ${t('common.all')}`}</option>
          {apps.data?.items.map((app) => (
            <option key={app.name} value={app.name}>
              {app.name}
            </option>
          ))}
        </select>
        <select
          className="select"
          aria-label={t('common.state')}
          value={search.state ?? ''}
          onChange={(event) => set({ state: (event.target.value || undefined) as JobSearch['state'] })}
        >
          <option value="">{`${t('common.state')}: ${t('common.all')}`}</option>
          <option value="enabled">{t('jobs.stateEnabled')}</option>
          <option value="disabled">{t('jobs.stateDisabled')}</option>
        </select>
      </search>
      <DataPage
        query={query}
        rows={rows}
        filtered={Boolean(search.q || search.app || search.state)}
        onClear={() => void navigate({ search: {}, replace: true })}
        empty={
          <>
            <p>{t('jobs.empty')}</p>
            <p>{t('jobs.emptyHint')}</p>
          </>
        }
      >
        <DataTable
          caption={t('jobs.title')}
          columns={columns}
          rows={rows}
          rowKey={(job) => job.id}
          onRow={(job) => void navigate({ to: '/ns/$ns/jobs/$id', params: { ns, id: job.id } })}
        />
      </DataPage>
      {running && <RunModal job={running} onClose={() => setRunning(null)} />}
    </>
  )
}
