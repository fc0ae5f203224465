import PlusOutlined from '@ant-design/icons/PlusOutlined'
import { useQuery, useQueryClient } from '@tanstack/react-query'
import { Link } from '@tanstack/react-router'
import { Button, Input, Modal } from 'antd'
import { useState } from 'react'
import { api, must, refusedOf } from '../api/client'
import { appsQuery } from '../api/queries'
import type { AppCreated } from '../api/types'
import { CopyButton, Field, Guarded, PageHead, type Refusal } from '../components/basics'
import { DataPage, DataTable } from '../components/DataTable'
import { Time } from '../components/Time'
import { useT, useText } from '../i18n/useText'
import { useEvery } from '../lib/live'
import { useCan, useNamespace } from '../shell/namespace'
import { goExecutor } from './snippet'

export function Apps() {
  const t = useT()
  const ns = useNamespace()
  const can = useCan()
  const query = useQuery({ ...appsQuery(ns), refetchInterval: useEvery(5_000) })
  const rows = query.data?.items ?? []
  const [creating, setCreating] = useState(false)
  const [created, setCreated] = useState<AppCreated | null>(null)
  const button = (
    <Guarded
      allowed={can('app.create')}
      permission="app.create"
      type="primary"
      icon={<PlusOutlined />}
      onClick={() => setCreating(true)}
    >
      {t('apps.new')}
    </Guarded>
  )
  return (
    <>
      <PageHead title={t('apps.title')}>{rows.length > 0 && button}</PageHead>
      <DataPage
        query={query}
        rows={rows}
        filtered={false}
        onClear={() => {}}
        empty={
          <>
            <p>{t('apps.empty')}</p>
            <div>{button}</div>
          </>
        }
      >
        <DataTable
          caption={t('apps.title')}
          rows={rows}
          rowKey={(app) => app.name}
          columns={[
            { key: 'name', title: t('common.name'), cell: (app) => app.name },
            { key: 'protocol', title: t('apps.protocol'), cell: (app) => app.protocol },
            {
              key: 'executors',
              title: t('apps.executors'),
              num: true,
              cell: (app) => (
                <Link to="/ns/$ns/executors" params={{ ns }} search={{ app: app.name }}>
                  {`${app.executors?.online ?? 0} / ${app.executors?.total ?? 0}`}
                </Link>
              ),
            },
            {
              key: 'jobs',
              title: t('apps.jobs'),
              num: true,
              cell: (app) => (
                <Link to="/ns/$ns/jobs" params={{ ns }} search={{ app: app.name }}>
                  {app.jobs}
                </Link>
              ),
            },
            { key: 'created', title: t('apps.created'), cell: (app) => <Time at={app.createdAt} /> },
          ]}
        />
      </DataPage>
      {creating && (
        <CreateModal
          onClose={() => setCreating(false)}
          onCreated={(app) => {
            setCreating(false)
            setCreated(app)
          }}
        />
      )}
      {created && <KeyModal app={created} onClose={() => setCreated(null)} />}
    </>
  )
}

function CreateModal({ onClose, onCreated }: { onClose: () => void; onCreated: (app: AppCreated) => void }) {
  const t = useT()
  const text = useText()
  const ns = useNamespace()
  const client = useQueryClient()
  const [name, setName] = useState('')
  const [busy, setBusy] = useState(false)
  const [refusals, setRefusals] = useState<Refusal[]>([])

  async function create() {
    if (!name.trim()) return
    setBusy(true)
    setRefusals([])
    try {
      const app = await must(
        api.POST('/api/v1/namespaces/{namespace}/apps', {
          params: { path: { namespace: ns } },
          body: { name: name.trim(), protocol: 'ax' },
        }),
      )
      await client.invalidateQueries({ queryKey: [ns] })
      onCreated(app)
    } catch (error) {
      const refused = refusedOf(error)
      setRefusals(
        refused.errors.length > 0
          ? refused.errors.map((one) => ({ text: text(one.message), suggestion: one.suggestion }))
          : [{ text: refused.status === 0 ? t('error.unreachable') : refused.message }],
      )
    } finally {
      setBusy(false)
    }
  }

  return (
    <Modal
      open
      title={t('apps.new')}
      okText={t('common.create')}
      cancelText={t('common.cancel')}
      okButtonProps={{ disabled: !name.trim() }}
      confirmLoading={busy}
      onOk={() => void create()}
      onCancel={onClose}
    >
      <Field label={t('common.name')} help={t('apps.nameHelp')} refusals={refusals} onSuggestion={setName}>
        {(field) => (
          <Input
            {...field}
            autoFocus
            autoComplete="off"
            value={name}
            onChange={(event) => setName(event.target.value)}
            onPressEnter={() => void create()}
          />
        )}
      </Field>
    </Modal>
  )
}

function KeyModal({ app, onClose }: { app: AppCreated; onClose: () => void }) {
  const t = useT()
  const ns = useNamespace()
  const snippet = goExecutor(ns, app.name)
  return (
    <Modal
      open
      width={720}
      // The key is not shown again, so a slip of the mouse must not close it.
      mask={{ closable: false }}
      keyboard={false}
      closable={false}
      title={t('apps.keyTitle', { name: app.name })}
      footer={
        <Button type="primary" onClick={onClose}>
          {t('apps.stored')}
        </Button>
      }
    >
      <p className="note" style={{ marginBottom: 12 }}>
        {t('apps.keyOnce')}
      </p>
      <div className="secret">
        <code>{app.key}</code>
        <CopyButton text={app.key} />
      </div>
      <div className="cardhead" style={{ marginTop: 18 }}>
        <h3>{t('apps.start')}</h3>
        <span className="grow" />
        <CopyButton text={snippet} size="small" />
      </div>
      <pre>{`export AX_APP_KEY=…\n\n${snippet}`}</pre>
    </Modal>
  )
}
