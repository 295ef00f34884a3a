package replica_test

import (
	"context"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/ashlar-dev/storage"
	"github.com/ashlar-dev/storage/internal/replica"
	"github.com/ashlar-dev/storage/resourcepb"
)

// shortWatches is an empty backend whose watches end after their snapshots. It opens at most maxWatches of them.
type shortWatches struct {
	storage.Backend
	watches atomic.Int64
}

const maxWatches = 1000

func (f *shortWatches) WatchList(
	ctx context.Context, _ storage.UnversionedType, _ *resourcepb.Tenancy, _ string,
) (storage.Watch, error) {
	if f.watches.Add(1) > maxWatches {
		<-ctx.Done()
		return nil, ctx.Err()
	}
	return &shortWatch{}, nil
}

type shortWatch struct{ hasSnapshot bool }

func (w *shortWatch) Next(context.Context) (*resourcepb.WatchEvent, error) {
	if w.hasSnapshot {
		return nil, storage.ErrWatchClosed
	}
	w.hasSnapshot = true
	return &resourcepb.WatchEvent{Event: &resourcepb.WatchEvent_EndOfSnapshot_{EndOfSnapshot: &resourcepb.WatchEvent_EndOfSnapshot{}}}, nil
}

func (w *shortWatch) Cursor() string { return "" }
func (w *shortWatch) Close()         {}

// Watches that end immediately do not cause continuous relists.
func TestWatchesThatEndImmediately(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := &shortWatches{}
		r, err := replica.Open(t.Context(), b, replica.Options[string]{Decode: func(*resourcepb.Resource) string { return "" }})
		if err != nil {
			t.Fatal(err)
		}
		<-time.After(time.Minute)
		r.Close()
		if n := b.watches.Load(); n > 100 {
			t.Errorf("%d watches were opened in a minute", n)
		}
	})
}
