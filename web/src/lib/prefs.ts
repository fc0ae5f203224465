import { useSyncExternalStore } from 'react'

export type Lang = 'zh' | 'en'
export type Theme = 'light' | 'dark' | 'system'
export type ZoneChoice = 'local' | 'utc' | 'job'

export interface Prefs {
  lang: Lang
  theme: Theme
  zone: ZoneChoice
  namespace: string
}

const storageKey = 'ax.prefs'

function first(): Prefs {
  const defaults: Prefs = {
    lang: navigator.language.toLowerCase().startsWith('zh') ? 'zh' : 'en',
    theme: 'system',
    // On pages about one job its own clock, elsewhere local time.
    zone: 'job',
    namespace: '',
  }
  try {
    return { ...defaults, ...(JSON.parse(localStorage.getItem(storageKey) ?? '{}') as Partial<Prefs>) }
  } catch {
    return defaults
  }
}

let prefs = first()
const listeners = new Set<() => void>()

export function getPrefs(): Prefs {
  return prefs
}

export function setPrefs(change: Partial<Prefs>): void {
  prefs = { ...prefs, ...change }
  try {
    localStorage.setItem(storageKey, JSON.stringify(prefs))
  } catch {
    // Storage may be full or forbidden; the choice then lasts for this page only.
  }
  for (const listener of listeners) listener()
}

function subscribe(listener: () => void): () => void {
  listeners.add(listener)
  return () => listeners.delete(listener)
}

export function usePrefs(): Prefs {
  return useSyncExternalStore(subscribe, getPrefs)
}

const darkQuery = '(prefers-color-scheme: dark)'

function subscribeDark(listener: () => void): () => void {
  const query = window.matchMedia?.(darkQuery)
  query?.addEventListener('change', listener)
  return () => query?.removeEventListener('change', listener)
}

export function useDark(): boolean {
  const { theme } = usePrefs()
  const system = useSyncExternalStore(subscribeDark, () => window.matchMedia?.(darkQuery).matches ?? false)
  return theme === 'dark' || (theme === 'system' && system)
}
