import { App, Input, Modal } from 'antd'
import { useState } from 'react'
import { api, must } from '../api/client'
import { startSession } from '../api/session'
import { Field } from '../components/basics'
import { useT } from '../i18n/useText'
import { useSave } from '../lib/useSave'

export function PasswordModal({ onClose }: { onClose: () => void }) {
  const t = useT()
  const { message } = App.useApp()
  const [current, setCurrent] = useState('')
  const [password, setPassword] = useState('')
  const { busy, problem, at, send } = useSave()

  const save = () =>
    send(async () => {
      startSession(await must(api.PUT('/api/v1/me/password', { body: { current, password } })))
      message.success(t('password.changed'))
      onClose()
    })

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
