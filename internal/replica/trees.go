package replica

import (
	"slices"

	"github.com/tidwall/btree"

	"github.com/ashlar-dev/storage/driver/key"
)

// trees hold rows by their keys, and by what an index makes of them.
type trees[V any] struct {
	rows  *btree.BTreeG[*Row[V]]
	index *btree.BTreeG[indexedRow[V]]
}

// indexedRow is a row at one of its keys in the index.
type indexedRow[V any] struct {
	at  string
	row *Row[V]
}

func newTrees[V any]() *trees[V] {
	unlocked := btree.Options{NoLocks: true}
	return &trees[V]{
		rows: btree.NewBTreeGOptions(func(a, b *Row[V]) bool { return a.Key.Before(&b.Key) }, unlocked),
		index: btree.NewBTreeGOptions(func(a, b indexedRow[V]) bool {
			if a.at != b.at {
				return a.at < b.at
			}
			return a.row.Key.Before(&b.row.Key)
		}, unlocked),
	}
}

// copy returns trees of the same rows. Nodes are shared until one of the two is changed.
func (t *trees[V]) copy() *trees[V] { return &trees[V]{t.rows.Copy(), t.index.Copy()} }

// get returns the row of a key, nil for none.
func (t *trees[V]) get(k key.Key) *Row[V] {
	row, _ := t.rows.Get(&Row[V]{Key: k})
	return row
}

// set puts a row in the place of what is there under its key, which it returns; a nil row removes that.
func (t *trees[V]) set(k key.Key, row *Row[V], index *Index[V]) (old *Row[V]) {
	if row != nil {
		old, _ = t.rows.Set(row)
	} else {
		old, _ = t.rows.Delete(&Row[V]{Key: k})
	}
	if index == nil {
		return old
	}
	var before, after []string
	if old != nil {
		before = index.Keys(old)
	}
	if row != nil {
		after = index.Keys(row)
	}
	for _, at := range before {
		if !slices.Contains(after, at) {
			t.index.Delete(indexedRow[V]{at, old})
		}
	}
	for _, at := range after {
		t.index.Set(indexedRow[V]{at, row})
	}
	return old
}
