package tablestest

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"

	"github.com/ashlar-dev/storage"
	"github.com/ashlar-dev/storage/resourcepb"
	"github.com/ashlar-dev/storage/typed/tables"
)

// watchFaults opens a third store through a faulty handle: its watches end, also as after a loss of history, and answers to its commits are lost, some
// before they reach the database. Meanwhile all stores write. The store must include its acknowledged writes at once, its watch must deliver the
// changes made while the copy had no watch, and finally all stores must equal the database.
func watchFaults(w *world) error {
	var broken *faulty
	s, err := w.open(func(b storage.Backend) storage.Backend {
		broken = &faulty{Backend: b}
		return broken
	})
	if err != nil {
		return err
	}
	h := state{}
	watch, err := s.ViewAndWatch(w.ctx, h.view)
	if err != nil {
		return err
	}
	defer watch.Close()
	all := names(members)
	if err := set(w.ctx, w.at(0), to(1), "still-1", "still-2"); err != nil { // these stay unchanged
		return err
	}
	write := func(ctx context.Context) error {
		return runAll(ctx, repeat(w.rounds(), func(ctx context.Context, i int) error {
			if i%6 == 5 {
				broken.end()
			}
			if err := changeAny(ctx, w.at(0), all); err != nil {
				return err
			}
			return growAndCheck(ctx, s, broken)
		}), repeat(2*w.rounds(), func(ctx context.Context, _ int) error { return changeAny(ctx, w.at(1), all) }),
			repeat(w.rounds(), func(ctx context.Context, _ int) error { return ignoreLost(changeAny(ctx, s, all)) }))
	}
	if err := write(w.ctx); err != nil {
		return err
	}
	broken.lose(0)
	broken.end()
	if err := set(w.ctx, w.at(0), to(1), "the last"); err != nil {
		return err
	}
	want, err := stored(w)
	if err != nil {
		return err
	}
	if err := follow(w.ctx, watch, h, want); err != nil {
		return fmt.Errorf("after watch ends: %w", err)
	}
	return converge(w)
}

// growAndCheck writes through a store that may lose answers, and checks that a View includes an acknowledged write.
func growAndCheck(ctx context.Context, s Store, broken *faulty) error {
	broken.lose(0.2)
	var wrote int64
	err := set(ctx, s, func(old int64) int64 {
		wrote = old + 1
		return wrote
	}, "grows")
	if err != nil {
		return ignoreLost(err)
	}
	return s.View(ctx, func(v *tables.View) error {
		if shown, err := value(v, "grows"); err != nil || shown < wrote {
			return fmt.Errorf("%d was acknowledged, a View after watch ends has %d, %v", wrote, shown, err)
		}
		return nil
	})
}

// ignoreLost returns nil for a lost answer.
func ignoreLost(err error) error {
	if errors.Is(err, storage.ErrInconsistent) {
		return nil
	}
	return err
}

// stored returns the versions of the stored objects.
func stored(w *world) (map[string]string, error) {
	list, err := w.handles[0].List(w.ctx, storage.StrongConsistency, storage.UnversionedType{Group: "storetest", Kind: "Number"},
		&resourcepb.Tenancy{Partition: "default", Namespace: "default"}, "")
	if err != nil {
		return nil, err
	}
	want := map[string]string{}
	for _, res := range list {
		want[res.GetId().GetName()] = res.GetVersion()
	}
	return want, nil
}

// converge waits until all stores equal the database. All writers must have finished.
func converge(w *world) error {
	want, err := stored(w)
	if err != nil {
		return err
	}
	for i, s := range w.stores {
		watch, err := s.ViewAndWatch(w.ctx, nil)
		if err != nil {
			return err
		}
		defer watch.Close()
		for {
			var differs string
			if err := s.View(w.ctx, func(v *tables.View) error {
				differs = difference(v, want)
				return nil
			}); err != nil {
				return err
			}
			if differs == "" {
				break
			}
			if _, err := watch.Next(w.ctx); err != nil {
				return fmt.Errorf("store %d does not reach the database's state: %s: %w", i, differs, err)
			}
		}
	}
	return nil
}

