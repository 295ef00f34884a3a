package controller_test

import (
	"context"
	"fmt"
	"log/slog"
	"sync"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/ashlar-dev/storage/controller"
	"github.com/ashlar-dev/storage/controller/controllertest"
	"github.com/ashlar-dev/storage/resourcepb"
	"github.com/ashlar-dev/storage/resourcepb/resourcegrpc"
	"github.com/ashlar-dev/storage/typed"
)

var (
	listType = &resourcepb.Type{Group: "test", GroupVersion: "v1", Kind: "List"}
	itemType = &resourcepb.Type{Group: "test", GroupVersion: "v1", Kind: "Item"}
	items    = controller.NewKind[*wrapperspb.StringValue](itemType)
)

// interrupted is a client whose streams end with interrupt, and cannot be resumed.
type interrupted struct {
	resourcegrpc.ResourceServiceClient
	mu      sync.Mutex
	cancels []context.CancelFunc
	upCh    chan struct{} // closed while streams can be opened
}

func (c *interrupted) WatchList(ctx context.Context, in *resourcepb.WatchListRequest, opts ...grpc.CallOption) (grpc.ServerStreamingClient[resourcepb.WatchEvent], error) {
	c.mu.Lock()
	upCh := c.upCh
	c.mu.Unlock()
	select {
	case <-upCh:
	case <-ctx.Done():
		return nil, status.FromContextError(ctx.Err()).Err()
	}
	if in.GetCursor() != "" {
		return nil, status.Error(codes.OutOfRange, "the history has been compacted")
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	ctx, cancel := context.WithCancel(ctx)
	c.cancels = append(c.cancels, cancel)
	return c.ResourceServiceClient.WatchList(ctx, in, opts...)
}

// interrupt ends all streams, calls f, and lets new streams open.
func (c *interrupted) interrupt(f func()) {
	c.mu.Lock()
	c.upCh = make(chan struct{})
	for _, cancel := range c.cancels {
		cancel()
	}
	c.mu.Unlock()
	f()
	close(c.upCh)
}

// A list after an interruption has more differences than the log of changes keeps, so a mapper misses some. All resources are reconciled.
func TestMoreDifferencesThanTheLogKeeps(t *testing.T) {
	t.Parallel()
	controllertest.Run(t, nil, func(e *controllertest.Env) {
		const n = 700 // the log is a sequence of chunks of 256 changes
		put := func(list string) {
			for i := range n {
				e.Put(controllertest.ID(itemType, "item-%d", i), wrapperspb.String(list))
			}
		}
		for _, name := range []string{"from", "to"} {
			e.Put(controllertest.ID(listType, "%s", name), wrapperspb.String(""))
		}
		put("from")
		byList := controller.IndexBy("list", func(o *typed.Object[*wrapperspb.StringValue]) []string { return []string{o.Data.GetValue()} })
		var mu sync.Mutex
		counts := map[string]int{}
		client := &interrupted{ResourceServiceClient: e.Client, upCh: make(chan struct{})}
		close(client.upCh)
		m := controller.NewManager(client, &controller.Options{Logger: slog.New(slog.DiscardHandler)})
		if err := m.Register(controller.NewController("lists", listType).WithPlacement(controller.PlacementEachServer).
			WithWatch(itemType, func(_ context.Context, _ controller.Runtime, res *resourcepb.Resource) ([]controller.Request, error) {
				var list wrapperspb.StringValue
				err := res.GetData().UnmarshalTo(&list)
				return []controller.Request{{ID: controllertest.ID(listType, "%s", list.GetValue())}}, err
			}, byList).
			WithReconciler(controller.ReconcileFunc(func(_ context.Context, rt controller.Runtime, req controller.Request) error {
				found, err := items.List(rt, "list", req.ID.GetName())
				mu.Lock()
				defer mu.Unlock()
				counts[req.ID.GetName()] = len(found)
				return err
			}))); err != nil {
			t.Fatal(err)
		}
		m.SetLogLength(1)
		ctx, stop := context.WithCancel(context.Background())
		var running sync.WaitGroup
		running.Go(func() { _ = m.Run(ctx) })
		defer running.Wait()
		defer stop()
		expect := func(from, to int) {
			t.Helper()
			time.Sleep(time.Minute)
			mu.Lock()
			defer mu.Unlock()
			if got, want := fmt.Sprint(counts), fmt.Sprint(map[string]int{"from": from, "to": to}); got != want {
				t.Errorf("the last reconciles found items: %s, expected %s", got, want)
			}
		}
		expect(n, 0)
		client.interrupt(func() { put("to") })
		expect(0, n)
	})
}
