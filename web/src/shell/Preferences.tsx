import { useQueryClient } from '@tanstack/react-query'
import { setLang } from '../i18n'
import { useT } from '../i18n/useText'
import { type Lang, setPrefs, type Theme, usePrefs, type ZoneChoice } from '../lib/prefs'
import { localZone } from '../lib/time'

export function LanguageSelect() {
  const t = useT()
  const { lang } = usePrefs()
  const client = useQueryClient()
  return (
    <select
      className="select"
      aria-label={t('pref.language')}
      value={lang}
      onChange={async (event) => {
        await setLang(event.target.value as Lang)
        // What the server words is in the old language until it is asked again.
        await client.invalidateQueries()
      }}
    >
      <option value="zh" lang="zh-CN">
        中文
      </option>
      <option value="en" lang="en">
        English
      </option>
    </select>
  )
}

export function ThemeSelect() {
  const t = useT()
  const { theme } = usePrefs()
  return (
    <select
      className="select"
      aria-label={t('pref.theme')}
      value={theme}
      onChange={(event) => setPrefs({ theme: event.target.value as Theme })}
    >
      <option value="light">{t('pref.themeLight')}</option>
      <option value="dark">{t('pref.themeDark')}</option>
      <option value="system">{t('pref.themeSystem')}</option>
    </select>
  )
}

export function ZoneSelect() {
  const t = useT()
  const { zone } = usePrefs()
  return (
    <select
      className="select"
      aria-label={t('pref.zone')}
      value={zone}
      onChange={(event) => setPrefs({ zone: event.target.value as ZoneChoice })}
    >
      <option value="local">{`${t('pref.zoneLocal')} (${localZone})`}</option>
      <option value="utc">{t('pref.zoneUtc')}</option>
      <option value="job">{t('pref.zoneJob')}</option>
    </select>
  )
}
