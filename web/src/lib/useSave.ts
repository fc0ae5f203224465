import { useState } from 'react'
import { refusedOf } from '../api/client'
import type { Invalid } from '../api/types'
import type { Refusal } from '../components/basics'
import { useT, useText } from '../i18n/useText'

// useSave sends what a form holds and keeps what the server refused, for the fields and for all.
export function useSave() {
  const t = useT()
  const text = useText()
  const [busy, setBusy] = useState(false)
  const [problem, setProblem] = useState('')
  const [errors, setErrors] = useState<Invalid[]>([])
  return {
    busy,
    problem,
    at: (field: string): Refusal[] =>
      errors
        .filter((one) => one.field === field || one.field?.startsWith(`${field}[`))
        .map((one) => ({ text: text(one.message), token: one.token, suggestion: one.suggestion })),
    async send(call: () => Promise<unknown>) {
      setBusy(true)
      setErrors([])
      setProblem('')
      try {
        await call()
      } catch (error) {
        const refused = refusedOf(error)
        setErrors(refused.errors)
        setProblem(refused.status === 0 ? t('error.unreachable') : refused.message)
      } finally {
        setBusy(false)
      }
    },
  }
}
