import { useQuery } from '@tanstack/react-query'
import { executionQuery } from '../api/queries'
import type { Execution } from '../api/types'
import { useT, useText } from '../i18n/useText'
import { strategies, wordOf } from '../lib/job'
import { ErrorBox, Skeleton } from './basics'
import { DataTable } from './DataTable'

// WhyHere says why an execution is on its executor: who was asked, in which order, and who was passed over and why.
export function WhyHere({ namespace, execution }: { namespace: string; execution: Execution }) {
  const t = useT()
  const text = useText()
  const query = useQuery({ ...executionQuery(namespace, execution.id), enabled: Boolean(execution.executor) })
  if (!execution.executor) return <p className="muted">{t('batch.choiceNone')}</p>
  if (query.isPending) return <Skeleton rows={3} />
  if (!query.data) return <ErrorBox error={query.error} retry={() => void query.refetch()} />
  const choice = query.data.choice
  if (!choice) return <p className="muted">{t('batch.choiceNone')}</p>
  const strategy = wordOf(strategies, choice.strategy, (key) => t(`strategy.${key}`))
  return (
    <>
      <p style={{ marginBottom: 8 }}>
        {t('batch.choiceOf', { shard: execution.shard, attempt: execution.attempt, strategy })}{' '}
        <span className="muted">({t(`batch.choiceSource.${choice.source}`)})</span>
      </p>
      <DataTable
        caption={t('batch.choice')}
        rows={choice.candidates}
        rowKey={(one) => one.executor.id}
        columns={[
          { key: 'place', title: t('batch.choicePlace'), num: true, cell: (one) => one.place || '–' },
          { key: 'executor', title: t('batch.executor'), cell: (one) => one.executor.address || one.executor.id },
          {
            key: 'state',
            title: t('common.state'),
            cell: (one) => (one.chosen ? t('batch.choiceTaken') : one.place ? '–' : t('batch.choicePassed')),
          },
          {
            key: 'why',
            title: t('batch.why'),
            cell: (one) => (one.reason ? [text(one.reason), one.reason.detail].filter(Boolean).join(' ') : '–'),
          },
          {
            key: 'terms',
            title: t('batch.choiceTerms'),
            cell: (one) =>
              Object.entries(one.terms ?? {})
                .map(([name, value]) => `${name} ${value}`)
                .join(', ') || '–',
          },
        ]}
      />
      {choice.more > 0 && <p className="muted">{t('batch.choiceMore', { count: choice.more })}</p>}
    </>
  )
}
