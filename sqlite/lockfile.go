package sqlite

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"os"
	"sync/atomic"
	"time"

	"github.com/fsnotify/fsnotify"
)

// lockFile is the -lock file beside the database. Writers take turns by a lock on it. After each commit a writer writes
// the position of the newest row to it, which notifies the watches of all processes.
type lockFile struct {
	file    *os.File
	path    string
	waiting atomic.Bool // the writer waits for another process
}

func openLockFile(database string) (*lockFile, error) {
	path := database + "-lock"
	file, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE, 0o666)
	if err != nil {
		return nil, fmt.Errorf("open or create the lock file (it and its folder must be writable): %w", err)
	}
	if err := checkLockFile(file); err != nil {
		return nil, errors.Join(err, file.Close())
	}
	return &lockFile{file: file, path: path}, nil
}

// checkLockFile returns an error for a file of another program, which a notification would overwrite.
func checkLockFile(file *os.File) error {
	var b [notificationBytes + 1]byte
	n, err := file.ReadAt(b[:], 0)
	if err != nil && !errors.Is(err, io.EOF) {
		return fmt.Errorf("read the lock file: %w", err)
	}
	if n > notificationBytes || n > 0 && b[0] > 1 {
		return fmt.Errorf("%s is a file of another program, but the store needs this name for its lock file: move it away", file.Name())
	}
	return nil
}

// notificationBytes is the length of a notification: a byte 1, where older programs wrote 0, and a position.
const notificationBytes = 1 + 8 + 8

// notify wakes the watches of all processes because rows were added up to a position. The caller holds the lock, so
// that an older position never overwrites a newer one. On systems without flock that may happen, and a watch then finds
// the change only by polling.
func (s *lockFile) notify(newest position) {
	b := [notificationBytes]byte{1}
	binary.LittleEndian.PutUint64(b[1:], uint64(newest.seq))
	binary.LittleEndian.PutUint64(b[9:], uint64(newest.tag))
	// Watches that miss a notification find the change by polling.
	_, _ = s.file.WriteAt(b[:], 0)
}

// lastNotified returns the position of the last notification by any process. known is false if there is none with a
// position.
func (s *lockFile) lastNotified() (newest position, known bool) {
	var b [notificationBytes]byte
	if _, err := s.file.ReadAt(b[:], 0); err != nil || b[0] != 1 {
		return position{}, false
	}
	return position{int64(binary.LittleEndian.Uint64(b[1:])), int64(binary.LittleEndian.Uint64(b[9:]))}, true
}

// lockPolling acquires the lock by polling, without a blocked system call.
func (s *lockFile) lockPolling(ctx context.Context) error {
	return poll(ctx, func() (bool, error) { return tryLock(s.file) })
}

// lock acquires the lock in turn. It returns errStopped if stop is closed first. A blocked flock cannot be cancelled,
// so the goroutine that waits for it releases the lock at once if the caller has returned.
func (s *lockFile) lock(stop <-chan struct{}) error {
	if taken, err := tryLock(s.file); taken || err != nil {
		return err
	}
	s.waiting.Store(true)
	defer s.waiting.Store(false)
	granted, exited := make(chan error), make(chan struct{})
	go func() {
		defer close(exited)
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
	case <-exited:
	case <-time.After(time.Second):
		// The holder does not proceed, for example a process stopped during a write. The goroutine ends when it does.
	}
	return errStopped
}

func (s *lockFile) unlock() error { return unlock(s.file) }

// poll calls try every few milliseconds until it is done, it fails or ctx ends.
func poll(ctx context.Context, try func() (done bool, err error)) error {
	ticker := time.NewTicker(5 * time.Millisecond)
	defer ticker.Stop()
	for {
		if done, err := try(); done || err != nil {
			return err
		}
		select {
		case <-ticker.C:
		case <-ctx.Done():
			return timeoutError(ctx)
		}
	}
}

// The feed polls the file every pollEvery, in case a writer died between its commit and its notification. Without file
// notifications it polls every pollUnwatchedEvery.
const (
	pollEvery          = 250 * time.Millisecond
	pollUnwatchedEvery = 50 * time.Millisecond
)

// lockFileWatcher reports writes to the lock file by any process.
type lockFileWatcher struct {
	watcher *fsnotify.Watcher // nil if the system has no file watches to spare
	ticker  *time.Ticker
}

func watchLockFile(path string) *lockFileWatcher {
	watcher, err := fsnotify.NewWatcher()
	if err == nil {
		if err = watcher.Add(path); err != nil {
			_ = watcher.Close()
		}
	}
	if err != nil {
		return &lockFileWatcher{ticker: time.NewTicker(pollUnwatchedEvery)}
	}
	return &lockFileWatcher{watcher: watcher, ticker: time.NewTicker(pollEvery)}
}

// signal is the reason why await returned.
type signal int

const (
	signalContextEnded signal = iota
	signalLocal               // this process's writer added rows
	signalRemote              // a writer of any process sent a notification
	signalPoll                // it is time to poll
)

// await blocks until there may be changes or ctx ends.
func (b *lockFileWatcher) await(ctx context.Context, inbox <-chan struct{}) signal {
	var events chan fsnotify.Event
	var failed chan error
	if b.watcher != nil {
		events, failed = b.watcher.Events, b.watcher.Errors
	}
	select {
	case <-inbox:
		return signalLocal
	case <-events:
		return signalRemote
	case err := <-failed:
		_ = err // the event queue overflowed, so poll
		return signalPoll
	case <-b.ticker.C:
		return signalPoll
	case <-ctx.Done():
		return signalContextEnded
	}
}

func (b *lockFileWatcher) close() {
	b.ticker.Stop()
	if b.watcher != nil {
		_ = b.watcher.Close()
	}
}
