package tables_test

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/ashlar-dev/storage"
	_ "github.com/ashlar-dev/storage/inmem"
	"github.com/ashlar-dev/storage/internal/test/fixture"
	"github.com/ashlar-dev/storage/resourcepb"
	_ "github.com/ashlar-dev/storage/sqlite"
	"github.com/ashlar-dev/storage/typed"
	"github.com/ashlar-dev/storage/typed/tables"
)

type number = typed.Object[*wrapperspb.Int64Value]

var (
	numberType = &resourcepb.Type{Group: "demo", GroupVersion: "v1", Kind: "Number"}
	byValue    = tables.Index[*wrapperspb.Int64Value, int64]{Name: "value", Values: func(o *number) []int64 { return []int64{o.Data.GetValue()} }}
	byDivisor  = tables.Index[*wrapperspb.Int64Value, int]{Name: "divisor", Values: divisors}
	numbers    = tables.NewTable[*wrapperspb.Int64Value](numberType, byValue, byDivisor)
	guarded    = numbers.WithGuard()
	home       = fixture.Tenancy
)

func divisors(o *number) (some []int) {
	for d := 2; d <= 5; d++ {
		if o.Data.GetValue()%int64(d) == 0 {
			some = append(some, d)
		}
	}
	return some
}

// stores counts the stores in memory, which live as long as the process.
var stores atomic.Int64

// onEach runs a test on each embedded backend.
func onEach(t *testing.T, test func(ctx context.Context, t *testing.T, url string)) {
	t.Parallel()
	for _, name := range []string{"mem", "sqlite"} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			url := "sqlite:" + filepath.Join(t.TempDir(), "store.db")
			if name == "mem" {
				url = fmt.Sprint("mem://store-", stores.Add(1))
			}
			test(fixture.Context(t), t, url)
		})
	}
}

// open opens a store on its own handle.
func open(t *testing.T, url string, all ...tables.AnyTable) *tables.Store {
	t.Helper()
	s, err := tables.Open(fixture.Context(t), fixture.Open(t, url), all...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Close() })
	return s
}

func id(name string) *resourcepb.ID { return numbers.ID(home, name) }

func put(name string, value int64) *number {
	return &number{ID: id(name), Data: wrapperspb.Int64(value)}
}

func update(ctx context.Context, t *testing.T, s *tables.Store, fn func(tx *tables.Tx) error) {
	t.Helper()
	if err := s.Update(ctx, fn); err != nil {
		t.Fatal(err)
	}
}

func create(ctx context.Context, t *testing.T, s *tables.Store, values map[string]int64) {
	t.Helper()
	update(ctx, t, s, func(tx *tables.Tx) error {
		for name, value := range values {
			if err := numbers.Put(tx, put(name, value)); err != nil {
				return err
			}
		}
		return nil
	})
}

// listNames returns the names of the listed objects.
func listNames(t *testing.T, r tables.Reader, queries ...tables.Query) string {
	t.Helper()
	found, err := numbers.List(r, queries...)
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, o := range found {
		names = append(names, o.ID.Name)
	}
	return strings.Join(names, " ")
}

