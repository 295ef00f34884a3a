package tables_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync/atomic"
	"testing"

	"github.com/ashlar-dev/storage"
	"github.com/ashlar-dev/storage/internal/test/fixture"
	"github.com/ashlar-dev/storage/resourcepb"
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

// contended is a backend with a second writer, which updates the hot object before each transaction of several objects with the hot one.
// It refuses more than maxCommits transactions.
type contended struct {
	storage.Backend
	hot        *resourcepb.ID
	commits    atomic.Int64
	maxCommits int64
}

func (c *contended) As(target any) bool {
	if target, ok := target.(*storage.Transactor); ok {
		*target = c
		return true
	}
	return false
}

func (c *contended) MaxOps() int { return 64 }

func (c *contended) Commit(ctx context.Context, ops []storage.Op) ([]*resourcepb.Resource, error) {
	if c.commits.Add(1) > c.maxCommits {
		return nil, fmt.Errorf("more than %d transactions", c.maxCommits)
	}
	if len(ops) > 1 && slices.ContainsFunc(ops, func(op storage.Op) bool { return op.Write.GetId().GetName() == c.hot.GetName() }) {
		res, err := c.Read(ctx, storage.StrongConsistency, c.hot)
		if err != nil {
			return nil, err
		}
		res.Metadata = map[string]string{"writes": fmt.Sprint(c.commits.Load())}
		if _, err := c.WriteCAS(ctx, res); err != nil {
			return nil, err
		}
	}
	inner, _ := storage.As[storage.Transactor](c.Backend)
	return inner.Commit(ctx, ops)
}

// Another writer changes one object all the time. The batch commits the others in few transactions, and the object by itself.
func TestBatchBesideContendedObject(t *testing.T) {
	onEach(t, func(ctx context.Context, t *testing.T, url string) {
		b := &contended{Backend: fixture.Open(t, url), hot: id("hot-20"), maxCommits: 16}
		s, err := tables.Open(ctx, b, numbers)
		if err != nil {
			t.Fatal(err)
		}
		defer s.Close()
		add := func(b *tables.Batch) error {
			for i := range 128 {
				if err := b.Update(func(tx *tables.Tx) error {
					o, err := numbers.Edit(tx, id(fmt.Sprint("hot-", i)))
					if errors.Is(err, storage.ErrNotFound) {
						o, err = put(fmt.Sprint("hot-", i), 0), nil
					}
					if err != nil {
						return err
					}
					o.Data.Value++
					return numbers.Put(tx, o)
				}); err != nil {
					return err
				}
			}
			return nil
		}
		hot := b.hot
		b.hot = nil
		if err := s.Batch(ctx, add); err != nil {
			t.Fatal(err)
		}
		b.hot = hot
		b.commits.Store(0)
		if err := s.Batch(ctx, add); err != nil {
			t.Error(err)
		}
	})
}
