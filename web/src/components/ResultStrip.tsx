import { Link } from '@tanstack/react-router'
import type { Job } from '../api/types'
import { useT } from '../i18n/useText'
import { formatTime } from '../lib/time'
import { useNamespace } from '../shell/namespace'
import { lookOf, useStateWord } from './StatusTag'
import { useZone } from './Time'

// ResultStrip draws the last results, oldest first; height and colour both tell them apart.
export function ResultStrip({ batches }: { batches: Job['lastBatches'] | null | undefined }) {
  const t = useT()
  const word = useStateWord()
  const zone = useZone()
  const ns = useNamespace()
  if (!batches || batches.length === 0) return <span className="muted">{t('jobs.never')}</span>
  return (
    <span className="strip">
      {batches
        .slice(0, 20)
        .reverse()
        .map((batch) => {
          const text = t('jobs.resultOf', { state: word(batch.state), at: formatTime(batch.dueAt, zone) })
          return (
            <Link
              key={batch.batchId}
              to="/ns/$ns/executions/$batchId"
              params={{ ns, batchId: batch.batchId }}
              className={`tone-${lookOf(batch.state).tone}`}
              title={text}
              aria-label={text}
              preload={false}
            />
          )
        })}
    </span>
  )
}
