import { Button } from 'antd'
import type { ReactNode } from 'react'
import { useT } from '../i18n/useText'
import { ErrorBox, Skeleton } from './basics'

export interface Column<T> {
  key: string
  title: string
  cell: (row: T) => ReactNode
  num?: boolean
  clip?: boolean
  roomy?: boolean
  wide?: boolean
  // The title is for screen readers only.
  quiet?: boolean
}

export function DataTable<T>({
  caption,
  columns,
  rows,
  rowKey,
  selected,
  onRow,
}: {
  caption: string
  columns: Column<T>[]
  rows: T[]
  rowKey: (row: T) => string
  selected?: string
  onRow?: (row: T) => void
}) {
  return (
    // A wide table scrolls by itself, so it must be reachable with the keyboard.
    // biome-ignore lint/a11y/noNoninteractiveTabindex: scrollable region
    <section className="tablewrap" tabIndex={0} aria-label={caption}>
      <table className="data">
        <thead>
          <tr>
            {columns.map((column) => (
              <th key={column.key} scope="col" className={column.num ? 'num' : undefined}>
                {column.quiet ? <span className="offscreen">{column.title}</span> : column.title}
              </th>
            ))}
          </tr>
        </thead>
        <tbody>
          {rows.map((row) => (
            <tr
              key={rowKey(row)}
              className={selected === rowKey(row) ? 'selected' : undefined}
              style={onRow && { cursor: 'pointer' }}
              onClick={
                onRow &&
                ((event) => {
                  const inside = (event.target as Element).closest('a,button,input,label,[role=menuitem]')
                  if (!inside && !window.getSelection()?.toString()) onRow(row)
                })
              }
            >
              {columns.map((column) => (
                <td
                  key={column.key}
                  className={
                    [column.num && 'num', column.clip && 'clip', column.roomy && 'roomy', column.wide && 'wide']
                      .filter(Boolean)
                      .join(' ') || undefined
                  }
                >
                  {column.cell(row)}
                </td>
              ))}
            </tr>
          ))}
        </tbody>
      </table>
    </section>
  )
}

// DataPage is a list in one of its states: loading, failed, empty because new, empty
// because of the filter, or there.
export function DataPage<T>({
  query,
  rows,
  filtered,
  onClear,
  empty,
  children,
}: {
  query: {
    isPending: boolean
    error: unknown
    refetch: () => unknown
    hasNextPage?: boolean
    isFetchingNextPage?: boolean
    fetchNextPage?: () => unknown
  }
  rows: T[]
  filtered: boolean
  onClear: () => void
  empty: ReactNode
  children: ReactNode
}) {
  const t = useT()
  if (query.isPending) return <Skeleton />
  if (query.error && rows.length === 0) return <ErrorBox error={query.error} retry={() => void query.refetch()} />
  if (rows.length === 0) {
    return (
      <div className="card blank">
        {filtered ? (
          <>
            <p>{t('common.nothing')}</p>
            <Button onClick={onClear}>{t('common.clear')}</Button>
          </>
        ) : (
          empty
        )}
      </div>
    )
  }
  return (
    <>
      {children}
      <div className="foot">
        <span>{t('common.shown', { count: rows.length })}</span>
        {query.hasNextPage && (
          <Button loading={query.isFetchingNextPage} onClick={() => void query.fetchNextPage?.()}>
            {t('common.loadMore')}
          </Button>
        )}
      </div>
    </>
  )
}
