package key

import (
	"bytes"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/ashlar-dev/storage"
)

// part draws a part of a key from an alphabet with many prefixes and neighbours.
func part(t *rapid.T, label string) string {
	return string(rapid.SliceOfN(rapid.SampledFrom([]rune{'a', 'b', '/', '%', '\x01', ' ', 'é', '\U0010ffff'}), 0, 3).Draw(t, label))
}

func draw(t *rapid.T, label string) Key {
	return Key{part(t, label), part(t, label), part(t, label), part(t, label), part(t, label)}
}

func TestBytesSortLikeTuples(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		a, b := draw(t, "a"), draw(t, "b")
		byTuple := slices.Compare(
			[]string{a.Group, a.Kind, a.Partition, a.Namespace, a.Name},
			[]string{b.Group, b.Kind, b.Partition, b.Namespace, b.Name})
		if byBytes := bytes.Compare(a.Bytes(), b.Bytes()); byBytes != byTuple || a.Compare(b) != byTuple {
			t.Fatalf("the order by bytes is %d, by Compare %d, by tuples %d", byBytes, a.Compare(b), byTuple)
		}
		back, err := Parse(a.Bytes())
		if err != nil || back != a {
			t.Fatalf("got %v, %v, expected %v", back, err, a)
		}
		if Of(a.ID("uid", "v1")) != a {
			t.Fatalf("Of(ID) is %v, expected %v", Of(a.ID("uid", "v1")), a)
		}
	})
}

func TestParseRequiresFiveParts(t *testing.T) {
	t.Parallel()
	for _, text := range []string{"", "a", "a\x00b\x00c\x00d", "a\x00b\x00c\x00d\x00e\x00f"} {
		if k, err := Parse([]byte(text)); err == nil {
			t.Errorf("Parse(%q) returned %v, expected an error", text, k)
		}
	}
}

func TestPrefixContainsEveryMatch(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		k := draw(t, "key")
		f := Filter{k.Group, k.Kind, k.Partition, k.Namespace, k.Name[:len(k.Name)/2]}
		for i, unit := range []*string{&f.Kind, &f.Partition, &f.Namespace} {
			if rapid.Bool().Draw(t, "wildcard") {
				*unit = storage.Wildcard
				if i == 0 && rapid.Bool().Draw(t, "any group") {
					f.Group = storage.Wildcard
				}
			}
		}
		if !f.Match(&k) {
			t.Fatalf("%v does not match %v", f, k)
		}
		prefix, exact := f.Prefix()
		if !bytes.HasPrefix(k.Bytes(), prefix) {
			t.Fatalf("%q does not begin with %q", k.Bytes(), prefix)
		}
		if end := PrefixEnd(prefix); end != nil && bytes.Compare(k.Bytes(), end) >= 0 {
			t.Fatalf("%q is not before the end %q", k.Bytes(), end)
		}
		other := draw(t, "other")
		if exact && bytes.HasPrefix(other.Bytes(), prefix) != f.Match(&other) {
			t.Fatalf("the prefix %q of %v is exact, but disagrees with Match for %v", prefix, f, other)
		}
	})
}

func TestNamePrefixIsLiteral(t *testing.T) {
	t.Parallel()
	f := Filter{"g", "k", "", "", "a*"}
	if f.Match(&Key{"g", "k", "", "", "abc"}) || !f.Match(&Key{"g", "k", "", "", "a*c"}) {
		t.Error("a * in a name prefix is not matched literally")
	}
	empty := Filter{"g", "k", "", "", ""}
	if empty.Match(&Key{"g", "k", "p", "", "abc"}) {
		t.Error("an empty tenancy unit matches another one")
	}
}

func TestPrefixEnd(t *testing.T) {
	t.Parallel()
	for prefix, want := range map[string]string{"a": "b", "a\xff": "b", "a\x00": "a\x01"} {
		if got := PrefixEnd([]byte(prefix)); string(got) != want {
			t.Errorf("PrefixEnd(%q) is %q, expected %q", prefix, got, want)
		}
	}
	for _, prefix := range []string{"", "\xff", strings.Repeat("\xff", 3)} {
		if got := PrefixEnd([]byte(prefix)); got != nil {
			t.Errorf("PrefixEnd(%q) is %q, expected none", prefix, got)
		}
	}
}
