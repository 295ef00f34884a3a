package replica

import (
	"hash/maphash"
	"slices"

	"github.com/tidwall/btree"
	"google.golang.org/protobuf/proto"

	"github.com/ashlar-dev/storage/driver/key"
	"github.com/ashlar-dev/storage/resourcepb"
)

// Row is a resource with its decoded value. Rows are shared and must not be modified.
type Row[V any] struct {
	Key     key.Key
	Version string
	Value   V
	// Weight is the approximate number of bytes that the row keeps in memory.
	Weight int32

	logUses int32 // number of uses by the log
}

// rowCost is the approximate size of a row without its payload.
const rowCost = 300

// Weight returns the approximate number of bytes that the row of a resource keeps in memory.
func Weight(res *resourcepb.Resource) int32 {
	bytes := rowCost + len(res.GetData().GetValue())
	for name, value := range res.GetMetadata() {
		bytes += len(name) + len(value)
	}
	for _, status := range res.GetStatus() {
		bytes += proto.Size(status)
	}
	return int32(bytes)
}

// same reports whether two states of a key are equal.
func same[V any](a, b *Row[V]) bool {
	return a == b || a != nil && b != nil && a.Version == b.Version
}

// Index orders rows by the bytes of index keys.
type Index[V any] struct {
	// Keys returns the index keys of a row. It must always return the same keys for a row.
	Keys func(*Row[V]) []string
}

// rows holds the current rows: in trees, and by hash for single reads.
type rows[V any] struct {
	trees  *trees[V]
	byHash byHash[V]
	index  *Index[V]         // nil for none
	size   func(*Row[V]) int // of a value; nil to count no bytes
	bytes  int64
}

// get returns the row of a key, nil for none.
func (r *rows[V]) get(k key.Key) *Row[V] {
	if row, known := r.byHash.get(&k); known {
		return row
	}
	return r.trees.get(k)
}

// set replaces the row of a key; a nil row removes it.
func (r *rows[V]) set(k key.Key, row *Row[V]) {
	old := r.trees.set(k, row, r.index)
	r.byHash.set(&k, row)
	if r.size == nil {
		return
	}
	if old != nil {
		r.bytes -= int64(rowCost + r.size(old))
	}
	if row != nil {
		r.bytes += int64(rowCost + r.size(row))
	}
}

// load is set for a new row, which is usually behind all others in key order.
func (r *rows[V]) load(row *Row[V]) {
	if last, exists := r.trees.rows.Max(); exists && !last.Key.Before(&row.Key) {
		r.set(row.Key, row)
		return
	}
	r.trees.rows.Load(row)
	if r.index != nil {
		r.trees.addToIndex(row, r.index.Keys(row))
	}
	r.byHash.set(&row.Key, row)
	if r.size != nil {
		r.bytes += int64(rowCost + r.size(row))
	}
}

// trees holds rows by key and by index key.
type trees[V any] struct {
	rows  *btree.BTreeG[*Row[V]]
	index *btree.BTreeG[indexedRow[V]]
}

// indexedRow is a row under an index key.
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

// copy returns trees of the same rows. They share nodes until either is modified.
func (t *trees[V]) copy() *trees[V] { return &trees[V]{t.rows.Copy(), t.index.Copy()} }

// get returns the row of a key, nil for none.
func (t *trees[V]) get(k key.Key) *Row[V] {
	row, _ := t.rows.Get(&Row[V]{Key: k})
	return row
}

// set replaces the row of a key and returns the old one; a nil row removes it.
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
	t.addToIndex(row, after)
	return old
}

// addToIndex adds a row under its index keys.
func (t *trees[V]) addToIndex(row *Row[V], keys []string) {
	for _, at := range keys {
		t.index.Set(indexedRow[V]{at, row})
	}
}

// byHash finds rows by the hash of their keys. It needs one memory access, where a tree of 100,000 rows needs seventeen at distant
// addresses. It stores no keys, so the garbage collector scans no pointers besides the rows.
type byHash[V any] struct {
	seed         maphash.Seed
	rows         map[uint64]*Row[V]
	hasCollision bool // two keys had the same hash, so the map lacks a row
}

func newByHash[V any]() byHash[V] {
	return byHash[V]{seed: maphash.MakeSeed(), rows: map[uint64]*Row[V]{}}
}

// get returns the row of a key, nil for none. If known is false, the map cannot answer.
func (h *byHash[V]) get(k *key.Key) (row *Row[V], known bool) {
	row = h.rows[h.hash(k)]
	if row == nil || row.Key == *k {
		return row, row != nil || !h.hasCollision
	}
	return nil, !h.hasCollision
}

// set replaces the row of a key; a nil row removes it.
func (h *byHash[V]) set(k *key.Key, row *Row[V]) {
	at := h.hash(k)
	switch other := h.rows[at]; {
	case other != nil && other.Key != *k:
		h.hasCollision = h.hasCollision || row != nil
	case row == nil:
		delete(h.rows, at)
	default:
		h.rows[at] = row
	}
}

func (h *byHash[V]) hash(k *key.Key) uint64 { return maphash.Comparable(h.seed, *k) }
