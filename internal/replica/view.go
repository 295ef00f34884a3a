package replica

import (
	"bytes"
	"context"
	"iter"

	"github.com/ashlar-dev/storage"
	"github.com/ashlar-dev/storage/driver/key"
)

// View is the copy at one moment. It is good for any number of goroutines.
type View[V any] struct {
	trees[V]
	at    int64 // a place in the log behind which are all changes that it does not show
	lists int64 // how often the store had been listed anew
}

// Cut returns the copy as the watch has brought it: the state after some commit. Own writes that the watch has not brought are not part of
// it, since what others have written between is not either.
func (r *Replica[V]) Cut() *View[V] {
	r.mu.Lock()
	defer r.mu.Unlock()
	if len(r.own) == 0 {
		return r.viewed()
	}
	cut := &View[V]{trees: r.trees.copy(), at: r.log.end, lists: r.lists}
	for k, o := range r.own {
		cut.set(k, o.base, r.opts.Index)
	}
	return cut
}

// Settled waits until the watch has brought the own writes, acknowledged before the call, to the keys that a function names.
func (r *Replica[V]) Settled(ctx context.Context, of func(key.Key) bool) error {
	r.mu.Lock()
	until := r.laid
	for {
		open := false
		for k, o := range r.own {
			if o.oldest() <= until && of(k) {
				open = true
				break
			}
		}
		switch {
		case !open:
			r.mu.Unlock()
			return nil
		case r.ended != nil:
			defer r.mu.Unlock()
			return r.ended
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
	return r.viewed()
}

func (r *Replica[V]) viewed() *View[V] {
	if r.view == nil {
		r.view = &View[V]{trees: r.trees.copy(), at: r.log.end, lists: r.lists}
	}
	return r.view
}

// Get returns the row of a key, nil for none.
func (v *View[V]) Get(k key.Key) *Row[V] {
	row, _ := v.rows.Get(&Row[V]{Key: k})
	return row
}

// All returns the rows of a type in key order.
func (v *View[V]) All(t storage.UnversionedType) iter.Seq[*Row[V]] {
	return func(yield func(*Row[V]) bool) {
		v.rows.Ascend(&Row[V]{Key: key.Key{Group: t.Group, Kind: t.Kind}}, func(row *Row[V]) bool {
			return row.Key.Group == t.Group && row.Key.Kind == t.Kind && yield(row)
		})
	}
}

// Select returns the rows that a filter matches, in key order.
func (v *View[V]) Select(filter key.Filter) iter.Seq[*Row[V]] {
	return func(yield func(*Row[V]) bool) {
		from, more := filter.Seek(nil)
		for more {
			more = false
			passed := 0
			v.rows.Ascend(&Row[V]{Key: lowest(from)}, func(row *Row[V]) bool {
				if filter.Match(&row.Key) {
					passed = 0
					return yield(row)
				}
				if passed++; passed < stride {
					return true
				}
				from, more = filter.Seek(append(row.Key.Bytes(), 0))
				return false
			})
		}
	}
}

// stride is how many rows a selection looks at in vain before it seeks: a seek costs about as much.
const stride = 8

// lowest returns the lowest key whose bytes are not before these.
func lowest(b []byte) (k key.Key) {
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
		v.index.Ascend(indexed[V]{from, &Row[V]{}}, func(x indexed[V]) bool { return x.at < to && yield(x.row) })
	}
}
