import { screen } from '@testing-library/react'
import { afterEach, beforeEach, expect, test, vi } from 'vitest'
import type { Execution } from '../api/types'
import { WhyHere } from '../components/WhyHere'
import { inLanguage, json, renderPage } from './render'

const execution = { id: '77', shard: 2, attempt: 1, executor: { id: '5', address: 'http://10.0.0.5:9999' } }

beforeEach(() => {
  vi.stubGlobal('fetch', async (request: Request) => {
    if (!request.url.endsWith('/executions/77')) return json({ platformAdmin: true, can: [], namespaces: [] })
    return json({
      ...execution,
      choice: {
        source: 'written',
        strategy: 'leastUsed',
        waitedMs: 0,
        more: 3,
        candidates: [
          { executor: execution.executor, place: 1, chosen: true, terms: { used: 4 } },
          {
            executor: { id: '6', address: 'http://10.0.0.6:9999' },
            place: 0,
            chosen: false,
            reason: {
              code: 'selector_not_met',
              en: 'The selector does not let it pass.',
              zh: '不符合选择器。',
              detail: 'gpu',
            },
          },
        ],
      },
    })
  })
})
afterEach(() => vi.unstubAllGlobals())

test('an execution says why it is where it is, in both languages', async () => {
  await inLanguage('en')
  const page = await renderPage(<WhyHere namespace="default" execution={execution as unknown as Execution} />)
  expect(await screen.findByText('The selector does not let it pass. gpu')).toBeInTheDocument()
  expect(screen.getByText('used 4')).toBeInTheDocument()
  expect(screen.getByText(/Shard 2, attempt 1: Least used/)).toBeInTheDocument()
  expect(screen.getByText('and 3 more')).toBeInTheDocument()
  page.unmount()
  await inLanguage('zh')
  await renderPage(<WhyHere namespace="default" execution={execution as unknown as Execution} />)
  expect(await screen.findByText('不符合选择器。 gpu')).toBeInTheDocument()
})

test('without an executor nothing is asked', async () => {
  await inLanguage('en')
  await renderPage(
    <WhyHere namespace="default" execution={{ ...execution, executor: undefined } as unknown as Execution} />,
  )
  expect(await screen.findByText('No executor was chosen yet.')).toBeInTheDocument()
})
