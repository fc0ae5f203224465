import { Input } from 'antd'
import { useEffect, useState } from 'react'
import { useDebounced } from './usePreview'

// TextFilter writes to the URL when the typing pauses.
export function TextFilter({
  label,
  value,
  onChange,
}: {
  label: string
  value: string
  onChange: (value: string) => void
}) {
  const [typed, setTyped] = useState(value)
  const settled = useDebounced(typed, 300)
  useEffect(() => setTyped(value), [value])
  // biome-ignore lint/correctness/useExhaustiveDependencies: only settled typing goes to the URL
  useEffect(() => {
    if (settled !== value && settled === typed) onChange(settled)
  }, [settled])
  return (
    <Input
      style={{ width: 240 }}
      allowClear
      placeholder={label}
      aria-label={label}
      value={typed}
      onChange={(event) => setTyped(event.target.value)}
    />
  )
}
