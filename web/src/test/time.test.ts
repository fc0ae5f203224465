import { expect, test } from 'vitest'
import { csvCell, toCSV } from '../lib/download'
import { formatSpan, formatTime, fromLocalInput, splitOffset, toLocalInput, wallTime, weekdayName } from '../lib/time'

test('every time says its offset', () => {
  const at = '2026-11-30T08:00:05.120Z'
  expect(formatTime(at, 'Asia/Shanghai')).toBe('2026-11-30 16:00:05 +08:00')
  expect(formatTime(at, 'UTC')).toBe('2026-11-30 08:00:05 +00:00')
  expect(formatTime(at, 'Asia/Kolkata')).toBe('2026-11-30 13:30:05 +05:30')
  expect(formatTime(at, 'America/St_Johns')).toBe('2026-11-30 04:30:05 -03:30')
  expect(wallTime(at, 'UTC')?.millis).toBe('120')
  expect(formatTime(null, 'UTC')).toBe('')
})

test('the offset follows the clock change', () => {
  expect(formatTime('2026-03-08T06:59:59Z', 'America/New_York')).toBe('2026-03-08 01:59:59 -05:00')
  expect(formatTime('2026-03-08T07:00:00Z', 'America/New_York')).toBe('2026-03-08 03:00:00 -04:00')
})

test('midnight is 00, not 24', () => {
  expect(formatTime('2026-11-30T16:00:00Z', 'Asia/Shanghai')).toBe('2026-12-01 00:00:00 +08:00')
})

test('a zone the browser does not know is shown as UTC, and says so', () => {
  expect(formatTime('2026-11-30T08:00:00Z', 'Mars/Olympus')).toBe('2026-11-30 08:00:00 +00:00')
})

test('a firing stays on the clock that the server wrote', () => {
  const wall = splitOffset('2026-11-30T23:30:00-05:00')
  expect(wall).toMatchObject({ date: '2026-11-30', time: '23:30:00', offset: '-05:00', weekday: 1 })
  expect(splitOffset('2026-12-01T00:00:00Z')?.offset).toBe('+00:00')
  expect(splitOffset('soon')).toBeNull()
  expect(weekdayName(1, 'en')).toBe('Mon')
  expect(weekdayName(3, 'zh')).toBe('周三')
})

test('what a person picks is on the clock of the chosen zone', () => {
  expect(fromLocalInput('2026-11-30T16:00', 'Asia/Shanghai')).toBe('2026-11-30T08:00:00.000Z')
  expect(toLocalInput('2026-11-30T08:00:00Z', 'Asia/Shanghai')).toBe('2026-11-30T16:00')
  // The repeated hour: the first pass.
  expect(fromLocalInput('2026-11-01T01:30', 'America/New_York')).toBe('2026-11-01T05:30:00.000Z')
  expect(fromLocalInput('2026-03-08T12:00', 'America/New_York')).toBe('2026-03-08T16:00:00.000Z')
  expect(fromLocalInput('', 'UTC')).toBeNull()
})

test('spans read well', () => {
  expect([0, 850, 1200, 59_940, 59_960, 185_000, 7_380_000, 90_000_000].map(formatSpan)).toEqual([
    '0 ms',
    '850 ms',
    '1.2 s',
    '59.9 s',
    '1 m 00 s',
    '3 m 05 s',
    '2 h 03 m',
    '1 d 1 h',
  ])
})

test('a spreadsheet runs nothing of what is exported', () => {
  expect(csvCell('=HYPERLINK("x")')).toBe('"\'=HYPERLINK(""x"")"')
  expect(csvCell('@cmd')).toBe("'@cmd")
  expect(csvCell(-5)).toBe('-5')
  expect(toCSV(['a', 'b'], [['x,y', null]])).toBe('a,b\r\n"x,y",')
})
