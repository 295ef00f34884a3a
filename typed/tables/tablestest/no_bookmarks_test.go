package tablestest_test

import (
	"context"
	"testing"

	"github.com/ashlar-dev/storage"
	"github.com/ashlar-dev/storage/resourcepb"
	"github.com/ashlar-dev/storage/typed/tables/tablestest"
)

// TestWithoutBookmarks tests a store over watches without bookmarks, like DynamoDB's, on a fast database.
func TestWithoutBookmarks(t *testing.T) {
	t.Parallel()
	h := harnessAt(memory)
	handles := h.Handles
	h.Handles = func(t testing.TB) func(context.Context) (storage.Backend, error) {
		open := handles(t)
		return func(ctx context.Context) (storage.Backend, error) {
			b, err := open(ctx)
			return &noBookmarks{b}, err
		}
	}
	h.Exempt = map[string]string{
		"S1": "the rule uses Linearizable Views",
		"S3": "its watches have no bookmarks, so there are no Linearizable Views",
	}
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
