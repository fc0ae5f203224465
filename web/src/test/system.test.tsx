import { screen, waitFor } from '@testing-library/react'
import userEvent from '@testing-library/user-event'
import { afterEach, beforeEach, expect, test, vi } from 'vitest'
import { System } from '../pages/System'
import { inLanguage, json, renderPage } from './render'

const asked: { path: string; body: string }[] = []
let can: string[] = []

const replica = (id: string, address: string, state: string, buckets: number) => ({
  id,
  address,
  state,
  buckets,
  build: '1',
  startedAt: '2026-11-30T08:00:00Z',
  answering: id === 'a',
})

const system = {
  replicas: [replica('a', '10.0.0.1:8081', 'up', 1), replica('b', '10.0.0.2:8081', 'draining', 1)],
  buckets: [
    {
      bucket: 0,
      owner: 'a',
      epoch: 3,
      takenAt: '2026-11-30T08:00:00Z',
      lagMs: 2500,
      pinnedTo: '',
      namespaces: ['default'],
    },
    { bucket: 1, owner: 'b', epoch: 4, takenAt: null, lagMs: 0, pinnedTo: '', namespaces: [] },
  ],
  moves: [
    {
      at: '2026-11-30T08:00:00Z',
      bucket: 0,
      epoch: 3,
      from: 'gone',
      to: 'a',
      reason: { code: 'move_expired', en: 'Its owner was not heard of any more.', zh: '原负责副本失联。', detail: '' },
    },
  ],
}

beforeEach(() => {
  asked.length = 0
  can = ['system.read', 'system.update']
  vi.stubGlobal('fetch', async (request: Request) => {
    const path = new URL(request.url).pathname
    if (request.method === 'POST') asked.push({ path: path.split('/system/')[1] ?? '', body: await request.text() })
    if (path.endsWith('/me')) return json({ platformAdmin: false, can, namespaces: [{ name: 'default', can }] })
    return json(system)
  })
})
afterEach(() => vi.unstubAllGlobals())

test('replicas, buckets and moves are shown; a replica is drained after a question, a bucket is moved', async () => {
  await inLanguage('en')
  await renderPage(<System />)
  expect(await screen.findByText('Draining')).toBeInTheDocument()
  expect(screen.getByText('Its owner was not heard of any more.')).toBeInTheDocument()
  expect(screen.getByText('gone')).toBeInTheDocument()
  expect(screen.queryByLabelText('Where bucket 1 is to be')).not.toBeInTheDocument()
  await userEvent.click(screen.getByRole('checkbox'))
  expect(screen.getByLabelText('Where bucket 1 is to be')).toBeInTheDocument()

  await waitFor(() => expect(screen.getByRole('button', { name: 'Drain' })).toBeEnabled())
  await userEvent.click(screen.getByRole('button', { name: 'Drain' }))
  expect(asked).toEqual([])
  await screen.findAllByText('Drain 10.0.0.1:8081?')
  const buttons = screen.getAllByRole('button', { name: 'Drain' })
  await userEvent.click(buttons[buttons.length - 1] as HTMLElement)
  await waitFor(() => expect(asked).toContainEqual({ path: 'replicas/a/drain', body: '' }))
  await userEvent.click(screen.getByRole('button', { name: 'Resume' }))
  await waitFor(() => expect(asked).toContainEqual({ path: 'replicas/b/resume', body: '' }))
  await userEvent.selectOptions(screen.getByLabelText('Where bucket 0 is to be'), 'a')
  await waitFor(() => expect(asked).toContainEqual({ path: 'buckets/0/move', body: '{"to":"a"}' }))
})

test('who may only read changes nothing', async () => {
  can = ['system.read']
  await inLanguage('zh')
  await renderPage(<System />)
  expect(await screen.findByText('排空中')).toBeInTheDocument()
  expect(screen.getByRole('button', { name: /恢\s?复/ })).toBeDisabled()
  expect(screen.getByLabelText('分桶 0 的指定位置')).toBeDisabled()
})
