// Package web serves the console.
//
// The console is a single-page application that is built into dist and embedded.
// This package knows files, headers and addresses; what the pages ask the server is
// the business of package server/api.
package web

import (
	"bytes"
	"compress/gzip"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"html"
	"io"
	"io/fs"
	"mime"
	"net/http"
	"path"
	"slices"
	"strconv"
	"strings"
)

const indexFile = "index.html"

// Options say how the console is served. The zero value serves the embedded build
// at "/".
type Options struct {
	// FS holds the built files. Nil means those embedded in the binary.
	FS fs.FS

	// BasePath is the prefix under which the console lives, such as "/ax/console/".
	// It is what browsers see. A request may reach the handler with the prefix, or
	// without when a proxy has taken it off. Default "/".
	BasePath string

	// TLS tells that browsers reach the console over HTTPS, directly or through a
	// proxy. It adds Strict-Transport-Security. Default false.
	TLS bool

	// FrameAncestors is the source list of who may show the console in a frame.
	// Default 'none'.
	FrameAncestors string
}

// Handler serves the console: its files, and its one page for every address that is
// neither a file nor the server's own. It answers GET and HEAD only, may be called at
// once from many goroutines, and reads all files when it is made.
func Handler(opts Options) http.Handler {
	files := opts.FS
	if files == nil {
		files = Dist()
	}
	h := &handler{
		base:      cleanBase(opts.BasePath),
		tls:       opts.TLS,
		ancestors: opts.FrameAncestors,
		assets:    map[string]*asset{},
	}
	if h.ancestors == "" {
		h.ancestors = "'none'"
	}
	if index, err := fs.ReadFile(files, indexFile); err == nil {
		h.index = index
		h.load(files)
	}
	return h
}

type handler struct {
	base      string // begins and ends with a slash
	tls       bool
	ancestors string
	index     []byte // nil when there is no build
	assets    map[string]*asset
}

// asset is one file in the forms in which it may be sent.
type asset struct {
	raw, br, gz []byte
	contentType string
	etag        string
}

// load reads every file once. A name with .br or .gz is a form of the file without
// that ending, never a file of its own.
func (h *handler) load(files fs.FS) {
	_ = fs.WalkDir(files, ".", func(name string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() || name == indexFile || strings.HasPrefix(path.Base(name), ".") {
			return nil
		}
		content, err := fs.ReadFile(files, name)
		if err != nil {
			return nil
		}
		ext := path.Ext(name)
		plain := name
		if ext == ".br" || ext == ".gz" {
			plain = strings.TrimSuffix(name, ext)
		}
		a := h.assets[plain]
		if a == nil {
			a = &asset{contentType: contentType(plain)}
			h.assets[plain] = a
		}
		switch ext {
		case ".br":
			a.br = content
		case ".gz":
			a.gz = content
		default:
			a.raw = content
		}
		return nil
	})
	for name, a := range h.assets {
		if a.raw == nil && a.gz == nil {
			// Nothing is left for a client that takes no Brotli.
			delete(h.assets, name)
			continue
		}
		sum := sha256.New()
		for _, form := range [][]byte{a.raw, a.gz} {
			sum.Write(form)
		}
		a.etag = hex.EncodeToString(sum.Sum(nil)[:12])
	}
}

// contentType does not ask the machine's own tables: they differ, and nosniff makes a
// browser refuse a script with the wrong type.
func contentType(name string) string {
	switch path.Ext(name) {
	case ".js", ".mjs":
		return "text/javascript; charset=utf-8"
	case ".css":
		return "text/css; charset=utf-8"
	case ".svg":
		return "image/svg+xml"
	case ".json", ".map":
		return "application/json"
	case ".png":
		return "image/png"
	case ".ico":
		return "image/x-icon"
	case ".woff2":
		return "font/woff2"
	case ".txt":
		return "text/plain; charset=utf-8"
	case ".webmanifest":
		return "application/manifest+json"
	}
	if t := mime.TypeByExtension(path.Ext(name)); t != "" {
		return t
	}
	return "application/octet-stream"
}

// serverPaths are the server's own. A mistyped one must be a 404 for the program that
// asked, never a page for people.
var serverPaths = []string{"api", "ax", "actuator", "metrics", "livez", "readyz"} //nolint:gochecknoglobals // a table that nothing writes

