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
  return kind === 'once' ? { kind, at: '' } : { kind, every: '5m' }
}

const kinds = ['cron', 'fixedRate', 'fixedDelay', 'once'] as const
const dialects = ['quartz', 'unix', 'descriptor'] as const
const clockChanges = ['once', 'skip', 'both', 'quartz'] as const

// shownFields are the fields of a trigger that have a place in the form.
export function shownFields(kind: Trigger['kind']): string[] {
  const own = kind === 'cron' ? ['dialect', 'expr', 'zone', 'clockChange'] : textFields(kind)
  return ['kind', ...own, ...limitFields(kind), ...(mayLeaveOut(kind) ? ['calendars'] : [])]
}

// limitFields are the rows, none of which has to be filled, that say between when and how exactly.
function limitFields(kind: Trigger['kind']): ('start' | 'end' | 'jitter')[] {
  if (kind === 'once') return ['jitter']
  return kinds.some((one) => one === kind) ? ['start', 'end', 'jitter'] : []
}

function mayLeaveOut(kind: Trigger['kind']): boolean {
  return kind !== 'once' && kinds.some((one) => one === kind)
}

// textFields are the rows of a kind that are plain text: an interval, or instants.
function textFields(kind: Trigger['kind']): ('every' | 'at')[] {
  if (kind === 'once') return ['at']
  return kind === 'fixedRate' || kind === 'fixedDelay' ? ['every'] : []
}

// otherFields are those that the form keeps as they are: the anchor of a schedule, and whatever a newer server may know.
export function otherFields(trigger: Trigger): [string, string][] {
  const own = new Set([...shownFields(trigger.kind), 'no', 'zone'])
  return Object.entries(trigger)
    .filter(([field, value]) => !own.has(field) && value !== undefined && value !== null && value !== '')
    .map(([field, value]) => [field, typeof value === 'string' ? value : JSON.stringify(value)])
}

// ofKind turns a trigger into one of another kind. Its number stays, for it is part of
// the identity of what the trigger opened; so does what both kinds have.
export function ofKind(trigger: Trigger, kind: Trigger['kind']): Trigger {
  const { no, zone, start, end, jitter, calendars } = trigger
  const bounds = {
    ...(jitter && { jitter }),
    ...(kind !== 'once' && { ...(start && { start }), ...(end && { end }), ...(calendars && { calendars }) }),
  }
  return { ...newTrigger(kind), ...(no !== undefined && { no }), ...(zone && { zone }), ...bounds }
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

// set writes one field; an empty one is not there at all.
function set(trigger: Trigger, name: 'start' | 'end' | 'jitter' | 'calendars', value: string | string[]): Trigger {
  const rest = Object.fromEntries(Object.entries(trigger).filter(([field]) => field !== name)) as Trigger
  return value.length > 0 ? { ...rest, [name]: value } : rest
}

export function TriggerEditor({
  triggers,
  calendars = [],
  errors,
  onChange,
}: {
  triggers: Trigger[]
  // calendars are the names of those that the namespace has.
  calendars?: string[]
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
            calendars={calendars}
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
  calendars,
  path,
  errors,
  onChange,
}: {
  trigger: Trigger
  calendars: string[]
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
                onChange(ofKind(trigger, event.target.value))
              }}
            >
              <Unknown value={trigger.kind} known={kinds} />
              <option value="cron">{t('form.kindCron')}</option>
              <option value="fixedRate">{t('form.kindFixedRate')}</option>
              <option value="fixedDelay">{t('form.kindFixedDelay')}</option>
              <option value="once">{t('form.kindOnce')}</option>
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
                onChange={(event) => onChange({ ...trigger, dialect: event.target.value })}
              >
                <Unknown value={trigger.dialect} known={dialects} />
                <option value="quartz">{t('form.dialectQuartz')}</option>
                <option value="unix">{t('form.dialectUnix')}</option>
                <option value="descriptor">{t('form.dialectDescriptor')}</option>
              </select>
            )}
          </Field>
        ) : null}
        {textFields(trigger.kind).map((name) => (
          <Field
            key={name}
            label={t(`form.${name}`)}
            help={t(`form.${name}Help`)}
            refusals={at(`${path}.${name}`)}
            onSuggestion={(value) => onChange({ ...trigger, [name]: value })}
          >
            {(field) => (
              <Input
                {...field}
                className="code"
                value={trigger[name] ?? ''}
                onChange={(event) => onChange({ ...trigger, [name]: event.target.value })}
              />
            )}
          </Field>
        ))}
      </div>
      {trigger.kind === 'cron' && <CronField trigger={trigger} path={path} errors={errors} onChange={onChange} />}
      <div className="fields">
        {limitFields(trigger.kind).map((name) => (
          <Field
            key={name}
            label={t(`form.${name}`)}
            help={t(`form.${name}Help`)}
            refusals={at(`${path}.${name}`)}
            onSuggestion={(value) => onChange(set(trigger, name, value))}
          >
            {(field) => (
              <Input
                {...field}
                className="code"
                value={trigger[name] ?? ''}
                onChange={(event) => onChange(set(trigger, name, event.target.value))}
              />
            )}
          </Field>
        ))}
      </div>
      {mayLeaveOut(trigger.kind) && (
        <CalendarChoice trigger={trigger} calendars={calendars} path={path} errors={errors} onChange={onChange} />
      )}
      <Others trigger={trigger} path={path} errors={errors} onChange={onChange} />
    </>
  )
}

