package dynamodb

import (
	"context"
	"errors"
	"strings"

	"github.com/ashlar-dev/storage"
	"github.com/ashlar-dev/storage/driver"
	"github.com/ashlar-dev/storage/driver/key"
	"github.com/ashlar-dev/storage/dynamodb/internal/streams"
)

// lister reads what a filter matches: whole, page by page, or as the snapshot of a watch.
type lister struct {
	reader   *reader
	registry *registry
	source   *streams.Source

	pageItems int // after which a page ends
}

// Scan implements driver.Driver.
func (l *lister) Scan(ctx context.Context, consistency storage.ReadConsistency, f *driver.Filter, rows driver.Rows) (*streams.Position, error) {
	at, err := l.source.Before(ctx)
	if err == nil {
		err = l.List(ctx, consistency, f, rows)
	}
	return at, err
}

// List implements driver.Lister. Each resource is read at the consistency asked for, but DynamoDB holds no snapshot: what is
// written while the list is read may be in it or not.
func (l *lister) List(ctx context.Context, consistency storage.ReadConsistency, f *driver.Filter, rows driver.Rows) error {
	return l.scan(ctx, scanRange{filter: *f, consistency: consistency}, func(h *head) (bool, error) {
		if !h.live {
			return true, nil
		}
		res, err := l.reader.resourceOf(ctx, h)
		if res != nil && err == nil {
			err = rows.AddResource(res)
		}
		return true, err
	})
}

// scanRange is what a scan is about: a filter, from the key after another on.
type scanRange struct {
	filter      key.Filter
	consistency storage.ReadConsistency
	after       *key.Key
	limit       int // of the items in the first answer, 0: as many as DynamoDB gives; those after it are larger and larger
	// passed, where it is not nil, is told of each key that does not match, and reports whether to go on.
	passed func(key.Key) bool
}

// Where few items match, an answer of the size of the page would bring next to none: each one that did not fill the page is followed
// by a larger one, up to maxLimit items.
const (
	growth   = 4
	maxLimit = 1000
)

// scan visits the heads, tombstones among them, that match the filter, in order, until visit returns false.
func (l *lister) scan(ctx context.Context, r scanRange, visit func(*head) (bool, error)) error {
	types, err := l.registry.types(ctx, r.filter)
	if err != nil {
		return err
	}
	for _, t := range types {
		if r.after != nil && strings.Compare(t.Group+"\x00"+t.Kind, r.after.Group+"\x00"+r.after.Kind) < 0 {
			continue
		}
		one := r
		one.filter.Group, one.filter.Kind = t.Group, t.Kind
		if r.after != nil && (r.after.Group != t.Group || r.after.Kind != t.Kind) {
			one.after = nil
		}
		more, err := l.scanType(ctx, &one, visit)
		if err != nil || !more {
			return err
		}
	}
	return nil
}

// scanType scans one type. It reports whether to go on.
func (l *lister) scanType(ctx context.Context, r *scanRange, visit func(*head) (bool, error)) (bool, error) {
	f, marks := r.filter, l.reader.marks
	prefix, exact := f.Prefix()
	begins := prefix[len(f.Group)+len(f.Kind)+2:]
	var start item
	from := ""
	if r.after != nil {
		start, from = l.reader.table.resource(*r.after), string(r.after.Bytes())
	}
	for {
		if start != nil && !exact {
			target, ok := f.Seek(append([]byte(from), 0))
			if !ok {
				return true, nil
			}
			// DynamoDB begins after a key, which need not exist. What lies between this one and the target does not match.
			if before := target[:len(target)-1]; string(before) > from {
				start, from = l.reader.table.resourceAt(f.Group, f.Kind, before), string(before)
			}
		}
		strong := r.consistency == storage.StrongConsistency || marks.distrust()
		heads, next, upTo, err := l.answer(ctx, strong, f, begins, start, r.limit)
		if err != nil {
			return false, err
		}
		if !strong && (marks.anyStale(heads) || marks.missing(string(prefix), from, upTo, heads)) {
			if heads, next, upTo, err = l.answer(ctx, true, f, begins, start, r.limit); err != nil {
				return false, err
			}
		}
		for _, h := range heads {
			marks.note(h.key, h)
			if !exact && !f.Match(&h.key) {
				if r.passed != nil && !r.passed(h.key) {
					return false, nil
				}
				continue
			}
			if more, err := visit(h); err != nil || !more {
				return false, err
			}
		}
		r.limit = min(growth*r.limit, maxLimit)
		if start, from = next, upTo; start == nil {
			return true, nil
		}
	}
}

// answer reads one answer's worth of heads. upTo is the key where the next one begins, "" if this is the last.
func (l *lister) answer(ctx context.Context, strong bool, f key.Filter, begins []byte, start item, limit int) (heads []*head, next item, upTo string, err error) {
	t := l.reader.table
	items, next, err := t.query(ctx, strong, t.typePK(f.Group, f.Kind), begins, start, limit)
	if err != nil {
		return nil, nil, "", err
	}
	heads = make([]*head, 0, len(items))
	for _, it := range items {
		h, err := t.head(it)
		var damaged *storage.DamagedError
		switch {
		case err == nil:
			heads = append(heads, h)
		case !errors.As(err, &damaged) || f.Match(new(key.Of(damaged.ID))):
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
