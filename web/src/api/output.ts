// Reading what an execution writes: what there is in pages, then the rest as it comes,
// from the very byte where the last piece ended, whatever happens to the connection.
import { baseURL } from '../lib/base'
import { api, must } from './client'
import { authorized } from './session'

export type ReadState = 'reading' | 'following' | 'reconnecting' | 'ended'

export interface OutputReader {
  onText(text: string): void
  onProgress?(progress: number): void
  onState(state: ReadState): void
  // onEnd is told when the execution itself has ended.
  onEnd?(): void
}

export interface ServerEvent {
  event: string
  data: string
}

// parseEvents cuts a text/event-stream into events and keeps what is not complete.
export function parseEvents(buffer: string): { events: ServerEvent[]; rest: string } {
  const blocks = buffer.replaceAll('\r\n', '\n').split('\n\n')
  const rest = blocks.pop() ?? ''
  const events: ServerEvent[] = []
  for (const block of blocks) {
    let event = 'message'
    const data: string[] = []
    for (const line of block.split('\n')) {
      if (line.startsWith('event:')) event = line.slice(6).trim()
      else if (line.startsWith('data:')) data.push(line.slice(5).replace(/^ /, ''))
    }
    if (data.length > 0) events.push({ event, data: data.join('\n') })
  }
  return { events, rest }
}

const pageBytes = 262_144

function pause(ms: number, signal: AbortSignal): Promise<void> {
  return new Promise((resolve) => {
    const timer = setTimeout(resolve, ms)
    signal.addEventListener('abort', () => {
      clearTimeout(timer)
      resolve()
    })
  })
}

export async function outputPage(namespace: string, id: string, offset: number, signal?: AbortSignal) {
  return must(
    api.GET('/api/v1/namespaces/{namespace}/executions/{id}/output', {
      params: { path: { namespace, id }, query: { offset, limit: pageBytes } },
      signal,
    }),
  )
}

// readOutput returns when everything was read, or when signal fires. The first refusal
// by the server is thrown; later ones are retried.
export async function readOutput(
  namespace: string,
  id: string,
  reader: OutputReader,
  signal: AbortSignal,
  waitsMs: readonly number[] = [500, 1000, 2000, 5000],
): Promise<void> {
  let offset = 0
  let failures = 0
  let ended = false
  let everRead = false
  reader.onState('reading')
  while (!signal.aborted) {
    try {
      for (;;) {
        const page = await outputPage(namespace, id, offset, signal)
        everRead = true
        const moved = page.nextOffset > offset
        offset = page.nextOffset
        if (page.text) reader.onText(page.text)
        if (page.end) ended = true
        if (page.end || !moved) break
      }
      if (ended) {
        reader.onState('ended')
        return
      }
      failures = 0
      reader.onState('following')
      const url = `${baseURL}/api/v1/namespaces/${encodeURIComponent(namespace)}/executions/${encodeURIComponent(id)}/output/stream?offset=${offset}`
      const response = await authorized(new Request(url, { headers: { Accept: 'text/event-stream' }, signal }))
      if (!response.ok || !response.body) throw new Error(`HTTP ${response.status}`)
      const stream = response.body.getReader()
      const decoder = new TextDecoder()
      let buffer = ''
      for (;;) {
        const { done, value } = await stream.read()
        if (done) break
        buffer += decoder.decode(value, { stream: true })
        const { events, rest } = parseEvents(buffer)
        buffer = rest
        for (const { event, data } of events) {
          const body = JSON.parse(data) as { text?: string; nextOffset?: number; progress?: number }
          if (event === 'output' && body.nextOffset !== undefined && body.nextOffset > offset) {
            offset = body.nextOffset
            reader.onText(body.text ?? '')
          } else if (event === 'progress' && body.progress !== undefined) {
            reader.onProgress?.(body.progress)
          } else if (event === 'end') {
            // Whatever was written after the last event is in the pages.
            ended = true
            reader.onEnd?.()
          }
        }
      }
    } catch (error) {
      if (signal.aborted) return
      if (!everRead) throw error
      reader.onState('reconnecting')
      await pause(waitsMs[Math.min(failures, waitsMs.length - 1)] ?? 5000, signal)
      failures++
      continue
    }
    if (ended) {
      const page = await outputPage(namespace, id, offset, signal).catch(() => null)
      if (page?.text) reader.onText(page.text)
      reader.onState('ended')
      return
    }
    // The stream ended and the execution did not: go on from the last byte.
    await pause(waitsMs[0] ?? 500, signal)
  }
}
