import DownloadOutlined from '@ant-design/icons/DownloadOutlined'
import { App, Button, Checkbox } from 'antd'
import { useEffect, useLayoutEffect, useRef, useState } from 'react'
import { refusedOf } from '../api/client'
import { outputPage, type ReadState, readOutput } from '../api/output'
import { useT } from '../i18n/useText'
import { download } from '../lib/download'
import { LogBuffer, windowOf } from '../lib/log'
import { ErrorBox } from './basics'

export const lineHeight = 20
// However fast lines come, the page draws at most ten times a second.
const drawEveryMs = 100

export function LogView({
  namespace,
  executionId,
  onProgress,
  onEnd,
}: {
  namespace: string
  executionId: string
  onProgress?: (progress: number) => void
  onEnd?: () => void
}) {
  const t = useT()
  const { message } = App.useApp()
  const buffer = useRef(new LogBuffer())
  const [, draw] = useState(0)
  const [state, setState] = useState<ReadState>('reading')
  const [failure, setFailure] = useState<unknown>(null)
  const [attempt, setAttempt] = useState(0)
  const [follow, setFollow] = useState(true)
  const [seen, setSeen] = useState(0)
  const [errorsOnly, setErrorsOnly] = useState(false)
  const [mark, setMark] = useState(-1)
  const [scroll, setScroll] = useState({ top: 0, height: 380 })
  const view = useRef<HTMLDivElement>(null)
  const callbacks = useRef({ onProgress, onEnd })
  callbacks.current = { onProgress, onEnd }

  // biome-ignore lint/correctness/useExhaustiveDependencies: attempt starts the reading again
  useEffect(() => {
    const stop = new AbortController()
    buffer.current = new LogBuffer()
    setFailure(null)
    setFollow(true)
    setMark(-1)
    let timer: ReturnType<typeof setTimeout> | undefined
    const later = () => {
      timer ??= setTimeout(() => {
        timer = undefined
        draw((n) => n + 1)
      }, drawEveryMs)
    }
    readOutput(
      namespace,
      executionId,
      {
        onText: (text) => {
          buffer.current.append(text)
          later()
        },
        onState: setState,
        onProgress: (progress) => callbacks.current.onProgress?.(progress),
        onEnd: () => callbacks.current.onEnd?.(),
      },
      stop.signal,
    ).catch((error: unknown) => setFailure(error))
    return () => {
      stop.abort()
      clearTimeout(timer)
    }
  }, [namespace, executionId, attempt])

  const { lines, errors } = buffer.current
  const total = errorsOnly ? errors.length : lines.length
  const { first, last } = windowOf(total, scroll.top, scroll.height, lineHeight)

  useLayoutEffect(() => {
    if (follow && view.current) view.current.scrollTop = total * lineHeight
    if (follow) setSeen(total)
  }, [follow, total])

  function onScroll() {
    const element = view.current
    if (!element) return
    const atEnd = element.scrollHeight - element.scrollTop - element.clientHeight < lineHeight * 1.5
    // Scrolling up stops following; coming back to the end takes it up again.
    if (element.scrollTop < scroll.top && !atEnd) setFollow(false)
    else if (atEnd) setFollow(true)
    setScroll({ top: element.scrollTop, height: element.clientHeight || 380 })
  }

  function nextError() {
    const next = errors.find((line) => line > mark) ?? errors[0]
    if (next === undefined) return
    setErrorsOnly(false)
    setFollow(false)
    setMark(next)
    requestAnimationFrame(() => view.current?.scrollTo(0, Math.max(0, (next - 5) * lineHeight)))
  }

  async function save() {
    try {
      const parts: string[] = []
      for (let offset = 0; ; ) {
        const page = await outputPage(namespace, executionId, offset)
        parts.push(page.text)
        if (page.end || page.nextOffset <= offset) break
        offset = page.nextOffset
      }
      download(`execution-${executionId}.log`, 'text/plain;charset=utf-8', ...parts)
    } catch (error) {
      message.error(refusedOf(error).message || t('error.unreachable'))
    }
  }

  if (failure) return <ErrorBox error={failure} retry={() => setAttempt((n) => n + 1)} />
  return (
    <div className="log">
      <div className="logbar">
        <span className="pair" role="status">
          <span
            className={`dot ${state === 'ended' ? 'paused' : state === 'reconnecting' ? 'reconnecting' : ''}`}
            aria-hidden="true"
          />
          {t(`log.${state}`)}
        </span>
        <span className="muted">{t('log.lines', { count: lines.length })}</span>
        <span className="grow" />
        <Checkbox checked={follow} onChange={(event) => setFollow(event.target.checked)}>
          {t('log.follow')}
        </Checkbox>
        <Checkbox checked={errorsOnly} onChange={(event) => setErrorsOnly(event.target.checked)}>
          {`${t('log.errorsOnly')} (${errors.length})`}
        </Checkbox>
        <Button size="small" disabled={errors.length === 0} onClick={nextError}>
          {t('log.nextError')}
        </Button>
        <Button size="small" icon={<DownloadOutlined />} onClick={() => void save()}>
          {t('log.download')}
        </Button>
      </div>
      <div className="logbody">
        <div
          className="logview"
          ref={view}
          onScroll={onScroll}
          // biome-ignore lint/a11y/noNoninteractiveTabindex: scrolled with the keyboard
          tabIndex={0}
          role="log"
          aria-live="off"
          aria-label={t('log.label')}
        >
          {total === 0 ? (
            <p className="muted" style={{ padding: '8px 16px' }}>
              {lines.length > 0
                ? t('log.noErrors')
                : state === 'ended'
                  ? t('log.empty')
                  : state === 'following'
                    ? t('log.waiting')
                    : t('log.reading')}
            </p>
          ) : (
            <div className="all" style={{ height: total * lineHeight }}>
              {Array.from({ length: Math.max(0, last - first) }, (_, i) => {
                const row = first + i
                const index = errorsOnly ? (errors[row] ?? 0) : row
                const line = lines[index] ?? ''
                const bad = errorsOnly || isErrorAt(errors, index)
                return (
                  <div
                    key={index}
                    className={`logline${bad ? ' error' : ''}${index === mark ? ' mark' : ''}`}
                    style={{ top: row * lineHeight }}
                  >
                    <span className="no">{index + 1}</span>
                    {line}
                  </div>
                )
              })}
            </div>
          )}
        </div>
        {!follow && total > seen && (
          <button type="button" className="more" onClick={() => setFollow(true)}>
            ↓ {t('log.newLines', { count: total - seen })}
          </button>
        )}
      </div>
    </div>
  )
}

function isErrorAt(errors: number[], line: number): boolean {
  let low = 0
  let high = errors.length - 1
  while (low <= high) {
    const middle = (low + high) >> 1
    const at = errors[middle] ?? 0
    if (at === line) return true
    if (at < line) low = middle + 1
    else high = middle - 1
  }
  return false
}
