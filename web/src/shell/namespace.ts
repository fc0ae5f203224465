import { useQuery } from '@tanstack/react-query'
import { useParams } from '@tanstack/react-router'
import { meQuery } from '../api/queries'

export function useNamespace(): string {
  return useParams({ strict: false }).ns ?? ''
}

// useCan tells whether the person may do a thing here. The server decides again at each call.
export function useCan(): (permission: string) => boolean {
  const namespace = useNamespace()
  const { data } = useQuery(meQuery)
  return (permission) => {
    if (!data) return false
    if (data.platformAdmin) return true
    const can = data.namespaces.find((one) => one.name === namespace)?.can ?? []
    const [noun] = permission.split('.')
    return can.some((one) => one === permission || one === '*' || one === `${noun}.*`)
  }
}