func isServerPath(name string) bool {
	first, _, _ := strings.Cut(name, "/")
	return slices.Contains(serverPaths, first)
}

func (h *handler) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	h.commonHeaders(w.Header())
	if r.Method != http.MethodGet && r.Method != http.MethodHead {
		w.Header().Set("Allow", "GET, HEAD")
		http.Error(w, "method not allowed", http.StatusMethodNotAllowed)
		return
	}
	if r.URL.Path+"/" == h.base {
		target := h.base
		if r.URL.RawQuery != "" {
			target += "?" + r.URL.RawQuery
		}
		http.Redirect(w, r, target, http.StatusPermanentRedirect)
		return
	}
	name, prefixed := strings.CutPrefix(r.URL.Path, h.base)
	if !prefixed {
		name = strings.TrimPrefix(r.URL.Path, "/")
	}
	if isServerPath(name) {
		http.NotFound(w, r)
		return
	}
	if h.index == nil {
		h.serveAbsent(w, r)
		return
	}
	if a, ok := h.assets[name]; ok {
		h.serveAsset(w, r, name, a)
		return
	}
	// A build's file that is not in this build is from another one. The page instead
	// of it would be taken for a script.
	if strings.HasPrefix(name, "assets/") {
		w.Header().Set("Cache-Control", "no-store")
		http.NotFound(w, r)
		return
	}
	h.serveIndex(w, r)
}

func (h *handler) commonHeaders(header http.Header) {
	header.Set("X-Content-Type-Options", "nosniff")
	header.Set("Referrer-Policy", "same-origin")
	header.Set("Cross-Origin-Opener-Policy", "same-origin")
	header.Set("Permissions-Policy", "camera=(), geolocation=(), microphone=(), payment=(), usb=()")
	if h.tls {
		header.Set("Strict-Transport-Security", "max-age=31536000")
	}
}

func (h *handler) serveAsset(w http.ResponseWriter, r *http.Request, name string, a *asset) {
	header := w.Header()
	header.Set("Content-Type", a.contentType)
	header.Set("Vary", "Accept-Encoding")
	if strings.HasPrefix(name, "assets/") {
		// The name holds a hash of the content.
		header.Set("Cache-Control", "public, max-age=31536000, immutable")
	} else {
		header.Set("Cache-Control", "public, max-age=3600")
	}
	// An SVG opened by itself is a document; it may do nothing.
	header.Set("Content-Security-Policy", "default-src 'none'; style-src 'unsafe-inline'; sandbox")

	encoding, body := a.pick(r.Header.Get("Accept-Encoding"))
	etag := `"` + a.etag + `"`
	if encoding != "" {
		etag = `"` + a.etag + "-" + encoding + `"`
	}
	header.Set("ETag", etag)
	if matches(r.Header.Get("If-None-Match"), etag) {
		w.WriteHeader(http.StatusNotModified)
		return
	}
	if encoding != "" {
		header.Set("Content-Encoding", encoding)
	}
	if body == nil {
		// Only a compressed form is kept, and this client takes none.
		plain, err := gunzip(a.gz)
		if err != nil {
			http.Error(w, "the file is damaged", http.StatusInternalServerError)
			return
		}
		body = plain
	}
	send(w, r, http.StatusOK, body)
}

// pick chooses the form to send: the smallest that the client takes. An empty encoding
// with a nil body means that the plain form has to be made.
func (a *asset) pick(accept string) (encoding string, body []byte) {
	if a.br != nil && accepts(accept, "br") {
		return "br", a.br
	}
	if a.gz != nil && accepts(accept, "gzip") {
		return "gzip", a.gz
	}
	return "", a.raw
}

// accepts reads an Accept-Encoding header. A coding with q=0 is refused, and "*" stands
// for those that are not named.
func accepts(header, coding string) bool {
	star := false
	for part := range strings.SplitSeq(header, ",") {
		name, params, _ := strings.Cut(part, ";")
		name = strings.ToLower(strings.TrimSpace(name))
		if name != coding && name != "*" {
			continue
		}
		good := true
		if q, found := strings.CutPrefix(strings.ReplaceAll(params, " ", ""), "q="); found {
			weight, err := strconv.ParseFloat(q, 64)
			good = err == nil && weight > 0
		}
		if name == coding {
			return good
		}
		star = good
	}
	return star
}

