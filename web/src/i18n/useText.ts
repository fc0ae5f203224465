import { useTranslation } from 'react-i18next'
import type { Text } from '../api/types'
import { usePrefs } from '../lib/prefs'

// useText picks the chosen language of a sentence that the server sent in both.
export function useText(): (text: Pick<Text, 'en' | 'zh'> | null | undefined) => string {
  const { lang } = usePrefs()
  return (text) => (text ? text[lang] || text.en : '')
}

export function useT() {
  return useTranslation().t
}
