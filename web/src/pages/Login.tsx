import { useQuery } from '@tanstack/react-query'
import { useNavigate, useRouter, useSearch } from '@tanstack/react-router'
import { Button, Input } from 'antd'
import { type FormEvent, useEffect, useState } from 'react'
import { api, must, refusedOf } from '../api/client'
import { metaQuery } from '../api/queries'
import { signedIn, startSession } from '../api/session'
import { Field } from '../components/basics'
import { useT } from '../i18n/useText'
import { basePath } from '../lib/base'
import { Door } from '../shell/Door'

export function Login() {
  const t = useT()
  const { to } = useSearch({ from: '/login' })
  const navigate = useNavigate()
  const router = useRouter()
  const meta = useQuery(metaQuery)
  const [username, setUsername] = useState('')
  const [password, setPassword] = useState('')
  const [busy, setBusy] = useState(false)
  const [error, setError] = useState('')

  useEffect(() => {
    if (signedIn()) void navigate({ to: '/', replace: true })
  }, [navigate])

  async function submit(event: FormEvent) {
    event.preventDefault()
    setBusy(true)
    setError('')
    try {
      startSession(await must(api.POST('/api/v1/auth/login', { body: { username, password } })))
      if (to) router.history.replace(basePath + to.slice(1))
      else await navigate({ to: '/', replace: true })
    } catch (failure) {
      const refused = refusedOf(failure)
      if (refused.status === 401) setError(t('login.bad'))
      else if (refused.status === 429) setError(t('login.throttled', { seconds: refused.retryAfter || '60' }))
      else setError(refused.status === 0 ? t('error.unreachable') : refused.message)
    } finally {
      setBusy(false)
    }
  }

  return (
    <Door title={t('login.title')}>
      {meta.data?.setupRequired && (
        <p className="note" style={{ marginBottom: 14 }}>
          {t('app.setupNeeded')}
        </p>
      )}
      <form onSubmit={(event) => void submit(event)}>
        <Field label={t('login.username')}>
          {(field) => (
            <Input
              {...field}
              autoFocus
              autoComplete="username"
              value={username}
              onChange={(event) => setUsername(event.target.value)}
            />
          )}
        </Field>
        <Field label={t('login.password')} refusals={error ? [{ text: error }] : []}>
          {(field) => (
            <Input.Password
              {...field}
              autoComplete="current-password"
              value={password}
              onChange={(event) => setPassword(event.target.value)}
            />
          )}
        </Field>
        <Button type="primary" htmlType="submit" block loading={busy} disabled={!username || !password}>
          {t('login.submit')}
        </Button>
      </form>
    </Door>
  )
}
