import DeleteOutlined from '@ant-design/icons/DeleteOutlined'
import PlusOutlined from '@ant-design/icons/PlusOutlined'
import { AutoComplete, Button, Input } from 'antd'
import { useMemo } from 'react'
import type { Invalid, Trigger } from '../api/types'
import { useT, useText } from '../i18n/useText'
import { localZone, zoneNames } from '../lib/time'
import { Field, type Refusal } from './basics'

export function newTrigger(kind: Trigger['kind'] = 'cron'): Trigger {
  if (kind === 'cron') {
    return { kind, expr: '0 0 8 * * ?', dialect: 'quartz', zone: localZone, clockChange: 'once' }
  }
  return { kind, every: '5m' }
}

const presets = [
  ['preset5m', '0 0/5 * * * ?', '*/5 * * * *'],
  ['presetHour', '0 0 * * * ?', '0 * * * *'],
  ['presetDay', '0 0 8 * * ?', '0 8 * * *'],
  ['presetWorkday', '0 0 9 ? * MON-FRI', '0 9 * * 1-5'],
  ['presetMonth', '0 0 0 L * ?', ''],
] as const

// refusalsAt picks what the server refused about one field, in the chosen language.
export function useRefusalsAt(errors: Invalid[]): (field: string) => Refusal[] {
  const text = useText()
  return (field) =>
    errors
      .filter((one) => one.field === field)
      .map((one) => ({ text: text(one.message), token: one.token, suggestion: one.suggestion }))
}

export function TriggerEditor({
  triggers,
  errors,
  onChange,
}: {
  triggers: Trigger[]
  errors: Invalid[]
  onChange: (triggers: Trigger[]) => void
}) {
  const t = useT()
  const change = (index: number, trigger: Trigger) => onChange(triggers.map((one, i) => (i === index ? trigger : one)))
  return (
    <>
      {triggers.length === 0 && (
        <p className="muted" style={{ marginBottom: 12 }}>
          {t('form.manualOnly')}
        </p>
      )}
      {triggers.map((trigger, index) => (
        // biome-ignore lint/suspicious/noArrayIndexKey: a new trigger has no identity but its place
        <fieldset className="triggerbox" key={index} style={{ minWidth: 0, margin: '0 0 12px' }}>
          <legend className="offscreen">{t('form.trigger', { no: index + 1 })}</legend>
          <div className="cardhead" aria-hidden="false">
            <strong>{t('form.trigger', { no: index + 1 })}</strong>
            <span className="grow" />
            <Button
              size="small"
              icon={<DeleteOutlined />}
              aria-label={t('form.removeTrigger', { no: index + 1 })}
              title={t('form.removeTrigger', { no: index + 1 })}
              onClick={() => onChange(triggers.filter((_, i) => i !== index))}
            />
          </div>
          <OneTrigger
            trigger={trigger}
            path={`triggers[${index}]`}
            errors={errors}
            onChange={(next) => change(index, next)}
          />
        </fieldset>
      ))}
      <Button icon={<PlusOutlined />} onClick={() => onChange([...triggers, newTrigger()])}>
        {t('form.addTrigger')}
      </Button>
    </>
  )
}

