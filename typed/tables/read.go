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

// Reader is the argument of all reads of tables: a [View], a [Tx], or the result of [Tx.UncheckedReader]. It is valid until the function that
// received it returns, and must not be used concurrently.
type Reader interface{ reading() *reading }

// View is the store at one moment. [Store.View] and [Store.ViewAndWatch] pass it to a function.
type View struct{ r *reading }

func (v *View) reading() *reading { return v.r }

// ViewOption is an option of [Store.View].
type ViewOption func(*viewOptions)

type viewOptions struct{ linearizable bool }

// Linearizable makes a View include everything that was acknowledged to any program before the call of View. It costs about one round trip to the
// database, which concurrent callers share. View fails with [storage.ErrInvalid] if the backend's watches are not a [storage.Bookmarker].
func Linearizable(o *viewOptions) { o.linearizable = true }

// View calls fn with the state of the store in memory: the state after some commit, overlaid by all earlier writes through this Store. A view never
// contains part of a commit, and does not change while fn runs.
//
// The view may lag behind other programs' writes, by the delay of the backend's watch. So it may include a local write without an earlier write of
// another program to another object. With [Linearizable] the view is the state after one commit, and includes all commits acknowledged before the
// call. (DynamoDB has no order of commits across objects: each object is in a state of its own history.)
//
// Objects that fn reads are shared with other readers, and fn must not change them. View panics on such a change in builds with the race detector.
//
// View returns the error of fn. It returns the context's error or [storage.ErrClosed] without calling fn.
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

// reading is a state of the store for one reader.
type reading struct {
	store        *Store
	rows         *replica.View[*entry]
	tx           *accessSet // the transaction whose changes are part of the state; nil for none
	recordsReads bool       // record reads in tx
	hasEnded     bool       // the reader must not be used any more
	seenEntries  []*entry   // entries returned to the program, in builds with the race detector
}

// callView calls a function with a View.
func (r *reading) callView(fn func(*View) error) error {
	defer func() { r.hasEnded = true }()
	err := fn(&View{r})
	r.assertUnchanged()
	return err
}

// checkOpen returns an error once the function that received the reader has returned.
func (r *reading) checkOpen() error {
	if r.hasEnded {
		return fmt.Errorf("%w: the View has ended: it is valid only inside the function", storage.ErrInvalid)
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

// row returns the entry of a key, nil for none.
func (r *reading) row(k key.Key) *entry {
	row := r.rows.Get(k)
	if row == nil {
		return nil
	}
	return row.Value
}

// all returns the entries of a table, without the changes of a transaction.
func (r *reading) all(t *table) iter.Seq[*entry] {
	return func(yield func(*entry) bool) {
		for row := range r.rows.All(t.name()) {
			if !yield(row.Value) {
				return
			}
		}
	}
}

// get returns the entry of an id, nil for none.
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

// list returns the entries that all queries select.
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

// scan returns the stored entries that a query selects, in the order of the query.
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

// Get returns an object. It fails with [storage.ErrNotFound] if the object does not exist or has another uid than id. It fails with a
// [*typed.PayloadError] if the payload is not the table's. The object is shared and must not be changed.
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

// List returns the objects that all queries select, or all objects of the table without queries. They are shared and must not be changed.
//
// The objects are in key order. If the query scans a range of an index ([Index.From], [Index.To], [Index.Between], or an [And] with one of these and
// without a single index value), they are ordered by their lowest value in the range and then by key.
//
// List fails with [storage.ErrInvalid] for a query with an index that the table does not have. It omits objects whose payload is not the table's;
// see [Table.DecodeErrors].
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

// DecodeErrors returns an error, usually a [*typed.PayloadError], for each resource of the table's type that is not an object of the table. It returns
// only [storage.ErrInvalid] if r has ended.
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
