import type { Calendar } from '../api/types'

// CalendarForm is a calendar as text: one entry a line, its two ends with a blank between.
export interface CalendarForm {
  zone: string
  dates: string
  ranges: string
  weekdays: string
  times: string
  periods: string
}

interface Ends {
  from: string
  to: string
}

const lines = (text: string) =>
  text
    .split('\n')
    .map((line) => line.trim())
    .filter(Boolean)

const words = (text: string) => text.split(/[\s,]+/).filter(Boolean)

const pair = (line: string): Ends => {
  const [from = '', to = from] = words(line)
  return { from, to }
}

const unpair = (list: Ends[] | null | undefined) => (list ?? []).map((one) => `${one.from} ${one.to}`).join('\n')

export function formOf(calendar: Partial<Calendar>): CalendarForm {
  return {
    zone: calendar.zone ?? '',
    dates: (calendar.dates ?? []).join('\n'),
    ranges: unpair(calendar.ranges),
    weekdays: (calendar.weekdays ?? []).join(' '),
    times: unpair(calendar.times),
    periods: unpair(calendar.periods),
  }
}

export function bodyOf(form: CalendarForm) {
  return {
    zone: form.zone.trim(),
    dates: words(form.dates),
    ranges: lines(form.ranges).map(pair),
    weekdays: words(form.weekdays.toUpperCase()),
    times: lines(form.times).map(pair),
    periods: lines(form.periods).map(pair),
  }
}

// months are the days of a year by month, each with whether it is left out; the first may stand at any weekday.
export function months(year: number, days: string[]): { first: number; days: { day: number; out: boolean }[] }[] {
  const out = new Set(days)
  return Array.from({ length: 12 }, (_, month) => ({
    first: (new Date(Date.UTC(year, month, 1)).getUTCDay() + 6) % 7,
    days: Array.from({ length: new Date(Date.UTC(year, month + 1, 0)).getUTCDate() }, (_, i) => ({
      day: i + 1,
      out: out.has(`${year}-${String(month + 1).padStart(2, '0')}-${String(i + 1).padStart(2, '0')}`),
    })),
  }))
}
