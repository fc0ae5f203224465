import type { ReactNode } from 'react'
import { Logo } from './Logo'
import { LanguageSelect, ThemeSelect } from './Preferences'

// Door is the frame of the pages outside: sign-in and setup.
export function Door({ title, children }: { title: string; children: ReactNode }) {
  return (
    <div className="door">
      <main>
        <title>{title}</title>
        <div className="card">
          <Logo />
          <h1>{title}</h1>
          {children}
        </div>
        <div className="doorprefs">
          <LanguageSelect />
          <ThemeSelect />
        </div>
      </main>
    </div>
  )
}
