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
	"github.com/ashlar-dev/storage/resourcepb"
	"github.com/ashlar-dev/storage/typed"
	"github.com/ashlar-dev/storage/typed/tables"
	"github.com/ashlar-dev/storage/typed/tables/tablestest"
)

// defects are stores each of which breaks a rule.
var defects = []struct {
	bug   string
	rule  string
	says  string
	layer func(b storage.Backend) *layer                            // around the backend
	store func(s, another *tables.Store, t target) tablestest.Store // around the store
}{
	{bug: "commits have no ends", rule: "S1", says: "a part of a commit|of 8 objects|says that more follows", layer: func(b storage.Backend) *layer {
		return &layer{Backend: b, event: func(_ bool, ev *resourcepb.WatchEvent) *resourcepb.WatchEvent {
			ev.More = false
			return ev
		}}
	}},
	{bug: "views of a copy that lags", rule: "S2", says: "a View shows", store: func(s, another *tables.Store, _ target) tablestest.Store {
		return lagging{s, another}
	}},
	{bug: "linearizable views that are not", rule: "S3", says: "a Linearizable View shows", store: func(s, _ *tables.Store, _ target) tablestest.Store {
		return eventual{s}
	}},
	{bug: "what is read is not compared", rule: "S4", says: "write skew|not serializable", layer: func(b storage.Backend) *layer {
		return &layer{Backend: b, commit: func(ops []storage.Op) (kept []storage.Op) {
			for _, op := range ops {
				if op.Check == nil {
					kept = append(kept, op)
				}
			}
			return kept
		}}
	}},
	{bug: "what has to be there may be gone", rule: "S4", says: "write skew|not serializable", layer: func(b storage.Backend) *layer {
		return &layer{Backend: b, commit: func(ops []storage.Op) []storage.Op {
			kept := slices.Clone(ops)
			for i := range kept {
				kept[i].Present = false
			}
			return kept
		}}
	}},
	{bug: "changes that are not told", rule: "S5", says: "does not come to|does not continue", layer: func(b storage.Backend) *layer {
		return &layer{Backend: b, event: func(_ bool, ev *resourcepb.WatchEvent) *resourcepb.WatchEvent {
			if ev.GetUpsert().GetResource().GetId().GetName() == "the end" {
				return nil
			}
			return ev
		}}
	}},
	{bug: "a gap between view and watch", rule: "S5", says: "does not continue|does not come to", store: func(s, _ *tables.Store, t target) tablestest.Store {
		return gap{s, t}
	}},
	{bug: "watches that begin before the view", rule: "S5", says: "does not continue|comes again", store: func(s, _ *tables.Store, t target) tablestest.Store {
		return early{s, t}
	}},
	{bug: "objects that are changed", rule: "S6", says: "a look at all objects|was changed by the program", store: func(s, _ *tables.Store, t target) tablestest.Store {
		return changing{s, t}
	}},
	{bug: "objects that are changed", rule: "S7", says: "has changed: it was|was changed by the program", store: func(s, _ *tables.Store, t target) tablestest.Store {
		return changing{s, t}
	}},
	{bug: "a second list that leaves something out", rule: "S8", says: "does not come to|does not continue|a View after ends", layer: func(b storage.Backend) *layer {
		return &layer{Backend: b, event: func(again bool, ev *resourcepb.WatchEvent) *resourcepb.WatchEvent {
			if again && strings.HasPrefix(ev.GetUpsert().GetResource().GetId().GetName(), "still-") {
				return nil
			}
			return ev
		}}
	}},
	{bug: "own writes that a list has not", rule: "S8", says: "a View after ends|does not continue|does not come to", store: func(s, another *tables.Store, _ target) tablestest.Store {
		return lagging{s, another}
	}},
}

// Every rule has a broken store, which it finds.
func TestEveryRuleFindsItsDefects(t *testing.T) {
	t.Parallel()
	rules := map[string]tablestest.Rule{}
	found := map[string]bool{}
	for _, r := range tablestest.Rules() {
		rules[r.Name] = r
	}
	for _, d := range defects {
		found[d.rule] = true
		t.Run(d.rule+"/"+d.bug, func(t *testing.T) {
			t.Parallel()
			h := at(memory)
			h.Patience = 5 * time.Second
			if d.layer != nil {
				handles := h.Handles
				h.Handles = func(t testing.TB) func(context.Context) (storage.Backend, error) {
					open := handles(t)
					return func(ctx context.Context) (storage.Backend, error) {
						b, err := open(ctx)
						return d.layer(b), err
					}
				}
			}
			if d.store != nil {
				h.Store = func(ctx context.Context, b storage.Backend, described ...tables.AnyTable) (tablestest.Store, error) {
					s, err := tables.Open(ctx, b, described...)
					if err != nil {
						return nil, err
					}
					another, err := tables.Open(ctx, &layer{Backend: b, late: true}, described...)
					return &both{d.store(s, another, described[0].(target)), s, another}, err
				}
			}
			err := tablestest.Check(t, h, rules[d.rule])
			if err == nil || !regexp.MustCompile(d.says).MatchString(err.Error()) {
				t.Errorf("found %v, want %q", err, d.says)
			}
		})
	}
	for name := range rules {
		if !found[name] {
			t.Errorf("there is no defect for %s", name)
		}
	}
}

// target is the table of the suite.
type target = *tables.Table[*wrapperspb.Int64Value]

// both closes a broken store and those that it is made of.
type both struct {
	tablestest.Store
	one, other *tables.Store
}

func (b *both) Close() error {
	b.other.Close()
	return b.one.Close()
}

// lagging views another copy.
type lagging struct {
	*tables.Store
	copy *tables.Store
}

func (s lagging) View(ctx context.Context, fn func(*tables.View) error, opts ...tables.ViewOption) error {
	return s.copy.View(ctx, fn, opts...)
}

// eventual forgets the options of views.
type eventual struct{ *tables.Store }

func (s eventual) View(ctx context.Context, fn func(*tables.View) error, _ ...tables.ViewOption) error {
	return s.Store.View(ctx, fn)
}

// gap lets something happen between the view and the watch.
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

// early opens the watch before something happens that the view shows.
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

// create creates an object of a new name.
func create(ctx context.Context, s *tables.Store, t target) error {
	return s.Update(ctx, func(tx *tables.Tx) error {
		return t.Put(tx, &typed.Object[*wrapperspb.Int64Value]{
			ID:   t.ID(&resourcepb.Tenancy{Partition: "default", Namespace: "default"}, fmt.Sprint("created-", created.Add(1))),
			Data: wrapperspb.Int64(1),
		})
	})
}

// changing changes an object that it has read, after each View.
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

// layer is a backend that changes what goes through it.
type layer struct {
	storage.Backend
	late    bool // its events come with the next ones
	commit  func([]storage.Op) []storage.Op
	event   func(again bool, ev *resourcepb.WatchEvent) *resourcepb.WatchEvent // again: of a list that is not the first
	watches atomic.Int64
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
		if w.layer.late && !snapshot {
			ev, w.held = w.held, ev
			if ev.GetEndOfSnapshot() != nil {
				continue
			}
		}
		return ev, nil
	}
}
