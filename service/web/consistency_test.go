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

// recordingBackend records the consistency of each read.
type recordingBackend struct {
	storage.Backend
	mu      sync.Mutex
	records []storage.ReadConsistency
}

// takeRecords returns the records since the last call.
func (a *recordingBackend) takeRecords() []storage.ReadConsistency {
	a.mu.Lock()
	defer a.mu.Unlock()
	records := slices.Compact(a.records)
	a.records = nil
	return records
}

func (a *recordingBackend) note(c storage.ReadConsistency) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.records = append(a.records, c)
}

func (a *recordingBackend) Read(ctx context.Context, c storage.ReadConsistency, id *resourcepb.ID) (*resourcepb.Resource, error) {
	a.note(c)
	return a.Backend.Read(ctx, c, id)
}

func (a *recordingBackend) List(ctx context.Context, c storage.ReadConsistency, typ storage.UnversionedType, tenancy *resourcepb.Tenancy, prefix string) ([]*resourcepb.Resource, error) {
	a.note(c)
	return a.Backend.List(ctx, c, typ, tenancy, prefix)
}

// Reads and lists are strong if and only if the query has one of the two parameters.
func TestConsistency(t *testing.T) {
	t.Parallel()
	for name, connect := range transports {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			store := &recordingBackend{Backend: backends["memory"](t)}
			s := newSite(t, catalog(t), func(testing.TB) storage.Backend { return store }, connect, nil)
			s.put("/demo/v1/studio/a", `{}`)
			for query, want := range map[string]storage.ReadConsistency{
				"": storage.EventualConsistency, "?consistent": storage.StrongConsistency,
				"?RequireConsistent=": storage.StrongConsistency, "?consistent=true": storage.StrongConsistency,
			} {
				for _, path := range []string{"/demo/v1/studio/a", "/demo/v1/studio"} {
					store.takeRecords()
					require.Equal(t, http.StatusOK, s.get(path+query).code)
					require.Equal(t, []storage.ReadConsistency{want}, store.takeRecords(), path+query)
				}
			}
		})
	}
}
