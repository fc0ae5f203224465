import PlusOutlined from '@ant-design/icons/PlusOutlined'
import { useInfiniteQuery, useQuery, useQueryClient } from '@tanstack/react-query'
import { Link, useNavigate, useSearch } from '@tanstack/react-router'
import { App, Input, Modal } from 'antd'
import { useState } from 'react'
import { api, must } from '../api/client'
import { delayedPage, everyPage, jobsPage } from '../api/queries'
import { batchStates, type DelayedTask } from '../api/types'
import { Field, Guarded, PageHead } from '../components/basics'
import { DataPage, DataTable } from '../components/DataTable'
import { ExportMenu } from '../components/ExportMenu'
import { useShowError } from '../components/mutations'
import { StateFilter } from '../components/StateFilter'
import { StatusTag } from '../components/StatusTag'
import { TextFilter } from '../components/TextFilter'
import { Time, useZone } from '../components/Time'
import { useT, useText } from '../i18n/useText'
import { useEvery } from '../lib/live'
import type { DelayedSearch } from '../lib/search'
import { formatTime } from '../lib/time'
import { useSave } from '../lib/useSave'
import { useCan, useNamespace } from '../shell/namespace'
import { JobFilter } from './Executions'

const over = ['SUCCEEDED', 'FAILED', 'TIMED_OUT', 'CANCELLED', 'SKIPPED', 'MISSED']

export function DelayedTasks() {
  const t = useT()
  const text = useText()
  const ns = useNamespace()
  const zone = useZone()
  const can = useCan()
  const search = useSearch({ from: '/ns/$ns/delayed' })
  const navigate = useNavigate({ from: '/ns/$ns/delayed' })
  const set = (change: DelayedSearch) =>
    void navigate({ search: (old: DelayedSearch) => ({ ...old, ...change }), replace: true })
  const names = useJobNames()
  const query = useInfiniteQuery({
    queryKey: [ns, 'delayed', search],
    queryFn: ({ pageParam }) => delayedPage(ns, search, pageParam),
    initialPageParam: '',
    getNextPageParam: (last) => last.nextCursor || undefined,
    refetchInterval: useEvery(5_000),
  })
  const rows = query.data?.pages.flatMap((page) => page.items) ?? []
  const [making, setMaking] = useState(false)
  const [moving, setMoving] = useState<DelayedTask | null>(null)
  const button = (
    <Guarded
      allowed={can('job.run')}
      permission="job.run"
      type="primary"
      icon={<PlusOutlined />}
      onClick={() => setMaking(true)}
    >
      {t('delayed.new')}
    </Guarded>
  )
  return (
    <>
      <PageHead title={t('delayed.title')}>
        <ExportMenu<DelayedTask>
          name={`delayed-${ns}`}
          load={() => everyPage((cursor) => delayedPage(ns, search, cursor, 200))}
          header={[
            'batchId',
            'jobId',
            'job',
            'state',
            'dueAt',
            'key',
            'startedAt',
            'finishedAt',
            'createdAt',
            'createdBy',
          ]}
          row={(one) => [
            one.batchId,
            one.jobId,
            names.get(one.jobId) ?? '',
            one.state,
            formatTime(one.dueAt, zone),
            one.key,
            formatTime(one.startedAt, zone),
            formatTime(one.finishedAt, zone),
            formatTime(one.createdAt, zone),
            one.createdBy,
          ]}
        />
        {button}
      </PageHead>
      <search className="toolbar">
        <JobFilter value={search.job} onChange={(job) => set({ job, key: undefined })} />
        <StateFilter states={batchStates} value={search.state} onChange={(state) => set({ state })} />
        {search.job && ( // keys are of a job
          <TextFilter
            label={t('delayed.key')}
            value={search.key ?? ''}
            onChange={(key) => set({ key: key || undefined })}
          />
        )}
      </search>
      <DataPage
        query={query}
        rows={rows}
        filtered={Boolean(search.job || search.state || search.key)}
        onClear={() => set({ job: undefined, state: undefined, key: undefined })}
        empty={<p>{t('delayed.empty')}</p>}
      >
        <DataTable
          caption={t('delayed.title')}
          rows={rows}
          rowKey={(one) => one.batchId}
          columns={[
            { key: 'due', title: t('delayed.due'), cell: (one) => <Time at={one.dueAt} /> },
            {
              key: 'job',
              title: t('executions.job'),
              cell: (one) => (
                <Link to="/ns/$ns/jobs/$id" params={{ ns, id: one.jobId }} preload={false}>
                  {names.get(one.jobId) ?? one.jobId}
                </Link>
              ),
            },
            { key: 'key', title: t('delayed.key'), cell: (one) => <span className="mono">{one.key || '–'}</span> },
            {
              key: 'state',
              title: t('common.state'),
              cell: (one) => (
                <>
                  <span title={one.resting ? t('delayed.resting') : undefined}>
                    <StatusTag state={one.state} />
                  </span>
                  {one.reason && <span className="two">{text(one.reason)}</span>}
                </>
              ),
            },
            {
              key: 'id',
              title: t('executions.batch'),
              cell: (one) =>
                one.resting ? (
                  <span className="mono nowrap">{one.batchId}</span>
                ) : (
                  <Link
                    className="mono nowrap"
                    to="/ns/$ns/executions/$batchId"
                    params={{ ns, batchId: one.batchId }}
                    preload={false}
                  >
                    {one.batchId}
                  </Link>
                ),
            },
            {
              key: 'actions',
              title: '',
              cell: (one) =>
                over.includes(one.state) ? null : (
                  <span className="nowrap">
                    <Actions task={one} onMove={() => setMoving(one)} />
                  </span>
                ),
            },
          ]}
        />
      </DataPage>
      {making && <Editor names={names} onClose={() => setMaking(false)} />}
      {moving && <Editor task={moving} names={names} onClose={() => setMoving(null)} />}
    </>
  )
}

