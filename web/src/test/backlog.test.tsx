import { screen, waitFor } from '@testing-library/react'
import userEvent from '@testing-library/user-event'
import { afterEach, beforeEach, expect, test, vi } from 'vitest'
import { BacklogBanner } from '../components/BacklogBanner'
import { inLanguage, json, renderPage } from './render'

const asked: { path: string; body: unknown }[] = []
let count = 41

beforeEach(() => {
  asked.length = 0
  count = 41
  vi.stubGlobal('fetch', async (request: Request) => {
    const path = new URL(request.url).pathname
    if (request.method === 'POST') {
      asked.push({ path: path.split('/backlog/')[1] ?? '', body: await request.json() })
      return json({ count, jobs: 1, dryRun: true, paused: false, rate: 0 })
    }
    if (path.endsWith('/me'))
      return json({
        platformAdmin: true,
        can: ['job.pause', 'batch.cancel'],
        namespaces: [{ name: 'default', can: ['job.pause', 'batch.cancel'] }],
      })
    const item = {
      job: '10001',
      name: 'copy',
      app: 'orders',
      count,
      oldest: '2026-11-30T08:00:00Z',
      newest: '2026-11-30T08:40:00Z',
    }
    return json({
      count,
      jobs: count ? 1 : 0,
      items: count ? [{ ...item, rate: 10, appRate: 100, paused: false, expectedEnd: '2026-11-30T09:00:00Z' }] : [],
    })
  })
})
afterEach(() => vi.unstubAllGlobals())

test('a backlog is shown with what can be done about it, and giving up asks first', async () => {
  await inLanguage('en')
  await renderPage(<BacklogBanner />)
  expect(await screen.findByText('41 missed firings of 1 jobs wait to be caught up with.')).toBeInTheDocument()
  await waitFor(() => expect(screen.getByRole('button', { name: 'Pause' })).toBeEnabled())
  await userEvent.click(screen.getByRole('button', { name: 'Pause' }))
  await waitFor(() => expect(asked).toContainEqual({ path: 'pause', body: { app: 'orders' } }))
  await userEvent.click(screen.getByRole('button', { name: 'Give up' }))
  await waitFor(() => expect(asked).toContainEqual({ path: 'drop', body: { app: 'orders', dryRun: true } }))
  expect(asked).not.toContainEqual({ path: 'drop', body: { app: 'orders', dryRun: false } })
  expect(await screen.findByText('41 firings of 1 jobs are recorded as missed and will not run.')).toBeInTheDocument()
})

test('without a backlog there is nothing', async () => {
  count = 0
  await inLanguage('zh')
  await renderPage(<BacklogBanner />)
  await waitFor(() => expect(screen.queryByRole('status')).not.toBeInTheDocument())
})
