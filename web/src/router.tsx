import type { QueryClient } from '@tanstack/react-query'
import {
  createRootRouteWithContext,
  createRoute,
  createRouter,
  lazyRouteComponent,
  Outlet,
  redirect,
} from '@tanstack/react-router'
import { meQuery } from './api/queries'
import { signedIn } from './api/session'
import { basePath } from './lib/base'
import { getPrefs } from './lib/prefs'
import {
  auditSearch,
  batchDetailSearch,
  batchSearch,
  delayedSearch,
  executorSearch,
  jobDetailSearch,
  jobSearch,
  loginSearch,
  newJobSearch,
  parseSearch,
  setupSearch,
  stringifySearch,
} from './lib/search'
import { Crash, NotFound } from './shell/errors'
import { Forbidden, Shell } from './shell/Shell'

const root = createRootRouteWithContext<{ client: QueryClient }>()({ component: Outlet })

function needSession(href: string): void {
  if (!signedIn()) throw redirect({ to: '/login', search: { to: href === '/' ? undefined : href } })
}

const index = createRoute({
  getParentRoute: () => root,
  path: '/',
  beforeLoad: async ({ context, location }) => {
    needSession(location.href)
    const me = await context.client.ensureQueryData(meQuery)
    const names = me.namespaces.map((one) => one.name)
    const last = getPrefs().namespace
    const ns = names.includes(last) ? last : names[0]
    if (ns) throw redirect({ to: '/ns/$ns/overview', params: { ns } })
  },
  component: () => (
    <main className="door">
      <Forbidden namespace="" />
    </main>
  ),
})

const login = createRoute({
  getParentRoute: () => root,
  path: '/login',
  validateSearch: loginSearch,
  component: lazyRouteComponent(() => import('./pages/Login'), 'Login'),
})

const setup = createRoute({
  getParentRoute: () => root,
  path: '/setup',
  validateSearch: setupSearch,
  component: lazyRouteComponent(() => import('./pages/Setup'), 'Setup'),
})

const ns = createRoute({
  getParentRoute: () => root,
  path: '/ns/$ns',
  beforeLoad: ({ location }) => needSession(location.href),
  component: Shell,
})

const nsIndex = createRoute({
  getParentRoute: () => ns,
  path: '/',
  beforeLoad: ({ params }) => {
    throw redirect({ to: '/ns/$ns/overview', params })
  },
})

const overview = createRoute({
  getParentRoute: () => ns,
  path: '/overview',
  component: lazyRouteComponent(() => import('./pages/Overview'), 'Overview'),
})

const jobs = createRoute({
  getParentRoute: () => ns,
  path: '/jobs',
  validateSearch: jobSearch,
  component: lazyRouteComponent(() => import('./pages/Jobs'), 'Jobs'),
})

const newJob = createRoute({
  getParentRoute: () => ns,
  path: '/jobs/new',
  validateSearch: newJobSearch,
  component: lazyRouteComponent(() => import('./pages/JobEdit'), 'NewJob'),
})

const job = createRoute({
  getParentRoute: () => ns,
  path: '/jobs/$id',
  validateSearch: jobDetailSearch,
  component: lazyRouteComponent(() => import('./pages/JobDetail'), 'JobDetail'),
})

const editJob = createRoute({
  getParentRoute: () => ns,
  path: '/jobs/$id/edit',
  component: lazyRouteComponent(() => import('./pages/JobEdit'), 'EditJob'),
})

const executions = createRoute({
  getParentRoute: () => ns,
  path: '/executions',
  validateSearch: batchSearch,
  component: lazyRouteComponent(() => import('./pages/Executions'), 'Executions'),
})

const batch = createRoute({
  getParentRoute: () => ns,
  path: '/executions/$batchId',
  validateSearch: batchDetailSearch,
  component: lazyRouteComponent(() => import('./pages/BatchDetail'), 'BatchPage'),
})

const delayed = createRoute({
  getParentRoute: () => ns,
  path: '/delayed',
  validateSearch: delayedSearch,
  component: lazyRouteComponent(() => import('./pages/Delayed'), 'DelayedTasks'),
})

const executors = createRoute({
  getParentRoute: () => ns,
  path: '/executors',
  validateSearch: executorSearch,
  component: lazyRouteComponent(() => import('./pages/Executors'), 'Executors'),
})

const apps = createRoute({
  getParentRoute: () => ns,
  path: '/apps',
  component: lazyRouteComponent(() => import('./pages/Apps'), 'Apps'),
})

const calendars = createRoute({
  getParentRoute: () => ns,
  path: '/calendars',
  component: lazyRouteComponent(() => import('./pages/Calendars'), 'Calendars'),
})

const secrets = createRoute({
  getParentRoute: () => ns,
  path: '/secrets',
  component: lazyRouteComponent(() => import('./pages/Secrets'), 'Secrets'),
})

const limits = createRoute({
  getParentRoute: () => ns,
  path: '/limits',
  component: lazyRouteComponent(() => import('./pages/Limits'), 'Limits'),
})

const audit = createRoute({
  getParentRoute: () => ns,
  path: '/audit',
  validateSearch: auditSearch,
  component: lazyRouteComponent(() => import('./pages/Audit'), 'Audit'),
})

const people = createRoute({
  getParentRoute: () => ns,
  path: '/people',
  component: lazyRouteComponent(() => import('./pages/People'), 'People'),
})

const system = createRoute({
  getParentRoute: () => ns,
  path: '/system',
  component: lazyRouteComponent(() => import('./pages/System'), 'System'),
})

const tree = root.addChildren([
  index,
  login,
  setup,
  ns.addChildren([
    nsIndex,
    overview,
    jobs,
    newJob,
    job,
    editJob,
    executions,
    batch,
    delayed,
    executors,
    apps,
    calendars,
    limits,
    secrets,
    audit,
    people,
    system,
  ]),
])

export function makeRouter(client: QueryClient) {
  return createRouter({
    routeTree: tree,
    basepath: basePath,
    context: { client },
    parseSearch,
    stringifySearch,
    defaultPreload: 'intent',
    defaultNotFoundComponent: NotFound,
    defaultErrorComponent: ({ error }) => <Crash error={error instanceof Error ? error : new Error(String(error))} />,
  })
}

declare module '@tanstack/react-router' {
  interface Register {
    router: ReturnType<typeof makeRouter>
  }
}
