package tables_test

import (
	"context"
	"errors"
	"testing"

	"github.com/ashlar-dev/storage"
	"github.com/ashlar-dev/storage/internal/test/fixture"
	"github.com/ashlar-dev/storage/resourcepb"
	"github.com/ashlar-dev/storage/typed/tables"
)

// A program may reuse one id variable for several reads. The absence of an object under the first name still conflicts with its creation.
func TestReusedIDVariable(t *testing.T) {
	onEach(t, func(ctx context.Context, t *testing.T, url string) {
		s, other := open(t, url, numbers), open(t, url, numbers)
		tries := 0
		update(ctx, t, s, func(tx *tables.Tx) error {
			found, one := 0, id("")
			for _, name := range []string{"a", "b"} {
				one.Name = name
				if _, err := numbers.Get(tx, one); err == nil {
					found++
				}
			}
			if tries++; tries == 1 {
				create(ctx, t, other, map[string]int64{"a": 1})
			}
			return numbers.Put(tx, put("found", int64(found)))
		})
		if err := s.View(ctx, func(v *tables.View) error {
			if names := listNames(t, v, byValue.Is(1)); names != "a found" {
				t.Errorf("after %d tries the objects with value 1 are %q", tries, names)
			}
			return nil
		}); err != nil {
			t.Fatal(err)
		}
	})
}

// Without bookmarks, the database verifies reads of absent objects.
func TestAbsenceIsVerifiedWithoutBookmarks(t *testing.T) {
	onEach(t, func(ctx context.Context, t *testing.T, url string) {
		s, err := tables.Open(ctx, &noBookmarks{fixture.Open(t, url)}, numbers)
		if err != nil {
			t.Fatal(err)
		}
		defer s.Close()
		read := func(tx *tables.Tx) error {
			_, err := numbers.Get(tx, id("a"))
			return err
		}
		if err := s.Update(ctx, read); !errors.Is(err, storage.ErrNotFound) || ctx.Err() != nil {
			t.Errorf("%v, after %v", err, ctx.Err())
		}
		create(ctx, t, s, map[string]int64{"a": 1})
		update(ctx, t, s, read)
	})
}

// Two transactions replace the same object by another object. One of them finds it deleted. A watch of the backend returns one deletion
// and one creation.
func TestConflictingDeletions(t *testing.T) {
	onEach(t, func(ctx context.Context, t *testing.T, url string) {
		s, other := open(t, url, numbers), open(t, url, numbers)
		create(ctx, t, s, map[string]int64{"token": 1})
		w := fixture.WatchAll(t, fixture.Open(t, url))
		for fixture.Next(t, w).GetEndOfSnapshot() == nil {
		}
		take := func(name string) func(*tables.Tx) error {
			return func(tx *tables.Tx) error {
				return errors.Join(numbers.Delete(tx, id("token")), numbers.Put(tx, put(name, 1)))
			}
		}
		tries := 0
		err := s.Update(ctx, func(tx *tables.Tx) error {
			if tries++; tries == 1 {
				defer update(ctx, t, other, take("theirs"))
			}
			return take("mine")(tx)
		})
		if !errors.Is(err, storage.ErrNotFound) || tries < 2 { // a third attempt may verify the result of the second one
			t.Errorf("%v after %d tries", err, tries)
		}
		deleted, written := 0, 0
		for range 2 {
			switch ev := fixture.Next(t, w); {
			case ev.GetDelete().GetResource().GetId().GetName() == "token":
				deleted++
			case ev.GetUpsert().GetResource().GetId().GetName() == "theirs":
				written++
			default:
				t.Errorf("unexpected event: %v", ev)
			}
		}
		if deleted != 1 || written != 1 {
			t.Errorf("%d deletions and %d creations", deleted, written)
		}
	})
}

