package inmem

import (
	"context"
	"sync/atomic"

	"github.com/ashlar-dev/storage"
	"github.com/ashlar-dev/storage/driver"
	"github.com/ashlar-dev/storage/driver/backend"
)

// Options are the settings of a store. Nil and zero values are the defaults.
type Options struct {
	// MaxSize is the largest resource in bytes, without its version: 1 MiB, which is also the most.
	MaxSize int
	// History is the number of changes kept for watches that fall behind and for cursors: 100,000.
	History int
	// HistoryBytes bounds the same history in bytes, resources and what surrounds them: 64 MiB. A watch that falls behind
	// further ends. The handles of a named store share its history; the one that was opened last with a bound sets it.
	HistoryBytes int
}

// Backend is an opened store. It implements storage.Backend, storage.Pager, storage.Resumer and storage.Transactor, and its
// watches are storage.Bookmarkers and history.Recallers. storage.As finds its history.Historian.
type Backend struct {
	*backend.Backend[position]
	handle *handle
}

var (
	_ storage.Backend    = (*Backend)(nil)
	_ storage.Pager      = (*Backend)(nil)
	_ storage.Resumer    = (*Backend)(nil)
	_ storage.Transactor = (*Backend)(nil)
)

// New returns an empty store of its own.
func New(opts *Options) *Backend {
	return open(newStore(), opts)
}

func open(s *store, opts *Options) *Backend {
	if opts == nil {
		opts = &Options{}
	}
	s.limitHistory(opts.History, opts.HistoryBytes)
	h := &handle{store: s}
	return &Backend{
		Backend: backend.New(h, backend.Options[position]{
			MaxSize: opts.MaxSize,
			MaxOps:  1024,
			Timeout: -1, // nothing here waits
			// The store's own history is at hand, so what is kept for watches need not be long.
			LogEvents: 1000,
		}),
		handle: h,
	}
}

// handle is an opened store as a driver.
type handle struct {
	*store
	closed atomic.Bool
}

var (
	_ driver.Driver[position]      = (*handle)(nil)
	_ driver.Pager[position]       = (*handle)(nil)
	_ driver.Snapshotter[position] = (*handle)(nil)
	_ driver.Historian[position]   = (*handle)(nil)
	_ driver.GuardedMover          = (*handle)(nil)
)

// Source implements driver.Driver.
func (h *handle) Source() driver.Source[position] { return source{store: h.store} }

// Close implements driver.Driver. A named store stays; other handles of it go on.
func (h *handle) Close() error {
	h.closed.Store(true)
	if !h.isShared {
		h.listings.close()
	}
	return nil
}

// begin is the first line of the calls that only this backend has.
func (b *Backend) begin(ctx context.Context) error {
	if b.handle.closed.Load() {
		return storage.ErrClosed
	}
	return ctx.Err()
}
