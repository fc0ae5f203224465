import { QueryClient, QueryClientProvider } from '@tanstack/react-query'
import { RouterProvider } from '@tanstack/react-router'
import { App, ConfigProvider, theme } from 'antd'
import { StrictMode, useEffect } from 'react'
import { createRoot } from 'react-dom/client'
import { refusedOf } from './api/client'
import { onSession, resume, signedIn } from './api/session'
import { currentAntdLocale, startI18n } from './i18n'
import { useDark, usePrefs } from './lib/prefs'
import { makeRouter } from './router'
import './styles.css'

const nonce = document.querySelector<HTMLMetaElement>('meta[name=csp-nonce]')?.content ?? ''

// Two helpers of antd make style elements without the nonce that the content policy asks for.
if (nonce) {
  const create = document.createElement.bind(document)
  document.createElement = ((name: string, options?: ElementCreationOptions) => {
    const element = create(name, options)
    if (name.toLowerCase() === 'style') element.setAttribute('nonce', nonce)
    return element
  }) as typeof document.createElement
}

const client = new QueryClient({
  defaultOptions: {
    queries: {
      staleTime: 2_000,
      refetchOnWindowFocus: true,
      // A refusal stays a refusal; a server that is away may come back.
      retry: (count, error) => count < 2 && [0, 502, 503, 504].includes(refusedOf(error).status),
    },
  },
})

const router = makeRouter(client)

onSession(() => {
  if (signedIn()) return
  const { pathname, href } = router.state.location
  const left =
    pathname === '/login' || pathname === '/setup'
      ? Promise.resolve()
      : router.navigate({ to: '/login', search: { to: href === '/' ? undefined : href } })
  // Only now: what is still on the page would ask again for what it lost.
  void left.then(() => client.clear())
})

// The algorithm darkens the red of errors below what can be read on a dark ground.
const darkComponents = {
  Button: {
    colorError: '#ff8f88',
    colorErrorHover: '#ffaaa4',
    dangerColor: '#2b0b0a',
    defaultHoverColor: '#a9c5ff',
    defaultHoverBorderColor: '#8db2ff',
    defaultActiveColor: '#8db2ff',
    defaultActiveBorderColor: '#8db2ff',
  },
  Dropdown: { colorError: '#ff8f88' },
}

const still = window.matchMedia('(prefers-reduced-motion: reduce)').matches

const light = {
  colorPrimary: '#2356c7',
  colorPrimaryHover: '#2f63d6',
  colorLink: '#1d4fbf',
  colorLinkHover: '#2f63d6',
  colorTextDescription: '#566074',
  colorTextPlaceholder: '#667085',
  colorError: '#c02626',
  colorErrorHover: '#a31f1f',
  colorErrorBorderHover: '#a31f1f',
}
const dark = {
  // Lighter when pointed at would be too light for white letters.
  colorPrimary: '#3a6fdd',
  colorPrimaryHover: '#3364cf',
  colorPrimaryActive: '#2c58b8',
  colorLink: '#8db2ff',
  colorTextDescription: '#a3adbf',
  colorTextPlaceholder: '#98a2b3',
  colorError: '#e5534b',
  colorBgBase: '#10141b',
  colorBgContainer: '#181d26',
  colorBgElevated: '#1f2631',
  colorBorder: '#414b5c',
  colorBorderSecondary: '#2a313e',
}

function Root() {
  const isDark = useDark()
  // The locale object changes together with the language.
  usePrefs()
  useEffect(() => {
    document.documentElement.dataset.theme = isDark ? 'dark' : 'light'
  }, [isDark])
  return (
    <ConfigProvider
      csp={{ nonce }}
      locale={currentAntdLocale()}
      button={{ autoInsertSpace: false }}
      theme={{
        algorithm: isDark ? theme.darkAlgorithm : theme.defaultAlgorithm,
        token: { ...(isDark ? dark : light), borderRadius: 6, fontFamily: 'inherit', motion: !still },
        components: isDark ? darkComponents : {},
      }}
    >
      <App component={false}>
        <QueryClientProvider client={client}>
          <RouterProvider router={router} />
        </QueryClientProvider>
      </App>
    </ConfigProvider>
  )
}

async function start(): Promise<void> {
  await Promise.all([startI18n(), resume()])
  const element = document.getElementById('root')
  if (element) {
    createRoot(element).render(
      <StrictMode>
        <Root />
      </StrictMode>,
    )
  }
}

void start()
