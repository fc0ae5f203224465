// Where the console is served: "/" or a prefix that ends in a slash. The server
// writes it into <base href>, so one build serves under any prefix.
export const basePath = new URL(document.baseURI).pathname.replace(/[^/]*$/, '')

// baseURL is the origin and the prefix, without the last slash.
export const baseURL = new URL(basePath, window.location.origin).href.replace(/\/$/, '')
