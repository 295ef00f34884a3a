package controllertest

import (
	"context"
	"sync/atomic"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/ashlar-dev/storage/controller"
	"github.com/ashlar-dev/storage/resourcepb"
)

// lossy is a client that loses its link and the answers to its first write and to the first read after it.
type lossy struct {
	*link
	lost, isRead *atomic.Bool
}

func (l lossy) Read(ctx context.Context, in *resourcepb.ReadRequest, opts ...grpc.CallOption) (*resourcepb.ReadResponse, error) {
	if l.lost.Load() && l.isRead.CompareAndSwap(false, true) {
		<-ctx.Done()
		return nil, status.FromContextError(ctx.Err()).Err()
	}
	return l.link.Read(ctx, in, opts...)
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

// deleter is an initializer that deletes a resource.
type deleter struct{ id *resourcepb.ID }

func (d deleter) Initialize(ctx context.Context, rt controller.Runtime) error {
	_, err := rt.Client.Delete(ctx, &resourcepb.DeleteRequest{Id: d.id})
	return err
}

// An initializer deletes a resource that another program has stored under a name that the service does not accept. The controller starts,
// although the service refuses to read the name afterwards.
func TestInitializerDeletesAnIrregularName(t *testing.T) {
	t.Parallel()
	Run(t, nil, func(e *Env) {
		id := ID(itemType, "Irregular")
		stored := proto.CloneOf(id)
		stored.Uid = "u"
		if _, err := e.Backend.WriteCAS(t.Context(), &resourcepb.Resource{Id: stored}); err != nil {
			t.Fatal(err)
		}
		e.Put(ID(listType, "a"), wrapperspb.String(""))
		var reconciles atomic.Int64
		e.Manager(nil, controller.NewController("lists", listType).WithWatch(itemType, nil).WithPlacement(controller.PlacementEachServer).
			WithInitializer(deleter{id}).
			WithReconciler(controller.ReconcileFunc(func(context.Context, controller.Runtime, controller.Request) error {
				reconciles.Add(1)
				return nil
			})))
		time.Sleep(time.Hour)
		if items := e.List(itemType); reconciles.Load() == 0 || len(items) > 0 {
			t.Errorf("%d reconciles, and %d items remain", reconciles.Load(), len(items))
		}
	})
}

// The answer to a write of an initializer is lost. The next attempt finds the write, although the watch has not delivered it.
func TestInitializerFindsItsLostWrite(t *testing.T) {
	t.Parallel()
	Run(t, nil, func(e *Env) {
		client := lossy{newLink(e.Client), &atomic.Bool{}, &atomic.Bool{}}
		var calls atomic.Int64
		e.start(client, nil, controller.NewController("lists", listType).WithWatch(itemType, nil).WithPlacement(controller.PlacementEachServer).
			WithInitializer(creator{&calls}).
			WithReconciler(controller.ReconcileFunc(func(context.Context, controller.Runtime, controller.Request) error { return nil })))
		time.Sleep(time.Hour)
		client.mend(false)
		time.Sleep(time.Hour)
		if items := e.List(itemType); len(items) != 1 || calls.Load() != 2 {
			t.Errorf("%d calls of the initializer created %d items, expected 2 calls and one item", calls.Load(), len(items))
		}
	})
}
