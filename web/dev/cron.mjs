// Enough of cron for the mock server: numbers, names, lists, ranges, steps, ?, L as the
// day. It walks the minutes of a zone's clock. The real evaluator is the server's.

const months = ['JAN', 'FEB', 'MAR', 'APR', 'MAY', 'JUN', 'JUL', 'AUG', 'SEP', 'OCT', 'NOV', 'DEC']
const days = ['SUN', 'MON', 'TUE', 'WED', 'THU', 'FRI', 'SAT']
const fields = [
  { en: 'second', zh: '秒', min: 0, max: 59 },
  { en: 'minute', zh: '分钟', min: 0, max: 59 },
  { en: 'hour', zh: '小时', min: 0, max: 23 },
  { en: 'day-of-month', zh: '日', min: 1, max: 31 },
  { en: 'month', zh: '月', min: 1, max: 12, names: months, base: 1 },
  { en: 'weekday', zh: '周', min: 1, max: 7, names: days, base: 1 },
]

export class Refused extends Error {
  constructor(code, token, en, zh, suggestion = '') {
    super(en)
    this.invalid = { code, token, message: { en, zh }, suggestion }
  }
}

function set(text, field) {
  const out = new Set()
  for (const part of text.split(',')) {
    const [range = '', stepText] = part.split('/')
    const step = stepText === undefined ? 1 : Number(stepText)
    const value = (token) => {
      const named = field.names?.indexOf(token.toUpperCase()) ?? -1
      const n = named >= 0 ? named + field.base : Number(token)
      if (!Number.isInteger(n) || n < field.min || n > field.max) {
        throw new Refused(
          'out_of_range',
          token,
          `${field.en}: ${token} is out of range ${field.min}-${field.max}.`,
          `${field.zh}：${token} 超出范围 ${field.min}-${field.max}。`,
        )
      }
      return n
    }
    let from = field.min
    let to = field.max
    if (range !== '*' && range !== '?') {
      const [a = '', b] = range.split('-')
      from = value(a)
      to = b === undefined ? (stepText === undefined ? from : field.max) : value(b)
    }
    for (let n = from; n <= to; n += step) out.add(n)
  }
  return out
}

export function parse(trigger) {
  let text = (trigger.expr ?? '').trim()
  const wide = [...text].indexOf('？')
  if (wide >= 0) {
    throw new Refused(
      'full_width',
      '？',
      `character ${wide + 1} is a full-width question mark (U+FF1F); use ?.`,
      `第 ${wide + 1} 个字符是全角问号（U+FF1F），请改用半角 ?。`,
      text.replaceAll('？', '?'),
    )
  }
  if (text === '@daily') text = '0 0 0 * * ?'
  if (text === '@hourly') text = '0 0 * * * ?'
  let parts = text.split(/\s+/)
  if (trigger.dialect === 'unix' && parts.length === 5) {
    const shift = (day) => (/^\d+$/.test(day) ? String((Number(day) % 7) + 1) : day)
    const weekday = parts[4].split('-').map(shift).join('-')
    parts = ['0', ...parts.slice(0, 4), weekday]
  }
  if (parts.length === 5) {
    const [minute, hour, day, month, weekday] = parts
    const quartz = `0 ${minute} ${hour} ${day} ${month} ${weekday === '*' ? '?' : weekday}`
    throw new Refused(
      'five_fields',
      text,
      `5 fields look like a Unix crontab. In Quartz form: \`${quartz}\`; or choose dialect Unix.`,
      `5 个字段是 Unix crontab 写法。Quartz 写法为 \`${quartz}\`，或将方言选为 Unix。`,
      quartz,
    )
  }
  if (parts.length < 6 || parts.length > 7) {
    throw new Refused(
      'field_count',
      text,
      `6 or 7 fields are needed (second minute hour day month weekday [year]); got ${parts.length}.`,
      `需要 6 或 7 个字段（秒 分 时 日 月 周 [年]），当前为 ${parts.length} 个。`,
    )
  }
  const lastDay = parts[3] === 'L'
  const sets = fields.map((field, i) => (i === 3 && lastDay ? new Set([0]) : set(parts[i], field)))
  return { sets, lastDay, text }
}

