package tables_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"

	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/ashlar-dev/storage"
	"github.com/ashlar-dev/storage/internal/test/fixture"
	"github.com/ashlar-dev/storage/resourcepb"
	"github.com/ashlar-dev/storage/typed"
	"github.com/ashlar-dev/storage/typed/tables"
)

var (
	byTitle = tables.Index[*wrapperspb.StringValue, string]{Name: "title", Unique: true, Values: func(o *typed.Object[*wrapperspb.StringValue]) []string {
		if o.Data.Value == "" {
			return nil
		}
		return []string{o.Data.Value}
	}}
	books = tables.NewTable[*wrapperspb.StringValue](&resourcepb.Type{Group: "demo", GroupVersion: "v1", Kind: "Book"}, byTitle)
)

// setTitle creates or updates a book.
func setTitle(ctx context.Context, s *tables.Store, name, title string) error {
	return s.Update(ctx, func(tx *tables.Tx) error {
		book, err := books.Edit(tx, books.ID(fixture.Tenancy, name))
		if errors.Is(err, storage.ErrNotFound) {
			book, err = &typed.Object[*wrapperspb.StringValue]{ID: books.ID(fixture.Tenancy, name), Data: &wrapperspb.StringValue{}}, nil
		}
		if err != nil {
			return err
		}
		book.Data.Value = title
		return books.Put(tx, book)
	})
}

// Twenty goroutines over two stores create a book of one title if none exists. One of them succeeds.
func TestUniqueIndexAcrossProcesses(t *testing.T) {
	onEach(t, func(ctx context.Context, t *testing.T, url string) {
		stores := []*tables.Store{open(t, url, books), open(t, url, books)}
		for round := range 5 {
			title := fmt.Sprint("title-", round)
			var created atomic.Int32
			var all sync.WaitGroup
			for i := range 20 {
				all.Go(func() {
					err := stores[i%2].Update(ctx, func(tx *tables.Tx) error {
						found, err := books.List(tx, byTitle.Is(title))
						if err != nil || len(found) > 0 {
							return errors.Join(err, tables.ErrNotUnique)
						}
						return books.Put(tx, &typed.Object[*wrapperspb.StringValue]{
							ID: books.ID(fixture.Tenancy, fmt.Sprint(round, "-", i)), Data: wrapperspb.String(title),
						})
					})
					if err == nil {
						created.Add(1)
					} else if !errors.Is(err, tables.ErrNotUnique) {
						t.Error(err)
					}
				})
			}
			all.Wait()
			if created.Load() != 1 {
				t.Errorf("%d books of one title were created, expected one", created.Load())
			}
		}
	})
}

// A value becomes free when its object is deleted or changed, and no claim is left behind.
func TestUniqueIndex(t *testing.T) {
	onEach(t, func(ctx context.Context, t *testing.T, url string) {
		b, s := fixture.Open(t, url), open(t, url, books)
		must := func(err error) {
			t.Helper()
			if err != nil {
				t.Fatal(err)
			}
		}
		refused := func(err error) {
			t.Helper()
			if !errors.Is(err, tables.ErrNotUnique) {
				t.Errorf("%v, expected ErrNotUnique", err)
			}
		}
		must(setTitle(ctx, s, "a", "one"))
		must(setTitle(ctx, s, "b", ""))
		must(setTitle(ctx, s, "c", ""))
		refused(setTitle(ctx, s, "b", "one"))
		must(setTitle(ctx, s, "a", "one"))
		must(setTitle(ctx, s, "a", "two"))
		must(setTitle(ctx, s, "b", "one"))
		refused(setTitle(ctx, s, "a", "one"))
		remove := func(tx *tables.Tx, name string) error { return books.Delete(tx, books.ID(fixture.Tenancy, name)) }
		must(s.Update(ctx, func(tx *tables.Tx) error { return remove(tx, "b") }))
		must(setTitle(ctx, s, "c", "one"))
		put := func(tx *tables.Tx, name, title string) error {
			return books.Put(tx, &typed.Object[*wrapperspb.StringValue]{ID: books.ID(fixture.Tenancy, name), Data: wrapperspb.String(title)})
		}
		// In one transaction: the value of a deleted object, an object that is created and deleted, and two objects of one value.
		must(s.Update(ctx, func(tx *tables.Tx) error {
			return errors.Join(remove(tx, "c"), put(tx, "d", "one"), put(tx, "e", "three"), remove(tx, "e"), put(tx, "f", "three"))
		}))
		refused(s.Update(ctx, func(tx *tables.Tx) error { return errors.Join(put(tx, "g", "four"), put(tx, "h", "four")) }))
		must(s.Update(ctx, func(tx *tables.Tx) error { // deleted and created again
			return errors.Join(remove(tx, "d"), put(tx, "d", "five"))
		}))
		claims, err := b.List(ctx, storage.StrongConsistency, storage.UnversionedType{Group: "demo", Kind: "Book.guard"}, fixture.AllTenancies, "")
		if err != nil || len(claims) != 3 { // two of a, three of f and five of d
			t.Errorf("%d claims are stored (%v), expected 3: %v", len(claims), err, claims)
		}
		must(s.Batch(ctx, func(batch *tables.Batch) error {
			for i := range 50 {
				if err := batch.Update(func(tx *tables.Tx) error { return put(tx, fmt.Sprint("n", i), fmt.Sprint("n", i)) }); err != nil {
					return err
				}
			}
			return nil
		}))
	})
}

// Objects that had one value before the index was unique can still be updated. A further one is refused.
func TestUniqueIndexOfOldObjects(t *testing.T) {
	onEach(t, func(ctx context.Context, t *testing.T, url string) {
		oldBooks := tables.NewTable[*wrapperspb.StringValue](books.ID(nil, "").Type)
		before := open(t, url, oldBooks)
		for _, name := range []string{"a", "b"} {
			update(ctx, t, before, func(tx *tables.Tx) error {
				return oldBooks.Put(tx, &typed.Object[*wrapperspb.StringValue]{ID: books.ID(fixture.Tenancy, name), Data: wrapperspb.String("one")})
			})
		}
		s := open(t, url, books)
		update(ctx, t, s, func(tx *tables.Tx) error {
			book, err := books.Edit(tx, books.ID(fixture.Tenancy, "a"))
			if err != nil {
				return err
			}
			book.Metadata = map[string]string{"k": "v"}
			return books.Put(tx, book)
		})
		if err := setTitle(ctx, s, "c", "one"); !errors.Is(err, tables.ErrNotUnique) {
			t.Errorf("a third object: %v, expected ErrNotUnique", err)
		}
		for _, name := range []string{"a", "b"} {
			update(ctx, t, s, func(tx *tables.Tx) error { return books.Delete(tx, books.ID(fixture.Tenancy, name)) })
		}
		if err := setTitle(ctx, s, "c", "one"); err != nil {
			t.Error(err)
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
