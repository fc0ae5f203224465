import type { Execution } from '../api/types'
import { useT } from '../i18n/useText'
import { formatSpan } from '../lib/time'
import { lookOf, useStateWord } from './StatusTag'

const rowHeight = 22
const most = 60
const left = 74
const right = 64
const width = 900

// startOf is when the handler began. A very short run may be reported as ended only;
// how long it took is known then.
export function startOf(one: Pick<Execution, 'startedAt' | 'finishedAt' | 'durationMs'>): number | null {
  if (one.startedAt) return Date.parse(one.startedAt)
  return one.finishedAt && one.durationMs !== null ? Date.parse(one.finishedAt) - one.durationMs : null
}

// Gantt draws when each shard and attempt waited and ran. The table below it says the
// same in words.
export function Gantt({ executions, now }: { executions: Execution[]; now: number }) {
  const t = useT()
  const word = useStateWord()
  const rows = executions.slice(0, most)
  const spans = rows.map((one) => {
    // A retry waits from its own moment on, not from that of the batch.
    const due = Date.parse(one.attempt > 1 ? one.notBefore : one.dueAt)
    const end = one.finishedAt ? Date.parse(one.finishedAt) : now
    const start = startOf(one)
    return { one, due, start, end: Math.max(end, start ?? due) }
  })
  const from = Math.min(...spans.map((span) => span.due))
  const until = Math.max(...spans.map((span) => span.end), from + 1)
  const x = (at: number) => left + ((at - from) / (until - from)) * (width - left - right)
  const height = rows.length * rowHeight + 22
  const ticks = [0, 0.25, 0.5, 0.75, 1]
  return (
    <>
      {/* On a narrow screen it scrolls by itself, so it must be reachable with the keyboard. */}
      {/* biome-ignore lint/a11y/noNoninteractiveTabindex: scrollable region */}
      <section className="ganttwrap" tabIndex={0} aria-label={t('batch.timeline')}>
        <svg className="gantt" viewBox={`0 0 ${width} ${height}`} role="img" aria-label={t('batch.timeline')}>
          {ticks.map((part) => {
            const at = from + part * (until - from)
            return (
              <g key={part}>
                <line x1={x(at)} x2={x(at)} y1={0} y2={height - 18} />
                <text x={x(at)} y={height - 4} textAnchor="middle">
                  +{formatSpan(at - from)}
                </text>
              </g>
            )
          })}
          {spans.map(({ one, due, start, end }, row) => {
            const y = row * rowHeight + 4
            const waitEnd = start ?? end
            const span = formatSpan(start === null ? null : end - start)
            return (
              <g key={one.id}>
                <title>
                  {t('batch.timelineOf', {
                    shard: one.shard,
                    attempt: one.attempt,
                    state: word(one.state),
                    duration: span || '–',
                  })}
                </title>
                <text x={left - 10} y={y + 11} textAnchor="end">
                  {`${one.shard} · #${one.attempt}`}
                </text>
                <rect
                  className="wait"
                  x={x(due)}
                  y={y + 5}
                  width={Math.max(1, x(waitEnd) - x(due))}
                  height={4}
                  rx={2}
                />
                {start !== null && (
                  <rect
                    className={`bar-${lookOf(one.state).tone}`}
                    x={x(start)}
                    y={y}
                    width={Math.max(2, x(end) - x(start))}
                    height={14}
                    rx={3}
                  />
                )}
                {start !== null && (
                  <text x={Math.min(x(end) + 5, width - right + 5)} y={y + 11}>
                    {span}
                  </text>
                )}
              </g>
            )
          })}
        </svg>
      </section>
      {executions.length > most && (
        <p className="muted">{t('batch.timelineCapped', { count: most, total: executions.length })}</p>
      )}
    </>
  )
}
