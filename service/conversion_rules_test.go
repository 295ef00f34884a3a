package service_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/ashlar-dev/storage"
	"github.com/ashlar-dev/storage/resourcepb"
	"github.com/ashlar-dev/storage/service/registry"
)

// A resource that is stored in a served version and cannot be converted accepts statuses and can be deleted, unless a hook must see it. Then the
// error has the reason.
func TestUnconvertibleResourceCanBeDeleted(t *testing.T) {
	t.Parallel()
	for _, hooked := range []bool{false, true} {
		var hooks registry.Type
		if hooked {
			hooks.MayWrite = func(registry.Caller, *resourcepb.Resource) error { return nil }
			hooks.MayRead = func(_ registry.Caller, _ *resourcepb.ID, res *resourcepb.Resource) error {
				if res == nil {
					return registry.ErrNeedResource
				}
				return nil
			}
		}
		w := newRouteWorld(t, hooks)
		for _, version := range []string{"v1", "v2"} {
			id := store(w.ctx, t, w.store, route("bad-"+version, "v1", `{"host": "a", "port": -1}`), "default", "v1").GetId()
			id.Type = routeType(version)
			_, statusErr := w.client.WriteStatus(w.ctx, &resourcepb.WriteStatusRequest{
				Id: id, Key: "k", Status: &resourcepb.Status{ObservedGeneration: "01H00000000000000000000000"},
			})
			_, err := w.client.Delete(w.ctx, &resourcepb.DeleteRequest{Id: id})
			if !hooked {
				if _, gone := w.store.Read(w.ctx, storage.StrongConsistency, id); err != nil || statusErr != nil || !errors.Is(gone, storage.ErrNotFound) {
					t.Errorf("%s: the status %v, the deletion %v, then a read %v", version, statusErr, err, gone)
				}
				continue
			}
			_, readErr := w.client.Read(w.ctx, &resourcepb.ReadRequest{Id: id})
			_, listErr := w.client.List(w.ctx, &resourcepb.ListRequest{Type: routeType(version), Tenancy: &resourcepb.Tenancy{}})
			_, writeErr := w.client.Write(w.ctx, &resourcepb.WriteRequest{Resource: route("bad-"+version, "v1", `{"host": "a"}`)})
			for _, err := range []error{statusErr, err, readErr, listErr, writeErr} {
				if s := status.Convert(err); s.Code() != codes.FailedPrecondition || !strings.Contains(fmt.Sprint(s.Details()), "CONVERSION") ||
					strings.Contains(s.Message(), "negative") {
					t.Errorf("%s, with hooks: %v, expected the reason CONVERSION", version, err)
				}
			}
		}
	}
}

// The changes of a resource that could not be converted continue with its repair.
func TestChangesAfterUnconvertibleState(t *testing.T) {
	t.Parallel()
	w := newRouteWorld(t, registry.Type{})
	w.write(route("a", "v2", `{"weight": 1}`))
	here := &resourcepb.Tenancy{Partition: "default", Namespace: "default"}
	revisions, err := w.server.History().Revisions(w.ctx, &resourcepb.RevisionsRequest{Type: routeType("v1"), Tenancy: here})
	if err != nil {
		t.Fatal(err)
	}
	w.write(route("a", "v2", `{"address": {"host": "a"}}`))
	changes, err := w.server.History().Changes(w.ctx, &resourcepb.ChangesRequest{Type: routeType("v1"), Tenancy: here, After: revisions.GetNewest()})
	if err != nil {
		t.Fatal(err)
	}
	repaired, err := changes.Recv()
	if before := repaired.GetBefore().GetResource(); err != nil || content(repaired.GetNow().GetResource()) != "v1map[host:a]" ||
		before.GetId().GetName() != "a" || content(before) != "v1 without a payload" {
		t.Errorf("the change is %v (%v), expected the repair with the id before it", repaired, err)
	}
}
