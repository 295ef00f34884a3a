package key

import (
	"bytes"
	"strings"
	"testing"

	"github.com/ashlar-dev/storage"
)

// clean turns any text into a valid part of a key.
func clean(s string) string { return strings.ReplaceAll(strings.ToValidUTF8(s, "\u00e9"), "\x00", "") }

func cleanKey(parts ...string) Key {
	return Key{clean(parts[0]), clean(parts[1]), clean(parts[2]), clean(parts[3]), clean(parts[4])}
}

// Different keys have different bytes in the order of their parts, and Parse restores each key.
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
		if a.EqualsBytes(b.Bytes()) != (a == b) || !a.EqualsBytes(a.Bytes()) {
			t.Errorf("%v.EqualsBytes(%v) is %v", a, b, a.EqualsBytes(b.Bytes()))
		}
		if got, err := Parse(a.Bytes()); err != nil || got != a {
			t.Errorf("Parse of the bytes of %v returned %v, %v", a, got, err)
		}
	})
}

// Parse either returns the key with exactly the given bytes or an error.
func FuzzParse(f *testing.F) {
	f.Add([]byte("g\x00k\x00p\x00n\x00name"))
	f.Add([]byte("\x00\x00\x00\x00"))
	f.Add([]byte("\xff\x00\x00\x00\x00\x00"))
	f.Fuzz(func(t *testing.T, b []byte) {
		k, err := Parse(b)
		if err == nil && (!bytes.Equal(k.Bytes(), b) || !k.EqualsBytes(b)) {
			t.Errorf("Parse(%q) returned %v", b, k)
		}
	})
}

// All keys that match a filter are in the range of its prefix; if the prefix is exact, no other key is.
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
			t.Errorf("the range %q to %q does not agree with the prefix for %v", begins, end, k)
		}
		if match := filter.Match(&k); match && !within || exact && match != within {
			t.Errorf("%v matches %+v: %v, is in the range: %v (exact: %v)", k, filter, match, within, exact)
		}
	})
}

// Seek, from any bytes, skips no match and returns bytes that can begin a match.
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
