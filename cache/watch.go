package cache

import (
	"context"

	"github.com/ashlar-dev/storage"
	"github.com/ashlar-dev/storage/driver/key"
	"github.com/ashlar-dev/storage/history"
	"github.com/ashlar-dev/storage/resourcepb"
)

// WatchList implements storage.Backend. The watch is the inner backend's.
func (c *Cache) WatchList(ctx context.Context, typ storage.UnversionedType, tenancy *resourcepb.Tenancy, namePrefix string) (storage.Watch, error) {
	w, err := c.backend.WatchList(ctx, typ, tenancy, namePrefix)
	return c.wrapWatch(w, err, typ)
}

// resumer adds storage.Resumer to a cache.
type resumer struct {
	*Cache
	inner storage.Resumer
}

// WatchFrom implements storage.Resumer.
func (r resumer) WatchFrom(ctx context.Context, typ storage.UnversionedType, tenancy *resourcepb.Tenancy, namePrefix, cursor string) (storage.Watch, error) {
	w, err := r.inner.WatchFrom(ctx, typ, tenancy, namePrefix, cursor)
	return r.wrapWatch(w, err, typ)
}

// wrapWatch wraps a watch and keeps its capabilities.
func (c *Cache) wrapWatch(inner storage.Watch, err error, typ storage.UnversionedType) (storage.Watch, error) {
	if err != nil {
		return nil, err
	}
	w := &watch{inner, c, typ}
	bookmarker, bookmarks := inner.(storage.Bookmarker)
	recaller, recalls := inner.(history.Recaller)
	switch {
	case bookmarks && recalls:
		return struct {
			*watch
			storage.Bookmarker
			history.Recaller
		}{w, bookmarker, recaller}, nil
	case bookmarks:
		return struct {
			*watch
			storage.Bookmarker
		}{w, bookmarker}, nil
	case recalls:
		return struct {
			*watch
			history.Recaller
		}{w, recaller}, nil
	}
	return w, nil
}

// watch records the events that it returns.
type watch struct {
	storage.Watch
	cache *Cache
	typ   storage.UnversionedType
}

// SkipDamage makes the inner watch skip damaged resources of some types, if it can.
func (w *watch) SkipDamage(of func(storage.UnversionedType) bool) {
	if inner, ok := w.Watch.(interface {
		SkipDamage(func(storage.UnversionedType) bool)
	}); ok {
		inner.SkipDamage(of)
	}
}

// EndAtMove makes the inner watch end when its store has moved, if it can.
func (w *watch) EndAtMove() {
	if inner, ok := w.Watch.(interface{ EndAtMove() }); ok {
		inner.EndAtMove()
	}
}

// Next implements storage.Watch.
func (w *watch) Next(ctx context.Context) (*resourcepb.WatchEvent, error) {
	ev, err := w.Watch.Next(ctx)
	if err != nil {
		return nil, err
	}
	if res := ev.GetUpsert().GetResource(); res != nil {
		w.cache.noteEvent(key.Of(res.GetId()), res.GetVersion(), false)
	} else if res := ev.GetDelete().GetResource(); res != nil {
		w.cache.noteEvent(key.Of(res.GetId()), res.GetVersion(), true)
	}
	if ev.GetEndOfSnapshot() != nil {
		w.cache.noteListing(w.typ, nil, 0)
	}
	return ev, nil
}
