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

// A filter shows every change of what is meant before it or after it, and no other: who applies them to what a View has shown, and asks of
// each object whether it is still meant, holds what a later View shows.
func TestRandomFilters(t *testing.T) {
	onEach(t, func(ctx context.Context, t *testing.T, url string) {
		seed := rand.Uint64()
		r := rand.New(rand.NewPCG(seed, 2))
		s := open(t, url, numbers)
		const end = 1000
		for round := range int64(20) {
			q, held := randomQuery(r, 3), map[string]string{}
			w, err := s.ViewAndWatch(ctx, func(v *tables.View) error { return hold(v, q, held) },
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
				if err := follow(held, q, c); err != nil && !ended {
					t.Fatalf("seed %d: %s: %v", seed, q.says, err)
				}
			}
			w.Close()
			shown := map[string]string{}
			if err := s.View(ctx, func(v *tables.View) error { return hold(v, q, shown) }, tables.Linearizable); err != nil {
				t.Fatal(err)
			}
			if !maps.Equal(held, shown) {
				t.Fatalf("seed %d: %s: held %v, shown %v", seed, q.says, held, shown)
			}
		}
	})
}

// hold holds the versions of what a View shows of a query.
func hold(v *tables.View, q meant, to map[string]string) error {
	found, err := numbers.List(v, q.query)
	for _, o := range found {
		to[o.ID.Name] = o.Version
	}
	return err
}

// follow applies a change to what is held, and fails if it is not of what is meant, or does not continue what is held.
func follow(held map[string]string, q meant, c tables.Change[*wrapperspb.Int64Value]) error {
	means := func(o *typed.Object[*wrapperspb.Int64Value]) bool { return o != nil && q.means(o) }
	if !means(c.Old) && !means(c.New) {
		return fmt.Errorf("shown, and not meant: %v", c)
	}
	if means(c.Old) {
		if held[c.Old.ID.Name] != c.Old.Version {
			return fmt.Errorf("before it was %v, held is %q", c.Old, held[c.Old.ID.Name])
		}
		delete(held, c.Old.ID.Name)
	}
	if means(c.New) {
		held[c.New.ID.Name] = c.New.Version
	}
	return nil
}
