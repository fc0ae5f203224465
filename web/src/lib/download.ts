export function download(name: string, type: string, ...parts: BlobPart[]): void {
  const url = URL.createObjectURL(new Blob(parts, { type }))
  const link = document.createElement('a')
  link.href = url
  link.download = name
  document.body.append(link)
  link.click()
  link.remove()
  // The click has started the download; Firefox still needs the URL for a moment.
  setTimeout(() => URL.revokeObjectURL(url), 10_000)
}

// csvCell quotes a value, and disarms one that a spreadsheet would run as a formula.
export function csvCell(value: unknown): string {
  let text = value === null || value === undefined ? '' : String(value)
  if (typeof value === 'string' && /^[=+\-@\t\r]/.test(text)) text = `'${text}`
  return /[",\r\n]/.test(text) ? `"${text.replaceAll('"', '""')}"` : text
}

export function toCSV(header: string[], rows: unknown[][]): string {
  return [header, ...rows].map((row) => row.map(csvCell).join(',')).join('\r\n')
}

// The mark tells spreadsheets that the file is UTF-8.
export function downloadCSV(name: string, header: string[], rows: unknown[][]): void {
  download(name, 'text/csv;charset=utf-8', '\ufeff', toCSV(header, rows))
}

export function downloadJSON(name: string, value: unknown): void {
  download(name, 'application/json', JSON.stringify(value, null, 2))
}
