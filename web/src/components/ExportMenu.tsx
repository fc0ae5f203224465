import DownloadOutlined from '@ant-design/icons/DownloadOutlined'
import { App, Button, Dropdown } from 'antd'
import { useState } from 'react'
import { refusedOf } from '../api/client'
import { exportCap } from '../api/queries'
import { useT } from '../i18n/useText'
import { downloadCSV, downloadJSON } from '../lib/download'

export function ExportMenu<T>({
  name,
  load,
  header,
  row,
}: {
  name: string
  load: () => Promise<{ rows: T[]; capped: boolean }>
  header: string[]
  row: (item: T) => unknown[]
}) {
  const t = useT()
  const { message } = App.useApp()
  const [busy, setBusy] = useState(false)

  async function run(kind: string) {
    setBusy(true)
    try {
      const { rows, capped } = await load()
      if (kind === 'csv') downloadCSV(`${name}.csv`, header, rows.map(row))
      else downloadJSON(`${name}.json`, rows)
      if (capped) message.warning(t('common.exportCapped', { count: exportCap }))
      else message.success(t('common.exported', { count: rows.length }))
    } catch (error) {
      message.error(refusedOf(error).message || t('error.unreachable'))
    } finally {
      setBusy(false)
    }
  }

  return (
    <Dropdown
      trigger={['click']}
      menu={{
        items: [
          { key: 'csv', label: t('common.exportCSV') },
          { key: 'json', label: t('common.exportJSON') },
        ],
        onClick: ({ key }) => void run(key),
      }}
    >
      <Button icon={<DownloadOutlined />} loading={busy} aria-haspopup="menu">
        {t('common.export')}
      </Button>
    </Dropdown>
  )
}
