import { useQuery, useQueryClient } from '@tanstack/react-query'
import { App, Checkbox } from 'antd'
import { useState } from 'react'
import { api, must } from '../api/client'
import { systemQuery } from '../api/queries'
import type { Bucket, Move, Replica, System as SystemState } from '../api/types'
import { ErrorBox, Guarded, PageHead, Skeleton } from '../components/basics'
import { type Column, DataTable } from '../components/DataTable'
import { useShowError } from '../components/mutations'
import { Time } from '../components/Time'
import { useT, useText } from '../i18n/useText'
import { useEvery } from '../lib/live'
import { formatSpan } from '../lib/time'
import { useCan } from '../shell/namespace'

const tones: Record<Replica['state'], string> = { up: 'ok', draining: 'late', leaving: 'late', down: 'bad' }

export function System() {
  const t = useT()
  const query = useQuery({ ...systemQuery, refetchInterval: useEvery(1_000) })
  return (
    <>
      <PageHead title={t('system.title')} />
      {query.data ? (
        <State state={query.data} />
      ) : query.error ? (
        <ErrorBox error={query.error} retry={() => void query.refetch()} />
      ) : (
        <Skeleton />
      )}
    </>
  )
}

function State({ state }: { state: SystemState }) {
  const t = useT()
  const text = useText()
  const can = useCan()('system.update')
  const client = useQueryClient()
  const { modal, message } = App.useApp()
  const showError = useShowError()
  const [all, setAll] = useState(false)

  const name = (id: string) => state.replicas.find((one) => one.id === id)?.address ?? id
  const up = state.replicas.filter((one) => one.state === 'up')

  async function change(act: () => Promise<SystemState>, done: string) {
    try {
      client.setQueryData(systemQuery.queryKey, await act())
      message.success(done)
    } catch (error) {
      showError(error)
    }
  }
  const params = (one: Replica) => ({ params: { path: { replica: one.id } } })
  const drain = (one: Replica) =>
    modal.confirm({
      title: t('system.drainTitle', { name: one.address }),
      content: t('system.drainText'),
      okText: t('system.drain'),
      cancelText: t('common.cancel'),
      onOk: () =>
        change(
          () => must(api.POST('/api/v1/system/replicas/{replica}/drain', params(one))),
          t('system.drained', { name: one.address }),
        ),
    })
  const resume = (one: Replica) =>
    void change(
      () => must(api.POST('/api/v1/system/replicas/{replica}/resume', params(one))),
      t('system.resumed', { name: one.address }),
    )
  const move = (one: Bucket, to: string) =>
    void change(
      () =>
        must(
          api.POST('/api/v1/system/buckets/{bucket}/move', { params: { path: { bucket: one.bucket } }, body: { to } }),
        ),
      to ? t('system.moved', { bucket: one.bucket, name: name(to) }) : t('system.unpinned', { bucket: one.bucket }),
    )

  const replicas: Column<Replica>[] = [
    {
      key: 'address',
      title: t('system.replica'),
      cell: (one) => (
        <>
          <span className="mono">{one.address}</span>
          <span className="two mono">
            {one.id}
            {one.answering && ` · ${t('system.answering')}`}
          </span>
        </>
      ),
    },
    {
      key: 'state',
      title: t('common.state'),
      cell: (one) => <span className={`tag tone-${tones[one.state]}`}>{t(`system.states.${one.state}`)}</span>,
    },
    {
      key: 'buckets',
      title: t('system.buckets'),
      cell: (one) => (
        <span className="nowrap">
          <span className="meter" aria-hidden="true">
            <i style={{ width: `${(one.buckets / Math.max(state.buckets.length, 1)) * 100}%` }} />
          </span>
          {one.buckets} / {state.buckets.length}
        </span>
      ),
    },
    { key: 'build', title: t('system.build'), cell: (one) => one.build },
    { key: 'started', title: t('system.started'), cell: (one) => <Time at={one.startedAt} /> },
    {
      key: 'actions',
      title: t('common.actions'),
      quiet: true,
      cell: (one) =>
        one.state === 'up' ? (
          <Guarded allowed={can} permission="system.update" size="small" onClick={() => drain(one)}>
            {t('system.drain')}
          </Guarded>
        ) : one.state === 'draining' ? (
          <Guarded allowed={can} permission="system.update" size="small" onClick={() => resume(one)}>
            {t('system.resume')}
          </Guarded>
        ) : null,
    },
  ]

  const buckets: Column<Bucket>[] = [
    { key: 'bucket', title: t('system.bucket'), num: true, cell: (one) => one.bucket },
    {
      key: 'owner',
      title: t('system.owner'),
      cell: (one) => (one.owner ? <span className="mono">{name(one.owner)}</span> : t('system.nobody')),
    },
    {
      key: 'namespaces',
      title: t('system.namespaces'),
      wide: true,
      cell: (one) =>
        one.namespaces.map((ns) => (
          <span className="label" key={ns}>
            {ns}
          </span>
        )),
    },
    { key: 'lag', title: t('system.lag'), num: true, cell: (one) => (one.lagMs > 0 ? formatSpan(one.lagMs) : '–') },
    { key: 'epoch', title: t('system.epoch'), num: true, cell: (one) => one.epoch },
    { key: 'taken', title: t('system.taken'), cell: (one) => <Time at={one.takenAt} /> },
    {
      key: 'pin',
      title: t('system.pin'),
      cell: (one) => (
        <select
          className="select"
          aria-label={t('system.pinLabel', { bucket: one.bucket })}
          disabled={!can}
          value={one.pinnedTo}
          onChange={(event) => move(one, event.target.value)}
        >
          <option value="">{t('system.anywhere')}</option>
          {one.pinnedTo && !up.some((to) => to.id === one.pinnedTo) && (
            <option value={one.pinnedTo}>{name(one.pinnedTo)}</option>
          )}
          {up.map((to) => (
            <option key={to.id} value={to.id}>
              {to.address}
            </option>
          ))}
        </select>
      ),
    },
  ]

  const moves: Column<Move>[] = [
    { key: 'at', title: t('system.at'), cell: (one) => <Time at={one.at} millis /> },
    { key: 'bucket', title: t('system.bucket'), num: true, cell: (one) => one.bucket },
    {
      key: 'from',
      title: t('system.from'),
      cell: (one) => (one.from ? <span className="mono">{name(one.from)}</span> : '–'),
    },
    {
      key: 'to',
      title: t('system.to'),
      cell: (one) => <span className="mono">{name(one.to)}</span>,
    },
    { key: 'reason', title: t('system.reason'), cell: (one) => one.reason && text(one.reason) },
  ]

  const shown = state.buckets.filter((one) => all || one.namespaces.length > 0 || one.pinnedTo || one.lagMs > 0)
  return (
    <>
      <DataTable
        caption={t('system.replicas')}
        columns={replicas}
        rows={[...state.replicas].sort((a, b) => Number(a.state === 'down') - Number(b.state === 'down'))}
        rowKey={(one) => one.id}
      />
      <div className="pagehead" style={{ marginTop: 24 }}>
        <h2>{t('system.buckets')}</h2>
        <span className="grow" />
        <Checkbox checked={all} onChange={(event) => setAll(event.target.checked)}>
          {t('system.all', { count: state.buckets.length })}
        </Checkbox>
      </div>
      <DataTable caption={t('system.buckets')} columns={buckets} rows={shown} rowKey={(one) => String(one.bucket)} />
      <div className="pagehead" style={{ marginTop: 24 }}>
        <h2>{t('system.moves')}</h2>
      </div>
      <DataTable
        caption={t('system.moves')}
        columns={moves}
        rows={state.moves}
        rowKey={(one) => `${one.bucket}-${one.epoch}`}
      />
    </>
  )
}
