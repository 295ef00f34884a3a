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

// deaf is a backend whose first watch shows its snapshot, nothing else, and ends when it is told to. No watch of it proves where it is.
type deaf struct {
	storage.Backend
	end     chan struct{}
	watches atomic.Int64
}

func (d *deaf) WatchList(
	ctx context.Context, typ storage.UnversionedType, tenancy *resourcepb.Tenancy, prefix string,
) (storage.Watch, error) {
	w, err := d.Backend.WatchList(ctx, typ, tenancy, prefix)
	if d.watches.Add(1) > 1 || err != nil {
		return struct{ storage.Watch }{w}, err
	}
	return &deafWatch{Watch: w, end: d.end}, nil
}

type deafWatch struct {
	storage.Watch
	end  chan struct{}
	past bool
}

func (w *deafWatch) Next(ctx context.Context) (*resourcepb.WatchEvent, error) {
	if w.past {
		select {
		case <-w.end:
			return nil, storage.ErrWatchClosed
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
	ev, err := w.Watch.Next(ctx)
	w.past = ev.GetEndOfSnapshot() != nil
	return ev, err
}

// What has come and gone while there was no watch is in no list, and no change tells of it: the list itself is what ends the waiting.
func TestPassedByAnotherList(t *testing.T) {
	t.Parallel()
	ctx := fixture.Context(t)
	b := &deaf{Backend: fixture.Open(t, "mem://"), end: make(chan struct{})}
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
	passed := make(chan error, 1)
	go func() { passed <- r.AwaitChange(ctx, before, key.Of(fixture.ID("a")), "") }()
	close(b.end)
	if err := <-passed; err != nil {
		t.Fatal(err)
	}
}
