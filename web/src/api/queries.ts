import { queryOptions } from '@tanstack/react-query'
import { type BatchSearch, bounds, type JobSearch, type Window } from '../lib/search'
import { api, must, refusedOf } from './client'

// The keys start with the namespace, so that leaving one forgets nothing of another.

// unlessGone is an interval to ask again in that ends once the server has said that
// there is no such thing.
export function unlessGone<T>(every: number | false) {
  return ({ state }: { state: { data: T | undefined; error: Error | null } }) =>
    state.error && refusedOf(state.error).status === 404 ? false : every
}

export const meQuery = queryOptions({
  queryKey: ['me'],
  queryFn: () => must(api.GET('/api/v1/me')),
  staleTime: 60_000,
})

export const metaQuery = queryOptions({
  queryKey: ['meta'],
  queryFn: () => must(api.GET('/api/v1/meta')),
  staleTime: 300_000,
  // The clocks' alarm is in it.
  refetchInterval: 60_000,
})

export const systemQuery = queryOptions({
  queryKey: ['system'],
  queryFn: () => must(api.GET('/api/v1/system')),
})

export const usersQuery = queryOptions({
  queryKey: ['users'],
  queryFn: () => must(api.GET('/api/v1/users')),
})

export const membersQuery = (namespace: string) =>
  queryOptions({
    queryKey: [namespace, 'members'],
    queryFn: () => must(api.GET('/api/v1/namespaces/{namespace}/members', { params: { path: { namespace } } })),
  })

export const versionsPage = (namespace: string, id: string, before: number) =>
  must(
    api.GET('/api/v1/namespaces/{namespace}/jobs/{id}/versions', {
      params: { path: { namespace, id }, query: { before } },
    }),
  )

export const versionQuery = (namespace: string, id: string, version: number) =>
  queryOptions({
    queryKey: [namespace, 'version', id, version],
    queryFn: () =>
      must(
        api.GET('/api/v1/namespaces/{namespace}/jobs/{id}/versions/{version}', {
          params: { path: { namespace, id, version } },
        }),
      ),
  })

export const summaryQuery = (namespace: string) =>
  queryOptions({
    queryKey: [namespace, 'summary'],
    queryFn: () => must(api.GET('/api/v1/namespaces/{namespace}/summary', { params: { path: { namespace } } })),
  })

export const backlogQuery = (namespace: string) =>
  queryOptions({
    queryKey: [namespace, 'backlog'],
    queryFn: () => must(api.GET('/api/v1/namespaces/{namespace}/backlog', { params: { path: { namespace } } })),
  })

export const appsQuery = (namespace: string) =>
  queryOptions({
    queryKey: [namespace, 'apps'],
    queryFn: () => must(api.GET('/api/v1/namespaces/{namespace}/apps', { params: { path: { namespace } } })),
  })

export const calendarsQuery = (namespace: string) =>
  queryOptions({
    queryKey: [namespace, 'calendars'],
    queryFn: () =>
      must(
        api.GET('/api/v1/namespaces/{namespace}/calendars', {
          params: { path: { namespace }, query: { limit: 200 } },
        }),
      ),
  })

export const secretsQuery = (namespace: string) =>
  queryOptions({
    queryKey: [namespace, 'secrets'],
    queryFn: () =>
      must(
        api.GET('/api/v1/namespaces/{namespace}/secrets', { params: { path: { namespace }, query: { limit: 200 } } }),
      ),
  })

export const limitsQuery = (namespace: string) =>
  queryOptions({
    queryKey: [namespace, 'limits'],
    queryFn: () =>
      must(
        api.GET('/api/v1/namespaces/{namespace}/limits', { params: { path: { namespace }, query: { limit: 200 } } }),
      ),
  })

export const calendarDaysQuery = (namespace: string, name: string, year: number, version: number) =>
  queryOptions({
    queryKey: [namespace, 'calendars', name, year, version],
    queryFn: () =>
      must(
        api.GET('/api/v1/namespaces/{namespace}/calendars/{name}/days', {
          params: { path: { namespace, name }, query: { year } },
        }),
      ),
  })

