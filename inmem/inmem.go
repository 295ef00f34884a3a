package inmem

import (
	"context"
	"sync/atomic"

	"go.opentelemetry.io/otel/attribute"

	"github.com/ashlar-dev/storage"
	"github.com/ashlar-dev/storage/driver"
	"github.com/ashlar-dev/storage/driver/backend"
	"github.com/ashlar-dev/storage/telemetry"
)

// Options are the settings of a store. Nil and zero values mean the defaults.
type Options struct {
	// MaxSize is the largest size of a resource in bytes, without its version. The default, 1 MiB, is also the maximum.
	MaxSize int
	// History is the number of changes kept for slow watches, cursors, later pages and snapshots. The default is 100,000.
	History int
	// HistoryBytes bounds the same history in bytes, including the memory around each resource. The default is 64 MiB.
	// A watch or a listing in pages that falls further behind ends. Handles of a named store share its history, and the last handle opened
	// with a bound sets it.
	HistoryBytes int
	// Telemetry receives what the store reports.
	Telemetry telemetry.Options

	name string // of the store, for its reports
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

// New returns a new, empty store, which no other handle shares.
func New(opts *Options) *Backend {
	return open(newStore(), opts)
}

func open(s *store, opts *Options) *Backend {
	if opts == nil {
		opts = &Options{}
	}
	s.limitHistory(opts.History, opts.HistoryBytes)
	h := &handle{store: s, telemetry: telemetry.New(opts.Telemetry, "memory", opts.name)}
	h.telemetry.Observe(telemetry.HistorySize, func(observe func(float64, ...attribute.KeyValue)) { observe(float64(s.historySize())) })
	return &Backend{
		Backend: backend.New(h, backend.Options[position]{
			MaxSize:   opts.MaxSize,
			MaxOps:    1024,
			Telemetry: h.telemetry,
			Timeout:   -1, // no call waits for a server; a writer that waits for the feed does so until its context ends
			// Watches fall back to the store's own history, so the feed's log can be short.
			LogEvents: 1000,
		}),
		handle: h,
	}
}

// handle is an opened store. It implements driver.Driver.
type handle struct {
	*store
	telemetry *telemetry.Recorder
	closed    atomic.Bool
}

var (
	_ driver.Driver[position]    = (*handle)(nil)
	_ driver.Historian[position] = (*handle)(nil)
	_ driver.GuardedMover        = (*handle)(nil)
)

// Source implements driver.Driver.
func (h *handle) Source() driver.Source[position] { return source{store: h.store} }

// Close implements driver.Driver. A named store and its other handles stay open.
func (h *handle) Close() error {
	h.closed.Store(true)
	return nil
}

// begin checks the handle and the context for methods that only this backend has.
func (b *Backend) begin(ctx context.Context) error {
	if b.handle.closed.Load() {
		return storage.ErrClosed
	}
	return ctx.Err()
}
