package tablestest_test

import (
	"context"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/ashlar-dev/storage"
	"github.com/ashlar-dev/storage/internal/test/stores"
	"github.com/ashlar-dev/storage/resourcepb"
	"github.com/ashlar-dev/storage/typed"
	"github.com/ashlar-dev/storage/typed/tables"
	"github.com/ashlar-dev/storage/typed/tables/tablestest"
)

// defects are broken stores. Each violates one rule.
var defects = []struct {
	defect  string
	rule    string
	message string
	layer   func(b storage.Backend) *layer                            // wraps the backend
	store   func(s, another *tables.Store, t target) tablestest.Store // wraps the store
}{
	{defect: "commits without an end", rule: "S1", message: "part of a commit|of 8 objects|has More", layer: func(b storage.Backend) *layer {
		return &layer{Backend: b, event: func(_ bool, ev *resourcepb.WatchEvent) *resourcepb.WatchEvent {
			ev.More = false
			return ev
		}}
	}},
	{defect: "views of a lagging copy", rule: "S2", message: "a View has", store: func(s, another *tables.Store, _ target) tablestest.Store {
		return lagging{s, another}
	}},
	{defect: "linearizable views that ignore the option", rule: "S3", message: "a Linearizable View has", store: func(s, _ *tables.Store, _ target) tablestest.Store {
		return eventual{s}
	}},
	{defect: "reads are not compared", rule: "S4", message: "write skew|not serializable", layer: unchecked},
	{defect: "reads are not compared", rule: "S9", message: "not serializable", layer: unchecked},
	{defect: "deletions of absent objects succeed", rule: "S4", message: "write skew|not serializable", layer: func(b storage.Backend) *layer {
		return &layer{Backend: b, commit: func(ops []storage.Op) []storage.Op {
			kept := slices.Clone(ops)
			for i := range kept {
				kept[i].Present = false
			}
			return kept
		}}
	}},
	{defect: "missing changes", rule: "S5", message: "does not reach|does not continue", layer: func(b storage.Backend) *layer {
		return &layer{Backend: b, event: func(_ bool, ev *resourcepb.WatchEvent) *resourcepb.WatchEvent {
			if ev.GetUpsert().GetResource().GetId().GetName() == "the end" {
				return nil
			}
			return ev
		}}
	}},
	{defect: "a gap between view and watch", rule: "S5", message: "does not continue|does not reach", store: func(s, _ *tables.Store, t target) tablestest.Store {
		return gap{s, t}
	}},
	{defect: "watches that start before the view", rule: "S5", message: "does not continue", store: func(s, _ *tables.Store, t target) tablestest.Store {
		return early{s, t}
	}},
	{defect: "changes of shared objects", rule: "S6", message: "a scan|was changed by the program", store: func(s, _ *tables.Store, t target) tablestest.Store {
		return changing{s, t}
	}},
	{defect: "changes of shared objects", rule: "S7", message: "was modified: it was|was changed by the program", store: func(s, _ *tables.Store, t target) tablestest.Store {
		return changing{s, t}
	}},
	{defect: "an incomplete relist", rule: "S8", message: "does not reach|does not continue|a View after watch ends", layer: func(b storage.Backend) *layer {
		return &layer{Backend: b, event: func(isRelist bool, ev *resourcepb.WatchEvent) *resourcepb.WatchEvent {
			if isRelist && strings.HasPrefix(ev.GetUpsert().GetResource().GetId().GetName(), "still-") {
				return nil
			}
			return ev
		}}
	}},
	{defect: "local writes missing after a relist", rule: "S8", message: "a View after watch ends|does not continue|does not reach", store: func(s, another *tables.Store, _ target) tablestest.Store {
		return lagging{s, another}
	}},
}

// unchecked drops the checks of a transaction.
func unchecked(b storage.Backend) *layer {
	return &layer{Backend: b, commit: func(ops []storage.Op) (kept []storage.Op) {
		for _, op := range ops {
			if op.Check == nil {
				kept = append(kept, op)
			}
		}
		return kept
	}}
}

// Every rule detects its broken stores.
func TestRulesDetectDefects(t *testing.T) {
	t.Parallel()
	rules := map[string]tablestest.Rule{}
	found := map[string]bool{}
	for _, r := range tablestest.Rules() {
		rules[r.Name] = r
	}
	for _, d := range defects {
		found[d.rule] = true
		t.Run(d.rule+"/"+d.defect, func(t *testing.T) {
			t.Parallel()
			h := tablestest.Harness{Harness: stores.Memory}
			if d.rule == "S9" {
				h.Harness = stores.SQLite
			}
			if d.layer != nil {
				h.Layer = func(b storage.Backend) storage.Backend { return d.layer(b) }
			}
			if d.store != nil {
				h.OpenStore = func(ctx context.Context, b storage.Backend, all ...tables.AnyTable) (tablestest.Store, error) {
					s, err := tables.Open(ctx, b, all...)
					if err != nil {
						return nil, err
					}
					another, err := tables.Open(ctx, &layer{Backend: b, delayEvents: true}, all...)
					return &broken{d.store(s, another, all[0].(target)), s, another}, err
				}
			}
			// Some rules report a defect when their time ends. A busy machine needs more of it to get that far.
			var err error
			for _, h.Timeout = range []time.Duration{5 * time.Second, time.Minute} {
				err = tablestest.Check(t, h, rules[d.rule])
				if err != nil && regexp.MustCompile(d.message).MatchString(err.Error()) {
					return
				}
			}
			t.Errorf("the rule returned %v, expected %q", err, d.message)
		})
	}
	for name := range rules {
		if !found[name] {
			t.Errorf("rule %s has no defect", name)
		}
	}
}

