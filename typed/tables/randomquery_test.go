package tables_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/ashlar-dev/storage"
	"github.com/ashlar-dev/storage/resourcepb"
	"github.com/ashlar-dev/storage/typed/tables"
)

// testQuery is a query with a predicate that computes the same result.
type testQuery struct {
	text    string
	query   tables.Query
	matches func(o *number) bool
}

// randomQuery returns a random query with up to depth levels of nesting.
func randomQuery(r *rand.Rand, depth int) testQuery {
	if depth > 0 && r.IntN(3) > 0 {
		var parts []testQuery
		for range r.IntN(4) {
			parts = append(parts, randomQuery(r, depth-1))
		}
		var queries []tables.Query
		var texts []string
		for _, p := range parts {
			queries, texts = append(queries, p.query), append(texts, p.text)
		}
		text := "(" + strings.Join(texts, ", ") + ")"
		switch r.IntN(3) {
		case 0:
			return testQuery{"and" + text, tables.And(queries...), func(o *number) bool {
				return !slices.ContainsFunc(parts, func(p testQuery) bool { return !p.matches(o) })
			}}
		case 1:
			return testQuery{"or" + text, tables.Or(queries...), func(o *number) bool {
				return slices.ContainsFunc(parts, func(p testQuery) bool { return p.matches(o) })
			}}
		}
		p := randomQuery(r, depth-1)
		return testQuery{"not " + p.text, tables.Not(p.query), func(o *number) bool { return !p.matches(o) }}
	}
	n, m := r.Int64N(14)-4, r.Int64N(14)-4
	d := int(n)
	name, other := fmt.Sprint("n", r.IntN(4)), []string{"default", storage.Wildcard, "none", ""}[r.IntN(4)]
	switch r.IntN(10) {
	case 0:
		return testQuery{fmt.Sprint("value ", n), byValue.Is(n), func(o *number) bool { return o.Data.Value == n }}
	case 1:
		return testQuery{fmt.Sprint("value from ", n), byValue.From(n), func(o *number) bool { return o.Data.Value >= n }}
	case 2:
		return testQuery{fmt.Sprint("value to ", n), byValue.To(n), func(o *number) bool { return o.Data.Value < n }}
	case 3:
		return testQuery{fmt.Sprint("value ", n, " to ", m), byValue.Between(n, m), func(o *number) bool {
			return o.Data.Value >= n && o.Data.Value < m
		}}
	case 4:
		return testQuery{fmt.Sprint("divisor ", n), byDivisor.Is(d), func(o *number) bool { return slices.Contains(divisors(o), d) }}
	case 5:
		return testQuery{fmt.Sprint("divisor from ", n), byDivisor.From(d), func(o *number) bool {
			return slices.ContainsFunc(divisors(o), func(v int) bool { return v >= d })
		}}
	case 6:
		return testQuery{"prefix " + name, tables.NamePrefix(name), func(o *number) bool { return strings.HasPrefix(o.ID.Name, name) }}
	case 7:
		return testQuery{"in " + other, tables.In(&resourcepb.Tenancy{Partition: "default", Namespace: other}), func(o *number) bool {
			return other == storage.Wildcard || o.ID.Tenancy.Namespace == other
		}}
	case 8:
		return testQuery{"metadata " + name, tables.Metadata("m", name), func(o *number) bool { return o.Metadata["m"] == name }}
	}
	owner := id(name)
	return testQuery{"owner " + name, tables.Owner(owner), func(o *number) bool { return o.Owner.GetName() == name }}
}

// A query returns the same objects as a scan of all objects, each once. In a transaction it returns them, including the transaction's changes, in the
// same order as a later View.
func TestRandomQueries(t *testing.T) {
	onEach(t, func(ctx context.Context, t *testing.T, url string) {
		seed := rand.Uint64()
		r := rand.New(rand.NewPCG(seed, 1))
		s := open(t, url, numbers)
		for step := range 40 {
			var queries []testQuery
			var results []string
			update(ctx, t, s, func(tx *tables.Tx) error {
				for range r.IntN(6) {
					if err := randomChange(r, tx); err != nil {
						return err
					}
				}
				queries, results = nil, nil
				for range 60 {
					q := randomQuery(r, 3)
					queries, results = append(queries, q), append(results, listNames(t, tx.UncheckedReader(), q.query))
				}
				return nil
			})
			if err := s.View(ctx, func(v *tables.View) error {
				all, err := numbers.List(v)
				for i, q := range queries {
					var want []string
					for _, o := range all {
						if q.matches(o) {
							want = append(want, o.ID.Name)
						}
					}
					got := listNames(t, v, q.query)
					found := strings.Fields(got)
					slices.Sort(found)
					slices.Sort(want)
					if !slices.Equal(found, want) {
						t.Fatalf("seed %d, step %d: query %s returned %q, a scan %q", seed, step, q.text, found, want)
					}
					if got != results[i] {
						t.Fatalf("seed %d, step %d: query %s returned %q in the transaction, and %q after it", seed, step, q.text, results[i], got)
					}
				}
				return err
			}); err != nil {
				t.Fatal(err)
			}
		}
	})
}

// randomChange creates, changes or deletes an object.
func randomChange(r *rand.Rand, tx *tables.Tx) error {
	name := fmt.Sprintf("n%d%d", r.IntN(4), r.IntN(4))
	o, err := numbers.Edit(tx, id(name))
	switch {
	case err == nil && r.IntN(3) == 0:
		return numbers.Delete(tx, id(name))
	case errors.Is(err, storage.ErrNotFound):
		o = put(name, 0)
	case err != nil:
		return err
	}
	o.Data.Value = r.Int64N(14) - 4
	if o.Metadata, o.Owner = nil, nil; r.IntN(2) == 0 {
		o.Metadata = map[string]string{"m": fmt.Sprint("n", r.IntN(4))}
	}
	if r.IntN(2) == 0 {
		o.Owner = id(fmt.Sprint("n", r.IntN(4)))
		o.Owner.Uid = fmt.Sprint("uid", r.IntN(2))
	}
	return numbers.Put(tx, o)
}
