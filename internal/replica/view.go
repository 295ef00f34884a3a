package replica

import (
	"bytes"
	"context"
	"iter"
	"slices"
	"sync/atomic"

	"github.com/ashlar-dev/storage"
	"github.com/ashlar-dev/storage/driver/key"
)

// View is the copy at one moment. It is good for any number of goroutines.
//
// Trees of its own would make every change that follows copy the nodes on its way. So a View that is borrowed has none at first: it is read
// where the copy is, and notes the rows that change in the meantime as they were.
type View[V any] struct {
	r         *Replica[V]
	snapshot  atomic.Pointer[trees[V]]
	listCount int64 // how often the store had been listed anew

	// The replica's lock guards the rest.
	logEnd       int64       // a place in the log behind which are all changes that it does not show
	users        int         // who have borrowed it
	reads        int         // what was looked up so far
	changedSince []oldRow[V] // since the moment
}

// oldRow is a key with its row at the moment of a View; nil for nothing.
type oldRow[V any] struct {
	key key.Key
	row *Row[V]
}

// A View gets trees of its own when so many rows have changed, or when so many were looked up.
const (
	maxChangedKeys   = 32
	maxBorrowedReads = 64
)

// Cut returns the copy as the watch has brought it: the state after some commit. Own writes that the watch has not brought are not part of
// it, since what others have written between is not either.
func (r *Replica[V]) Cut() *View[V] {
	r.mu.Lock()
	defer r.mu.Unlock()
	if len(r.localWrites) == 0 {
		return r.viewLocked()
	}
	cut := r.newView()
	all := r.trees.copy()
	for k, o := range r.localWrites {
		all.set(k, o.base, r.opts.Index)
	}
	cut.snapshot.Store(all)
	return cut
}

// AwaitLocalWrites waits until the watch has brought the own writes, acknowledged before the call, to the keys that a function names.
func (r *Replica[V]) AwaitLocalWrites(ctx context.Context, of func(key.Key) bool) error {
	r.mu.Lock()
	until := r.writeCount
	for {
		open := false
		for k, o := range r.localWrites {
			if o.oldestNumber() <= until && of(k) {
				open = true
				break
			}
		}
		switch {
		case !open:
			r.mu.Unlock()
			return nil
		case r.endErr != nil:
			defer r.mu.Unlock()
			return r.endErr
		}
		wake := r.wait()
		r.mu.Unlock()
		select {
		case <-wake:
		case <-ctx.Done():
			return ctx.Err()
		}
		r.mu.Lock()
	}
}

// View returns the copy as it is: a cut, and all own writes over it.
func (r *Replica[V]) View() *View[V] {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.viewLocked()
}

// Borrow returns what View does. The caller gives it back soon: it is cheaper as long as it is for a few rows and not for long.
func (r *Replica[V]) Borrow() *View[V] {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.borrow()
}

// borrow is Borrow for a caller that holds the lock.
func (r *Replica[V]) borrow() *View[V] {
	if r.view == nil {
		r.view = r.newView()
		r.borrowedViews = append(r.borrowedViews, r.view)
	}
	r.view.users++
	return r.view
}

// Return gives back what was borrowed, which must not be read any more.
func (v *View[V]) Return() {
	v.r.mu.Lock()
	defer v.r.mu.Unlock()
	if v.users--; v.users == 0 && v.snapshot.Load() == nil {
		v.r.untrack(v)
		if v.r.view == v {
			v.r.view = nil
		}
	}
}

// untrack has changes not be noted for a View any more. The caller holds the lock.
func (r *Replica[V]) untrack(v *View[V]) {
	if i := slices.Index(r.borrowedViews, v); i >= 0 {
		r.borrowedViews = slices.Delete(r.borrowedViews, i, i+1)
	}
}

// viewLocked is View for a caller that holds the lock.
func (r *Replica[V]) viewLocked() *View[V] {
	if r.view == nil {
		r.view = r.newView()
	}
	r.view.copyTrees()
	return r.view
}

func (r *Replica[V]) newView() *View[V] {
	return &View[V]{r: r, logEnd: r.log.end, listCount: r.listCount}
}

// copyTrees gives the View trees of its own. The caller holds the lock.
func (v *View[V]) copyTrees() *trees[V] {
	if own := v.snapshot.Load(); own != nil {
		return own
	}
	own := v.r.trees.copy()
	for _, was := range v.changedSince {
		own.set(was.key, was.row, v.r.opts.Index)
	}
	v.changedSince = nil
	v.snapshot.Store(own)
	v.r.untrack(v)
	return own
}

