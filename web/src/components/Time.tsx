import { createContext, type ReactNode, useContext } from 'react'
import { usePrefs } from '../lib/prefs'
import { localZone, relative, wallTime } from '../lib/time'

const JobZone = createContext<string | undefined>(undefined)

// JobZoneProvider names the zone of the one job a page is about. Pages about several
// jobs have none: there "job's zone" means local time, so that no page mixes clocks.
export function JobZoneProvider({ zone, children }: { zone: string | undefined; children: ReactNode }) {
  return <JobZone.Provider value={zone}>{children}</JobZone.Provider>
}

export function useZone(): string {
  const { zone } = usePrefs()
  const jobZone = useContext(JobZone)
  if (zone === 'utc') return 'UTC'
  return (zone === 'job' && jobZone) || localZone
}

export function Time({ at, millis = false }: { at: string | null | undefined; millis?: boolean }) {
  const zone = useZone()
  const { lang } = usePrefs()
  const wall = at ? wallTime(at, zone) : null
  if (!at || !wall) return <span className="muted">–</span>
  return (
    <time dateTime={at} title={`${relative(at, Date.now(), lang)} · ${zone}`}>
      {wall.date} {wall.time}
      {millis && `.${wall.millis}`} <span className="offset">{wall.offset}</span>
    </time>
  )
}
