package tablestest

import (
	"context"
	"fmt"
	"math/rand/v2"

	"google.golang.org/protobuf/proto"

	"github.com/ashlar-dev/storage/typed/tables"
)

// state is the objects that a reader of a watch has.
type state map[string]*object

// apply applies an event. It fails if the event does not follow the state.
func (h state) apply(ev tables.Event) error {
	c, ok := numbers.Event(ev)
	if !ok {
		return fmt.Errorf("the event belongs to no table: %v", ev)
	}
	of := c.New
	if of == nil {
		of = c.Old
	}
	name := of.ID.Name
	before := h[name]
	if before == nil && c.Old != nil || before != nil && (c.Old == nil || before.Version != c.Old.Version || !proto.Equal(before.Data, c.Old.Data)) {
		return fmt.Errorf("the event of %s does not continue the state: its old object is %v, the state has %v", name, c.Old, before)
	}
	if before != nil && c.New != nil && before.Version == c.New.Version {
		return fmt.Errorf("the event of %s is repeated", name)
	}
	if h[name] = c.New; c.New == nil {
		delete(h, name)
	}
	return nil
}

// view replaces the state by a View.
func (h state) view(v *tables.View) error {
	all, err := numbers.List(v)
	clear(h)
	for _, o := range all {
		h[o.ID.Name] = o
	}
	return err
}

// equals reports whether the state has these versions.
func (h state) equals(want map[string]string) bool {
	for name, version := range want {
		if o := h[name]; o == nil || o.Version != version {
			return false
		}
	}
	return len(h) == len(want)
}

// changeAny makes a random change of one or several objects.
func changeAny(ctx context.Context, s Store, of []string) error {
	some := []string{pick(of)}
	if rand.IntN(3) == 0 {
		some = append(some, pick(of), pick(of))
	}
	drop := rand.IntN(3) == 0
	return s.Update(ctx, func(tx *tables.Tx) error {
		for _, name := range some {
			_, err := numbers.Get(tx, id(name))
			if err == nil && drop {
				err = numbers.Delete(tx, id(name))
			} else {
				err = change(tx, name, plus(1))
			}
			if err != nil {
				return err
			}
		}
		return nil
	})
}

// watches opens watches while both stores write. It reads each for a while, and one of each store until it has reached the database's state.
func watches(w *world) error {
	all := names(members)
	write := func(ctx context.Context) error {
		return runAll(ctx, repeat(2*w.rounds(), func(ctx context.Context, _ int) error { return changeAny(ctx, w.at(0), all) }),
			repeat(2*w.rounds(), func(ctx context.Context, _ int) error { return changeAny(ctx, w.at(1), all) }))
	}
	var meanwhile, ends []func(context.Context) error
	var want map[string]string
	for i := range w.stores {
		h := state{}
		watch, err := w.at(i).ViewAndWatch(w.ctx, h.view)
		if err != nil {
			return err
		}
		defer watch.Close()
		ends = append(ends, func(ctx context.Context) error { return follow(ctx, watch, h, want) })
		meanwhile = append(meanwhile, func(ctx context.Context) error { return shortWatch(ctx, w.at(i), all) })
	}
	if err := whileRunning(w.ctx, write, meanwhile...); err != nil {
		return err
	}
	err := set(w.ctx, w.at(0), to(1), "the end")
	if err != nil {
		return err
	}
	if want, err = stored(w); err != nil {
		return err
	}
	return runAll(w.ctx, ends...)
}

// shortWatch opens a watch and reads it until it includes a change of its own.
func shortWatch(ctx context.Context, s Store, all []string) error {
	h := state{}
	watch, err := s.ViewAndWatch(ctx, h.view)
	if err != nil {
		return err
	}
	defer watch.Close()
	var wrote int64
	if err := set(ctx, s, func(old int64) int64 {
		wrote = max(old, h.value("mark")) + 1
		return wrote
	}, "mark"); err != nil {
		return err
	}
	for h.value("mark") < wrote {
		ev, err := watch.Next(ctx)
		if err != nil {
			return err
		}
		if err := h.apply(ev); err != nil {
			return err
		}
	}
	return nil
}

func (h state) value(name string) int64 {
	if o := h[name]; o != nil {
		return o.Data.Value
	}
	return 0
}

// follow reads a watch until it has reached the stored state.
func follow(ctx context.Context, watch *tables.Watch, h state, want map[string]string) error {
	for !h.equals(want) {
		ev, err := watch.Next(ctx)
		if err != nil {
			return fmt.Errorf("a watch does not reach the stored state %v, it has %v: %w", want, h, err)
		}
		if err := h.apply(ev); err != nil {
			return err
		}
	}
	return nil
}
