// The signed-in person. The access token lives in this module's memory and nowhere
// else; a reload gets a new one for the refresh cookie, which scripts cannot read.
import { useSyncExternalStore } from 'react'
import { baseURL } from '../lib/base'
import { getPrefs } from '../lib/prefs'
import type { Session, User } from './types'

interface State {
  user: User | null
}

const hintKey = 'ax.session'
// Refresh this long before the token ends.
const headroomMs = 60_000

let state: State = { user: null }
let token = ''
let timer: ReturnType<typeof setTimeout> | undefined
let refreshing: Promise<boolean> | null = null
const listeners = new Set<() => void>()

function become(next: State): void {
  state = next
  for (const listener of listeners) listener()
}

export function onSession(listener: () => void): () => void {
  listeners.add(listener)
  return () => listeners.delete(listener)
}

export function useUser(): User | null {
  return useSyncExternalStore(onSession, () => state.user)
}

export function accessToken(): string {
  return token
}

export function signedIn(): boolean {
  return token !== ''
}

// The hint only says that there was a session in this browser; without it the first
// visit need not ask for a refresh that can not succeed.
function hint(on: boolean): void {
  try {
    if (on) localStorage.setItem(hintKey, '1')
    else localStorage.removeItem(hintKey)
  } catch {
    // Without storage every reload simply asks.
  }
}

function hinted(): boolean {
  try {
    return localStorage.getItem(hintKey) === '1'
  } catch {
    return true
  }
}

export function startSession(session: Session): void {
  token = session.accessToken
  hint(true)
  clearTimeout(timer)
  const wait = Math.max(5_000, session.expiresIn * 1000 - headroomMs)
  timer = setTimeout(() => void refresh(), Math.min(wait, 2_147_000_000))
  if (state.user?.id !== session.user.id) become({ user: session.user })
}

export function endSession(): void {
  token = ''
  clearTimeout(timer)
  hint(false)
  if (state.user) become({ user: null })
}

export function commonHeaders(): Record<string, string> {
  return {
    'Accept-Language': getPrefs().lang === 'zh' ? 'zh-CN' : 'en',
    'X-Requested-With': 'ax-console',
  }
}

async function post(path: string): Promise<Response> {
  return fetch(`${baseURL}/api/v1/auth/${path}`, {
    method: 'POST',
    credentials: 'same-origin',
    headers: commonHeaders(),
  })
}

// refresh gets a new access token. Callers at the same time share one request. False
// means that there is no session any more; a server that does not answer ends nothing.
export function refresh(): Promise<boolean> {
  refreshing ??= (async () => {
    try {
      const response = await post('refresh')
      if (response.ok) {
        startSession((await response.json()) as Session)
        return true
      }
      if (response.status === 401 || response.status === 403) endSession()
      return false
    } catch {
      clearTimeout(timer)
      if (token) timer = setTimeout(() => void refresh(), 5_000)
      return false
    } finally {
      refreshing = null
    }
  })()
  return refreshing
}

// resume takes up the session of an earlier visit. A server that is just restarting
// is asked again: it would be wrong to show the sign-in page for that.
export async function resume(): Promise<void> {
  for (let attempt = 0; attempt < 3 && hinted(); attempt++) {
    if (await refresh()) return
    await new Promise((resolve) => setTimeout(resolve, 400 * (attempt + 1)))
  }
}

export async function logout(): Promise<void> {
  try {
    await authorized(new Request(`${baseURL}/api/v1/auth/logout`, { method: 'POST' }))
  } finally {
    endSession()
  }
}

// authorized sends a request with the token, and once more after a refresh when the
// server says that the token is no longer good.
export async function authorized(request: Request): Promise<Response> {
  const send = (copy: Request) => {
    for (const [name, value] of Object.entries(commonHeaders())) copy.headers.set(name, value)
    if (token) copy.headers.set('Authorization', `Bearer ${token}`)
    return fetch(copy)
  }
  const again = request.clone()
  const used = token
  const response = await send(request)
  if (response.status !== 401 || !used) return response
  // Another call may have refreshed while this one was on its way.
  if (token !== used ? token !== '' : await refresh()) return send(again)
  return response
}
