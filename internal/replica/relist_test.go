package replica_test

import (
	"context"
	"sync/atomic"
	"testing"

	"github.com/ashlar-dev/storage"
	"github.com/ashlar-dev/storage/driver/key"
	"github.com/ashlar-dev/storage/internal/replica"
	"github.com/ashlar-dev/storage/internal/test/fixture"
	"github.com/ashlar-dev/storage/resourcepb"
)

// silent is a backend without bookmarks whose first watch delivers only its snapshot and ends when end is closed.
type silent struct {
	storage.Backend
	end     chan struct{}
	watches atomic.Int64
}

func (d *silent) WatchList(
	ctx context.Context, typ storage.UnversionedType, tenancy *resourcepb.Tenancy, prefix string,
) (storage.Watch, error) {
	w, err := d.Backend.WatchList(ctx, typ, tenancy, prefix)
	if d.watches.Add(1) > 1 || err != nil {
		return struct{ storage.Watch }{w}, err
	}
	return &silentWatch{Watch: w, end: d.end}, nil
}

type silentWatch struct {
	storage.Watch
	end         chan struct{}
	hasSnapshot bool
}

func (w *silentWatch) Next(ctx context.Context) (*resourcepb.WatchEvent, error) {
	if w.hasSnapshot {
		select {
		case <-w.end:
			return nil, storage.ErrWatchClosed
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
	ev, err := w.Watch.Next(ctx)
	w.hasSnapshot = ev.GetEndOfSnapshot() != nil
	return ev, err
}

// No list or event has a resource that was created and deleted while there was no watch. The relist itself ends the wait.
func TestAwaitChangeAfterRelist(t *testing.T) {
	t.Parallel()
	ctx := fixture.Context(t)
	b := &silent{Backend: fixture.Open(t, "mem://"), end: make(chan struct{})}
	r, err := replica.Open(ctx, b, replica.Options[string]{
		Types:  []storage.UnversionedType{fixture.Type},
		Decode: func(res *resourcepb.Resource) string { return res.GetVersion() },
	})
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	before := r.View()
	fixture.Remove(t, b, fixture.Write(t, b, fixture.Resource("a", "")))
	changed := make(chan error, 1)
	go func() { changed <- r.AwaitChange(ctx, before, key.Of(fixture.ID("a")), "") }()
	close(b.end)
	if err := <-changed; err != nil {
		t.Fatal(err)
	}
}
