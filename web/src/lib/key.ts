// freshKey is an idempotency key. Made once per dialog it lets a repeated click, or a retry after a lost answer,
// have one effect only. crypto.randomUUID is absent on plain http.
export function freshKey(): string {
  const bytes = crypto.getRandomValues(new Uint8Array(16))
  return Array.from(bytes, (byte) => byte.toString(16).padStart(2, '0')).join('')
}
