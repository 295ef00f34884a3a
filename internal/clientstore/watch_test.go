package clientstore

import (
	"context"
	"log/slog"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/ashlar-dev/storage"
	"github.com/ashlar-dev/storage/resourcepb"
	"github.com/ashlar-dev/storage/resourcepb/resourcegrpc"
)

// draining is a service that opens each stream and ends it at once, as a remote server that drains. The first stream has a snapshot.
type draining struct {
	resourcegrpc.ResourceServiceClient
	opened, limit int
}

func (d *draining) WatchList(context.Context, *resourcepb.WatchListRequest, ...grpc.CallOption) (grpc.ServerStreamingClient[resourcepb.WatchEvent], error) {
	d.opened++
	switch d.opened {
	case 1:
		return &events{all: []*resourcepb.WatchEvent{{Cursor: "c", Event: &resourcepb.WatchEvent_EndOfSnapshot_{EndOfSnapshot: &resourcepb.WatchEvent_EndOfSnapshot{}}}}}, nil
	case d.limit:
		return nil, status.Error(codes.OutOfRange, "the end of the test")
	}
	return &events{}, nil
}

type events struct {
	grpc.ServerStreamingClient[resourcepb.WatchEvent]
	all []*resourcepb.WatchEvent
}

func (e *events) Recv() (*resourcepb.WatchEvent, error) {
	if len(e.all) == 0 {
		return nil, status.Error(codes.Unavailable, "the server is shutting down")
	}
	next := e.all[0]
	e.all = e.all[1:]
	return next, nil
}

// Streams that end without an event are reopened after growing pauses.
func TestPausesBetweenEmptyStreams(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		d := &draining{limit: 12}
		w, err := New(d, &resourcepb.Type{Group: "test", GroupVersion: "v1", Kind: "Thing"}, nil, slog.New(slog.DiscardHandler)).
			WatchList(t.Context(), storage.UnversionedType{}, nil, "")
		if err != nil {
			t.Fatal(err)
		}
		defer w.Close()
		began := time.Now()
		for err == nil {
			_, err = w.Next(t.Context())
		}
		if took := time.Since(began); took < 10*time.Second {
			t.Errorf("%d streams within %v, expected growing pauses", d.opened, took)
		}
	})
}
