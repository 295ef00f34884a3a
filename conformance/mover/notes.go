package mover

import (
	"bytes"
	"errors"
	"strings"
	"testing"

	"github.com/ashlar-dev/storage"
	"github.com/ashlar-dev/storage/driver"
	"github.com/ashlar-dev/storage/resourcepb"
)

// notes writes, reads and deletes notes through two handles, at their revisions and at others.
func notes(t testing.TB, one, other store) {
	ctx := limited(t)
	if value, revision, err := one.ReadNote(ctx, "note"); err != nil || revision != "" || len(value) > 0 {
		t.Fatalf("no note: got %q, %q, %v", value, revision, err)
	}
	r1 := must[string](t)(one.WriteNote(ctx, "note", []byte("a"), ""))
	if _, err := other.WriteNote(ctx, "note", []byte("b"), ""); !errors.Is(err, storage.ErrCASFailure) {
		t.Errorf("creating it again: got %v, expected ErrCASFailure", err)
	}
	large := bytes.Repeat([]byte("0123456789abcde\n"), driver.MaxNote/16)
	r2 := must[string](t)(other.WriteNote(ctx, "note", large, r1))
	if r1 == "" || r2 == "" || r1 == r2 {
		t.Errorf("revisions %q and %q must differ and not be empty", r1, r2)
	}
	if _, err := one.WriteNote(ctx, "note", []byte("c"), r1); !errors.Is(err, storage.ErrCASFailure) {
		t.Errorf("an old revision: got %v, expected ErrCASFailure", err)
	}
	if value, revision, err := one.ReadNote(ctx, "note"); err != nil || revision != r2 || !bytes.Equal(value, large) {
		t.Errorf("the other handle's note: got %d bytes, %q, %v, expected %d bytes, %q", len(value), revision, err, len(large), r2)
	}
	must[string](t)(one.WriteNote(ctx, "second", []byte("x"), ""))
	if err := one.DeleteNote(ctx, "note", r1); !errors.Is(err, storage.ErrCASFailure) {
		t.Errorf("deleting an old revision: got %v, expected ErrCASFailure", err)
	}
	ok(t, one.DeleteNote(ctx, "note", r2))
	ok(t, one.DeleteNote(ctx, "note", r2))
	if _, revision, err := other.ReadNote(ctx, "note"); err != nil || revision != "" {
		t.Errorf("after the deletion: got %q, %v", revision, err)
	}
	r3 := must[string](t)(one.WriteNote(ctx, "note", nil, ""))
	if _, revision, err := other.ReadNote(ctx, "note"); err != nil || revision != r3 || r3 == "" {
		t.Errorf("an empty note: got %q, %v, expected %q", revision, err, r3)
	}
}

// noteLimits writes the longest name and value that there are, and ones beyond.
func noteLimits(t testing.TB, one, other store) {
	ctx := limited(t)
	longest := strings.Repeat("a-z-", driver.MaxNoteName/4)
	largest := bytes.Repeat([]byte{0, 0xff}, driver.MaxNote/2)
	revision := must[string](t)(one.WriteNote(ctx, longest, largest, ""))
	if value, now, err := other.ReadNote(ctx, longest); err != nil || now != revision || !bytes.Equal(value, largest) {
		t.Errorf("the largest note: got %d bytes, %q, %v, expected %d bytes, %q", len(value), now, err, len(largest), revision)
	}
	if _, err := one.WriteNote(ctx, longest, append(largest, 0), revision); !errors.Is(err, storage.ErrTooLarge) {
		t.Errorf("a note with one byte too many: got %v, expected ErrTooLarge", err)
	}
	if _, now, err := other.ReadNote(ctx, longest); err != nil || now != revision {
		t.Errorf("after a write that was refused: got %q, %v, expected %q", now, err, revision)
	}
	ok(t, other.DeleteNote(ctx, longest, revision))
	for _, name := range []string{"", longest + "z", "Note", "a b", "a/b", "a1", "\u00e9", driver.FenceNote} {
		_, _, read := one.ReadNote(ctx, name)
		_, write := one.WriteNote(ctx, name, nil, "")
		for what, err := range map[string]error{"reading": read, "writing": write, "deleting": one.DeleteNote(ctx, name, "")} {
			if !errors.Is(err, storage.ErrInvalid) {
				t.Errorf("%s a note named %q: got %v, expected ErrInvalid", what, name, err)
			}
		}
	}
}

// hidden demands that lists and watches show neither notes nor the fence.
func hidden(t testing.TB, one, _ store) {
	ctx := limited(t)
	watch := must[storage.Watch](t)(one.WatchList(ctx, everything, everywhere(), ""))
	defer watch.Close()
	next := func() *resourcepb.WatchEvent { return must[*resourcepb.WatchEvent](t)(watch.Next(ctx)) }
	if ev := next(); ev.GetEndOfSnapshot() == nil {
		t.Fatalf("the watch of an empty store begins with %v", ev)
	}
	revision := must[string](t)(one.WriteNote(ctx, "note", []byte("a"), ""))
	must[string](t)(one.WriteNote(ctx, "note", []byte("b"), revision))
	one.close(t, "elsewhere")
	ok(t, one.SetFence(ctx, nil))
	must[*resourcepb.Resource](t)(one.WriteCAS(ctx, resource("marker")))
	if ev := next(); ev.GetUpsert().GetResource().GetId().GetName() != "marker" {
		t.Errorf("the watch shows more than what was written: %v", ev)
	}
	if list := contents(t, one); len(list) != 1 {
		t.Errorf("the list holds %d resources, expected the one that was written", len(list))
	}
}