// CalendarChoice lists the calendars of the namespace, and those that the trigger names although there is none.
function CalendarChoice({
  trigger,
  calendars,
  path,
  errors,
  onChange,
}: {
  trigger: Trigger
  calendars: string[]
  path: string
  errors: Invalid[]
  onChange: (trigger: Trigger) => void
}) {
  const t = useT()
  const text = useText()
  const named = trigger.calendars ?? []
  const all = [...new Set([...calendars, ...named])]
  if (all.length === 0) return null
  return (
    <fieldset className="choice" style={{ border: 0, padding: 0, margin: '0 0 12px' }}>
      <legend>{t('form.calendars')}</legend>
      <div className="chips">
        {all.map((name) => (
          <label key={name}>
            <input
              type="checkbox"
              checked={named.includes(name)}
              onChange={(event) =>
                onChange(
                  set(
                    trigger,
                    'calendars',
                    event.target.checked ? [...named, name] : named.filter((one) => one !== name),
                  ),
                )
              }
            />{' '}
            {name}
          </label>
        ))}
      </div>
      {errors
        .filter((one) => one.field?.startsWith(`${path}.calendars`))
        .map((one) => (
          <p className="refusal" role="alert" key={one.field}>
            {text(one.message)}
          </p>
        ))}
    </fieldset>
  )
}

// Unknown is the choice that is set already and that this form has no word for.
function Unknown({ value, known }: { value: string | undefined; known: readonly string[] }) {
  return value && !known.includes(value) ? <option value={value}>{value}</option> : null
}

function Others({
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
  const others = otherFields(trigger)
  if (others.length === 0) return null
  return (
    <div className="others">
      <span className="muted">{t('form.alsoSet')}:</span>
      <ul>
        {others.map(([field, value]) => (
          <li key={field}>
            <code>
              {field} = {value}
            </code>
            <Button
              size="small"
              type="text"
              icon={<DeleteOutlined />}
              aria-label={t('form.dropField', { field })}
              title={t('form.dropField', { field })}
              onClick={() => {
                const rest = Object.entries(trigger).filter(([name]) => name !== field)
                onChange(Object.fromEntries(rest) as Trigger)
              }}
            />
            {at(`${path}.${field}`).map((refusal) => (
              <p className="refusal" role="alert" key={refusal.text}>
                {refusal.text}
              </p>
            ))}
          </li>
        ))}
      </ul>
    </div>
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
              onChange={(event) => onChange({ ...trigger, clockChange: event.target.value })}
            >
              <Unknown value={trigger.clockChange} known={clockChanges} />
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
