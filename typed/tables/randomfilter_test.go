package tables_test

import (
	"context"
	"fmt"
	"maps"
	"math/rand/v2"
	"testing"

	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/ashlar-dev/storage/typed"
	"github.com/ashlar-dev/storage/typed/tables"
)

// A filter selects every change of an object that matches before or after it, and no other change. A reader that applies these changes to the
// objects of a View, and drops objects that stop matching, has the same objects as a later View.
func TestRandomFilters(t *testing.T) {
	onEach(t, func(ctx context.Context, t *testing.T, url string) {
		seed := rand.Uint64()
		r := rand.New(rand.NewPCG(seed, 2))
		s := open(t, url, numbers)
		const end = 1000
		for round := range int64(20) {
			q, versions := randomQuery(r, 3), map[string]string{}
			w, err := s.ViewAndWatch(ctx, func(v *tables.View) error { return recordVersions(v, q, versions) },
				numbers.Where(q.query), numbers.Where(byValue.From(end)))
			if err != nil {
				t.Fatal(err)
			}
			for range 15 {
				update(ctx, t, s, func(tx *tables.Tx) error { return randomChange(r, tx) })
			}
			create(ctx, t, s, map[string]int64{fmt.Sprint("end", round): end + round})
			for ended := false; !ended; {
				ev, err := w.Next(ctx)
				if err != nil {
					t.Fatal(err)
				}
				c, _ := numbers.Event(ev)
				ended = c.New != nil && c.New.Data.GetValue() == end+round
				if err := applyChange(versions, q, c); err != nil && !ended {
					t.Fatalf("seed %d: %s: %v", seed, q.text, err)
				}
			}
			w.Close()
			shown := map[string]string{}
			if err := s.View(ctx, func(v *tables.View) error { return recordVersions(v, q, shown) }, tables.Linearizable); err != nil {
				t.Fatal(err)
			}
			if !maps.Equal(versions, shown) {
				t.Fatalf("seed %d: %s: the watch results in %v, a View has %v", seed, q.text, versions, shown)
			}
		}
	})
}

// recordVersions records the versions of the objects that a query selects in a View.
func recordVersions(v *tables.View, q testQuery, to map[string]string) error {
	found, err := numbers.List(v, q.query)
	for _, o := range found {
		to[o.ID.Name] = o.Version
	}
	return err
}

// applyChange applies a change to the recorded versions. It fails if the change does not match the query or does not follow the recorded state.
func applyChange(versions map[string]string, q testQuery, c tables.Change[*wrapperspb.Int64Value]) error {
	matches := func(o *typed.Object[*wrapperspb.Int64Value]) bool { return o != nil && q.matches(o) }
	if !matches(c.Old) && !matches(c.New) {
		return fmt.Errorf("the change does not match the query: %v", c)
	}
	if matches(c.Old) {
		if versions[c.Old.ID.Name] != c.Old.Version {
			return fmt.Errorf("the change has the old object %v, the recorded version is %q", c.Old, versions[c.Old.ID.Name])
		}
		delete(versions, c.Old.ID.Name)
	}
	if matches(c.New) {
		versions[c.New.ID.Name] = c.New.Version
	}
	return nil
}