// An object that was deleted and created again has another uid. A write of the earlier object is a conflict, so the function runs again.
func TestRecreatedObjectConflicts(t *testing.T) {
	onEach(t, func(ctx context.Context, t *testing.T, url string) {
		s, other := open(t, url, numbers), open(t, url, numbers)
		create(ctx, t, s, map[string]int64{"a": 1})
		tries := 0
		update(ctx, t, s, func(tx *tables.Tx) error {
			o, err := numbers.Get(tx, id("a"))
			if err != nil {
				return err
			}
			if tries++; tries == 1 {
				update(ctx, t, other, func(tx *tables.Tx) error { return numbers.Delete(tx, id("a")) })
				create(ctx, t, other, map[string]int64{"a": 10})
			}
			next := put("a", o.Data.GetValue()+1)
			next.ID, next.Version = o.ID, o.Version
			return numbers.Put(tx, next)
		})
		if err := s.View(ctx, func(v *tables.View) error {
			if o, err := numbers.Get(v, id("a")); err != nil || o.Data.GetValue() != 11 {
				t.Errorf("after %d tries: %v, %v, expected 11", tries, o, err)
			}
			return nil
		}); err != nil {
			t.Fatal(err)
		}
	})
}

// noBookmarks is a backend whose watches have no bookmarks.
type noBookmarks struct{ storage.Backend }

func (b *noBookmarks) As(target any) bool {
	transactor, ok := target.(*storage.Transactor)
	if ok {
		*transactor, ok = storage.As[storage.Transactor](b.Backend)
	}
	return ok
}

func (b *noBookmarks) WatchList(
	ctx context.Context, typ storage.UnversionedType, tenancy *resourcepb.Tenancy, prefix string,
) (storage.Watch, error) {
	w, err := b.Backend.WatchList(ctx, typ, tenancy, prefix)
	return struct{ storage.Watch }{w}, err
}

// A transaction refuses calls after its end, because their changes would be lost.
func TestTransactionAfterEnd(t *testing.T) {
	onEach(t, func(ctx context.Context, t *testing.T, url string) {
		s := open(t, url, numbers)
		var ended []*tables.Tx
		update(ctx, t, s, func(tx *tables.Tx) error {
			ended = append(ended, tx)
			return numbers.Put(tx, put("a", 1))
		})
		var batch *tables.Batch
		if err := s.Batch(ctx, func(b *tables.Batch) error {
			batch = b
			return b.Update(func(tx *tables.Tx) error {
				ended = append(ended, tx)
				return numbers.Put(tx, put("b", 1))
			})
		}); err != nil {
			t.Fatal(err)
		}
		func() {
			defer func() { _ = recover() }()
			_ = s.Update(ctx, func(tx *tables.Tx) error {
				ended = append(ended, tx)
				panic("on purpose")
			})
		}()
		for i, tx := range ended {
			_, errGet := numbers.Get(tx.UncheckedReader(), id("a"))
			_, errList := numbers.List(tx)
			for _, err := range []error{numbers.Put(tx, put("c", 1)), numbers.Delete(tx, id("a")), errGet, errList} {
				if !errors.Is(err, storage.ErrInvalid) {
					t.Errorf("transaction %d: %v", i, err)
				}
			}
		}
		err := batch.Update(func(tx *tables.Tx) error { return numbers.Put(tx, put("c", 1)) })
		if !errors.Is(err, storage.ErrInvalid) {
			t.Errorf("update of an ended batch: %v, expected ErrInvalid", err)
		}
	})
}

// A function of a batch that panics leaves no changes. A function must not call its batch, because its own changes so far could be committed.
func TestBatchFunctionIsAtomic(t *testing.T) {
	onEach(t, func(ctx context.Context, t *testing.T, url string) {
		s := open(t, url, numbers)
		if err := s.Batch(ctx, func(b *tables.Batch) error {
			func() {
				defer func() { _ = recover() }()
				_ = b.Update(func(tx *tables.Tx) error {
					_ = numbers.Put(tx, put("half", 1))
					panic("on purpose")
				})
			}()
			if err := b.Update(func(tx *tables.Tx) error {
				_ = numbers.Put(tx, put("outer", 1))
				return b.Update(func(tx *tables.Tx) error { return numbers.Put(tx, put("inner", 1)) })
			}); !errors.Is(err, storage.ErrInvalid) {
				t.Errorf("nested call of Update: %v, expected ErrInvalid", err)
			}
			return b.Update(func(tx *tables.Tx) error { return numbers.Put(tx, put("whole", 1)) })
		}); err != nil {
			t.Fatal(err)
		}
		if err := s.View(ctx, func(v *tables.View) error {
			if names := listNames(t, v); names != "whole" {
				t.Errorf("stored objects: %q", names)
			}
			return nil
		}); err != nil {
			t.Fatal(err)
		}
	})
}
