package cache

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/ashlar-dev/storage"
	"github.com/ashlar-dev/storage/driver/key"
	"github.com/ashlar-dev/storage/internal/codec"
	"github.com/ashlar-dev/storage/internal/replica"
	"github.com/ashlar-dev/storage/resourcepb"
)

// Options are the options of a cache. Nil and zero values are the defaults.
type Options struct {
	// Types are what is copied, none of them a wildcard; no types: everything in the store. Reads of other types go to the backend. A copy of several types is fed by a
	// watch of their group, or of the whole store if they are of several groups.
	Types []storage.UnversionedType
	// Trim removes from a resource what need not be in memory, before it is put there. What Read and List return from memory lacks it, so
	// that a program must not write such a resource back. It must leave the id, the owner and the version as they are.
	Trim func(*resourcepb.Resource)
	// Timeout bounds calls that have to wait for the copy and whose context has no deadline: 30 seconds.
	Timeout time.Duration
}

// Cache is a backend with a copy in memory. It has every capability of [storage.As] that the backend under it has and that is part of the
// contract; tools that move stores need that backend itself.
type Cache struct {
	backend         storage.Backend
	opts            Options
	types           map[storage.UnversionedType]bool
	copy            *replica.Replica[storedResource]
	unconfirmedKeys unconfirmedKeys
	closed          atomic.Bool
}

var _ storage.Backend = (*Cache)(nil)

// New returns a cache over a backend, which it owns from now on, when all is in memory. ctx bounds this call only. What is damaged in the
// store fails it with a *storage.DamagedError.
func New(ctx context.Context, backend storage.Backend, opts *Options) (*Cache, error) {
	c := &Cache{backend: backend, types: map[storage.UnversionedType]bool{}}
	if opts != nil {
		c.opts = *opts
	}
	if c.opts.Timeout <= 0 {
		c.opts.Timeout = 30 * time.Second
	}
	for _, t := range c.opts.Types {
		c.types[t] = true
	}
	copied, err := replica.Open(ctx, backend, replica.Options[storedResource]{
		Types:     c.opts.Types,
		Decode:    c.encode,
		Uid:       uid,
		Size:      func(row *replica.Row[storedResource]) int { return len(row.Value.data) + len(row.Value.owner) },
		Index:     &replica.Index[storedResource]{Keys: owners},
		LogLength: 1, // nobody follows
	})
	if err != nil {
		return nil, fmt.Errorf("fill the cache: %w", err)
	}
	c.copy = copied
	return c, nil
}

// encode makes of a resource what is kept. It trims it, so the resource must not be anybody else's if there is something to trim.
func (c *Cache) encode(res *resourcepb.Resource) storedResource {
	if c.opts.Trim != nil {
		c.opts.Trim(res)
	}
	data, err := codec.Encode(res)
	if err != nil {
		// The backend has decoded it, so this is what Trim has left.
		panic(fmt.Sprintf("cache: Trim has left a resource that cannot be encoded: %v", err))
	}
	return storedResource{data: data[:len(data):len(data)], owner: ownerIndexKey(res.GetOwner())}
}

// Stats is what a cache holds.
type Stats struct {
	// Resources is their number.
	Resources int
	// Bytes is about what they take in memory.
	Bytes int64
	// Live says that a watch feeds the copy; otherwise it is being listed anew.
	Live bool
}

// Stats returns what the cache holds.
func (c *Cache) Stats() Stats {
	rows, bytes := c.copy.Size()
	return Stats{Resources: rows, Bytes: bytes, Live: c.copy.Live()}
}

// Unwrap returns the backend under the cache. What is written to it is in the cache when the watch has brought it.
func (c *Cache) Unwrap() storage.Backend { return c.backend }

// Close ends the cache and closes the backend.
func (c *Cache) Close() error {
	c.closed.Store(true)
	err := c.backend.Close()
	c.copy.Close()
	return err
}

// begin is the first line of a call that memory may answer. Of several errors that apply it returns the first of these: storage.ErrClosed,
// the problems of the arguments, the context's.
func (c *Cache) begin(ctx context.Context, problems ...error) error {
	if c.closed.Load() || c.copy.HasEnded() { // the copy ends when the backend under it is closed
		return storage.ErrClosed
	}
	for _, problem := range problems {
		if problem != nil {
			return problem
		}
	}
	return ctx.Err()
}

// waitForCopy calls something that waits for the copy, within the cache's timeout, and returns its error in the contract's words.
func (c *Cache) waitForCopy(ctx context.Context, what func(context.Context) error) error {
	if _, bounded := ctx.Deadline(); !bounded {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, c.opts.Timeout)
		defer cancel()
	}
	err := what(ctx)
	if err == nil || errors.Is(err, storage.ErrClosed) {
		return err
	}
	return fmt.Errorf("%w: the copy has not caught up with the database: %w", storage.ErrInconsistent, err)
}

// holds reports whether a key's type is copied.
func (c *Cache) holds(k key.Key) bool {
	return len(c.types) == 0 || c.types[storage.UnversionedType{Group: k.Group, Kind: k.Kind}]
}

// overlaps reports whether some of what a list of a type finds may be copied.
func (c *Cache) overlaps(typ storage.UnversionedType) bool {
	for t := range c.types {
		if (typ.Group == storage.Wildcard || typ.Group == t.Group) && (typ.Kind == storage.Wildcard || typ.Kind == t.Kind) {
			return true
		}
	}
	return len(c.types) == 0
}

// covers reports whether everything that a filter matches is copied.
func (c *Cache) covers(f key.Filter) bool {
	return len(c.types) == 0 || c.types[storage.UnversionedType{Group: f.Group, Kind: f.Kind}]
}
