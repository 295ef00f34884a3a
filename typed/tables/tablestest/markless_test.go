package tablestest_test

import (
	"context"
	"testing"

	"github.com/ashlar-dev/storage"
	"github.com/ashlar-dev/storage/resourcepb"
	"github.com/ashlar-dev/storage/typed/tables/tablestest"
)

// A store over watches that cannot prove how far they are, as those of DynamoDB, over a database that is fast enough to be asked often.
func TestWithoutBookmarks(t *testing.T) {
	t.Parallel()
	h := at(memory)
	handles := h.Handles
	h.Handles = func(t testing.TB) func(context.Context) (storage.Backend, error) {
		open := handles(t)
		return func(ctx context.Context) (storage.Backend, error) {
			b, err := open(ctx)
			return &markless{b}, err
		}
	}
	h.Exempt = map[string]string{
		"S1": "it looks at Linearizable Views, too",
		"S3": "its watches cannot prove how far they are, so there are no Linearizable Views",
	}
	tablestest.Run(t, h)
}

// markless is a backend whose watches are no bookmarkers.
type markless struct{ storage.Backend }

// As implements what [storage.As] asks a layer.
func (b *markless) As(target any) bool {
	transactor, ok := target.(*storage.Transactor)
	if ok {
		*transactor, ok = storage.As[storage.Transactor](b.Backend)
	}
	return ok
}

// WatchList implements storage.Backend.
func (b *markless) WatchList(
	ctx context.Context, typ storage.UnversionedType, tenancy *resourcepb.Tenancy, prefix string,
) (storage.Watch, error) {
	w, err := b.Backend.WatchList(ctx, typ, tenancy, prefix)
	return struct{ storage.Watch }{w}, err
}
