import AppstoreOutlined from '@ant-design/icons/AppstoreOutlined'
import AuditOutlined from '@ant-design/icons/AuditOutlined'
import CalendarOutlined from '@ant-design/icons/CalendarOutlined'
import CloudServerOutlined from '@ant-design/icons/CloudServerOutlined'
import ClusterOutlined from '@ant-design/icons/ClusterOutlined'
import ControlOutlined from '@ant-design/icons/ControlOutlined'
import DashboardOutlined from '@ant-design/icons/DashboardOutlined'
import FieldTimeOutlined from '@ant-design/icons/FieldTimeOutlined'
import HistoryOutlined from '@ant-design/icons/HistoryOutlined'
import KeyOutlined from '@ant-design/icons/KeyOutlined'
import ScheduleOutlined from '@ant-design/icons/ScheduleOutlined'
import TeamOutlined from '@ant-design/icons/TeamOutlined'
import UserOutlined from '@ant-design/icons/UserOutlined'
import { useQuery } from '@tanstack/react-query'
import { Link, Outlet, useNavigate, useRouterState } from '@tanstack/react-router'
import { Modal } from 'antd'
import { lazy, Suspense, useEffect, useRef, useState } from 'react'
import { meQuery, metaQuery } from '../api/queries'
import { logout, useUser } from '../api/session'
import { ErrorBox, Skeleton } from '../components/basics'
import { useT } from '../i18n/useText'
import { setPaused, useLive } from '../lib/live'
import { getPrefs, setPrefs } from '../lib/prefs'
import { Logo } from './Logo'
import { useNamespace } from './namespace'
import { LanguageSelect, ThemeSelect, ZoneSelect } from './Preferences'

const pages = [
  { to: '/ns/$ns/overview', key: 'overview', icon: DashboardOutlined },
  { to: '/ns/$ns/jobs', key: 'jobs', icon: ScheduleOutlined },
  { to: '/ns/$ns/executions', key: 'executions', icon: HistoryOutlined },
  { to: '/ns/$ns/delayed', key: 'delayed', icon: FieldTimeOutlined },
  { to: '/ns/$ns/executors', key: 'executors', icon: ClusterOutlined },
  { to: '/ns/$ns/apps', key: 'apps', icon: AppstoreOutlined },
  { to: '/ns/$ns/calendars', key: 'calendars', icon: CalendarOutlined },
  { to: '/ns/$ns/limits', key: 'limits', icon: ControlOutlined },
  { to: '/ns/$ns/secrets', key: 'secrets', icon: KeyOutlined },
  { to: '/ns/$ns/audit', key: 'audit', icon: AuditOutlined },
  { to: '/ns/$ns/people', key: 'people', icon: TeamOutlined },
  { to: '/ns/$ns/system', key: 'system', icon: CloudServerOutlined },
] as const

