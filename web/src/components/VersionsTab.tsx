import { useInfiniteQuery, useQuery, useQueryClient } from '@tanstack/react-query'
import { App, Button, Modal } from 'antd'
import { useState } from 'react'
import { api, must } from '../api/client'
import { versionQuery, versionsPage } from '../api/queries'
import type { Job, Version } from '../api/types'
import { useT } from '../i18n/useText'
import { useCan, useNamespace } from '../shell/namespace'
import { ErrorBox, Guarded, Skeleton } from './basics'
import { DataPage, DataTable } from './DataTable'
import { useShowError } from './mutations'
import { Time } from './Time'

// VersionsTab lists what a job's definition was, and brings an earlier one back.
export function VersionsTab({ job }: { job: Job }) {
  const t = useT()
  const ns = useNamespace()
  const can = useCan()
  const client = useQueryClient()
  const showError = useShowError()
  const { modal, message } = App.useApp()
  const [shown, setShown] = useState<Version | null>(null)
  const query = useInfiniteQuery({
    queryKey: [ns, 'versions', job.id, job.version],
    queryFn: ({ pageParam }) => versionsPage(ns, job.id, pageParam),
    initialPageParam: 0,
    getNextPageParam: (last) => (last.nextCursor ? Number(last.nextCursor) : undefined),
  })
  const rows = query.data?.pages.flatMap((page) => page.items ?? []) ?? []

  const back = (one: Version) =>
    modal.confirm({
      title: t('versions.backAsk', { version: one.version }),
      content: t('versions.backText', { next: job.version + 1 }),
      okText: t('versions.back'),
      cancelText: t('common.cancel'),
      onOk: async () => {
        try {
          await must(
            api.POST('/api/v1/namespaces/{namespace}/jobs/{id}/rollback', {
              params: { path: { namespace: ns, id: job.id } },
              body: { to: one.version, version: job.version },
            }),
          )
          message.success(t('versions.backDone', { version: one.version }))
        } catch (error) {
          showError(error)
        }
        await client.invalidateQueries({ queryKey: [ns] })
      },
    })

  return (
    <>
      <DataPage query={query} rows={rows} filtered={false} onClear={() => {}} empty={null}>
        <DataTable
          caption={t('versions.title')}
          rows={rows}
          rowKey={(one) => String(one.version)}
          columns={[
            { key: 'version', title: t('versions.version'), num: true, cell: (one) => one.version },
            { key: 'at', title: t('versions.at'), cell: (one) => <Time at={one.createdAt} /> },
            { key: 'author', title: t('versions.author'), cell: (one) => one.author },
            { key: 'comment', title: t('versions.comment'), wide: true, cell: (one) => one.comment || '–' },
            {
              key: 'actions',
              title: t('common.actions'),
              quiet: true,
              cell: (one) => (
                <span className="nowrap">
                  <Button size="small" onClick={() => setShown(one)}>
                    {t('versions.changes')}
                  </Button>{' '}
                  {one.version !== job.version && (
                    <Guarded allowed={can('job.update')} permission="job.update" size="small" onClick={() => back(one)}>
                      {t('versions.back')}
                    </Guarded>
                  )}
                </span>
              ),
            },
          ]}
        />
      </DataPage>
      {shown && <Changes job={job} version={shown} onClose={() => setShown(null)} />}
    </>
  )
}

function Changes({ job, version, onClose }: { job: Job; version: Version; onClose: () => void }) {
  const t = useT()
  const ns = useNamespace()
  const query = useQuery(versionQuery(ns, job.id, version.version))
  const changes = query.data?.changes ?? []
  const show = (value: unknown) => (value === undefined ? '–' : JSON.stringify(value, null, 2))
  return (
    <Modal open width={860} footer={null} title={t('versions.of', { version: version.version })} onCancel={onClose}>
      {query.isPending ? (
        <Skeleton />
      ) : query.error ? (
        <ErrorBox error={query.error} retry={() => void query.refetch()} />
      ) : changes.length === 0 ? (
        <p className="muted">{t(version.version === 1 ? 'versions.first' : 'versions.none')}</p>
      ) : (
        <DataTable
          caption={t('versions.changes')}
          rows={changes}
          rowKey={(one) => one.path}
          columns={[
            { key: 'path', title: t('versions.field'), cell: (one) => <code>{one.path.slice(1)}</code> },
            { key: 'from', title: t('versions.before'), wide: true, cell: (one) => <pre>{show(one.from)}</pre> },
            { key: 'to', title: t('versions.after'), wide: true, cell: (one) => <pre>{show(one.value)}</pre> },
          ]}
        />
      )}
    </Modal>
  )
}
