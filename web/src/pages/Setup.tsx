import { useQuery } from '@tanstack/react-query'
import { Link, useNavigate, useSearch } from '@tanstack/react-router'
import { Button, Input } from 'antd'
import { type FormEvent, useState } from 'react'
import { api, must, refusedOf } from '../api/client'
import { metaQuery } from '../api/queries'
import { startSession } from '../api/session'
import { Field } from '../components/basics'
import { useT, useText } from '../i18n/useText'
import { Door } from '../shell/Door'

const shortest = 15
const longest = 128

export function Setup() {
  const t = useT()
  const text = useText()
  const { token } = useSearch({ from: '/setup' })
  const navigate = useNavigate()
  const [username, setUsername] = useState('admin')
  const [password, setPassword] = useState('')
  const [repeat, setRepeat] = useState('')
  const [busy, setBusy] = useState(false)
  const [tried, setTried] = useState(false)
  const [problem, setProblem] = useState('')
  const [refused, setRefused] = useState<Record<string, string>>({})
  const [refusedAsDone, setDone] = useState(false)
  const meta = useQuery(metaQuery)
  const done = refusedAsDone || meta.data?.setupRequired === false

  // Characters as people count them, not UTF-16 units.
  const count = [...password].length
  const nameError = tried && !username.trim() ? t('setup.noName') : refused.username
  const passwordError =
    tried && count < shortest
      ? t('setup.tooShort', { count })
      : count > longest
        ? t('setup.tooLong', { count })
        : refused.password
  const repeatError = tried && repeat !== password ? t('setup.differs') : ''

  async function submit(event: FormEvent) {
    event.preventDefault()
    setTried(true)
    setProblem('')
    setRefused({})
    if (!username.trim() || count < shortest || count > longest || repeat !== password) return
    setBusy(true)
    try {
      startSession(
        await must(api.POST('/api/v1/setup', { body: { token: token ?? '', username: username.trim(), password } })),
      )
      await navigate({ to: '/', replace: true })
    } catch (failure) {
      const answer = refusedOf(failure)
      if (answer.status === 410) setDone(true)
      else {
        setRefused(Object.fromEntries(answer.errors.map((one) => [one.field, text(one.message)])))
        if (answer.errors.length === 0) setProblem(answer.status === 0 ? t('error.unreachable') : answer.message)
      }
    } finally {
      setBusy(false)
    }
  }

  if (done || !token) {
    return (
      <Door title={t('setup.title')}>
        <p>{done ? t('setup.done') : t('setup.noToken')}</p>
        <p style={{ marginTop: 12 }}>
          <Link to="/login">{t('setup.toLogin')}</Link>
        </p>
      </Door>
    )
  }

  return (
    <Door title={t('setup.title')}>
      <p className="muted" style={{ marginBottom: 16 }}>
        {t('setup.intro')}
      </p>
      <form onSubmit={(event) => void submit(event)} noValidate>
        <Field label={t('setup.username')} refusals={nameError ? [{ text: nameError }] : []}>
          {(field) => (
            <Input
              {...field}
              autoComplete="username"
              value={username}
              onChange={(event) => setUsername(event.target.value)}
            />
          )}
        </Field>
        <Field
          label={t('setup.password')}
          refusals={passwordError ? [{ text: passwordError }] : []}
          help={
            <>
              {t('setup.rules')} {count > 0 && t('setup.length', { count })}
            </>
          }
        >
          {(field) => (
            <Input.Password
              {...field}
              autoComplete="new-password"
              value={password}
              onChange={(event) => setPassword(event.target.value)}
            />
          )}
        </Field>
        <Field label={t('setup.repeat')} refusals={repeatError ? [{ text: repeatError }] : []}>
          {(field) => (
            <Input.Password
              {...field}
              autoComplete="new-password"
              value={repeat}
              onChange={(event) => setRepeat(event.target.value)}
            />
          )}
        </Field>
        {refused.token && (
          <p className="note" role="alert" style={{ marginBottom: 14 }}>
            {refused.token}
          </p>
        )}
        {problem && (
          <p className="note" role="alert" style={{ marginBottom: 14 }}>
            {problem}
          </p>
        )}
        <Button type="primary" htmlType="submit" block loading={busy}>
          {t('setup.submit')}
        </Button>
      </form>
    </Door>
  )
}
