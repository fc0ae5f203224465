import { useQueryClient } from '@tanstack/react-query'
import { App } from 'antd'
import { useT } from '../i18n/useText'
import { useCan } from '../shell/namespace'
import { Guarded } from './basics'
import { useShowError } from './mutations'

// Remove asks before it deletes, says why when that is refused, and lets the list be read again.
export function Remove({
  permission,
  ask,
  call,
  list,
}: {
  permission: string
  ask: string
  call: () => Promise<unknown>
  list: string[]
}) {
  const t = useT()
  const can = useCan()
  const client = useQueryClient()
  const showError = useShowError()
  const { modal } = App.useApp()
  return (
    <Guarded
      allowed={can(permission)}
      permission={permission}
      size="small"
      danger
      onClick={() =>
        modal.confirm({
          title: ask,
          okText: t('common.delete'),
          cancelText: t('common.cancel'),
          okButtonProps: { danger: true },
          onOk: async () => {
            try {
              await call()
            } catch (error) {
              showError(error)
            }
            await client.invalidateQueries({ queryKey: list })
          },
        })
      }
    >
      {t('common.delete')}
    </Guarded>
  )
}