func TestLifecycle(t *testing.T) {
	onEach(t, func(ctx context.Context, t *testing.T, url string) {
		s := open(t, url, numbers)
		create(ctx, t, s, map[string]int64{"a": 1})
		var first *number
		update(ctx, t, s, func(tx *tables.Tx) error {
			o, err := numbers.Edit(tx, id("a"))
			if err != nil {
				return err
			}
			first = o
			if o.Data.Value != 1 || o.ID.Uid == "" || o.Generation == "" || o.Version == "" {
				t.Errorf("the created object is %v", o)
			}
			o.Data.Value = 2
			if err := numbers.Put(tx, o); err != nil {
				return err
			}
			again, err := numbers.Get(tx, id("a"))
			if err != nil || again.Data.Value != 2 {
				t.Errorf("a transaction does not read its own write: %v, %v", again, err)
			}
			if names := listNames(t, tx, byValue.Is(2)); names != "a" {
				t.Errorf("a transaction does not find its own write by an index: %q", names)
			}
			return nil
		})
		err := s.Update(ctx, func(tx *tables.Tx) error {
			return numbers.Put(tx, &number{ID: first.ID, Version: "stale", Data: wrapperspb.Int64(3)})
		})
		if !errors.Is(err, storage.ErrCASFailure) {
			t.Errorf("put with an outdated version: %v, expected ErrCASFailure", err)
		}
		err = s.Update(ctx, func(tx *tables.Tx) error { return numbers.Put(tx, put("a", 3)) })
		if !errors.Is(err, typed.ErrExists) || !errors.Is(err, storage.ErrCASFailure) {
			t.Errorf("create of an existing object: %v, expected ErrExists", err)
		}
		update(ctx, t, s, func(tx *tables.Tx) error { return numbers.Delete(tx, id("a")) })
		err = s.Update(ctx, func(tx *tables.Tx) error { return numbers.Delete(tx, id("a")) })
		if !errors.Is(err, storage.ErrNotFound) {
			t.Errorf("second deletion: %v, expected ErrNotFound", err)
		}
		if remaining := fixture.Stored(t, fixture.Open(t, url), id("a")); remaining != nil {
			t.Errorf("stored after the deletion: %v", remaining)
		}
		create(ctx, t, s, map[string]int64{"a": 5})
		if err := s.View(ctx, func(v *tables.View) error {
			o, err := numbers.Get(v, id("a"))
			if err != nil || o.Data.Value != 5 || o.ID.Uid == first.ID.Uid {
				t.Errorf("the recreated object is %v, %v", o, err)
			}
			return nil
		}); err != nil {
			t.Fatal(err)
		}
	})
}

func TestQueries(t *testing.T) {
	onEach(t, func(ctx context.Context, t *testing.T, url string) {
		s := open(t, url, numbers)
		create(ctx, t, s, map[string]int64{"a": 6, "aa": -3, "b": 4, "c": 10, "d": 7})
		update(ctx, t, s, func(tx *tables.Tx) error {
			o, err := numbers.Edit(tx, id("d"))
			if err != nil {
				return err
			}
			a, err := numbers.Get(tx, id("a"))
			if err != nil {
				return err
			}
			o.Metadata, o.Owner = map[string]string{"k": "v"}, a.ID
			return numbers.Put(tx, o)
		})
		if err := s.View(ctx, func(v *tables.View) error {
			for _, c := range []struct {
				want    string
				queries []tables.Query
			}{
				{"a aa b c d", nil},
				{"a", []tables.Query{byValue.Is(6)}},
				{"", []tables.Query{byValue.Is(0)}},
				{"b a d c", []tables.Query{byValue.From(4)}},
				{"aa b", []tables.Query{byValue.To(6)}},
				{"b a", []tables.Query{byValue.Between(4, 7)}},
				{"", []tables.Query{byValue.Between(7, 4)}},
				{"a b c", []tables.Query{byDivisor.Is(2)}},
				{"a", []tables.Query{byDivisor.Is(2), byDivisor.Is(3)}},
				{"a aa b c", []tables.Query{tables.Or(byDivisor.Is(2), byDivisor.Is(3))}},
				{"a b c aa", []tables.Query{byDivisor.From(2)}},
				{"a aa", []tables.Query{tables.NamePrefix("a")}},
				{"aa", []tables.Query{tables.NamePrefix("a"), byValue.To(6)}},
				{"d", []tables.Query{tables.Metadata("k", "v")}},
				{"", []tables.Query{tables.Metadata("k", "w")}},
				{"d", []tables.Query{tables.Owner(id("a"))}},
				{"d", []tables.Query{tables.Not(tables.Or(byDivisor.From(2), tables.NamePrefix("x")))}},
				{"", []tables.Query{tables.Or()}},
				{"a aa b c d", []tables.Query{tables.And()}},
				{"a aa b c d", []tables.Query{tables.In(home)}},
				{"", []tables.Query{tables.In(&resourcepb.Tenancy{Partition: "*", Namespace: "none"})}},
			} {
				if got := listNames(t, v, c.queries...); got != c.want {
					t.Errorf("%v: %q, want %q", c.queries, got, c.want)
				}
			}
			other := tables.Index[*wrapperspb.Int64Value, string]{Name: "value"}
			if _, err := numbers.List(v, other.Is("x")); !errors.Is(err, storage.ErrInvalid) {
				t.Errorf("query by an index of another type: %v, expected ErrInvalid", err)
			}
			return nil
		}); err != nil {
			t.Fatal(err)
		}
	})
}

