package reaper

import (
	"context"
	"errors"
	"testing"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/ashlar-dev/storage"
	"github.com/ashlar-dev/storage/inmem"
	"github.com/ashlar-dev/storage/resourcepb"
	"github.com/ashlar-dev/storage/service"
	"github.com/ashlar-dev/storage/service/registry"
)

// fixture is a reaper, a resource and its tombstone. The resource, its tombstone or both are stored.
type fixture struct {
	*testing.T
	ctx     context.Context
	backend storage.Backend
	reaper  *Reaper
	owner   *resourcepb.Resource
	stone   *resourcepb.Resource
}

func newFixture(t *testing.T) *fixture {
	t.Parallel()
	ctx, cancel := context.WithTimeout(t.Context(), 3*time.Minute)
	t.Cleanup(cancel)
	b := inmem.New(nil)
	t.Cleanup(func() { b.Close() })
	server := service.New(b, registry.NewOpen(registry.Type{}), nil)
	g := &fixture{T: t, ctx: ctx, backend: b, reaper: New(server, &Options{Settle: time.Nanosecond})}
	written, err := server.Write(ctx, &resourcepb.WriteRequest{Resource: &resourcepb.Resource{
		Id: &resourcepb.ID{Type: &resourcepb.Type{Group: "tree", GroupVersion: "v1", Kind: "Node"}, Name: "owner"},
	}})
	if err != nil {
		t.Fatal(err)
	}
	g.owner = written.GetResource()
	if _, err := server.Delete(ctx, &resourcepb.DeleteRequest{Id: g.owner.GetId()}); err != nil {
		t.Fatal(err)
	}
	all, err := b.List(ctx, storage.StrongConsistency, storage.UnversionedTypeFrom(service.TombstoneType), g.owner.GetId().GetTenancy(), "")
	if err != nil || len(all) != 1 {
		t.Fatal(all, err)
	}
	g.stone = all[0]
	return g
}

// processAll processes the tombstone until it is finished, up to a limit.
func (g *fixture) processAll(owner *resourcepb.ID) (settled bool) {
	g.Helper()
	known := &tombstone{id: g.stone.GetId(), version: g.stone.GetVersion(), owner: owner, pause: minPause}
	for range 10 {
		again, err := g.reaper.process(g.ctx, known)
		if err == nil && again == 0 {
			return true
		}
	}
	return false
}

func (g *fixture) stored() bool {
	g.Helper()
	_, err := g.backend.Read(g.ctx, storage.StrongConsistency, g.stone.GetId())
	if err != nil && !errors.Is(err, storage.ErrNotFound) {
		g.Fatal(err)
	}
	return err == nil
}

// A rewritten tombstone, for example after a move of the store, is deleted at its new version.
func TestRewrittenTombstoneIsDeleted(t *testing.T) {
	g := newFixture(t)
	if _, err := g.backend.WriteCAS(g.ctx, g.stone); err != nil {
		t.Fatal(err)
	}
	if !g.processAll(g.owner.GetId()) || g.stored() {
		t.Error("the tombstone stays")
	}
}

// While its owner is stored, a tombstone is processed again and again, until the tombstone itself is deleted.
func TestTombstoneOfStoredOwner(t *testing.T) {
	g := newFixture(t)
	back := proto.CloneOf(g.owner)
	back.Version = ""
	if _, err := g.backend.WriteCAS(g.ctx, back); err != nil {
		t.Fatal(err)
	}
	if g.processAll(g.owner.GetId()) || !g.stored() {
		t.Error("the tombstone is finished before its owner is deleted")
	}
	if err := g.backend.DeleteCAS(g.ctx, g.stone.GetId(), g.stone.GetVersion()); err != nil {
		t.Fatal(err)
	}
	if !g.processAll(g.owner.GetId()) {
		t.Error("a deleted tombstone is processed again and again")
	}
}

// A tombstone whose owner has an invalid id is ignored.
func TestTombstoneWithInvalidOwner(t *testing.T) {
	g := newFixture(t)
	for _, damage := range []func(*resourcepb.ID){
		func(id *resourcepb.ID) { id.Tenancy = nil },
		func(id *resourcepb.ID) { id.Name = "" },
		func(id *resourcepb.ID) { id.Type.Group = storage.Wildcard },
	} {
		owner := proto.CloneOf(g.owner.GetId())
		damage(owner)
		if !g.processAll(owner) || !g.stored() {
			t.Errorf("the tombstone of %v is processed again and again, or deleted", owner)
		}
	}
}
