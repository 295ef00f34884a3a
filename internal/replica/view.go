package replica

import (
	"bytes"
	"iter"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/ashlar-dev/storage"
	"github.com/ashlar-dev/storage/driver/key"
)

// View is the copy at one moment. It is safe for concurrent use.
//
// A View with its own trees makes every later change copy the nodes on its path. So a borrowed View has no trees at first: it reads the current
// rows, and records the old state of rows that change.
type View[V any] struct {
	views     *views[V]
	snapshot  atomic.Pointer[trees[V]]
	listCount int64 // value of views at its creation

	// The replica's lock guards the following fields.
	logEnd       int64       // log position; all changes that the View lacks are behind it
	users        int         // number of borrowers
	reads        int         // number of lookups
	changedSince []oldRow[V] // rows that have changed since its creation
}

// oldRow is the row of a key at the moment of a View; nil for none.
type oldRow[V any] struct {
	key key.Key
	row *Row[V]
}

// A View gets its own trees after so many changed keys, or lookups.
const (
	maxChangedKeys   = 32
	maxBorrowedReads = 64
)

// views creates the Views of the rows.
type views[V any] struct {
	mu            *sync.Mutex // the replica's
	rows          *rows[V]
	log           *changeLog[V]
	current       *View[V]   // of the current state; nil if it has changed since
	borrowedViews []*View[V] // borrowed Views without own trees
	listCount     int64      // number of relists
}

func (s *views[V]) newView() *View[V] {
	return &View[V]{views: s, logEnd: s.log.end, listCount: s.listCount}
}

// borrow returns a View of the current state, which need not have own trees. The caller holds the lock.
func (s *views[V]) borrow() *View[V] {
	if s.current == nil {
		s.current = s.newView()
		s.borrowedViews = append(s.borrowedViews, s.current)
	}
	s.current.users++
	return s.current
}

// viewWithTrees returns a View of the current state with own trees. The caller holds the lock.
func (s *views[V]) viewWithTrees() *View[V] {
	if s.current == nil {
		s.current = s.newView()
	}
	s.current.copyTrees()
	return s.current
}

// untrack stops recording changes for a View. The caller holds the lock.
func (s *views[V]) untrack(v *View[V]) {
	if i := slices.Index(s.borrowedViews, v); i >= 0 {
		s.borrowedViews = slices.Delete(s.borrowedViews, i, i+1)
	}
}

// beforeChange records the row of a key for the borrowed Views, before it changes. The caller holds the lock.
func (s *views[V]) beforeChange(k key.Key) {
	s.current = nil
	if len(s.borrowedViews) == 0 {
		return
	}
	row := s.rows.get(k)
	for i := len(s.borrowedViews) - 1; i >= 0; i-- {
		switch v := s.borrowedViews[i]; {
		case v.changedIndex(k) >= 0:
		case len(v.changedSince) == maxChangedKeys:
			v.copyTrees()
		default:
			v.changedSince = append(v.changedSince, oldRow[V]{k, row})
		}
	}
}

// advance moves the current View to the end of the log: it includes the local writes, so the appended changes are not new to it. The caller holds
// the lock.
func (s *views[V]) advance() {
	if s.current != nil {
		s.current.logEnd = s.log.end
	}
}

// Return ends the use of a borrowed View.
func (v *View[V]) Return() {
	v.views.mu.Lock()
	defer v.views.mu.Unlock()
	if v.users--; v.users == 0 && v.snapshot.Load() == nil {
		v.views.untrack(v)
		if v.views.current == v {
			v.views.current = nil
		}
	}
}

// copyTrees gives the View its own trees and returns them. The caller holds the lock.
func (v *View[V]) copyTrees() *trees[V] {
	if snapshot := v.snapshot.Load(); snapshot != nil {
		return snapshot
	}
	snapshot := v.views.rows.trees.copy()
	for _, old := range v.changedSince {
		snapshot.set(old.key, old.row, v.views.rows.index)
	}
	v.changedSince = nil
	v.snapshot.Store(snapshot)
	v.views.untrack(v)
	return snapshot
}

