package web

import (
	"embed"
	"io/fs"
)

// dist is what `make web` builds. Without a build it holds one empty file, which is
// enough to compile; the handler then serves a page that says so.
//
//go:embed all:dist
var dist embed.FS

// Dist is the built console that this binary holds.
func Dist() fs.FS {
	sub, err := fs.Sub(dist, "dist")
	if err != nil {
		// The name is a constant that fs.Sub accepts.
		panic(err)
	}
	return sub
}

// Built tells whether files hold a console. An API-only binary has none.
func Built(files fs.FS) bool {
	_, err := fs.Stat(files, indexFile)
	return err == nil
}
