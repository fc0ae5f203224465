import { useInfiniteQuery, useQuery, useQueryClient } from '@tanstack/react-query'
import { useMemo } from 'react'
import { batchesPage } from '../api/queries'
import { useEvery } from '../lib/live'
import { type BatchSearch, bounds } from '../lib/search'

// useBatchList keeps a list of batches fresh without moving it. Rows that are shown
// change in place; rows that came since are counted and wait until they are asked for.
export function useBatchList(ns: string, search: BatchSearch) {
  const client = useQueryClient()
  const every = useEvery(4_000)
  const key = useMemo(() => [ns, 'batches', 'list', search] as const, [ns, search])

  const list = useInfiniteQuery({
    queryKey: key,
    // The window's start is fixed by the first page, so that the pages after it fit.
    queryFn: async ({ pageParam }) => {
      const window = pageParam.window ?? bounds(search, Date.now())
      return { ...(await batchesPage(ns, search, window, pageParam.cursor)), window }
    },
    initialPageParam: { cursor: '', window: undefined as { from?: string; to?: string } | undefined },
    getNextPageParam: (last) => (last.nextCursor ? { cursor: last.nextCursor, window: last.window } : undefined),
    staleTime: Number.POSITIVE_INFINITY,
    gcTime: 0,
    refetchOnWindowFocus: false,
  })

  const head = useQuery({
    queryKey: [ns, 'batches', 'head', search],
    queryFn: () => batchesPage(ns, search, bounds(search, Date.now()), ''),
    refetchInterval: every,
    enabled: list.isSuccess && every !== false,
    gcTime: 0,
    // The list itself has just been read.
    initialData: undefined,
  })

  const fresh = new Map(head.data?.items.map((batch) => [batch.batchId, batch]))
  const rows = (list.data?.pages.flatMap((page) => page.items) ?? []).map((row) => fresh.get(row.batchId) ?? row)
  const known = new Set(rows.map((row) => row.batchId))
  const newCount = (head.data?.items ?? []).filter((batch) => !known.has(batch.batchId)).length

  return {
    list,
    rows,
    newCount,
    showNew: () => client.resetQueries({ queryKey: key }),
  }
}