export const executorsQuery = (namespace: string) =>
  queryOptions({
    queryKey: [namespace, 'executors'],
    queryFn: () => must(api.GET('/api/v1/namespaces/{namespace}/executors', { params: { path: { namespace } } })),
  })

export const stormsQuery = (namespace: string) =>
  queryOptions({
    queryKey: [namespace, 'storms'],
    queryFn: () => must(api.GET('/api/v1/namespaces/{namespace}/executors/storm', { params: { path: { namespace } } })),
  })

export const jobQuery = (namespace: string, id: string) =>
  queryOptions({
    queryKey: [namespace, 'job', id],
    queryFn: () => must(api.GET('/api/v1/namespaces/{namespace}/jobs/{id}', { params: { path: { namespace, id } } })),
  })

export const batchQuery = (namespace: string, batchId: string) =>
  queryOptions({
    queryKey: [namespace, 'batch', batchId],
    queryFn: () =>
      must(api.GET('/api/v1/namespaces/{namespace}/batches/{batchId}', { params: { path: { namespace, batchId } } })),
  })

export const executionQuery = (namespace: string, id: string) =>
  queryOptions({
    queryKey: [namespace, 'execution', id],
    queryFn: () =>
      must(api.GET('/api/v1/namespaces/{namespace}/executions/{id}', { params: { path: { namespace, id } } })),
  })

export interface Page<T> {
  items: T[]
  nextCursor?: string
}

export function jobsPage(namespace: string, search: JobSearch, cursor: string, limit = 50) {
  return must(
    api.GET('/api/v1/namespaces/{namespace}/jobs', {
      params: { path: { namespace }, query: { ...search, ...(cursor && { cursor }), limit } },
    }),
  )
}

export function batchesPage(
  namespace: string,
  search: Pick<BatchSearch, 'job' | 'state'>,
  window: { from?: string; to?: string },
  cursor: string,
  limit = 50,
) {
  const { job, state } = search
  return must(
    api.GET('/api/v1/namespaces/{namespace}/batches', {
      params: {
        path: { namespace },
        query: { ...(job && { job }), ...(state && { state }), ...window, ...(cursor && { cursor }), limit },
      },
    }),
  )
}

// latestBatches is a short list for a dashboard or a job's page: newest first.
export const latestBatches = (namespace: string, search: BatchSearch, limit: number) =>
  queryOptions({
    queryKey: [namespace, 'batches', 'latest', search, limit],
    queryFn: () => batchesPage(namespace, search, bounds(search, Date.now()), '', limit),
  })

export function auditPage(
  namespace: string,
  search: { actor?: string; action?: string; object?: string } & Window,
  window: { from?: string; to?: string },
  cursor: string,
  limit = 50,
) {
  const { actor, action, object } = search
  return must(
    api.GET('/api/v1/audit', {
      params: {
        query: {
          namespace,
          ...(actor && { actor }),
          ...(action && { action }),
          ...(object && { object }),
          ...window,
          ...(cursor && { cursor }),
          limit,
        },
      },
    }),
  )
}

export function delayedPage(
  namespace: string,
  search: { job?: string; key?: string; state?: string },
  cursor: string,
  limit = 50,
) {
  const { job, key, state } = search
  return must(
    api.GET('/api/v1/namespaces/{namespace}/delayed', {
      params: {
        path: { namespace },
        query: { ...(job && { job }), ...(key && { key }), ...(state && { state }), ...(cursor && { cursor }), limit },
      },
    }),
  )
}

// exportCap bounds how much one export holds in the browser.
export const exportCap = 10_000

// everyPage walks a keyset to its end or to the cap.
export async function everyPage<T>(
  page: (cursor: string) => Promise<Page<T>>,
): Promise<{ rows: T[]; capped: boolean }> {
  const rows: T[] = []
  let cursor = ''
  for (;;) {
    const got = await page(cursor)
    rows.push(...got.items)
    if (!got.nextCursor) return { rows, capped: false }
    if (rows.length >= exportCap) return { rows: rows.slice(0, exportCap), capped: true }
    cursor = got.nextCursor
  }
}
