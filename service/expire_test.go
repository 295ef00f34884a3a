package service_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/ashlar-dev/storage"
	"github.com/ashlar-dev/storage/inmem"
	"github.com/ashlar-dev/storage/internal/test/fixture"
	"github.com/ashlar-dev/storage/resourcepb"
	"github.com/ashlar-dev/storage/service"
	"github.com/ashlar-dev/storage/service/registry"
)

// Expire deletes as Delete does, at one version.
func TestExpire(t *testing.T) {
	t.Parallel()
	ctx := fixture.Context(t)
	b := inmem.New(nil)
	defer b.Close()
	var methods []string
	s := service.New(b, registry.NewOpen(registry.Type{}), &service.Options{Audit: func(_ context.Context, m *service.Mutation) {
		if m.Method == "Expire" && m.Deleted {
			methods = append(methods, m.ID.GetName())
		}
	}})
	c := s.Client()
	write := func(res *resourcepb.Resource, ttl *durationpb.Duration) *resourcepb.Resource {
		t.Helper()
		res = proto.CloneOf(res)
		res.Version, res.Ttl = "", ttl
		out, err := c.Write(ctx, &resourcepb.WriteRequest{Resource: res})
		if err != nil {
			t.Fatal(err)
		}
		if !proto.Equal(out.GetResource().GetTtl(), ttl) {
			t.Errorf("the time to live of the response is %v, expected %v", out.GetResource().GetTtl(), ttl)
		}
		return out.GetResource()
	}
	minute := durationpb.New(time.Minute)
	first := write(album("a", "one"), minute)
	second := write(write(first, nil), minute)
	reported, err := c.WriteStatus(ctx, &resourcepb.WriteStatusRequest{
		Id: second.GetId(), Key: "k", Status: &resourcepb.Status{ObservedGeneration: second.GetGeneration()},
	})
	if err != nil || !proto.Equal(reported.GetResource().GetTtl(), minute) {
		t.Fatal(reported, err)
	}
	a := reported.GetResource()
	if err := s.Expire(ctx, a.GetId(), second.GetVersion()); !errors.Is(err, storage.ErrCASFailure) {
		t.Errorf("expire at an old version: %v", err)
	}
	other := proto.CloneOf(a.GetId())
	other.Uid = "other"
	if err := s.Expire(ctx, other, a.GetVersion()); err != nil || fixture.Stored(t, b, a.GetId()) == nil {
		t.Errorf("expire another incarnation: %v", err)
	}
	for range 2 {
		if err := s.Expire(ctx, a.GetId(), a.GetVersion()); err != nil || fixture.Stored(t, b, a.GetId()) != nil {
			t.Errorf("expire: %v", err)
		}
	}
	stones, err := b.List(ctx, storage.StrongConsistency, storage.UnversionedTypeFrom(service.TombstoneType), fixture.AllTenancies, "")
	if err != nil || len(stones) != 1 {
		t.Errorf("tombstones: %v, %v", stones, err)
	}

	final := album("final", "two")
	final.Metadata = map[string]string{"finalizers": "x"}
	final = write(final, minute)
	if err := s.Expire(ctx, final.GetId(), final.GetVersion()); err != nil {
		t.Fatal(err)
	}
	marked := fixture.Stored(t, b, final.GetId())
	if marked.GetMetadata()["deletionTimestamp"] == "" || marked.GetTtl() != nil {
		t.Errorf("expire with a finalizer: %v, expected a deletion mark and no time to live", marked)
	}
	if err := s.Expire(ctx, marked.GetId(), marked.GetVersion()); err != nil || fixture.Stored(t, b, final.GetId()) == nil {
		t.Errorf("expire again with a finalizer: %v", err)
	}
	if len(methods) != 1 || methods[0] != "a" {
		t.Errorf("audited: %v", methods)
	}
}