function useJobNames(): Map<string, string> {
  const ns = useNamespace()
  const jobs = useQuery({
    queryKey: [ns, 'jobs', 'names'],
    queryFn: () => jobsPage(ns, {}, '', 200),
    staleTime: 30_000,
  })
  return new Map((jobs.data?.items ?? []).map((job) => [job.id, job.name]))
}

function Actions({ task, onMove }: { task: DelayedTask; onMove: () => void }) {
  const t = useT()
  const ns = useNamespace()
  const can = useCan()
  const client = useQueryClient()
  const showError = useShowError()
  const { modal, message } = App.useApp()
  const path = { namespace: ns, batchId: task.batchId }
  const act = async (call: () => Promise<unknown>, done: string) => {
    try {
      await call()
      void message.success(done)
    } catch (error) {
      showError(error)
    }
    await client.invalidateQueries({ queryKey: [ns, 'delayed'] })
  }
  const run = { allowed: can('job.run'), permission: 'job.run', size: 'small' as const }
  return (
    <>
      <Guarded
        {...run}
        onClick={() =>
          void act(
            () => must(api.POST('/api/v1/namespaces/{namespace}/delayed/{batchId}/run', { params: { path } })),
            t('delayed.runAsked'),
          )
        }
      >
        {t('delayed.runNow')}
      </Guarded>{' '}
      <Guarded {...run} onClick={onMove}>
        {t('delayed.move')}
      </Guarded>{' '}
      <Guarded
        allowed={can('batch.cancel')}
        permission="batch.cancel"
        size="small"
        danger
        onClick={() =>
          modal.confirm({
            title: t('delayed.cancelAsk'),
            okText: t('delayed.cancel'),
            cancelText: t('common.close'),
            okButtonProps: { danger: true },
            onOk: () =>
              act(
                () => must(api.POST('/api/v1/namespaces/{namespace}/batches/{batchId}/cancel', { params: { path } })),
                t('delayed.cancelled'),
              ),
          })
        }
      >
        {t('delayed.cancel')}
      </Guarded>
    </>
  )
}

