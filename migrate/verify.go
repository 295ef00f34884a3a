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
	// OnDifference is called with each difference of resources, in key order, and then with wrong owner references. Its error ends
	// the comparison.
	OnDifference func(Difference) error
	// SkipReferences omits the check of owner references, which lists each side again, and needs a request for each resource.
	SkipReferences bool
	// PageSize is the number of resources in a page of a listing, on each side. The default is 500.
	PageSize int
}

// Verify compares two stores. It streams both in key order, with memory for a few pages. A resource that changes during the
// comparison may be reported as different. On each side it also compares the owner references with the resources: those to every owner that
// a resource names, and those to every other resource, which must have none. A source that has moved can be compared too.
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
	for _, id := range sides[0].wrong {
		wrong = append(wrong, Difference{Kind: Reference, Source: &resourcepb.Resource{Id: id}})
	}
	for _, id := range sides[1].wrong {
		wrong = append(wrong, Difference{Kind: Reference, Target: &resourcepb.Resource{Id: id}})
	}
	r.References = len(wrong)
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
