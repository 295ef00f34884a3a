package cache

import (
	"context"

	"github.com/ashlar-dev/storage"
	"github.com/ashlar-dev/storage/history"
	"github.com/ashlar-dev/storage/resourcepb"
)

// As implements the lookup of [storage.As]. It finds storage.Pager, storage.Resumer, storage.Transactor and history.Historian if the inner
// backend has them. It refuses the interfaces of package driver that tools use to move stores, because they bypass the copy.
func (c *Cache) As(target any) bool {
	switch target := target.(type) {
	case **Cache:
		*target = c
		return true
	case *storage.Pager:
		return find(c, target, func(inner storage.Pager) storage.Pager { return pager{c, inner} })
	case *storage.Resumer:
		return find(c, target, func(inner storage.Resumer) storage.Resumer { return resumer{c, inner} })
	case *storage.Transactor:
		return find(c, target, func(inner storage.Transactor) storage.Transactor { return transactor{c, inner} })
	case *history.Historian:
		return find(c, target, func(inner history.Historian) history.Historian { return historian{inner, c} })
	}
	return false
}

func find[T any](c *Cache, target *T, wrap func(T) T) bool {
	inner, ok := storage.As[T](c.backend)
	if ok {
		*target = wrap(inner)
	}
	return ok
}

// pager adds storage.Pager to a cache.
type pager struct {
	*Cache
	inner storage.Pager
}

// ListPage implements storage.Pager. The database answers it.
func (p pager) ListPage(ctx context.Context, typ storage.UnversionedType, tenancy *resourcepb.Tenancy, namePrefix string, opts storage.ListOptions) (storage.Page, error) {
	number := p.unconfirmedKeys.latest()
	page, err := p.inner.ListPage(ctx, typ, tenancy, namePrefix, opts)
	if err != nil {
		return page, err
	}
	listed := page.Resources
	if opts.Continue != "" || opts.Revision != 0 {
		listed = nil // the page is of an earlier state
	}
	p.noteListing(typ, listed, number)
	return page, nil
}

// historian adds history.Historian to a cache. Its answers about the present mark every key as unconfirmed.
type historian struct {
	history.Historian
	cache *Cache
}

// Scan implements history.Historian.
func (h historian) Scan(ctx context.Context, span history.Range, opts history.ScanOptions) (history.ScanResult, error) {
	scan, err := h.Historian.Scan(ctx, span, opts)
	if err == nil {
		h.cache.unconfirmedKeys.addAll()
	}
	return scan, err
}

// Swap implements history.Historian.
func (h historian) Swap(ctx context.Context, swap history.Swap) (history.SwapResult, error) {
	swapped, err := h.Historian.Swap(ctx, swap)
	if err == nil {
		h.cache.unconfirmedKeys.addAll()
	}
	return swapped, err
}

// Follow implements history.Historian.
func (h historian) Follow(ctx context.Context, span history.Range, after int64) (history.Follower, error) {
	inner, err := h.Historian.Follow(ctx, span, after)
	if err != nil {
		return nil, err
	}
	return follower{inner, h.cache}, nil
}

// follower marks every key as unconfirmed when it returns changes.
type follower struct {
	history.Follower
	cache *Cache
}

// Next implements history.Follower.
func (f follower) Next(ctx context.Context) ([]history.Change, int64, error) {
	changes, revision, err := f.Follower.Next(ctx)
	if len(changes) > 0 {
		f.cache.unconfirmedKeys.addAll()
	}
	return changes, revision, err
}