// target is the suite's table.
type target = *tables.Table[*wrapperspb.Int64Value]

// broken is a broken store that also closes the stores it is made of.
type broken struct {
	tablestest.Store
	one, other *tables.Store
}

func (b *broken) Close() error {
	b.other.Close()
	return b.one.Close()
}

// lagging reads views from another copy.
type lagging struct {
	*tables.Store
	copy *tables.Store
}

func (s lagging) View(ctx context.Context, fn func(*tables.View) error, opts ...tables.ViewOption) error {
	return s.copy.View(ctx, fn, opts...)
}

// eventual ignores the options of views.
type eventual struct{ *tables.Store }

func (s eventual) View(ctx context.Context, fn func(*tables.View) error, _ ...tables.ViewOption) error {
	return s.Store.View(ctx, fn)
}

// gap commits a change between the view and the watch.
type gap struct {
	*tables.Store
	t target
}

func (s gap) ViewAndWatch(ctx context.Context, fn func(*tables.View) error, filters ...tables.Filter) (*tables.Watch, error) {
	if fn != nil {
		if err := s.View(ctx, fn); err != nil {
			return nil, err
		}
	}
	if err := create(ctx, s.Store, s.t); err != nil {
		return nil, err
	}
	return s.Store.ViewAndWatch(ctx, nil, filters...)
}

// early opens the watch before a change that the view includes.
type early struct {
	*tables.Store
	t target
}

func (s early) ViewAndWatch(ctx context.Context, fn func(*tables.View) error, filters ...tables.Filter) (*tables.Watch, error) {
	w, err := s.Store.ViewAndWatch(ctx, nil, filters...)
	if err != nil || fn == nil {
		return w, err
	}
	if err := create(ctx, s.Store, s.t); err != nil {
		return nil, err
	}
	return w, s.View(ctx, fn)
}

var created atomic.Int64

// create creates an object with a new name.
func create(ctx context.Context, s *tables.Store, t target) error {
	return s.Update(ctx, func(tx *tables.Tx) error {
		return t.Put(tx, &typed.Object[*wrapperspb.Int64Value]{
			ID:   t.ID(&resourcepb.Tenancy{Partition: "default", Namespace: "default"}, fmt.Sprint("created-", created.Add(1))),
			Data: wrapperspb.Int64(1),
		})
	})
}

// changing modifies an object that it has read, after each View.
type changing struct {
	*tables.Store
	t target
}

func (s changing) View(ctx context.Context, fn func(*tables.View) error, opts ...tables.ViewOption) error {
	if err := s.Store.View(ctx, fn, opts...); err != nil {
		return err
	}
	return s.Store.View(ctx, func(v *tables.View) error {
		all, err := s.t.List(v)
		if len(all) > 0 {
			all[0].Data.Value += 1000
		}
		return err
	})
}

// layer is a backend that modifies commits and events.
type layer struct {
	storage.Backend
	delayEvents bool // each event is delivered at the next one
	commit      func([]storage.Op) []storage.Op
	event       func(isRelist bool, ev *resourcepb.WatchEvent) *resourcepb.WatchEvent // isRelist: the event belongs to a list after the first one
	watches     atomic.Int64
}

func (l *layer) As(target any) bool {
	transactor, ok := target.(*storage.Transactor)
	if ok {
		*transactor = l
	}
	return ok
}

func (l *layer) Commit(ctx context.Context, ops []storage.Op) ([]*resourcepb.Resource, error) {
	tx, _ := storage.As[storage.Transactor](l.Backend)
	if l.commit != nil {
		ops = l.commit(ops)
	}
	return tx.Commit(ctx, ops)
}

func (l *layer) MaxOps() int {
	tx, _ := storage.As[storage.Transactor](l.Backend)
	return tx.MaxOps()
}

func (l *layer) WatchList(ctx context.Context, typ storage.UnversionedType, tenancy *resourcepb.Tenancy, prefix string) (storage.Watch, error) {
	w, err := l.Backend.WatchList(ctx, typ, tenancy, prefix)
	if err != nil {
		return nil, err
	}
	return &layerWatch{Watch: w, Bookmarker: w.(storage.Bookmarker), layer: l, number: int(l.watches.Add(1))}, nil
}

type layerWatch struct {
	storage.Watch
	storage.Bookmarker
	layer  *layer
	number int
	held   *resourcepb.WatchEvent
}

func (w *layerWatch) Next(ctx context.Context) (*resourcepb.WatchEvent, error) {
	for {
		ev, err := w.Watch.Next(ctx)
		if err != nil {
			return nil, err
		}
		snapshot := w.number == 1 && w.held == nil
		if ev.GetEndOfSnapshot() != nil {
			w.held = ev
			return ev, nil
		}
		if w.layer.event != nil && !snapshot && ev.GetBookmark() == nil {
			if ev = w.layer.event(w.number > 1 && w.held == nil, ev); ev == nil {
				continue
			}
		}
		if w.layer.delayEvents && !snapshot {
			ev, w.held = w.held, ev
			if ev.GetEndOfSnapshot() != nil {
				continue
			}
		}
		return ev, nil
	}
}
