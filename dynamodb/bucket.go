package dynamodb

import (
	"context"
	"errors"

	"github.com/ashlar-dev/storage"
	"github.com/ashlar-dev/storage/driver/key"
)

// If few items match, an answer of the size of a page would contain almost none. Each answer that does not fill the page is
// followed by a larger one, up to maxLimit items.
const (
	growth   = 4
	maxLimit = 1000
)

// bucketScan reads one bucket of a type in order, answer by answer.
type bucketScan struct {
	reader      *reader
	filter      key.Filter
	consistency storage.ReadConsistency
	bucket      int
	limit       int // of the next answer, 0 for DynamoDB's maximum

	prefix, begins []byte // of the keys that match, and of their sort keys
	exact          bool   // all keys with the prefix match

	start item   // of the next answer; nil for the first one, and after the last
	from  string // the key bytes of start
	atEnd bool   // the last answer was read
	heads []*headItem
}

// prepare completes a scan whose first fields are set. after is the key before its first key, or nil.
func (s *bucketScan) prepare(after *key.Key) {
	s.prefix, s.exact = s.filter.Prefix()
	s.begins = sortKey(s.filter.Group, s.filter.Kind, string(s.prefix))
	if after != nil {
		s.startAfter(string(after.Bytes()))
	}
}

// startAfter continues after a key, which need not exist in the bucket.
func (s *bucketScan) startAfter(keyBytes string) {
	f := &s.filter
	s.start, s.from = keys(s.reader.table.typePK(f.Group, f.Kind, s.bucket), sortKey(f.Group, f.Kind, keyBytes)), keyBytes
}

// fill reads the next answer with heads, unless the bucket has ended.
func (s *bucketScan) fill(ctx context.Context) error {
	t, marks := s.reader.table, s.reader.marks
	for len(s.heads) == 0 && !s.atEnd {
		if s.start != nil && !s.exact {
			target, ok := s.filter.Seek(append([]byte(s.from), 0))
			if !ok {
				s.atEnd = true
				return nil
			}
			// DynamoDB begins after a key, which need not exist. No key between it and the target matches.
			if before := target[:len(target)-1]; string(before) > s.from {
				s.startAfter(string(before))
			}
		}
		strong := s.consistency == storage.StrongConsistency || marks.distrust()
		heads, next, upTo, err := s.answer(ctx, strong)
		if err != nil {
			return err
		}
		within := func(name string) bool { return t.bucketOf(sortKey(s.filter.Group, s.filter.Kind, name)) == s.bucket }
		if !strong && (marks.anyStale(heads) || marks.missing(string(s.prefix), s.from, upTo, heads, within)) {
			if heads, next, upTo, err = s.answer(ctx, true); err != nil {
				return err
			}
		}
		for _, h := range heads {
			if h.damage == nil {
				marks.note(h.key, h)
			}
		}
		s.limit = min(growth*s.limit, maxLimit)
		s.heads, s.start, s.from, s.atEnd = heads, next, upTo, next == nil
	}
	return nil
}

// answer reads the heads of one answer. upTo is the last key before the next answer, or "" if this is the last.
func (s *bucketScan) answer(ctx context.Context, strong bool) (heads []*headItem, next item, upTo string, err error) {
	t, f := s.reader.table, &s.filter
	items, next, err := t.query(ctx, strong, t.typePK(f.Group, f.Kind, s.bucket), s.begins, s.start, s.limit)
	if err != nil {
		return nil, nil, "", err
	}
	heads = make([]*headItem, 0, len(items))
	for _, it := range items {
		h, err := t.head(it)
		var damaged *storage.DamagedError
		switch {
		case err == nil:
			heads = append(heads, h)
		case errors.As(err, &damaged):
			heads = append(heads, &headItem{key: key.Of(damaged.ID), live: true, damage: err})
		default:
			return nil, nil, "", err
		}
	}
	if next != nil {
		k, err := t.keyOf(next)
		if err != nil {
			return nil, nil, "", err
		}
		upTo = string(k.Bytes())
	}
	return heads, next, upTo, nil
}
