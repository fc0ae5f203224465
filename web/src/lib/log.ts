// LogBuffer holds the lines of an output. Text comes in pieces that may end anywhere.
export class LogBuffer {
  readonly lines: string[] = []
  readonly errors: number[] = []
  private open = false

  append(text: string): void {
    const parts = text.split('\n')
    for (let i = 0; i < parts.length; i++) {
      const part = clean(parts[i] ?? '')
      const last = i === parts.length - 1
      // What follows the last line end is the start of a line that is not there yet.
      if (last && part === '') {
        this.open = i === 0 ? this.open : false
        return
      }
      if (i === 0 && this.open) {
        const at = this.lines.length - 1
        const was = this.lines[at] ?? ''
        this.lines[at] = was + part
        if (!isError(was) && isError(was + part)) this.errors.push(at)
      } else {
        this.lines.push(part)
        if (isError(part)) this.errors.push(this.lines.length - 1)
      }
    }
    this.open = true
  }
}

// clean drops terminal colours and the carriage return of a Windows line end.
function clean(line: string): string {
  // biome-ignore lint/suspicious/noControlCharactersInRegex: that is what an escape sequence begins with
  return line.replace(/\u001b\[[0-9;?]*[A-Za-z]/g, '').replace(/\r$/, '')
}

const errorWord =
  /\b(?:ERROR|FATAL|SEVERE|CRITICAL|PANIC|panic:|Traceback|Caused by:|level=error)\b|\b\w*(?:Exception|Error)\b(?=[:\s]|$)|"level":"error"/

export function isError(line: string): boolean {
  return errorWord.test(line)
}

// windowOf is the range of lines to draw for a scroll position, with a margin so that
// quick scrolling shows no gaps.
export function windowOf(
  total: number,
  scrollTop: number,
  height: number,
  lineHeight: number,
  margin = 20,
): { first: number; last: number } {
  const first = Math.max(0, Math.min(total, Math.floor(scrollTop / lineHeight)) - margin)
  const last = Math.min(total, Math.ceil((scrollTop + height) / lineHeight) + margin)
  return { first, last }
}
