package store_test

import (
	"context"
	"errors"
	"fmt"
	"testing"

	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/ashlar-dev/storage"
	"github.com/ashlar-dev/storage/internal/storetest"
	"github.com/ashlar-dev/storage/resourcepb"
	"github.com/ashlar-dev/storage/store"
)

// Whether calls of Batch.Update are committed together or one after the other makes no difference to what they are told.
func TestCreatedTwice(t *testing.T) {
	onEach(t, func(ctx context.Context, t *testing.T, url string) {
		s := open(t, url, numbers)
		for _, name := range []string{"together", "apart"} {
			twice := func(fn func(func(*store.Tx) error) error) {
				t.Helper()
				create := func(tx *store.Tx) error { return numbers.Put(tx, put(name, 1)) }
				if err := fn(create); err != nil {
					t.Error(err)
				}
				if err := fn(create); !errors.Is(err, storage.ErrCASFailure) {
					t.Errorf("created %s for the second time: %v", name, err)
				}
			}
			if name == "apart" {
				twice(func(fn func(*store.Tx) error) error { return s.Update(ctx, fn) })
				continue
			}
			if err := s.Batch(ctx, func(b *store.Batch) error {
				twice(b.Update)
				return nil
			}); err != nil {
				t.Error(err)
			}
		}
	})
}

// Which tables go together does not depend on their order: a guard's name is taken only by a table that has one.
func TestTablesBesideAGuard(t *testing.T) {
	t.Parallel()
	ctx := storetest.Context(t)
	b := storetest.Open(t, fmt.Sprint("mem://store-", stores.Add(1)))
	named := store.NewTable[*wrapperspb.StringValue](&resourcepb.Type{Group: "demo", GroupVersion: "v1", Kind: "Number.guard"})
	for _, c := range []struct {
		tables []store.AnyTable
		fit    bool
	}{
		{[]store.AnyTable{numbers, named}, true},
		{[]store.AnyTable{named, numbers}, true},
		{[]store.AnyTable{guarded, named}, false},
		{[]store.AnyTable{named, guarded}, false},
		{[]store.AnyTable{guarded, numbers}, false},
	} {
		s, err := store.Open(ctx, b, c.tables...)
		if c.fit != (err == nil) || !c.fit && !errors.Is(err, storage.ErrInvalid) {
			t.Errorf("tables %v: %v, expected to fit: %v", c.tables, err, c.fit)
		}
		if err == nil {
			s.Close()
		}
	}
}
