package inmem

import (
	"bytes"
	"context"

	"github.com/tidwall/btree"

	"github.com/ashlar-dev/storage"
	"github.com/ashlar-dev/storage/driver"
	"github.com/ashlar-dev/storage/driver/key"
	"github.com/ashlar-dev/storage/internal/codec"
)

// Scan implements driver.Driver.
func (s *store) Scan(ctx context.Context, _ storage.ReadConsistency, f *driver.Filter, rows driver.Rows) (position, error) {
	tree, at := s.snapshot()
	var err error
	ascend(tree, f, nil, func(it *item) bool {
		if err = ctx.Err(); err == nil {
			err = rows.AddResource(codec.Clone(it.resource))
		}
		return err == nil
	})
	return at, err
}

// ascend calls visit with every match after the key, or from the first one, in order, until visit returns false.
func ascend(tree *btree.BTreeG[*item], filter *key.Filter, after *key.Key, visit func(*item) bool) {
	from, ok := filter.Seek(nil)
	if !ok {
		return
	}
	first := bound(from)
	if after != nil && after.Compare(first) > 0 {
		first = *after
	}
	walk(tree, filter, first, nil, func(it *item) bool {
		return it.gone() || after != nil && it.key == *after || visit(it)
	})
}

// stride is how many items a walk looks at before it seeks: a seek costs about as much.
const stride = 8

// walk calls visit with every item from a key on, deletions too, until visit returns false or a key is not below to. A filter that is
// not nil leaves out items; of a run of those only the first few are looked at. It returns how many items it has looked at.
func walk(tree *btree.BTreeG[*item], filter *key.Filter, from key.Key, to *key.Key, visit func(*item) bool) (looked int) {
	for again := true; again; {
		again = false
		passed := 0
		tree.Ascend(&item{key: from}, func(it *item) bool {
			looked++
			switch {
			case to != nil && it.key.Compare(*to) >= 0:
				return false
			case filter == nil || filter.Match(&it.key):
				passed = 0
				return visit(it)
			}
			if passed++; passed < stride {
				return true
			}
			var next []byte
			if next, again = filter.Seek(it.key.Bytes()); again {
				from = bound(next)
			}
			return false
		})
	}
	return looked
}

// bound returns the lowest key whose bytes are not before these.
func bound(b []byte) (k key.Key) {
	parts := bytes.SplitN(b, []byte{0}, 5)
	for i, to := range []*string{&k.Group, &k.Kind, &k.Partition, &k.Namespace, &k.Name}[:len(parts)] {
		*to = string(parts[i])
	}
	return k
}
