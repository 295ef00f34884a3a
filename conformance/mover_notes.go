package conformance

import (
	"bytes"
	"errors"
	"strings"

	"github.com/ashlar-dev/storage"
	"github.com/ashlar-dev/storage/driver"
	"github.com/ashlar-dev/storage/resourcepb"
)

// moverNotes writes, reads and deletes notes through two handles, at their revisions and at other ones.
func moverNotes(s *suite) {
	one, other := movables(s)
	ctx := s.ctx
	if value, revision, err := one.ReadNote(ctx, "note"); err != nil || revision != "" || len(value) > 0 {
		s.Fatalf("no note: got %q, %q, %v", value, revision, err)
	}
	r1 := must[string](s)(one.WriteNote(ctx, "note", []byte("a"), ""))
	if _, err := other.WriteNote(ctx, "note", []byte("b"), ""); !errors.Is(err, storage.ErrCASFailure) {
		s.Errorf("creating it again: got %v, expected ErrCASFailure", err)
	}
	large := bytes.Repeat([]byte("0123456789abcde\n"), driver.MaxNote/16)
	r2 := must[string](s)(other.WriteNote(ctx, "note", large, r1))
	if r1 == "" || r2 == "" || r1 == r2 {
		s.Errorf("revisions %q and %q must differ and not be empty", r1, r2)
	}
	if _, err := one.WriteNote(ctx, "note", []byte("c"), r1); !errors.Is(err, storage.ErrCASFailure) {
		s.Errorf("an old revision: got %v, expected ErrCASFailure", err)
	}
	if value, revision, err := one.ReadNote(ctx, "note"); err != nil || revision != r2 || !bytes.Equal(value, large) {
		s.Errorf("the other handle's note: got %d bytes, %q, %v, expected %d bytes, %q", len(value), revision, err, len(large), r2)
	}
	must[string](s)(one.WriteNote(ctx, "second", []byte("x"), ""))
	if err := one.DeleteNote(ctx, "note", r1); !errors.Is(err, storage.ErrCASFailure) {
		s.Errorf("deleting an old revision: got %v, expected ErrCASFailure", err)
	}
	s.noError("DeleteNote", one.DeleteNote(ctx, "note", r2))
	s.noError("DeleteNote", one.DeleteNote(ctx, "note", r2))
	if _, revision, err := other.ReadNote(ctx, "note"); err != nil || revision != "" {
		s.Errorf("after the deletion: got %q, %v", revision, err)
	}
	r3 := must[string](s)(one.WriteNote(ctx, "note", nil, ""))
	if _, revision, err := other.ReadNote(ctx, "note"); err != nil || revision != r3 || r3 == "" {
		s.Errorf("an empty note: got %q, %v, expected %q", revision, err, r3)
	}
}

// moverNoteLimits writes a name and a value of the maximum length, and longer ones.
func moverNoteLimits(s *suite) {
	one, other := movables(s)
	ctx := s.ctx
	longest := strings.Repeat("a-z-", driver.MaxNoteName/4)
	largest := bytes.Repeat([]byte{0, 0xff}, driver.MaxNote/2)
	revision := must[string](s)(one.WriteNote(ctx, longest, largest, ""))
	if value, now, err := other.ReadNote(ctx, longest); err != nil || now != revision || !bytes.Equal(value, largest) {
		s.Errorf("the largest note: got %d bytes, %q, %v, expected %d bytes, %q", len(value), now, err, len(largest), revision)
	}
	if _, err := one.WriteNote(ctx, longest, append(largest, 0), revision); !errors.Is(err, storage.ErrTooLarge) {
		s.Errorf("a note with one byte too many: got %v, expected ErrTooLarge", err)
	}
	if _, now, err := other.ReadNote(ctx, longest); err != nil || now != revision {
		s.Errorf("after a write that was refused: got %q, %v, expected %q", now, err, revision)
	}
	s.noError("DeleteNote", other.DeleteNote(ctx, longest, revision))
	for _, name := range []string{"", longest + "z", "Note", "a b", "a/b", "a1", "\u00e9", driver.FenceNote} {
		_, _, read := one.ReadNote(ctx, name)
		_, write := one.WriteNote(ctx, name, nil, "")
		for what, err := range map[string]error{"reading": read, "writing": write, "deleting": one.DeleteNote(ctx, name, "")} {
			if !errors.Is(err, storage.ErrInvalid) {
				s.Errorf("%s a note named %q: got %v, expected ErrInvalid", what, name, err)
			}
		}
	}
}

// moverHidden demands that lists and watches return neither notes nor the fence.
func moverHidden(s *suite) {
	one, _ := movables(s)
	ctx := s.ctx
	watch := must[storage.Watch](s)(one.WatchList(ctx, anything, anywhere, ""))
	defer watch.Close()
	next := func() *resourcepb.WatchEvent { return must[*resourcepb.WatchEvent](s)(watch.Next(ctx)) }
	if ev := next(); ev.GetEndOfSnapshot() == nil {
		s.Fatalf("the watch of an empty store begins with %v", ev)
	}
	revision := must[string](s)(one.WriteNote(ctx, "note", []byte("a"), ""))
	must[string](s)(one.WriteNote(ctx, "note", []byte("b"), revision))
	one.close(s, "elsewhere")
	s.noError("SetFence", one.SetFence(ctx, nil))
	must[*resourcepb.Resource](s)(one.WriteCAS(ctx, thingNamed("marker")))
	if ev := next(); ev.GetUpsert().GetResource().GetId().GetName() != "marker" {
		s.Errorf("the watch shows an event that no caller made: %v", ev)
	}
	if list := listAll(s, one); len(list) != 1 {
		s.Errorf("the list holds %d resources, expected only the written one", len(list))
	}
}
