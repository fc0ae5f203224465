import { expect, test } from 'vitest'
import {
  auditSearch,
  batchSearch,
  bounds,
  jobSearch,
  loginSearch,
  parseSearch,
  splitList,
  stringifySearch,
} from '../lib/search'

test('filters go to the URL and back as plain text', () => {
  const search = { job: '10001', state: 'FAILED,TIMED_OUT', range: '7d' }
  const url = stringifySearch(search)
  expect(url).toBe('?job=10001&state=FAILED,TIMED_OUT&range=7d')
  expect(batchSearch(parseSearch(url))).toEqual(search)
  expect(jobSearch(parseSearch(stringifySearch({ q: 'a&b=中文 %', app: 'x' })))).toEqual({ q: 'a&b=中文 %', app: 'x' })
})

test('empty filters leave no trace', () => {
  expect(stringifySearch({ q: '', app: undefined, state: null })).toBe('')
})

test('what is no value of a filter is dropped', () => {
  expect(batchSearch({ state: 'FAILED,NONSENSE', range: '3y', job: 7 })).toEqual({ state: 'FAILED' })
  expect(jobSearch({ state: 'maybe', q: ['x'] })).toEqual({})
  expect(auditSearch({ from: 'yesterday', to: '2026-01-01T00:00:00Z' })).toEqual({
    from: undefined,
    to: '2026-01-01T00:00:00Z',
  })
})

test('states keep the order of the list, whatever the URL says', () => {
  expect(splitList('b,a,b', ['a', 'b', 'c'])).toEqual(['a', 'b'])
})

test('the window is the last 24 hours unless the URL says another', () => {
  const now = Date.parse('2026-11-30T12:00:00Z')
  expect(bounds({}, now)).toEqual({ from: '2026-11-29T12:00:00.000Z' })
  expect(bounds({ range: '1h' }, now)).toEqual({ from: '2026-11-30T11:00:00.000Z' })
  expect(bounds({ from: 'a', range: '1h' }, now)).toEqual({ from: 'a', to: undefined })
})

test('sign-in leads back only into the console', () => {
  expect(loginSearch({ to: '/ns/default/jobs?state=enabled' }).to).toBe('/ns/default/jobs?state=enabled')
  for (const to of ['https://elsewhere.example', '//elsewhere.example', '/\\elsewhere.example', 'jobs']) {
    expect(loginSearch({ to }).to).toBeUndefined()
  }
})
