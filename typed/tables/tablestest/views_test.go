package tablestest

import (
	"context"
	"errors"
	"fmt"

	"github.com/ashlar-dev/storage"
	"github.com/ashlar-dev/storage/typed/tables"
)

// The amount of work for a rule.
const (
	rounds  = 60
	members = 8
)

// viewsAreWhole lets two writers increment a set of objects, each time in one transaction. The objects are equal in every View, and after every
// commit of a watch.
func viewsAreWhole(w *world) error {
	all := names(members)
	if err := set(w.ctx, w.at(0), to(1), all...); err != nil {
		return err
	}
	write := func(ctx context.Context) error {
		return runAll(ctx, repeat(w.rounds(), func(ctx context.Context, _ int) error { return set(ctx, w.at(0), plus(1), all...) }),
			repeat(w.rounds(), func(ctx context.Context, _ int) error { return set(ctx, w.at(1), plus(1), all...) }))
	}
	var meanwhile []func(context.Context) error
	for i := range w.stores {
		meanwhile = append(meanwhile, func(ctx context.Context) error { return w.at(i).View(ctx, equal) },
			func(ctx context.Context) error { return w.at(i).View(ctx, equal, tables.Linearizable) })
	}
	if err := whileRunning(w.ctx, write, meanwhile...); err != nil {
		return err
	}
	return commitsAreWhole(w, all)
}

// equal fails if the objects of a view differ.
func equal(v *tables.View) error {
	all, err := numbers.List(v, tables.NamePrefix("n-"))
	if err != nil {
		return err
	}
	for _, o := range all {
		if o.Data.Value != all[0].Data.Value {
			return fmt.Errorf("a View has part of a commit: %s is %d, %s is %d",
				all[0].ID.Name, all[0].Data.Value, o.ID.Name, o.Data.Value)
		}
	}
	if len(all) != 0 && len(all) != members {
		return fmt.Errorf("a View has %d of %d objects", len(all), members)
	}
	return nil
}

// commitsAreWhole watches the transactions of the other store.
func commitsAreWhole(w *world, all []string) error {
	watch, err := w.at(0).ViewAndWatch(w.ctx, nil)
	if err != nil {
		return err
	}
	defer watch.Close()
	for range 5 {
		if err := set(w.ctx, w.at(1), plus(1), all...); err != nil {
			return err
		}
		for i := range all {
			ev, err := watch.Next(w.ctx)
			if err != nil {
				return err
			}
			if last := i+1 == len(all); ev.More == last {
				return fmt.Errorf("event %d of a commit of %d has More: %v", i+1, len(all), ev.More)
			}
		}
	}
	return nil
}

// repeat returns a function that calls fn several times.
func repeat(times int, fn func(ctx context.Context, i int) error) func(context.Context) error {
	return func(ctx context.Context) error {
		for i := range times {
			if err := fn(ctx, i); err != nil {
				return err
			}
		}
		return nil
	}
}

// readYourWrites checks after every write of a store that a View includes it, while the other store changes the same objects. Counters never decrease,
// and a deleted object is absent or recreated.
func readYourWrites(w *world) error {
	all := names(3)
	grow := func(s Store) func(context.Context) error {
		return repeat(2*w.rounds(), func(ctx context.Context, i int) error {
			name := all[i%len(all)]
			var wrote int64
			if err := set(ctx, s, func(old int64) int64 {
				wrote = old + 1
				return wrote
			}, name); err != nil {
				return err
			}
			return s.View(ctx, func(v *tables.View) error {
				if shown, err := value(v, name); err != nil || shown < wrote {
					return fmt.Errorf("%d was written to %s, a View has %d, %v", wrote, name, shown, err)
				}
				return nil
			})
		})
	}
	createAndDelete := func(s Store, name string) func(context.Context) error {
		return repeat(w.rounds(), func(ctx context.Context, _ int) error {
			if err := set(ctx, s, plus(1), name); err != nil {
				return err
			}
			if err := shows(ctx, s, name, true); err != nil {
				return err
			}
			if err := s.Update(ctx, func(tx *tables.Tx) error { return numbers.Delete(tx, id(name)) }); err != nil {
				return err
			}
			return shows(ctx, s, name, false)
		})
	}
	return runAll(w.ctx, grow(w.at(0)), grow(w.at(0)), grow(w.at(1)), createAndDelete(w.at(0), "mine"), createAndDelete(w.at(1), "yours"))
}

// shows fails if an object does not have the expected existence in a View.
func shows(ctx context.Context, s Store, name string, exists bool) error {
	return s.View(ctx, func(v *tables.View) error {
		found, err := numbers.List(v, tables.NamePrefix(name))
		if err == nil && (len(found) == 1) != exists {
			return fmt.Errorf("a View has %d objects named %s, expected to exist: %v", len(found), name, exists)
		}
		return err
	})
}

// linearizableViews writes through one store and checks that the linearizable Views of the other store include the writes.
func linearizableViews(w *world) error {
	if err := w.at(0).View(w.ctx, func(*tables.View) error { return nil }, tables.Linearizable); errors.Is(err, storage.ErrInvalid) {
		return fmt.Errorf("the backend has no bookmarks: %w", err)
	}
	return runAll(w.ctx, repeat(2*w.rounds(), func(ctx context.Context, i int) error {
		n := int64(i + 1)
		if err := set(ctx, w.at(i), to(n), "a", "b"); err != nil {
			return err
		}
		return w.at(i+1).View(ctx, func(v *tables.View) error {
			for _, name := range []string{"a", "b"} {
				if shown, err := value(v, name); err != nil || shown < n {
					return fmt.Errorf("%d was acknowledged, a Linearizable View has %d, %v", n, shown, err)
				}
			}
			return nil
		}, tables.Linearizable)
	}), repeat(2*w.rounds(), func(ctx context.Context, i int) error {
		return w.at(i).View(ctx, func(*tables.View) error { return nil }, tables.Linearizable)
	}))
}
