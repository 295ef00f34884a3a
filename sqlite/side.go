package sqlite

import (
	"context"
	"errors"
	"fmt"
	"os"
	"time"
)

// sideFile is the -lock file beside the database. Writers take turns by a lock on it, and touch it after each commit, which is
// the doorbell that watches listen for. It holds nothing.
type sideFile struct {
	file *os.File
	path string
}

func openSideFile(database string) (*sideFile, error) {
	path := database + "-lock"
	file, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE, 0o666)
	if err != nil {
		return nil, fmt.Errorf("the database's folder has to be writable: %w", err)
	}
	return &sideFile{file: file, path: path}, nil
}

// ring wakes the watches of all processes.
func (s *sideFile) ring() {
	// Watches that miss it find the change by polling.
	_, _ = s.file.WriteAt([]byte{0}, 0)
}

// lockPolling takes the lock without ever standing in the line for it.
func (s *sideFile) lockPolling(ctx context.Context) error {
	return poll(ctx, func() (bool, error) { return tryLock(s.file) })
}

// lock takes the lock, standing in line. It returns errStopped if stop is closed first. A place in the line cannot be given up,
// so the goroutine that stands there hands the lock straight back if nobody waits for it any more.
func (s *sideFile) lock(stop <-chan struct{}) error {
	if taken, err := tryLock(s.file); taken || err != nil {
		return err
	}
	granted, left := make(chan error), make(chan struct{})
	go func() {
		defer close(left)
		err := waitLock(s.file)
		select {
		case granted <- err:
		case <-stop:
			_ = unlock(s.file)
		}
	}()
	select {
	case err := <-granted:
		return err
	case <-stop:
	}
	select {
	case <-left:
	case <-time.After(time.Second):
		// The holder does not go on: another process, stopped in the middle of a write. The goroutine ends when it does.
	}
	return errStopped
}

var errStopped = errors.New("stopped")

func (s *sideFile) unlock() error { return unlock(s.file) }
