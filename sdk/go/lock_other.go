//go:build !unix

package ax

import (
	"io"
	"os"
)

// lockDir opens the lock file. Here nothing keeps a second process out: give each a directory of its own.
func lockDir(name string) (io.Closer, error) {
	return os.OpenFile(name, os.O_CREATE|os.O_RDWR, 0o600)
}

// syncDir does nothing where directories can not be synced.
func syncDir(string) error { return nil }
