package service_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/ashlar-dev/storage/inmem"
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