// Two stores increment one object concurrently, and no increment is lost.
func TestConcurrentCounters(t *testing.T) {
	onEach(t, func(ctx context.Context, t *testing.T, url string) {
		const rounds, writers = 40, 2
		first := open(t, url, numbers)
		create(ctx, t, first, map[string]int64{"n": 0})
		var wg sync.WaitGroup
		for _, s := range []*tables.Store{first, open(t, url, numbers)} {
			for range writers {
				wg.Go(func() {
					for range rounds {
						if err := s.Update(ctx, func(tx *tables.Tx) error {
							o, err := numbers.Edit(tx, id("n"))
							if err != nil {
								return err
							}
							o.Data.Value++
							return numbers.Put(tx, o)
						}); err != nil {
							t.Error(err)
							return
						}
					}
				})
			}
		}
		wg.Wait()
		if err := first.View(ctx, func(v *tables.View) error {
			o, err := numbers.Get(v, id("n"))
			if err == nil && o.Data.Value != 2*writers*rounds {
				t.Errorf("%d, want %d", o.Data.Value, 2*writers*rounds)
			}
			return err
		}, tables.Linearizable); err != nil {
			t.Fatal(err)
		}
	})
}

// Only one of several concurrent deletions of an object succeeds.
func TestDeletionSucceedsOnce(t *testing.T) {
	onEach(t, func(ctx context.Context, t *testing.T, url string) {
		s, other := open(t, url, numbers), open(t, url, numbers)
		for round := range 20 {
			name := fmt.Sprint("token-", round)
			create(ctx, t, s, map[string]int64{name: 1})
			var mu sync.Mutex
			var wg sync.WaitGroup
			took := 0
			for i := range 4 {
				wg.Go(func() {
					if err := []*tables.Store{s, other}[i%2].Update(ctx, func(tx *tables.Tx) error { return numbers.Delete(tx, id(name)) }); err == nil {
						mu.Lock()
						took++
						mu.Unlock()
					} else if !errors.Is(err, storage.ErrNotFound) {
						t.Error(err)
					}
				})
			}
			wg.Wait()
			if took != 1 {
				t.Fatalf("%d deletions succeeded", took)
			}
		}
	})
}

func TestBatch(t *testing.T) {
	onEach(t, func(ctx context.Context, t *testing.T, url string) {
		s := open(t, url, numbers)
		const many = 2500
		if err := s.Batch(ctx, func(b *tables.Batch) error {
			for i := range many {
				if err := b.Update(func(tx *tables.Tx) error { return numbers.Put(tx, put(fmt.Sprintf("n-%05d", i), int64(i))) }); err != nil {
					return err
				}
			}
			return nil
		}); err != nil {
			t.Fatal(err)
		}
		if err := s.View(ctx, func(v *tables.View) error {
			if n := len(strings.Fields(listNames(t, v))); n != many {
				t.Errorf("%d objects, want %d", n, many)
			}
			return nil
		}); err != nil {
			t.Fatal(err)
		}
		err := s.Update(ctx, func(tx *tables.Tx) error {
			_, err := numbers.List(tx)
			return errors.Join(err, numbers.Put(tx, put("one more", 1)))
		})
		if !errors.Is(err, storage.ErrTooLarge) || !strings.Contains(err.Error(), "Batch") {
			t.Errorf("a transaction that is too large: %v", err)
		}
		broken := errors.New("broken")
		err = s.Batch(ctx, func(b *tables.Batch) error {
			for i := range many {
				if err := b.Update(func(tx *tables.Tx) error { return numbers.Put(tx, put(fmt.Sprintf("m-%05d", i), 1)) }); err != nil {
					return err
				}
			}
			return broken
		})
		ended := (*tables.BatchError)(nil)
		if !errors.As(err, &ended) || !errors.Is(err, broken) || ended.CommittedUpdates == 0 || ended.CommittedUpdates >= many {
			t.Errorf("a failed batch: %v", err)
		}
		if err := s.View(ctx, func(v *tables.View) error {
			if n := len(strings.Fields(listNames(t, v, tables.NamePrefix("m-")))); n != ended.CommittedUpdates {
				t.Errorf("%d objects are stored, the error reports %d committed updates", n, ended.CommittedUpdates)
			}
			return nil
		}); err != nil {
			t.Fatal(err)
		}
	})
}

