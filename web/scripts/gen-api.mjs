// Writes src/api/schema.d.ts from the server's document.
import { execFileSync } from 'node:child_process'
import { fileURLToPath } from 'node:url'

const at = (path) => fileURLToPath(new URL(path, import.meta.url))
const source = at('../../docs/openapi.json')
execFileSync(at('../node_modules/.bin/openapi-typescript'), [source, '-o', at('../src/api/schema.d.ts')], {
  stdio: 'inherit',
})
