package inmem

import (
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
	first, fixed := lowest(filter)
	from := &item{key: first}
	if after != nil && after.Compare(first) > 0 {
		from.key = *after
	}
	tree.Ascend(from, func(it *item) bool {
		switch {
		case after != nil && it.key == *after:
			return true
		case filter.Match(&it.key):
			return it.gone() || visit(it)
		default:
			return !beyond(&it.key, &first, fixed)
		}
	})
}

// lowest returns a key that no match lies below, and how many of its parts every match shares. The name is not among them.
func lowest(f *key.Filter) (k key.Key, fixed int) {
	to := []*string{&k.Group, &k.Kind, &k.Partition, &k.Namespace}
	for i, part := range []string{f.Group, f.Kind, f.Partition, f.Namespace} {
		if part == storage.Wildcard {
			return k, i
		}
		*to[i] = part
	}
	k.Name = f.NamePrefix
	return k, len(to)
}

// beyond reports whether k, which is no match, lies after all matches. Without a wildcard what follows the matches is the first
// key whose name does not begin with the prefix; otherwise it is the first that differs in one of the fixed parts.
func beyond(k, first *key.Key, fixed int) bool {
	parts := [][2]string{{k.Group, first.Group}, {k.Kind, first.Kind}, {k.Partition, first.Partition}, {k.Namespace, first.Namespace}}
	for _, p := range parts[:fixed] {
		if p[0] != p[1] {
			return true
		}
	}
	return fixed == len(parts)
}
