package tables_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/ashlar-dev/storage"
	"github.com/ashlar-dev/storage/internal/test/fixture"
	"github.com/ashlar-dev/storage/resourcepb"
	"github.com/ashlar-dev/storage/typed"
	"github.com/ashlar-dev/storage/typed/tables"
)

// noMarks is a backend whose watches have no bookmarks.
type noMarks struct{ storage.Backend }

func (b *noMarks) As(target any) bool {
	transactor, ok := target.(*storage.Transactor)
	if ok {
		*transactor, ok = storage.As[storage.Transactor](b.Backend)
	}
	return ok
}

func (b *noMarks) WatchList(ctx context.Context, typ storage.UnversionedType, tenancy *resourcepb.Tenancy, prefix string) (storage.Watch, error) {
	w, err := b.Backend.WatchList(ctx, typ, tenancy, prefix)
	return struct{ storage.Watch }{w}, err
}

// An Update that fails after it has made changes writes nothing, also over watches without bookmarks.
func TestFailedUpdateWithoutBookmarks(t *testing.T) {
	onEach(t, func(ctx context.Context, t *testing.T, url string) {
		b := fixture.Open(t, url)
		s, err := tables.Open(ctx, &noMarks{b}, books)
		if err != nil {
			t.Fatal(err)
		}
		defer s.Close()
		stop := errors.New("stop")
		err = s.Update(ctx, func(tx *tables.Tx) error {
			if err := books.Put(tx, &typed.Object[*wrapperspb.StringValue]{ID: books.ID(fixture.Tenancy, "a"), Data: wrapperspb.String("x")}); err != nil {
				return err
			}
			return stop
		})
		all, _ := b.List(ctx, storage.StrongConsistency, fixture.AllTypes, fixture.AllTenancies, "")
		if !errors.Is(err, stop) || len(all) != 0 {
			t.Errorf("%v: %v", err, all)
		}
	})
}

// A transaction gives a value to another object and then back to the first one.
func TestUniqueIndexOfValueTakenBack(t *testing.T) {
	onEach(t, func(ctx context.Context, t *testing.T, url string) {
		s := open(t, url, books)
		put := func(tx *tables.Tx, name, title string) error {
			return books.Put(tx, &typed.Object[*wrapperspb.StringValue]{ID: books.ID(fixture.Tenancy, name), Data: wrapperspb.String(title)})
		}
		update(ctx, t, s, func(tx *tables.Tx) error { return put(tx, "a", "x") })
		err := s.Update(ctx, func(tx *tables.Tx) error {
			return errors.Join(books.Delete(tx, books.ID(fixture.Tenancy, "a")), put(tx, "b", "x"), put(tx, "a", "x"))
		})
		if !errors.Is(err, tables.ErrNotUnique) {
			t.Errorf("deleted, created with value: %v", err)
		}
		err = s.Update(ctx, func(tx *tables.Tx) error {
			a, err := books.Edit(tx, books.ID(fixture.Tenancy, "a"))
			if err != nil {
				return err
			}
			a.Data.Value = "y"
			if err := errors.Join(books.Put(tx, a), put(tx, "c", "x")); err != nil {
				return err
			}
			a, err = books.Edit(tx, books.ID(fixture.Tenancy, "a"))
			if err != nil {
				return err
			}
			a.Data.Value = "x"
			return books.Put(tx, a)
		})
		if !errors.Is(err, tables.ErrNotUnique) {
			t.Errorf("renamed and back: %v", err)
		}
	})
}

// Close of the store ends a waiting watch of WatchFrom.
func TestCloseEndsWatchFrom(t *testing.T) {
	onEach(t, func(ctx context.Context, t *testing.T, url string) {
		s := open(t, url, numbers)
		w, err := s.ViewAndWatch(ctx, nil)
		if err != nil {
			t.Fatal(err)
		}
		create(ctx, t, s, map[string]int64{"a": 1})
		ev, err := w.Next(ctx)
		if err != nil {
			t.Fatal(err)
		}
		from, err := s.WatchFrom(ctx, ev.Cursor)
		if err != nil {
			t.Fatal(err)
		}
		ended := make(chan error, 1)
		go func() { _, err := from.Next(ctx); ended <- err }()
		time.Sleep(50 * time.Millisecond)
		s.Close()
		select {
		case err := <-ended:
			if !errors.Is(err, storage.ErrWatchClosed) {
				t.Error(err)
			}
		case <-time.After(3 * time.Second):
			t.Error("Next still waits")
		}
	})
}

// lateBooks is a backend without bookmarks whose watches return books only after released is closed, like DynamoDB, which does not order the
// changes of several resources.
type lateBooks struct {
	noMarks
	released, claimed chan struct{}
}

func (b *lateBooks) WatchList(ctx context.Context, typ storage.UnversionedType, tenancy *resourcepb.Tenancy, prefix string) (storage.Watch, error) {
	w, err := b.Backend.WatchList(ctx, typ, tenancy, prefix)
	return &lateWatch{Watch: w, b: b}, err
}

type lateWatch struct {
	storage.Watch
	b       *lateBooks
	held    []*resourcepb.WatchEvent
	isClaim bool
}

func (w *lateWatch) Next(ctx context.Context) (*resourcepb.WatchEvent, error) {
	if w.isClaim {
		w.isClaim = false
		close(w.b.claimed)
	}
	for {
		waiting, cancel := context.WithCancel(ctx)
		select {
		case <-w.b.released:
			if len(w.held) > 0 {
				ev := w.held[0]
				w.held = w.held[1:]
				cancel()
				return ev, nil
			}
		default:
			go func() {
				select {
				case <-w.b.released:
					cancel()
				case <-waiting.Done():
				}
			}()
		}
		ev, err := w.Watch.Next(waiting)
		isWoken := err != nil && waiting.Err() != nil && ctx.Err() == nil
		cancel()
		if isWoken {
			continue
		}
		if err != nil {
			return nil, err
		}
		ev.More = false
		kind := ev.GetUpsert().GetResource().GetId().GetType().GetKind()
		if kind == "Book" {
			select {
			case <-w.b.released:
			default:
				w.held = append(w.held, ev)
				continue
			}
		}
		w.isClaim = kind == "Book.guard" && !w.isReleased()
		return ev, nil
	}
}

func (w *lateWatch) isReleased() bool {
	select {
	case <-w.b.released:
		return true
	default:
		return false
	}
}

// The claim of a value arrives before its object.
func TestUniqueIndexWithLateObject(t *testing.T) {
	onEach(t, func(ctx context.Context, t *testing.T, url string) {
		b := &lateBooks{noMarks{fixture.Open(t, url)}, make(chan struct{}), make(chan struct{})}
		s, err := tables.Open(ctx, b, books)
		if err != nil {
			t.Fatal(err)
		}
		defer s.Close()
		if err := setTitle(ctx, open(t, url, books), "a", "x"); err != nil {
			t.Fatal(err)
		}
		<-b.claimed
		time.AfterFunc(200*time.Millisecond, func() { close(b.released) })
		if err := setTitle(ctx, s, "b", "x"); !errors.Is(err, tables.ErrNotUnique) {
			t.Errorf("a second object of the value: %v, expected ErrNotUnique", err)
		}
	})
}
