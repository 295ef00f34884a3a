package tables

import (
	"context"
	"errors"
	"fmt"
	"iter"

	"github.com/ashlar-dev/storage"
	"github.com/ashlar-dev/storage/driver/key"
	"github.com/ashlar-dev/storage/internal/replica"
	"github.com/ashlar-dev/storage/resourcepb"
	"github.com/ashlar-dev/storage/typed"
)

// Reader is what the tables can be read with: a [View], a [Tx], or what [Tx.UncheckedReader] returns. It is good until the function that got it
// returns, and for one goroutine.
type Reader interface{ reading() *reading }

// View is the store at one moment, for the function that [Store.View] or [Store.ViewAndWatch] calls with it.
type View struct{ r *reading }

func (v *View) reading() *reading { return v.r }

// ViewOption is an option of [Store.View].
type ViewOption func(*viewOptions)

type viewOptions struct{ linearizable bool }

// Linearizable has a View show everything that was acknowledged, to anybody, before the call of View. It costs about one round trip to the
// database, which callers that wait at the same time share. Where the watches of the backend are no [storage.Bookmarker], View then
// returns [storage.ErrInvalid].
func Linearizable(o *viewOptions) { o.linearizable = true }

// View calls fn with the store as it is in memory: the state after some commit, and over it all that was written through this Store before.
// It is never a part of a commit, and does not change while fn runs, however long. It may lag behind what others have written, by as much
// as the watch of the backend does, and may then show an own write before what another program has written to another object just before
// that. With [Linearizable] it is the state after one commit, behind which all are that were acknowledged before the call. (DynamoDB has
// no order of commits over several objects: there each object by itself is in a state that it had.)
//
// What fn reads is shared with other readers and must not be changed. In builds for the race detector, View panics if it was.
//
// It returns the error of fn; that of the context, or [storage.ErrClosed], before fn was called.
func (s *Store) View(ctx context.Context, fn func(*View) error, opts ...ViewOption) error {
	var o viewOptions
	for _, opt := range opts {
		opt(&o)
	}
	if err := s.checkOpen(ctx); err != nil {
		return err
	}
	r := &reading{store: s}
	if o.linearizable {
		if err := s.copy.Barrier(ctx); err != nil {
			return err
		}
		r.rows = s.copy.Cut()
	} else {
		r.rows = s.copy.Borrow()
		defer r.rows.Return()
	}
	return r.callView(fn)
}

// reading is a state of the store, as somebody reads it.
type reading struct {
	store        *Store
	rows         *replica.View[*entry]
	tx           *accessSet // whose changes are part of the state; nil for none
	recordsReads bool       // reads are recorded in tx
	hasEnded     bool       // rows is the replica's again
	seenEntries  []*entry   // entries returned to the program, in builds with the race detector
}

// callView calls a function with a View.
func (r *reading) callView(fn func(*View) error) error {
	defer func() { r.hasEnded = true }()
	err := fn(&View{r})
	r.assertUnchanged()
	return err
}

// checkOpen refuses what a program has kept.
func (r *reading) checkOpen() error {
	if r.hasEnded {
		return fmt.Errorf("%w: the View is over: it is good until the function that got it returns", storage.ErrInvalid)
	}
	return r.tx.checkOpen()
}

// note records an entry that is about to be returned to the program, to detect changes to it.
func (r *reading) note(e *entry) {
	e.assertUnchanged()
	switch {
	case !checksDigests:
	case r.tx != nil: // also for an UncheckedReader
		r.tx.seenEntries = append(r.tx.seenEntries, e)
	default:
		r.seenEntries = append(r.seenEntries, e)
	}
}

// assertUnchanged panics if the program has changed an object that it has read or put, in builds with the race detector.
func (r *reading) assertUnchanged() {
	for _, e := range r.seenEntries {
		e.assertUnchanged()
	}
	if r.tx != nil {
		r.tx.assertUnchanged()
	}
}

// row returns the row of a key, nil for none.
func (r *reading) row(k key.Key) *entry {
	row := r.rows.Get(k)
	if row == nil {
		return nil
	}
	return row.Value
}

