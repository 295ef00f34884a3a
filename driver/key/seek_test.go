package key

import (
	"bytes"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"github.com/ashlar-dev/storage"
)

// drawFilter draws a filter; any of its units may be a wildcard.
func drawFilter(t *rapid.T) Filter {
	f := Filter{part(t, "group"), part(t, "kind"), part(t, "partition"), part(t, "namespace"), part(t, "prefix")}
	for _, unit := range []*string{&f.Group, &f.Kind, &f.Partition, &f.Namespace} {
		if rapid.Bool().Draw(t, "wildcard") {
			*unit = storage.Wildcard
		}
	}
	return f
}

// near draws a key whose units often equal a filter's units.
func near(t *rapid.T, f *Filter) Key {
	k := draw(t, "key")
	for i, unit := range []string{f.Group, f.Kind, f.Partition, f.Namespace} {
		if unit != storage.Wildcard && rapid.Bool().Draw(t, "as the filter") {
			*[]*string{&k.Group, &k.Kind, &k.Partition, &k.Namespace}[i] = unit
		}
	}
	if rapid.Bool().Draw(t, "prefix") {
		k.Name = f.NamePrefix + k.Name
	}
	return k
}

func TestSeekSkipsNoMatch(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		f := drawFilter(t)
		start := near(t, &f)
		at := start.Bytes()
		if rapid.Bool().Draw(t, "just after") {
			at = append(at, 0)
		}
		checkSeek(t, &f, at, near(t, &f))
	})
}

// checkSeek checks the contract of Seek from any bytes, with an arbitrary key.
func checkSeek(t interface{ Errorf(string, ...any) }, f *Filter, at []byte, k Key) {
	from, ok := f.Seek(at)
	if ok && bytes.Compare(from, at) < 0 {
		t.Errorf("%+v: from %q back to %q", *f, at, from)
	}
	if f.Match(&k) && bytes.Compare(k.Bytes(), at) >= 0 && (!ok || bytes.Compare(k.Bytes(), from) < 0) {
		t.Errorf("%+v: from %q to %q (%v), which skips %q", *f, at, from, ok, k.Bytes())
	}
	if !ok {
		return
	}
	// The bound is tight: a key with these bytes would match.
	bound, err := Parse(from)
	if err != nil || !f.Match(&bound) {
		t.Errorf("%+v: from %q to %q, which no matching key can have: %v", *f, at, from, err)
	}
	if again, ok := f.Seek(from); !ok || !bytes.Equal(again, from) {
		t.Errorf("%+v: from %q to %q and then to %q (%v)", *f, at, from, again, ok)
	}
}

// A reader that seeks past keys that do not match finds the same keys as a scan, with at most two probes for each skipped run.
func TestSeekFindsAllMatches(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		f := drawFilter(t)
		var keys []Key
		for range rapid.IntRange(0, 40).Draw(t, "keys") {
			keys = append(keys, near(t, &f))
		}
		slices.SortFunc(keys, Key.Compare)
		keys = slices.Compact(keys)
		var scanned, found []Key
		runs, probes, between := 0, 0, true
		for _, k := range keys {
			if f.Match(&k) {
				scanned = append(scanned, k)
			}
		}
		for i, k := range keys {
			if f.Match(&k) {
				between = true
			} else if between || i > 0 && (k.Group != keys[i-1].Group || k.Kind != keys[i-1].Kind || k.Partition != keys[i-1].Partition) {
				runs++
				between = false
			}
		}
		at := []byte(nil)
		for {
			from, ok := f.Seek(at)
			if !ok {
				break
			}
			if probes++; probes > 4*len(keys)+4 {
				t.Fatalf("%+v: %d probes among %v without an end", f, probes, keys)
			}
			i, _ := slices.BinarySearchFunc(keys, from, func(k Key, from []byte) int { return bytes.Compare(k.Bytes(), from) })
			if i == len(keys) {
				break
			}
			if at = keys[i].Bytes(); f.Match(&keys[i]) {
				found = append(found, keys[i])
				at = append(at, 0)
			}
		}
		if !slices.Equal(scanned, found) {
			t.Fatalf("%+v: a scan finds %v, Seek %v", f, scanned, found)
		}
		if maxProbes := 2*runs + len(scanned) + 2; probes > maxProbes {
			t.Fatalf("%+v: %d probes for %d runs and %d matches in %v", f, probes, runs, len(scanned), keys)
		}
	})
}

func TestSeek(t *testing.T) {
	t.Parallel()
	const all = storage.Wildcard
	for name, test := range map[string]struct {
		filter   Filter
		at, want string // want: "none" for nothing
	}{
		"the beginning":           {Filter{"g", "k", all, "shop", ""}, "", "g\x00k\x00\x00shop\x00"},
		"a match":                 {Filter{"g", "k", all, "shop", "a"}, "g\x00k\x00p\x00shop\x00ab", "g\x00k\x00p\x00shop\x00ab"},
		"just after a match":      {Filter{"g", "k", all, "shop", "a"}, "g\x00k\x00p\x00shop\x00ab\x00", "g\x00k\x00p\x00shop\x00ab\x01"},
		"before the namespace":    {Filter{"g", "k", all, "shop", ""}, "g\x00k\x00p\x00a\x00x", "g\x00k\x00p\x00shop\x00"},
		"behind the namespace":    {Filter{"g", "k", all, "shop", ""}, "g\x00k\x00p\x00z\x00x", "g\x00k\x00p\x01\x00shop\x00"},
		"before the prefix":       {Filter{"g", "k", "p", all, "b"}, "g\x00k\x00p\x00n\x00a", "g\x00k\x00p\x00n\x00b"},
		"behind the prefix":       {Filter{"g", "k", "p", all, "b"}, "g\x00k\x00p\x00n\x00c", "g\x00k\x00p\x00n\x01\x00b"},
		"behind two wildcards":    {Filter{"g", all, all, "n", ""}, "g\x00k\x00p\x00o\x00c", "g\x00k\x00p\x01\x00n\x00"},
		"behind an earlier unit":  {Filter{all, all, "p", "n", ""}, "g\x00k\x00q\x00o\x00c", "g\x00k\x01\x00p\x00n\x00"},
		"behind all":              {Filter{"g", "k", all, "n", ""}, "g\x00l\x00p\x00n\x00a", "none"},
		"behind all, no wildcard": {Filter{"g", "k", "p", "n", "a"}, "g\x00k\x00p\x00n\x00b", "none"},
		"a part of a key":         {Filter{"g", "k", all, "n", "a"}, "g\x00k\x00p", "g\x00k\x00p\x00n\x00a"},
		"no key":                  {Filter{"g", "k", all, "n", "a"}, "\xff", "none"},
	} {
		got, ok := test.filter.Seek([]byte(test.at))
		if !ok {
			got = []byte("none")
		}
		if string(got) != test.want {
			t.Errorf("%s: got %q, expected %q", name, got, test.want)
		}
	}
}
