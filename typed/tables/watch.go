package tables

import (
	"context"
	"fmt"

	"github.com/ashlar-dev/storage"
	"github.com/ashlar-dev/storage/internal/replica"
	"github.com/ashlar-dev/storage/typed"
)

// Filter says which changes a [Watch] shows. [Table.Where] makes one.
type Filter struct {
	table   *table
	queries []Query
}

// Where returns a filter that matches the changes of an object which all of the queries mean, before the change or after it. So a watch
// shows what begins to match and what ceases to. Without queries it matches all changes of the table.
func (t *Table[T]) Where(queries ...Query) Filter { return Filter{t.table, queries} }

// Watch is a stream of the changes of a store. Next is for one goroutine at a time; Close may be called from any.
type Watch struct {
	filters       map[*table][]query
	follower      *replica.Follower[*entry]
	commit        []Event // of which the first ones have been returned
	returnedCount int
	lastRead      reading // notes what was returned last
}

// Event is a change of one object. [Table.Event] says what it was.
type Event struct {
	// More says that the next event belongs to the same commit: a reader who goes on until it is false has a state that existed.
	More bool
	// Cursor is a position at or behind the change, for [storage.Resumer]; "" where the backend cannot resume.
	Cursor string

	old, now *entry
}

// Change is an [Event] of an object of one table.
type Change[T any] struct {
	// Old is the object before the change; nil if there was none.
	Old *typed.Object[T]
	// New is the object after the change; nil if it was deleted.
	New *typed.Object[T]
}

// Event returns what an event says of an object of the table, and whether it is about one. The objects are shared: they must not be
// changed. An object whose payload is not the table's is told as if there was none.
func (t *Table[T]) Event(ev Event) (Change[T], bool) {
	of := ev.now
	if of == nil {
		of = ev.old
	}
	if of == nil || of.table.number != t.number {
		return Change[T]{}, false
	}
	var c Change[T]
	if ev.old != nil {
		c.Old = ev.old.object.(*typed.Object[T])
	}
	if ev.now != nil {
		c.New = ev.now.object.(*typed.Object[T])
	}
	return c, true
}

// ViewAndWatch calls fn with the store as [Store.View] does, and returns a watch of every change after that state: none is missing, and
// none that the view has shown already comes again. No lock is held while fn runs. fn may be nil.
//
// The watch shows the changes that match one filter or more; all of all tables, if there are none. If fn returns an error, there is no
// watch and ViewAndWatch returns the error.
//
// A watch holds no queue of its own: it reads where the copy in memory keeps its newest changes. One that falls so far behind that its
// place is gone ends with [storage.ErrWatchClosed]: call ViewAndWatch again. The loss of the database for a while is not its problem: when
// the copy had to be read anew, the watch shows what has changed in the meantime.
func (s *Store) ViewAndWatch(ctx context.Context, fn func(*View) error, filters ...Filter) (*Watch, error) {
	if err := s.checkOpen(ctx); err != nil {
		return nil, err
	}
	w := &Watch{filters: map[*table][]query{}}
	for _, f := range filters {
		if f.table == nil {
			return nil, fmt.Errorf("%w: the zero Filter", storage.ErrInvalid)
		}
		if err := s.checkTable(f.table); err != nil {
			return nil, err
		}
		q, err := and(f.queries).resolve(f.table)
		if err != nil {
			return nil, err
		}
		w.filters[f.table] = append(w.filters[f.table], q)
	}
	r := &reading{store: s}
	r.rows, w.follower = s.copy.BorrowAndFollow()
	defer r.rows.Return()
	if fn != nil {
		if err := r.callView(fn); err != nil {
			w.Close()
			return nil, err
		}
	}
	return w, nil
}

// Next returns the next event, waiting for one if need be. If ctx is over, its error is returned and nothing is consumed, also where there
// is an event. After [storage.ErrWatchClosed] the watch is over; what it had not returned is dropped.
func (w *Watch) Next(ctx context.Context) (Event, error) {
	w.lastRead.assertUnchanged()
	w.lastRead.seenEntries = w.lastRead.seenEntries[:0]
	if err := w.follower.Err(ctx); err != nil {
		return Event{}, err
	}
	for w.returnedCount == len(w.commit) {
		if err := w.read(ctx); err != nil {
			return Event{}, err
		}
	}
	ev := w.commit[w.returnedCount]
	w.returnedCount++
	for _, e := range []*entry{ev.old, ev.now} {
		if e != nil {
			w.lastRead.note(e)
		}
	}
	return ev, nil
}

// read reads the next commit.
func (w *Watch) read(ctx context.Context) error {
	changes, err := w.follower.Next(ctx)
	if err != nil {
		return err
	}
	w.commit, w.returnedCount = w.commit[:0], 0
	for _, c := range changes {
		ev := Event{Cursor: c.Cursor, old: visible(c.Old), now: visible(c.New)}
		of := ev.now
		if of == nil {
			of = ev.old
		}
		if of != nil && w.matches(of.table, &ev) {
			w.commit = append(w.commit, ev)
		}
	}
	for i := range w.commit {
		w.commit[i].More = i+1 < len(w.commit)
	}
	return nil
}

// visible returns what programs see of a row: nil for what is damaged, or a guard.
func visible(row *replica.Row[*entry]) *entry {
	if row == nil || row.Value.object == nil {
		return nil
	}
	return row.Value
}

// Close ends the watch. Closing twice is fine.
func (w *Watch) Close() { w.follower.Close() }

// matches reports whether an event is to be shown.
func (w *Watch) matches(t *table, ev *Event) bool {
	if len(w.filters) == 0 {
		return true
	}
	for _, q := range w.filters[t] {
		if ev.old != nil && q.match(ev.old) || ev.now != nil && q.match(ev.now) {
			return true
		}
	}
	return false
}
