package sqlite

import (
	"context"
	"encoding/binary"
	"fmt"
	"os"
	"time"

	"github.com/fsnotify/fsnotify"
)

// lockFile is the -lock file beside the database. Writers take turns by a lock on it, and touch it after each commit, which is
// the doorbell that watches listen for. It holds the mark of the row that was rung for last.
type lockFile struct {
	file *os.File
	path string
}

func openLockFile(database string) (*lockFile, error) {
	path := database + "-lock"
	file, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE, 0o666)
	if err != nil {
		return nil, fmt.Errorf("the database's folder has to be writable: %w", err)
	}
	return &lockFile{file: file, path: path}, nil
}

// notificationBytes is the length of what ring writes: something that is not 0, which programs before this one wrote, and the mark.
const notificationBytes = 1 + 8 + 8

// notify wakes the watches of all processes, for what was added to the log up to a row. The caller has the lock, so that no older mark
// takes the place of a newer one. Where the lock has no effect, a watch may so take news for old, until it polls.
func (s *lockFile) notify(newest position) {
	b := [notificationBytes]byte{1}
	binary.LittleEndian.PutUint64(b[1:], uint64(newest.seq))
	binary.LittleEndian.PutUint64(b[9:], uint64(newest.tag))
	// Watches that miss it find the change by polling.
	_, _ = s.file.WriteAt(b[:], 0)
}

// lastNotified returns what ring was called with last, in any process; known is false where that cannot be told.
func (s *lockFile) lastNotified() (newest position, known bool) {
	var b [notificationBytes]byte
	if _, err := s.file.ReadAt(b[:], 0); err != nil || b[0] != 1 {
		return position{}, false
	}
	return position{int64(binary.LittleEndian.Uint64(b[1:])), int64(binary.LittleEndian.Uint64(b[9:]))}, true
}

// lockPolling takes the lock without ever standing in the line for it.
func (s *lockFile) lockPolling(ctx context.Context) error {
	return poll(ctx, func() (bool, error) { return tryLock(s.file) })
}

// lock takes the lock, standing in line. It returns errStopped if stop is closed first. A place in the line cannot be given up,
// so the goroutine that stands there hands the lock straight back if nobody waits for it any more.
func (s *lockFile) lock(stop <-chan struct{}) error {
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

func (s *lockFile) unlock() error { return unlock(s.file) }

// poll calls try every few milliseconds until it is done or fails, or ctx ends.
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

// The source looks for changes when a writer rings, and besides every pollEvery, for one that died between its commit and the
// bell; more often where the bell cannot be heard.
const (
	pollEvery          = 250 * time.Millisecond
	pollUnwatchedEvery = 50 * time.Millisecond
)

// lockFileWatcher hears the writers of all processes touch the side file.
type lockFileWatcher struct {
	watcher *fsnotify.Watcher // nil where the system has none to spare
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

// signal is what ends the waiting for changes.
type signal int

const (
	signalContextEnded signal = iota // ctx
	signalLocal                      // by this process's writer
	signalRemote                     // by a writer of any process
	signalPoll                       // nothing, for as long as a look may be put off
)

// await returns when there may be changes.
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
		_ = err // too many events at once, so that some were dropped: time to look
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
