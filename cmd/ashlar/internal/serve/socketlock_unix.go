//go:build unix && !solaris && !illumos && !aix

package serve

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"golang.org/x/sys/unix"
)

// socketLockPause is the pause between two attempts to lock a directory.
const socketLockPause = 10 * time.Millisecond

// lockSocket locks the directory of a socket against other servers that replace a socket in it, until unlock is called. It fails if ctx ends
// before.
func lockSocket(ctx context.Context, path string) (unlock func(), err error) {
	dir, err := os.Open(filepath.Dir(path))
	if err != nil {
		return nil, err
	}
	for {
		switch err := unix.Flock(int(dir.Fd()), unix.LOCK_EX|unix.LOCK_NB); {
		case err == nil:
			return func() { _ = dir.Close() }, nil // closing it unlocks
		case !errors.Is(err, unix.EWOULDBLOCK) && !errors.Is(err, unix.EINTR):
			return nil, errors.Join(fmt.Errorf("lock %s: %w", dir.Name(), err), dir.Close())
		}
		select {
		case <-ctx.Done():
			return nil, errors.Join(fmt.Errorf("lock %s, which another process has locked: %w", dir.Name(), ctx.Err()), dir.Close())
		case <-time.After(socketLockPause):
		}
	}
}
