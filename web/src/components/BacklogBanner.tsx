import { useQuery, useQueryClient } from '@tanstack/react-query'
import { App, InputNumber } from 'antd'
import { useState } from 'react'
import { api, must } from '../api/client'
import { backlogQuery } from '../api/queries'
import { useT } from '../i18n/useText'
import { useEvery } from '../lib/live'
import { useCan, useNamespace } from '../shell/namespace'
import { Guarded } from './basics'
import { useShowError } from './mutations'
import { Time } from './Time'

type Item = NonNullable<Awaited<ReturnType<NonNullable<ReturnType<typeof backlogQuery>['queryFn']>>>>['items'][number]

// BacklogBanner stands over the jobs while missed firings wait, and offers what an operator may do with
// the backlog of each app. Without a backlog there is nothing.
export function BacklogBanner() {
  const t = useT()
  const ns = useNamespace()
  const every = useEvery(5_000)
  const backlog = useQuery({ ...backlogQuery(ns), refetchInterval: every })
  if (!backlog.data || backlog.data.count === 0) return null
  const apps = new Map<string, Item[]>()
  for (const item of backlog.data.items) apps.set(item.app, [...(apps.get(item.app) ?? []), item])
  return (
    <section className="card" aria-label={t('backlog.title')} role="status">
      <p>{t('backlog.waits', { count: backlog.data.count, jobs: backlog.data.jobs })}</p>
      {[...apps].map(([app, items]) => (
        <AppBacklog key={app} app={app} items={items} />
      ))}
    </section>
  )
}

function AppBacklog({ app, items }: { app: string; items: Item[] }) {
  const t = useT()
  const namespace = useNamespace()
  const can = useCan()
  const client = useQueryClient()
  const { message, modal } = App.useApp()
  const showError = useShowError()
  const [rate, setRate] = useState<number>(items[0]?.appRate ?? 0)

  const paused = items.every((item) => item.paused)
  const ends = items
    .map((item) => item.expectedEnd ?? '')
    .sort()
    .at(-1)
  const post = async (act: () => Promise<unknown>) => {
    try {
      await act()
      message.success(t('backlog.done'))
    } catch (error) {
      showError(error)
    } finally {
      await client.invalidateQueries({ queryKey: [namespace] })
    }
  }
  const params = { path: { namespace } }
  const pause = () => must(api.POST('/api/v1/namespaces/{namespace}/backlog/pause', { params, body: { app } }))
  const resume = () => must(api.POST('/api/v1/namespaces/{namespace}/backlog/resume', { params, body: { app } }))
  const speed = () => must(api.POST('/api/v1/namespaces/{namespace}/backlog/speed', { params, body: { app, rate } }))
  const drop = (dryRun: boolean) =>
    must(api.POST('/api/v1/namespaces/{namespace}/backlog/drop', { params, body: { app, dryRun } }))
  const ask = async () => {
    try {
      const { count, jobs } = await drop(true)
      modal.confirm({
        title: t('backlog.dropTitle', { app }),
        content: t('backlog.dropText', { count, jobs }),
        okText: t('backlog.drop'),
        okButtonProps: { danger: true },
        cancelText: t('common.cancel'),
        onOk: () => post(() => drop(false)),
      })
    } catch (error) {
      showError(error)
    }
  }
  const guard = { allowed: can('job.pause'), permission: 'job.pause', size: 'small' as const }
  return (
    <div className="toolbar">
      <strong>{app}</strong>
      <span>{t('backlog.count', { count: items.reduce((sum, item) => sum + item.count, 0) })}</span>
      <span className="muted">
        {paused ? (
          t('backlog.paused')
        ) : (
          <>
            {t('backlog.end')}: <Time at={ends} />
          </>
        )}
      </span>
      <span className="grow" />
      {paused ? (
        <Guarded {...guard} onClick={() => void post(resume)}>
          {t('backlog.resume')}
        </Guarded>
      ) : (
        <Guarded {...guard} onClick={() => void post(pause)}>
          {t('backlog.pause')}
        </Guarded>
      )}
      <InputNumber
        size="small"
        aria-label={t('backlog.rate')}
        title={t('backlog.rate')}
        min={0}
        max={10_000}
        value={rate}
        onChange={(next) => next !== null && setRate(next)}
      />
      <Guarded {...guard} onClick={() => void post(speed)}>
        {t('backlog.speed')}
      </Guarded>
      <Guarded allowed={can('batch.cancel')} permission="batch.cancel" size="small" danger onClick={() => void ask()}>
        {t('backlog.drop')}
      </Guarded>
    </div>
  )
}