export function offsetOf(at, zone) {
  const parts = {}
  for (const { type, value } of new Intl.DateTimeFormat('en-US', {
    timeZone: zone,
    hourCycle: 'h23',
    year: 'numeric',
    month: 'numeric',
    day: 'numeric',
    hour: 'numeric',
    minute: 'numeric',
    second: 'numeric',
  }).formatToParts(at)) {
    parts[type] = Number(value)
  }
  return (
    Date.UTC(parts.year, parts.month - 1, parts.day, parts.hour, parts.minute, parts.second) -
    Math.floor(at / 1000) * 1000
  )
}

export function inZone(at, zone) {
  const offset = offsetOf(at, zone)
  const size = Math.abs(offset) / 60_000
  const two = (n) => String(n).padStart(2, '0')
  const wall = new Date(at + offset).toISOString().slice(0, 19)
  return `${wall}${offset < 0 ? '-' : '+'}${two(Math.floor(size / 60))}:${two(size % 60)}`
}

export function fires(trigger, from, count) {
  const out = []
  const zone = trigger.zone || 'UTC'
  try {
    offsetOf(from, zone)
  } catch {
    throw Object.assign(
      new Refused(
        'unknown_zone',
        zone,
        `Unknown time zone ${zone}. Did you mean Asia/Shanghai?`,
        `未知时区 ${zone}，是否为 Asia/Shanghai？`,
        'Asia/Shanghai',
      ),
      { field: 'zone' },
    )
  }
  const { sets, lastDay } = parse(trigger)
  const [seconds, minutes, hours, monthDays, monthSet, weekdays] = sets
  const secondList = [...seconds].sort((a, b) => a - b)
  let minute = Math.floor(from / 60_000) * 60_000
  for (let step = 0; out.length < count && step < 400_000; step++) {
    const offset = offsetOf(minute, zone)
    const wall = new Date(minute + offset)
    const day = wall.getUTCDate()
    const last = new Date(Date.UTC(wall.getUTCFullYear(), wall.getUTCMonth() + 1, 0)).getUTCDate()
    const dayFits =
      monthSet.has(wall.getUTCMonth() + 1) &&
      (lastDay ? day === last : monthDays.has(day)) &&
      weekdays.has(wall.getUTCDay() + 1)
    if (!dayFits) {
      // Midnight of the next day, give or take a clock change.
      minute += Math.max(60_000, 86_400_000 - ((minute + offset) % 86_400_000) - 7_200_000)
      continue
    }
    if (hours.has(wall.getUTCHours()) && minutes.has(wall.getUTCMinutes())) {
      for (const second of secondList) {
        const at = minute + second * 1000
        if (at > from && out.length < count) out.push(at)
      }
    }
    minute += 60_000
  }
  if (out.length === 0) {
    throw new Refused('never_fires', trigger.expr, 'This schedule never fires.', '该表达式永远不会触发。')
  }
  return out.map((at) => ({ at: inZone(at, zone), instant: at }))
}

export function spanMillis(text) {
  let total = 0
  let rest = String(text ?? '')
  const units = { ms: 1, s: 1000, m: 60_000, h: 3_600_000 }
  while (rest) {
    const match = /^(\d+(?:\.\d+)?)(ms|s|m|h)/.exec(rest)
    if (!match) {
      throw Object.assign(
        new Refused(
          'bad_span',
          text,
          `${text || '(empty)'} is not a span such as 30s, 5m or 1h30m.`,
          `${text || '（空）'} 不是时长，请写成 30s、5m 或 1h30m。`,
          '5m',
        ),
        { field: 'every' },
      )
    }
    total += Number(match[1]) * units[match[2]]
    rest = rest.slice(match[0].length)
  }
  if (total <= 0) {
    throw Object.assign(new Refused('bad_span', text, 'A span above zero is needed.', '需要大于零的时长。', '5m'), {
      field: 'every',
    })
  }
  return total
}
