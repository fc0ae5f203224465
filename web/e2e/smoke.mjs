// Walks through the console in a real browser against a running server.
//
//	AX_URL=http://127.0.0.1:8081 AX_USER=admin AX_PASSWORD=… AX_SHOTS=shots node e2e/smoke.mjs
//
// AX_NAMESPACE names the namespace to work in (default "default"). It fails on any
// console error, violation of the content policy, serious accessibility finding, or
// page that does not come. With an online executor it also watches a run's output.
import { mkdirSync, readFileSync } from 'node:fs'
import { createRequire } from 'node:module'
import { join } from 'node:path'
import { chromium } from 'playwright-core'

const base = (process.env.AX_URL ?? 'http://127.0.0.1:8081').replace(/\/?$/, '/')
const username = process.env.AX_USER ?? 'admin'
const password = process.env.AX_PASSWORD ?? ''
const ns = process.env.AX_NAMESPACE ?? 'default'
const shots = process.env.AX_SHOTS
const axe = readFileSync(createRequire(import.meta.url).resolve('axe-core/axe.min.js'), 'utf8')
if (shots) mkdirSync(shots, { recursive: true })

const failures = []
const fail = (text) => {
  failures.push(text)
  console.error(`FAIL ${text}`)
}
const say = (text) => console.log(`  ok ${text}`)

const browser = await chromium.launch({
  executablePath: process.env.AX_CHROMIUM ?? '/usr/bin/chromium',
  args: [
    '--no-sandbox',
    '--disable-gpu',
    '--disable-quic',
    '--no-first-run',
    '--disable-background-networking',
    '--disable-component-update',
    '--disable-sync',
  ],
})
const context = await browser.newContext({
  viewport: { width: 1360, height: 860 },
  locale: 'en-US',
  timezoneId: 'Asia/Shanghai',
  reducedMotion: 'reduce',
})
await context.addInitScript(() => {
  document.addEventListener('securitypolicyviolation', (event) => {
    console.error(
      `content policy: ${event.violatedDirective} ${event.blockedURI} ${event.sourceFile}:${event.lineNumber}`,
    )
  })
})
const page = await context.newPage()
page.setDefaultTimeout(30_000)

// Answers that the walk provokes on purpose: a refused schedule, a page of nothing.
const expected = [
  [422, /\/schedule\/preview$/],
  [401, /\/auth\/login$/],
  [422, /\/secrets\/smoke-\w+$/],
  [404, /\/batches\/no-such-batch$/],
  [404, /\/jobs\/999999999$/],
]
page.on('console', (message) => {
  if (message.type() !== 'error') return
  const status = Number(/status of (\d+)/.exec(message.text())?.[1])
  const url = message.location().url
  if (expected.some(([code, path]) => code === status && path.test(url.split('?')[0]))) return
  fail(`console: ${message.text()} (${url})`)
})
page.on('pageerror', (error) => fail(`script error: ${error.message}`))
page.on('dialog', (dialog) => {
  if (dialog.type() === 'beforeunload' || dialog.type() === 'confirm') void dialog.accept()
  else {
    fail(`dialog: ${dialog.message()}`)
    void dialog.dismiss()
  }
})

let token = ''
page.on('response', async (response) => {
  if (/\/auth\/(login|refresh)$/.test(response.url()) && response.ok()) {
    token = (await response.json().catch(() => ({}))).accessToken ?? token
  }
})

const words = {
  en: {
    login: 'Sign in',
    newJob: 'New job',
    name: 'Name',
    handler: 'Handler',
    badLogin: 'User name or password is wrong.',
    expr: 'Expression',
    create: 'Create',
    run: 'Run now',
    refusal: /minute.*60|60.*0-59/i,
    output: 'Output',
    overview: 'Overview',
    notFound: 'Page not found',
    forbidden: 'No access',
  },
  zh: {
    refusal: /分.*60|60.*0-59/,
    overview: '概览',
    notFound: '页面不存在',
    forbidden: '没有访问权限',
  },
}

async function pick(label, value) {
  await page
    .locator(label.map((one) => `select[aria-label="${one}"]`).join(','))
    .first()
    .selectOption(value)
}
async function language(lang) {
  await pick(['Language', '语言'], lang)
  await page.waitForFunction((want) => document.documentElement.lang.startsWith(want), lang)
}
async function colours(theme) {
  await pick(['Theme', '主题'], theme)
  await page.waitForFunction((want) => document.documentElement.dataset.theme === want, theme)
}

