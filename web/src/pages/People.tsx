import PlusOutlined from '@ant-design/icons/PlusOutlined'
import { useQuery, useQueryClient } from '@tanstack/react-query'
import { App, Button, Input, Modal } from 'antd'
import { useState } from 'react'
import { api, must } from '../api/client'
import { membersQuery, meQuery, usersQuery } from '../api/queries'
import type { Member, Person } from '../api/types'
import { CopyButton, Field, Guarded, PageHead } from '../components/basics'
import { DataPage, DataTable } from '../components/DataTable'
import { useShowError } from '../components/mutations'
import { Time } from '../components/Time'
import { useT } from '../i18n/useText'
import { useEvery } from '../lib/live'
import { useSave } from '../lib/useSave'
import { useCan, useNamespace } from '../shell/namespace'

const roles = ['admin', 'developer', 'operator', 'read-only', 'auditor'] as const
type Role = (typeof roles)[number]
const platformRoles = ['', 'admin', 'auditor'] as const

export function People() {
  const t = useT()
  const me = useQuery(meQuery)
  return (
    <>
      <PageHead title={t('people.title')} />
      <Members />
      {me.data?.can?.includes('user.read') && <Everybody />}
    </>
  )
}

// useAct does something and says what came of it.
function useAct() {
  const client = useQueryClient()
  const ns = useNamespace()
  const { message } = App.useApp()
  const showError = useShowError()
  return async <T,>(act: () => Promise<T>, done?: string): Promise<T | undefined> => {
    try {
      const answer = await act()
      if (done) message.success(done)
      return answer
    } catch (error) {
      showError(error)
      return undefined
    } finally {
      await client.invalidateQueries({ queryKey: [ns, 'members'] })
      await client.invalidateQueries({ queryKey: ['users'] })
      await client.invalidateQueries({ queryKey: ['me'] })
    }
  }
}

function RoleSelect({
  label,
  value,
  disabled,
  onChange,
}: {
  label: string
  value: string
  disabled?: boolean
  onChange: (role: Role) => void
}) {
  const t = useT()
  return (
    <select
      className="select"
      aria-label={label}
      value={value}
      disabled={disabled}
      onChange={(event) => onChange(event.target.value as Role)}
    >
      {roles.map((role) => (
        <option key={role} value={role}>
          {t(`people.roles.${role}`)}
        </option>
      ))}
    </select>
  )
}

function Members() {
  const t = useT()
  const ns = useNamespace()
  const can = useCan()
  const act = useAct()
  const { modal } = App.useApp()
  const query = useQuery({ ...membersQuery(ns), refetchInterval: useEvery(5_000) })
  const rows = query.data?.items ?? []
  const [name, setName] = useState('')
  const [role, setRole] = useState<Role>('developer')

  const params = (user: string) => ({ params: { path: { namespace: ns, user } } })
  const give = (user: string, role: Role) =>
    act(
      () => must(api.PUT('/api/v1/namespaces/{namespace}/members/{user}', { ...params(user), body: { role } })),
      t('people.given', { name: user, role: t(`people.roles.${role}`) }),
    )
  const remove = (one: Member) =>
    modal.confirm({
      title: t('people.removeAsk', { name: one.name, namespace: ns }),
      okText: t('people.remove'),
      cancelText: t('common.cancel'),
      okButtonProps: { danger: true },
      onOk: () => act(() => must(api.DELETE('/api/v1/namespaces/{namespace}/members/{user}', params(one.name)))),
    })

  return (
    <>
      <form
        className="toolbar"
        onSubmit={(event) => {
          event.preventDefault()
          if (name.trim()) void give(name.trim(), role).then((done) => done && setName(''))
        }}
      >
        <Input
          aria-label={t('people.userName')}
          placeholder={t('people.userName')}
          autoComplete="off"
          style={{ width: 200 }}
          value={name}
          disabled={!can('member.update')}
          onChange={(event) => setName(event.target.value)}
        />
        <RoleSelect label={t('people.role')} value={role} disabled={!can('member.update')} onChange={setRole} />
        <Guarded
          allowed={can('member.update')}
          permission="member.update"
          htmlType="submit"
          icon={<PlusOutlined />}
          disabled={!name.trim()}
        >
          {t('people.add')}
        </Guarded>
      </form>
      <DataPage query={query} rows={rows} filtered={false} onClear={() => {}} empty={<p>{t('people.noMembers')}</p>}>
        <DataTable
          caption={t('people.members')}
          rows={rows}
          rowKey={(one) => one.id}
          columns={[
            { key: 'name', title: t('common.name'), cell: (one) => <Name of={one} /> },
            { key: 'status', title: t('common.state'), cell: (one) => <Status status={one.status} /> },
            {
              key: 'role',
              title: t('people.role'),
              cell: (one) => (
                <RoleSelect
                  label={t('people.roleOf', { name: one.name })}
                  value={one.role}
                  disabled={!can('member.update')}
                  onChange={(role) => void give(one.name, role)}
                />
              ),
            },
            { key: 'since', title: t('people.since'), cell: (one) => <Time at={one.since} /> },
            {
              key: 'actions',
              title: t('common.actions'),
              quiet: true,
              cell: (one) => (
                <Guarded
                  allowed={can('member.delete')}
                  permission="member.delete"
                  size="small"
                  danger
                  onClick={() => remove(one)}
                >
                  {t('people.remove')}
                </Guarded>
              ),
            },
          ]}
        />
      </DataPage>
    </>
  )
}

