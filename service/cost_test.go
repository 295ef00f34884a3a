package service_test

import (
	"context"
	"sync/atomic"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/ashlar-dev/storage"
	"github.com/ashlar-dev/storage/inmem"
	"github.com/ashlar-dev/storage/resourcepb"
	"github.com/ashlar-dev/storage/service"
	"github.com/ashlar-dev/storage/service/registry"
)

// countingBackend counts the calls of a backend.
type countingBackend struct {
	storage.Backend
	watches, others atomic.Int64
}

func (c *countingBackend) Read(ctx context.Context, consistency storage.ReadConsistency, id *resourcepb.ID) (*resourcepb.Resource, error) {
	c.others.Add(1)
	return c.Backend.Read(ctx, consistency, id)
}

func (c *countingBackend) WriteCAS(ctx context.Context, res *resourcepb.Resource) (*resourcepb.Resource, error) {
	c.others.Add(1)
	return c.Backend.WriteCAS(ctx, res)
}

func (c *countingBackend) List(ctx context.Context, consistency storage.ReadConsistency, typ storage.UnversionedType, tenancy *resourcepb.Tenancy, prefix string) ([]*resourcepb.Resource, error) {
	c.others.Add(1)
	return c.Backend.List(ctx, consistency, typ, tenancy, prefix)
}

func (c *countingBackend) WatchList(ctx context.Context, typ storage.UnversionedType, tenancy *resourcepb.Tenancy, prefix string) (storage.Watch, error) {
	c.watches.Add(1)
	return c.Backend.WatchList(ctx, typ, tenancy, prefix)
}

// A stream calls the store for its watch only, however many events it sends and however often it authenticates its caller. All watches of a
// backend share one feed, so 1,000 streams cost the database as much as one.
func TestStreamsCallWatchOnly(t *testing.T) {
	t.Parallel()
	types, err := registry.New(registry.Type{Type: albumType, Proto: &wrapperspb.StringValue{}, Scope: registry.ScopeNamespace})
	if err != nil {
		t.Fatal(err)
	}
	b := &countingBackend{Backend: inmem.New(nil)}
	defer b.Close()
	c := service.New(b, types, &service.Options{
		Recheck: time.Millisecond,
		Authenticate: func(context.Context, string, *resourcepb.Tenancy) (registry.Caller, error) {
			return operator{}, nil
		},
	}).Client()
	const streams, writes = 1000, 5
	var opened []grpc.ServerStreamingClient[resourcepb.WatchEvent]
	for range streams {
		w, err := c.WatchList(t.Context(), &resourcepb.WatchListRequest{Type: albumType})
		if err != nil {
			t.Fatal(err)
		}
		if ev, err := w.Recv(); err != nil || ev.GetEndOfSnapshot() == nil {
			t.Fatal(ev, err)
		}
		opened = append(opened, w)
	}
	for range writes {
		if _, err := c.Write(t.Context(), &resourcepb.WriteRequest{Resource: album("a", "x")}); err != nil {
			t.Fatal(err)
		}
	}
	for _, w := range opened {
		for range writes {
			if ev, err := w.Recv(); err != nil || ev.GetUpsert() == nil {
				t.Fatal(ev, err)
			}
		}
	}
	if watches, others := b.watches.Load(), b.others.Load(); watches != streams || others != 2*writes {
		t.Errorf("the store had %d watches and %d other calls, expected %d and %d", watches, others, streams, 2*writes)
	}
}

// operator is a caller that may do everything.
type operator struct{}

func (operator) OperatorRead() error  { return nil }
func (operator) OperatorWrite() error { return nil }
