import { useInfiniteQuery } from '@tanstack/react-query'
import { useNavigate, useSearch } from '@tanstack/react-router'
import { Drawer } from 'antd'
import { auditPage, everyPage } from '../api/queries'
import type { AuditEntry } from '../api/types'
import { Facts, PageHead } from '../components/basics'
import { type Column, DataPage, DataTable } from '../components/DataTable'
import { ExportMenu } from '../components/ExportMenu'
import { TextFilter } from '../components/TextFilter'
import { Time, useZone } from '../components/Time'
import { TimeRange } from '../components/TimeRange'
import { useT } from '../i18n/useText'
import { show, wordOf } from '../lib/job'
import { type AuditSearch, bounds } from '../lib/search'
import { formatTime } from '../lib/time'
import { useNamespace } from '../shell/namespace'

export function Audit() {
  const t = useT()
  const ns = useNamespace()
  const zone = useZone()
  const search = useSearch({ from: '/ns/$ns/audit' })
  const navigate = useNavigate({ from: '/ns/$ns/audit' })
  const set = (change: AuditSearch) =>
    void navigate({ search: (old: AuditSearch) => ({ ...old, ...change }), replace: true })
  const { open, ...filter } = search
  const words = useAuditWords()

  const query = useInfiniteQuery({
    queryKey: [ns, 'audit', filter],
    queryFn: async ({ pageParam }) => {
      const window = pageParam.window ?? bounds(filter, Date.now())
      return { ...(await auditPage(ns, filter, window, pageParam.cursor)), window }
    },
    initialPageParam: { cursor: '', window: undefined as { from?: string; to?: string } | undefined },
    getNextPageParam: (last) => (last.nextCursor ? { cursor: last.nextCursor, window: last.window } : undefined),
  })
  const rows = query.data?.pages.flatMap((page) => page.items) ?? []
  const opened = rows.find((entry) => entry.id === open)

  const columns: Column<AuditEntry>[] = [
    {
      key: 'at',
      title: t('audit.at'),
      cell: (entry) => (
        <button
          type="button"
          className="plain link"
          aria-label={t('audit.open', { at: formatTime(entry.at, zone) })}
          onClick={() => set({ open: entry.id })}
        >
          <Time at={entry.at} />
        </button>
      ),
    },
    { key: 'actor', title: t('audit.actor'), cell: (entry) => entry.actor.name || entry.actor.id },
    { key: 'action', title: t('audit.action'), cell: (entry) => <span className="mono">{entry.action}</span> },
    {
      key: 'object',
      title: t('audit.object'),
      cell: (entry) => (
        <>
          {entry.object.name || entry.object.id}
          <span className="two">{words.object(entry.object.type)}</span>
        </>
      ),
    },
    { key: 'outcome', title: t('audit.outcome'), cell: (entry) => words.outcome(entry.outcome) },
    { key: 'ip', title: t('audit.ip'), cell: (entry) => <span className="mono">{entry.ip || '–'}</span> },
  ]

  return (
    <>
      <PageHead title={t('audit.title')}>
        <ExportMenu<AuditEntry>
          name={`audit-${ns}`}
          load={() => {
            const window = bounds(filter, Date.now())
            return everyPage((cursor) => auditPage(ns, filter, window, cursor, 200))
          }}
          header={['id', 'at', 'actor', 'action', 'objectType', 'objectId', 'object', 'outcome', 'ip', 'requestId']}
          row={(entry) => [
            entry.id,
            formatTime(entry.at, zone),
            entry.actor.name,
            entry.action,
            entry.object.type,
            entry.object.id,
            entry.object.name,
            entry.outcome,
            entry.ip,
            entry.requestId,
          ]}
        />
      </PageHead>
      <search className="toolbar">
        <TextFilter
          label={t('audit.actor')}
          value={search.actor ?? ''}
          onChange={(actor) => set({ actor: actor || undefined })}
        />
        <TextFilter
          label={t('audit.action')}
          value={search.action ?? ''}
          onChange={(action) => set({ action: action || undefined })}
        />
        <TextFilter
          label={t('audit.object')}
          value={search.object ?? ''}
          onChange={(object) => set({ object: object || undefined })}
        />
        <span className="grow" />
        <TimeRange
          value={search}
          onChange={(window) => set({ range: window.range, from: window.from, to: window.to })}
        />
      </search>
      <DataPage
        query={query}
        rows={rows}
        filtered={Boolean(search.actor || search.action || search.object)}
        onClear={() => set({ actor: undefined, action: undefined, object: undefined })}
        empty={<p>{t('audit.empty')}</p>}
      >
        <DataTable
          caption={t('audit.title')}
          columns={columns}
          rows={rows}
          rowKey={(entry) => entry.id}
          selected={open}
          onRow={(entry) => set({ open: entry.id })}
        />
      </DataPage>
      <Drawer
        open={Boolean(opened)}
        size={640}
        title={opened?.action}
        onClose={() => set({ open: undefined })}
        closable={{ 'aria-label': t('common.close') }}
      >
        {opened && <Entry entry={opened} />}
      </Drawer>
    </>
  )
}

