package web_test

import (
	"context"
	"net/http"
	"slices"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/ashlar-dev/storage"
	"github.com/ashlar-dev/storage/resourcepb"
)

// attentive is a backend that notes how consistent each read was asked to be.
type attentive struct {
	storage.Backend
	mu    sync.Mutex
	asked []storage.ReadConsistency
}

// noted returns what was noted since the last call.
func (a *attentive) noted() []storage.ReadConsistency {
	a.mu.Lock()
	defer a.mu.Unlock()
	noted := slices.Compact(a.asked)
	a.asked = nil
	return noted
}

func (a *attentive) note(c storage.ReadConsistency) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.asked = append(a.asked, c)
}

func (a *attentive) Read(ctx context.Context, c storage.ReadConsistency, id *resourcepb.ID) (*resourcepb.Resource, error) {
	a.note(c)
	return a.Backend.Read(ctx, c, id)
}

func (a *attentive) List(ctx context.Context, c storage.ReadConsistency, typ storage.UnversionedType, tenancy *resourcepb.Tenancy, prefix string) ([]*resourcepb.Resource, error) {
	a.note(c)
	return a.Backend.List(ctx, c, typ, tenancy, prefix)
}

// Reads and lists are strong if the query says so, in either of its words, and only then.
func TestConsistency(t *testing.T) {
	t.Parallel()
	for way, connect := range ways {
		t.Run(way, func(t *testing.T) {
			t.Parallel()
			store := &attentive{Backend: backends["memory"](t)}
			s := newSite(t, catalog(t), func(testing.TB) storage.Backend { return store }, connect, nil)
			s.put("/demo/v1/studio/a", `{}`)
			for query, want := range map[string]storage.ReadConsistency{
				"": storage.EventualConsistency, "?consistent": storage.StrongConsistency,
				"?RequireConsistent=": storage.StrongConsistency, "?consistent=true": storage.StrongConsistency,
			} {
				for _, path := range []string{"/demo/v1/studio/a", "/demo/v1/studio"} {
					store.noted()
					require.Equal(t, http.StatusOK, s.get(path+query).code)
					require.Equal(t, []storage.ReadConsistency{want}, store.noted(), path+query)
				}
			}
		})
	}
}
