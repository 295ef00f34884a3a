//go:build unix && !solaris && !illumos && !aix

package sqlite

import (
	"errors"
	"fmt"
	"os"

	"golang.org/x/sys/unix"
)

// tryLock locks a file and reports whether it did; another descriptor may hold the lock.
func tryLock(f *os.File) (taken bool, err error) {
	err = flock(f, unix.LOCK_EX|unix.LOCK_NB)
	if errors.Is(err, unix.EWOULDBLOCK) {
		return false, nil
	}
	return err == nil, err
}

// waitLock blocks until it has locked a file. The wait cannot be cancelled.
func waitLock(f *os.File) error { return flock(f, unix.LOCK_EX) }

func unlock(f *os.File) error { return flock(f, unix.LOCK_UN) }

// flock locks the descriptor while the file is guarded against a concurrent Close.
func flock(f *os.File, how int) error {
	raw, err := f.SyscallConn()
	if err != nil {
		return err
	}
	var failed error
	err = raw.Control(func(fd uintptr) {
		for {
			if failed = unix.Flock(int(fd), how); !errors.Is(failed, unix.EINTR) {
				return
			}
		}
	})
	if err := errors.Join(err, failed); err != nil {
		return fmt.Errorf("lock %s: %w", f.Name(), err)
	}
	return nil
}
