import { Link } from '@tanstack/react-router'
import { Button } from 'antd'
import { useT } from '../i18n/useText'

export function NotFound() {
  const t = useT()
  return (
    <div className="card blank">
      <title>{`${t('error.notFoundTitle')} · ax`}</title>
      <h1>{t('error.notFoundTitle')}</h1>
      <p>{t('error.notFound')}</p>
      <p>
        <Link to="/">{t('error.home')}</Link>
      </p>
    </div>
  )
}

// An old tab asks for a chunk that a newer build no longer has.
function isMissingChunk(error: Error): boolean {
  return /dynamically imported module|module script failed|preload/i.test(error.message)
}

export function Crash({ error }: { error: Error }) {
  const t = useT()
  const newer = isMissingChunk(error)
  return (
    <div className="card blank" role="alert">
      <h1>{newer ? t('app.newVersion') : t('error.crashTitle')}</h1>
      {!newer && (
        <>
          <p>{t('error.crash')}</p>
          <pre>{error.message}</pre>
        </>
      )}
      <Button type="primary" onClick={() => window.location.reload()}>
        {t('app.reload')}
      </Button>
    </div>
  )
}
