package key

import (
	"bytes"
	"strings"
	"testing"

	"github.com/ashlar-dev/storage"
)

// clean makes a legal part of a key of any text.
func clean(s string) string { return strings.ReplaceAll(strings.ToValidUTF8(s, "\u00e9"), "\x00", "") }

func cleanKey(parts ...string) Key {
	return Key{clean(parts[0]), clean(parts[1]), clean(parts[2]), clean(parts[3]), clean(parts[4])}
}

// Two keys never meet, their bytes are in the order of their parts, and come back as the key.
func FuzzKeys(f *testing.F) {
	f.Add("g", "k", "p", "n", "a", "g", "k", "p", "n", "a")
	f.Add("a", "", "", "", "", "", "a", "", "", "")
	f.Add("a", "b", "", "", "", "a\x01", "", "", "", "")
	f.Add("g", "k", "p", "n", "\U0010ffff", "g", "k", "p", "n", "\uffff")
	f.Fuzz(func(t *testing.T, g1, k1, p1, n1, name1, g2, k2, p2, n2, name2 string) {
		a, b := cleanKey(g1, k1, p1, n1, name1), cleanKey(g2, k2, p2, n2, name2)
		if a.Compare(b) != bytes.Compare(a.Bytes(), b.Bytes()) || (a == b) != bytes.Equal(a.Bytes(), b.Bytes()) {
			t.Errorf("%v and %v compare as %d, their bytes as %d", a, b, a.Compare(b), bytes.Compare(a.Bytes(), b.Bytes()))
		}
		if a.Is(b.Bytes()) != (a == b) || !a.Is(a.Bytes()) {
			t.Errorf("%v is taken for %v: %v", b, a, a.Is(b.Bytes()))
		}
		if got, err := Parse(a.Bytes()); err != nil || got != a {
			t.Errorf("%v came back as %v, %v", a, got, err)
		}
	})
}

// Stored bytes are the key that they are read as, or refused.
func FuzzParse(f *testing.F) {
	f.Add([]byte("g\x00k\x00p\x00n\x00name"))
	f.Add([]byte("\x00\x00\x00\x00"))
	f.Add([]byte("\xff\x00\x00\x00\x00\x00"))
	f.Fuzz(func(t *testing.T, b []byte) {
		k, err := Parse(b)
		if err == nil && (!bytes.Equal(k.Bytes(), b) || !k.Is(b)) {
			t.Errorf("%q is read as %v", b, k)
		}
	})
}

// All that matches a filter lies in its range; where that is exact, nothing else does.
func FuzzPrefix(f *testing.F) {
	f.Add("g", "k", "p", "n", "a", "g", "k", "p", "n", "ab", byte(0))
	f.Add("g", "k", "p", "n", "a", "g", "l", "q", "m", "ab", byte(7))
	f.Add("g", "k", "p", "n", "\U0010ffff", "g", "k", "p", "n\x01", "", byte(4))
	f.Fuzz(func(t *testing.T, g1, k1, p1, n1, prefix, g2, k2, p2, n2, name string, wild byte) {
		filter := Filter{clean(g1), clean(k1), clean(p1), clean(n1), clean(prefix)}
		for i, unit := range []*string{&filter.Namespace, &filter.Partition, &filter.Kind, &filter.Group} {
			if wild>>i&1 == 1 && (unit != &filter.Group || filter.Kind == storage.Wildcard) {
				*unit = storage.Wildcard
			}
		}
		k := cleanKey(g2, k2, p2, n2, name)
		begins, exact := filter.Prefix()
		end := PrefixEnd(begins)
		within := bytes.Compare(k.Bytes(), begins) >= 0 && (end == nil || bytes.Compare(k.Bytes(), end) < 0)
		if within != bytes.HasPrefix(k.Bytes(), begins) {
			t.Errorf("%q to %q is not what begins with the former: %v", begins, end, k)
		}
		if match := filter.Match(&k); match && !within || exact && match != within {
			t.Errorf("%v matches %+v: %v, but is in its range: %v (exact: %v)", k, filter, match, within, exact)
		}
	})
}

// Where a filter says to go on, from any bytes, lies no match before, and a match may lie at it.
func FuzzSeek(f *testing.F) {
	f.Add("g", "k", "p", "n", "a", "g", "k", "p", "n", "ab", byte(4), []byte("g\x00k\x00p\x00n\x00ab\x00"))
	f.Add("g", "k", "p", "n", "a", "g", "l", "q", "m", "ab", byte(12), []byte("g\x00\x00\x00\x00\x00"))
	f.Add("g", "k", "p", "n", "\U0010ffff", "g", "k", "p", "n\x01", "", byte(15), []byte("g\x00k\xff\xff"))
	f.Fuzz(func(t *testing.T, g1, k1, p1, n1, prefix, g2, k2, p2, n2, name string, wild byte, at []byte) {
		filter := Filter{clean(g1), clean(k1), clean(p1), clean(n1), clean(prefix)}
		for i, unit := range []*string{&filter.Group, &filter.Kind, &filter.Partition, &filter.Namespace} {
			if wild>>i&1 == 1 {
				*unit = storage.Wildcard
			}
		}
		checkSeek(t, &filter, at, cleanKey(g2, k2, p2, n2, name))
	})
}