// difference describes the difference between a View and the stored versions, "" for none.
func difference(v *tables.View, want map[string]string) string {
	all, err := numbers.List(v)
	if err != nil {
		return err.Error()
	}
	for _, o := range all {
		if want[o.ID.Name] != o.Version {
			return fmt.Sprintf("the View has version %s of %s, %s is stored", o.Version, o.ID.Name, want[o.ID.Name])
		}
	}
	if len(all) != len(want) {
		return fmt.Sprintf("the View has %d objects of %d", len(all), len(want))
	}
	return ""
}

// faulty is a backend that can end its watches and lose answers to commits.
type faulty struct {
	storage.Backend

	mu      sync.Mutex
	watches []*endable
	lost    float64
}

// As implements the lookup of [storage.As].
func (f *faulty) As(target any) bool {
	transactor, ok := target.(*storage.Transactor)
	if ok {
		*transactor = f
	}
	return ok
}

// lose sets the share of lost answers.
func (f *faulty) lose(share float64) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.lost = share
}

// end ends all watches, as after a loss of history.
func (f *faulty) end() {
	f.mu.Lock()
	watches := f.watches
	f.watches = nil
	f.mu.Unlock()
	for _, w := range watches {
		w.end()
	}
}

var errLost = fmt.Errorf("%w: the answer was lost on purpose", storage.ErrInconsistent)

// Commit implements storage.Transactor.
func (f *faulty) Commit(ctx context.Context, ops []storage.Op) ([]*resourcepb.Resource, error) {
	tx, _ := storage.As[storage.Transactor](f.Backend)
	return mayLose(f, func() ([]*resourcepb.Resource, error) { return tx.Commit(ctx, ops) })
}

// WriteCAS implements storage.Backend.
func (f *faulty) WriteCAS(ctx context.Context, res *resourcepb.Resource) (*resourcepb.Resource, error) {
	return mayLose(f, func() (*resourcepb.Resource, error) { return f.Backend.WriteCAS(ctx, res) })
}

// mayLose loses the answer of a write, or the write itself.
func mayLose[T any](f *faulty, write func() (T, error)) (none T, err error) {
	f.mu.Lock()
	lost := rand.Float64() < f.lost
	f.mu.Unlock()
	if lost && rand.IntN(2) == 0 {
		return none, errLost
	}
	results, err := write()
	if lost && err == nil {
		return none, errLost
	}
	return results, err
}

// MaxOps implements storage.Transactor.
func (f *faulty) MaxOps() int {
	tx, _ := storage.As[storage.Transactor](f.Backend)
	return tx.MaxOps()
}

// WatchList implements storage.Backend.
func (f *faulty) WatchList(ctx context.Context, typ storage.UnversionedType, tenancy *resourcepb.Tenancy, prefix string) (storage.Watch, error) {
	inner, err := f.Backend.WatchList(ctx, typ, tenancy, prefix)
	if err != nil {
		return nil, err
	}
	alive, cancel := context.WithCancel(context.WithoutCancel(ctx))
	w := &endable{Watch: inner, alive: alive, end: cancel}
	f.mu.Lock()
	f.watches = append(f.watches, w)
	f.mu.Unlock()
	if b, ok := inner.(storage.Bookmarker); ok {
		return &endableBookmarker{w, b}, nil
	}
	return w, nil
}

// endable is a watch that can be ended.
type endable struct {
	storage.Watch
	alive context.Context
	end   context.CancelFunc
}

// Next implements storage.Watch.
func (w *endable) Next(ctx context.Context) (*resourcepb.WatchEvent, error) {
	both, cancel := context.WithCancel(ctx)
	defer cancel()
	defer context.AfterFunc(w.alive, cancel)()
	ev, err := w.Watch.Next(both)
	if w.alive.Err() != nil {
		return nil, fmt.Errorf("%w: ended on purpose: %w", storage.ErrWatchClosed, storage.ErrCompacted)
	}
	return ev, err
}

// Close implements storage.Watch.
func (w *endable) Close() {
	w.end()
	w.Watch.Close()
}

// endableBookmarker is an endable of a Bookmarker.
type endableBookmarker struct {
	*endable
	storage.Bookmarker
}
