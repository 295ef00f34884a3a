package tables

import (
	"context"
	"fmt"
	"sync/atomic"

	"github.com/ashlar-dev/storage"
	"github.com/ashlar-dev/storage/internal/replica"
	"github.com/ashlar-dev/storage/resourcepb"
)

// Store is a set of tables over a backend, with a copy of their objects in memory. It is safe for concurrent use, and any number of processes may
// open a store on the same database.
type Store struct {
	backend    storage.Backend
	transactor storage.Transactor
	tables     map[storage.UnversionedType]*table
	copy       *replica.Replica[*entry]
	closed     atomic.Bool
	lifetime   context.Context // ends with Close
	end        context.CancelFunc
}

// Open returns a store of the given tables when all objects are in memory. It does not close the backend; close the backend after the Store. It fails
// with [storage.ErrInvalid] if the backend is not a [storage.Transactor], or if two tables have the same type.
//
// One watch feeds the copy. Like any watch, it survives outages of the database. If it ends for good, because its history was discarded or an outage
// was too long, the store is listed again.
func Open(ctx context.Context, backend storage.Backend, tables ...AnyTable) (*Store, error) {
	transactor, ok := storage.As[storage.Transactor](backend)
	if !ok {
		return nil, fmt.Errorf("%w: the backend is not a storage.Transactor", storage.ErrInvalid)
	}
	s := &Store{backend: backend, transactor: transactor, tables: map[storage.UnversionedType]*table{}}
	for _, any := range tables {
		if err := s.add(any.base()); err != nil {
			return nil, err
		}
	}
	if len(s.tables) == 0 {
		return nil, fmt.Errorf("%w: a store needs at least one table", storage.ErrInvalid)
	}
	copied, err := replica.Open(ctx, backend, replica.Options[*entry]{
		Types: s.types(), Decode: s.decode,
		Index: &replica.Index[*entry]{Keys: func(r *replica.Row[*entry]) []string { return r.Value.values }},
	})
	if err != nil {
		return nil, err
	}
	s.copy = copied
	s.lifetime, s.end = context.WithCancel(context.Background())
	return s, nil
}

func (s *Store) add(t *table) error {
	if t.openErr != nil {
		return t.openErr
	}
	types := map[storage.UnversionedType]*table{t.name(): t}
	if t.hasGuard || len(t.unique) > 0 {
		types[storage.UnversionedTypeFrom(t.guardID().Type)] = nil
	}
	for name, owner := range types {
		if _, exists := s.tables[name]; exists {
			return fmt.Errorf("%w: two tables have the type %s/%s", storage.ErrInvalid, name.Group, name.Kind)
		}
		s.tables[name] = owner
	}
	return nil
}

func (s *Store) types() (types []storage.UnversionedType) {
	for name := range s.tables {
		types = append(types, name)
	}
	return types
}

// decode returns the entry of a resource. A resource that cannot be decoded becomes an entry with an error for readers.
func (s *Store) decode(res *resourcepb.Resource) *entry {
	return entryOf(s.tables[storage.UnversionedTypeFrom(res.GetId().GetType())], res)
}

// Close ends all watches and frees the copy. Later calls return [storage.ErrClosed]. Closing twice is allowed.
func (s *Store) Close() error {
	if !s.closed.Swap(true) {
		s.end()
		s.copy.Close()
	}
	return nil
}

// Err returns the reason why the store does not receive changes at present; nil while it does. The reason may pass: the store lists the database
// again until that succeeds. Meanwhile reads return the last state, and calls that wait for changes fail with the reason when their context ends.
//
// A damaged resource of a table is such a reason, as a [*storage.DamagedError]: overwrite or delete it in the backend. Damaged resources of other types
// are skipped.
func (s *Store) Err() error { return s.copy.Health() }

// ErrChanged returns a channel that is closed when the result of Err may have changed.
func (s *Store) ErrChanged() <-chan struct{} { return s.copy.HealthChanged() }

// Stats describes the copy of a store, for metrics.
type Stats struct {
	// Objects is the number of objects and of the store's own resources, such as guards.
	Objects int
	// Bytes is the approximate memory that they use.
	Bytes int64
	// Live reports whether a watch feeds the copy.
	Live bool
	// Relists is the number of times that the database was listed again because a watch had ended.
	Relists int64
}

// Stats returns the size and the state of the copy.
func (s *Store) Stats() Stats {
	copied := s.copy.Stats()
	return Stats{Objects: copied.Rows, Bytes: copied.Bytes, Live: copied.Live, Relists: copied.Relists}
}

// checkOpen returns the reason why the store cannot serve a call.
func (s *Store) checkOpen(ctx context.Context) error {
	if s.closed.Load() {
		return fmt.Errorf("the store: %w", storage.ErrClosed)
	}
	if err := s.copy.Err(); err != nil {
		return err
	}
	return ctx.Err()
}

// checkTable returns an error for a table that is not part of the store.
func (s *Store) checkTable(t *table) error {
	if s.tables[t.name()] != t {
		return fmt.Errorf("%w: %s was not passed to Open", storage.ErrInvalid, t)
	}
	return nil
}

// maxSize bounds the total size of the resources of a transaction, by the contract.
const maxSize = 1 << 20

func (s *Store) checkOpCount(n int) error {
	if maxOps := s.transactor.MaxOps(); n > maxOps {
		return fmt.Errorf("%w: the Update has accessed %d objects, the limit is %d: use Batch, or UncheckedReader for reads that need no check",
			storage.ErrTooLarge, n, maxOps)
	}
	return nil
}
