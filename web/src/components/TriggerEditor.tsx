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
  if (kind === 'once') return { kind, at: '' }
  return kind === 'event' ? { kind } : { kind, every: '5m' }
}

// The rows that are plain text besides the expression: an interval, instants, a condition.
type PlainName = 'every' | 'anchor' | 'at' | 'filter' | 'start' | 'end' | 'jitter'

// shownFields are the fields of a trigger that have a place in the form.
export function shownFields(kind: Trigger['kind']): string[] {
  const own = kind === 'cron' ? ['dialect', 'expr', 'zone', 'clockChange'] : ownFields(kind)
  return ['kind', ...own, ...boundFields(kind), ...(mayLeaveOut(kind) ? ['calendars'] : [])]
}

// mayLeaveOut tells whether calendars have a meaning for a kind.
function mayLeaveOut(kind: Trigger['kind']): boolean {
  return kind === 'cron' || kind === 'fixedRate' || kind === 'fixedDelay'
}

// ownFields say what a kind without an expression waits for.
function ownFields(kind: Trigger['kind']): PlainName[] {
  if (kind === 'once') return ['at']
  if (kind === 'event') return ['filter']
  if (kind === 'fixedRate') return ['every', 'anchor']
  return kind === 'fixedDelay' ? ['every'] : []
}

// boundFields say from when to when a trigger is in force, and how its starts are spread.
function boundFields(kind: Trigger['kind']): PlainName[] {
  if (kind === 'once') return ['jitter']
  return mayLeaveOut(kind) ? ['start', 'end', 'jitter'] : []
}

// otherFields are those that the form keeps as they are: what a newer server may know, and
// what has no meaning for the kind.
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
    ...(boundFields(kind).includes('jitter') && jitter && { jitter }),
    ...(mayLeaveOut(kind) && { ...(start && { start }), ...(end && { end }), ...(calendars && { calendars }) }),
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

interface RowProps {
  trigger: Trigger
  calendars: string[]
  path: string
  errors: Invalid[]
  onChange: (trigger: Trigger) => void
}

function OneTrigger(row: RowProps) {
  const { trigger, onChange } = row
  const t = useT()
  return (
    <>
      <div className="fields">
        <SelectRow
          {...row}
          name="kind"
          label={t('form.kind')}
          value={trigger.kind}
          options={{
            cron: t('form.kindCron'),
            fixedRate: t('form.kindFixedRate'),
            fixedDelay: t('form.kindFixedDelay'),
            once: t('form.kindOnce'),
            event: t('form.kindEvent'),
          }}
          onValue={(kind) => onChange(ofKind(trigger, kind))}
        />
        {trigger.kind === 'cron' && (
          <SelectRow
            {...row}
            name="dialect"
            label={t('form.dialect')}
            value={trigger.dialect ?? 'quartz'}
            options={{
              quartz: t('form.dialectQuartz'),
              unix: t('form.dialectUnix'),
              descriptor: t('form.dialectDescriptor'),
            }}
            onValue={(dialect) => onChange({ ...trigger, dialect })}
          />
        )}
        {ownFields(trigger.kind).map((name) => (
          <TextRow {...row} key={name} name={name} help={t(`form.${name}Help`)} />
        ))}
      </div>
      {trigger.kind === 'cron' && <CronField {...row} />}
      <div className="fields">
        {boundFields(trigger.kind).map((name) => (
          <TextRow {...row} key={name} name={name} help={t(`form.${name}Help`)} />
        ))}
      </div>
      {mayLeaveOut(trigger.kind) && <CalendarChoice {...row} />}
      <Others {...row} />
    </>
  )
}

// CalendarChoice lists the calendars of the namespace, and those that the trigger names although there is none.
function CalendarChoice({ trigger, calendars, path, errors, onChange }: RowProps) {
  const t = useT()
  const text = useText()
  const named = trigger.calendars ?? []
  const all = [...new Set([...calendars, ...named])]
  if (all.length === 0) return null
  const choose = (list: string[]) => onChange({ ...trigger, calendars: list.length > 0 ? list : undefined })
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
                choose(event.target.checked ? [...named, name] : named.filter((one) => one !== name))
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

// TextRow is the row of a plain text. A text that is emptied is left out.
function TextRow({
  trigger,
  path,
  errors,
  onChange,
  name,
  help,
}: RowProps & { name: PlainName | 'expr'; help: string }) {
  const t = useT()
  const at = useRefusalsAt(errors)
  const set = (value: string) => onChange({ ...trigger, [name]: value || undefined })
  return (
    <Field label={t(`form.${name}`)} help={help} refusals={at(`${path}.${name}`)} onSuggestion={set}>
      {(field) => (
        <Input
          {...field}
          className="code"
          spellCheck={false}
          autoComplete="off"
          value={trigger[name] ?? ''}
          onChange={(event) => set(event.target.value)}
        />
      )}
    </Field>
  )
}

// SelectRow is the row of a choice. What is set already stays a choice, also one that this form has no
// word for.
function SelectRow({
  path,
  errors,
  name,
  label,
  value,
  options,
  onValue,
}: RowProps & {
  name: string
  label: string
  value: string
  options: Record<string, string>
  onValue: (value: string) => void
}) {
  const at = useRefusalsAt(errors)
  return (
    <Field label={label} refusals={at(`${path}.${name}`)}>
      {({ status: _, ...field }) => (
        <select
          {...field}
          className="select"
          style={{ width: '100%' }}
          value={value}
          onChange={(event) => onValue(event.target.value)}
        >
          {value && !(value in options) && <option value={value}>{value}</option>}
          {Object.entries(options).map(([key, word]) => (
            <option value={key} key={key}>
              {word}
            </option>
          ))}
        </select>
      )}
    </Field>
  )
}

function Others({ trigger, path, errors, onChange }: RowProps) {
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

export function CronField(row: RowProps) {
  const { trigger, path, errors, onChange } = row
  const t = useT()
  const at = useRefusalsAt(errors)
  const zones = useMemo(() => zoneNames().map((value) => ({ value })), [])
  const dialect = trigger.dialect ?? 'quartz'
  const help =
    dialect === 'unix' ? t('form.exprUnix') : dialect === 'descriptor' ? t('form.exprDescriptor') : t('form.exprQuartz')
  return (
    <>
      <TextRow {...row} name="expr" help={help} />
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
        <SelectRow
          {...row}
          name="clockChange"
          label={t('form.clockChange')}
          value={trigger.clockChange ?? 'once'}
          options={{
            once: t('form.clockOnce'),
            skip: t('form.clockSkip'),
            both: t('form.clockBoth'),
            quartz: t('form.clockQuartz'),
          }}
          onValue={(clockChange) => onChange({ ...trigger, clockChange })}
        />
      </div>
    </>
  )
}
