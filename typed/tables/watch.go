package tables

import (
	"context"
	"fmt"

	"github.com/ashlar-dev/storage"
	"github.com/ashlar-dev/storage/internal/replica"
	"github.com/ashlar-dev/storage/typed"
)

// Filter selects the changes that a [Watch] returns. [Table.Where] creates one.
type Filter struct {
	table   *table
	queries []Query
	actions Action // 0 for all
}

// Action is a kind of change.
type Action int

// The actions.
const (
	Created Action = 1 << iota
	Updated
	Deleted
)

// On returns the filter for changes of some actions. An update that makes an object start or stop matching is an update.
func (f Filter) On(actions ...Action) Filter {
	f.actions = 0
	for _, action := range actions {
		f.actions |= action
	}
	return f
}

// Where returns a filter for the changes of objects that all queries select before or after the change. So a watch also returns the
// changes that make an object start or stop matching. Without queries it selects all changes of the table.
func (t *Table[T]) Where(queries ...Query) Filter { return Filter{table: t.table, queries: queries} }

// Watch is a stream of the changes of a store. Next must not be called concurrently; Close may be called from any goroutine.
type Watch struct {
	filters       map[*table][]watchFilter
	changes       changes
	commit        []Event // events of the current commit
	returnedCount int
	lastRead      reading // the last returned objects
}

// watchFilter is a filter of one table.
type watchFilter struct {
	query   query
	actions Action // 0 for all
}

// changes is the source of a watch. Next returns the changes of a commit, which are valid until the next call. Err returns its error, or the context's.
type changes interface {
	Next(ctx context.Context) ([]replica.Change[*entry], error)
	Err(ctx context.Context) error
	Close()
}

// Event is a change of one object. [Table.Event] returns its content.
type Event struct {
	// More reports that the next event belongs to the same commit. A reader that has applied the events up to one without More has a state that
	// existed in the store.
	More bool
	// Cursor is a position at or behind the change, for [Store.WatchFrom] and [storage.Resumer]; "" if the backend cannot resume.
	Cursor string

	old, now *entry
}

// Change is the content of an [Event] for an object of one table.
type Change[T any] struct {
	// Old is the object before the change; nil if it did not exist.
	Old *typed.Object[T]
	// New is the object after the change; nil for a deletion.
	New *typed.Object[T]
}

// Event returns the change of an object of the table, and reports whether the event is about such an object. The objects are shared and must not be
// changed. An object whose payload is not the table's is treated as absent.
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

// ViewAndWatch calls fn with a View, as [Store.View] does, and returns a watch of every change after that state, without gaps and without
// repetitions. No lock is held while fn runs. fn may be nil.
//
// The watch returns the changes that at least one filter selects, or all changes without filters. If fn returns an error, ViewAndWatch returns it and
// no watch.
//
// A watch has no queue of its own: it reads the bounded log of changes in memory. If it falls behind the log it ends with [storage.ErrWatchClosed];
// call ViewAndWatch again. It survives outages of the database: if the copy had to be listed again, the watch returns the differences.
func (s *Store) ViewAndWatch(ctx context.Context, fn func(*View) error, filters ...Filter) (*Watch, error) {
	if err := s.checkOpen(ctx); err != nil {
		return nil, err
	}
	w, err := s.newWatch(filters)
	if err != nil {
		return nil, err
	}
	r := &reading{store: s}
	r.rows, w.changes = s.copy.BorrowAndFollow()
	defer r.rows.Return()
	if fn != nil {
		if err := r.callView(fn); err != nil {
			w.Close()
			return nil, err
		}
	}
	return w, nil
}

// newWatch returns a watch with filters and without a source.
func (s *Store) newWatch(filters []Filter) (*Watch, error) {
	w := &Watch{filters: map[*table][]watchFilter{}}
	for _, f := range filters {
		if f.table == nil {
			return nil, fmt.Errorf("%w: the filter is the zero Filter", storage.ErrInvalid)
		}
		if err := s.checkTable(f.table); err != nil {
			return nil, err
		}
		q, err := and(f.queries).resolve(f.table)
		if err != nil {
			return nil, err
		}
		w.filters[f.table] = append(w.filters[f.table], watchFilter{q, f.actions})
	}
	return w, nil
}

// Next blocks until the next event and returns it. If ctx has ended, it returns the context's error and consumes nothing, even if an event is ready.
// [storage.ErrWatchClosed] is final, and discards events that were not returned.
func (w *Watch) Next(ctx context.Context) (Event, error) {
	w.lastRead.assertUnchanged()
	w.lastRead.seenEntries = w.lastRead.seenEntries[:0]
	if err := w.changes.Err(ctx); err != nil {
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
	changes, err := w.changes.Next(ctx)
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

// visible returns the entry of a row, nil for a guard and for a resource that cannot be decoded.
func visible(row *replica.Row[*entry]) *entry {
	if row == nil || row.Value.object == nil {
		return nil
	}
	return row.Value
}

// Close ends the watch. Closing twice is allowed.
func (w *Watch) Close() { w.changes.Close() }

// matches reports whether the watch returns an event.
func (w *Watch) matches(t *table, ev *Event) bool {
	if len(w.filters) == 0 {
		return true
	}
	for _, f := range w.filters[t] {
		if f.actions != 0 && f.actions&ev.action() == 0 {
			continue
		}
		if ev.old != nil && f.query.match(ev.old) || ev.now != nil && f.query.match(ev.now) {
			return true
		}
	}
	return false
}

// action returns the kind of the change.
func (ev *Event) action() Action {
	switch {
	case ev.old == nil:
		return Created
	case ev.now == nil:
		return Deleted
	}
	return Updated
}
