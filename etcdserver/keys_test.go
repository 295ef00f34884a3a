package etcdserver

import (
	"bytes"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/ashlar-dev/storage/driver/key"
	"github.com/ashlar-dev/storage/resourcepb"
)

// storedKey generates keys that can be stored, often long ones that reach the splits.
var storedKey = rapid.Custom(func(t *rapid.T) []byte {
	k := rapid.SampledFrom([]string{
		"", "/registry/", strings.Repeat("a", partSize-2), strings.Repeat("é", partSize-2), strings.Repeat("x", maxKeySize-3),
	}).Draw(t, "prefix")
	for range rapid.IntRange(0, 4).Draw(t, "more") {
		k += rapid.SampledFrom([]string{"\x01", "*", "/", "=", "a", "\x7f", "é", "\ud7ff", "\ue000", "\U0010ffff"}).Draw(t, "character")
	}
	return []byte(k)
}).Filter(func(k []byte) bool {
	_, err := idOf(k)
	return err == nil && len(k) > 0
})

// anyBytes generates bounds of ranges, often near a key.
func anyBytes(near []byte) *rapid.Generator[[]byte] {
	return rapid.Custom(func(t *rapid.T) []byte {
		b := slices.Clone(rapid.OneOf(rapid.Just(near), storedKey).Draw(t, "key"))
		for range rapid.IntRange(0, 2).Draw(t, "changes") {
			end := rapid.SampledFrom([]string{"", "\x00", "\xff", "\xc3", "\xed\xa0", "\xf4\x90", "\x80", "é", "z"}).Draw(t, "end")
			b = append(b[:len(b)-rapid.IntRange(0, min(4, len(b))).Draw(t, "cut")], end...)
		}
		return b
	})
}

func TestKeysKeepTheirOrderAndTheirBytes(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		a, b := storedKey.Draw(t, "a"), storedKey.Draw(t, "b")
		idA, errA := idOf(a)
		idB, errB := idOf(b)
		if errA != nil || errB != nil {
			t.Fatal(errA, errB)
		}
		if got := key.Of(idA).Compare(key.Of(idB)); got != bytes.Compare(a, b) {
			t.Fatalf("%q and %q compare as %d", a, b, got)
		}
		if !bytes.Equal(keyOf(idA), a) {
			t.Fatalf("%q came back as %q", a, keyOf(idA))
		}
	})
}

// A range contains the same keys as in etcd, whatever bytes bound it.
func TestSpansHoldWhatRangesDo(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		k := storedKey.Draw(t, "stored")
		from := anyBytes(k).Draw(t, "from")
		to := rapid.OneOf(anyBytes(k), rapid.SampledFrom([][]byte{nil, {0}})).Draw(t, "to")
		if len(from) == 0 {
			from = []byte{0}
		}
		id, err := idOf(k)
		if err != nil {
			t.Fatal(err)
		}
		span, ok := requestRange(from, to)
		in := ok && key.Of(id).Compare(key.Of(span.From)) >= 0 && key.Of(id).Compare(key.Of(span.To)) < 0
		if in != within(k, from, to) {
			t.Fatalf("%q between %q and %q: %v", k, from, to, in)
		}
		for _, part := range []string{
			span.From.GetTenancy().GetPartition(), span.To.GetName(), span.From.GetName(), span.To.GetTenancy().GetNamespace(),
		} {
			if len(part) > partSize+2 {
				t.Fatalf("a bound has a part of %d bytes", len(part))
			}
		}
	})
}

func TestSpansFromWhatIsNoKey(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		key, from string
		in        bool
	}{{"a", "a\x00", false}, {"a\x01", "a\x00", true}, {"\ue000", "\xed\xa0", true}, {"\ud7ff", "\xed\xa0", false}} {
		span, ok := requestRange([]byte(c.from), []byte{0})
		if in := ok && key.Of(idAt(c.key)).Compare(key.Of(span.From)) >= 0; in != c.in {
			t.Errorf("%q from %q on: %v", c.key, c.from, in)
		}
	}
}

// A client may send any bytes as a bound, longer than every key or ending within a character.
func TestBoundsOfLongBytes(t *testing.T) {
	t.Parallel()
	long := strings.Repeat("x", maxKeySize-2)
	for _, b := range []string{
		long + "é\xc3", long + "x\xc3\xc3", long + "xé", long + "\xf4\x8f\xbf\xbf", strings.Repeat("\U0010ffff", 1000), long + long,
	} {
		for _, id := range []*resourcepb.ID{lowerBound([]byte(b)), lowerBound([]byte(b + "\x00")), lowerBound([]byte(b + "\xff"))} {
			if len(id.GetName()) > partSize+2 {
				t.Errorf("the bound of %.10q has a name of %d bytes", b, len(id.GetName()))
			}
		}
	}
}

func TestKeysThatCannotBeStored(t *testing.T) {
	t.Parallel()
	for _, k := range []string{"a\x00b", "\xff", strings.Repeat("a", maxKeySize+1), strings.Repeat("a", partSize-1) + "é"} {
		if _, err := idOf([]byte(k)); err == nil {
			t.Errorf("%.20q can be stored", k)
		}
	}
}
