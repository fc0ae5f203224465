import type { Fire } from '../api/types'
import { useT, useText } from '../i18n/useText'
import { usePrefs } from '../lib/prefs'
import { splitOffset, wallTime, weekdayName } from '../lib/time'
import { useZone } from './Time'

// Fires lists firings as the server computed them: on the clock of their own schedule, or on the one that the reader chose
// for all times.
export function Fires({ fires, several }: { fires: Fire[]; several: boolean }) {
  const t = useT()
  const text = useText()
  const { lang, zone } = usePrefs()
  const chosen = useZone()
  return (
    <ol className="fires">
      {fires.map((fire, index) => {
        const wall = zone === 'job' ? splitOffset(fire.at) : wallTime(fire.at, chosen)
        return (
          // biome-ignore lint/suspicious/noArrayIndexKey: two triggers may fire at one moment
          <li key={`${fire.at}-${fire.trigger}-${index}`} data-fire={fire.at}>
            {wall ? (
              <time dateTime={fire.at} title={fire.at}>
                {weekdayName(wall.weekday, lang)} {wall.date} {wall.time} <span className="offset">{wall.offset}</span>
              </time>
            ) : (
              fire.at
            )}
            {several && <span className="muted"> · {t('form.previewTrigger', { no: fire.trigger })}</span>}
            {fire.note && <p className="note">{text(fire.note)}</p>}
          </li>
        )
      })}
    </ol>
  )
}
