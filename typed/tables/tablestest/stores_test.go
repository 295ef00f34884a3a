package tablestest_test

import (
	"context"
	"testing"

	"github.com/ashlar-dev/storage"
	"github.com/ashlar-dev/storage/internal/test/stores"
	"github.com/ashlar-dev/storage/resourcepb"
	"github.com/ashlar-dev/storage/typed/tables/tablestest"
)

func TestMain(m *testing.M) { stores.Main(m) }

func TestTables(t *testing.T) {
	for name, h := range stores.All {
		t.Run(name, func(t *testing.T) { tablestest.Run(t, tablestest.Harness{Harness: h}) })
	}
}

// TestWithoutBookmarks tests stores over watches without bookmarks, like DynamoDB's, on a fast database.
func TestWithoutBookmarks(t *testing.T) {
	h := tablestest.Harness{Harness: stores.Memory, Layer: func(b storage.Backend) storage.Backend { return &noBookmarks{b} }}
	h.NoBookmarker = "they are hidden"
	tablestest.Run(t, h)
}

// noBookmarks is a backend whose watches have no bookmarks.
type noBookmarks struct{ storage.Backend }

// As implements the lookup of [storage.As].
func (b *noBookmarks) As(target any) bool {
	transactor, ok := target.(*storage.Transactor)
	if ok {
		*transactor, ok = storage.As[storage.Transactor](b.Backend)
	}
	return ok
}

// WatchList implements storage.Backend.
func (b *noBookmarks) WatchList(
	ctx context.Context, typ storage.UnversionedType, tenancy *resourcepb.Tenancy, prefix string,
) (storage.Watch, error) {
	w, err := b.Backend.WatchList(ctx, typ, tenancy, prefix)
	return struct{ storage.Watch }{w}, err
}
