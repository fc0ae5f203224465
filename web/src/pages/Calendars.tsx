import PlusOutlined from '@ant-design/icons/PlusOutlined'
import { useQuery, useQueryClient } from '@tanstack/react-query'
import { Button, Input, Modal } from 'antd'
import { useState } from 'react'
import { api, must } from '../api/client'
import { calendarDaysQuery, calendarsQuery } from '../api/queries'
import type { Calendar } from '../api/types'
import { Field, Guarded, PageHead } from '../components/basics'
import { DataPage, DataTable } from '../components/DataTable'
import { Remove } from '../components/Remove'
import { Time } from '../components/Time'
import { useT } from '../i18n/useText'
import { bodyOf, formOf, months } from '../lib/calendar'
import { useEvery } from '../lib/live'
import { useSave } from '../lib/useSave'
import { useCan, useNamespace } from '../shell/namespace'

const parts = ['dates', 'ranges', 'weekdays', 'times', 'periods'] as const

export function Calendars() {
  const t = useT()
  const ns = useNamespace()
  const can = useCan()
  const query = useQuery({ ...calendarsQuery(ns), refetchInterval: useEvery(5_000) })
  const rows = query.data?.items ?? []
  const [editing, setEditing] = useState<Calendar | 'new' | null>(null)
  const [shown, setShown] = useState<Calendar | null>(null)
  const guard = { allowed: can('calendar.write'), permission: 'calendar.write' }
  const button = (
    <Guarded {...guard} type="primary" icon={<PlusOutlined />} onClick={() => setEditing('new')}>
      {t('calendars.new')}
    </Guarded>
  )
  return (
    <>
      <PageHead title={t('calendars.title')}>{rows.length > 0 && button}</PageHead>
      <DataPage
        query={query}
        rows={rows}
        filtered={false}
        onClear={() => {}}
        empty={
          <>
            <p>{t('calendars.empty')}</p>
            <div>{button}</div>
          </>
        }
      >
        <DataTable
          caption={t('calendars.title')}
          rows={rows}
          rowKey={(one) => one.name}
          columns={[
            { key: 'name', title: t('common.name'), cell: (one) => one.name },
            { key: 'zone', title: t('calendars.zone'), cell: (one) => one.zone ?? '' },
            { key: 'jobs', title: t('calendars.jobs'), num: true, cell: (one) => one.jobs },
            { key: 'updated', title: t('calendars.updated'), cell: (one) => <Time at={one.updatedAt} /> },
            {
              key: 'actions',
              title: '',
              cell: (one) => (
                <>
                  <Button size="small" onClick={() => setShown(one)}>
                    {t('calendars.year')}
                  </Button>{' '}
                  <Guarded {...guard} size="small" onClick={() => setEditing(one)}>
                    {t('calendars.edit')}
                  </Guarded>{' '}
                  <Remove
                    permission="calendar.write"
                    ask={t('calendars.removeAsk', { name: one.name })}
                    list={[ns, 'calendars']}
                    call={() =>
                      must(
                        api.DELETE('/api/v1/namespaces/{namespace}/calendars/{name}', {
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
      {editing && <Editor calendar={editing === 'new' ? null : editing} onClose={() => setEditing(null)} />}
      {shown && <Year calendar={shown} onClose={() => setShown(null)} />}
    </>
  )
}

function Editor({ calendar, onClose }: { calendar: Calendar | null; onClose: () => void }) {
  const t = useT()
  const ns = useNamespace()
  const client = useQueryClient()
  const [name, setName] = useState(calendar?.name ?? '')
  const [form, setForm] = useState(formOf(calendar ?? {}))
  const { busy, problem, at, send: sending } = useSave()
  const send = (call: () => Promise<unknown>) =>
    sending(async () => {
      await call()
      await client.invalidateQueries({ queryKey: [ns, 'calendars'] })
      onClose()
    })

  const path = { namespace: ns, name: name.trim() }
  const save = () =>
    send(() =>
      must(
        api.PUT('/api/v1/namespaces/{namespace}/calendars/{name}', {
          params: { path },
          body: { ...bodyOf(form), version: calendar?.version ?? 0 },
        }),
      ),
    )
  const take = (file: File | undefined) =>
    file &&
    send(async () =>
      must(
        api.POST('/api/v1/namespaces/{namespace}/calendars/{name}/import', {
          params: { path },
          body: { ics: await file.text(), version: calendar?.version ?? 0 },
        }),
      ),
    )

  return (
    <Modal
      open
      title={calendar ? calendar.name : t('calendars.new')}
      okText={calendar ? t('calendars.save') : t('common.create')}
      cancelText={t('common.cancel')}
      okButtonProps={{ disabled: !name.trim() }}
      confirmLoading={busy}
      onOk={() => void save()}
      onCancel={onClose}
    >
      {calendar ? (
        <p className="muted">{t('calendars.reach', { count: calendar.jobs })}</p>
      ) : (
        <Field label={t('common.name')} help={t('calendars.nameHelp')} refusals={at('name')} onSuggestion={setName}>
          {(field) => (
            <Input {...field} autoComplete="off" value={name} onChange={(event) => setName(event.target.value)} />
          )}
        </Field>
      )}
      <Field
        label={t('calendars.zone')}
        help={t('calendars.zoneHelp')}
        refusals={at('zone')}
        onSuggestion={(zone) => setForm({ ...form, zone })}
      >
        {(field) => (
          <Input {...field} value={form.zone} onChange={(event) => setForm({ ...form, zone: event.target.value })} />
        )}
      </Field>
      {parts.map((part) => (
        <Field key={part} label={t(`calendars.${part}`)} help={t(`calendars.${part}Help`)} refusals={at(part)}>
          {(field) => (
            <Input.TextArea
              {...field}
              className="code"
              autoSize={{ minRows: 1, maxRows: 6 }}
              value={form[part]}
              onChange={(event) => setForm({ ...form, [part]: event.target.value })}
            />
          )}
        </Field>
      ))}
      {calendar && (
        <Field label={t('calendars.importIcs')} refusals={at('ics')}>
          {({ status: _, ...field }) => (
            <input
              {...field}
              type="file"
              accept=".ics,text/calendar"
              disabled={busy}
              onChange={(event) => void take(event.target.files?.[0])}
            />
          )}
        </Field>
      )}
      {problem && (
        <p className="refusal" role="alert">
          {problem}
        </p>
      )}
    </Modal>
  )
}

function Year({ calendar, onClose }: { calendar: Calendar; onClose: () => void }) {
  const t = useT()
  const ns = useNamespace()
  const [year, setYear] = useState(new Date().getFullYear())
  const days = useQuery(calendarDaysQuery(ns, calendar.name, year, calendar.version)).data?.days ?? []
  return (
    <Modal open footer={null} width={760} title={calendar.name} onCancel={onClose}>
      <div className="toolbar">
        <Button size="small" aria-label={t('calendars.earlier')} onClick={() => setYear(year - 1)}>
          {year - 1}
        </Button>
        <strong>{t('calendars.days', { year, count: days.length })}</strong>
        <Button size="small" aria-label={t('calendars.later')} onClick={() => setYear(year + 1)}>
          {year + 1}
        </Button>
      </div>
      <div className="yearview">
        {months(year, days).map((month, m) => (
          // biome-ignore lint/suspicious/noArrayIndexKey: a month is its number
          <div key={m}>
            <strong>{`${year}-${String(m + 1).padStart(2, '0')}`}</strong>
            <div className="monthdays">
              {month.days.map(({ day, out }) => (
                <span
                  key={day}
                  className={out ? 'out' : undefined}
                  style={day === 1 ? { gridColumnStart: month.first + 1 } : undefined}
                >
                  {out ? <del>{day}</del> : day}
                </span>
              ))}
            </div>
          </div>
        ))}
      </div>
    </Modal>
  )
}
