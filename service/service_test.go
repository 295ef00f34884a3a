package service_test

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/anypb"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/ashlar-dev/storage"
	"github.com/ashlar-dev/storage/inmem"
	"github.com/ashlar-dev/storage/resourcepb"
	"github.com/ashlar-dev/storage/resourcepb/resourcegrpc"
	"github.com/ashlar-dev/storage/service"
	"github.com/ashlar-dev/storage/service/registry"
)

var albumType = &resourcepb.Type{Group: "demo", GroupVersion: "v1", Kind: "Album"}

func newClient(t *testing.T) resourcegrpc.ResourceServiceClient {
	t.Helper()
	types, err := registry.New(registry.Type{Type: albumType, Proto: &wrapperspb.StringValue{}, Scope: registry.ScopeNamespace})
	if err != nil {
		t.Fatal(err)
	}
	b := inmem.New(nil)
	t.Cleanup(func() { b.Close() })
	return service.New(b, types, nil).Client()
}

func album(name, text string) *resourcepb.Resource {
	data, _ := anypb.New(wrapperspb.String(text))
	return &resourcepb.Resource{Id: &resourcepb.ID{Type: albumType, Name: name}, Data: data}
}

// A resource is written, read, watched, given a status, finalized and deleted.
func TestResourceLifecycle(t *testing.T) {
	t.Parallel()
	c := newClient(t)
	ctx, cancel := context.WithTimeout(t.Context(), 3*time.Minute)
	defer cancel()
	w, err := c.WatchList(ctx, &resourcepb.WatchListRequest{Type: albumType})
	if err != nil {
		t.Fatal(err)
	}
	events := []string{}
	note := func() {
		ev, err := w.Recv()
		if err != nil {
			t.Fatal(err)
		}
		events = append(events, strings.TrimPrefix(fmt.Sprintf("%T", ev.GetEvent()), "*resourcepb.WatchEvent_"))
	}
	note()
	res := album("a", "one")
	res.Metadata = map[string]string{"finalizers": "x y"}
	written, err := c.Write(ctx, &resourcepb.WriteRequest{Resource: res})
	if err != nil {
		t.Fatal(err)
	}
	note()
	id := written.GetResource().GetId()
	st, err := c.WriteStatus(ctx, &resourcepb.WriteStatusRequest{Id: id, Key: "k", Status: &resourcepb.Status{ObservedGeneration: written.GetResource().GetGeneration()}})
	if err != nil || st.GetResource().GetGeneration() != written.GetResource().GetGeneration() {
		t.Fatal(st, err)
	}
	note()
	if _, err := c.Delete(ctx, &resourcepb.DeleteRequest{Id: id}); err != nil {
		t.Fatal(err)
	}
	note()
	read, err := c.Read(ctx, &resourcepb.ReadRequest{Id: id})
	if err != nil || read.GetResource().GetMetadata()["deletionTimestamp"] == "" {
		t.Fatal(read, err)
	}
	read.Resource.Metadata["finalizers"] = "y"
	if _, err = c.Write(ctx, &resourcepb.WriteRequest{Resource: read.GetResource()}); err != nil {
		t.Fatal(err)
	}
	note()
	res.Metadata["finalizers"] = ""
	if _, err = c.Write(ctx, &resourcepb.WriteRequest{Resource: res}); err != nil {
		t.Fatal(err)
	}
	note()
	if _, err := c.Read(ctx, &resourcepb.ReadRequest{Id: id}); status.Code(err) != codes.NotFound {
		t.Fatal(err)
	}
	stones, err := c.List(ctx, &resourcepb.ListRequest{Type: service.TombstoneType, Tenancy: id.GetTenancy()})
	if err != nil || len(stones.GetResources()) != 1 {
		t.Fatal(stones, err)
	}
	owner, err := service.Tombstone(stones.GetResources()[0])
	if err != nil || !proto.Equal(owner, id) {
		t.Errorf("the tombstone has the owner %v (%v), expected %v", owner, err, id)
	}
	if want := []string{"EndOfSnapshot_", "Upsert_", "Upsert_", "Upsert_", "Upsert_", "Delete_"}; !slices.Equal(events, want) {
		t.Errorf("the stream sent %v, not %v", events, want)
	}
}

// interrupted is a backend that runs a function just before the next write.
type interrupted struct {
	storage.Backend
	before func()
}

func (i *interrupted) WriteCAS(ctx context.Context, res *resourcepb.Resource) (*resourcepb.Resource, error) {
	if f := i.before; f != nil {
		i.before = nil
		f()
	}
	return i.Backend.WriteCAS(ctx, res)
}

// A write without a version and a uid is retried after another writer has created the resource in between, or replaced it by a
// new one.
func TestUnconditionalWritesRetry(t *testing.T) {
	t.Parallel()
	types, err := registry.New(registry.Type{Type: albumType, Proto: &wrapperspb.StringValue{}, Scope: registry.ScopeNamespace})
	if err != nil {
		t.Fatal(err)
	}
	b := &interrupted{Backend: inmem.New(nil)}
	defer b.Close()
	c := service.New(b, types, nil).Client()
	ctx, cancel := context.WithTimeout(t.Context(), 3*time.Minute)
	defer cancel()
	write := func(text string) *resourcepb.ID {
		t.Helper()
		out, err := c.Write(ctx, &resourcepb.WriteRequest{Resource: album("a", text)})
		if err != nil {
			t.Fatal(err)
		}
		return out.GetResource().GetId()
	}
	var other *resourcepb.ID
	b.before = func() { other = write("created in between") }
	if mine := write("mine"); mine.GetUid() != other.GetUid() {
		t.Errorf("the write made a resource of its own: %v, %v", mine, other)
	}
	b.before = func() {
		if _, err := c.Delete(ctx, &resourcepb.DeleteRequest{Id: other}); err != nil {
			t.Fatal(err)
		}
		other = write("replaced in between")
	}
	if mine := write("mine"); mine.GetUid() != other.GetUid() {
		t.Errorf("the write made a resource of its own: %v, %v", mine, other)
	}
	b.before = func() {
		if _, err := c.Delete(ctx, &resourcepb.DeleteRequest{Id: other}); err != nil {
			t.Fatal(err)
		}
		other = write("replaced in between")
	}
	stale := other
	_, err = c.WriteStatus(ctx, &resourcepb.WriteStatusRequest{Id: stale, Key: "k", Status: &resourcepb.Status{ObservedGeneration: stale.GetUid()}})
	if status.Code(err) != codes.NotFound {
		t.Errorf("a status of a resource that was replaced in between: %v", err)
	}
}
