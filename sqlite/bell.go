package sqlite

import (
	"context"
	"time"

	"github.com/fsnotify/fsnotify"
)

// The source looks for changes when a writer rings, and besides every pollEvery, for one that died between its commit and the
// bell; more often where the bell cannot be heard.
const (
	pollEvery     = 250 * time.Millisecond
	pollDeafEvery = 50 * time.Millisecond
)

// bell hears the writers of all processes touch the side file.
type bell struct {
	watcher *fsnotify.Watcher // nil where the system has none to spare
	ticker  *time.Ticker
}

func listen(path string) *bell {
	watcher, err := fsnotify.NewWatcher()
	if err == nil {
		if err = watcher.Add(path); err != nil {
			_ = watcher.Close()
		}
	}
	if err != nil {
		return &bell{ticker: time.NewTicker(pollDeafEvery)}
	}
	return &bell{watcher: watcher, ticker: time.NewTicker(pollEvery)}
}

// signal is what ends the waiting for changes.
type signal int

const (
	over signal = iota // ctx
	told               // by this process's writer
	rung               // by a writer of any process
	due                // nothing, for as long as a look may be put off
)

// wait returns when there may be changes.
func (b *bell) wait(ctx context.Context, inbox <-chan struct{}) signal {
	var events chan fsnotify.Event
	var failed chan error
	if b.watcher != nil {
		events, failed = b.watcher.Events, b.watcher.Errors
	}
	select {
	case <-inbox:
		return told
	case <-events:
		return rung
	case err := <-failed:
		_ = err // too many events at once, so that some were dropped: time to look
		return due
	case <-b.ticker.C:
		return due
	case <-ctx.Done():
		return over
	}
}

func (b *bell) close() {
	b.ticker.Stop()
	if b.watcher != nil {
		_ = b.watcher.Close()
	}
}
