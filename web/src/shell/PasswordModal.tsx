import { App, Input, Modal } from 'antd'
import { useState } from 'react'
import { api, must, refusedOf } from '../api/client'
import { startSession } from '../api/session'
import type { Invalid } from '../api/types'
import { Field } from '../components/basics'
import { useT, useText } from '../i18n/useText'

export function PasswordModal({ onClose }: { onClose: () => void }) {
  const t = useT()
  const text = useText()
  const { message } = App.useApp()
  const [current, setCurrent] = useState('')
  const [password, setPassword] = useState('')
  const [busy, setBusy] = useState(false)
  const [problem, setProblem] = useState('')
  const [errors, setErrors] = useState<Invalid[]>([])
  const at = (field: string) => errors.filter((one) => one.field === field).map((one) => ({ text: text(one.message) }))

  async function save() {
    setBusy(true)
    setErrors([])
    setProblem('')
    try {
      startSession(await must(api.PUT('/api/v1/me/password', { body: { current, password } })))
      message.success(t('password.changed'))
      onClose()
    } catch (error) {
      const refused = refusedOf(error)
      setErrors(refused.errors)
      setProblem(refused.status === 0 ? t('error.unreachable') : refused.message)
    } finally {
      setBusy(false)
    }
  }

  return (
    <Modal
      open
      title={t('password.title')}
      okText={t('password.change')}
      cancelText={t('common.cancel')}
      okButtonProps={{ disabled: !current || !password }}
      confirmLoading={busy}
      onOk={() => void save()}
      onCancel={onClose}
    >
      <Field label={t('password.current')} refusals={at('current')}>
        {(field) => (
          <Input.Password
            {...field}
            autoComplete="current-password"
            value={current}
            onChange={(event) => setCurrent(event.target.value)}
          />
        )}
      </Field>
      <Field label={t('password.next')} help={t('password.help')} refusals={at('password')}>
        {(field) => (
          <Input.Password
            {...field}
            autoComplete="new-password"
            value={password}
            onChange={(event) => setPassword(event.target.value)}
          />
        )}
      </Field>
      {problem && (
        <p className="refusal" role="alert">
          {problem}
        </p>
      )}
    </Modal>
  )
}
