package replica

import (
	"context"
	"testing"

	"github.com/ashlar-dev/storage"
	"github.com/ashlar-dev/storage/driver/key"
	_ "github.com/ashlar-dev/storage/inmem"
	"github.com/ashlar-dev/storage/internal/storetest"
	"github.com/ashlar-dev/storage/resourcepb"
)

// quiet is a backend whose watches bring their snapshot and, once told, the rest.
type quiet struct {
	storage.Backend
	told chan struct{}
}

func (q quiet) WatchList(ctx context.Context, typ storage.UnversionedType, tenancy *resourcepb.Tenancy, prefix string) (storage.Watch, error) {
	w, err := q.Backend.WatchList(ctx, typ, tenancy, prefix)
	return &quietWatch{Watch: w, told: q.told}, err
}

type quietWatch struct {
	storage.Watch
	told chan struct{}
	past bool
}

func (w *quietWatch) Next(ctx context.Context) (*resourcepb.WatchEvent, error) {
	if w.past {
		select {
		case <-w.told:
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
	ev, err := w.Watch.Next(ctx)
	w.past = w.past || ev.GetEndOfSnapshot() != nil
	return ev, err
}

// Who waits for an own write goes on waiting when a second one has covered it: a cut has neither.
func TestSettledWaitsForWhatIsCovered(t *testing.T) {
	t.Parallel()
	ctx := storetest.Context(t)
	b := quiet{storetest.Open(t, "mem://"), make(chan struct{})}
	r, err := Open(ctx, b, Options[string]{Decode: func(res *resourcepb.Resource) string { return res.GetVersion() }})
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	write := func(res *resourcepb.Resource) *resourcepb.Resource {
		w := r.Begin([]key.Key{key.Of(res.GetId())})
		stored := storetest.Write(t, b, res)
		if unsure := w.End([]*resourcepb.Resource{stored}, nil); len(unsure) > 0 {
			t.Errorf("the copy is not sure of %v", unsure)
		}
		return stored
	}
	first := write(storetest.Resource("a", "1"))
	settled := make(chan error, 1)
	go func() { settled <- r.Settled(ctx, func(key.Key) bool { return true }) }()
	storetest.Eventually(t, "it waits", func() bool {
		r.mu.Lock()
		defer r.mu.Unlock()
		return r.wake != nil
	})
	write(first)
	storetest.Eventually(t, "it waits again, or has ended", func() bool {
		r.mu.Lock()
		defer r.mu.Unlock()
		return r.wake != nil || len(settled) > 0
	})
	if len(settled) > 0 && r.Cut().Get(key.Of(first.GetId())) == nil {
		t.Error("it has ended although a cut does not have the write")
	}
	close(b.told)
	if err := <-settled; err != nil {
		t.Fatal(err)
	}
	if r.Cut().Get(key.Of(first.GetId())) == nil {
		t.Error("a cut does not have the write")
	}
}