// all returns the rows of a table, without the changes of a transaction.
func (r *reading) all(t *table) iter.Seq[*entry] {
	return func(yield func(*entry) bool) {
		for row := range r.rows.All(t.name()) {
			if !yield(row.Value) {
				return
			}
		}
	}
}

// get returns what is stored under an id, nil for nothing.
func (r *reading) get(t *table, id *resourcepb.ID) (*entry, error) {
	if err := errors.Join(t.checkID(id), r.store.checkTable(t), r.checkOpen()); err != nil {
		return nil, err
	}
	k := key.Of(id)
	e := r.row(k)
	if r.tx != nil {
		if r.recordsReads {
			r.tx.noteRead(k, t, e)
		}
		if c := r.tx.changeOf(k); c != nil {
			e = c.result
		}
	}
	if e == nil || id.GetUid() != "" && id.GetUid() != e.id.GetUid() {
		return nil, nil
	}
	r.note(e)
	return e, nil
}

// list returns what is meant by all of the queries.
func (r *reading) list(t *table, queries []Query) ([]*entry, error) {
	if err := errors.Join(r.store.checkTable(t), r.checkOpen()); err != nil {
		return nil, err
	}
	q, err := and(queries).resolve(t)
	if err != nil {
		return nil, err
	}
	found := r.scan(t, q)
	if r.tx != nil {
		if r.recordsReads {
			r.tx.noteList(t, found)
		}
		found = r.tx.merge(t, q, found)
	}
	for _, e := range found {
		r.note(e)
	}
	return found, nil
}

// scan returns the rows that a query means, in the order of the query.
func (r *reading) scan(t *table, q query) (found []*entry) {
	spans, c := q.spans(nil)
	if c == costAll {
		f := key.Filter{Group: t.typ.GetGroup(), Kind: t.typ.GetKind(), Partition: storage.Wildcard, Namespace: storage.Wildcard}
		q.restrict(&f)
		for row := range r.rows.Select(f) {
			if e := row.Value; e.object != nil && q.match(e) {
				found = append(found, e)
			}
		}
		return found
	}
	for _, in := range spans {
		for row := range r.rows.Between(in.from, in.to) {
			if q.match(row.Value) {
				found = append(found, row.Value)
			}
		}
	}
	if len(spans) != 1 || !spans[0].single() {
		found = sortEntries(q, found)
	}
	return found
}

// Get returns an object. If there is none, or one with another uid than that of id, the error is [storage.ErrNotFound]. An object whose
// payload is not the table's is a [*typed.PayloadError]. The object is shared: it must not be changed.
func (t *Table[T]) Get(r Reader, id *resourcepb.ID) (*typed.Object[T], error) {
	e, err := r.reading().get(t.table, id)
	switch {
	case err != nil:
		return nil, err
	case e == nil:
		return nil, fmt.Errorf("%s: %w", idString(id), storage.ErrNotFound)
	case e.err != nil:
		return nil, e.err
	}
	return e.object.(*typed.Object[T]), nil
}

// List returns the objects that all of the queries mean, all objects of the table if there are no queries. They are shared, and must not
// be changed.
//
// They come in the order of their keys. If the query looks at a range of an index ([Index.From], [Index.To], [Index.Between], or an [And]
// that has one of these and no single value of an index), they come in the order of their lowest values in the range, and then of keys.
//
// A query by an index that the table does not have is [storage.ErrInvalid]. Objects whose payload is not the table's are left out: see
// [Table.DecodeErrors].
func (t *Table[T]) List(r Reader, queries ...Query) ([]*typed.Object[T], error) {
	found, err := r.reading().list(t.table, queries)
	if err != nil || len(found) == 0 {
		return nil, err
	}
	objects := make([]*typed.Object[T], len(found))
	for i, e := range found {
		objects[i] = e.object.(*typed.Object[T])
	}
	return objects, nil
}

// DecodeErrors returns an error for each resource of the table's type that is no object of the table, mostly a [*typed.PayloadError]; one
// alone, [storage.ErrInvalid], if r is over.
func (t *Table[T]) DecodeErrors(r Reader) (problems []error) {
	if err := r.reading().checkOpen(); err != nil {
		return []error{err}
	}
	for e := range r.reading().all(t.table) {
		if e.err != nil {
			problems = append(problems, e.err)
		}
	}
	return problems
}
