import { Select } from 'antd'
import { useT } from '../i18n/useText'
import { splitList } from '../lib/search'
import { type AnyState, StatusTag, useStateWord } from './StatusTag'

export function StateFilter<T extends AnyState>({
  states,
  value,
  onChange,
}: {
  states: readonly T[]
  value: string | undefined
  onChange: (value: string | undefined) => void
}) {
  const t = useT()
  const word = useStateWord()
  return (
    <Select
      mode="multiple"
      allowClear
      maxTagCount="responsive"
      style={{ minWidth: 200, maxWidth: 340 }}
      placeholder={t('common.state')}
      aria-label={t('common.state')}
      value={splitList(value, states)}
      onChange={(chosen: T[]) => onChange(chosen.join(',') || undefined)}
      options={states.map((state) => ({ value: state, label: word(state) }))}
      optionRender={(option) => <StatusTag state={String(option.value)} />}
      showSearch={{ optionFilterProp: 'label' }}
    />
  )
}