func matches(ifNoneMatch, etag string) bool {
	for part := range strings.SplitSeq(ifNoneMatch, ",") {
		part = strings.TrimPrefix(strings.TrimSpace(part), "W/")
		if part == etag || part == "*" {
			return true
		}
	}
	return false
}

func gunzip(content []byte) ([]byte, error) {
	reader, err := gzip.NewReader(bytes.NewReader(content))
	if err != nil {
		return nil, err
	}
	return io.ReadAll(reader)
}

// serveIndex sends the one page, with the base path and a fresh nonce written into it.
// It is never stored: a nonce that two answers share is no nonce.
func (h *handler) serveIndex(w http.ResponseWriter, r *http.Request) {
	nonce := newNonce()
	page := bytes.Replace(h.index, []byte(`<base href="/"`), []byte(`<base href="`+html.EscapeString(h.base)+`"`), 1)
	page = bytes.Replace(page, []byte(`name="csp-nonce" content=""`), []byte(`name="csp-nonce" content="`+nonce+`"`), 1)
	header := w.Header()
	header.Set("Content-Type", "text/html; charset=utf-8")
	header.Set("Cache-Control", "no-store")
	header.Set("Content-Security-Policy", h.policy(nonce))
	send(w, r, http.StatusOK, page)
}

func (h *handler) policy(nonce string) string {
	return "default-src 'self'; script-src 'self'; style-src-elem 'self' 'nonce-" + nonce + "'; " +
		"style-src-attr 'unsafe-inline'; img-src 'self' data:; connect-src 'self'; worker-src 'self'; " +
		"object-src 'none'; base-uri 'self'; form-action 'self'; frame-ancestors " + h.ancestors
}

// serveAbsent is what a binary without a console says to a browser.
func (h *handler) serveAbsent(w http.ResponseWriter, r *http.Request) {
	nonce := newNonce()
	header := w.Header()
	header.Set("Content-Type", "text/html; charset=utf-8")
	header.Set("Cache-Control", "no-store")
	header.Set("Content-Security-Policy", h.policy(nonce))
	send(w, r, http.StatusOK, []byte(strings.Replace(absentPage, "{nonce}", nonce, 1)))
}

func send(w http.ResponseWriter, r *http.Request, status int, body []byte) {
	w.Header().Set("Content-Length", strconv.Itoa(len(body)))
	w.WriteHeader(status)
	if r.Method != http.MethodHead {
		_, _ = w.Write(body)
	}
}

// newNonce is 128 random bits. crypto/rand does not fail.
func newNonce() string {
	b := make([]byte, 16)
	_, _ = rand.Read(b)
	return base64.RawURLEncoding.EncodeToString(b)
}

func cleanBase(base string) string {
	base = strings.Trim(base, "/")
	if base == "" {
		return "/"
	}
	return "/" + base + "/"
}

const absentPage = `<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="color-scheme" content="light dark">
<title>ax</title>
<style nonce="{nonce}">
:root { color-scheme: light dark; }
body { margin: 0; min-height: 100vh; display: grid; place-items: center; font: 16px/1.6 system-ui, sans-serif; }
main { max-width: 34rem; padding: 2rem; }
h1 { font-size: 1.4rem; margin: 0 0 1rem; }
section + section { margin-top: 2rem; padding-top: 2rem; border-top: 1px solid #8886; }
code { font-family: ui-monospace, monospace; padding: .1em .35em; border: 1px solid #8886; border-radius: 4px; }
</style>
</head>
<body>
<main>
<section>
<h1>This server was built without the console</h1>
<p>The scheduler, its API and its executors work as usual. To get the console, run
<code>make web</code> in the source tree and build the server again, or use a released binary,
which holds the console.</p>
<p>The API answers at <code>/api/v1</code>; <code>/api/v1/meta</code> says which version this is.</p>
</section>
<section lang="zh-CN">
<h1>此服务器未包含控制台</h1>
<p>调度、API 与执行器照常工作。若需要控制台，请在源码目录运行 <code>make web</code> 后重新构建服务器，
或使用已包含控制台的发行版本。</p>
<p>API 位于 <code>/api/v1</code>，<code>/api/v1/meta</code> 可查看版本。</p>
</section>
</main>
</body>
</html>
`