function OneTrigger({
  trigger,
  path,
  errors,
  onChange,
}: {
  trigger: Trigger
  path: string
  errors: Invalid[]
  onChange: (trigger: Trigger) => void
}) {
  const t = useT()
  const at = useRefusalsAt(errors)
  return (
    <>
      <div className="fields">
        <Field label={t('form.kind')} refusals={at(`${path}.kind`)}>
          {({ status: _, ...field }) => (
            <select
              {...field}
              className="select"
              style={{ width: '100%' }}
              value={trigger.kind}
              onChange={(event) => {
                const kind = event.target.value as Trigger['kind']
                // The number stays: it is part of the identity of what this trigger opened.
                onChange({ ...newTrigger(kind), ...(trigger.no !== undefined && { no: trigger.no }) })
              }}
            >
              <option value="cron">{t('form.kindCron')}</option>
              <option value="fixedRate">{t('form.kindFixedRate')}</option>
              <option value="fixedDelay">{t('form.kindFixedDelay')}</option>
            </select>
          )}
        </Field>
        {trigger.kind === 'cron' ? (
          <Field label={t('form.dialect')} refusals={at(`${path}.dialect`)}>
            {({ status: _, ...field }) => (
              <select
                {...field}
                className="select"
                style={{ width: '100%' }}
                value={trigger.dialect ?? 'quartz'}
                onChange={(event) => onChange({ ...trigger, dialect: event.target.value as Trigger['dialect'] })}
              >
                <option value="quartz">{t('form.dialectQuartz')}</option>
                <option value="unix">{t('form.dialectUnix')}</option>
                <option value="descriptor">{t('form.dialectDescriptor')}</option>
              </select>
            )}
          </Field>
        ) : (
          <Field
            label={t('form.every')}
            help={t('form.everyHelp')}
            refusals={at(`${path}.every`)}
            onSuggestion={(every) => onChange({ ...trigger, every })}
          >
            {(field) => (
              <Input
                {...field}
                className="code"
                value={trigger.every ?? ''}
                onChange={(event) => onChange({ ...trigger, every: event.target.value })}
              />
            )}
          </Field>
        )}
      </div>
      {trigger.kind === 'cron' && <CronField trigger={trigger} path={path} errors={errors} onChange={onChange} />}
    </>
  )
}

export function CronField({
  trigger,
  path,
  errors,
  onChange,
}: {
  trigger: Trigger
  path: string
  errors: Invalid[]
  onChange: (trigger: Trigger) => void
}) {
  const t = useT()
  const at = useRefusalsAt(errors)
  const zones = useMemo(() => zoneNames().map((value) => ({ value })), [])
  const dialect = trigger.dialect ?? 'quartz'
  const help =
    dialect === 'unix' ? t('form.exprUnix') : dialect === 'descriptor' ? t('form.exprDescriptor') : t('form.exprQuartz')
  return (
    <>
      <Field
        label={t('form.expr')}
        help={help}
        refusals={at(`${path}.expr`)}
        onSuggestion={(expr) => onChange({ ...trigger, expr })}
      >
        {(field) => (
          <Input
            {...field}
            className="code"
            spellCheck={false}
            autoComplete="off"
            value={trigger.expr ?? ''}
            onChange={(event) => onChange({ ...trigger, expr: event.target.value })}
          />
        )}
      </Field>
      {dialect !== 'descriptor' && (
        <div className="chips">
          <span className="muted">{t('form.presets')}:</span>
          {presets.map(([key, quartz, unix]) => {
            const expr = dialect === 'unix' ? unix : quartz
            return (
              expr && (
                <button
                  key={key}
                  type="button"
                  className="chip"
                  title={expr}
                  onClick={() => onChange({ ...trigger, expr })}
                >
                  {t(`form.${key}`)}
                </button>
              )
            )
          })}
        </div>
      )}
      <div className="fields">
        <Field
          label={t('form.zone')}
          refusals={at(`${path}.zone`)}
          onSuggestion={(zone) => onChange({ ...trigger, zone })}
        >
          {({ status, ...field }) => (
            <AutoComplete
              {...field}
              status={status}
              style={{ width: '100%' }}
              value={trigger.zone ?? ''}
              onChange={(zone: string) => onChange({ ...trigger, zone })}
              options={zones}
              showSearch={{
                filterOption: (typed, option) =>
                  String(option?.value ?? '')
                    .toLowerCase()
                    .includes(typed.toLowerCase().replaceAll(' ', '_')),
              }}
            />
          )}
        </Field>
        <Field label={t('form.clockChange')} refusals={at(`${path}.clockChange`)}>
          {({ status: _, ...field }) => (
            <select
              {...field}
              className="select"
              style={{ width: '100%' }}
              value={trigger.clockChange ?? 'once'}
              onChange={(event) => onChange({ ...trigger, clockChange: event.target.value as Trigger['clockChange'] })}
            >
              <option value="once">{t('form.clockOnce')}</option>
              <option value="skip">{t('form.clockSkip')}</option>
              <option value="both">{t('form.clockBoth')}</option>
              <option value="quartz">{t('form.clockQuartz')}</option>
            </select>
          )}
        </Field>
      </div>
    </>
  )
}
