package tables_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/anypb"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/ashlar-dev/storage"
	"github.com/ashlar-dev/storage/internal/test/fixture"
	"github.com/ashlar-dev/storage/resourcepb"
	"github.com/ashlar-dev/storage/typed"
	"github.com/ashlar-dev/storage/typed/tables"
)

// mebibyte is the limit for a resource, and for the resources of a transaction together.
const mebibyte = 1 << 20

type note = typed.Object[*wrapperspb.StringValue]

var (
	notes        = tables.NewTable[*wrapperspb.StringValue](&resourcepb.Type{Group: "demo", GroupVersion: "v1", Kind: "Note"})
	guardedNotes = notes.WithGuard()
)

// sized returns a new object with a given stored size.
func sized(t *testing.T, name string, size int) *note {
	t.Helper()
	o := &note{ID: notes.ID(home, name)}
	ulid := strings.Repeat("0", 26) // the length of assigned ULIDs
	for missing := size; missing != 0; {
		o.Data = wrapperspb.String(strings.Repeat("x", len(o.Data.GetValue())+missing))
		payload, err := anypb.New(o.Data)
		if err != nil {
			t.Fatal(err)
		}
		stored := &resourcepb.Resource{Id: proto.CloneOf(o.ID), Generation: ulid, Data: payload}
		stored.Id.Uid = ulid
		missing = size - proto.Size(stored)
	}
	return o
}

func putNote(ctx context.Context, s *tables.Store, table *tables.Table[*wrapperspb.StringValue], o *note) error {
	return s.Update(ctx, func(tx *tables.Tx) error { return table.Put(tx, o) })
}

// deleteNotes deletes objects in one transaction.
func deleteNotes(ctx context.Context, s *tables.Store, names ...string) error {
	return s.Update(ctx, func(tx *tables.Tx) error {
		for _, name := range names {
			if err := notes.Delete(tx, notes.ID(home, name)); err != nil {
				return err
			}
		}
		return nil
	})
}

// An object of exactly 1 MiB can be created, changed and deleted, as on the backend. A larger one is refused without advice to use a Batch.
func TestLargestObject(t *testing.T) {
	onEach(t, func(ctx context.Context, t *testing.T, url string) {
		s := open(t, url, notes)
		if err := putNote(ctx, s, notes, sized(t, "a", mebibyte)); err != nil {
			t.Fatal("create:", err)
		}
		if err := s.Update(ctx, func(tx *tables.Tx) error {
			o, err := notes.Edit(tx, notes.ID(home, "a"))
			if err != nil {
				return err
			}
			o.Data.Value = "y" + o.Data.Value[1:]
			return notes.Put(tx, o)
		}); err != nil {
			t.Error("change:", err)
		}
		if err := deleteNotes(ctx, s, "a"); err != nil {
			t.Error("delete:", err)
		}
		err := putNote(ctx, s, notes, sized(t, "a", mebibyte+1))
		if !errors.Is(err, storage.ErrTooLarge) || strings.Contains(err.Error(), "Batch") {
			t.Errorf("an object with one byte more: %v, expected ErrTooLarge without advice to use a Batch", err)
		}
	})
}

// Every created object can be deleted, whatever its size and whatever other objects are deleted with it.
func TestDeletionsIgnoreSize(t *testing.T) {
	onEach(t, func(ctx context.Context, t *testing.T, url string) {
		const maxSize = 1 << 16
		s := open(t, url+"?max-size="+fmt.Sprint(maxSize), notes)
		if err := putNote(ctx, s, notes, sized(t, "a", maxSize)); err != nil {
			t.Fatal(err)
		}
		full := sized(t, "b", maxSize/2)
		full.Metadata = map[string]string{"m": strings.Repeat("m", maxSize/2-12)}
		if err := putNote(ctx, s, notes, full); err != nil {
			t.Fatal(err)
		}
		for _, name := range []string{"a", "b"} {
			if err := deleteNotes(ctx, s, name); err != nil {
				t.Error(err)
			}
		}
		s = open(t, url, notes)
		for _, name := range []string{"c", "d"} {
			if err := putNote(ctx, s, notes, sized(t, name, mebibyte-1000)); err != nil {
				t.Fatal(err)
			}
		}
		if err := deleteNotes(ctx, s, "c", "d"); err != nil {
			t.Error("two at once:", err)
		}
		remaining, err := fixture.Open(t, url).List(ctx, storage.StrongConsistency, fixture.AllTypes, fixture.AllTenancies, "")
		if err != nil || len(remaining) != 0 {
			t.Errorf("%d resources remain, %v, expected none", len(remaining), err)
		}
	})
}

// The guard of a table counts towards the size of a transaction.
func TestGuardCountsTowardsSize(t *testing.T) {
	onEach(t, func(ctx context.Context, t *testing.T, url string) {
		s := open(t, url, guardedNotes)
		err := putNote(ctx, s, guardedNotes, sized(t, "a", mebibyte))
		if !errors.Is(err, storage.ErrTooLarge) || !strings.Contains(err.Error(), "the Update") {
			t.Errorf("an object of the maximum size together with a guard: %v, expected ErrTooLarge", err)
		}
		if err := putNote(ctx, s, guardedNotes, sized(t, "a", mebibyte-200)); err != nil {
			t.Error(err)
		}
	})
}
