package tables

import (
	"context"
	"fmt"
	"sync/atomic"

	"github.com/ashlar-dev/storage"
	"github.com/ashlar-dev/storage/internal/replica"
	"github.com/ashlar-dev/storage/resourcepb"
)

// Store is tables over a backend, with a copy of their objects in memory. Its methods may be called from any number of goroutines, and any
// number of processes may have a store open on the same database.
type Store struct {
	backend    storage.Backend
	transactor storage.Transactor
	tables     map[storage.UnversionedType]*table
	copy       *replica.Replica[*entry]
	closed     atomic.Bool
}

// Open returns a store of the objects of some tables, once all of them are in memory. The backend stays the caller's: close it after the
// Store. It must be a [storage.Transactor], else the error is [storage.ErrInvalid]; so are two tables of one type.
//
// The copy is fed by one watch. It survives the loss of the database as that does; when the watch has ended for good, because its history
// is gone or the database was away for too long, all is listed again.
func Open(ctx context.Context, backend storage.Backend, tables ...AnyTable) (*Store, error) {
	transactor, ok := storage.As[storage.Transactor](backend)
	if !ok {
		return nil, fmt.Errorf("%w: the backend is no Transactor", storage.ErrInvalid)
	}
	s := &Store{backend: backend, transactor: transactor, tables: map[storage.UnversionedType]*table{}}
	for _, described := range tables {
		if err := s.add(described.base()); err != nil {
			return nil, err
		}
	}
	if len(s.tables) == 0 {
		return nil, fmt.Errorf("%w: a store without tables", storage.ErrInvalid)
	}
	copied, err := replica.Open(ctx, backend, replica.Options[*entry]{
		Types: s.types(), Decode: s.decode,
		Index: &replica.Index[*entry]{Keys: func(r *replica.Row[*entry]) []string { return r.Value.values }},
	})
	if err != nil {
		return nil, err
	}
	s.copy = copied
	return s, nil
}

func (s *Store) add(t *table) error {
	if t.openErr != nil {
		return t.openErr
	}
	takes := map[storage.UnversionedType]*table{t.name(): t}
	if t.hasGuard {
		takes[storage.UnversionedTypeFrom(t.guardID().Type)] = nil
	}
	for name, of := range takes {
		if _, twice := s.tables[name]; twice {
			return fmt.Errorf("%w: two tables of %s/%s", storage.ErrInvalid, name.Group, name.Kind)
		}
		s.tables[name] = of
	}
	return nil
}

func (s *Store) types() (types []storage.UnversionedType) {
	for name := range s.tables {
		types = append(types, name)
	}
	return types
}

// decode makes a row of the copy. What does not decode is a row too: readers are told.
func (s *Store) decode(res *resourcepb.Resource) *entry {
	return entryOf(s.tables[storage.UnversionedTypeFrom(res.GetId().GetType())], res)
}

// Close ends all watches and frees the copy. Calls after it return [storage.ErrClosed]; closing twice is fine.
func (s *Store) Close() error {
	if !s.closed.Swap(true) {
		s.copy.Close()
	}
	return nil
}

// checkOpen returns why a call cannot be carried out.
func (s *Store) checkOpen(ctx context.Context) error {
	if s.closed.Load() {
		return fmt.Errorf("the store: %w", storage.ErrClosed)
	}
	if err := s.copy.Err(); err != nil {
		return err
	}
	return ctx.Err()
}

// checkTable refuses a table that is not one of the store's.
func (s *Store) checkTable(t *table) error {
	if s.tables[t.name()] != t {
		return fmt.Errorf("%w: %s is not one of those that the store was opened with", storage.ErrInvalid, t)
	}
	return nil
}

// maxSize is what the resources of a transaction may have together, by the contract.
const maxSize = 1 << 20

func (s *Store) checkOpCount(n int) error {
	if most := s.transactor.MaxOps(); n > most {
		return fmt.Errorf("%w: the Update has read or changed %d objects, the most is %d: use Batch, or Unchecked for what need not be compared",
			storage.ErrTooLarge, n, most)
	}
	return nil
}
