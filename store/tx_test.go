package store_test

import (
	"context"
	"errors"
	"testing"

	"github.com/ashlar-dev/storage"
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
