package servicetest

import (
	"context"

	"github.com/ashlar-dev/storage"
	"github.com/ashlar-dev/storage/resourcepb"
)

// restorable is a backend whose watches end when it is restored, as in every backend.
type restorable struct {
	storage.Backend
	restored chan struct{}
}

// WatchList implements storage.Backend.
func (b *restorable) WatchList(ctx context.Context, t storage.UnversionedType, tenancy *resourcepb.Tenancy,
	prefix string) (storage.Watch, error) {
	w, err := b.Backend.WatchList(ctx, t, tenancy, prefix)
	return restorableWatch{w, b.restored}, err
}

type restorableWatch struct {
	storage.Watch
	restored chan struct{}
}

// Next implements storage.Watch.
func (w restorableWatch) Next(ctx context.Context) (*resourcepb.WatchEvent, error) {
	restoredCtx, cancel := context.WithCancel(ctx)
	defer cancel()
	stop := make(chan struct{})
	defer close(stop)
	go func() {
		select {
		case <-w.restored:
			cancel()
		case <-stop:
		}
	}()
	ev, err := w.Watch.Next(restoredCtx)
	if err != nil && ctx.Err() == nil && restoredCtx.Err() != nil {
		return nil, errRestored
	}
	return ev, err
}
