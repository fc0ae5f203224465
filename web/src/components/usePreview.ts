import { useQuery } from '@tanstack/react-query'
import { useEffect, useState } from 'react'
import { api, must, Refused } from '../api/client'
import type { Invalid, Preview, Trigger } from '../api/types'
import { useNamespace } from '../shell/namespace'

export interface PreviewState {
  preview: Preview | undefined
  // What the server refuses, with paths such as triggers[0].expr.
  errors: Invalid[]
  // A failure that is not about the values.
  failure: Error | null
  waiting: boolean
}

export function useDebounced<T>(value: T, ms: number): T {
  const [settled, setSettled] = useState(value)
  useEffect(() => {
    const timer = setTimeout(() => setSettled(value), ms)
    return () => clearTimeout(timer)
  }, [value, ms])
  return settled
}

// usePreview asks the server for the next firings, 250 ms after the last keystroke.
export function usePreview(triggers: Trigger[], count = 10): PreviewState {
  const namespace = useNamespace()
  const body = JSON.stringify(triggers)
  const settled = useDebounced(body, 250)
  const query = useQuery({
    queryKey: [namespace, 'preview', settled, count],
    queryFn: ({ signal }) =>
      must(
        api.POST('/api/v1/namespaces/{namespace}/schedule/preview', {
          params: { path: { namespace } },
          body: { triggers: JSON.parse(settled) as Trigger[], count },
          signal,
        }),
      ),
    enabled: settled !== '[]',
    staleTime: 10_000,
  })
  const refused = query.error instanceof Refused && query.error.errors.length > 0
  return {
    preview: settled === '[]' ? undefined : query.data,
    errors: refused ? (query.error as Refused).errors : [],
    failure: refused ? null : query.error,
    waiting: body !== settled || query.isFetching,
  }
}
