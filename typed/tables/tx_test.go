package tables_test

import (
	"context"
	"errors"
	"fmt"
	"testing"

	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/ashlar-dev/storage"
	"github.com/ashlar-dev/storage/internal/test/fixture"
	"github.com/ashlar-dev/storage/resourcepb"
	"github.com/ashlar-dev/storage/typed/tables"
)

// Calls of Batch.Update get the same errors whether they are committed together or separately.
func TestCreateTwice(t *testing.T) {
	onEach(t, func(ctx context.Context, t *testing.T, url string) {
		s := open(t, url, numbers)
		for _, name := range []string{"together", "apart"} {
			twice := func(fn func(func(*tables.Tx) error) error) {
				t.Helper()
				create := func(tx *tables.Tx) error { return numbers.Put(tx, put(name, 1)) }
				if err := fn(create); err != nil {
					t.Error(err)
				}
				if err := fn(create); !errors.Is(err, storage.ErrCASFailure) {
					t.Errorf("second creation of %s: %v, expected ErrCASFailure", name, err)
				}
			}
			if name == "apart" {
				twice(func(fn func(*tables.Tx) error) error { return s.Update(ctx, fn) })
				continue
			}
			if err := s.Batch(ctx, func(b *tables.Batch) error {
				twice(b.Update)
				return nil
			}); err != nil {
				t.Error(err)
			}
		}
	})
}

// A table with a guard also occupies the guard's type, whatever the order of the tables.
func TestGuardTypeConflicts(t *testing.T) {
	t.Parallel()
	ctx := fixture.Context(t)
	b := fixture.Open(t, fmt.Sprint("mem://store-", stores.Add(1)))
	named := tables.NewTable[*wrapperspb.StringValue](&resourcepb.Type{Group: "demo", GroupVersion: "v1", Kind: "Number.guard"})
	for _, c := range []struct {
		tables []tables.AnyTable
		fit    bool
	}{
		{[]tables.AnyTable{numbers, named}, true},
		{[]tables.AnyTable{named, numbers}, true},
		{[]tables.AnyTable{guarded, named}, false},
		{[]tables.AnyTable{named, guarded}, false},
		{[]tables.AnyTable{guarded, numbers}, false},
	} {
		s, err := tables.Open(ctx, b, c.tables...)
		if c.fit != (err == nil) || !c.fit && !errors.Is(err, storage.ErrInvalid) {
			t.Errorf("tables %v: %v, expected success: %v", c.tables, err, c.fit)
		}
		if err == nil {
			s.Close()
		}
	}
}
