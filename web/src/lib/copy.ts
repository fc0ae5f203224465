// copyText also works on plain http, where the browser has no clipboard API.
export async function copyText(text: string): Promise<boolean> {
  if (window.isSecureContext && navigator.clipboard) {
    try {
      await navigator.clipboard.writeText(text)
      return true
    } catch {
      // Permission denied: the old way below needs none.
    }
  }
  const area = document.createElement('textarea')
  area.value = text
  area.readOnly = true
  area.className = 'offscreen'
  const focused = document.activeElement
  document.body.append(area)
  area.select()
  let copied = false
  try {
    copied = document.execCommand('copy')
  } catch {
    copied = false
  }
  area.remove()
  if (focused instanceof HTMLElement) focused.focus()
  return copied
}
