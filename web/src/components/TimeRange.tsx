import { Button, Popover } from 'antd'
import { useState } from 'react'
import { useT } from '../i18n/useText'
import { type Range, ranges, type Window } from '../lib/search'
import { formatTime, fromLocalInput, toLocalInput } from '../lib/time'
import { useZone } from './Time'

// TimeRange says which window a list shows, and changes it: a relative one, or two
// moments on the clock of the chosen zone.
export function TimeRange({ value, onChange }: { value: Window; onChange: (value: Window) => void }) {
  const t = useT()
  const zone = useZone()
  const [open, setOpen] = useState(false)
  const own = Boolean(value.from || value.to)
  const text = own
    ? `${formatTime(value.from, zone) || '…'} – ${formatTime(value.to, zone) || '…'}`
    : t(`executions.range${value.range ?? '24h'}`)
  return (
    <Popover
      trigger="click"
      open={open}
      onOpenChange={setOpen}
      placement="bottomRight"
      destroyOnHidden
      content={
        <RangeForm
          value={value}
          zone={zone}
          onChange={(next) => {
            setOpen(false)
            onChange(next)
          }}
        />
      }
    >
      <Button aria-expanded={open} aria-label={`${t('executions.range')}: ${text}`}>
        {text}
      </Button>
    </Popover>
  )
}

function RangeForm({ value, zone, onChange }: { value: Window; zone: string; onChange: (value: Window) => void }) {
  const t = useT()
  const [from, setFrom] = useState(value.from ? toLocalInput(value.from, zone) : '')
  const [to, setTo] = useState(value.to ? toLocalInput(value.to, zone) : '')
  const active = value.from || value.to ? undefined : (value.range ?? '24h')
  return (
    <div style={{ display: 'flex', gap: 20 }}>
      <div style={{ display: 'grid', gap: 4, alignContent: 'start' }}>
        {ranges.map((range: Range) => (
          <Button
            key={range}
            size="small"
            style={{ justifyContent: 'start' }}
            type={range === active ? 'primary' : 'text'}
            aria-pressed={range === active}
            onClick={() => onChange({ range })}
          >
            {t(`executions.range${range}`)}
          </Button>
        ))}
      </div>
      <form
        style={{ display: 'grid', gap: 8, alignContent: 'start' }}
        onSubmit={(event) => {
          event.preventDefault()
          onChange({
            from: (from && fromLocalInput(from, zone)) || undefined,
            to: (to && fromLocalInput(to, zone)) || undefined,
          })
        }}
      >
        <strong>{t('executions.custom')}</strong>
        <label>
          {t('executions.from')}
          <br />
          <input
            className="select"
            type="datetime-local"
            value={from}
            onChange={(event) => setFrom(event.target.value)}
          />
        </label>
        <label>
          {t('executions.to')}
          <br />
          <input className="select" type="datetime-local" value={to} onChange={(event) => setTo(event.target.value)} />
        </label>
        <span className="muted">{t('executions.inZone', { zone })}</span>
        <Button htmlType="submit" type="primary" disabled={!from && !to}>
          {t('executions.apply')}
        </Button>
      </form>
    </div>
  )
}
