import CopyOutlined from '@ant-design/icons/CopyOutlined'
import { App, Button, type ButtonProps, Tooltip } from 'antd'
import { type ReactNode, useId } from 'react'
import { refusedOf } from '../api/client'
import { useT } from '../i18n/useText'
import { copyText } from '../lib/copy'

export function PageHead({ title, tag, children }: { title: string; tag?: ReactNode; children?: ReactNode }) {
  return (
    <div className="pagehead">
      <title>{`${title} · ax`}</title>
      <h1>{title}</h1>
      {tag}
      <span className="grow" />
      {children}
    </div>
  )
}

export function ErrorBox({ error, retry }: { error: unknown; retry?: () => void }) {
  const t = useT()
  const refused = refusedOf(error)
  return (
    <div className="card" role="alert">
      <h2>{refused.status === 403 ? t('error.forbiddenTitle') : t('error.title')}</h2>
      <p>{refused.status === 0 ? t('error.unreachable') : refused.message}</p>
      <p className="muted">
        {refused.code && `${t('error.code')}: ${refused.code} `}
        {refused.requestId && (
          <>
            {t('error.request')}: <code>{refused.requestId}</code>
          </>
        )}
      </p>
      {retry && (
        <Button onClick={retry} style={{ marginTop: 12 }}>
          {t('common.retry')}
        </Button>
      )}
    </div>
  )
}

export function Skeleton({ rows = 6 }: { rows?: number }) {
  const t = useT()
  return (
    <div className="skeleton" role="status">
      <span className="offscreen">{t('common.loading')}</span>
      {Array.from({ length: rows }, (_, row) => (
        // biome-ignore lint/suspicious/noArrayIndexKey: the rows are all alike
        <i key={row} style={{ width: `${92 - ((row * 17) % 40)}%` }} />
      ))}
    </div>
  )
}

// Guarded is a button that stays visible without the permission, and says why it is off.
export function Guarded({ allowed, permission, ...props }: ButtonProps & { allowed: boolean; permission: string }) {
  const t = useT()
  if (allowed) return <Button {...props} />
  return (
    <Tooltip title={t('common.forbidden', { permission })}>
      <Button {...props} disabled />
    </Tooltip>
  )
}

export function useCopy(): (text: string) => Promise<void> {
  const t = useT()
  const { message } = App.useApp()
  return async (text) => {
    if (await copyText(text)) message.success(t('common.copied'))
    else message.error(t('common.copyFailed'))
  }
}

export function CopyButton({ text, label, size }: { text: string; label?: string; size?: ButtonProps['size'] }) {
  const t = useT()
  const copy = useCopy()
  return (
    <Button size={size} icon={<CopyOutlined />} onClick={() => void copy(text)}>
      {label ?? t('common.copy')}
    </Button>
  )
}

export interface Refusal {
  text: string
  token?: string
  suggestion?: string
}

// Field puts the label, the help and what the server refused around one input, and
// ties them to it for those who hear the page.
export function Field({
  label,
  help,
  refusals = [],
  onSuggestion,
  wide,
  warn,
  children,
}: {
  label: string
  help?: ReactNode
  refusals?: Refusal[]
  onSuggestion?: (suggestion: string) => void
  wide?: boolean
  warn?: ReactNode
  children: (props: {
    id: string
    'aria-describedby': string | undefined
    'aria-invalid': boolean
    status: '' | 'error'
  }) => ReactNode
}) {
  const t = useT()
  const id = useId()
  const describedBy =
    [refusals.length > 0 && `${id}-refusal`, warn && `${id}-warn`, help && `${id}-help`].filter(Boolean).join(' ') ||
    undefined
  return (
    <div className={wide ? 'field wide' : 'field'}>
      <label htmlFor={id}>{label}</label>
      {children({
        id,
        'aria-describedby': describedBy,
        'aria-invalid': refusals.length > 0,
        status: refusals.length > 0 ? 'error' : '',
      })}
      {refusals.length > 0 && (
        <div className="refusal" id={`${id}-refusal`} role="alert">
          {refusals.map((refusal) => (
            <div key={refusal.text}>
              {refusal.text}{' '}
              {refusal.suggestion && onSuggestion && (
                <Button size="small" onClick={() => onSuggestion(refusal.suggestion ?? '')}>
                  {t('form.useSuggestion', { suggestion: refusal.suggestion })}
                </Button>
              )}
            </div>
          ))}
        </div>
      )}
      {warn && (
        <div className="warn" id={`${id}-warn`}>
          {warn}
        </div>
      )}
      {help && (
        <div className="help" id={`${id}-help`}>
          {help}
        </div>
      )}
    </div>
  )
}

export function Tabs<K extends string>({
  label,
  tabs,
  active,
  onChange,
}: {
  label: string
  tabs: { key: K; title: string }[]
  active: K
  onChange: (key: K) => void
}) {
  const move = (step: number) => {
    const at = tabs.findIndex((tab) => tab.key === active)
    const next = tabs[(at + step + tabs.length) % tabs.length]
    if (next) {
      onChange(next.key)
      document.getElementById(`tab-${next.key}`)?.focus()
    }
  }
  return (
    <div
      className="tabs"
      role="tablist"
      aria-label={label}
      onKeyDown={(event) => {
        if (event.key === 'ArrowRight') move(1)
        if (event.key === 'ArrowLeft') move(-1)
      }}
    >
      {tabs.map((tab) => (
        <button
          key={tab.key}
          id={`tab-${tab.key}`}
          type="button"
          role="tab"
          aria-selected={tab.key === active}
          tabIndex={tab.key === active ? 0 : -1}
          onClick={() => onChange(tab.key)}
        >
          {tab.title}
        </button>
      ))}
    </div>
  )
}

export function Facts({ items }: { items: [string, ReactNode][] }) {
  return (
    <dl className="facts">
      {items.map(([name, value]) => (
        <div key={name}>
          <dt>{name}</dt>
          <dd>{value}</dd>
        </div>
      ))}
    </dl>
  )
}
