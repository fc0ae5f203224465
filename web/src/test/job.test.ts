import { expect, test } from 'vitest'
import { changes, curlOf, emptyJob } from '../lib/job'

test('the difference names each field that changed, and no other', () => {
  const from = emptyJob('orders')
  const to = {
    ...from,
    timeout: '30s',
    description: '',
    routing: { strategy: 'roundRobin', hashKey: '' },
    triggers: [
      ...from.triggers.map((one) => ({ ...one, expr: '0 0 9 * * ?' })),
      { kind: 'fixedRate' as const, every: '5s' },
    ],
  }
  expect(changes(from, to)).toEqual([
    { path: 'triggers[0].expr', from: '0 0 8 * * ?', to: '0 0 9 * * ?' },
    { path: 'triggers[1]', from: undefined, to: { kind: 'fixedRate', every: '5s' } },
    { path: 'timeout', from: '0s', to: '30s' },
  ])
  expect(changes(from, { ...from })).toEqual([])
})

test('a call as curl survives quotes', () => {
  expect(curlOf('POST', 'http://x/y', { name: "it's" })).toBe(
    [
      "curl -X POST 'http://x/y' \\",
      '  -H "Authorization: Bearer $AX_TOKEN" \\',
      "  -H 'Content-Type: application/json' \\",
      "  --data '{",
      '  "name": "it\'\\\'\'s"',
      "}'",
    ].join('\n'),
  )
})
