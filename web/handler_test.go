package web

import (
	"bytes"
	"compress/gzip"
	"io"
	"net/http"
	"net/http/httptest"
	"regexp"
	"strings"
	"testing"
	"testing/fstest"
)

const script = "console.log('ax')"

func zipped(t *testing.T, text string) []byte {
	t.Helper()
	var b bytes.Buffer
	w := gzip.NewWriter(&b)
	if _, err := io.WriteString(w, text); err != nil {
		t.Fatal(err)
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

func built(t *testing.T) fstest.MapFS {
	t.Helper()
	return fstest.MapFS{
		"index.html":             {Data: []byte(`<html><head><base href="/" /><meta name="csp-nonce" content="" /></head></html>`)},
		"assets/index-abc.js.br": {Data: []byte("brotli bytes")},
		"assets/index-abc.js.gz": {Data: zipped(t, script)},
		"assets/small-def.js":    {Data: []byte("1")},
		"favicon.svg":            {Data: []byte("<svg/>")},
		".keep":                  {},
	}
}

func ask(h http.Handler, method, target string, headers ...string) *http.Response {
	r := httptest.NewRequest(method, target, nil)
	for i := 0; i+1 < len(headers); i += 2 {
		r.Header.Set(headers[i], headers[i+1])
	}
	w := httptest.NewRecorder()
	h.ServeHTTP(w, r)
	return w.Result()
}

func text(t *testing.T, r *http.Response) string {
	t.Helper()
	b, err := io.ReadAll(r.Body)
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

func TestAssetsAreNegotiated(t *testing.T) {
	h := Handler(Options{FS: built(t)})
	for _, c := range []struct{ accept, encoding, body string }{
		{"gzip, deflate, br, zstd", "br", "brotli bytes"},
		{"br;q=0, gzip", "gzip", string(zipped(t, script))},
		{"gzip;q=0.5", "gzip", string(zipped(t, script))},
		{"*", "br", "brotli bytes"},
		{"br;q=0, *;q=0.1", "gzip", string(zipped(t, script))},
		{"", "", script},
		{"identity", "", script},
	} {
		got := ask(h, "GET", "/assets/index-abc.js", "Accept-Encoding", c.accept)
		if body := text(t, got); got.StatusCode != 200 || got.Header.Get("Content-Encoding") != c.encoding || body != c.body {
			t.Errorf("Accept-Encoding %q: status %d, encoding %q, body %q", c.accept, got.StatusCode, got.Header.Get("Content-Encoding"), body)
		}
		if got.Header.Get("Vary") != "Accept-Encoding" {
			t.Errorf("Accept-Encoding %q: no Vary", c.accept)
		}
		if ct := got.Header.Get("Content-Type"); ct != "text/javascript; charset=utf-8" {
			t.Errorf("Content-Type %q", ct)
		}
		if cc := got.Header.Get("Cache-Control"); cc != "public, max-age=31536000, immutable" {
			t.Errorf("Cache-Control %q", cc)
		}
	}
}

func TestFormsAreNoFiles(t *testing.T) {
	h := Handler(Options{FS: built(t)})
	for _, name := range []string{"/assets/index-abc.js.br", "/assets/index-abc.js.gz", "/assets/gone-123.js", "/assets/"} {
		got := ask(h, "GET", name)
		if got.StatusCode != 404 || strings.Contains(text(t, got), "<html") {
			t.Errorf("%s: status %d", name, got.StatusCode)
		}
	}
}

func TestOtherFilesRevalidate(t *testing.T) {
	h := Handler(Options{FS: built(t)})
	first := ask(h, "GET", "/favicon.svg")
	if first.Header.Get("Cache-Control") != "public, max-age=3600" || first.Header.Get("Content-Type") != "image/svg+xml" {
		t.Errorf("headers %v", first.Header)
	}
	again := ask(h, "GET", "/favicon.svg", "If-None-Match", "W/"+first.Header.Get("ETag"))
	if again.StatusCode != 304 || text(t, again) != "" {
		t.Errorf("status %d", again.StatusCode)
	}
}

func TestETagDiffersByForm(t *testing.T) {
	h := Handler(Options{FS: built(t)})
	seen := map[string]bool{}
	for _, accept := range []string{"br", "gzip", ""} {
		seen[ask(h, "GET", "/assets/index-abc.js", "Accept-Encoding", accept).Header.Get("ETag")] = true
	}
	if len(seen) != 3 {
		t.Errorf("etags %v", seen)
	}
}

var nonceInPage = regexp.MustCompile(`name="csp-nonce" content="([^"]{20,})"`)

func TestPageHasFreshNonceAndPolicy(t *testing.T) {
	h := Handler(Options{FS: built(t)})
	seen := map[string]bool{}
	for _, target := range []string{"/", "/index.html", "/ns/default/jobs?state=enabled", "/login", "/favicon.ico"} {
		got := ask(h, "GET", target)
		match := nonceInPage.FindStringSubmatch(text(t, got))
		if match == nil {
			t.Fatalf("%s: no nonce in the page", target)
		}
		if seen[match[1]] {
			t.Errorf("%s: nonce used twice", target)
		}
		seen[match[1]] = true
		want := "default-src 'self'; script-src 'self'; style-src-elem 'self' 'nonce-" + match[1] + "'; style-src-attr 'unsafe-inline'; " +
			"img-src 'self' data:; connect-src 'self'; worker-src 'self'; object-src 'none'; base-uri 'self'; form-action 'self'; frame-ancestors 'none'"
		if csp := got.Header.Get("Content-Security-Policy"); csp != want {
			t.Errorf("%s: policy %q", target, csp)
		}
		for name, value := range map[string]string{
			"Cache-Control":              "no-store",
			"Content-Type":               "text/html; charset=utf-8",
			"X-Content-Type-Options":     "nosniff",
			"Referrer-Policy":            "same-origin",
			"Cross-Origin-Opener-Policy": "same-origin",
			"Strict-Transport-Security":  "",
		} {
			if got.Header.Get(name) != value {
				t.Errorf("%s: %s is %q", target, name, got.Header.Get(name))
			}
		}
	}
}

func TestOptionsShowInHeaders(t *testing.T) {
	got := ask(Handler(Options{FS: built(t), TLS: true, FrameAncestors: "https://portal.example"}), "GET", "/")
	if got.Header.Get("Strict-Transport-Security") != "max-age=31536000" {
		t.Error("no HSTS")
	}
	if !strings.HasSuffix(got.Header.Get("Content-Security-Policy"), "frame-ancestors https://portal.example") {
		t.Error(got.Header.Get("Content-Security-Policy"))
	}
}

func TestServerPathsNeverBecomeThePage(t *testing.T) {
	for _, base := range []string{"", "/ax/console/"} {
		h := Handler(Options{FS: built(t), BasePath: base})
		for _, name := range []string{"api", "api/v1/nothing", "ax", "ax/registry", "actuator/health", "metrics", "livez", "readyz"} {
			got := ask(h, "GET", cleanBase(base)+name)
			if got.StatusCode != 404 || strings.Contains(text(t, got), "<base") {
				t.Errorf("base %q, %s: status %d", base, name, got.StatusCode)
			}
		}
	}
	// Names that only begin like the server's own are pages.
	if got := ask(Handler(Options{FS: built(t)}), "GET", "/apiary"); got.StatusCode != 200 {
		t.Errorf("/apiary: %d", got.StatusCode)
	}
}

func TestBasePath(t *testing.T) {
	for _, base := range []string{"/console", "console/", "/console/"} {
		h := Handler(Options{FS: built(t), BasePath: base})
		redirect := ask(h, "GET", "/console?x=1")
		if redirect.StatusCode != 308 || redirect.Header.Get("Location") != "/console/?x=1" {
			t.Errorf("base %q: %d to %q", base, redirect.StatusCode, redirect.Header.Get("Location"))
		}
		if page := text(t, ask(h, "GET", "/console/ns/default/jobs")); !strings.Contains(page, `<base href="/console/"`) {
			t.Errorf("base %q: page %q", base, page)
		}
		// With the prefix, and without when a proxy has taken it off.
		for _, target := range []string{"/console/favicon.svg", "/favicon.svg"} {
			if got := ask(h, "GET", target); got.Header.Get("Content-Type") != "image/svg+xml" {
				t.Errorf("base %q: %s is %q", base, target, got.Header.Get("Content-Type"))
			}
		}
	}
}

func TestBasePathIsEscaped(t *testing.T) {
	page := text(t, ask(Handler(Options{FS: built(t), BasePath: `/a"><script>/`}), "GET", "/"))
	if strings.Contains(page, "<script>") {
		t.Error(page)
	}
}

func TestOnlyReads(t *testing.T) {
	h := Handler(Options{FS: built(t)})
	for _, method := range []string{"POST", "PUT", "DELETE", "PATCH", "OPTIONS"} {
		got := ask(h, method, "/")
		if got.StatusCode != 405 || got.Header.Get("Allow") != "GET, HEAD" {
			t.Errorf("%s: %d", method, got.StatusCode)
		}
	}
	head := ask(h, "HEAD", "/assets/index-abc.js", "Accept-Encoding", "br")
	if head.StatusCode != 200 || text(t, head) != "" || head.Header.Get("Content-Length") != "12" {
		t.Errorf("HEAD: %d %v", head.StatusCode, head.Header)
	}
}

func TestWithoutBuild(t *testing.T) {
	files := fstest.MapFS{".keep": {}}
	if Built(files) {
		t.Error("an empty dist counts as built")
	}
	h := Handler(Options{FS: files})
	got := ask(h, "GET", "/ns/default/jobs")
	page := text(t, got)
	if got.StatusCode != 200 || !strings.Contains(page, "make web") || len(page) > 2048 {
		t.Errorf("status %d, %d bytes", got.StatusCode, len(page))
	}
	if strings.Contains(page, "{nonce}") {
		t.Error("the nonce was not filled in")
	}
	if got := ask(h, "GET", "/api/v1/jobs"); got.StatusCode != 404 {
		t.Errorf("/api: %d", got.StatusCode)
	}
}

func TestEmbeddedFilesCompile(t *testing.T) {
	if got := ask(Handler(Options{}), "GET", "/"); got.StatusCode != 200 {
		t.Errorf("status %d", got.StatusCode)
	}
}
