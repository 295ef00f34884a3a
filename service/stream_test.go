package service_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/ashlar-dev/storage"
	"github.com/ashlar-dev/storage/inmem"
	"github.com/ashlar-dev/storage/resourcepb"
	"github.com/ashlar-dev/storage/service"
	"github.com/ashlar-dev/storage/service/registry"
)

// slow is a backend whose snapshots take longer than any deadline.
type slow struct{ storage.Backend }

func (s slow) WatchList(ctx context.Context, typ storage.UnversionedType, tenancy *resourcepb.Tenancy, prefix string) (storage.Watch, error) {
	w, err := s.Backend.WatchList(ctx, typ, tenancy, prefix)
	return &slowWatch{Watch: w}, err
}

type slowWatch struct {
	storage.Watch
	live bool
}

func (w *slowWatch) Next(ctx context.Context) (*resourcepb.WatchEvent, error) {
	if _, short := ctx.Deadline(); short && !w.live {
		<-ctx.Done()
		return nil, ctx.Err()
	}
	ev, err := w.Watch.Next(ctx)
	w.live = w.live || ev.GetEndOfSnapshot() != nil
	return ev, err
}

func (w *slowWatch) Bookmark(ctx context.Context) error {
	return w.Watch.(storage.Bookmarker).Bookmark(ctx)
}

// Periodic work of a stream does not restart the snapshot: on a slow store the snapshot would never end.
func TestSlowSnapshotsEnd(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	late := time.AfterFunc(3*time.Minute, cancel) // not a deadline, which the stream would pass on
	defer late.Stop()
	b := inmem.New(nil)
	defer b.Close()
	c := service.New(slow{b}, albums(t, registry.Type{}), &service.Options{Recheck: time.Millisecond}).Client()
	store(ctx, t, b, album("a", "1"), "here", "v1")
	w, err := c.WatchList(ctx, &resourcepb.WatchListRequest{Type: albumType, BookmarkInterval: durationpb.New(time.Second)})
	if err != nil {
		t.Fatal(err)
	}
	if got := fmt.Sprint(readUntil(t, w, "")); got != "[+a end]" {
		t.Errorf("the stream shows %s", got)
	}
}
