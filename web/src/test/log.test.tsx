import { fireEvent, render, screen, waitFor } from '@testing-library/react'
import { beforeEach, describe, expect, test, vi } from 'vitest'
import { parseEvents, type ReadState, readOutput } from '../api/output'
import { endSession, startSession } from '../api/session'
import { LogView } from '../components/LogView'
import { isError, LogBuffer, windowOf } from '../lib/log'
import { inLanguage, json } from './render'

describe('lines', () => {
  test('pieces that end anywhere make whole lines', () => {
    const log = new LogBuffer()
    for (const piece of ['one\ntw', 'o\n', 'three', '\n\nfive\r\nsi', 'x']) log.append(piece)
    expect(log.lines).toEqual(['one', 'two', 'three', '', 'five', 'six'])
  })

  test('terminal colours are dropped and errors are found', () => {
    const log = new LogBuffer()
    log.append('\u001b[31mERROR\u001b[0m no customer\nfine\njava.lang.IllegalState')
    log.append('Exception: x\nlevel=info errors=0\n')
    expect(log.lines[0]).toBe('ERROR no customer')
    expect(log.errors).toEqual([0, 2])
    expect(isError('no errors so far')).toBe(false)
    expect(isError('ValueError: bad')).toBe(true)
  })

  test('only what is seen is drawn', () => {
    expect(windowOf(200_000, 2_000_000, 400, 20)).toEqual({ first: 99_980, last: 100_040 })
    expect(windowOf(10, 0, 400, 20)).toEqual({ first: 0, last: 10 })
    // The list has just become shorter than where it was scrolled to.
    expect(windowOf(5, 10_000, 400, 20)).toEqual({ first: 0, last: 5 })
  })
})

test('events are cut from the stream, and an open one waits', () => {
  const { events, rest } = parseEvents(
    ': beat\n\nid: 5\nevent: output\ndata: {"a":1}\n\nevent: output\r\ndata: x\r\n\r\ndata: op',
  )
  expect(events).toEqual([
    { event: 'output', data: '{"a":1}' },
    { event: 'output', data: 'x' },
  ])
  expect(rest).toBe('data: op')
})

function stream(...pieces: string[]): Response {
  return new Response(
    new ReadableStream({
      start(controller) {
        for (const piece of pieces) controller.enqueue(new TextEncoder().encode(piece))
        controller.close()
      },
    }),
    { status: 200 },
  )
}

const output = (text: string, nextOffset: number) =>
  `id: ${nextOffset}\nevent: output\ndata: ${JSON.stringify({ text, nextOffset })}\n\n`

beforeEach(() => {
  endSession()
  startSession({ accessToken: 't', expiresIn: 600, user: { id: '1', name: 'a', displayName: 'A' } })
})

test('reading goes on from the last byte, whatever happens to the connection', async () => {
  const asked: string[] = []
  const streams = [
    // Breaks in the middle of an event.
    stream(output('b\n', 4), 'event: output\ndata: {"te'),
    stream(
      output('d\n', 8),
      'event: progress\ndata: {"progress":70}\n\n',
      'event: end\ndata: {"state":"SUCCEEDED"}\n\n',
    ),
  ]
  const pages: Record<number, unknown> = {
    0: { text: 'a\n', nextOffset: 2, end: false },
    2: { text: '', nextOffset: 2, end: false },
    4: { text: 'c\n', nextOffset: 6, end: false },
    6: { text: '', nextOffset: 6, end: false },
    8: { text: 'e\n', nextOffset: 10, end: true },
  }
  vi.stubGlobal('fetch', async (request: Request) => {
    const url = new URL(request.url)
    const offset = Number(url.searchParams.get('offset'))
    asked.push(`${url.pathname.split('/').at(-1)}@${offset}`)
    expect(request.headers.get('Authorization')).toBe('Bearer t')
    if (url.pathname.endsWith('/stream')) return streams.shift() ?? problemResponse()
    return json(pages[offset])
  })
  let text = ''
  let progress = 0
  const states: ReadState[] = []
  await readOutput(
    'default',
    '7',
    {
      onText: (piece) => {
        text += piece
      },
      onProgress: (value) => {
        progress = value
      },
      onState: (state) => states.push(state),
    },
    new AbortController().signal,
    [1],
  )
  expect(text).toBe('a\nb\nc\nd\ne\n')
  expect(progress).toBe(70)
  expect(states.at(-1)).toBe('ended')
  expect(asked).toEqual(['output@0', 'output@2', 'stream@2', 'output@4', 'output@6', 'stream@6', 'output@8'])
})

function problemResponse(): Response {
  return json({ title: 'no', status: 500, code: 'x' }, 500)
}

test('a long output is a short list of lines, markup in it is text', async () => {
  await inLanguage('en')
  const text = Array.from({ length: 50_000 }, (_, i) =>
    i === 3 ? 'ERROR <img src=x onerror=alert(1)>' : `line ${i}`,
  ).join('\n')
  vi.stubGlobal('fetch', async () => json({ text, nextOffset: text.length, end: true }))
  const { container } = render(<LogView namespace="default" executionId="7" />)
  await screen.findByText('50000 lines')
  await screen.findByText('Complete')
  expect(container.querySelectorAll('.logline').length).toBeLessThan(90)
  expect(container.querySelector('.all')).toHaveStyle({ height: '1000000px' })
  fireEvent.click(screen.getByRole('checkbox', { name: /Errors only/ }))
  await waitFor(() => expect(container.querySelectorAll('.logline')).toHaveLength(1))
  expect(container.querySelector('.logline')).toHaveTextContent('4ERROR <img src=x onerror=alert(1)>')
  expect(container.querySelector('img')).toBeNull()
})

test('scrolling up stops following', async () => {
  await inLanguage('en')
  const text = 'x\n'.repeat(500)
  vi.stubGlobal('fetch', async () => json({ text, nextOffset: text.length, end: true }))
  render(<LogView namespace="default" executionId="7" />)
  await screen.findByText('500 lines')
  const follow = screen.getByRole('checkbox', { name: 'Follow' })
  expect(follow).toBeChecked()
  const view = screen.getByRole('log')
  Object.defineProperties(view, { scrollHeight: { value: 10_000 }, clientHeight: { value: 400 } })
  view.scrollTop = 9_600
  fireEvent.scroll(view)
  expect(follow).toBeChecked()
  view.scrollTop = 5_000
  fireEvent.scroll(view)
  expect(follow).not.toBeChecked()
  view.scrollTop = 9_600
  fireEvent.scroll(view)
  expect(follow).toBeChecked()
})
