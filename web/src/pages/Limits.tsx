import PlusOutlined from '@ant-design/icons/PlusOutlined'
import { useQuery, useQueryClient } from '@tanstack/react-query'
import { Checkbox, Input, InputNumber, Modal } from 'antd'
import { useState } from 'react'
import { api, must } from '../api/client'
import { limitsQuery } from '../api/queries'
import type { Limit } from '../api/types'
import { Field, Guarded, PageHead } from '../components/basics'
import { DataPage, DataTable } from '../components/DataTable'
import { Remove } from '../components/Remove'
import { Time } from '../components/Time'
import { useT } from '../i18n/useText'
import { useEvery } from '../lib/live'
import { useSave } from '../lib/useSave'
import { useCan, useNamespace } from '../shell/namespace'

export function Limits() {
  const t = useT()
  const ns = useNamespace()
  const can = useCan()
  const query = useQuery({ ...limitsQuery(ns), refetchInterval: useEvery(2_000) })
  const rows = query.data?.items ?? []
  const [editing, setEditing] = useState<Limit | 'new' | null>(null)
  const guard = { allowed: can('limit.write'), permission: 'limit.write' }
  const button = (
    <Guarded {...guard} type="primary" icon={<PlusOutlined />} onClick={() => setEditing('new')}>
      {t('limits.new')}
    </Guarded>
  )
  return (
    <>
      <PageHead title={t('limits.title')}>{rows.length > 0 && button}</PageHead>
      <DataPage
        query={query}
        rows={rows}
        filtered={false}
        onClear={() => {}}
        empty={
          <>
            <p>{t('limits.empty')}</p>
            <div>{button}</div>
          </>
        }
      >
        <DataTable
          caption={t('limits.title')}
          rows={rows}
          rowKey={(one) => one.name}
          columns={[
            { key: 'name', title: t('common.name'), cell: (one) => one.name },
            {
              key: 'covers',
              title: t('limits.covers'),
              cell: (one) =>
                one.app ? [one.app, one.handler].filter(Boolean).join(' / ') : t('limits.naming', { count: one.jobs }),
            },
            {
              key: 'max',
              title: t('limits.max'),
              num: true,
              cell: (one) =>
                one.max ? (
                  `${one.max}${one.perExecutor ? ` ${t('limits.each')}` : ''}`
                ) : (
                  <span className="muted">–</span>
                ),
            },
            {
              key: 'rate',
              title: t('limits.rate'),
              num: true,
              cell: (one) => (one.rate ? one.rate : <span className="muted">–</span>),
            },
            { key: 'running', title: t('limits.running'), num: true, cell: (one) => one.running },
            { key: 'waiting', title: t('limits.waiting'), num: true, cell: (one) => one.waiting },
            { key: 'updated', title: t('calendars.updated'), cell: (one) => <Time at={one.updatedAt} /> },
            {
              key: 'actions',
              title: '',
              cell: (one) => (
                <>
                  <Guarded {...guard} size="small" onClick={() => setEditing(one)}>
                    {t('calendars.edit')}
                  </Guarded>{' '}
                  <Remove
                    permission="limit.write"
                    ask={t('limits.removeAsk', { name: one.name })}
                    list={[ns, 'limits']}
                    call={() =>
                      must(
                        api.DELETE('/api/v1/namespaces/{namespace}/limits/{name}', {
                          params: { path: { namespace: ns, name: one.name }, query: { version: one.version } },
                        }),
                      )
                    }
                  />
                </>
              ),
            },
          ]}
        />
      </DataPage>
      {editing && <Editor limit={editing === 'new' ? null : editing} onClose={() => setEditing(null)} />}
    </>
  )
}

function Editor({ limit, onClose }: { limit: Limit | null; onClose: () => void }) {
  const t = useT()
  const ns = useNamespace()
  const client = useQueryClient()
  const [name, setName] = useState(limit?.name ?? '')
  const [form, setForm] = useState({
    app: limit?.app ?? '',
    handler: limit?.handler ?? '',
    max: limit?.max ?? 0,
    rate: limit?.rate ?? 0,
    perExecutor: limit?.perExecutor ?? false,
  })
  const { busy, problem, at, send } = useSave()
  const save = () =>
    send(async () => {
      await must(
        api.PUT('/api/v1/namespaces/{namespace}/limits/{name}', {
          params: { path: { namespace: ns, name: name.trim() } },
          body: { ...form, version: limit?.version ?? 0 },
        }),
      )
      await client.invalidateQueries({ queryKey: [ns, 'limits'] })
      onClose()
    })
  return (
    <Modal
      open
      title={limit ? limit.name : t('limits.new')}
      okText={limit ? t('calendars.save') : t('common.create')}
      cancelText={t('common.cancel')}
      okButtonProps={{ disabled: !name.trim() }}
      confirmLoading={busy}
      onOk={() => void save()}
      onCancel={onClose}
    >
      {!limit && (
        <Field label={t('common.name')} help={t('limits.nameHelp')} refusals={at('name')} onSuggestion={setName}>
          {(field) => (
            <Input {...field} autoComplete="off" value={name} onChange={(event) => setName(event.target.value)} />
          )}
        </Field>
      )}
      <Field label={t('limits.app')} help={t('limits.appHelp')} refusals={at('app')}>
        {(field) => (
          <Input {...field} value={form.app} onChange={(event) => setForm({ ...form, app: event.target.value })} />
        )}
      </Field>
      <Field label={t('limits.handler')} help={t('limits.handlerHelp')} refusals={at('handler')}>
        {(field) => (
          <Input
            {...field}
            value={form.handler}
            onChange={(event) => setForm({ ...form, handler: event.target.value })}
          />
        )}
      </Field>
      <Field label={t('limits.max')} help={t('limits.maxHelp')} refusals={at('max')}>
        {(field) => (
          <InputNumber {...field} min={0} value={form.max} onChange={(max) => setForm({ ...form, max: max ?? 0 })} />
        )}
      </Field>
      <p>
        <Checkbox
          checked={form.perExecutor}
          onChange={(event) => setForm({ ...form, perExecutor: event.target.checked })}
        >
          {t('limits.perExecutor')}
        </Checkbox>
      </p>
      <Field label={t('limits.rate')} help={t('limits.rateHelp')} refusals={at('rate')}>
        {(field) => (
          <InputNumber
            {...field}
            min={0}
            value={form.rate}
            onChange={(rate) => setForm({ ...form, rate: rate ?? 0 })}
          />
        )}
      </Field>
      {problem && (
        <p className="refusal" role="alert">
          {problem}
        </p>
      )}
    </Modal>
  )
}
