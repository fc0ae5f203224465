// Every time the console shows says its offset, so that nobody has to guess whose
// clock it is. Zones come from the browser's own data; schedules are never computed
// here, only by the server.

export const localZone = Intl.DateTimeFormat().resolvedOptions().timeZone || 'UTC'

const formats = new Map<string, Intl.DateTimeFormat>()

function formatIn(zone: string): Intl.DateTimeFormat {
  let format = formats.get(zone)
  if (!format) {
    const options: Intl.DateTimeFormatOptions = {
      timeZone: zone,
      hourCycle: 'h23',
      year: 'numeric',
      month: '2-digit',
      day: '2-digit',
      hour: '2-digit',
      minute: '2-digit',
      second: '2-digit',
    }
    try {
      format = new Intl.DateTimeFormat('en-US', options)
    } catch {
      // A zone that this browser does not know yet: UTC, and the offset says so.
      format = new Intl.DateTimeFormat('en-US', { ...options, timeZone: 'UTC' })
    }
    formats.set(zone, format)
  }
  return format
}

export interface WallTime {
  date: string
  time: string
  millis: string
  offset: string
  // 0 is Sunday.
  weekday: number
}

const two = (n: number) => String(n).padStart(2, '0')

export function offsetText(minutes: number): string {
  const size = Math.abs(minutes)
  return `${minutes < 0 ? '-' : '+'}${two(Math.floor(size / 60))}:${two(size % 60)}`
}

// wallTime reads an instant on the clock of a zone.
export function wallTime(at: string | number | Date, zone: string): WallTime | null {
  const instant = new Date(at).getTime()
  if (!Number.isFinite(instant)) return null
  const parts: Record<string, number> = {}
  for (const part of formatIn(zone).formatToParts(instant)) parts[part.type] = Number(part.value)
  const { year = 0, month = 1, day = 1, hour = 0, minute = 0, second = 0 } = parts
  const asUTC = Date.UTC(year, month - 1, day, hour, minute, second)
  return {
    date: `${String(year).padStart(4, '0')}-${two(month)}-${two(day)}`,
    time: `${two(hour)}:${two(minute)}:${two(second)}`,
    millis: String(((instant % 1000) + 1000) % 1000).padStart(3, '0'),
    offset: offsetText(Math.round((asUTC - Math.floor(instant / 1000) * 1000) / 60000)),
    weekday: new Date(asUTC).getUTCDay(),
  }
}

// formatTime is the text form, as exports and titles need it.
export function formatTime(at: string | number | Date | null | undefined, zone: string): string {
  if (at === null || at === undefined || at === '') return ''
  const wall = wallTime(at, zone)
  return wall ? `${wall.date} ${wall.time} ${wall.offset}` : ''
}

// splitOffset takes an RFC 3339 time as the server wrote it, with the offset of the
// schedule's own zone, apart without moving it to another clock.
export function splitOffset(at: string): WallTime | null {
  const match = /^(\d{4}-\d{2}-\d{2})T(\d{2}:\d{2}:\d{2})(?:\.(\d+))?(Z|[+-]\d{2}:\d{2})$/.exec(at)
  if (!match) return null
  const [, date = '', time = '', fraction = '', offset = ''] = match
  return {
    date,
    time,
    millis: fraction.slice(0, 3).padEnd(3, '0'),
    offset: offset === 'Z' ? '+00:00' : offset,
    weekday: new Date(`${date}T00:00:00Z`).getUTCDay(),
  }
}

export function weekdayName(weekday: number, lang: string): string {
  // 4 January 1970 was a Sunday.
  const sunday = Date.UTC(1970, 0, 4)
  return new Intl.DateTimeFormat(lang === 'zh' ? 'zh-CN' : 'en', { weekday: 'short', timeZone: 'UTC' }).format(
    sunday + weekday * 86_400_000,
  )
}

// relative says how far away an instant is, in the coarsest unit that still tells something.
export function relative(at: string | number | Date, now: number, lang: string): string {
  const seconds = (new Date(at).getTime() - now) / 1000
  const format = new Intl.RelativeTimeFormat(lang === 'zh' ? 'zh-CN' : 'en', { numeric: 'always', style: 'short' })
  const size = Math.abs(seconds)
  if (size < 90) return format.format(Math.round(seconds), 'second')
  if (size < 5400) return format.format(Math.round(seconds / 60), 'minute')
  if (size < 129_600) return format.format(Math.round(seconds / 3600), 'hour')
  return format.format(Math.round(seconds / 86_400), 'day')
}

// formatSpan writes milliseconds for people: 850 ms, 1.2 s, 3 m 05 s, 2 h 03 m.
export function formatSpan(ms: number | null | undefined): string {
  if (ms === null || ms === undefined) return ''
  const size = Math.max(0, ms)
  if (size < 1000) return `${Math.round(size)} ms`
  if (size < 59_950) return `${(size / 1000).toFixed(1)} s`
  const seconds = Math.round(size / 1000)
  if (seconds < 3600) return `${Math.floor(seconds / 60)} m ${two(seconds % 60)} s`
  if (seconds < 86_400) return `${Math.floor(seconds / 3600)} h ${two(Math.floor((seconds % 3600) / 60))} m`
  return `${Math.floor(seconds / 86_400)} d ${Math.floor((seconds % 86_400) / 3600)} h`
}

export function formatBytes(bytes: number): string {
  if (bytes < 1024) return `${bytes} B`
  if (bytes < 1024 * 1024) return `${(bytes / 1024).toFixed(1)} KiB`
  return `${(bytes / 1024 / 1024).toFixed(1)} MiB`
}

export function zoneNames(): string[] {
  return ['UTC', ...Intl.supportedValuesOf('timeZone')]
}

// toLocalInput is the value of a datetime-local field for an instant on a zone's clock.
export function toLocalInput(at: string, zone: string): string {
  const wall = wallTime(at, zone)
  return wall ? `${wall.date}T${wall.time.slice(0, 5)}` : ''
}

// fromLocalInput is the instant that a datetime-local value means on a zone's clock.
// In the hour that a clock change repeats it is the first pass.
export function fromLocalInput(value: string, zone: string): string | null {
  const asUTC = Date.parse(`${value}Z`)
  if (!Number.isFinite(asUTC)) return null
  const offsetAt = (instant: number) => {
    const wall = wallTime(instant, zone)
    return wall ? Date.parse(`${wall.date}T${wall.time}Z`) - instant : 0
  }
  const earlier = asUTC - offsetAt(asUTC - 86_400_000)
  const instant = earlier + offsetAt(earlier) === asUTC ? earlier : asUTC - offsetAt(asUTC)
  return new Date(instant).toISOString()
}
