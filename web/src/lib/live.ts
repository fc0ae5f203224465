// Whether what is on the page is fresh. One dot in the header shows it.
import { useSyncExternalStore } from 'react'

export type LiveState = 'live' | 'paused' | 'reconnecting'

let paused = false
let failed = false
let hidden = false
const listeners = new Set<() => void>()

function tell(): void {
  for (const listener of listeners) listener()
}

export function reached(ok: boolean): void {
  if (failed !== !ok) {
    failed = !ok
    tell()
  }
}

export function setPaused(value: boolean): void {
  paused = value
  tell()
}

function state(): LiveState {
  if (paused || hidden) return 'paused'
  return failed ? 'reconnecting' : 'live'
}

function subscribe(listener: () => void): () => void {
  listeners.add(listener)
  return () => listeners.delete(listener)
}

document.addEventListener('visibilitychange', () => {
  hidden = document.hidden
  tell()
})

export function useLive(): LiveState {
  return useSyncExternalStore(subscribe, state)
}

// useEvery is a refetch interval that stops while the person has paused the page.
export function useEvery(ms: number): number | false {
  const live = useLive()
  return live === 'paused' ? false : ms
}
