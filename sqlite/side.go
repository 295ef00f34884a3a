package sqlite

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"time"
)

// sideFile is the -lock file beside the database. Writers take turns by a lock on it, and touch it after each commit, which is
// the doorbell that watches listen for. It holds the mark of the row that was rung for last.
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

// ringBytes is the length of what ring writes: something that is not 0, which programs before this one wrote, and the mark.
const ringBytes = 1 + 8 + 8

// ring wakes the watches of all processes, for what was added to the log up to a row. The caller has the lock, so that no older mark
// takes the place of a newer one. Where the lock has no effect, a watch may so take news for old, until it polls.
func (s *sideFile) ring(newest mark) {
	b := [ringBytes]byte{1}
	binary.LittleEndian.PutUint64(b[1:], uint64(newest.seq))
	binary.LittleEndian.PutUint64(b[9:], uint64(newest.tag))
	// Watches that miss it find the change by polling.
	_, _ = s.file.WriteAt(b[:], 0)
}

// rungFor returns what ring was called with last, in any process; known is false where that cannot be told.
func (s *sideFile) rungFor() (newest mark, known bool) {
	var b [ringBytes]byte
	if _, err := s.file.ReadAt(b[:], 0); err != nil || b[0] != 1 {
		return mark{}, false
	}
	return mark{int64(binary.LittleEndian.Uint64(b[1:])), int64(binary.LittleEndian.Uint64(b[9:]))}, true
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
