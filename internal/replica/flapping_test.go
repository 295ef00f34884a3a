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

// flapping is an empty backend whose watches end behind their snapshots. It opens so many and no more.
type flapping struct {
	storage.Backend
	watches atomic.Int64
}

const mostWatches = 1000

func (f *flapping) WatchList(
	ctx context.Context, _ storage.UnversionedType, _ *resourcepb.Tenancy, _ string,
) (storage.Watch, error) {
	if f.watches.Add(1) > mostWatches {
		<-ctx.Done()
		return nil, ctx.Err()
	}
	return &flappingWatch{}, nil
}

type flappingWatch struct{ past bool }

func (w *flappingWatch) Next(context.Context) (*resourcepb.WatchEvent, error) {
	if w.past {
		return nil, storage.ErrWatchClosed
	}
	w.past = true
	return &resourcepb.WatchEvent{Event: &resourcepb.WatchEvent_EndOfSnapshot_{EndOfSnapshot: &resourcepb.WatchEvent_EndOfSnapshot{}}}, nil
}

func (w *flappingWatch) Cursor() string { return "" }
func (w *flappingWatch) Close()         {}

// Watches that can be opened, and end at once, do not have the store listed again and again without a pause.
func TestWatchesThatEndAtOnce(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := &flapping{}
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