export function Shell() {
  const t = useT()
  const namespace = useNamespace()
  const me = useQuery(meQuery)
  const meta = useQuery(metaQuery)
  const main = useRef<HTMLElement>(null)
  const path = useRouterState({ select: (state) => state.location.pathname })
  const before = useRef(path)
  const live = useLive()

  const known = me.data?.namespaces.some((one) => one.name === namespace)
  const asked = useRef('')

  useEffect(() => {
    if (known && getPrefs().namespace !== namespace) setPrefs({ namespace })
  }, [known, namespace])

  // A namespace may be younger than what is known about oneself: ask once more.
  const { refetch } = me
  const stranger = me.data !== undefined && !known && asked.current !== namespace
  useEffect(() => {
    if (!stranger) return
    asked.current = namespace
    void refetch()
  }, [stranger, namespace, refetch])

  // A new page starts at its top, and is read from there.
  useEffect(() => {
    if (before.current !== path) {
      before.current = path
      // A question about the page before must not stand over this one.
      Modal.destroyAll()
      main.current?.scrollTo(0, 0)
      main.current?.focus({ preventScroll: true })
    }
  }, [path])

  return (
    <div className="shell">
      <button type="button" className="skip" onClick={() => main.current?.focus()}>
        {t('app.skip')}
      </button>
      <nav className="side" aria-label={t('app.nav')}>
        <Link className="brand" to="/ns/$ns/overview" params={{ ns: namespace }}>
          <Logo />
          ax
        </Link>
        <ul>
          {pages
            .filter(({ key }) => key !== 'system' || me.data?.can?.includes('system.read'))
            .map(({ to, key, icon: Icon }) => (
              <li key={key}>
                <Link to={to} params={{ ns: namespace }} activeProps={{ 'aria-current': 'page' }}>
                  <span aria-hidden="true">
                    <Icon />
                  </span>
                  {t(`nav.${key}`)}
                </Link>
              </li>
            ))}
        </ul>
        {meta.data && (
          <div className="foot">
            {t('app.version', { version: meta.data.version })}
            {meta.data.demo && ` · ${t('app.demo')}`}
          </div>
        )}
      </nav>
      <header className="top">
        <NamespaceSelect />
        <span className="grow" />
        <LiveDot />
        <ZoneSelect />
        <LanguageSelect />
        <ThemeSelect />
        <UserMenu />
      </header>
      <main className="main" ref={main} tabIndex={-1}>
        {live === 'reconnecting' && (
          <div className="banner" role="status">
            {t('live.stale')}
          </div>
        )}
        {meta.data?.clockAlarm && (
          <div className="banner" role="alert">
            {t('app.clock', { seconds: ((meta.data.clockRefusedMs || meta.data.clockDriftMs) / 1000).toFixed(1) })}
          </div>
        )}
        {me.isPending || (!known && me.isFetching) ? (
          <Skeleton />
        ) : me.error ? (
          <ErrorBox error={me.error} retry={() => void me.refetch()} />
        ) : known ? (
          <Outlet />
        ) : (
          <Forbidden namespace={namespace} />
        )}
      </main>
    </div>
  )
}

export function Forbidden({ namespace }: { namespace: string }) {
  const t = useT()
  return (
    <div className="card blank">
      <title>{`${t('error.forbiddenTitle')} · ax`}</title>
      <h1>{t('error.forbiddenTitle')}</h1>
      <p>{namespace ? t('error.forbidden', { namespace }) : t('error.noNamespaces')}</p>
    </div>
  )
}

function NamespaceSelect() {
  const t = useT()
  const namespace = useNamespace()
  const navigate = useNavigate()
  const { data } = useQuery(meQuery)
  const page = useRouterState({ select: (state) => state.location.pathname.split('/')[3] ?? 'overview' })
  const names = data?.namespaces ?? []
  const target = pages.find((one) => one.key === page)?.to ?? '/ns/$ns/overview'
  return (
    <select
      className="select"
      aria-label={t('nav.namespace')}
      value={namespace}
      onChange={(event) => void navigate({ to: target, params: { ns: event.target.value } })}
    >
      {!names.some((one) => one.name === namespace) && <option value={namespace}>{namespace}</option>}
      {names.map((one) => (
        <option key={one.name} value={one.name}>
          {one.displayName && one.displayName !== one.name ? `${one.displayName} (${one.name})` : one.name}
        </option>
      ))}
    </select>
  )
}

function LiveDot() {
  const t = useT()
  const live = useLive()
  return (
    <button
      type="button"
      className="plain"
      title={live === 'paused' ? t('live.resume') : t('live.pause')}
      onClick={() => setPaused(live !== 'paused')}
    >
      <span className={`dot ${live}`} aria-hidden="true" />
      {t(`live.${live}`)}
    </button>
  )
}

const PasswordModal = lazy(() => import('./PasswordModal').then((m) => ({ default: m.PasswordModal })))

function UserMenu() {
  const t = useT()
  const [changing, setChanging] = useState(false)
  const user = useUser()
  const { data } = useQuery(meQuery)
  return (
    <>
      <span className="pair" title={data?.platformAdmin ? t('pref.admin') : undefined}>
        <span aria-hidden="true">
          <UserOutlined />
        </span>
        <span className="nowrap">{user?.displayName || user?.name}</span>
      </span>
      <button type="button" className="plain" onClick={() => setChanging(true)}>
        {t('password.title')}
      </button>
      {changing && (
        <Suspense fallback={null}>
          <PasswordModal onClose={() => setChanging(false)} />
        </Suspense>
      )}
      <button type="button" className="plain" onClick={() => void logout()}>
        {t('pref.logout')}
      </button>
    </>
  )
}
