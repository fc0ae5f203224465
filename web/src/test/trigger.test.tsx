import { screen } from '@testing-library/react'
import userEvent from '@testing-library/user-event'
import { useState } from 'react'
import { expect, test } from 'vitest'
import type { Trigger } from '../api/types'
import { ofKind, otherFields, TriggerEditor } from '../components/TriggerEditor'
import { inLanguage, renderPage } from './render'

const anchored = { no: 3, kind: 'fixedRate', every: '5s', anchor: '2026-01-01T00:00:02Z', zone: 'Asia/Tokyo' }
const bounded = {
  no: 1,
  kind: 'cron',
  expr: '0 0 8 * * ?',
  dialect: 'quartz',
  zone: 'Asia/Shanghai',
  clockChange: 'once',
  start: '2026-01-01T00:00:00Z',
  end: '2027-01-01T00:00:00Z',
}
const newer = { no: 7, kind: 'sunrise', place: { latitude: 31 } } as Trigger

let last: Trigger[] = []

function Form({ start, calendars }: { start: Trigger[]; calendars?: string[] }) {
  const [triggers, setTriggers] = useState(start)
  return (
    <TriggerEditor
      triggers={triggers}
      calendars={calendars ?? []}
      errors={[]}
      onChange={(next) => {
        last = next
        setTriggers(next)
      }}
    />
  )
}

test('what the form does not know stays as it is while the rest is edited', async () => {
  await inLanguage('en')
  await renderPage(<Form start={[bounded, anchored, newer]} />)
  const expr = await screen.findByLabelText('Expression')
  await userEvent.clear(expr)
  await userEvent.type(expr, '0 0 9 * * ?')
  expect(last).toEqual([{ ...bounded, expr: '0 0 9 * * ?' }, anchored, newer])
  expect(screen.getByText('place = {"latitude":31}')).toBeInTheDocument()
  expect(screen.getAllByLabelText('Kind')[2]).toHaveValue('sunrise')

  await userEvent.click(screen.getByRole('button', { name: 'Remove place' }))
  expect(last[2]).toEqual({ no: 7, kind: 'sunrise' })
})

test('a schedule has its bounds and its grid in the form, and what is emptied is left out', async () => {
  await inLanguage('en')
  await renderPage(<Form start={[bounded, anchored]} />)
  const [end, other] = await screen.findAllByLabelText('Not after')
  expect(screen.getAllByLabelText('Not before')[0]).toHaveValue(bounded.start)
  expect(screen.getByLabelText('Point of the grid')).toHaveValue(anchored.anchor)
  await userEvent.clear(end as HTMLElement)
  await userEvent.type(other as HTMLElement, '2027-01-01T00:00:00Z')
  const { end: _, ...open } = bounded
  expect(JSON.parse(JSON.stringify(last))).toEqual([open, { ...anchored, end: '2027-01-01T00:00:00Z' }])
})

test('a refusal stands at the row of its field, with its suggestion', async () => {
  await inLanguage('en')
  const refused = {
    code: 'bad_time',
    field: 'triggers[0].end',
    token: 'x',
    suggestion: '2027-01-01T00:00:00Z',
    message: { en: 'That is no time.', zh: '不是时间。' },
  }
  await renderPage(
    <TriggerEditor
      triggers={[bounded]}
      errors={[refused]}
      onChange={(next) => {
        last = next
      }}
    />,
  )
  expect(await screen.findByLabelText('Not after')).toHaveAccessibleDescription(/That is no time/)
  expect(screen.getByLabelText('Not before')).toBeValid()
  await userEvent.click(screen.getByRole('button', { name: 'Use 2027-01-01T00:00:00Z' }))
  expect(last[0]?.end).toBe('2027-01-01T00:00:00Z')
})

test('another kind keeps the number, the zone and the bounds that it has too', () => {
  expect(ofKind(bounded, 'fixedRate')).toEqual({
    no: 1,
    kind: 'fixedRate',
    every: '5m',
    zone: 'Asia/Shanghai',
    start: bounded.start,
    end: bounded.end,
  })
  expect(ofKind(bounded, 'fixedDelay').end).toBe(bounded.end)
  expect(otherFields(bounded)).toEqual([])
  expect(ofKind(bounded, 'fixedDelay').start).toBe(bounded.start)
  expect(ofKind(bounded, 'once')).toEqual({ no: 1, kind: 'once', at: '', zone: 'Asia/Shanghai' })
})

test('a trigger of kind once has its time in the form', async () => {
  await renderPage(<Form start={[{ no: 1, kind: 'once', at: '2026-12-24T18:00:00+08:00' }]} />)
  const at = await screen.findByLabelText('At')
  expect(at).toHaveValue('2026-12-24T18:00:00+08:00')
  await userEvent.clear(at)
  await userEvent.type(at, '2027-01-01T00:00:00Z')
  expect(last).toEqual([{ no: 1, kind: 'once', at: '2027-01-01T00:00:00Z' }])
  expect(screen.queryByLabelText('Every')).not.toBeInTheDocument()
})

test('a trigger of kind event has its condition in the form, and no bounds', async () => {
  await inLanguage('en')
  await renderPage(<Form start={[bounded]} />)
  await userEvent.selectOptions(await screen.findByLabelText('Kind'), 'event')
  expect(last).toEqual([{ no: 1, kind: 'event', zone: 'Asia/Shanghai' }])
  await userEvent.type(screen.getByLabelText('Only if'), 'event.amount > 100.0')
  expect(last[0]?.filter).toBe('event.amount > 100.0')
  expect(screen.queryByLabelText('Not after')).not.toBeInTheDocument()
})

test('jitter and calendars are written and taken away again', async () => {
  await inLanguage('en')
  await renderPage(<Form start={[{ ...bounded, calendars: ['gone'] }]} calendars={['holidays']} />)
  await userEvent.type(await screen.findByLabelText('Jitter'), '5m')
  await userEvent.click(screen.getByRole('checkbox', { name: 'holidays' }))
  expect(last).toEqual([{ ...bounded, jitter: '5m', calendars: ['gone', 'holidays'] }])
  await userEvent.click(screen.getByRole('checkbox', { name: 'gone' }))
  await userEvent.click(screen.getByRole('checkbox', { name: 'holidays' }))
  await userEvent.clear(screen.getByLabelText('Jitter'))
  expect(JSON.parse(JSON.stringify(last))).toEqual([bounded])
})
