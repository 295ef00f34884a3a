package tablestest

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/ashlar-dev/storage/typed/tables"
)

// indexes compares queries by an index with a scan after every step of a random history, in Views and in transactions with changes.
func indexes(w *world) error {
	all := names(members)
	return runAll(w.ctx, repeat(w.rounds(), func(ctx context.Context, i int) error {
		s := w.at(i)
		if err := changeAny(ctx, s, all); err != nil {
			return err
		}
		for _, s := range w.stores {
			if err := s.View(ctx, func(v *tables.View) error { return compareQueries(v) }); err != nil {
				return err
			}
		}
		return s.Update(ctx, func(tx *tables.Tx) error {
			for _, name := range []string{pick(all), pick(all)} {
				if err := change(tx, name, plus(1)); err != nil {
					return err
				}
			}
			if err := numbers.Delete(tx, id(pick(existing(tx)))); err != nil {
				return err
			}
			return compareQueries(tx)
		})
	}), repeat(w.rounds(), func(ctx context.Context, _ int) error { return changeAny(ctx, w.at(1), all) }))
}

// existing returns the names of the existing objects.
func existing(r tables.Reader) (found []string) {
	all, err := numbers.List(r)
	if err != nil {
		return nil
	}
	for _, o := range all {
		found = append(found, o.ID.Name)
	}
	return found
}

// compareQueries fails if a query by an index and a scan differ.
func compareQueries(r tables.Reader) error {
	all, err := numbers.List(r)
	if err != nil {
		return err
	}
	for n := range 6 {
		for _, c := range []struct {
			what    string
			query   tables.Query
			matches func(*object) bool
		}{
			{"value is", byValue.Is(int64(n)), func(o *object) bool { return o.Data.Value == int64(n) }},
			{"value from", byValue.From(int64(n)), func(o *object) bool { return o.Data.Value >= int64(n) }},
			{"value to", byValue.To(int64(n)), func(o *object) bool { return o.Data.Value < int64(n) }},
			{"divisor is", byDivisor.Is(n), func(o *object) bool { return slices.Contains(divisors(o), n) }},
			{"divisor is not", tables.Not(byDivisor.Is(n)), func(o *object) bool { return !slices.Contains(divisors(o), n) }},
			{"divisor is, and value from", tables.And(byDivisor.Is(n), byValue.From(2)), func(o *object) bool {
				return slices.Contains(divisors(o), n) && o.Data.Value >= 2
			}},
			{"divisor is, or value to", tables.Or(byDivisor.Is(n), byValue.To(2)), func(o *object) bool {
				return slices.Contains(divisors(o), n) || o.Data.Value < 2
			}},
		} {
			if err := compareQuery(r, fmt.Sprint(c.what, " ", n), c.query, all, c.matches); err != nil {
				return err
			}
		}
	}
	return nil
}

func compareQuery(r tables.Reader, what string, q tables.Query, all []*object, matches func(*object) bool) error {
	var want, got []string
	for _, o := range all {
		if matches(o) {
			want = append(want, o.ID.Name)
		}
	}
	found, err := numbers.List(r, q)
	if err != nil {
		return err
	}
	for _, o := range found {
		got = append(got, o.ID.Name)
	}
	slices.Sort(got)
	if !slices.Equal(got, want) {
		return fmt.Errorf("the query %s returned %q, a scan %q", what, strings.Join(got, " "), strings.Join(want, " "))
	}
	return nil
}

// sharedObjects retains the objects that Views and watches have returned, and checks at the end that they are unchanged.
func sharedObjects(w *world) error {
	all := names(members)
	if err := set(w.ctx, w.at(0), to(1), all...); err != nil {
		return err
	}
	watch, err := w.at(1).ViewAndWatch(w.ctx, nil)
	if err != nil {
		return err
	}
	defer watch.Close()
	var snapshots []snapshot
	keep := func(o *object) {
		if o != nil {
			snapshots = append(snapshots, snapshot{o, fmt.Sprint(o)})
		}
	}
	if err := repeat(w.rounds(), func(ctx context.Context, i int) error {
		if err := w.at(i).View(ctx, func(v *tables.View) error {
			found, err := numbers.List(v)
			for _, o := range found {
				keep(o)
			}
			return err
		}); err != nil {
			return err
		}
		if err := set(ctx, w.at(i), plus(1), pick(all), pick(all)); err != nil {
			return err
		}
		ev, err := watch.Next(ctx)
		if err != nil {
			return err
		}
		c, _ := numbers.Event(ev)
		keep(c.Old)
		keep(c.New)
		return nil
	})(w.ctx); err != nil {
		return err
	}
	for _, k := range snapshots {
		if now := fmt.Sprint(k.object); now != k.was {
			return fmt.Errorf("a returned object was modified: it was %s, and is %s", k.was, now)
		}
	}
	return nil
}

// snapshot is an object with its original text.
type snapshot struct {
	object *object
	was    string
}
