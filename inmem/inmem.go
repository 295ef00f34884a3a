package inmem

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"sync/atomic"

	"github.com/ashlar-dev/storage"
	"github.com/ashlar-dev/storage/internal/check"
	"github.com/ashlar-dev/storage/internal/cursor"
	"github.com/ashlar-dev/storage/internal/feed"
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
// watches are storage.Bookmarkers.
type Backend struct {
	store   *store
	maxSize int
	closed  atomic.Bool
	feed    *feed.Feed[position]
	pages   *listings
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
	b := &Backend{store: s, maxSize: opts.MaxSize, pages: newListings()}
	s.keepHistory(opts.History, opts.HistoryBytes)
	b.feed = feed.New(feed.Source[position](source{s}), feed.Options[position]{
		// The store's own history is at hand, so the feed's log need not be long.
		MaxEvents:  1000,
		InSnapshot: cursor.Encode(cursor.Snapshot, s.storeID(), nil),
	})
	return b
}

// Close implements storage.Backend. A named store stays; other handles of it go on.
func (b *Backend) Close() error {
	if b.closed.CompareAndSwap(false, true) {
		b.feed.Close()
		b.pages.close()
	}
	return nil
}

// begin is the first line of every call, after its arguments were looked at. Of several errors that apply it returns the first of
// these: storage.ErrClosed, the problems of the arguments, the context's.
func (b *Backend) begin(ctx context.Context, problems ...error) error {
	if b.closed.Load() {
		return storage.ErrClosed
	}
	return cmp.Or(cmp.Or(problems...), ctx.Err())
}

// failed says which operation on what failed. A mismatch of group versions is returned as it is: it is an answer.
func failed(operation string, on fmt.Stringer, err error) error {
	var mismatch storage.GroupVersionMismatchError
	if errors.As(err, &mismatch) {
		return mismatch
	}
	return fmt.Errorf("%s %v: %w", operation, on, err)
}

// MaxOps implements storage.Transactor.
func (b *Backend) MaxOps() int { return 1024 }

// maxMaxSize is the largest value of Options.MaxSize.
const maxMaxSize = check.MaxSize
