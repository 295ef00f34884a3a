package tables_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"

	"github.com/ashlar-dev/storage"
	"github.com/ashlar-dev/storage/internal/test/fixture"
	"github.com/ashlar-dev/storage/resourcepb"
	"github.com/ashlar-dev/storage/typed/tables"
)

// counting is a backend with a low limit of operations that records the number of operations of each commit. It can lose the answer of one commit.
type counting struct {
	storage.Backend
	storage.Transactor
	maxOps int

	mu         sync.Mutex
	sent       []int
	lostCommit int // the number of the commit whose answer is lost; 0 for none
}

func (b *counting) As(target any) bool {
	transactor, ok := target.(*storage.Transactor)
	if ok {
		*transactor = b
	}
	return ok
}

func (b *counting) MaxOps() int { return b.maxOps }

func (b *counting) Commit(ctx context.Context, ops []storage.Op) ([]*resourcepb.Resource, error) {
	results, err := b.Transactor.Commit(ctx, ops)
	return results, b.record(len(ops), err)
}

func (b *counting) WriteCAS(ctx context.Context, res *resourcepb.Resource) (*resourcepb.Resource, error) {
	stored, err := b.Backend.WriteCAS(ctx, res)
	return stored, b.record(1, err)
}

func (b *counting) record(ops int, err error) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.sent = append(b.sent, ops); len(b.sent) == b.lostCommit && err == nil {
		return storage.ErrInconsistent
	}
	return err
}

// openLimited opens a store over a backend with a limit of operations.
func openLimited(ctx context.Context, t *testing.T, url string, maxOps int) (*tables.Store, *counting) {
	t.Helper()
	b := fixture.Open(t, url)
	transactor, ok := storage.As[storage.Transactor](b)
	if !ok {
		t.Fatal("no transactor")
	}
	few := &counting{Backend: b, Transactor: transactor, maxOps: maxOps}
	s, err := tables.Open(ctx, few, numbers, notes)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Close() })
	return s, few
}

// A batch fills every transaction up to the last operation and the last byte.
func TestBatchSplitsAtLimits(t *testing.T) {
	onEach(t, func(ctx context.Context, t *testing.T, url string) {
		for _, c := range []struct {
			what   string
			number int
			puts   func(tx *tables.Tx, i int) error
			want   []int
		}{
			{"as many as fit", 5, putNumber, []int{5}},
			{"one more", 6, putNumber, []int{5, 1}},
			{"twice as many", 10, putNumber, []int{5, 5}},
			{"two in each call", 5, func(tx *tables.Tx, i int) error {
				return errors.Join(putNumber(tx, 2*i), putNumber(tx, 2*i+1))
			}, []int{4, 4, 2}},
			{"reads count", 5, func(tx *tables.Tx, i int) error {
				_, err := numbers.Get(tx, id("another"))
				if errors.Is(err, storage.ErrNotFound) {
					err = nil
				}
				return errors.Join(err, putNumber(tx, i))
			}, []int{5, 2}},
			{"two halves of the limit", 4, func(tx *tables.Tx, i int) error {
				return notes.Put(tx, sized(t, fmt.Sprint("half-", i), mebibyte/2))
			}, []int{2, 2}},
			{"one byte too many for two", 3, func(tx *tables.Tx, i int) error {
				return notes.Put(tx, sized(t, fmt.Sprint("more-", i), mebibyte/2+i%2))
			}, []int{1, 1, 1}},
			{"the limit in each", 2, func(tx *tables.Tx, i int) error {
				return notes.Put(tx, sized(t, fmt.Sprint("full-", i), mebibyte))
			}, []int{1, 1}},
			{"nothing", 3, func(*tables.Tx, int) error { return nil }, nil},
		} {
			s, b := openLimited(ctx, t, url, 5)
			if err := s.Batch(ctx, func(batch *tables.Batch) error {
				for i := range c.number {
					if err := batch.Update(func(tx *tables.Tx) error { return c.puts(tx, i) }); err != nil {
						return err
					}
				}
				return nil
			}); err != nil {
				t.Errorf("%s: %v", c.what, err)
			}
			if !slices.Equal(b.sent, c.want) {
				t.Errorf("%s: the transactions have %v operations, expected %v", c.what, b.sent, c.want)
			}
			update(ctx, t, open(t, url, numbers, notes), func(tx *tables.Tx) error {
				remaining, err := numbers.List(tx)
				for _, o := range remaining {
					err = errors.Join(err, numbers.Delete(tx, o.ID))
				}
				return err
			})
		}
	})
}

func putNumber(tx *tables.Tx, i int) error { return numbers.Put(tx, put(fmt.Sprint("n-", i), 1)) }

// A call of Update that fails or is too large is left out, and the batch continues. An error between two transactions, of the program or a lost answer,
// reports the number of committed calls.
func TestBatchErrors(t *testing.T) {
	onEach(t, func(ctx context.Context, t *testing.T, url string) {
		failed := errors.New("failed on purpose")
		s, _ := openLimited(ctx, t, url, 3)
		if err := s.Batch(ctx, func(b *tables.Batch) error {
			for i := range 6 {
				want := error(nil)
				err := b.Update(func(tx *tables.Tx) error {
					if err := putNumber(tx, i); err != nil {
						return err
					}
					switch i {
					case 1:
						want = failed
						return failed
					case 4:
						want = storage.ErrTooLarge
						return errors.Join(putNumber(tx, 10), putNumber(tx, 11), putNumber(tx, 12))
					}
					return nil
				})
				if !errors.Is(err, want) {
					t.Errorf("call %d: %v, expected %v", i, err, want)
				}
			}
			return nil
		}); err != nil {
			t.Fatal(err)
		}
		if err := s.View(ctx, func(v *tables.View) error {
			if names := listNames(t, v); names != "n-0 n-2 n-3 n-5" {
				t.Errorf("stored objects: %q", names)
			}
			return nil
		}); err != nil {
			t.Fatal(err)
		}
		for _, c := range []struct {
			what       string
			lostCommit int
			fail       int
			want       error
		}{{"the program fails", 0, 7, failed}, {"an answer is lost", 2, -1, storage.ErrInconsistent}} {
			s, b := openLimited(ctx, t, url, 3)
			b.lostCommit = c.lostCommit
			calls := 0
			err := s.Batch(ctx, func(b *tables.Batch) error {
				for i := range 12 {
					if i == c.fail {
						return failed
					}
					calls++
					if err := b.Update(func(tx *tables.Tx) error { return numbers.Put(tx, put(fmt.Sprint(c.what, i), 1)) }); err != nil {
						return err
					}
				}
				return nil
			})
			ended := (*tables.BatchError)(nil)
			if want := 3 * (2 - c.lostCommit/2); !errors.As(err, &ended) || !errors.Is(err, c.want) || ended.CommittedUpdates != want {
				t.Errorf("%s: %v, expected %d committed updates", c.what, err, want)
			}
			if err := s.View(ctx, func(v *tables.View) error {
				found, err := numbers.List(v, tables.NamePrefix(c.what))
				if len(found) < ended.CommittedUpdates || len(found) > calls {
					t.Errorf("%s: %d of %d objects are stored, the error reports %d committed updates", c.what, len(found), calls, ended.CommittedUpdates)
				}
				return err
			}, tables.Linearizable); err != nil {
				t.Fatal(err)
			}
		}
	})
}
