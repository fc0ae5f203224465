// Compresses what the build made, so that the server only picks a form. Files of 1 KiB
// and more are kept as .br and .gz alone: the binary holds each once in each form.
import { readdirSync, readFileSync, rmSync, statSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { fileURLToPath } from 'node:url'
import { brotliCompressSync, constants, gzipSync } from 'node:zlib'

const dist = fileURLToPath(new URL('../dist', import.meta.url))
const compressible = /\.(?:js|css|svg|json|txt|map)$/
let total = 0

for (const entry of readdirSync(dist, { recursive: true, withFileTypes: true })) {
  if (!entry.isFile()) continue
  const path = join(entry.parentPath, entry.name)
  // The build's own list of files is of no use to a browser.
  if (path.includes(`${join(dist, '.vite')}`)) continue
  const size = statSync(path).size
  if (!compressible.test(entry.name) || size < 1024) {
    total += size
    continue
  }
  const raw = readFileSync(path)
  const br = brotliCompressSync(raw, {
    params: { [constants.BROTLI_PARAM_QUALITY]: 11, [constants.BROTLI_PARAM_SIZE_HINT]: raw.length },
  })
  const gz = gzipSync(raw, { level: 9 })
  writeFileSync(`${path}.br`, br)
  writeFileSync(`${path}.gz`, gz)
  rmSync(path)
  total += br.length + gz.length
}

// An empty dist does not compile; this file keeps the folder in the repository.
writeFileSync(join(dist, '.keep'), '')
console.log(`compressed: ${(total / 1024).toFixed(0)} kB in the binary`)
