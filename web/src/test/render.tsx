import { QueryClient, QueryClientProvider } from '@tanstack/react-query'
import {
  createMemoryHistory,
  createRootRoute,
  createRoute,
  createRouter,
  Outlet,
  RouterProvider,
} from '@tanstack/react-router'
import { act, render } from '@testing-library/react'
import { App } from 'antd'
import type { ReactNode } from 'react'
import { setLang, startI18n } from '../i18n'
import type { Lang } from '../lib/prefs'

export async function inLanguage(lang: Lang): Promise<void> {
  await startI18n()
  await act(() => setLang(lang))
}

// renderPage shows a component as it stands on a page of the namespace "default".
export async function renderPage(node: ReactNode) {
  const client = new QueryClient({ defaultOptions: { queries: { retry: false } } })
  const root = createRootRoute({ component: Outlet })
  const page = createRoute({ getParentRoute: () => root, path: '/ns/$ns/jobs', component: () => node })
  const router = createRouter({
    routeTree: root.addChildren([page]),
    history: createMemoryHistory({ initialEntries: ['/ns/default/jobs'] }),
  })
  await router.load()
  return render(
    <App>
      <QueryClientProvider client={client}>
        {/* A router of its own, not the console's registered one. */}
        <RouterProvider router={router as never} />
      </QueryClientProvider>
    </App>,
  )
}

export function json(body: unknown, status = 200): Response {
  return new Response(JSON.stringify(body), { status, headers: { 'Content-Type': 'application/json' } })
}
