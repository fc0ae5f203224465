import { useQuery, useQueryClient } from '@tanstack/react-query'
import { Link, useNavigate, useSearch } from '@tanstack/react-router'
import { useState } from 'react'
import { api, must } from '../api/client'
import { appsQuery, executorsQuery, stormsQuery } from '../api/queries'
import { type Executor, executorStates } from '../api/types'
import { Guarded, PageHead } from '../components/basics'
import { type Column, DataPage, DataTable } from '../components/DataTable'
import { useShowError } from '../components/mutations'
import { ReasonModal } from '../components/ReasonModal'
import { StateFilter } from '../components/StateFilter'
import { StatusTag } from '../components/StatusTag'
import { TextFilter } from '../components/TextFilter'
import { Time } from '../components/Time'
import { useT, useText } from '../i18n/useText'
import { useEvery } from '../lib/live'
import { type ExecutorSearch, splitList } from '../lib/search'
import { formatSpan } from '../lib/time'
import { useCan, useNamespace } from '../shell/namespace'

export function Executors() {
  const t = useT()
  const text = useText()
  const ns = useNamespace()
  const search = useSearch({ from: '/ns/$ns/executors' })
  const navigate = useNavigate({ from: '/ns/$ns/executors' })
  const query = useQuery({ ...executorsQuery(ns), refetchInterval: useEvery(2_000) })
  const apps = useQuery(appsQuery(ns))
  const every = useEvery(5_000)
  const storms = useQuery({ ...stormsQuery(ns), refetchInterval: every })
  const can = useCan()
  const client = useQueryClient()
  const showError = useShowError()
  const [draining, setDraining] = useState<Executor>()
  const [releasing, setReleasing] = useState('')
  const again = () => client.invalidateQueries({ queryKey: [ns] })
  const undrain = (one: Executor) =>
    must(
      api.POST('/api/v1/namespaces/{namespace}/executors/{id}/undrain', {
        params: { path: { namespace: ns, id: one.id } },
      }),
    ).then(again, showError)
  const set = (change: ExecutorSearch) =>
    void navigate({ search: (old: ExecutorSearch) => ({ ...old, ...change }), replace: true })

  const states = splitList(search.state, executorStates)
  const q = (search.q ?? '').toLowerCase()
  // Those that are gone come last; within each part the order is the server's.
  const rows = (query.data?.items ?? [])
    .filter(
      (one) =>
        (!search.app || one.app === search.app) &&
        (states.length === 0 || states.includes(one.state)) &&
        (!q || searchable(one).includes(q)),
    )
    .sort((a, b) => Number(a.state === 'OFFLINE') - Number(b.state === 'OFFLINE'))

  const columns: Column<Executor>[] = [
    {
      key: 'app',
      title: t('executors.appAddress'),
      cell: (one) => (
        <>
          {one.app}
          <span className="two mono">{one.address}</span>
          {Object.entries(one.labels ?? {}).map(([name, value]) => (
            <span className="label" key={name}>
              {name}={value}
            </span>
          ))}
        </>
      ),
    },
    {
      key: 'state',
      roomy: true,
      title: t('common.state'),
      cell: (one) => (
        <>
          <StatusTag state={one.state} />
          {one.reason && <span className="two">{text(one.reason)}</span>}
          {one.drain && (
            <span className="two">{t('executors.drainedBy', { by: one.drain.by, reason: one.drain.reason })}</span>
          )}
        </>
      ),
    },
    {
      key: 'heartbeat',
      title: t('executors.heartbeat'),
      num: true,
      cell: (one) => <span className="nowrap">{t('executors.ago', { span: formatSpan(one.heartbeatAgeMs) })}</span>,
    },
    {
      key: 'slots',
      title: t('executors.slots'),
      cell: (one) => (
        <span className="nowrap" title={t('executors.slotsLabel', { running: one.running, slots: one.slots })}>
          <span className="meter" aria-hidden="true">
            <i style={{ width: `${one.slots > 0 ? Math.min(100, (one.running / one.slots) * 100) : 0}%` }} />
          </span>
          {one.running} / {one.slots}
          <span className="two">{`${one.cpu} CPU · ${Math.round(one.memoryMB / 102.4) / 10} GiB`}</span>
        </span>
      ),
    },
    {
      key: 'handlers',
      wide: true,
      title: t('executors.handlers'),
      cell: (one) =>
        (one.handlers ?? []).map((handler) => (
          <span className="label mono" key={handler.name} title={handler.kind}>
            {handler.name}
          </span>
        )),
    },
    {
      key: 'sdk',
      title: t('executors.sdk'),
      cell: (one) => (
        <>
          {one.sdk}
          <span className="two" title={`${t('executors.startId')}: ${one.startId}`}>
            <Time at={one.registeredAt} />
          </span>
        </>
      ),
    },
  ]

  columns.push({
    key: 'actions',
    title: t('common.actions'),
    cell: (one) => (
      <Guarded
        size="small"
        allowed={can('executor.pause')}
        permission="executor.pause"
        disabled={!one.drain && one.state === 'OFFLINE'}
        onClick={() => (one.drain ? void undrain(one) : setDraining(one))}
      >
        {t(one.drain ? 'executors.undrain' : 'executors.drain')}
      </Guarded>
    ),
  })

  return (
    <>
      <PageHead title={t('executors.title')} />
      {storms.data?.items.map((storm) => (
        <div className="note" role="alert" key={storm.app} style={{ marginBottom: 8 }}>
          {t('executors.storm', storm)}{' '}
          <Guarded
            size="small"
            danger
            allowed={can('executor.pause')}
            permission="executor.pause"
            onClick={() => setReleasing(storm.app)}
          >
            {t('executors.release')}
          </Guarded>
        </div>
      ))}
      {(storms.data?.redispatch.waiting ?? 0) > 0 && (
        <div className="note" role="alert" style={{ marginBottom: 8 }}>
          {t('executors.redispatch', storms.data?.redispatch)}
        </div>
      )}
      {draining && (
        <ReasonModal
          title={t('executors.drainTitle', { address: draining.address })}
          text={t('executors.drainText')}
          ok={t('executors.drain')}
          act={(reason) =>
            must(
              api.POST('/api/v1/namespaces/{namespace}/executors/{id}/drain', {
                params: { path: { namespace: ns, id: draining.id } },
                body: { reason },
              }),
            ).then(again)
          }
          onClose={() => setDraining(undefined)}
        />
      )}
      {releasing && (
        <ReasonModal
          title={t('executors.releaseTitle', { app: releasing })}
          text={t('executors.releaseText')}
          ok={t('executors.release')}
          act={(reason) =>
            must(
              api.POST('/api/v1/namespaces/{namespace}/executors/storm/release', {
                params: { path: { namespace: ns } },
                body: { app: releasing, reason },
              }),
            ).then(again)
          }
          onClose={() => setReleasing('')}
        />
      )}
      <search className="toolbar">
        <TextFilter
          label={t('executors.search')}
          value={search.q ?? ''}
          onChange={(next) => set({ q: next || undefined })}
        />
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
        <StateFilter states={executorStates} value={search.state} onChange={(state) => set({ state })} />
      </search>
      <DataPage
        query={query}
        rows={rows}
        filtered={Boolean(search.q || search.app || search.state)}
        onClear={() => void navigate({ search: {}, replace: true })}
        empty={
          <>
            <p>{t('executors.empty')}</p>
            <p>
              <Link to="/ns/$ns/apps" params={{ ns }}>
                {t('executors.emptyHint')}
              </Link>
            </p>
          </>
        }
      >
        <DataTable caption={t('executors.title')} columns={columns} rows={rows} rowKey={(one) => one.id} />
      </DataPage>
    </>
  )
}

function searchable(one: Executor): string {
  const labels = Object.entries(one.labels ?? {}).map(([name, value]) => `${name}=${value}`)
  const handlers = (one.handlers ?? []).map((handler) => handler.name)
  return [one.address, one.app, ...labels, ...handlers].join(' ').toLowerCase()
}