function Name({ of }: { of: { name: string; displayName: string } }) {
  return (
    <>
      {of.displayName}
      {of.displayName !== of.name && <span className="two mono">{of.name}</span>}
    </>
  )
}

function Status({ status }: { status: string }) {
  const t = useT()
  const active = status === 'active'
  return <span className={`tag tone-${active ? 'ok' : 'bad'}`}>{t(active ? 'people.active' : 'people.suspended')}</span>
}

function Everybody() {
  const t = useT()
  const act = useAct()
  const { modal } = App.useApp()
  const me = useQuery(meQuery)
  const may = (right: string) => me.data?.can?.includes(right) ?? false
  const query = useQuery({ ...usersQuery, refetchInterval: useEvery(5_000) })
  const rows = query.data?.items ?? []
  const [making, setMaking] = useState(false)
  const [secret, setSecret] = useState<{ name: string; password: string } | null>(null)

  const params = (one: Person) => ({ params: { path: { id: one.id } } })
  const change = (one: Person, body: { status?: string; platformRole?: string }) =>
    act(() => must(api.PUT('/api/v1/users/{id}', { ...params(one), body })), t('people.changed', { name: one.name }))
  const suspend = (one: Person) =>
    modal.confirm({
      title: t('people.suspendAsk', { name: one.name }),
      content: t('people.suspendText'),
      okText: t('people.suspend'),
      cancelText: t('common.cancel'),
      okButtonProps: { danger: true },
      onOk: () => change(one, { status: 'suspended' }),
    })
  const reset = (one: Person) =>
    modal.confirm({
      title: t('people.resetAsk', { name: one.name }),
      content: t('people.resetText'),
      okText: t('people.reset'),
      cancelText: t('common.cancel'),
      onOk: async () => {
        const made = await act(() => must(api.POST('/api/v1/users/{id}/reset-password', { ...params(one), body: {} })))
        if (made) setSecret({ name: one.name, password: made.password })
      },
    })

  return (
    <>
      <div className="pagehead" style={{ marginTop: 24 }}>
        <h2>{t('people.everybody')}</h2>
        <span className="grow" />
        <Guarded
          allowed={may('user.create')}
          permission="user.create"
          type="primary"
          icon={<PlusOutlined />}
          onClick={() => setMaking(true)}
        >
          {t('people.new')}
        </Guarded>
      </div>
      <DataPage query={query} rows={rows} filtered={false} onClear={() => {}} empty={null}>
        <DataTable
          caption={t('people.everybody')}
          rows={rows}
          rowKey={(one) => one.id}
          columns={[
            { key: 'name', title: t('common.name'), cell: (one) => <Name of={one} /> },
            { key: 'status', title: t('common.state'), cell: (one) => <Status status={one.status} /> },
            {
              key: 'platform',
              title: t('people.platformRole'),
              cell: (one) => (
                <select
                  className="select"
                  aria-label={t('people.platformRoleOf', { name: one.name })}
                  value={one.platformRole}
                  disabled={!may('user.update')}
                  onChange={(event) => void change(one, { platformRole: event.target.value })}
                >
                  {platformRoles.map((role) => (
                    <option key={role} value={role}>
                      {role ? t(`people.roles.${role}`) : '–'}
                    </option>
                  ))}
                </select>
              ),
            },
            {
              key: 'namespaces',
              title: t('people.namespaces'),
              wide: true,
              cell: (one) =>
                one.namespaces?.map((at) => (
                  <span className="label" key={at.namespace}>
                    {at.namespace}: {t(`people.roles.${at.role as Role}`)}
                  </span>
                )),
            },
            {
              key: 'actions',
              title: t('common.actions'),
              quiet: true,
              cell: (one) => (
                <span className="nowrap">
                  <Guarded
                    allowed={may('user.update')}
                    permission="user.update"
                    size="small"
                    onClick={() => reset(one)}
                  >
                    {t('people.reset')}
                  </Guarded>{' '}
                  {one.status === 'active' ? (
                    <Guarded
                      allowed={may('user.update')}
                      permission="user.update"
                      size="small"
                      danger
                      onClick={() => suspend(one)}
                    >
                      {t('people.suspend')}
                    </Guarded>
                  ) : (
                    <Guarded
                      allowed={may('user.update')}
                      permission="user.update"
                      size="small"
                      onClick={() => void change(one, { status: 'active' })}
                    >
                      {t('people.reactivate')}
                    </Guarded>
                  )}
                </span>
              ),
            },
          ]}
        />
      </DataPage>
      {making && <NewPerson onClose={() => setMaking(false)} onMade={setSecret} />}
      {secret && <Password secret={secret} onClose={() => setSecret(null)} />}
    </>
  )
}

