package controllertest

import (
	"context"
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/ashlar-dev/storage/controller"
	"github.com/ashlar-dev/storage/resourcepb"
	"github.com/ashlar-dev/storage/typed"
)

// A process that takes over reads the writes of its predecessor before it reconciles, however late its watch is.
func TestTenureBeginsWithTheWritesOfEarlierOnes(t *testing.T) {
	t.Parallel()
	Run(t, nil, func(e *Env) {
		var names atomic.Int64
		one := func() *controller.Controller { // creates an item with a random name unless one exists
			return controller.NewController("lists", listType).WithWatch(itemType, nil).
				WithReconciler(controller.ReconcileFunc(func(ctx context.Context, rt controller.Runtime, req controller.Request) error {
					if all, err := items.List(rt, controller.IDIndex, ID(itemType, "")); err != nil || len(all) > 0 {
						return err
					}
					_, err := items.Apply(ctx, rt, &typed.Object[*wrapperspb.StringValue]{ID: ID(itemType, "item-%d", names.Add(1)), Data: wrapperspb.String(fmt.Sprint(rt.Epoch))})
					return err
				}))
		}
		first := e.Manager(nil, one())
		e.Settle()
		late := withFilter(func(req *resourcepb.WatchListRequest) func(*resourcepb.WatchEvent) []*resourcepb.WatchEvent {
			return func(ev *resourcepb.WatchEvent) []*resourcepb.WatchEvent {
				if req.GetType().GetKind() == itemType.GetKind() && ev.GetUpsert() != nil {
					time.Sleep(3 * time.Minute)
				}
				return []*resourcepb.WatchEvent{ev}
			}
		})
		e.start(late.client(e.Client), nil, one())
		e.Settle()
		e.Put(ID(listType, "a"), wrapperspb.String("a"))
		e.Settle()
		first.Kill()
		time.Sleep(10 * time.Minute)
		if all := e.List(itemType); len(all) != 1 {
			t.Errorf("%d items, expected the one of the first process: %v", len(all), all)
		}
	})
}
