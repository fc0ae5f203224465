// Writes src/api/schema.d.ts from the server's document when it is there, else from
// the console's own outline of it.
import { execFileSync } from 'node:child_process'
import { existsSync } from 'node:fs'
import { fileURLToPath } from 'node:url'

const at = (path) => fileURLToPath(new URL(path, import.meta.url))
const source = [at('../../docs/openapi.json'), at('../openapi.json')].find(existsSync)
execFileSync(at('../node_modules/.bin/openapi-typescript'), [source, '-o', at('../src/api/schema.d.ts')], {
  stdio: 'inherit',
})
