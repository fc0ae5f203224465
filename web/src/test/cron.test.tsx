import { act, screen, waitFor } from '@testing-library/react'
import userEvent from '@testing-library/user-event'
import { useState } from 'react'
import { beforeEach, expect, test, vi } from 'vitest'
import type { Trigger } from '../api/types'
import { PreviewPanel } from '../components/PreviewPanel'
import { TriggerEditor } from '../components/TriggerEditor'
import { usePreview } from '../components/usePreview'
import { setPrefs } from '../lib/prefs'
import { inLanguage, json, renderPage } from './render'

const refusal = {
  title: 'invalid',
  status: 422,
  code: 'invalid',
  errors: [
    {
      field: 'triggers[0].expr',
      code: 'five_fields',
      token: '0 0 * * *',
      message: { en: '5 fields look like a Unix crontab.', zh: '5 个字段是 Unix crontab 写法。' },
      suggestion: '0 0 0 * * ?',
    },
  ],
}
const asked: { triggers: Trigger[]; count: number }[] = []

beforeEach(() => {
  asked.length = 0
  vi.stubGlobal('fetch', async (request: Request) => {
    const body = (await request.json()) as { triggers: Trigger[]; count: number }
    asked.push(body)
    if (body.triggers[0]?.expr === '0 0 * * *') return json(refusal, 422)
    return json({
      fires: [
        { at: '2026-03-07T02:30:00-05:00', trigger: 1, note: null },
        {
          at: '2026-03-08T03:00:00-04:00',
          trigger: 1,
          note: { en: '02:30 does not exist that day', zh: '当日不存在 02:30' },
        },
      ],
      warnings: [{ code: 'w', trigger: 1, message: { en: 'Look out', zh: '请留意' } }],
    })
  })
})

function Form({ expr }: { expr: string }) {
  const [triggers, setTriggers] = useState<Trigger[]>([
    { kind: 'cron', expr, dialect: 'quartz', zone: 'America/New_York', clockChange: 'once' },
  ])
  const preview = usePreview(triggers)
  return (
    <>
      <TriggerEditor triggers={triggers} errors={preview.errors} onChange={setTriggers} />
      <PreviewPanel state={preview} triggers={triggers.length} />
    </>
  )
}

// C373
test('a refusal stands at its field, and the suggestion mends it', async () => {
  await inLanguage('en')
  await renderPage(<Form expr="0 0 * * *" />)
  const field = await screen.findByLabelText('Expression')
  await waitFor(() => expect(field).toHaveAttribute('aria-invalid', 'true'))
  const described = field.getAttribute('aria-describedby')?.split(' ') ?? []
  const texts = described.map((id) => document.getElementById(id)?.textContent ?? '').join(' ')
  expect(texts).toContain('5 fields look like a Unix crontab.')
  expect(screen.getByLabelText('Time zone')).toHaveAttribute('aria-invalid', 'false')

  await userEvent.click(screen.getByRole('button', { name: 'Use 0 0 0 * * ?' }))
  expect(field).toHaveValue('0 0 0 * * ?')
  await waitFor(() => expect(field).toHaveAttribute('aria-invalid', 'false'))
})

test('the refusal is in the chosen language', async () => {
  await inLanguage('zh')
  await renderPage(<Form expr="0 0 * * *" />)
  expect((await screen.findAllByText(/5 个字段是 Unix crontab 写法/)).length).toBeGreaterThan(0)
  expect(screen.getByRole('button', { name: '改用 0 0 0 * * ?' })).toBeInTheDocument()
})

// C373
test('the preview shows weekday, offset, notes and warnings as the server sent them', async () => {
  await inLanguage('en')
  await renderPage(<Form expr="0 30 2 * * ?" />)
  const items = await screen.findAllByRole('listitem')
  expect(items.map((item) => item.textContent)).toEqual([
    'Sat 2026-03-07 02:30:00 -05:00',
    'Sun 2026-03-08 03:00:00 -04:0002:30 does not exist that day',
  ])
  expect(screen.getByText('Look out')).toBeInTheDocument()
  expect(asked[0]?.count).toBe(10)
})

// C404
test('the preview is on the clock that the reader chose for all times', async () => {
  await inLanguage('en')
  setPrefs({ zone: 'utc' })
  await renderPage(<Form expr="0 30 2 * * ?" />)
  const items = await screen.findAllByRole('listitem')
  expect(items.map((item) => item.textContent)).toEqual([
    'Sat 2026-03-07 07:30:00 +00:00',
    'Sun 2026-03-08 07:00:00 +00:0002:30 does not exist that day',
  ])
  setPrefs({ zone: 'job' })
})

test('the server is asked when the typing pauses, not at each key', async () => {
  await inLanguage('en')
  await renderPage(<Form expr="0 30 2 * * ?" />)
  await screen.findAllByRole('listitem')
  const field = screen.getByLabelText('Expression')
  await userEvent.clear(field)
  await userEvent.type(field, '0 0 8 * * ?')
  await waitFor(() => expect(asked.at(-1)?.triggers[0]?.expr).toBe('0 0 8 * * ?'))
  expect(asked.length).toBeLessThanOrEqual(4)
})

test('without triggers the job is manual only and nobody is asked', async () => {
  await inLanguage('en')
  await renderPage(<Form expr="0 30 2 * * ?" />)
  await screen.findAllByRole('listitem')
  const before = asked.length
  await userEvent.click(screen.getByRole('button', { name: 'Remove trigger 1' }))
  expect(screen.getByText(/Manual only/)).toBeInTheDocument()
  await act(() => new Promise((resolve) => setTimeout(resolve, 300)))
  expect(asked).toHaveLength(before)
})
