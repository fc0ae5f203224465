// Fails the build when what a first visit loads, or the whole console, grows too big.
import { readdirSync, readFileSync, rmSync, statSync } from 'node:fs'
import { join } from 'node:path'
import { fileURLToPath } from 'node:url'

const dist = fileURLToPath(new URL('../dist', import.meta.url))
const manifest = JSON.parse(readFileSync(join(dist, '.vite/manifest.json'), 'utf8'))
const goalKB = 270
const limitKB = 290
const wholeKB = 1600

const size = (file) => {
  for (const name of [`${file}.gz`, file]) {
    try {
      return statSync(join(dist, name)).size
    } catch {
      // Small files have no compressed form.
    }
  }
  throw new Error(`${file} is not in the build`)
}

// files are what a chunk needs before it can run.
function files(key, seen = new Set()) {
  const chunk = manifest[key]
  if (!chunk || seen.has(chunk.file)) return seen
  seen.add(chunk.file)
  for (const css of chunk.css ?? []) seen.add(css)
  for (const one of chunk.imports ?? []) files(one, seen)
  return seen
}

const sum = (set) => [...set].reduce((total, file) => total + size(file), 0) / 1000
const entry = Object.keys(manifest).find((key) => manifest[key].isEntry)
const first = files(entry)
// One dictionary is loaded before anything is drawn: count the bigger.
const dictionaries = ['src/i18n/en.ts', 'src/i18n/zh.ts'].map((key) => {
  const own = [...files(key)].filter((file) => !first.has(file))
  return sum(new Set(own))
})
const initial = sum(first) + Math.max(...dictionaries)
console.log(`initial JS + CSS: ${initial.toFixed(1)} kB gzip (goal ${goalKB}, limit ${limitKB})`)
for (const key of Object.keys(manifest).filter((one) => one.startsWith('src/pages/'))) {
  const own = [...files(key)].filter((file) => !first.has(file))
  console.log(`  ${key.replace('src/pages/', '').padEnd(18)} + ${sum(new Set(own)).toFixed(1)} kB`)
}

let whole = 0
for (const one of readdirSync(dist, { recursive: true, withFileTypes: true })) {
  if (one.isFile() && !one.parentPath.endsWith('.vite')) whole += statSync(join(one.parentPath, one.name)).size / 1000
}
console.log(`whole console: ${whole.toFixed(0)} kB (limit ${wholeKB})`)
rmSync(join(dist, '.vite'), { recursive: true })

const problems = []
if (initial > limitKB) problems.push(`the first visit loads ${initial.toFixed(1)} kB, more than ${limitKB}`)
if (whole > wholeKB) problems.push(`the console is ${whole.toFixed(0)} kB, more than ${wholeKB}`)
for (const problem of problems) console.error(problem)
process.exit(problems.length > 0 ? 1 : 0)
