import { beforeEach, expect, test, vi } from 'vitest'
import { api, must, Refused } from '../api/client'
import { endSession, resume, signedIn, startSession } from '../api/session'
import { setPrefs } from '../lib/prefs'
import { json } from './render'

const session = (accessToken: string) => ({
  accessToken,
  expiresIn: 600,
  user: { id: '1', name: 'admin', displayName: 'Admin' },
})

// server answers by path and remembers what it was asked.
function server(answer: (path: string, token: string, n: number) => Response) {
  const calls: { path: string; token: string; headers: Headers; body: string }[] = []
  vi.stubGlobal('fetch', async (input: Request | string, init?: RequestInit) => {
    const request = new Request(input, init)
    const path = new URL(request.url).pathname
    const token = request.headers.get('Authorization') ?? ''
    calls.push({ path, token, headers: request.headers, body: await request.text() })
    return answer(path, token, calls.length)
  })
  return calls
}

beforeEach(() => endSession())

const problem = (status: number) => json({ title: 'no', status, code: 'c', detail: 'said no', requestId: 'r1' }, status)

test('a 401 is answered by one refresh and one repetition, body included', async () => {
  startSession(session('old'))
  const calls = server((path, token) => {
    if (path.endsWith('/auth/refresh')) return json(session('new'))
    return token === 'Bearer new' ? json({ name: 'a', key: 'k' }, 201) : problem(401)
  })
  await must(
    api.POST('/api/v1/namespaces/{namespace}/apps', {
      params: { path: { namespace: 'default' } },
      body: { name: 'a', protocol: 'ax' },
    }),
  )
  expect(calls.map((call) => [call.path.split('/').at(-1), call.token])).toEqual([
    ['apps', 'Bearer old'],
    ['refresh', ''],
    ['apps', 'Bearer new'],
  ])
  expect(calls[2]?.body).toBe(calls[0]?.body)
})

test('calls at the same time share one refresh', async () => {
  startSession(session('old'))
  const calls = server((path, token) => {
    if (path.endsWith('/auth/refresh')) return json(session('new'))
    return token === 'Bearer new' ? json({}) : problem(401)
  })
  await Promise.all([must(api.GET('/api/v1/me')), must(api.GET('/api/v1/me')), must(api.GET('/api/v1/me'))])
  expect(calls.filter((call) => call.path.endsWith('/refresh'))).toHaveLength(1)
})

test('a refused refresh ends the session, without a loop', async () => {
  startSession(session('old'))
  const calls = server(() => problem(401))
  await expect(must(api.GET('/api/v1/me'))).rejects.toMatchObject({ status: 401 })
  expect(calls).toHaveLength(2)
  expect(signedIn()).toBe(false)
})

test('a second 401 after a good refresh is given to the caller', async () => {
  startSession(session('old'))
  const calls = server((path) => (path.endsWith('/auth/refresh') ? json(session('new')) : problem(401)))
  await expect(must(api.GET('/api/v1/me'))).rejects.toBeInstanceOf(Refused)
  expect(calls).toHaveLength(3)
  expect(signedIn()).toBe(true)
})

test('a server that does not answer ends nothing', async () => {
  startSession(session('old'))
  vi.stubGlobal('fetch', async () => {
    throw new TypeError('Failed to fetch')
  })
  await expect(must(api.GET('/api/v1/me'))).rejects.toMatchObject({ status: 0 })
  expect(signedIn()).toBe(true)
})

test('each call says the language, and that it comes from the console', async () => {
  startSession(session('t'))
  const calls = server(() => json({}))
  setPrefs({ lang: 'zh' })
  await must(api.GET('/api/v1/me'))
  setPrefs({ lang: 'en' })
  await must(api.GET('/api/v1/me'))
  expect(calls.map((call) => call.headers.get('Accept-Language'))).toEqual(['zh-CN', 'en'])
  expect(calls[0]?.headers.get('X-Requested-With')).toBe('ax-console')
})

test('a reload during a restart of the server keeps the session', async () => {
  startSession(session('old'))
  const calls = server((_path, _token, n) => (n === 1 ? problem(502) : json(session('new'))))
  await resume()
  expect(calls.map((call) => call.path.split('/').at(-1))).toEqual(['refresh', 'refresh'])
  expect(signedIn()).toBe(true)
})

test('without an earlier session nothing is asked', async () => {
  const calls = server(() => problem(401))
  await resume()
  expect(calls).toHaveLength(0)
})

test('the token is in no storage', () => {
  startSession(session('very-secret'))
  expect(JSON.stringify({ ...localStorage, ...sessionStorage })).not.toContain('very-secret')
})
