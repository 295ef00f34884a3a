package controllertest

import (
	"context"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/ashlar-dev/storage/controller"
	"github.com/ashlar-dev/storage/resourcepb"
	"github.com/ashlar-dev/storage/service"
)

// lossy is a client that loses its link and the answer to its first write. The first read of a regular name after it fails.
type lossy struct {
	*link
	lost, isRead *atomic.Bool
	failure      error // of the read; nil if it has no answer
}

func (l lossy) Read(ctx context.Context, in *resourcepb.ReadRequest, opts ...grpc.CallOption) (*resourcepb.ReadResponse, error) {
	if !l.lost.Load() || strings.HasPrefix(in.Id.Name, "Irregular") || !l.isRead.CompareAndSwap(false, true) {
		return l.link.Read(ctx, in, opts...)
	}
	if l.failure != nil {
		return nil, l.failure
	}
	<-ctx.Done()
	return nil, status.FromContextError(ctx.Err()).Err()
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

// creator is an initializer that deletes resources and then creates an item if there is no other one.
type creator struct {
	calls   *atomic.Int64
	deletes []*resourcepb.ID
}

func (c creator) Initialize(ctx context.Context, rt controller.Runtime) error {
	n := c.calls.Add(1)
	for _, id := range c.deletes {
		if _, err := rt.Client.Delete(ctx, &resourcepb.DeleteRequest{Id: id}); err != nil && n == 1 {
			return err
		}
	}
	items, err := rt.Cache.List(itemType, controller.IDIndex, ID(itemType, ""))
	if err != nil || slices.ContainsFunc(items, func(item *resourcepb.Resource) bool { return !strings.HasPrefix(item.Id.Name, "Irregular") }) {
		return err
	}
	_, err = rt.Client.Write(ctx, &resourcepb.WriteRequest{Resource: &resourcepb.Resource{Id: ID(itemType, "%d", n)}})
	return err
}

// The answer to a write of an initializer is lost. The next attempt finds the write, although the watch has not delivered it. Before that, the
// initializer has deleted resources that another program has stored under names that the service does not accept, so they cannot be read any more.
func TestInitializerFindsItsLostWrite(t *testing.T) {
	t.Parallel()
	moved, err := status.New(codes.FailedPrecondition, "the store has moved").WithDetails(&errdetails.ErrorInfo{Domain: service.Domain, Reason: "MOVED"})
	if err != nil {
		t.Fatal(err)
	}
	for _, failure := range []error{nil, moved.Err()} {
		Run(t, nil, func(e *Env) {
			client := lossy{newLink(e.Client), &atomic.Bool{}, &atomic.Bool{}, failure}
			var calls, reconciles atomic.Int64
			var irregular []*resourcepb.ID
			for i := range 20 {
				id := ID(itemType, "Irregular%d", i)
				stored := proto.CloneOf(id)
				stored.Uid = id.GetName()
				if _, err := e.Backend.WriteCAS(t.Context(), &resourcepb.Resource{Id: stored}); err != nil {
					t.Fatal(err)
				}
				irregular = append(irregular, id)
			}
			e.Put(ID(listType, "a"), wrapperspb.String(""))
			e.start(client, nil, controller.NewController("lists", listType).WithWatch(itemType, nil).WithPlacement(controller.PlacementEachServer).
				WithInitializer(creator{&calls, irregular}).
				WithReconciler(controller.ReconcileFunc(func(context.Context, controller.Runtime, controller.Request) error {
					reconciles.Add(1)
					return nil
				})))
			time.Sleep(time.Hour)
			client.mend(false)
			time.Sleep(time.Hour)
			if items := e.List(itemType); len(items) != 1 || calls.Load() != 2 || reconciles.Load() == 0 {
				t.Errorf("%v: %d calls of the initializer created %d items, expected 2 calls and one item; %d reconciles",
					failure, calls.Load(), len(items), reconciles.Load())
			}
		})
	}
}
