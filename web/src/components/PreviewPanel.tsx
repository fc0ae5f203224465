import { useT, useText } from '../i18n/useText'
import { ErrorBox } from './basics'
import { Fires } from './Fires'
import type { PreviewState } from './usePreview'

export function PreviewPanel({ state, triggers }: { state: PreviewState; triggers: number }) {
  const t = useT()
  const text = useText()
  if (triggers === 0) return <p className="muted">{t('form.previewEmpty')}</p>
  if (state.errors.length > 0) {
    return (
      <>
        <p className="muted">{t('form.previewRefused')}</p>
        {state.errors.map((one) => (
          <p key={`${one.field}-${one.code}`} style={{ marginTop: 8, color: 'var(--bad-fg)' }}>
            {text(one.message)}
          </p>
        ))}
      </>
    )
  }
  if (state.failure) return <ErrorBox error={state.failure} />
  if (!state.preview) return <p className="muted">{t('form.previewWaiting')}</p>
  return (
    <div style={{ opacity: state.waiting ? 0.6 : 1 }} data-preview={state.waiting ? 'waiting' : 'ready'}>
      {(state.preview.warnings ?? []).map((warning) => (
        <p className="note" key={`${warning.code}-${warning.trigger}`} style={{ marginBottom: 8 }}>
          {text(warning.message)}
        </p>
      ))}
      {state.preview.fires.length === 0 ? (
        <p className="muted">{t('form.previewNone')}</p>
      ) : (
        <Fires fires={state.preview.fires} several={triggers > 1} />
      )}
    </div>
  )
}