let shotNo = 0
async function look(name) {
  await settled()
  if (shots) {
    shotNo++
    await page.screenshot({ path: join(shots, `${String(shotNo).padStart(3, '0')}-${name}.png`) })
  }
  if (!(await page.evaluate(() => 'axe' in window))) await page.evaluate(axe)
  const found = await page.evaluate(async () => {
    const result = await window.axe.run(document, { resultTypes: ['violations'] })
    return result.violations
      .filter((one) => one.impact === 'serious' || one.impact === 'critical')
      .map(
        (one) =>
          `${one.id}: ${one.nodes
            .slice(0, 4)
            .map((node) => `${node.target.join(' ')} ${node.any[0]?.message ?? ''}`)
            .join(' | ')}`,
      )
  })
  for (const one of found) fail(`${name}: ${one}`)
  const headings = await page.locator('h1').count()
  if (headings !== 1) fail(`${name}: ${headings} h1`)
  const wide = await page.evaluate(() => document.documentElement.scrollWidth - window.innerWidth)
  if (wide > 0) fail(`${name}: the page is ${wide} px too wide`)
}

// load opens an address as a browser does, open as a link of the console does.
async function load(path) {
  await page.goto(base + path.replace(/^\//, ''))
  await page.locator('h1').first().waitFor()
  await settled()
}
async function open(path) {
  const before = await page.evaluate((url) => {
    const title = document.querySelector('h1')
    if (new URL(url).pathname !== location.pathname) title?.setAttribute('data-left', '')
    const text = title?.textContent ?? ''
    history.pushState({}, '', url)
    return text
  }, base + path.replace(/^\//, ''))
  await page.waitForFunction((old) => {
    const title = document.querySelector('h1')
    return title && (!title.hasAttribute('data-left') || title.textContent !== old)
  }, before)
  await settled()
}

// settled waits until nothing on the page is still loading or moving.
async function settled() {
  await page.waitForFunction(
    () =>
      !document.querySelector('.skeleton, [data-preview=waiting], .ant-btn-loading') &&
      document.getAnimations().every((one) => {
        const { endTime } = one.effect?.getComputedTiming() ?? {}
        return one.playState !== 'running' || endTime === Number.POSITIVE_INFINITY
      }),
  )
  await page.evaluate(
    () =>
      new Promise((resolve) => requestAnimationFrame(() => requestAnimationFrame(() => resolve(document.fonts.ready)))),
  )
}

async function call(method, path, body) {
  const response = await fetch(`${base}api/v1/${path}`, {
    method,
    headers: { ...(token && { Authorization: `Bearer ${token}` }), 'Content-Type': 'application/json' },
    body: body && JSON.stringify(body),
  }).catch(() => null)
  return response?.ok ? response.json().catch(() => null) : null
}

const jobName = `smoke-${Date.now().toString(36)}`
let jobPath = ''
let batchPath = ''
let handler = ''
let app = ''

async function walk() {
  // Sign in, from a deep link, in both themes.
  await load(`ns/${ns}/overview`)
  await page.getByLabel('User name').waitFor()
  await look('login-en-light')
  await colours('dark')
  await language('zh')
  await look('login-zh-dark')
  await colours('light')
  await language('en')
  await page.getByLabel('User name').fill(username)
  await page.getByLabel('Password', { exact: true }).fill(`not ${password}`)
  await page.getByRole('button', { name: words.en.login }).click()
  await page.getByText(words.en.badLogin).waitFor()
  await look('login-refused')
  await page.getByLabel('Password', { exact: true }).fill(password)
  await page.getByRole('button', { name: words.en.login }).click()
  await page.locator('nav.side').waitFor()
  await page.locator('h1', { hasText: words.en.overview }).waitFor()
  say('sign-in leads to the page that was asked for, a wrong password nowhere')
  await load(`ns/${ns}/overview`)
  await page.locator('h1', { hasText: words.en.overview }).waitFor()
  say('a reload stays signed in')

  const executors = (await call('GET', `namespaces/${ns}/executors`))?.items ?? []
  const offers = executors
    .filter((one) => one.state === 'ONLINE')
    .flatMap((one) => one.handlers.map((offered) => ({ app: one.app, ...offered })))
  const offer =
    offers.find((one) => one.name === 'hello' || one.name === 'healthCheck') ??
    offers.find((one) => one.kind === 'simple') ??
    offers[0]
  const apps = (await call('GET', `namespaces/${ns}/apps`))?.items ?? []
  app = offer?.app ?? apps[0]?.name ?? ''
  handler = offer?.name ?? 'hello'
  if (!app) {
    app = 'smoke-app'
    await open(`ns/${ns}/apps`)
    await page.getByRole('button', { name: 'New app' }).click()
    await page.getByRole('dialog').getByLabel('Name').fill(app)
    await page.getByRole('dialog').getByRole('button', { name: words.en.create }).click()
    await page.locator('.secret code').waitFor()
    await look('app-key')
    await page.getByRole('button', { name: 'I have stored it' }).click()
  }

  // A job with a wrong expression: refused at the field, in both languages.
  await open(`ns/${ns}/jobs`)
  await page.getByRole('button', { name: words.en.newJob }).click()
  await page.getByLabel(words.en.name, { exact: true }).fill(jobName)
  await page.getByLabel('App', { exact: true }).selectOption(app)
  await page.getByLabel(words.en.handler, { exact: true }).fill(handler)
  await page.keyboard.press('Escape')
  const expr = page.getByLabel(words.en.expr, { exact: true })
  await expr.fill('0 60 * * * ?')
  const refusal = page.locator('.field .refusal')
  await refusal.filter({ hasText: words.en.refusal }).waitFor()
  if ((await expr.getAttribute('aria-invalid')) !== 'true') fail('the refused field is not marked')
  await look('job-refused-en')
  await language('zh')
  await refusal.filter({ hasText: words.zh.refusal }).waitFor()
  await look('job-refused-zh')
  await language('en')
  say('a wrong expression is refused at its field, in English and Chinese')

  await expr.fill('0 0 * * *')
  await page.getByRole('button', { name: /^Use / }).click()
  await page.locator('[data-fire]').nth(9).waitFor()
  say(`the suggestion mends it to ${await expr.inputValue()}`)
  await expr.fill('0 30 9 ? * MON-FRI')
  await page.locator('[data-preview=ready] [data-fire*="T09:30:00"]').nth(9).waitFor()
  const fires = await page.locator('[data-fire]').allInnerTexts()
  if (fires.length !== 10 || !fires.every((one) => /(Mon|Tue|Wed|Thu|Fri).*[+-]\d\d:\d\d/.test(one))) {
    fail(`ten firings with weekday and offset: ${fires.join(' / ')}`)
  }
  await look('job-preview')
  await page.locator('button[type=submit]').click()
  await page.locator('h1', { hasText: jobName }).waitFor()
  jobPath = new URL(page.url()).pathname.slice(new URL(base).pathname.length)
  say('ten firings, and the job is created')

  // Run it, and follow its output.
  await page.locator('.pagehead').getByRole('button', { name: words.en.run }).click()
  await page.getByRole('dialog').waitFor()
  await look('run-now')
  await page.getByRole('dialog').getByRole('button', { name: words.en.run }).click()
  await page.getByRole('button', { name: 'Open', exact: true }).click()
  await page.waitForURL(/\/executions\/.+/)
  await page.locator('h1', { hasText: 'Batch' }).waitFor()
  batchPath = new URL(page.url()).pathname.slice(new URL(base).pathname.length)
  if (offer) {
    await page.locator('.logline').first().waitFor({ timeout: 60_000 })
    await look('batch-live')
    await page.locator('.pagehead [data-state=SUCCEEDED]').waitFor({ timeout: 120_000 })
    say('the run is seen, its output comes, it ends')
  } else {
    console.log('  -- no executor is online: the output is not looked at')
  }

  // Edit: what changes is shown before it is saved.
  await open(`${jobPath}/edit`)
  await page.getByLabel('Timeout of a run').fill('45s')
  await page.locator('button[type=submit]').click()
  await page.getByRole('dialog').getByText('45s').waitFor()
  await look('job-diff')
  await page.getByRole('dialog').getByRole('button', { name: 'Save these changes' }).click()
  // The page leads on by itself; whoever goes elsewhere before that is brought back.
  await page.waitForURL((url) => !url.pathname.endsWith('/edit'))
  await page.locator('h1', { hasText: jobName }).waitFor()
  await settled()
  say('the difference is shown before saving')

  // A secret is made, and its value is nowhere on the page; a limit is made by the API.
  await open(`ns/${ns}/secrets`)
  await page.getByRole('button', { name: 'New secret' }).click()
  const dialog = page.getByRole('dialog')
  await dialog.getByLabel('Name').fill(jobName)
  await dialog.getByLabel('Value').fill('short')
  await dialog.getByRole('button', { name: words.en.create }).click()
  await dialog.getByText('A secret has 6 to 4096 bytes').first().waitFor()
  await look('secret-new')
  await dialog.getByLabel('Value').fill('walked-by-in-silence')
  await dialog.getByRole('button', { name: words.en.create }).click()
  await page.getByRole('cell', { name: jobName, exact: true }).waitFor()
  if ((await page.content()).includes('walked-by-in-silence')) fail('the value of a secret is on the page')
  await call('POST', `namespaces/${ns}/jobs/${/jobs\/([^/]+)$/.exec(jobPath)[1]}/delayed`, {
    delay: '36h',
    key: 'order-4711',
    payload: { order: 4711 },
  })
  await call('PUT', `namespaces/${ns}/limits/${jobName}`, { max: 3, rate: 10 })
  say('a secret is made, and its value is not seen again')

  const failed = (await call('GET', `namespaces/${ns}/batches?state=FAILED&limit=1`))?.items?.[0]
  const pages = [
    ['overview', `ns/${ns}/overview`],
    ['jobs', `ns/${ns}/jobs`],
    ['job-new', `ns/${ns}/jobs/new`],
    ['job', jobPath],
    ['job-executions', `${jobPath}?tab=executions`],
    ['job-definition', `${jobPath}?tab=definition`],
    ['job-edit', `${jobPath}/edit`],
    ['executions', `ns/${ns}/executions`],
    ['executions-filtered', `ns/${ns}/executions?state=FAILED,TIMED_OUT&range=7d`],
    ['batch', batchPath],
    ['batch-data', `${batchPath}?tab=data`],
    ['batch-events', `${batchPath}?tab=events`],
    ...(failed ? [['batch-failed', `ns/${ns}/executions/${failed.batchId}`]] : []),
    ['delayed', `ns/${ns}/delayed`],
    ['executors', `ns/${ns}/executors`],
    ['apps', `ns/${ns}/apps`],
    ['job-versions', `${jobPath}?tab=versions`],
    ['calendars', `ns/${ns}/calendars`],
    ['limits', `ns/${ns}/limits`],
    ['secrets', `ns/${ns}/secrets`],
    ['audit', `ns/${ns}/audit`],
    ['people', `ns/${ns}/people`],
    ['system', `ns/${ns}/system`],
  ]
  for (const lang of ['en', 'zh']) {
    for (const theme of ['light', 'dark']) {
      await language(lang)
      await colours(theme)
      for (const [name, path] of pages) {
        await open(path)
        await look(`${name}-${lang}-${theme}`)
      }
      // What opens over a page.
      await open(`${jobPath}?tab=versions`)
      await page.locator('table.data button').first().click()
      await page.getByRole('dialog').locator('table.data').waitFor()
      await look(`over-changes-${lang}-${theme}`)
      await open(`ns/${ns}/people`)
      await page.locator('.pagehead .ant-btn-primary').click()
      await page.getByRole('dialog').locator('input').first().waitFor()
      await look(`over-person-${lang}-${theme}`)
      await open(`ns/${ns}/jobs`)
      await page.locator('table.data button[aria-haspopup=menu]').first().click()
      await page.getByRole('menuitem').first().waitFor()
      await look(`over-row-menu-${lang}-${theme}`)
      await open(`ns/${ns}/executions`)
      await page.locator('search .ant-select').click()
      await page.locator('.ant-select-item').first().waitFor()
      await look(`over-select-${lang}-${theme}`)
      await page.keyboard.press('Escape')
      await page.locator('search button[aria-expanded]').last().click()
      await page.locator('input[type=datetime-local]').first().waitFor()
      await look(`over-range-${lang}-${theme}`)
      await open(`ns/${ns}/audit`)
      await page.locator('table.data tbody button').first().click()
      await page.locator('.ant-drawer-body dl').waitFor()
      await look(`over-drawer-${lang}-${theme}`)
      await open(jobPath)
      await page.locator('.pagehead button.ant-btn-dangerous').click()
      await page.getByRole('dialog').waitFor()
      await look(`over-confirm-${lang}-${theme}`)
      await open(`ns/${ns}/nothing-here`)
      await page.locator('h1', { hasText: words[lang].notFound }).waitFor()
      await look(`not-found-${lang}-${theme}`)
      await open(`ns/${ns}/executions/no-such-batch`)
      await page.locator('h1', { hasText: words[lang].notFound }).waitFor()
      await open('ns/no-such-namespace/overview')
      await page
        .locator('h1', { hasText: words[lang].forbidden })
        .waitFor()
        .catch(() => fail(`no refusal page in ${lang}`))
      await look(`forbidden-${lang}-${theme}`)
      await open(`ns/${ns}/overview`)
      say(`every page, ${lang}, ${theme}`)
    }
  }
  await language('en')
  await colours('light')

  // Small screens, and the keyboard's way in.
  await page.setViewportSize({ width: 390, height: 844 })
  await open(failed ? `ns/${ns}/executions/${failed.batchId}` : batchPath)
  await look('small-batch')
  await open(`ns/${ns}/jobs`)
  await look('small-jobs')
  await page.setViewportSize({ width: 1280, height: 720 })
  await load(`ns/${ns}/jobs`)
  await page.keyboard.press('Tab')
  if ((await page.evaluate(() => document.activeElement?.className)) !== 'skip')
    fail('the first stop is not the skip link')
  await page.keyboard.press('Enter')
  if ((await page.evaluate(() => document.activeElement?.tagName)) !== 'MAIN')
    fail('the skip link does not lead to the content')
  say('small screen and skip link')

  await otherClocks()

  // Nothing of the session is where scripts could keep it.
  const kept = await page.evaluate(() => JSON.stringify({ ...localStorage, ...sessionStorage }))
  if (token && kept.includes(token)) fail('the access token is in the storage')
  await page.getByRole('button', { name: 'Sign out' }).click()
  await page.getByLabel('User name').waitFor()
  say('sign-out leads to the sign-in page')
}

// C404: a browser in Los Angeles, a job in Shanghai. Every time says its offset, and a page has one clock: the job's on pages about
// one job, local time elsewhere, and what the reader chose wherever they are.
async function otherClocks() {
  const far = await browser.newContext({ locale: 'en-US', timezoneId: 'America/Los_Angeles', reducedMotion: 'reduce' })
  const there = await far.newPage()
  there.setDefaultTimeout(30_000)
  const local = await there.evaluate(() => {
    const minutes = -new Date().getTimezoneOffset()
    return `${minutes < 0 ? '-' : '+'}${String(Math.abs(minutes) / 60).padStart(2, '0')}:00`
  })
  if (local !== '-08:00' && local !== '-07:00') fail(`the browser is not in Los Angeles: ${local}`)
  await there.goto(`${base}${jobPath.replace(/^\//, '')}`)
  await there.getByLabel('User name').fill(username)
  await there.getByLabel('Password', { exact: true }).fill(password)
  await there.getByRole('button', { name: words.en.login }).click()
  await there.locator('nav.side').waitFor() // signed in: before that a page asks for it again
  for (const [choice, path, want] of [
    ['job', jobPath, ['+08:00']],
    ['utc', jobPath, ['+00:00']],
    ['local', jobPath, ['-08:00', '-07:00']],
    ['job', `ns/${ns}/executions`, ['-08:00', '-07:00']],
  ]) {
    await there.goto(`${base}${path.replace(/^\//, '')}`)
    await there.locator('select[aria-label="Times shown in"]').first().selectOption(choice)
    await there.locator('time .offset').first().waitFor()
    await there.waitForFunction(() => !document.querySelector('.skeleton, [data-preview=waiting]'))
    const shown = await there.evaluate(() =>
      [...document.querySelectorAll('time')].map(
        (one) => one.querySelector('.offset')?.textContent ?? `none: ${one.textContent}`,
      ),
    )
    const other = shown.filter((one) => !want.includes(one))
    if (shown.length === 0 || other.length > 0)
      fail(`times in ${choice} on ${path}: ${[...new Set(other)].join(', ')} of ${shown.length}`)
  }
  await far.close()
  say('every time says its offset, and a page has one clock')
}

try {
  await walk()
} catch (error) {
  fail(error.stack ?? String(error))
  if (shots) await page.screenshot({ path: join(shots, '999-at-failure.png') }).catch(() => {})
} finally {
  // The walk leaves nothing behind but the app that it may have needed. It has signed
  // out, so it needs a token of its own for that.
  token = (await call('POST', 'auth/login', { username, password }))?.accessToken ?? token
  const id = /jobs\/([^/]+)$/.exec(jobPath)?.[1]
  const job = id && (await call('GET', `namespaces/${ns}/jobs/${id}`))
  if (job) await call('DELETE', `namespaces/${ns}/jobs/${id}?version=${job.version}`)
  await call('DELETE', `namespaces/${ns}/secrets/${jobName}`)
  await call('DELETE', `namespaces/${ns}/limits/${jobName}`)
  await browser.close()
}
console.log(failures.length === 0 ? 'smoke: passed' : `smoke: ${failures.length} failures`)
process.exit(failures.length === 0 ? 0 : 1)