// Editor makes a task, or gives one another time.
function Editor({ task, names, onClose }: { task?: DelayedTask; names: Map<string, string>; onClose: () => void }) {
  const t = useT()
  const ns = useNamespace()
  const client = useQueryClient()
  const { message } = App.useApp()
  const [form, setForm] = useState({ job: '', delay: '', runAt: '', key: '', payload: '' })
  const { busy, problem, at, send } = useSave()
  const when = form.runAt.trim() ? { runAt: form.runAt.trim() } : { delay: form.delay.trim() }
  let payload: unknown
  let unread = false
  try {
    payload = form.payload.trim() ? JSON.parse(form.payload) : undefined
  } catch {
    unread = true
  }
  const save = () =>
    send(async () => {
      if (task) {
        await must(
          api.POST('/api/v1/namespaces/{namespace}/delayed/{batchId}/reschedule', {
            params: { path: { namespace: ns, batchId: task.batchId } },
            body: when,
          }),
        )
      } else {
        await must(
          api.POST('/api/v1/namespaces/{namespace}/jobs/{id}/delayed', {
            params: { path: { namespace: ns, id: form.job } },
            body: {
              ...when,
              ...(form.key.trim() && { key: form.key.trim() }),
              ...(payload !== undefined && { payload }),
            },
          }),
        )
      }
      await client.invalidateQueries({ queryKey: [ns, 'delayed'] })
      void message.success(t(task ? 'delayed.moved' : 'delayed.made'))
      onClose()
    })
  return (
    <Modal
      open
      title={task ? t('delayed.moveOf', { id: task.batchId }) : t('delayed.new')}
      okText={task ? t('delayed.move') : t('common.create')}
      cancelText={t('common.cancel')}
      okButtonProps={{ disabled: (!task && !form.job) || unread || !(form.delay.trim() || form.runAt.trim()) }}
      confirmLoading={busy}
      onOk={() => void save()}
      onCancel={onClose}
    >
      {!task && (
        <Field label={t('executions.job')}>
          {({ status: _, ...field }) => (
            <select
              {...field}
              className="select"
              value={form.job}
              onChange={(event) => setForm({ ...form, job: event.target.value })}
            >
              <option value="" />
              {[...names].map(([id, name]) => (
                <option key={id} value={id}>
                  {name}
                </option>
              ))}
            </select>
          )}
        </Field>
      )}
      <Field label={t('delayed.delay')} help={t('delayed.delayHelp')} refusals={at('delay')}>
        {(field) => (
          <Input
            {...field}
            value={form.delay}
            disabled={Boolean(form.runAt.trim())}
            onChange={(event) => setForm({ ...form, delay: event.target.value })}
          />
        )}
      </Field>
      <Field
        label={t('delayed.at')}
        help={t('delayed.atHelp', { example: '2027-01-31T08:00:00+08:00' })}
        refusals={at('runAt')}
      >
        {(field) => (
          <Input {...field} value={form.runAt} onChange={(event) => setForm({ ...form, runAt: event.target.value })} />
        )}
      </Field>
      {!task && (
        <>
          <Field label={t('delayed.key')} help={t('delayed.keyHelp')} refusals={at('key')}>
            {(field) => (
              <Input {...field} value={form.key} onChange={(event) => setForm({ ...form, key: event.target.value })} />
            )}
          </Field>
          <Field
            label={t('delayed.payload')}
            help={t('delayed.payloadHelp')}
            refusals={unread ? [{ text: t('delayed.badPayload') }] : at('payload')}
          >
            {(field) => (
              <Input.TextArea
                {...field}
                className="code"
                autoSize={{ minRows: 2, maxRows: 10 }}
                value={form.payload}
                onChange={(event) => setForm({ ...form, payload: event.target.value })}
              />
            )}
          </Field>
        </>
      )}
      {problem && (
        <p className="refusal" role="alert">
          {problem}
        </p>
      )}
    </Modal>
  )
}
