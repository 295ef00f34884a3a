package bboltstore

import (
	"cmp"
	"context"
	"fmt"
	"time"

	"github.com/ashlar-dev/storage"
	"github.com/ashlar-dev/storage/driver"
)

func init() { storage.Register("bbolt", openURL) }

// Options are the settings of a handle. The zero value of each field means its default.
type Options struct {
	// MaxSize is the largest resource in bytes: 1 MiB, which is also the most.
	MaxSize int
	// Timeout bounds calls whose context has no deadline, and the wait for another process to close the file: 30 seconds.
	Timeout time.Duration
	// History is how many changes the file keeps for watches that resume: 100,000.
	History int
	// NoCreate refuses to open a file that is not there, or that holds no store yet.
	NoCreate bool
}

// Backend is an opened store. Besides storage.Backend it is a storage.Pager, storage.Resumer and storage.Transactor, and its
// watches are storage.Bookmarkers.
type Backend struct {
	*driver.Backend[uint64]
	store *store
}

// Open opens the store in the file at path, and makes it if it is not there. Nil options are the defaults. If another process has
// the file open for longer than the timeout, the error matches storage.ErrInconsistent.
func Open(path string, o *Options) (*Backend, error) {
	return open(context.Background(), path, o)
}

func open(ctx context.Context, path string, o *Options) (*Backend, error) {
	var opts Options
	if o != nil {
		opts = *o
	}
	opts.Timeout = cmp.Or(opts.Timeout, driver.DefaultTimeout)
	opts.History = cmp.Or(opts.History, 100_000)
	f, err := acquire(ctx, path, &opts)
	if err != nil {
		return nil, fmt.Errorf("open %s: %w", path, err)
	}
	s := &store{file: f, history: uint64(opts.History), closed: make(chan struct{})}
	return &Backend{driver.New(s, driver.Options[uint64]{MaxSize: opts.MaxSize, Timeout: opts.Timeout, BoundedGet: true}), s}, nil
}

// Compact makes the file forget all changes so far. Watches that have seen them go on; cursors before the newest change become
// storage.ErrCompacted.
func (b *Backend) Compact(ctx context.Context) error { return b.store.compact(ctx) }

// store is one handle as a driver.
type store struct {
	file    *file
	history uint64        // how many changes the log keeps
	closed  chan struct{} // closed by Close
}

var _ driver.Driver[uint64] = (*store)(nil)

// StoreID implements driver.Driver.
func (s *store) StoreID() driver.StoreID { return s.file.id }

// Source implements driver.Driver.
func (s *store) Source() driver.Source[uint64] { return source{store: s} }

// Close implements driver.Driver.
func (s *store) Close() error {
	close(s.closed)
	return s.file.release()
}
