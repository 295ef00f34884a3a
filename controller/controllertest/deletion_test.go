package controllertest

import (
	"context"
	"maps"
	"sync/atomic"
	"testing"
	"time"

	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/ashlar-dev/storage/controller"
	"github.com/ashlar-dev/storage/resourcepb"
)

// A deletion is visible in the cache at once, also to the reconciles of other resources, however late the watch is.
func TestDeletionIsVisibleAtOnce(t *testing.T) {
	t.Parallel()
	Run(t, nil, func(e *Env) {
		e.Put(ID(itemType, "item"), wrapperspb.String("a"))
		late := withFilter(func(*resourcepb.WatchListRequest) func(*resourcepb.WatchEvent) []*resourcepb.WatchEvent {
			return func(ev *resourcepb.WatchEvent) []*resourcepb.WatchEvent {
				if ev.GetDelete() != nil {
					time.Sleep(time.Hour)
				}
				return []*resourcepb.WatchEvent{ev}
			}
		})
		var deleted, others atomic.Bool
		e.start(late.client(e.Client), nil, controller.NewController("lists", listType).WithWatch(itemType, nil).
			WithReconciler(controller.ReconcileFunc(func(ctx context.Context, rt controller.Runtime, req controller.Request) error {
				if req.ID.GetName() == "deletes" {
					if err := items.Delete(ctx, rt, ID(itemType, "item")); err != nil {
						return err
					}
					deleted.Store(true)
				}
				others.Store(others.Load() || req.ID.GetName() == "reads")
				if all, err := items.List(rt, controller.IDIndex, ID(itemType, "")); err != nil || len(all) > 0 && deleted.Load() {
					t.Errorf("the reconcile of %q finds %v after the deletion, %v", req.ID.GetName(), all, err)
				}
				return nil
			})))
		e.Settle()
		e.Put(ID(listType, "deletes"), wrapperspb.String("a"))
		e.Settle()
		e.Put(ID(listType, "reads"), wrapperspb.String("a"))
		e.Settle()
		if !deleted.Load() || !others.Load() {
			t.Error("not every list was reconciled")
		}
	})
}

// The service completes the tenancy of an id. The cache has the latest version of a resource that was marked under an id without a tenancy.
func TestDeletionWithoutTenancy(t *testing.T) {
	t.Parallel()
	for _, tenancy := range []*resourcepb.Tenancy{nil, {Partition: "default", Namespace: "default"}} {
		Run(t, nil, func(e *Env) {
			item := resourceOf(itemType, "item", "a")
			item.Metadata = map[string]string{"finalizers": "a b c d"}
			e.Write(item)
			var seen atomic.Pointer[resourcepb.Resource]
			e.Manager(nil, controller.NewController("items", itemType).WithTenancy(tenancy).
				WithReconciler(controller.ReconcileFunc(func(ctx context.Context, rt controller.Runtime, req controller.Request) error {
					res, err := rt.Cache.Get(itemType, controller.IDIndex, req.ID)
					if err != nil {
						return err
					}
					seen.Store(res)
					if res.GetMetadata()["deletionTimestamp"] != "" {
						return nil
					}
					id := &resourcepb.ID{Type: itemType, Tenancy: &resourcepb.Tenancy{}, Name: res.GetId().GetName(), Uid: res.GetId().GetUid()}
					if _, err := rt.Client.Delete(ctx, &resourcepb.DeleteRequest{Id: id}); err != nil {
						return err
					}
					if res, err = rt.Cache.Get(itemType, controller.IDIndex, req.ID); err != nil || res.GetMetadata()["deletionTimestamp"] == "" {
						t.Errorf("the cache has %v after the deletion, %v", res, err)
					}
					return nil
				})))
			e.Settle()
			for _, finalizers := range []string{"a b c", "a b", "a"} { // a marked resource allows no other change
				next := resourceOf(itemType, "item", "a")
				next.Metadata = maps.Clone(seen.Load().GetMetadata())
				next.Metadata["finalizers"] = finalizers
				stored := e.Write(next)
				e.Settle()
				if got := seen.Load().GetVersion(); got != stored.GetVersion() {
					t.Errorf("the last reconcile read version %s, stored is %s", got, stored.GetVersion())
				}
			}
		})
	}
}
