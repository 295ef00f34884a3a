package tables_test

import (
	"context"
	"errors"
	"testing"

	"github.com/ashlar-dev/storage/typed/tables"
)

// The error of a batch counts its own updates, even if its function returns the error of another batch.
func TestNestedBatches(t *testing.T) {
	onEach(t, func(ctx context.Context, t *testing.T, url string) {
		s, other := open(t, url, numbers), open(t, url, numbers)
		broken := errors.New("broken")
		add := func(b *tables.Batch, names ...string) error {
			for _, name := range names {
				if err := b.Update(func(tx *tables.Tx) error { return numbers.Put(tx, put(name, 1)) }); err != nil {
					return err
				}
			}
			return nil
		}
		err := s.Batch(ctx, func(b *tables.Batch) error {
			if err := add(b, "a", "b", "c"); err != nil {
				return err
			}
			return other.Batch(ctx, func(b *tables.Batch) error {
				return errors.Join(add(b, "d"), &tables.BatchError{CommittedUpdates: 2, Err: broken})
			})
		})
		outer := (*tables.BatchError)(nil)
		if !errors.As(err, &outer) || outer.CommittedUpdates != 0 || !errors.Is(err, broken) {
			t.Errorf("the error is %v, expected no committed updates", err)
		}
	})
}
