// Sets the theme before the first paint. A file of its own, because the content policy allows no inline script.
;(() => {
  let theme = 'system'
  try {
    theme = JSON.parse(localStorage.getItem('ax.prefs') || '{}').theme || 'system'
  } catch {
    theme = 'system'
  }
  const dark = theme === 'dark' || (theme === 'system' && window.matchMedia('(prefers-color-scheme: dark)').matches)
  document.documentElement.dataset.theme = dark ? 'dark' : 'light'
})()
