//go:build integration

package postgres

import (
	"context"
	"crypto/rand"
	"fmt"
	"testing"
	"time"

	"google.golang.org/protobuf/types/known/anypb"

	"github.com/ashlar-dev/storage"
	"github.com/ashlar-dev/storage/driver"
	"github.com/ashlar-dev/storage/internal/test/env"
	"github.com/ashlar-dev/storage/resourcepb"
)

// TestListAtPositionIsComplete lists more bytes than a page contains, beside writers of which one is always pending. Such a list is read
// at a position, and it contains all resources, with and without a wildcard.
func TestListAtPositionIsComplete(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithTimeout(context.Background(), 3*time.Minute)
	t.Cleanup(cancel)
	server := env.Postgres(t)
	b := openHandle(t, ctx, server.StoreURL(t))
	const count, size = 7, 900_000
	if count*size <= driver.PageBytes {
		t.Fatal("the resources fit into a page")
	}
	for n := range count {
		res := orderResource(fmt.Sprint("large-", n), "")
		res.Data = &anypb.Any{TypeUrl: "example.com/Data", Value: make([]byte, size)}
		_, _ = rand.Read(res.Data.Value)
		if _, err := b.WriteCAS(ctx, res); err != nil {
			t.Fatal(err)
		}
	}
	for _, tenancy := range []*resourcepb.Tenancy{{}, {Partition: storage.Wildcard}} {
		all, err := besideGaps(t, ctx, server, b, "", func() ([]*resourcepb.Resource, error) {
			return b.List(ctx, storage.StrongConsistency, orderType, tenancy, "large-")
		})
		if err != nil || len(all) != count {
			t.Errorf("list of %v: %d resources, %v; expected %d", tenancy, len(all), err, count)
		}
	}
}
