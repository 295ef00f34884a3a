package reaper_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/anypb"

	"github.com/ashlar-dev/storage"
	"github.com/ashlar-dev/storage/inmem"
	"github.com/ashlar-dev/storage/internal/test/fixture"
	"github.com/ashlar-dev/storage/resourcepb"
	"github.com/ashlar-dev/storage/service"
	"github.com/ashlar-dev/storage/service/reaper"
	"github.com/ashlar-dev/storage/service/registry"
)

var (
	nodeType = &resourcepb.Type{Group: "tree", GroupVersion: "v1", Kind: "Node"}
	nodes    = storage.UnversionedTypeFrom(nodeType)
	stones   = storage.UnversionedTypeFrom(service.TombstoneType)
	anywhere = &resourcepb.Tenancy{Partition: storage.Wildcard, Namespace: storage.Wildcard}
)

// forest is a service over memory with test helpers.
type forest struct {
	*testing.T
	ctx     context.Context
	backend storage.Backend
	server  *service.Server
}

func newForest(t *testing.T) *forest {
	t.Parallel()
	b := inmem.New(nil)
	t.Cleanup(func() { b.Close() })
	ctx, cancel := context.WithTimeout(t.Context(), 3*time.Minute)
	t.Cleanup(cancel)
	return &forest{T: t, ctx: ctx, backend: b, server: service.New(b, registry.NewOpen(registry.Type{}), nil)}
}

// reap runs a reaper until the test ends.
func (f *forest) reap() *reaper.Reaper {
	r := reaper.New(f.server, &reaper.Options{Settle: time.Millisecond})
	ctx, cancel := context.WithCancel(f.ctx)
	ended := make(chan error, 1)
	go func() { ended <- r.Run(ctx) }()
	f.Cleanup(func() {
		cancel()
		if err := <-ended; !errors.Is(err, context.Canceled) {
			f.Errorf("the reaper ended with %v", err)
		}
	})
	return r
}

func (f *forest) write(name string, owner *resourcepb.ID, metadata map[string]string) *resourcepb.ID {
	f.Helper()
	res, err := f.server.Write(f.ctx, &resourcepb.WriteRequest{Resource: &resourcepb.Resource{
		Id: &resourcepb.ID{Type: nodeType, Name: name}, Owner: owner, Metadata: metadata, Data: &anypb.Any{TypeUrl: "x/y.Z"},
	}})
	if err != nil {
		f.Fatal(err)
	}
	return res.GetResource().GetId()
}

func (f *forest) delete(id *resourcepb.ID) {
	f.Helper()
	if _, err := f.server.Delete(f.ctx, &resourcepb.DeleteRequest{Id: id}); err != nil {
		f.Fatal(err)
	}
}

func (f *forest) count(typ storage.UnversionedType) int {
	f.Helper()
	all, err := f.backend.List(f.ctx, storage.StrongConsistency, typ, anywhere, "")
	if err != nil {
		f.Fatal(err)
	}
	return len(all)
}

// until waits until a number of resources of a type remain.
func (f *forest) until(typ storage.UnversionedType, left int) {
	f.Helper()
	w, err := f.backend.WatchList(f.ctx, typ, anywhere, "")
	if err != nil {
		f.Fatal(err)
	}
	defer w.Close()
	for f.count(typ) != left {
		if _, err := w.Next(f.ctx); err != nil {
			f.Fatalf("waiting for %d remaining %s, there are %d: %v", left, typ.Kind, f.count(typ), err)
		}
	}
}

// Three levels of owners with 1,000 children are deleted, and their tombstones, and nothing else. Names have the maximum length.
func TestTreesAreDeleted(t *testing.T) {
	f := newForest(t)
	long := fmt.Sprintf("%063d", 0)
	root := f.write("root"+long[4:], nil, nil)
	for i := range 10 {
		mid := f.write(fmt.Sprintf("mid-%d%s", i, long[5:]), root, nil)
		for j := range 100 {
			f.write(fmt.Sprintf("leaf-%d-%02d%s", i, j, long[9:]), mid, nil)
		}
	}
	f.write("bystander", f.write("other", nil, nil), nil)
	r := f.reap()
	f.delete(root)
	f.until(nodes, 2)
	f.until(stones, 0)
	fixture.Eventually(t, "no tombstone remains in the queue", func() bool { return r.Pending() == 0 })
}

// A recreated owner keeps its children.
func TestNewIncarnationKeepsChildren(t *testing.T) {
	f := newForest(t)
	old := f.write("owner", nil, nil)
	f.write("old-child", old, nil)
	f.delete(old)
	f.write("new-child", f.write("owner", nil, nil), nil)
	f.reap()
	f.until(stones, 0)
	if n := f.count(nodes); n != 2 {
		t.Errorf("%d resources remain, expected the new owner and its child", n)
	}
}

// A tombstone of a stored resource deletes nothing.
func TestStoredOwnerKeepsChildren(t *testing.T) {
	f := newForest(t)
	alive, gone := f.write("alive", nil, nil), f.write("gone", nil, nil)
	f.write("child", alive, nil)
	f.write("orphan", gone, nil)
	f.delete(gone)
	all, err := f.backend.List(f.ctx, storage.StrongConsistency, stones, anywhere, "")
	if err != nil || len(all) != 1 {
		t.Fatal(all, err)
	}
	stale := proto.CloneOf(all[0])
	stale.Version, stale.Id.Name, stale.Id.Uid = "", "tombstone-stale", "stale"
	payload, err := proto.Marshal(&resourcepb.Tombstone{Owner: alive})
	if err != nil {
		t.Fatal(err)
	}
	stale.Data.Value = payload
	if _, err := f.backend.WriteCAS(f.ctx, stale); err != nil {
		t.Fatal(err)
	}
	f.reap()
	f.until(stones, 1) // the other one is done with
	f.until(nodes, 2)
	f.delete(alive)
	f.until(nodes, 0)
	f.until(stones, 0)
}

// Children with finalizers are marked, and their owner's tombstone is kept until they are deleted.
func TestFinalizersKeepTombstone(t *testing.T) {
	f := newForest(t)
	owner := f.write("owner", nil, nil)
	child := f.write("child", owner, map[string]string{"finalizers": "cleaner"})
	f.write("grandchild", child, nil)
	f.reap()
	f.delete(owner)
	for {
		res, err := f.backend.Read(f.ctx, storage.StrongConsistency, child)
		if err != nil {
			t.Fatal(err)
		}
		if res.GetMetadata()["deletionTimestamp"] != "" {
			break
		}
	}
	if f.count(stones) != 1 || f.count(nodes) != 2 {
		t.Errorf("%d tombstones and %d resources remain, expected 1 and 2", f.count(stones), f.count(nodes))
	}
	if _, err := f.server.Write(f.ctx, &resourcepb.WriteRequest{Resource: &resourcepb.Resource{
		Id: child, Owner: owner, Metadata: map[string]string{"finalizers": ""}, Data: &anypb.Any{TypeUrl: "x/y.Z"},
	}}); err != nil {
		t.Fatal(err)
	}
	f.until(nodes, 0)
	f.until(stones, 0)
}
