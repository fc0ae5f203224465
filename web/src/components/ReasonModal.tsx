import { Input, Modal } from 'antd'
import { useState } from 'react'
import { useT } from '../i18n/useText'
import { Field } from './basics'
import { useShowError } from './mutations'

/** Asks for the reason of something that others will want to understand, and does it. */
export function ReasonModal({
  title,
  text,
  ok,
  act,
  onClose,
}: {
  title: string
  text: string
  ok: string
  act: (reason: string) => Promise<unknown>
  onClose: () => void
}) {
  const t = useT()
  const showError = useShowError()
  const [reason, setReason] = useState('')
  const [busy, setBusy] = useState(false)
  async function go() {
    setBusy(true)
    try {
      await act(reason.trim())
      onClose()
    } catch (error) {
      showError(error)
    } finally {
      setBusy(false)
    }
  }
  return (
    <Modal
      open
      title={title}
      okText={ok}
      cancelText={t('common.cancel')}
      okButtonProps={{ disabled: !reason.trim() }}
      confirmLoading={busy}
      onOk={() => void go()}
      onCancel={onClose}
    >
      <p className="note" style={{ marginBottom: 12 }}>
        {text}
      </p>
      <Field label={t('executors.reason')}>
        {(field) => (
          <Input
            {...field}
            autoFocus
            autoComplete="off"
            maxLength={500}
            value={reason}
            onChange={(event) => setReason(event.target.value)}
          />
        )}
      </Field>
    </Modal>
  )
}
