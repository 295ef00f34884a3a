package postgres

import (
	"testing"

	"pgregory.net/rapid"
)

func parse(t testing.TB, text string) *snapshot {
	t.Helper()
	s, err := parseSnapshot(text)
	if err != nil {
		t.Fatalf("parseSnapshot(%q): %v", text, err)
	}
	return s
}

func TestSnapshotText(t *testing.T) {
	t.Parallel()
	for _, text := range []string{"1:1:", "10:20:", "10:20:10,14,19", "9223372036854775800:9223372036854775807:9223372036854775806"} {
		if got := parse(t, text).String(); got != text {
			t.Errorf("parsed and printed again, %q is %q", text, got)
		}
	}
	for _, text := range []string{"", "1", "1:2", "2:1:", "1:2:x", "1:9:3,3", "1:9:4,3", "5:9:4", "5:9:9", "-1:2:", "1:2:1,", "1:99999999999999999999:"} {
		if _, err := parseSnapshot(text); err == nil {
			t.Errorf("parseSnapshot(%q): no error", text)
		}
	}
}

func TestSnapshotSees(t *testing.T) {
	t.Parallel()
	s := parse(t, "10:20:10,14,19")
	for xid, want := range map[uint64]bool{9: true, 10: false, 11: true, 14: false, 15: true, 19: false, 20: false, 21: false} {
		if s.sees(xid) != want {
			t.Errorf("sees(%d) = %v", xid, !want)
		}
	}
}

// universe is larger than any transaction id that drawSnapshot draws.
const universe = 40

func drawSnapshot(t *rapid.T, label string) *snapshot {
	s := &snapshot{xmin: rapid.Uint64Range(1, 20).Draw(t, label+" xmin")}
	s.xmax = s.xmin + rapid.Uint64Range(0, 15).Draw(t, label+" length")
	for xid := s.xmin; xid < s.xmax; xid++ {
		if rapid.Bool().Draw(t, label+" in flight") {
			s.inFlight = append(s.inFlight, xid)
		}
	}
	return s
}

func TestCoversIsInclusion(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		a, b := drawSnapshot(t, "a"), drawSnapshot(t, "b")
		want := true
		for xid := range uint64(universe) {
			want = want && (!b.sees(xid) || a.sees(xid))
		}
		// Between xmax and the next running transaction there is nothing to see, so covers may only err on the careful side.
		if a.covers(b) && !want {
			t.Fatalf("%v covers %v, which sees more", a, b)
		}
		if want && !a.covers(b) && b.xmax <= a.xmax {
			t.Fatalf("%v does not cover %v, which sees less", a, b)
		}
	})
}

func TestUnionAndAdding(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		a, b := drawSnapshot(t, "a"), drawSnapshot(t, "b")
		one := rapid.Uint64Range(1, universe-1).Draw(t, "one")
		both, more := a.union(b), a.adding(one)
		for _, s := range []*snapshot{both, more} {
			if again, err := parseSnapshot(s.String()); err != nil || again.String() != s.String() {
				t.Fatalf("%v does not read back: %v, %v", s, again, err)
			}
		}
		for xid := range uint64(universe) {
			if want := a.sees(xid) || b.sees(xid); both.sees(xid) != want {
				t.Fatalf("the union of %v and %v is %v, which sees %d: %v", a, b, both, xid, !want)
			}
			if want := a.sees(xid) || xid == one; more.sees(xid) != want {
				t.Fatalf("%v with %d is %v, which sees %d: %v", a, one, more, xid, !want)
			}
		}
	})
}

func FuzzParseSnapshot(f *testing.F) {
	f.Add("10:20:10,14,19")
	f.Add("1:1:")
	f.Fuzz(func(t *testing.T, text string) {
		s, err := parseSnapshot(text)
		if err != nil {
			return
		}
		again, err := parseSnapshot(s.String())
		if err != nil || again.String() != s.String() {
			t.Fatalf("%q: printed as %q, which does not read back", text, s)
		}
	})
}
