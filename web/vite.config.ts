import react from '@vitejs/plugin-react'
import { defineConfig } from 'vitest/config'

export default defineConfig({
  base: './',
  plugins: [react()],
  build: {
    target: 'es2022',
    manifest: true,
    chunkSizeWarningLimit: 1024,
    // What a stylesheet or a script refers to stays a file of its own: the content
    // policy allows no inline script, and data URLs only for images.
    assetsInlineLimit: 0,
  },
  server: { proxy: { '/api': process.env.AX_API ?? 'http://127.0.0.1:8081' } },
  test: {
    testTimeout: 30_000,
    environment: 'jsdom',
    globals: true,
    setupFiles: ['src/test/setup.ts'],
    css: false,
  },
})