func TestViewAndWatch(t *testing.T) {
	onEach(t, func(ctx context.Context, t *testing.T, url string) {
		s, other := open(t, url, numbers), open(t, url, numbers)
		create(ctx, t, s, map[string]int64{"a": 1, "b": 2})
		var names string
		w, err := s.ViewAndWatch(ctx, func(v *tables.View) error {
			names = listNames(t, v)
			return nil
		}, numbers.Where(byDivisor.Is(2)))
		if err != nil {
			t.Fatal(err)
		}
		defer w.Close()
		if names != "a b" {
			t.Errorf("the view has %q", names)
		}
		create(ctx, t, other, map[string]int64{"c": 4, "d": 5, "e": 6})
		update(ctx, t, s, func(tx *tables.Tx) error {
			o, err := numbers.Edit(tx, id("b"))
			if err != nil {
				return err
			}
			o.Data.Value = 3
			return numbers.Put(tx, o)
		})
		update(ctx, t, s, func(tx *tables.Tx) error { return numbers.Delete(tx, id("a")) })
		if err := other.View(ctx, func(*tables.View) error { return nil }, tables.Linearizable); err != nil {
			t.Fatal(err)
		}
		update(ctx, t, other, func(tx *tables.Tx) error { return numbers.Delete(tx, id("e")) })
		var got []string
		for len(got) < 4 {
			ev, err := w.Next(ctx)
			if err != nil {
				t.Fatal(err)
			}
			c, ok := numbers.Event(ev)
			if !ok {
				t.Fatalf("an event of another table: %v", ev)
			}
			text := ""
			for _, o := range []*number{c.Old, c.New} {
				if o != nil {
					text += fmt.Sprint(o.ID.Name, o.Data.Value)
				}
				text += ">"
			}
			got = append(got, fmt.Sprint(text, ev.More))
		}
		slices.Sort(got[:2])
		if !slices.Contains(got[:2], ">c4>true") && !slices.Contains(got[:2], ">c4>false") || got[2] != "b2>b3>false" || got[3] != "e6>>false" {
			t.Errorf("events: %q", got)
		}
	})
}

// A list of a table with a guard conflicts with concurrent creations.
func TestGuardPreventsPhantoms(t *testing.T) {
	onEach(t, func(ctx context.Context, t *testing.T, url string) {
		const limit = 3
		var wg sync.WaitGroup
		stores := []*tables.Store{open(t, url, guarded), open(t, url, guarded)}
		for i := range 8 {
			wg.Go(func() {
				if err := stores[i%2].Update(ctx, func(tx *tables.Tx) error {
					all, err := guarded.List(tx)
					if err != nil || len(all) >= limit {
						return err
					}
					return guarded.Put(tx, put(fmt.Sprint("leader-", i), 1))
				}); err != nil {
					t.Error(err)
				}
			})
		}
		wg.Wait()
		if err := stores[0].View(ctx, func(v *tables.View) error {
			all, err := guarded.List(v)
			if len(all) != limit {
				t.Errorf("%d leaders, at most %d are allowed", len(all), limit)
			}
			return err
		}, tables.Linearizable); err != nil {
			t.Fatal(err)
		}
	})
}
