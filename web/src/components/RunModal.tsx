import { useQueryClient } from '@tanstack/react-query'
import { Input, Modal } from 'antd'
import { useState } from 'react'
import { api, must, refusedOf } from '../api/client'
import type { Job } from '../api/types'
import { useT, useText } from '../i18n/useText'
import { freshKey } from '../lib/key'
import { useNamespace } from '../shell/namespace'
import { Field, type Refusal } from './basics'
import { useBatchToast, useShowError } from './mutations'

export function RunModal({ job, onClose }: { job: Job; onClose: () => void }) {
  const t = useT()
  const text = useText()
  const namespace = useNamespace()
  const client = useQueryClient()
  const toast = useBatchToast()
  const showError = useShowError()
  const [params, setParams] = useState(job.params)
  const [busy, setBusy] = useState(false)
  const [key] = useState(freshKey)
  const [refusals, setRefusals] = useState<Refusal[]>([])

  async function run() {
    setBusy(true)
    try {
      const { batchId } = await must(
        api.POST('/api/v1/namespaces/{namespace}/jobs/{id}/trigger', {
          params: { path: { namespace, id: job.id } },
          body: { idempotencyKey: key, ...(params !== job.params && { params }) },
        }),
      )
      onClose()
      toast(batchId, t('jobs.started', { id: batchId }))
      await client.invalidateQueries({ queryKey: [namespace] })
    } catch (error) {
      const refused = refusedOf(error)
      setRefusals(refused.errors.map((one) => ({ text: text(one.message) })))
      if (refused.errors.length === 0) showError(error)
    } finally {
      setBusy(false)
    }
  }

  return (
    <Modal
      open
      title={t('jobs.runTitle', { name: job.name })}
      okText={t('jobs.run')}
      cancelText={t('common.cancel')}
      confirmLoading={busy}
      onOk={() => void run()}
      onCancel={onClose}
    >
      <Field label={t('jobs.runParams')} help={t('jobs.runParamsHelp')} refusals={refusals}>
        {(field) => (
          <Input.TextArea
            {...field}
            className="code"
            rows={6}
            spellCheck={false}
            value={params}
            onChange={(event) => setParams(event.target.value)}
          />
        )}
      </Field>
    </Modal>
  )
}
