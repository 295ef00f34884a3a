package tables_test

import (
	"context"
	"errors"
	"testing"

	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/ashlar-dev/storage"
	"github.com/ashlar-dev/storage/internal/test/fixture"
	"github.com/ashlar-dev/storage/typed"
	"github.com/ashlar-dev/storage/typed/tables"
)

// While the copy cannot prove how far it is, the result of a function is unverified. Update returns the reason instead of the function's error.
func TestUnverifiedError(t *testing.T) {
	onEach(t, func(ctx context.Context, t *testing.T, url string) {
		other := open(t, url, numbers)
		b := &unwatchable{Backend: fixture.Open(t, url), openFailed: make(chan struct{}, 1), writeRefused: make(chan struct{}, 10)}
		s, err := tables.Open(ctx, b, numbers)
		if err != nil {
			t.Fatal(err)
		}
		defer s.Close()
		b.disabled.Store(true)
		create(ctx, t, other, map[string]int64{"a": 1}) // the copy does not get this change
		<-b.openFailed
		cancelled, cancel := context.WithCancel(ctx)
		err = s.Update(cancelled, func(tx *tables.Tx) error {
			defer cancel()
			_, err := numbers.Get(tx, id("a"))
			return err
		})
		if !errors.Is(err, context.Canceled) || errors.Is(err, storage.ErrNotFound) {
			t.Errorf("Update returned %v, expected only the context's error", err)
		}
	})
}

// An index by version finds a local write before the watch delivers it.
func TestIndexByVersion(t *testing.T) {
	onEach(t, func(ctx context.Context, t *testing.T, url string) {
		byVersion := tables.Index[*wrapperspb.Int64Value, string]{Name: "version", Values: func(o *number) []string { return []string{o.Version} }}
		table := tables.NewTable[*wrapperspb.Int64Value](numberType, byVersion)
		s := open(t, url, table)
		for value := range int64(2) {
			update(ctx, t, s, func(tx *tables.Tx) error {
				o, err := table.Edit(tx, id("a"))
				if errors.Is(err, storage.ErrNotFound) {
					return table.Put(tx, put("a", value))
				}
				if err != nil {
					return err
				}
				o.Data.Value = value
				return table.Put(tx, o)
			})
			if err := s.View(ctx, func(v *tables.View) error {
				o, err := table.Get(v, id("a"))
				if err != nil {
					return err
				}
				found, err := table.List(v, byVersion.Is(o.Version))
				if err != nil || len(found) != 1 {
					t.Errorf("the index has %d objects of version %s, %v", len(found), o.Version, err)
				}
				return nil
			}); err != nil {
				t.Fatal(err)
			}
		}
	})
}

// An object that a transaction deletes and recreates keeps its uid and gets the new group version.
func TestRecreateWithOtherGroupVersion(t *testing.T) {
	onEach(t, func(ctx context.Context, t *testing.T, url string) {
		s := open(t, url, numbers)
		create(ctx, t, s, map[string]int64{"a": 1})
		update(ctx, t, s, func(tx *tables.Tx) error {
			if err := numbers.Delete(tx, id("a")); err != nil {
				return err
			}
			o := put("a", 2)
			o.ID.Type.GroupVersion = "v2"
			return numbers.Put(tx, o)
		})
		var got string
		if err := s.View(ctx, func(v *tables.View) error {
			o, err := numbers.Get(v, id("a"))
			if err == nil {
				got = o.ID.GetType().GetGroupVersion()
			}
			return err
		}, tables.Linearizable); err != nil {
			t.Fatal(err)
		}
		if got != "v2" {
			t.Errorf("the group version is %q, expected v2", got)
		}
	})
}

// An Update that fails after it has made changes writes nothing, also over watches without bookmarks.
func TestFailedUpdateWithoutBookmarks(t *testing.T) {
	onEach(t, func(ctx context.Context, t *testing.T, url string) {
		b := fixture.Open(t, url)
		s, err := tables.Open(ctx, &noBookmarks{b}, books)
		if err != nil {
			t.Fatal(err)
		}
		defer s.Close()
		stop := errors.New("stop")
		err = s.Update(ctx, func(tx *tables.Tx) error {
			if err := books.Put(tx, &typed.Object[*wrapperspb.StringValue]{ID: books.ID(fixture.Tenancy, "a"), Data: wrapperspb.String("x")}); err != nil {
				return err
			}
			return stop
		})
		all, _ := b.List(ctx, storage.StrongConsistency, fixture.AllTypes, fixture.AllTenancies, "")
		if !errors.Is(err, stop) || len(all) != 0 {
			t.Errorf("%v: %v", err, all)
		}
	})
}
