package service_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/structpb"

	"github.com/ashlar-dev/storage"
	"github.com/ashlar-dev/storage/inmem"
	"github.com/ashlar-dev/storage/resourcepb"
	"github.com/ashlar-dev/storage/service"
	"github.com/ashlar-dev/storage/service/registry"
)

// A caller that may not write a resource gets the same error whether it is stored or not, also if the payload is invalid or cannot be converted.
func TestConversionHidesExistence(t *testing.T) {
	t.Parallel()
	w := newRouteWorld(t, registry.Type{
		Validate: func(res *resourcepb.Resource) error {
			if strings.Contains(content(res), "wrong") {
				return errors.New("the host is wrong")
			}
			return nil
		},
		MayWrite: func(registry.Caller, *resourcepb.Resource) error { return registry.ErrDenied },
	})
	store(w.ctx, t, w.store, route("stored", "v2", `{"address": {"host": "a"}}`), "default", "v2")
	for _, payload := range []string{`{"host": "a"}`, `{"host": "wrong"}`, `{"host": "a", "port": -1}`} {
		var got []string
		for _, name := range []string{"stored", "absent"} {
			_, err := w.client.Write(w.ctx, &resourcepb.WriteRequest{Resource: route(name, "v1", payload)})
			_, dry := w.client.MutateAndValidate(w.ctx, &resourcepb.MutateAndValidateRequest{Resource: route(name, "v1", payload)})
			got = append(got, strings.ReplaceAll(fmt.Sprint(err, dry), name, "NAME"))
		}
		if got[0] != got[1] {
			t.Errorf("%s: the errors of a stored and of an absent resource differ:\n%s\n%s", payload, got[0], got[1])
		}
	}
}

// A caller that may write a resource and may not read it gets no part of the stored resource, neither from a dry run nor from an error.
func TestConversionHidesStored(t *testing.T) {
	t.Parallel()
	type older struct {
		Host string `json:"host"`
		Note string `json:"note,omitempty"` // it is derived
	}
	types, err := registry.New(
		registry.Type{
			Type: routeType("v2"), Proto: &structpb.Struct{}, Scope: registry.ScopeNamespace,
			MayRead: func(registry.Caller, *resourcepb.ID, *resourcepb.Resource) error { return registry.ErrDenied },
		},
		registry.Type{
			Type: routeType("v1"), Proto: &structpb.Struct{}, Scope: registry.ScopeNamespace,
			Conversion: registry.ConvertJSON("v2", func(in routeV2) (older, error) {
				if in.Weight > 700 {
					return older{}, fmt.Errorf("the weight %d is too large", in.Weight)
				}
				return older{in.Address.Host, fmt.Sprint("weight ", in.Weight)}, nil
			}, func(in older, stored *routeV2) (routeV2, error) {
				if in.Host == "fail" && stored != nil {
					return routeV2{}, fmt.Errorf("the weight is %d", stored.Weight)
				}
				return routeV2{Address: addressV2{Host: in.Host}}, nil
			}),
		},
	)
	if err != nil {
		t.Fatal(err)
	}
	b := inmem.New(nil)
	t.Cleanup(func() { b.Close() })
	client := service.New(b, types, nil).Client()
	store(t.Context(), t, b, route("a", "v2", `{"address": {"host": "a"}, "weight": 777}`), "default", "v2")
	store(t.Context(), t, b, route("b", "v2", `{"address": {"host": "a"}, "weight": 555}`), "default", "v2")
	for _, name := range []string{"a", "b"} {
		for _, host := range []string{"c", "fail"} {
			res := route(name, "v1", `{"host": "`+host+`"}`)
			dry, dryErr := client.MutateAndValidate(t.Context(), &resourcepb.MutateAndValidateRequest{Resource: res})
			written, err := client.Write(t.Context(), &resourcepb.WriteRequest{Resource: res})
			for _, answer := range []string{fmt.Sprint(dryErr), fmt.Sprint(err), content(dry.GetResource()), content(written.GetResource())} {
				if strings.Contains(answer, "777") || strings.Contains(answer, "555") {
					t.Errorf("%s, %s: a part of the stored resource is in %s", name, host, answer)
				}
			}
			if wants := name == "a" || host == "fail"; wants != (err != nil) || wants != (dryErr != nil) {
				t.Errorf("%s, %s: %v, %v, expected an error: %v", name, host, err, dryErr, wants)
			}
			if dryErr == nil && content(dry.GetResource()) != "v1map[host:c]" {
				t.Errorf("the dry run answers %s, expected the request", content(dry.GetResource()))
			}
		}
	}
}

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

// A client of a served version can remove the last finalizer of a resource with a deletion mark, whatever the hooks would make of it.
func TestLastFinalizerOfServedVersion(t *testing.T) {
	t.Parallel()
	w := newRouteWorld(t, registry.Type{Mutate: func(res *resourcepb.Resource) error {
		res.Data = route("", "v2", `{"weight": 9}`).GetData()
		return nil
	}})
	store(w.ctx, t, w.store, &resourcepb.Resource{
		Id: route("a", "v2", `{}`).GetId(), Data: route("", "v2", fullV2).GetData(),
		Metadata: map[string]string{"finalizers": "f", "deletionTimestamp": "2026-01-02T03:04:05Z"},
	}, "default", "v2")
	res := w.read("a", "v1")
	res.Metadata["finalizers"] = ""
	w.write(res)
	if _, err := w.store.Read(w.ctx, storage.StrongConsistency, res.GetId()); !errors.Is(err, storage.ErrNotFound) {
		t.Errorf("after the last finalizer was removed: %v, expected ErrNotFound", err)
	}
}
