package backend

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/ashlar-dev/storage"
	"github.com/ashlar-dev/storage/driver"
	"github.com/ashlar-dev/storage/internal/check"
	"github.com/ashlar-dev/storage/internal/cursor"
	"github.com/ashlar-dev/storage/resourcepb"
	"github.com/ashlar-dev/storage/telemetry"
)

// WatchList implements storage.Backend.
func (b *Backend[P]) WatchList(ctx context.Context, typ storage.UnversionedType, tenancy *resourcepb.Tenancy, namePrefix string) (_ storage.Watch, err error) {
	f, err := check.Filter(typ, tenancy, namePrefix)
	ctx, call, err := b.begin(ctx, telemetry.Watch, err)
	if err != nil {
		return nil, err
	}
	defer call.end(&err)
	for called := time.Now(); ; {
		w, err := b.watch(ctx, called, f)
		switch {
		case err == nil:
			return w, nil
		case errors.Is(err, storage.ErrClosed):
			return nil, storage.ErrClosed
		case !errors.Is(err, driver.ErrRunEnded):
			return nil, callError("watch", nil, err)
		}
		select {
		case <-time.After(time.Millisecond): // the next run returns the reason for the end, or continues
		case <-ctx.Done():
			return nil, callError("watch", nil, fmt.Errorf("%w: %w", storage.ErrInconsistent, ctx.Err()))
		}
	}
}

func (b *Backend[P]) watch(ctx context.Context, called time.Time, f driver.Filter) (storage.Watch, error) {
	mark, err := b.feed.Start(ctx)
	if err != nil {
		return nil, err
	}
	snapshot, at, err := b.snapshot(ctx, called, &f)
	if err != nil {
		mark.Release()
		return nil, err
	}
	return b.feed.Watch(mark, f, snapshot, at), nil
}

// WatchFrom implements storage.Resumer.
func (b *Backend[P]) WatchFrom(ctx context.Context, typ storage.UnversionedType, tenancy *resourcepb.Tenancy, namePrefix, from string) (_ storage.Watch, err error) {
	f, badFilter := check.Filter(typ, tenancy, namePrefix)
	at, badCursor := b.parseCursor(from)
	ctx, call, err := b.begin(ctx, telemetry.WatchFrom, badFilter, badCursor)
	if err != nil {
		return nil, err
	}
	defer call.end(&err)
	w, err := b.feed.Resume(ctx, f, at, from)
	switch {
	case errors.Is(err, storage.ErrClosed):
		return nil, storage.ErrClosed
	case err != nil:
		return nil, callError("watch", nil, err)
	}
	return w, nil
}

func (b *Backend[P]) parseCursor(text string) (at P, err error) {
	payload, err := cursor.Decode(cursor.Watch, b.driver.StoreID(), text)
	if err != nil {
		return at, err
	}
	return b.source.Decode(payload)
}
