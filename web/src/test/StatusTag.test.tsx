import { render, screen } from '@testing-library/react'
import { expect, test } from 'vitest'
import { batchStates, executorStates } from '../api/types'
import { looks, StatusTag } from '../components/StatusTag'
import { inLanguage } from './render'

test('a state is a word, an icon and a tone, in both languages', async () => {
  await inLanguage('en')
  const { rerender, container } = render(<StatusTag state="TIMED_OUT" />)
  expect(screen.getByText('Timed out')).toHaveClass('tag', 'tone-late')
  expect(container.querySelector('[aria-hidden=true] svg')).not.toBeNull()
  await inLanguage('zh')
  rerender(<StatusTag state="TIMED_OUT" />)
  expect(screen.getByText('已超时')).toBeInTheDocument()
})

test('a state that this build does not know is shown as it came', async () => {
  await inLanguage('en')
  render(<StatusTag state="HIBERNATING" />)
  expect(screen.getByText('HIBERNATING')).toHaveClass('tone-odd')
})

test('within a tone no two batch or executor states share an icon', () => {
  for (const states of [batchStates, executorStates]) {
    const seen = states.map((state) => looks[state]).map(({ tone, icon }) => [tone, icon] as const)
    for (const [i, [tone, icon]] of seen.entries()) {
      for (const [other, otherIcon] of seen.slice(i + 1)) expect(tone === other && icon === otherIcon).toBe(false)
    }
  }
})