// trees returns the trees of the View.
func (v *View[V]) trees() *trees[V] {
	if snapshot := v.snapshot.Load(); snapshot != nil {
		return snapshot
	}
	v.views.mu.Lock()
	defer v.views.mu.Unlock()
	return v.copyTrees()
}

// changedIndex returns the index of a key in changedSince, -1 for none. The caller holds the lock.
func (v *View[V]) changedIndex(k key.Key) int {
	return slices.IndexFunc(v.changedSince, func(old oldRow[V]) bool { return old.key == k })
}

// Get returns the row of a key, nil for none.
func (v *View[V]) Get(k key.Key) *Row[V] {
	if snapshot := v.snapshot.Load(); snapshot != nil {
		return snapshot.get(k)
	}
	v.views.mu.Lock()
	defer v.views.mu.Unlock()
	if v.reads++; v.reads > maxBorrowedReads {
		v.copyTrees()
	}
	if snapshot := v.snapshot.Load(); snapshot != nil { // set just now, or by a change while this call waited for the lock
		return snapshot.get(k)
	}
	if i := v.changedIndex(k); i >= 0 {
		return v.changedSince[i].row
	}
	return v.views.rows.get(k)
}

// All returns the rows of a type in key order.
func (v *View[V]) All(t storage.UnversionedType) iter.Seq[*Row[V]] {
	return v.Select(key.Filter{Group: t.Group, Kind: t.Kind, Partition: storage.Wildcard, Namespace: storage.Wildcard})
}

// Select returns the rows that a filter matches, in key order.
func (v *View[V]) Select(filter key.Filter) iter.Seq[*Row[V]] {
	if prefix, exact := filter.Prefix(); exact {
		return v.prefixRows(prefix)
	}
	return func(yield func(*Row[V]) bool) {
		rows := v.trees().rows
		from, more := filter.Seek(nil)
		for more {
			more = false
			mismatches := 0
			rows.Ascend(&Row[V]{Key: seekKey(from)}, func(row *Row[V]) bool {
				if filter.Match(&row.Key) {
					mismatches = 0
					return yield(row)
				}
				if mismatches++; mismatches < seekAfter {
					return true
				}
				from, more = filter.Seek(append(row.Key.Bytes(), 0))
				return false
			})
		}
	}
}

// seekAfter is the number of consecutive mismatches before a selection seeks. A seek costs about as much as reading so many rows.
const seekAfter = 8

// prefixRows returns the rows with a key prefix, which are neighbours. It searches for the row behind them once instead of comparing each key.
func (v *View[V]) prefixRows(prefix []byte) iter.Seq[*Row[V]] {
	return func(yield func(*Row[V]) bool) {
		rows := v.trees().rows
		var behind *Row[V]
		if end := key.PrefixEnd(prefix); end != nil {
			rows.Ascend(&Row[V]{Key: seekKey(end)}, func(row *Row[V]) bool {
				behind = row
				return false
			})
		}
		rows.Ascend(&Row[V]{Key: seekKey(prefix)}, func(row *Row[V]) bool { return row != behind && yield(row) })
	}
}

// seekKey returns the lowest key whose bytes are at or behind b.
func seekKey(b []byte) (k key.Key) {
	parts := bytes.SplitN(b, []byte{0}, 5)
	for i, to := range []*string{&k.Group, &k.Kind, &k.Partition, &k.Namespace, &k.Name}[:len(parts)] {
		*to = string(parts[i])
	}
	return k
}

// Between returns the rows with an index key from from (inclusive) to to (exclusive), ordered by index key and then by key. A row is returned once for
// each such index key.
func (v *View[V]) Between(from, to string) iter.Seq[*Row[V]] {
	return func(yield func(*Row[V]) bool) {
		v.trees().index.Ascend(indexedRow[V]{from, &Row[V]{}}, func(x indexedRow[V]) bool { return x.at < to && yield(x.row) })
	}
}
