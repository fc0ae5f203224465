import type { Locale } from 'antd/es/locale'
import english from 'antd/locale/en_US'
import i18next from 'i18next'
import { initReactI18next } from 'react-i18next'
import { getPrefs, type Lang, setPrefs } from '../lib/prefs'
import type en from './en'

// Every text of the English dictionary, with any string as value. The other language
// is declared with it, so a missing or an extra key does not compile.
export type Dictionary = Widen<typeof en>
type Widen<T> = { [K in keyof T]: T[K] extends string ? string : Widen<T[K]> }

declare module 'i18next' {
  interface CustomTypeOptions {
    defaultNS: 'translation'
    resources: { translation: typeof en }
  }
}

// There is always one: without it antd leaves out a component around the page, and a
// change of language would build the page anew and lose what was typed.
let antdLocale: Locale = english

export function currentAntdLocale(): Locale {
  return antdLocale
}

async function load(lang: Lang): Promise<void> {
  if (lang === 'zh') {
    const [dictionary, locale] = await Promise.all([import('./zh'), import('antd/locale/zh_CN')])
    i18next.addResourceBundle('zh', 'translation', dictionary.default, true, true)
    antdLocale = locale.default
  } else {
    const dictionary = await import('./en')
    i18next.addResourceBundle('en', 'translation', dictionary.default, true, true)
    antdLocale = english
  }
}

export async function startI18n(): Promise<void> {
  const { lang } = getPrefs()
  await i18next.use(initReactI18next).init({
    lng: lang,
    fallbackLng: false,
    resources: {},
    interpolation: { escapeValue: false },
    react: { useSuspense: false },
  })
  await load(lang)
  await i18next.changeLanguage(lang)
  document.documentElement.lang = lang === 'zh' ? 'zh-CN' : 'en'
}

// setLang changes the language of everything on the page, without a reload.
export async function setLang(lang: Lang): Promise<void> {
  await load(lang)
  setPrefs({ lang })
  document.documentElement.lang = lang === 'zh' ? 'zh-CN' : 'en'
  await i18next.changeLanguage(lang)
}
