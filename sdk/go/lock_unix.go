//go:build unix

package ax

import (
	"errors"
	"fmt"
	"io"
	"os"
	"syscall"
)

// lockDir takes the lock that keeps a second process out of an executor's directory. It goes
// with the process, however that ends.
func lockDir(name string) (io.Closer, error) {
	f, err := os.OpenFile(name, os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return nil, err
	}
	if err := syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB); err != nil {
		f.Close()
		if errors.Is(err, syscall.EWOULDBLOCK) {
			return nil, errors.New("another executor uses it; give each process a directory of its own")
		}
		return nil, fmt.Errorf("lock: %w", err)
	}
	return f, nil
}

// syncDir makes a rename in dir durable.
func syncDir(dir string) error {
	d, err := os.Open(dir)
	if err != nil {
		return err
	}
	defer d.Close()
	return d.Sync()
}
