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

// counting is a backend that takes few operations at a time and counts those of each commit. It can lose the answer of one.
type counting struct {
	storage.Backend
	storage.Transactor
	most int

	mu   sync.Mutex
	sent []int
	lose int // the number of the commit whose answer is lost; 0 for none
}

func (b *counting) As(target any) bool {
	transactor, ok := target.(*storage.Transactor)
	if ok {
		*transactor = b
	}
	return ok
}

func (b *counting) MaxOps() int { return b.most }

func (b *counting) Commit(ctx context.Context, ops []storage.Op) ([]*resourcepb.Resource, error) {
	results, err := b.Transactor.Commit(ctx, ops)
	return results, b.sends(len(ops), err)
}

func (b *counting) WriteCAS(ctx context.Context, res *resourcepb.Resource) (*resourcepb.Resource, error) {
	stored, err := b.Backend.WriteCAS(ctx, res)
	return stored, b.sends(1, err)
}

func (b *counting) sends(ops int, err error) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.sent = append(b.sent, ops); len(b.sent) == b.lose && err == nil {
		return storage.ErrInconsistent
	}
	return err
}

// counted opens a store that sends at most this many operations at a time.
func counted(ctx context.Context, t *testing.T, url string, most int) (*tables.Store, *counting) {
	t.Helper()
	b := fixture.Open(t, url)
	transactor, ok := storage.As[storage.Transactor](b)
	if !ok {
		t.Fatal("no transactor")
	}
	few := &counting{Backend: b, Transactor: transactor, most: most}
	s, err := tables.Open(ctx, few, numbers, notes)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Close() })
	return s, few
}

// A batch fills every transaction to the last operation, and to the last byte.
func TestWhereABatchIsSplit(t *testing.T) {
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
			{"what is read counts", 5, func(tx *tables.Tx, i int) error {
				_, err := numbers.Get(tx, id("another"))
				if errors.Is(err, storage.ErrNotFound) {
					err = nil
				}
				return errors.Join(err, putNumber(tx, i))
			}, []int{5, 2}},
			{"two halves of what fits", 4, func(tx *tables.Tx, i int) error {
				return notes.Put(tx, sized(t, fmt.Sprint("half-", i), mebibyte/2))
			}, []int{2, 2}},
			{"a byte too much for two", 3, func(tx *tables.Tx, i int) error {
				return notes.Put(tx, sized(t, fmt.Sprint("more-", i), mebibyte/2+i%2))
			}, []int{1, 1, 1}},
			{"all that fits in each", 2, func(tx *tables.Tx, i int) error {
				return notes.Put(tx, sized(t, fmt.Sprint("full-", i), mebibyte))
			}, []int{1, 1}},
			{"nothing", 3, func(*tables.Tx, int) error { return nil }, nil},
		} {
			s, b := counted(ctx, t, url, 5)
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
				left, err := numbers.List(tx)
				for _, o := range left {
					err = errors.Join(err, numbers.Delete(tx, o.ID))
				}
				return err
			})
		}
	})
}

func putNumber(tx *tables.Tx, i int) error { return numbers.Put(tx, put(fmt.Sprint("n-", i), 1)) }

// A call that fails or does not fit by itself is left out, and the batch goes on. An error between two transactions, the program's or a lost
// answer, says how many calls are committed.
func TestErrorsWithinABatch(t *testing.T) {
	onEach(t, func(ctx context.Context, t *testing.T, url string) {
		failed := errors.New("failed on purpose")
		s, _ := counted(ctx, t, url, 3)
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
			if names := show(t, v); names != "n-0 n-2 n-3 n-5" {
				t.Errorf("there are %q", names)
			}
			return nil
		}); err != nil {
			t.Fatal(err)
		}
		for _, c := range []struct {
			what string
			lose int
			fail int
			want error
		}{{"the program fails", 0, 7, failed}, {"an answer is lost", 2, -1, storage.ErrInconsistent}} {
			s, b := counted(ctx, t, url, 3)
			b.lose = c.lose
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
			if want := 3 * (2 - c.lose/2); !errors.As(err, &ended) || !errors.Is(err, c.want) || ended.CommittedUpdates != want {
				t.Errorf("%s: %v, expected that %d are committed", c.what, err, want)
			}
			if err := s.View(ctx, func(v *tables.View) error {
				found, err := numbers.List(v, tables.NamePrefix(c.what))
				if len(found) < ended.CommittedUpdates || len(found) > calls {
					t.Errorf("%s: there are %d of %d, %d are said to be committed", c.what, len(found), calls, ended.CommittedUpdates)
				}
				return err
			}, tables.Linearizable); err != nil {
				t.Fatal(err)
			}
		}
	})
}
