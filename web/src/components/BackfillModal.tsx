import { useQueryClient } from '@tanstack/react-query'
import { App, Checkbox, Input, InputNumber, Modal, Select } from 'antd'
import { useState } from 'react'
import { api, must, refusedOf } from '../api/client'
import type { Job } from '../api/types'
import { useT, useText } from '../i18n/useText'
import { freshKey } from '../lib/key'
import { useNamespace } from '../shell/namespace'
import { Field, type Refusal } from './basics'
import { useShowError } from './mutations'

const listed = 100

// BackfillModal runs a job for planned instants of the past: first it counts, and only what was counted can be started.
export function BackfillModal({ job, onClose }: { job: Job; onClose: () => void }) {
  const t = useT()
  const text = useText()
  const namespace = useNamespace()
  const client = useQueryClient()
  const { message } = App.useApp()
  const showError = useShowError()
  const triggers = job.triggers.filter((one) => ['cron', 'fixedRate', 'once'].includes(one.kind))
  const [from, setFrom] = useState('')
  const [to, setTo] = useState('')
  const [trigger, setTrigger] = useState(triggers[0]?.no ?? 0)
  const [maxActive, setMaxActive] = useState(1)
  const [again, setAgain] = useState(false)
  const [key, setKey] = useState(freshKey)
  const [busy, setBusy] = useState(false)
  const [errors, setErrors] = useState<{ field: string; text: string }[]>([])
  const [plan, setPlan] = useState<Awaited<ReturnType<typeof ask>>>()

  function ask(dryRun: boolean) {
    return must(
      api.POST('/api/v1/namespaces/{namespace}/jobs/{id}/backfill', {
        params: { path: { namespace, id: job.id } },
        body: {
          from: from.trim(),
          to: to.trim(),
          trigger,
          again,
          maxActive,
          dryRun,
          ...(!dryRun && { idempotencyKey: key }),
        },
      }),
    )
  }

  // What is changed has to be counted again, and is another request.
  function changed<T>(set: (value: T) => void) {
    return (value: T) => {
      set(value)
      setPlan(undefined)
      setKey(freshKey())
    }
  }

  async function go() {
    setBusy(true)
    setErrors([])
    try {
      const done = await ask(!plan)
      if (!plan) {
        setPlan(done)
        return
      }
      onClose()
      message.success(t('backfill.started', { count: done.made.length }))
      await client.invalidateQueries({ queryKey: [namespace] })
    } catch (error) {
      const refused = refusedOf(error)
      setErrors(refused.errors.map((one) => ({ field: one.field, text: text(one.message) })))
      if (refused.errors.length === 0) showError(error)
    } finally {
      setBusy(false)
    }
  }

  const refusals = (field: string): Refusal[] =>
    errors.filter((one) => one.field === field).map(({ text }) => ({ text }))
  const others = errors.filter((one) => !['from', 'to', 'trigger', 'maxActive'].includes(one.field))
  return (
    <Modal
      open
      title={t('backfill.title', { name: job.name })}
      okText={plan ? t('backfill.start', { count: plan.made.length }) : t('backfill.count')}
      cancelText={t('common.cancel')}
      confirmLoading={busy}
      okButtonProps={{ disabled: plan?.made.length === 0 }}
      onOk={() => void go()}
      onCancel={onClose}
    >
      <p className="muted">{t('backfill.help')}</p>
      <Field label={t('backfill.from')} refusals={refusals('from')}>
        {(field) => (
          <Input {...field} placeholder="2026-11-01" value={from} onChange={(e) => changed(setFrom)(e.target.value)} />
        )}
      </Field>
      <Field label={t('backfill.to')} help={t('backfill.toHelp')} refusals={refusals('to')}>
        {(field) => (
          <Input {...field} placeholder="2026-11-08" value={to} onChange={(e) => changed(setTo)(e.target.value)} />
        )}
      </Field>
      {(triggers.length > 1 || refusals('trigger').length > 0) && (
        <Field label={t('backfill.trigger')} refusals={refusals('trigger')}>
          {(field) => (
            <Select
              {...field}
              value={trigger}
              onChange={changed(setTrigger)}
              options={triggers.map((one) => ({
                value: one.no ?? 0,
                label: `${one.no}: ${one.expr || one.every || one.at}`,
              }))}
            />
          )}
        </Field>
      )}
      <Field label={t('backfill.maxActive')} help={t('backfill.maxActiveHelp')} refusals={refusals('maxActive')}>
        {(field) => (
          <InputNumber
            {...field}
            min={1}
            max={20}
            value={maxActive}
            onChange={(value) => changed(setMaxActive)(value ?? 1)}
          />
        )}
      </Field>
      <Checkbox checked={again} onChange={(e) => changed(setAgain)(e.target.checked)}>
        {t('backfill.again')}
      </Checkbox>
      {others.map((one) => (
        <p key={one.text} role="alert">
          {one.text}
        </p>
      ))}
      {plan && (
        <section aria-live="polite" style={{ marginTop: 12 }}>
          <p>{t('backfill.plan', { count: plan.made.length, left: plan.leftOut.length, zone: plan.zone })}</p>
          <ul style={{ maxHeight: 200, overflow: 'auto' }}>
            {plan.made.slice(0, listed).map((one) => (
              <li key={one.plannedFor}>{one.plannedFor}</li>
            ))}
          </ul>
          {plan.made.length > listed && (
            <p className="muted">{t('backfill.more', { count: plan.made.length - listed })}</p>
          )}
        </section>
      )}
    </Modal>
  )
}
