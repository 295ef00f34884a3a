package migrate

import (
	"context"
	"fmt"

	"github.com/ashlar-dev/storage"
	"github.com/ashlar-dev/storage/driver"
	"github.com/ashlar-dev/storage/resourcepb"
)

// VerifyOptions configure Verify. Nil and zero values are the defaults.
type VerifyOptions struct {
	// OnDifference is called with each difference of resources, in key order, and then with wrong owner references and columns. Its error ends
	// the comparison.
	OnDifference func(Difference) error
	// SkipReferences omits the checks of owner references, which lists each side again and needs a request for each resource, and of
	// columns.
	SkipReferences bool
	// PageSize is the number of resources in a page of a listing, on each side. The default is 500.
	PageSize int
}

// Verify compares two stores. It streams both in key order, with memory for a few pages. A resource that changes during the
// comparison may be reported as different. On each side it also compares the owner references with the resources: those to every owner that
// a resource names, and those to every other resource, which must have none; and all else that the database stores apart from the encoded
// resources, such as the columns of Postgres, the owner entries of etcd, and the items of DynamoDB that no list reads. A source that has moved
// can be compared too.
func Verify(ctx context.Context, from, to storage.Backend, opts *VerifyOptions) (*Report, error) {
	o := VerifyOptions{}
	if opts != nil {
		o = *opts
	}
	m := newMigration(from, to, &Options{PageSize: o.PageSize})
	ctx, cancel := withoutDeadline(driver.WithMovedReads(ctx))
	defer cancel(nil)
	source, err := m.listSource(ctx)
	if err != nil {
		return nil, err
	}
	defer source.close()
	if o.SkipReferences {
		return m.compare(ctx, source, o.OnDifference, nil)
	}
	sides := [2]*references{newReferences(from, m.listSource), newReferences(to, m.listTarget)}
	r, err := m.compare(ctx, source, o.OnDifference, func(a, b *entry) error {
		for i, e := range []*entry{a, b} {
			if err := sides[i].add(e); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	for i := range sides {
		if err := sides[i].check(ctx); err != nil {
			return nil, fmt.Errorf("compare: %w", err)
		}
	}
	var wrong []Difference
	for i, store := range []storage.Backend{from, to} {
		for _, id := range sides[i].wrong {
			wrong = append(wrong, differenceOf(Reference, i, id))
		}
		r.References += len(sides[i].wrong)
		ids, err := m.checkColumns(ctx, store)
		if err != nil {
			return nil, err
		}
		for _, id := range ids {
			wrong = append(wrong, differenceOf(Column, i, id))
		}
		r.Columns += len(ids)
	}
	for _, d := range wrong {
		if o.OnDifference == nil {
			break
		}
		if err := o.OnDifference(d); err != nil {
			return nil, err
		}
	}
	return r, nil
}

// differenceOf returns a difference that concerns one side: 0 is the source, 1 the target.
func differenceOf(kind Kind, side int, id *resourcepb.ID) Difference {
	if res := (&resourcepb.Resource{Id: id}); side == 0 {
		return Difference{Kind: kind, Source: res}
	} else {
		return Difference{Kind: kind, Target: res}
	}
}

// checkColumns returns the resources of a store that contradict what the database stores about them.
func (m *migration) checkColumns(ctx context.Context, store storage.Backend) (wrong []*resourcepb.ID, err error) {
	rows, ok := storage.As[driver.ColumnChecker](store)
	if !ok {
		return nil, nil // the database stores nothing twice, except for owner references
	}
	var after []byte
	for {
		var keys []driver.Key
		var next []byte
		err := m.try.do(ctx, "check the columns", func(ctx context.Context) (err error) {
			keys, next, err = rows.CheckColumns(ctx, after, m.o.PageSize)
			return err
		})
		if err != nil {
			return nil, fmt.Errorf("compare: %w", err)
		}
		for _, k := range keys {
			wrong = append(wrong, k.ID("", ""))
		}
		if after = next; after == nil {
			return wrong, nil
		}
	}
}

// compare compares a stream with the target. It calls visit, unless nil, with both entries of each key.
func (m *migration) compare(ctx context.Context, source stream, found func(Difference) error, visit func(a, b *entry) error) (*Report, error) {
	target, err := m.listTarget(ctx)
	if err != nil {
		return nil, err
	}
	defer target.close()
	t := newTally()
	err = join(ctx, source, target, func(a, b *entry) error {
		if visit != nil {
			if err := visit(a, b); err != nil {
				return err
			}
		}
		kind, err := t.add(a, b)
		if err != nil || kind == "" || found == nil {
			return err
		}
		d := Difference{Kind: kind}
		if d.Source, err = a.resource(); err != nil {
			return err
		}
		if d.Target, err = b.resource(); err != nil {
			return err
		}
		return found(d)
	})
	if err != nil {
		return nil, fmt.Errorf("compare: %w", err)
	}
	return t.report(), nil
}

// isComplete reports whether the target has the required contents.
func (m *migration) isComplete(r *Report) bool {
	if m.o.Into.prunes() {
		return r.Equal()
	}
	return r.Missing == 0 && r.Different == 0
}
