import createClient from 'openapi-fetch'
import { baseURL } from '../lib/base'
import { reached } from '../lib/live'
import type { paths } from './schema'
import { authorized } from './session'
import type { Invalid, Problem } from './types'

// Refused is what the server said no with. status 0 means that it did not answer.
export class Refused extends Error {
  readonly status: number
  readonly code: string
  readonly requestId: string
  readonly errors: Invalid[]
  readonly retryAfter: string

  constructor(status: number, problem: Partial<Problem>, retryAfter = '') {
    super(problem.detail || problem.title || (status ? `HTTP ${status}` : ''))
    this.name = 'Refused'
    this.status = status
    this.code = problem.code ?? ''
    this.requestId = problem.requestId ?? ''
    this.errors = problem.errors ?? []
    this.retryAfter = retryAfter
  }
}

export const api = createClient<paths>({
  baseUrl: baseURL,
  fetch: async (request) => {
    try {
      const response = await authorized(request)
      reached(response.status < 502 || response.status > 504)
      return response
    } catch (error) {
      if (!(error instanceof DOMException && error.name === 'AbortError')) reached(false)
      throw error
    }
  },
})

interface Answer<T> {
  data?: T
  error?: unknown
  response: Response
}

function problemOf(error: unknown): Partial<Problem> {
  if (error && typeof error === 'object') return error as Partial<Problem>
  return typeof error === 'string' && error.length < 200 ? { detail: error } : {}
}

// must waits for an answer and returns its body, or throws Refused.
export async function must<T>(answer: Promise<Answer<T>>): Promise<T> {
  let got: Answer<T>
  try {
    got = await answer
  } catch (error) {
    if (error instanceof DOMException && error.name === 'AbortError') throw error
    throw new Refused(0, { detail: error instanceof Error ? error.message : '' })
  }
  if (!got.response.ok) {
    throw new Refused(got.response.status, problemOf(got.error), got.response.headers.get('Retry-After') ?? '')
  }
  return got.data as T
}

export function refusedOf(error: unknown): Refused {
  if (error instanceof Refused) return error
  return new Refused(0, { detail: error instanceof Error ? error.message : String(error) })
}
