package sqlite

import (
	"bytes"
	"errors"
	"testing"

	"pgregory.net/rapid"

	"github.com/ashlar-dev/storage"
)

func TestVersionsAndCursors(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		m := position{
			seq: rapid.OneOf(rapid.Int64Range(0, 300), rapid.Int64Min(0)).Draw(t, "seq"),
			tag: rapid.OneOf(rapid.Int64Range(0, 300), rapid.Int64Range(0, 1<<48-1)).Draw(t, "tag"),
		}
		if got, ok := parseVersion(m.version()); !ok || got != m {
			t.Fatalf("position %v is encoded as %q, which decodes to %v, %v", m, m.version(), got, ok)
		}
		var s source
		if got, err := s.Decode(s.Encode(m)); err != nil || got != m {
			t.Fatalf("position %v is encoded as %q, which decodes to %v, %v", m, s.Encode(m), got, err)
		}
	})
}

func TestTagsFit(t *testing.T) {
	t.Parallel()
	for range 1000 {
		if tag := randomTag(); tag < 0 || tag >= 1<<48 {
			t.Fatalf("tag %d is out of range", tag)
		}
	}
}

// Only text returned by version is a version. Otherwise a wrong text could be accepted for a stored version.
func FuzzVersion(f *testing.F) {
	f.Add("")
	f.Add(position{}.version())
	f.Add(position{1, 2}.version())
	f.Add(position{1 << 62, 1<<48 - 1}.version() + "\n")
	f.Add("AAAAAAAAAAAA")
	f.Fuzz(func(t *testing.T, text string) {
		if m, ok := parseVersion(text); ok && m.version() != text {
			t.Errorf("%q is accepted as %q", text, m.version())
		}
	})
}

// Malformed cursors are refused. Accepted ones are the encoding of their position.
func FuzzCursor(f *testing.F) {
	var s source
	f.Add([]byte{})
	f.Add(s.Encode(position{}))
	f.Add(s.Encode(position{1, 2}))
	f.Add(append(s.Encode(position{1, 2}), '\n'))
	f.Add(make([]byte, 20))
	f.Fuzz(func(t *testing.T, b []byte) {
		m, err := s.Decode(b)
		switch {
		case err == nil && !bytes.Equal(s.Encode(m), b):
			t.Errorf("%q is accepted as %q", b, s.Encode(m))
		case err != nil && !errors.Is(err, storage.ErrInvalid):
			t.Errorf("%q: got error %v, expected ErrInvalid", b, err)
		}
	})
}
