import { screen, waitFor } from '@testing-library/react'
import userEvent from '@testing-library/user-event'
import { afterEach, beforeEach, expect, test, vi } from 'vitest'
import type { Job } from '../api/types'
import { BackfillModal } from '../components/BackfillModal'
import { inLanguage, json, renderPage } from './render'

const asked: Record<string, unknown>[] = []
const job = { id: '10001', name: 'copy', triggers: [{ no: 1, kind: 'cron', expr: '0 0 8 * * ?' }] } as unknown as Job
let refuse = false

beforeEach(() => {
  asked.length = 0
  refuse = false
  vi.stubGlobal('fetch', async (request: Request) => {
    if (request.method !== 'POST') return json({ platformAdmin: true, can: [], namespaces: [] })
    const body = await request.json()
    asked.push(body)
    if (refuse) {
      const message = { en: 'Split it.', zh: '请分次补数。' }
      return json({ status: 422, code: 'invalid', errors: [{ code: 'too_many', field: 'to', message }] }, 422)
    }
    const made = ['2026-11-01T08:00:00+08:00', '2026-11-02T08:00:00+08:00'].map((plannedFor) => ({ plannedFor }))
    return json({ id: '', dryRun: body.dryRun, zone: 'Asia/Shanghai', maxActive: 1, planned: 3, made, leftOut: [{}] })
  })
})
afterEach(() => vi.unstubAllGlobals())

test('a backfill is counted and listed before it can be started, and started once', async () => {
  const closed = vi.fn()
  await inLanguage('en')
  await renderPage(<BackfillModal job={job} onClose={closed} />)
  await userEvent.click(await screen.findByLabelText('From'))
  await userEvent.paste('2026-11-01')
  await userEvent.click(screen.getByLabelText('To'))
  await userEvent.paste('2026-11-04')
  await userEvent.click(screen.getByRole('button', { name: 'Count' }))
  expect(await screen.findByText('2026-11-02T08:00:00+08:00')).toBeInTheDocument()
  expect(screen.getByText('2 batches would be made, 1 planned times are left out (Asia/Shanghai).')).toBeInTheDocument()
  expect(asked).toEqual([
    { from: '2026-11-01', to: '2026-11-04', trigger: 1, again: false, maxActive: 1, dryRun: true },
  ])
  await userEvent.click(await screen.findByRole('button', { name: 'Start 2' }))
  await waitFor(() => expect(closed).toHaveBeenCalledOnce())
  expect(asked[1]).toMatchObject({
    dryRun: false,
    from: '2026-11-01',
    idempotencyKey: expect.stringMatching(/^[0-9a-f]{32}$/),
  })
})

test('what is changed has to be counted again', async () => {
  await inLanguage('en')
  await renderPage(<BackfillModal job={job} onClose={() => {}} />)
  await userEvent.click(await screen.findByRole('button', { name: 'Count' }))
  expect(await screen.findByRole('button', { name: 'Start 2' })).toBeInTheDocument()
  await userEvent.click(screen.getByLabelText('Also what has run successfully'))
  expect(screen.getByRole('button', { name: 'Count' })).toBeInTheDocument()
})

test('a refusal stands at its field, in the language of the console', async () => {
  refuse = true
  await inLanguage('zh')
  await renderPage(<BackfillModal job={job} onClose={() => {}} />)
  await userEvent.click(await screen.findByRole('button', { name: /统 ?计/ }))
  expect(await screen.findByText('请分次补数。')).toBeInTheDocument()
})