const outcomes = ['success', 'denied', 'failure'] as const
const objects = ['job', 'app', 'namespace', 'user', 'system', 'batch'] as const
const actors = ['user', 'platform_admin', 'system', 'token'] as const

// useAuditWords says the codes of an entry in words; one it does not know stays a code.
function useAuditWords() {
  const t = useT()
  return {
    outcome: (code: string) => wordOf(outcomes, code, (key) => t(`audit.outcomes.${key}`)),
    object: (code: string) => wordOf(objects, code, (key) => t(`audit.objects.${key}`)),
    actor: (code: string) => wordOf(actors, code, (key) => t(`audit.actors.${key}`)),
  }
}

function Entry({ entry }: { entry: AuditEntry }) {
  const t = useT()
  const words = useAuditWords()
  const diff = entry.diff ?? []
  return (
    <>
      <Facts
        items={[
          [t('audit.at'), <Time key="at" at={entry.at} />],
          [t('audit.actor'), `${entry.actor.name || entry.actor.id} (${words.actor(entry.actor.type)})`],
          [t('audit.object'), `${entry.object.name || entry.object.id} (${words.object(entry.object.type)})`],
          [t('audit.outcome'), words.outcome(entry.outcome)],
          [t('audit.ip'), entry.ip || '–'],
          [t('audit.request'), <code key="request">{entry.requestId}</code>],
        ]}
      />
      <h3 style={{ margin: '20px 0 8px' }}>{t('audit.change')}</h3>
      {diff.length === 0 ? (
        <p className="muted">{t('audit.noDiff')}</p>
      ) : (
        <div className="tablewrap">
          <table className="data">
            <thead>
              <tr>
                <th scope="col">{t('audit.field')}</th>
                <th scope="col">{t('audit.before')}</th>
                <th scope="col">{t('audit.after')}</th>
              </tr>
            </thead>
            <tbody>
              {diff.map((change) => (
                <tr key={`${change.op}${change.path}`}>
                  <td className="mono">{change.path}</td>
                  <td className="mono old">{show(change.from)}</td>
                  <td className="mono new">{show(change.value)}</td>
                </tr>
              ))}
            </tbody>
          </table>
        </div>
      )}
      {[
        [t('audit.before'), entry.before],
        [t('audit.after'), entry.after],
      ].map(
        ([title, value]) =>
          value !== null &&
          value !== undefined && (
            <details key={String(title)} style={{ marginTop: 14 }}>
              <summary>{String(title)}</summary>
              <pre style={{ marginTop: 8 }}>{JSON.stringify(value, null, 2)}</pre>
            </details>
          ),
      )}
    </>
  )
}
