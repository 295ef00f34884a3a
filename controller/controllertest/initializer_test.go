package controllertest

import (
	"context"
	"sync/atomic"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/ashlar-dev/storage/controller"
	"github.com/ashlar-dev/storage/resourcepb"
)

// lossy is a client that loses its link and the answer to its first write.
type lossy struct {
	*link
	lost *atomic.Bool
}

func (l lossy) Write(ctx context.Context, in *resourcepb.WriteRequest, opts ...grpc.CallOption) (*resourcepb.WriteResponse, error) {
	if !l.lost.CompareAndSwap(false, true) {
		return l.link.Write(ctx, in, opts...)
	}
	l.cut()
	if _, err := l.link.Write(ctx, in, opts...); err != nil {
		return nil, err
	}
	return nil, status.Error(codes.Unavailable, "the answer was lost")
}

// creator is an initializer that creates an item if there is none.
type creator struct{ calls *atomic.Int64 }

func (c creator) Initialize(ctx context.Context, rt controller.Runtime) error {
	n := c.calls.Add(1)
	items, err := rt.Cache.List(itemType, controller.IDIndex, ID(itemType, ""))
	if err != nil || len(items) > 0 {
		return err
	}
	_, err = rt.Client.Write(ctx, &resourcepb.WriteRequest{Resource: &resourcepb.Resource{Id: ID(itemType, "%d", n)}})
	return err
}

// The answer to a write of an initializer is lost. The next attempt finds the write, although the watch has not delivered it.
func TestInitializerFindsItsLostWrite(t *testing.T) {
	t.Parallel()
	Run(t, nil, func(e *Env) {
		client := lossy{newLink(e.Client), &atomic.Bool{}}
		var calls atomic.Int64
		e.start(client, nil, controller.NewController("lists", listType).WithWatch(itemType, nil).WithPlacement(controller.PlacementEachServer).
			WithInitializer(creator{&calls}).
			WithReconciler(controller.ReconcileFunc(func(context.Context, controller.Runtime, controller.Request) error { return nil })))
		time.Sleep(time.Minute)
		client.mend(false)
		time.Sleep(10 * time.Minute)
		if items := e.List(itemType); len(items) != 1 || calls.Load() != 2 {
			t.Errorf("%d calls of the initializer created %d items, expected 2 calls and one item", calls.Load(), len(items))
		}
	})
}
