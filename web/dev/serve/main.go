// Command serve puts the built console in front of an API that runs elsewhere, with the
// handler that ax-server uses. It is for work on the console.
//
//	go run ./web/dev/serve -listen 127.0.0.1:8080 -api http://127.0.0.1:8081 -base /
package main

import (
	"flag"
	"log"
	"net/http"
	"net/http/httputil"
	"net/url"
	"os"
	"strings"

	"github.com/ax-scheduler/ax/web"
)

func main() {
	listen := flag.String("listen", "127.0.0.1:8080", "address to listen on")
	api := flag.String("api", "http://127.0.0.1:8081", "where the API is")
	base := flag.String("base", "/", "prefix of the console")
	dir := flag.String("dir", "", "serve this directory instead of the embedded build")
	flag.Parse()
	target, err := url.Parse(*api)
	if err != nil {
		log.Fatal(err)
	}
	opts := web.Options{BasePath: *base}
	if *dir != "" {
		opts.FS = os.DirFS(*dir)
	}
	prefix := "/" + strings.Trim(*base, "/")
	prefix = strings.TrimSuffix(prefix, "/") + "/"
	proxy := &httputil.ReverseProxy{
		FlushInterval: -1,
		Rewrite: func(r *httputil.ProxyRequest) {
			r.SetURL(target)
			r.Out.URL.Path = "/" + strings.TrimPrefix(r.In.URL.Path, prefix)
			r.Out.URL.RawPath = ""
		},
	}
	mux := http.NewServeMux()
	mux.Handle(prefix+"api/", proxy)
	mux.Handle("/", web.Handler(opts))
	log.Printf("console on http://%s%s", *listen, prefix)
	log.Fatal(http.ListenAndServe(*listen, mux))
}
