package typed_test

import (
	"context"
	"errors"
	"testing"

	"github.com/ashlar-dev/storage"
	"github.com/ashlar-dev/storage/inmem"
	"github.com/ashlar-dev/storage/internal/test/fixture"
	"github.com/ashlar-dev/storage/resourcepb"
	"github.com/ashlar-dev/storage/typed"
)

// unsure is a backend that loses the answer to a write, whose repetition is then refused.
type unsure struct{ storage.Backend }

var errUnsure = errors.Join(storage.ErrInconsistent, &storage.OpError{Err: storage.ErrCASFailure})

func (u unsure) WriteCAS(ctx context.Context, res *resourcepb.Resource) (*resourcepb.Resource, error) {
	if _, err := u.Backend.WriteCAS(ctx, res); err != nil {
		return nil, err
	}
	return nil, errUnsure
}

func (u unsure) As(target any) bool {
	if tx, ok := target.(*storage.Transactor); ok {
		*tx = unsureTransactor{u.Backend.(storage.Transactor)}
		return true
	}
	return false
}

type unsureTransactor struct{ storage.Transactor }

func (u unsureTransactor) Commit(ctx context.Context, ops []storage.Op) ([]*resourcepb.Resource, error) {
	if _, err := u.Transactor.Commit(ctx, ops); err != nil {
		return nil, err
	}
	return nil, errUnsure
}

// A change whose outcome is unknown is not made again, whatever else its error matches: it may have been made.
func TestUnknownOutcomeIsNotRepeated(t *testing.T) {
	t.Parallel()
	ctx := fixture.Context(t)
	type counter struct{ N int }
	b := inmem.New(nil)
	defer b.Close()
	typ := typed.NewType("demo", "v1", "Counter")
	c := typed.NewJSON[counter](unsure{b}, typ)
	id := c.ID(nil, "a")
	calls := 0
	add := func(o *typed.Object[counter]) error {
		if calls++; calls > 2 {
			return errors.New("repeated")
		}
		o.Data.N++
		return nil
	}
	_, err := c.Apply(ctx, id, add)
	if calls != 1 || !errors.Is(err, storage.ErrInconsistent) {
		t.Errorf("Apply calls the function %d times and returns %v", calls, err)
	}
	calls = 0
	err = typed.Transact(ctx, unsure{b}, func(tx *typed.Tx) error {
		o, err := c.In(tx).Get(id)
		if err != nil {
			return err
		}
		if err := add(o); err != nil {
			return err
		}
		return c.In(tx).Put(o)
	})
	if calls != 1 || !errors.Is(err, storage.ErrInconsistent) {
		t.Errorf("Transact calls the function %d times and returns %v", calls, err)
	}
}
