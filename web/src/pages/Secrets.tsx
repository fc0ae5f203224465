import PlusOutlined from '@ant-design/icons/PlusOutlined'
import { useQuery, useQueryClient } from '@tanstack/react-query'
import { Input, Modal } from 'antd'
import { useState } from 'react'
import { api, must } from '../api/client'
import { secretsQuery } from '../api/queries'
import type { Secret } from '../api/types'
import { CopyButton, Field, Guarded, PageHead } from '../components/basics'
import { DataPage, DataTable } from '../components/DataTable'
import { Remove } from '../components/Remove'
import { Time } from '../components/Time'
import { useT } from '../i18n/useText'
import { useEvery } from '../lib/live'
import { useSave } from '../lib/useSave'
import { useCan, useNamespace } from '../shell/namespace'

export function Secrets() {
  const t = useT()
  const ns = useNamespace()
  const can = useCan()
  const query = useQuery({ ...secretsQuery(ns), refetchInterval: useEvery(5_000) })
  const rows = query.data?.items ?? []
  const [editing, setEditing] = useState<Secret | 'new' | null>(null)
  const guard = { allowed: can('secret.write'), permission: 'secret.write' }
  const button = (
    <Guarded {...guard} type="primary" icon={<PlusOutlined />} onClick={() => setEditing('new')}>
      {t('secrets.new')}
    </Guarded>
  )
  return (
    <>
      <PageHead title={t('secrets.title')}>{rows.length > 0 && button}</PageHead>
      <DataPage
        query={query}
        rows={rows}
        filtered={false}
        onClear={() => {}}
        empty={
          <>
            <p>{t('secrets.empty', { reference: referenceOf('name') })}</p>
            <div>{button}</div>
          </>
        }
      >
        <DataTable
          caption={t('secrets.title')}
          rows={rows}
          rowKey={(one) => one.name}
          columns={[
            { key: 'name', title: t('common.name'), cell: (one) => one.name },
            {
              key: 'reference',
              title: t('secrets.reference'),
              cell: (one) => (
                <>
                  <code>{referenceOf(one.name)}</code> <CopyButton size="small" text={referenceOf(one.name)} />
                </>
              ),
            },
            { key: 'description', title: t('secrets.description'), cell: (one) => one.description },
            { key: 'version', title: t('secrets.version'), num: true, cell: (one) => one.version },
            { key: 'jobs', title: t('calendars.jobs'), num: true, cell: (one) => one.jobs },
            {
              key: 'updated',
              title: t('calendars.updated'),
              cell: (one) => (
                <>
                  <Time at={one.updatedAt} /> <span className="muted">{one.updatedBy}</span>
                </>
              ),
            },
            {
              key: 'actions',
              title: '',
              cell: (one) => (
                <>
                  <Guarded {...guard} size="small" onClick={() => setEditing(one)}>
                    {t('secrets.change')}
                  </Guarded>{' '}
                  <Remove
                    permission="secret.write"
                    ask={t('secrets.removeAsk', { name: one.name })}
                    list={[ns, 'secrets']}
                    call={() =>
                      must(
                        api.DELETE('/api/v1/namespaces/{namespace}/secrets/{name}', {
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
      {editing && <Editor secret={editing === 'new' ? null : editing} onClose={() => setEditing(null)} />}
    </>
  )
}

function referenceOf(name: string) {
  return `\${secret:${name}}`
}

function Editor({ secret, onClose }: { secret: Secret | null; onClose: () => void }) {
  const t = useT()
  const ns = useNamespace()
  const client = useQueryClient()
  const [name, setName] = useState(secret?.name ?? '')
  const [value, setValue] = useState('')
  const [description, setDescription] = useState(secret?.description ?? '')
  const { busy, problem, at, send } = useSave()
  const save = () =>
    send(async () => {
      await must(
        api.PUT('/api/v1/namespaces/{namespace}/secrets/{name}', {
          params: { path: { namespace: ns, name: name.trim() } },
          body: { value, description, version: secret?.version ?? 0 },
        }),
      )
      await client.invalidateQueries({ queryKey: [ns, 'secrets'] })
      onClose()
    })
  return (
    <Modal
      open
      title={secret ? t('secrets.changeOf', { name: secret.name }) : t('secrets.new')}
      okText={secret ? t('calendars.save') : t('common.create')}
      cancelText={t('common.cancel')}
      okButtonProps={{ disabled: !name.trim() || !value }}
      confirmLoading={busy}
      onOk={() => void save()}
      onCancel={onClose}
    >
      <p className="muted">{secret ? t('secrets.reach', { count: secret.jobs }) : t('secrets.once')}</p>
      {!secret && (
        <Field label={t('common.name')} help={t('secrets.nameHelp')} refusals={at('name')} onSuggestion={setName}>
          {(field) => (
            <Input {...field} autoComplete="off" value={name} onChange={(event) => setName(event.target.value)} />
          )}
        </Field>
      )}
      <Field label={t('secrets.value')} help={t('secrets.valueHelp')} refusals={at('value')}>
        {(field) => (
          <Input.Password
            {...field}
            autoComplete="new-password"
            value={value}
            onChange={(event) => setValue(event.target.value)}
          />
        )}
      </Field>
      <Field label={t('secrets.description')} refusals={at('description')}>
        {(field) => <Input {...field} value={description} onChange={(event) => setDescription(event.target.value)} />}
      </Field>
      {problem && (
        <p className="refusal" role="alert">
          {problem}
        </p>
      )}
    </Modal>
  )
}
