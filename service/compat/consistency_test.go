package compat

import (
	"context"
	"slices"
	"sync"
	"testing"

	"github.com/hashicorp/consul/proto-public/pbresource"
	"google.golang.org/grpc/metadata"

	"github.com/ashlar-dev/storage"
	"github.com/ashlar-dev/storage/inmem"
	"github.com/ashlar-dev/storage/resourcepb"
)

// recorder records the consistency of a store's reads and lists.
type recorder struct {
	storage.Backend

	mu    sync.Mutex
	asked []storage.ReadConsistency
}

func (r *recorder) note(consistency storage.ReadConsistency) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.asked = append(r.asked, consistency)
}

func (r *recorder) Read(ctx context.Context, consistency storage.ReadConsistency, id *resourcepb.ID) (*resourcepb.Resource, error) {
	r.note(consistency)
	return r.Backend.Read(ctx, consistency, id)
}

func (r *recorder) List(
	ctx context.Context, consistency storage.ReadConsistency, typ storage.UnversionedType, tenancy *resourcepb.Tenancy, prefix string,
) ([]*resourcepb.Resource, error) {
	r.note(consistency)
	return r.Backend.List(ctx, consistency, typ, tenancy, prefix)
}

// Reads and lists are linearizable if the client requests that in its way.
func TestConsistencyMode(t *testing.T) {
	t.Parallel()
	r := &recorder{Backend: inmem.New(nil)}
	s := serveBackend(t, r)
	ctx := limited(t)
	s.write(ctx, t, newService("web", "10.0.0.1"))
	for mode, want := range map[string]storage.ReadConsistency{
		"consistent": storage.StrongConsistency, "default": storage.EventualConsistency, "Consistent": storage.EventualConsistency,
	} {
		r.mu.Lock()
		r.asked = nil
		r.mu.Unlock()
		ctx := metadata.AppendToOutgoingContext(ctx, "x-consul-consistency-mode", mode)
		s.read(ctx, t, newService("web", "").GetId())
		s.list(ctx, t, &pbresource.ListRequest{Type: serviceType, Tenancy: byDefault})
		r.mu.Lock()
		if !slices.Equal(r.asked, []storage.ReadConsistency{want, want}) {
			t.Errorf("in the mode %q the store was asked for %v, expected %v twice", mode, r.asked, want)
		}
		r.mu.Unlock()
	}
}
