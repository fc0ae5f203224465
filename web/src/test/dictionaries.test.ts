import { expect, test } from 'vitest'
import en from '../i18n/en'
import zh from '../i18n/zh'

function flat(value: object, path = ''): Map<string, string> {
  const out = new Map<string, string>()
  for (const [key, one] of Object.entries(value)) {
    const at = path ? `${path}.${key}` : key
    if (typeof one === 'string') out.set(at, one)
    else for (const [inner, text] of flat(one as object, at)) out.set(inner, text)
  }
  return out
}

const placeholders = (text: string) => [...text.matchAll(/\{\{(\w+)\}\}/g)].map((match) => match[1]).sort()

test('both dictionaries have the same keys, each with a text', () => {
  const [a, b] = [flat(en), flat(zh)]
  expect([...b.keys()].sort()).toEqual([...a.keys()].sort())
  for (const [key, text] of [...a, ...b]) expect(text.trim(), key).not.toBe('')
})

test('both sentences of a key speak of the same values', () => {
  const translated = flat(zh)
  for (const [key, text] of flat(en)) expect(placeholders(translated.get(key) ?? ''), key).toEqual(placeholders(text))
})

test('no Chinese in the English texts', () => {
  for (const [key, text] of flat(en)) expect(text, key).not.toMatch(/[\u4e00-\u9fff]/)
})

test('states have the words of the glossary', () => {
  expect(zh.state).toMatchObject({
    WAITING: '待执行',
    DELAYED: '延迟中',
    DISPATCHING: '派发中',
    RUNNING: '执行中',
    SUCCEEDED: '执行成功',
    FAILED: '执行失败',
    CANCELLED: '已取消',
    TIMED_OUT: '已超时',
    SKIPPED: '已跳过',
    MISSED: '已错过',
    UNKNOWN: '状态未知',
    READY: '就绪',
  })
})