// trees returns the trees of the View.
func (v *View[V]) trees() *trees[V] {
	if own := v.snapshot.Load(); own != nil {
		return own
	}
	v.r.mu.Lock()
	defer v.r.mu.Unlock()
	return v.copyTrees()
}

// recordOldRow notes how a row was before it changes. The caller holds the lock.
func (r *Replica[V]) recordOldRow(k key.Key, row *Row[V]) {
	for i := len(r.borrowedViews) - 1; i >= 0; i-- {
		switch v := r.borrowedViews[i]; {
		case v.changedIndex(k) >= 0:
		case len(v.changedSince) == maxChangedKeys:
			v.copyTrees()
		default:
			v.changedSince = append(v.changedSince, oldRow[V]{k, row})
		}
	}
}

// changedIndex returns where changed has a key, -1 for nowhere. The caller holds the lock.
func (v *View[V]) changedIndex(k key.Key) int {
	for i := range v.changedSince {
		if v.changedSince[i].key == k {
			return i
		}
	}
	return -1
}

// Get returns the row of a key, nil for none.
func (v *View[V]) Get(k key.Key) *Row[V] {
	if own := v.snapshot.Load(); own != nil {
		return own.get(k)
	}
	v.r.mu.Lock()
	if v.reads++; v.reads > maxBorrowedReads {
		own := v.copyTrees()
		v.r.mu.Unlock()
		return own.get(k)
	}
	defer v.r.mu.Unlock()
	if i := v.changedIndex(k); i >= 0 {
		return v.changedSince[i].row
	}
	return v.r.at(k)
}

// All returns the rows of a type in key order.
func (v *View[V]) All(t storage.UnversionedType) iter.Seq[*Row[V]] {
	return v.Select(key.Filter{Group: t.Group, Kind: t.Kind, Partition: storage.Wildcard, Namespace: storage.Wildcard})
}

// Select returns the rows that a filter matches, in key order.
func (v *View[V]) Select(filter key.Filter) iter.Seq[*Row[V]] {
	if begins, exact := filter.Prefix(); exact {
		return v.prefixRows(begins)
	}
	return func(yield func(*Row[V]) bool) {
		rows := v.trees().rows
		from, more := filter.Seek(nil)
		for more {
			more = false
			passed := 0
			rows.Ascend(&Row[V]{Key: seekKey(from)}, func(row *Row[V]) bool {
				if filter.Match(&row.Key) {
					passed = 0
					return yield(row)
				}
				if passed++; passed < seekAfter {
					return true
				}
				from, more = filter.Seek(append(row.Key.Bytes(), 0))
				return false
			})
		}
	}
}

// seekAfter is how many rows a selection looks at in vain before it seeks: a seek costs about as much.
const seekAfter = 8

// prefixRows returns the rows whose keys begin alike, which are neighbours. It looks for the one behind them once, and at none of their keys.
func (v *View[V]) prefixRows(begins []byte) iter.Seq[*Row[V]] {
	return func(yield func(*Row[V]) bool) {
		rows := v.trees().rows
		var behind *Row[V]
		if end := key.PrefixEnd(begins); end != nil {
			rows.Ascend(&Row[V]{Key: seekKey(end)}, func(row *Row[V]) bool {
				behind = row
				return false
			})
		}
		rows.Ascend(&Row[V]{Key: seekKey(begins)}, func(row *Row[V]) bool { return row != behind && yield(row) })
	}
}

// seekKey returns the seekKey key whose bytes are not before these.
func seekKey(b []byte) (k key.Key) {
	parts := bytes.SplitN(b, []byte{0}, 5)
	for i, to := range []*string{&k.Group, &k.Kind, &k.Partition, &k.Namespace, &k.Name}[:len(parts)] {
		*to = string(parts[i])
	}
	return k
}

// Between returns the rows that have a key in the index of at least from and below to, by these and then by their own keys. A row comes as
// often as it has such a key.
func (v *View[V]) Between(from, to string) iter.Seq[*Row[V]] {
	return func(yield func(*Row[V]) bool) {
		v.trees().index.Ascend(indexedRow[V]{from, &Row[V]{}}, func(x indexedRow[V]) bool { return x.at < to && yield(x.row) })
	}
}
