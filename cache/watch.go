package cache

import (
	"context"

	"github.com/ashlar-dev/storage"
	"github.com/ashlar-dev/storage/driver/key"
	"github.com/ashlar-dev/storage/resourcepb"
)

// WatchList implements storage.Backend. The watch is the backend's own.
func (c *Cache) WatchList(ctx context.Context, typ storage.UnversionedType, tenancy *resourcepb.Tenancy, namePrefix string) (storage.Watch, error) {
	return c.watched(c.backend.WatchList(ctx, typ, tenancy, namePrefix))
}

// resumer is a cache over a Resumer.
type resumer struct {
	*Cache
	inner storage.Resumer
}

// WatchFrom implements storage.Resumer.
func (r resumer) WatchFrom(ctx context.Context, typ storage.UnversionedType, tenancy *resourcepb.Tenancy, namePrefix, cursor string) (storage.Watch, error) {
	return r.watched(r.inner.WatchFrom(ctx, typ, tenancy, namePrefix, cursor))
}

// watched returns a watch with the capabilities of a backend's.
func (c *Cache) watched(inner storage.Watch, err error) (storage.Watch, error) {
	if err != nil {
		return nil, err
	}
	w := &watch{inner, c}
	bookmarker, bookmarks := inner.(storage.Bookmarker)
	recaller, recalls := inner.(storage.Recaller)
	switch {
	case bookmarks && recalls:
		return struct {
			*watch
			storage.Bookmarker
			storage.Recaller
		}{w, bookmarker, recaller}, nil
	case bookmarks:
		return struct {
			*watch
			storage.Bookmarker
		}{w, bookmarker}, nil
	case recalls:
		return struct {
			*watch
			storage.Recaller
		}{w, recaller}, nil
	}
	return w, nil
}

// watch notes what it shows.
type watch struct {
	storage.Watch
	cache *Cache
}

// Next implements storage.Watch.
func (w *watch) Next(ctx context.Context) (*resourcepb.WatchEvent, error) {
	ev, err := w.Watch.Next(ctx)
	if err != nil {
		return nil, err
	}
	if res := ev.GetUpsert().GetResource(); res != nil {
		w.cache.event(key.Of(res.GetId()), res.GetVersion(), false)
	} else if res := ev.GetDelete().GetResource(); res != nil {
		w.cache.event(key.Of(res.GetId()), res.GetVersion(), true)
	}
	return ev, nil
}
