import { expect, test } from 'vitest'
import { bodyOf, formOf, months } from '../lib/calendar'

test('a calendar comes back from its form as it was', () => {
  const calendar = {
    zone: 'Asia/Shanghai',
    dates: ['2026-10-01', '01-01'],
    ranges: [{ from: '12-24', to: '01-02' }],
    weekdays: ['SAT', 'SUN'],
    times: [{ from: '22:00', to: '06:00' }],
    periods: [{ from: '2026-11-30T01:00:00Z', to: '2026-11-30T03:00:00Z' }],
  }
  expect(bodyOf(formOf(calendar))).toEqual(calendar)
  expect(bodyOf({ ...formOf({}), weekdays: 'sat, sun', ranges: '\n2026-05-01\n' })).toEqual({
    ...bodyOf(formOf({})),
    weekdays: ['SAT', 'SUN'],
    ranges: [{ from: '2026-05-01', to: '2026-05-01' }],
  })
})

test('a year has its months, each at the right weekday, with what is left out', () => {
  const year = months(2028, ['2028-02-29', '2028-10-01'])
  expect(year.map((month) => month.days.length)).toEqual([31, 29, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31])
  expect(year[0]?.first).toBe(5) // 1 January 2028 is a Saturday
  expect(year.flatMap((month, m) => month.days.filter((one) => one.out).map((one) => [m + 1, one.day]))).toEqual([
    [2, 29],
    [10, 1],
  ])
})
