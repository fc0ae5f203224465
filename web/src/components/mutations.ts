import { useQueryClient } from '@tanstack/react-query'
import { useNavigate } from '@tanstack/react-router'
import { App, Button } from 'antd'
import { createElement } from 'react'
import { api, must, refusedOf } from '../api/client'
import type { Job } from '../api/types'
import { useT } from '../i18n/useText'
import { useNamespace } from '../shell/namespace'

export function useShowError(): (error: unknown) => void {
  const t = useT()
  const { notification } = App.useApp()
  return (error) => {
    const refused = refusedOf(error)
    notification.error({
      title: t('error.title'),
      description: [
        refused.status === 0 ? t('error.unreachable') : refused.message,
        refused.requestId && `${t('error.request')}: ${refused.requestId}`,
      ]
        .filter(Boolean)
        .join(' · '),
    })
  }
}

export function useBatchToast(): (batchId: string, text: string) => void {
  const t = useT()
  const ns = useNamespace()
  const navigate = useNavigate()
  const { notification } = App.useApp()
  return (batchId, text) => {
    const key = `batch-${batchId}`
    notification.success({
      key,
      title: text,
      actions: createElement(
        Button,
        {
          size: 'small',
          onClick: () => {
            notification.destroy(key)
            void navigate({ to: '/ns/$ns/executions/$batchId', params: { ns, batchId } })
          },
        },
        t('jobs.open'),
      ),
    })
  }
}

// useJobActions holds what a person does to one job from a list or from its page.
export function useJobActions() {
  const t = useT()
  const namespace = useNamespace()
  const client = useQueryClient()
  const { message, modal } = App.useApp()
  const showError = useShowError()

  const again = () => client.invalidateQueries({ queryKey: [namespace] })

  async function attempt(job: Job, act: () => Promise<unknown>, done: string): Promise<boolean> {
    try {
      await act()
      message.success(done)
      return true
    } catch (error) {
      if (refusedOf(error).code === 'stale_version') message.warning(t('jobs.changedMeanwhile', { name: job.name }))
      else showError(error)
      return false
    } finally {
      await again()
    }
  }

  const params = (job: Job) => ({ path: { namespace, id: job.id } })
  const body = (job: Job) => ({ version: job.version })

  return {
    enable: (job: Job) =>
      attempt(
        job,
        () =>
          must(api.POST('/api/v1/namespaces/{namespace}/jobs/{id}/enable', { params: params(job), body: body(job) })),
        t('jobs.enabledDone', { name: job.name }),
      ),
    disable: (job: Job) =>
      modal.confirm({
        title: t('jobs.disableTitle', { name: job.name }),
        content: t('jobs.disableText'),
        okText: t('jobs.disable'),
        cancelText: t('common.cancel'),
        onOk: () =>
          attempt(
            job,
            () =>
              must(
                api.POST('/api/v1/namespaces/{namespace}/jobs/{id}/disable', { params: params(job), body: body(job) }),
              ),
            t('jobs.disabledDone', { name: job.name }),
          ),
      }),
    remove: (job: Job, then?: () => void) =>
      modal.confirm({
        title: t('jobs.deleteTitle', { name: job.name }),
        content: t('jobs.deleteText'),
        okText: t('common.delete'),
        okButtonProps: { danger: true },
        cancelText: t('common.cancel'),
        onOk: async () => {
          const gone = await attempt(
            job,
            () =>
              must(
                api.DELETE('/api/v1/namespaces/{namespace}/jobs/{id}', {
                  params: { ...params(job), query: { version: job.version } },
                }),
              ),
            t('jobs.deleted', { name: job.name }),
          )
          if (gone) then?.()
        },
      }),
  }
}
