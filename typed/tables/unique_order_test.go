package tables_test

import (
	"context"
	"errors"
	"sync"
	"testing"

	"github.com/ashlar-dev/storage"
	"github.com/ashlar-dev/storage/internal/test/fixture"
	"github.com/ashlar-dev/storage/resourcepb"
	"github.com/ashlar-dev/storage/typed/tables"
)

// lateBooks is a backend without bookmarks whose watches return books only after the first refused commit. DynamoDB does not order the changes of
// several resources either.
type lateBooks struct {
	storage.Backend
	refused context.Context
	refuse  context.CancelFunc
	claimed chan struct{} // closed when a watch has returned a claim, and was called again
	claim   func()
}

func newLateBooks(b storage.Backend) *lateBooks {
	late := &lateBooks{Backend: b, claimed: make(chan struct{})}
	late.refused, late.refuse = context.WithCancel(context.Background())
	late.claim = sync.OnceFunc(func() { close(late.claimed) })
	return late
}

func (b *lateBooks) As(target any) bool {
	transactor, ok := target.(*storage.Transactor)
	if !ok {
		return false
	}
	inner, ok := storage.As[storage.Transactor](b.Backend)
	*transactor = &refusalObserver{inner, b.refuse}
	return ok
}

// refusalObserver calls refused after a commit that failed.
type refusalObserver struct {
	storage.Transactor
	refused func()
}

func (o *refusalObserver) Commit(ctx context.Context, ops []storage.Op) ([]*resourcepb.Resource, error) {
	results, err := o.Transactor.Commit(ctx, ops)
	if err != nil {
		o.refused()
	}
	return results, err
}

func (b *lateBooks) WatchList(ctx context.Context, typ storage.UnversionedType, tenancy *resourcepb.Tenancy, prefix string) (storage.Watch, error) {
	w, err := b.Backend.WatchList(ctx, typ, tenancy, prefix)
	return &lateWatch{Watch: w, b: b}, err
}

type lateWatch struct {
	storage.Watch
	b       *lateBooks
	late    []*resourcepb.WatchEvent
	isClaim bool // the last event was a claim
}

func (w *lateWatch) Next(ctx context.Context) (*resourcepb.WatchEvent, error) {
	if w.isClaim {
		w.b.claim()
	}
	for w.b.refused.Err() == nil {
		early, cancel := context.WithCancel(ctx)
		stop := context.AfterFunc(w.b.refused, cancel)
		ev, err := w.Watch.Next(early)
		isEarly := stop()
		cancel()
		if err != nil && !isEarly && ctx.Err() == nil {
			break // cancelled by the refused commit
		}
		if err != nil {
			return nil, err
		}
		ev.More = false
		kind := ev.GetUpsert().GetResource().GetId().GetType().GetKind()
		if kind == "Book" {
			w.late = append(w.late, ev)
			continue
		}
		w.isClaim = kind == "Book.guard"
		return ev, nil
	}
	if len(w.late) == 0 {
		return w.Watch.Next(ctx)
	}
	ev := w.late[0]
	w.late = w.late[1:]
	return ev, nil
}

// The claim of a value arrives before its object. A second object must not get the value.
func TestUniqueIndexWithLateObject(t *testing.T) {
	onEach(t, func(ctx context.Context, t *testing.T, url string) {
		b := newLateBooks(fixture.Open(t, url))
		defer b.refuse()
		s, err := tables.Open(ctx, b, books)
		if err != nil {
			t.Fatal(err)
		}
		defer s.Close()
		if err := setTitle(ctx, open(t, url, books), "a", "x"); err != nil {
			t.Fatal(err)
		}
		<-b.claimed
		if err := setTitle(ctx, s, "b", "x"); !errors.Is(err, tables.ErrNotUnique) {
			t.Errorf("a second object with the value: got error %v, expected ErrNotUnique", err)
		}
	})
}
