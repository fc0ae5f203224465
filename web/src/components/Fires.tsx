import type { Fire } from '../api/types'
import { useT, useText } from '../i18n/useText'
import { usePrefs } from '../lib/prefs'
import { splitOffset, weekdayName } from '../lib/time'

// Fires lists firings as the server computed them, on the clock of their own schedule.
export function Fires({ fires, several }: { fires: Fire[]; several: boolean }) {
  const t = useT()
  const text = useText()
  const { lang } = usePrefs()
  return (
    <ol className="fires">
      {fires.map((fire, index) => {
        const wall = splitOffset(fire.at)
        return (
          // biome-ignore lint/suspicious/noArrayIndexKey: two triggers may fire at one moment
          <li key={`${fire.at}-${fire.trigger}-${index}`} data-fire={fire.at}>
            {wall ? (
              <time dateTime={fire.at}>
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
