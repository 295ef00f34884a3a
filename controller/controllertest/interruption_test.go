package controllertest

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/ashlar-dev/storage/controller"
	"github.com/ashlar-dev/storage/resourcepb"
	"github.com/ashlar-dev/storage/resourcepb/resourcegrpc"
)

// short is a client whose first streams end with an error after some events each.
type short struct {
	resourcegrpc.ResourceServiceClient
	streams *atomic.Int64
	code    codes.Code
}

func (s short) WatchList(ctx context.Context, in *resourcepb.WatchListRequest, opts ...grpc.CallOption) (grpc.ServerStreamingClient[resourcepb.WatchEvent], error) {
	stream, err := s.ResourceServiceClient.WatchList(ctx, in, opts...)
	if n := s.streams.Add(1); err == nil && n <= 10 {
		return &shortStream{ServerStreamingClient: stream, rest: int(n) % 5 * 3, code: s.code}, nil
	}
	return stream, err
}

type shortStream struct {
	grpc.ServerStreamingClient[resourcepb.WatchEvent]
	rest int
	code codes.Code
}

func (s *shortStream) Recv() (*resourcepb.WatchEvent, error) {
	if s.rest--; s.rest < 0 {
		return nil, status.Error(s.code, "the end of a short stream")
	}
	return s.ServerStreamingClient.Recv()
}

// Streams end in the snapshot, which cannot be resumed, and just behind it. No reconcile starts before both types are complete.
func TestStreamsEndWhileTypesAreCached(t *testing.T) {
	t.Parallel()
	for _, code := range []codes.Code{codes.Unavailable, codes.OutOfRange, codes.Aborted, codes.DataLoss} {
		Run(t, nil, func(e *Env) {
			const n = 10
			for i := range n {
				e.Put(ID(listType, "%d", i), wrapperspb.String(""))
				e.Put(ID(itemType, "%d", i), wrapperspb.String(""))
			}
			client := short{e.Client, &atomic.Int64{}, code}
			var done record
			e.start(client, nil, controller.NewController("lists", listType).WithWatch(itemType, nil).WithPlacement(controller.PlacementEachServer).
				WithReconciler(controller.ReconcileFunc(func(_ context.Context, rt controller.Runtime, req controller.Request) error {
					done.add(req.ID.GetName())
					for _, typ := range []*resourcepb.Type{listType, itemType} {
						if all, err := rt.Cache.List(typ, controller.IDIndex, ID(typ, "")); err != nil || len(all) != n {
							t.Errorf("%v: a reconcile finds %d resources of the type %s, %v, expected %d", code, len(all), typ.GetKind(), err, n)
						}
					}
					return nil
				})))
			time.Sleep(10 * time.Minute)
			if done.len() != n || client.streams.Load() <= 10 {
				t.Errorf("%v: %d lists were reconciled after %d streams, expected %d", code, done.len(), client.streams.Load(), n)
			}
		})
	}
}

// A process is stopped at the moment when delayed reconciles are due. No reconcile begins after Run has returned.
func TestStopWhileReconcilesAreDue(t *testing.T) {
	t.Parallel()
	for _, offset := range []time.Duration{-1, 0, 1} {
		Run(t, nil, func(e *Env) {
			const n = 20
			for i := range n {
				e.Put(ID(listType, "%d", i), wrapperspb.String(""))
			}
			var running atomic.Int64
			var hasStopped atomic.Bool
			var done record
			p := e.Manager(nil, controller.NewController("lists", listType).WithWorkers(4).WithPlacement(controller.PlacementEachServer).
				WithReconciler(controller.ReconcileFunc(func(ctx context.Context, _ controller.Runtime, req controller.Request) error {
					if hasStopped.Load() {
						t.Error("a reconcile begins after the process has stopped")
					}
					running.Add(1)
					defer running.Add(-1)
					done.add(req.ID.GetName())
					time.Sleep(time.Millisecond) // not the context
					return controller.RequeueAfter(time.Minute)
				})))
			time.Sleep(time.Minute + time.Millisecond + offset)
			p.Stop()
			hasStopped.Store(true)
			if n := running.Load(); n != 0 {
				t.Errorf("%d reconciles run after the process has stopped", n)
			}
			time.Sleep(time.Hour)
			if done.len() != n {
				t.Errorf("%d lists were reconciled, expected %d", done.len(), n)
			}
		})
	}
}

// A reconcile that returns at its deadline was successful if it returns no error, and timed out if it returns the error of its context. One that
// ignores its context delays neither other resources nor a change of its own resource beyond its end.
func TestReconcilesEndAtTheirDeadline(t *testing.T) {
	t.Parallel()
	Run(t, nil, func(e *Env) {
		const timeout = time.Minute
		for _, name := range []string{"succeeds", "fails", "ignores", "other"} {
			e.Put(ID(listType, "%s", name), wrapperspb.String(""))
		}
		began := time.Now()
		var done, ended record
		c := controller.NewController("lists", listType).WithWorkers(4).WithTimeout(timeout).WithPlacement(controller.PlacementEachServer).
			WithReconciler(controller.ReconcileFunc(func(ctx context.Context, _ controller.Runtime, req controller.Request) error {
				name := req.ID.GetName()
				defer ended.add(name)
				if done.add(name) > 1 {
					return nil
				}
				switch name {
				case "succeeds":
					time.Sleep(timeout)
				case "fails":
					<-ctx.Done()
					if took := time.Since(began); took != timeout || !errors.Is(context.Cause(ctx), context.DeadlineExceeded) {
						t.Errorf("the context ends after %v: %v", took, context.Cause(ctx))
					}
					return fmt.Errorf("too slow: %w", ctx.Err())
				case "ignores":
					time.Sleep(10 * timeout)
				}
				return nil
			}))
		e.Manager(nil, c)
		time.Sleep(2 * timeout)
		e.Put(ID(listType, "ignores"), wrapperspb.String("changed"))
		e.Put(ID(listType, "other"), wrapperspb.String("changed"))
		time.Sleep(timeout)
		for name, want := range map[string]int{"succeeds": 1, "fails": 2, "ignores": 1, "other": 2} {
			if got := done.get(name); got != want {
				t.Errorf("%q was reconciled %d times, expected %d", name, got, want)
			}
		}
		if ended.get("ignores") != 0 {
			t.Error("the reconcile that ignores its context has ended")
		}
		time.Sleep(10 * timeout)
		if done.get("ignores") != 2 {
			t.Errorf("the change during a long reconcile caused %d reconciles, expected 2", done.get("ignores"))
		}
	})
}
