package tablestest

import (
	"context"
	"fmt"
	"math/rand/v2"

	"google.golang.org/protobuf/proto"

	"github.com/ashlar-dev/storage/typed/tables"
)

// held is a state as somebody holds it who follows a watch.
type held map[string]*object

// apply puts an event into what is held, and fails if it does not continue that.
func (h held) apply(ev tables.Event) error {
	c, ok := numbers.Event(ev)
	if !ok {
		return fmt.Errorf("the event is of no table: %v", ev)
	}
	of := c.New
	if of == nil {
		of = c.Old
	}
	name := of.ID.Name
	before := h[name]
	if before == nil && c.Old != nil || before != nil && (c.Old == nil || before.Version != c.Old.Version || !proto.Equal(before.Data, c.Old.Data)) {
		return fmt.Errorf("the event of %s does not continue: it says that before it was %v, it was %v", name, c.Old, before)
	}
	if before != nil && c.New != nil && before.Version == c.New.Version {
		return fmt.Errorf("the event of %s comes again", name)
	}
	if h[name] = c.New; c.New == nil {
		delete(h, name)
	}
	return nil
}

// view makes what is held that of a View.
func (h held) view(v *tables.View) error {
	all, err := numbers.List(v)
	clear(h)
	for _, o := range all {
		h[o.ID.Name] = o
	}
	return err
}

// is reports whether what is held has these versions.
func (h held) is(want map[string]string) bool {
	for name, version := range want {
		if o := h[name]; o == nil || o.Version != version {
			return false
		}
	}
	return len(h) == len(want)
}

// changeAny makes a random change, at times of several objects.
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

// watching opens watches while both stores write, follows each for a while, and one of each store to the end, where it has come to what a
// View shows.
func watching(w *world) error {
	all := names(members)
	write := func(ctx context.Context) error {
		return together(ctx, repeat(2*rounds, func(ctx context.Context, _ int) error { return changeAny(ctx, w.at(0), all) }),
			repeat(2*rounds, func(ctx context.Context, _ int) error { return changeAny(ctx, w.at(1), all) }))
	}
	var meanwhile, ends []func(context.Context) error
	var want map[string]string
	for i := range w.stores {
		h := held{}
		watch, err := w.at(i).ViewAndWatch(w.ctx, h.view)
		if err != nil {
			return err
		}
		defer watch.Close()
		ends = append(ends, func(ctx context.Context) error { return follow(ctx, watch, h, want) })
		meanwhile = append(meanwhile, func(ctx context.Context) error { return brief(ctx, w.at(i), all) })
	}
	if err := during(w.ctx, write, meanwhile...); err != nil {
		return err
	}
	err := set(w.ctx, w.at(0), to(1), "the end")
	if err != nil {
		return err
	}
	if want, err = stored(w); err != nil {
		return err
	}
	return together(w.ctx, ends...)
}

// brief opens a watch, and follows it past a change of its own.
func brief(ctx context.Context, s Store, all []string) error {
	h := held{}
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

func (h held) value(name string) int64 {
	if o := h[name]; o != nil {
		return o.Data.Value
	}
	return 0
}

// follow follows a watch to the end of a history: then it has come to what the database has.
func follow(ctx context.Context, watch *tables.Watch, h held, want map[string]string) error {
	for !h.is(want) {
		ev, err := watch.Next(ctx)
		if err != nil {
			return fmt.Errorf("a watch does not come to what is stored, %v, but to %v: %w", want, h, err)
		}
		if err := h.apply(ev); err != nil {
			return err
		}
	}
	return nil
}
