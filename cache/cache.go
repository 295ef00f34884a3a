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

// Options configures a cache. Nil and zero values select the defaults.
type Options struct {
	// Types are the copied types, without wildcards; none copies the whole store. Reads of other types go to the backend. One watch feeds the
	// copy: of the type, of the group for several types of one group, or of the whole store for several groups.
	Types []storage.UnversionedType
	// Trim removes parts of a resource before it is kept in memory. Read and List return the trimmed resource from memory, so a program must
	// not write it back. Trim must not change the id, the owner or the version.
	Trim func(*resourcepb.Resource)
	// Timeout bounds a call that waits for the copy if its context has no deadline. The default is 30 seconds.
	Timeout time.Duration
}

// Cache is a backend with a copy in memory. It has the capabilities of the inner backend, except for moves of a store, which
// need the inner backend (Unwrap).
type Cache struct {
	backend         storage.Backend
	opts            Options
	types           map[storage.UnversionedType]bool
	copy            *replica.Replica[storedResource]
	unconfirmedKeys unconfirmedKeys
	closed          atomic.Bool
}

var _ storage.Backend = (*Cache)(nil)

// New fills a cache over a backend and returns when the copy is complete. The cache then owns the backend; if New fails, the caller still
// owns it. ctx bounds only this call. New fails with a *storage.DamagedError if the store holds a damaged resource of a copied
// type.
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
		LogLength: 1, // the cache has no followers
	})
	if err != nil {
		return nil, fmt.Errorf("fill the cache: %w", err)
	}
	c.copy = copied
	return c, nil
}

// encode returns the stored form of a resource. It may modify the resource if Options.Trim is set, so the caller must own it.
func (c *Cache) encode(res *resourcepb.Resource) storedResource {
	if c.opts.Trim != nil {
		c.opts.Trim(res)
	}
	data, err := codec.Encode(res)
	if err != nil {
		// The backend has decoded the resource, so Trim made it invalid.
		panic(fmt.Sprintf("cache: cannot encode a resource after Options.Trim: %v", err))
	}
	return storedResource{data: data[:len(data):len(data)], owner: ownerIndexKey(res.GetOwner())}
}

// Stats describes the contents of a cache.
type Stats struct {
	// Resources is the number of resources.
	Resources int
	// Bytes is the approximate memory they use.
	Bytes int64
	// Live reports whether a watch feeds the copy. It is false while the store is listed again.
	Live bool
	// Relists is the number of times that the store was listed again because a watch had ended.
	Relists int64
}

// Stats returns the size and the state of the copy.
func (c *Cache) Stats() Stats {
	s := c.copy.Stats()
	return Stats{Resources: s.Rows, Bytes: s.Bytes, Live: s.Live, Relists: s.Relists}
}

// Err returns nil while a watch feeds the copy, and otherwise the reason why none does. The state may be temporary: the cache lists the store
// again until that succeeds. Meanwhile the backend answers strong reads, and eventual reads return the last state.
//
// A damaged resource of a copied type is such a reason, as a *storage.DamagedError: overwrite or delete it. Damaged resources of other types are
// skipped.
func (c *Cache) Err() error { return c.copy.Health() }

// ErrChanged returns a channel that is closed when the result of Err may have changed.
func (c *Cache) ErrChanged() <-chan struct{} { return c.copy.HealthChanged() }

// Unwrap returns the inner backend. A write to it reaches the cache through the watch.
func (c *Cache) Unwrap() storage.Backend { return c.backend }

// Close closes the cache and the inner backend.
func (c *Cache) Close() error {
	c.closed.Store(true)
	err := c.backend.Close()
	c.copy.Close()
	return err
}

// begin checks the preconditions of a call that the copy may answer. It returns the first error of: storage.ErrClosed, the argument errors,
// the context's error.
func (c *Cache) begin(ctx context.Context, problems ...error) error {
	if c.closed.Load() || c.copy.HasEnded() { // closing the inner backend ends the copy
		return storage.ErrClosed
	}
	for _, problem := range problems {
		if problem != nil {
			return problem
		}
	}
	return ctx.Err()
}

// waitForCopy calls a function that waits for the copy, bounded by Options.Timeout, and maps its error to the contract's errors.
func (c *Cache) waitForCopy(ctx context.Context, await func(context.Context) error) error {
	if _, bounded := ctx.Deadline(); !bounded {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, c.opts.Timeout)
		defer cancel()
	}
	err := await(ctx)
	if err == nil || errors.Is(err, storage.ErrClosed) {
		return err
	}
	return fmt.Errorf("%w: the copy has not caught up with the database: %w", storage.ErrInconsistent, err)
}

// holds reports whether the type of a key is copied.
func (c *Cache) holds(k key.Key) bool {
	return len(c.types) == 0 || c.types[storage.UnversionedType{Group: k.Group, Kind: k.Kind}]
}

// overlaps reports whether a list of a type may include copied resources.
func (c *Cache) overlaps(typ storage.UnversionedType) bool {
	for t := range c.types {
		if (typ.Group == storage.Wildcard || typ.Group == t.Group) && (typ.Kind == storage.Wildcard || typ.Kind == t.Kind) {
			return true
		}
	}
	return len(c.types) == 0
}

// covers reports whether every resource that a filter matches is copied.
func (c *Cache) covers(f key.Filter) bool {
	return len(c.types) == 0 || c.types[storage.UnversionedType{Group: f.Group, Kind: f.Kind}]
}
