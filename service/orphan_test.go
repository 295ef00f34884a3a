package service_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/ashlar-dev/storage"
	"github.com/ashlar-dev/storage/inmem"
	"github.com/ashlar-dev/storage/internal/test/fixture"
	"github.com/ashlar-dev/storage/resourcepb"
	"github.com/ashlar-dev/storage/service"
	"github.com/ashlar-dev/storage/service/registry"
)

// Creations of different children of one absent owner do not conflict, though all of them write its tombstone.
func TestConcurrentCreationsOfOrphans(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithTimeout(t.Context(), 3*time.Minute)
	defer cancel()
	b := inmem.New(nil)
	defer b.Close()
	c := service.New(b, registry.NewOpen(registry.Type{}), nil).Client()
	written, err := c.Write(ctx, &resourcepb.WriteRequest{Resource: album("owner", "1")})
	if err != nil {
		t.Fatal(err)
	}
	owner := written.GetResource().GetId()
	if _, err := c.Delete(ctx, &resourcepb.DeleteRequest{Id: owner}); err != nil {
		t.Fatal(err)
	}
	var all errgroup.Group
	for i := range 4 {
		all.Go(func() error {
			for j := range 200 {
				child := album(fmt.Sprintf("child-%d-%d", i, j), "1")
				child.Owner = owner
				if _, err := c.Write(ctx, &resourcepb.WriteRequest{Resource: child, Create: true}); err != nil {
					return fmt.Errorf("create %s: %w", child.GetId().GetName(), err)
				}
			}
			return nil
		})
	}
	if err := all.Wait(); err != nil {
		t.Error(err)
	}
}

// onlyDefault is a set of tenancies with one member.
type onlyDefault struct{}

func (onlyDefault) Exists(_ context.Context, t *resourcepb.Tenancy) (bool, error) {
	return t.GetPartition() == "default" && t.GetNamespace() == "default", nil
}

func (onlyDefault) DeletionPending(context.Context, *resourcepb.Tenancy) (bool, error) {
	return false, nil
}

// A creation writes nothing into the tenancy of an absent owner, which may not exist, and in which the caller may have no permission.
func TestOrphanOfAnotherTenancy(t *testing.T) {
	t.Parallel()
	ctx := fixture.Context(t)
	b := inmem.New(nil)
	defer b.Close()
	c := service.New(b, registry.NewOpen(registry.Type{}), &service.Options{Tenancies: onlyDefault{}}).Client()
	child := album("child", "1")
	child.Owner = &resourcepb.ID{Type: albumType, Tenancy: &resourcepb.Tenancy{Partition: "other", Namespace: "other"}, Name: "owner", Uid: "invented"}
	if _, err := c.Write(ctx, &resourcepb.WriteRequest{Resource: child}); err != nil {
		t.Fatal(err)
	}
	stones, err := b.List(ctx, storage.StrongConsistency, storage.UnversionedTypeFrom(service.TombstoneType), fixture.AllTenancies, "")
	if err != nil || len(stones) != 1 || stones[0].GetId().GetTenancy().GetPartition() != "default" {
		t.Errorf("the tombstones are %v, %v", stones, err)
	}
}
