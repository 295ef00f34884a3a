package store_test

import (
	"context"
	"errors"
	"slices"
	"sync/atomic"
	"testing"

	"github.com/ashlar-dev/storage"
	"github.com/ashlar-dev/storage/internal/storetest"
	"github.com/ashlar-dev/storage/resourcepb"
	"github.com/ashlar-dev/storage/store"
)

// A program may use one id again and again. What it found absent under the first name conflicts with what is created there.
func TestAnIDThatIsUsedAgain(t *testing.T) {
	onEach(t, func(ctx context.Context, t *testing.T, url string) {
		s, other := open(t, url, numbers), open(t, url, numbers)
		tries := 0
		update(ctx, t, s, func(tx *store.Tx) error {
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
		if err := s.View(ctx, func(v *store.View) error {
			if names := show(t, v, byValue.Is(1)); names != "a found" {
				t.Errorf("after %d tries these are 1: %q", tries, names)
			}
			return nil
		}); err != nil {
			t.Fatal(err)
		}
	})
}

// Where watches cannot prove how far they are, a mark that a killed program has left is absent, and compares so.
func TestAMarkThatWasLeftIsAbsent(t *testing.T) {
	onEach(t, func(ctx context.Context, t *testing.T, url string) {
		b := storetest.Open(t, url)
		s, err := store.Open(ctx, &markless{b}, numbers)
		if err != nil {
			t.Fatal(err)
		}
		defer s.Close()
		w, err := s.ViewAndWatch(ctx, nil)
		if err != nil {
			t.Fatal(err)
		}
		defer w.Close()
		other := open(t, url, numbers)
		left := &resourcepb.Resource{Id: id("a"), Metadata: map[string]string{store.DeletedMark: "true"}}
		left.Id.Uid = "uid"
		storetest.Write(t, b, left)
		create(ctx, t, other, map[string]int64{"b": 1})
		if _, err := w.Next(ctx); err != nil { // so the copy has the mark, too
			t.Fatal(err)
		}
		read := func(tx *store.Tx) error {
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

// markless is a backend whose watches are no bookmarkers.
type markless struct{ storage.Backend }

func (b *markless) As(target any) bool {
	transactor, ok := target.(*storage.Transactor)
	if ok {
		*transactor, ok = storage.As[storage.Transactor](b.Backend)
	}
	return ok
}

func (b *markless) WatchList(
	ctx context.Context, typ storage.UnversionedType, tenancy *resourcepb.Tenancy, prefix string,
) (storage.Watch, error) {
	w, err := b.Backend.WatchList(ctx, typ, tenancy, prefix)
	return struct{ storage.Watch }{w}, err
}

// A transaction that a program has kept takes nothing any more: it would be lost in silence.
func TestATransactionThatIsOver(t *testing.T) {
	onEach(t, func(ctx context.Context, t *testing.T, url string) {
		s := open(t, url, numbers)
		var kept []*store.Tx
		update(ctx, t, s, func(tx *store.Tx) error {
			kept = append(kept, tx)
			return numbers.Put(tx, put("a", 1))
		})
		var batch *store.Batch
		if err := s.Batch(ctx, func(b *store.Batch) error {
			batch = b
			return b.Update(func(tx *store.Tx) error {
				kept = append(kept, tx)
				return numbers.Put(tx, put("b", 1))
			})
		}); err != nil {
			t.Fatal(err)
		}
		func() {
			defer func() { _ = recover() }()
			_ = s.Update(ctx, func(tx *store.Tx) error {
				kept = append(kept, tx)
				panic("on purpose")
			})
		}()
		for i, tx := range kept {
			_, errGet := numbers.Get(tx.Unchecked(), id("a"))
			_, errList := numbers.List(tx)
			for _, err := range []error{numbers.Put(tx, put("c", 1)), numbers.Delete(tx, id("a")), errGet, errList} {
				if !errors.Is(err, storage.ErrInvalid) {
					t.Errorf("transaction %d: %v", i, err)
				}
			}
		}
		err := batch.Update(func(tx *store.Tx) error { return numbers.Put(tx, put("c", 1)) })
		if !errors.Is(err, storage.ErrInvalid) {
			t.Errorf("a batch that is over: %v", err)
		}
	})
}

// A function of a batch that panics leaves nothing, and one must not call the batch again: what it has done so far could be committed.
func TestAFunctionOfABatchIsAtomic(t *testing.T) {
	onEach(t, func(ctx context.Context, t *testing.T, url string) {
		s := open(t, url, numbers)
		if err := s.Batch(ctx, func(b *store.Batch) error {
			func() {
				defer func() { _ = recover() }()
				_ = b.Update(func(tx *store.Tx) error {
					_ = numbers.Put(tx, put("half", 1))
					panic("on purpose")
				})
			}()
			if err := b.Update(func(tx *store.Tx) error {
				_ = numbers.Put(tx, put("outer", 1))
				return b.Update(func(tx *store.Tx) error { return numbers.Put(tx, put("inner", 1)) })
			}); !errors.Is(err, storage.ErrInvalid) {
				t.Errorf("a call within a call: %v", err)
			}
			return b.Update(func(tx *store.Tx) error { return numbers.Put(tx, put("whole", 1)) })
		}); err != nil {
			t.Fatal(err)
		}
		if err := s.View(ctx, func(v *store.View) error {
			if names := show(t, v); names != "whole" {
				t.Errorf("there are %q", names)
			}
			return nil
		}); err != nil {
			t.Fatal(err)
		}
	})
}

// The name of the mark is the store's: an object that had it would be gone as soon as it is written.
func TestTheMarkIsReserved(t *testing.T) {
	onEach(t, func(ctx context.Context, t *testing.T, url string) {
		err := open(t, url, numbers).Update(ctx, func(tx *store.Tx) error {
			o := put("a", 1)
			o.Metadata = map[string]string{store.DeletedMark: "true"}
			return numbers.Put(tx, o)
		})
		if !errors.Is(err, storage.ErrInvalid) {
			t.Error(err)
		}
	})
}

// A mark whose removal has failed is removed with the next commit, though the process lives on for long and opens nothing.
func TestAMarkIsNotLeftForLong(t *testing.T) {
	onEach(t, func(ctx context.Context, t *testing.T, url string) {
		b := storetest.Open(t, url)
		transactor, ok := storage.As[storage.Transactor](b)
		if !ok {
			t.Fatal("no transactor")
		}
		lame := &undeleting{Backend: b, Transactor: transactor}
		s, err := store.Open(ctx, lame, numbers)
		if err != nil {
			t.Fatal(err)
		}
		defer s.Close()
		create(ctx, t, s, map[string]int64{"a": 1, "b": 2, "c": 3})
		lame.off.Store(true)
		update(ctx, t, s, func(tx *store.Tx) error {
			return errors.Join(numbers.Delete(tx, id("a")), numbers.Delete(tx, id("b")))
		})
		if left := storetest.Stored(t, b, id("a")); left == nil {
			t.Error("its removal was to fail")
		}
		update(ctx, t, s, func(tx *store.Tx) error { return numbers.Delete(tx, id("c")) })
		lame.off.Store(false)
		create(ctx, t, s, map[string]int64{"d": 1})
		for _, name := range []string{"a", "b", "c"} {
			if left := storetest.Stored(t, b, id(name)); left != nil {
				t.Errorf("left: %v", left)
			}
		}
	})
}

// undeleting is a backend that at times does not delete.
type undeleting struct {
	storage.Backend
	storage.Transactor
	off atomic.Bool
}

func (b *undeleting) As(target any) bool {
	transactor, ok := target.(*storage.Transactor)
	if ok {
		*transactor = b
	}
	return ok
}

func (b *undeleting) Commit(ctx context.Context, ops []storage.Op) ([]*resourcepb.Resource, error) {
	if b.off.Load() && slices.ContainsFunc(ops, func(op storage.Op) bool { return op.Delete != nil }) {
		return nil, storage.ErrInconsistent
	}
	return b.Transactor.Commit(ctx, ops)
}

func (b *undeleting) DeleteCAS(ctx context.Context, id *resourcepb.ID, version string) error {
	if b.off.Load() {
		return storage.ErrInconsistent
	}
	return b.Backend.DeleteCAS(ctx, id, version)
}
