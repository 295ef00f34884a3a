package sqlite

import (
	"errors"
	"testing"

	"pgregory.net/rapid"

	"github.com/ashlar-dev/storage"
	"github.com/ashlar-dev/storage/internal/cursor"
)

func TestVersionsAndCursors(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		m := mark{
			seq: rapid.OneOf(rapid.Int64Range(0, 300), rapid.Int64Min(0)).Draw(t, "seq"),
			tag: rapid.OneOf(rapid.Int64Range(0, 300), rapid.Int64Range(0, 1<<48-1)).Draw(t, "tag"),
		}
		if got, ok := parseVersion(m.version()); !ok || got != m {
			t.Fatalf("%v becomes %q and then %v, %v", m, m.version(), got, ok)
		}
		store := cursor.StoreID{1}
		if got, err := parseCursor(store, m.cursor(store)); err != nil || got != m {
			t.Fatalf("%v becomes %q and then %v, %v", m, m.cursor(store), got, err)
		}
		if _, err := parseCursor(cursor.StoreID{2}, m.cursor(store)); !errors.Is(err, storage.ErrCompacted) {
			t.Fatalf("a cursor of another store: %v, expected ErrCompacted", err)
		}
	})
}

func TestTagsFit(t *testing.T) {
	t.Parallel()
	for range 1000 {
		if tag := newTag(); tag < 0 || tag >= 1<<48 {
			t.Fatalf("tag %d", tag)
		}
	}
}

// Only what version returns is a version: of two texts for one version, one would be accepted wrongly.
func FuzzVersion(f *testing.F) {
	f.Add("")
	f.Add(mark{}.version())
	f.Add(mark{1, 2}.version())
	f.Add(mark{1 << 62, 1<<48 - 1}.version() + "\n")
	f.Add("AAAAAAAAAAAA")
	f.Fuzz(func(t *testing.T, text string) {
		if m, ok := parseVersion(text); ok && m.version() != text {
			t.Errorf("%q is taken for %q", text, m.version())
		}
	})
}

// Text that is no cursor is refused, whatever it is, and what is accepted is the cursor of its position.
func FuzzCursor(f *testing.F) {
	store := cursor.StoreID{1, 2, 3}
	f.Add("")
	f.Add(mark{}.cursor(store))
	f.Add(mark{1, 2}.cursor(store))
	f.Add(mark{1, 2}.cursor(store) + "\n")
	f.Add(cursor.Encode(cursor.Watch, store, nil))
	f.Add(cursor.Encode(cursor.Watch, store, make([]byte, 20)))
	f.Add(cursor.Encode(cursor.Snapshot, store, nil))
	f.Fuzz(func(t *testing.T, text string) {
		m, err := parseCursor(store, text)
		switch {
		case err == nil && m.cursor(store) != text:
			t.Errorf("%q is taken for %q", text, m.cursor(store))
		case err != nil && !errors.Is(err, storage.ErrInvalid) && !errors.Is(err, storage.ErrCompacted):
			t.Errorf("%q: %v, expected ErrInvalid or ErrCompacted", text, err)
		}
	})
}