function NewPerson({
  onClose,
  onMade,
}: {
  onClose: () => void
  onMade: (secret: { name: string; password: string }) => void
}) {
  const t = useT()
  const ns = useNamespace()
  const client = useQueryClient()
  const [name, setName] = useState('')
  const [displayName, setDisplayName] = useState('')
  const [role, setRole] = useState<Role | ''>('developer')
  const { busy, problem, at, send } = useSave()

  const save = () =>
    send(async () => {
      const made = await must(
        api.POST('/api/v1/users', {
          body: {
            name: name.trim(),
            displayName: displayName.trim() || undefined,
            namespaces: role ? [{ namespace: ns, role }] : [],
          },
        }),
      )
      await client.invalidateQueries({ queryKey: ['users'] })
      await client.invalidateQueries({ queryKey: [ns, 'members'] })
      onClose()
      onMade({ name: made.name, password: made.password ?? '' })
    })

  return (
    <Modal
      open
      title={t('people.new')}
      okText={t('common.create')}
      cancelText={t('common.cancel')}
      okButtonProps={{ disabled: !name.trim() }}
      confirmLoading={busy}
      onOk={() => void save()}
      onCancel={onClose}
    >
      <Field label={t('people.userName')} help={t('people.userNameHelp')} refusals={at('name')}>
        {(field) => (
          <Input {...field} autoComplete="off" value={name} onChange={(event) => setName(event.target.value)} />
        )}
      </Field>
      <Field label={t('people.displayName')} refusals={at('displayName')}>
        {(field) => (
          <Input
            {...field}
            autoComplete="off"
            value={displayName}
            onChange={(event) => setDisplayName(event.target.value)}
          />
        )}
      </Field>
      <Field label={t('people.roleHere', { namespace: ns })} refusals={at('namespaces[0].role')}>
        {({ status: _, ...field }) => (
          <select
            {...field}
            className="select"
            value={role}
            onChange={(event) => setRole(event.target.value as Role | '')}
          >
            <option value="">–</option>
            {roles.map((one) => (
              <option key={one} value={one}>
                {t(`people.roles.${one}`)}
              </option>
            ))}
          </select>
        )}
      </Field>
      <p className="muted">{t('people.passwordMade')}</p>
      {problem && (
        <p className="refusal" role="alert">
          {problem}
        </p>
      )}
    </Modal>
  )
}

function Password({ secret, onClose }: { secret: { name: string; password: string }; onClose: () => void }) {
  const t = useT()
  return (
    <Modal
      open
      // It is not shown again, so a slip of the mouse must not close it.
      mask={{ closable: false }}
      keyboard={false}
      closable={false}
      title={t('people.passwordOf', { name: secret.name })}
      footer={
        <Button type="primary" onClick={onClose}>
          {t('people.stored')}
        </Button>
      }
    >
      <p className="note" style={{ marginBottom: 12 }}>
        {t('people.passwordOnce')}
      </p>
      <div className="secret">
        <code>{secret.password}</code>
        <CopyButton text={secret.password} />
      </div>
    </Modal>
  )
}
