package migrate

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"

	"google.golang.org/protobuf/encoding/protowire"

	"github.com/ashlar-dev/storage/internal/test/fixture"
	"github.com/ashlar-dev/storage/resourcepb"
)

// An interrupted listing must not look like a complete one, because the missing resources would be deleted from the target. The
// contexts of a pass do not end at the same moment.
func TestListingThatIsCutOff(t *testing.T) {
	t.Parallel()
	for _, kind := range local {
		t.Run(kind.name, func(t *testing.T) {
			t.Parallel()
			b := fixture.Open(t, kind.url(t))
			const n = 100
			for i := range n {
				fill(t, b, []*resourcepb.Resource{small(fmt.Sprint("r", i), "")})
			}
			ctx, cancel := context.WithCancel(limited(t))
			defer cancel()
			l, err := list(ctx, b, 1, retrier{})
			if err != nil {
				t.Fatal(err)
			}
			defer l.close()
			cancel()
			for i := 0; ; i++ {
				e, err := l.next(limited(t))
				if errors.Is(err, context.Canceled) {
					break
				}
				if err != nil {
					t.Fatal(err)
				}
				if e == nil {
					if i < n {
						t.Fatalf("the listing was interrupted after %d of %d resources, and claims to be complete", i, n)
					}
					break
				}
			}
		})
	}
}

// Encodings of another order are equal resources. A listing that repeats a key is out of order.
func TestEntries(t *testing.T) {
	t.Parallel()
	all := entries(t, 2)
	a, b := all[0], all[1]
	other := *a
	tally := newTally()
	_, _, n := protowire.ConsumeField(a.Data)
	other.Data, other.res = slices.Concat(a.Data[n:], a.Data[:n]), nil
	for i, c := range []struct {
		a, b *entry
		want Kind
	}{{a, a, ""}, {a, &other, ""}, {a, nil, Missing}, {nil, b, Extra}, {a, b, Different}} {
		kind, err := tally.add(c.a, c.b)
		if err != nil || kind != c.want {
			t.Errorf("case %d: %q, %v, expected %q", i, kind, err, c.want)
		}
	}
	if r := tally.r; r.Source != 4 || r.Target != 4 || r.Missing != 1 || r.Extra != 1 || r.Different != 1 {
		t.Errorf("got %+v", r)
	}
	l := &listing{page: []entry{*a, *b, *b}}
	for i := range 3 {
		if _, err := l.next(limited(t)); (err != nil) != (i == 2) {
			t.Errorf("entry %d: %v", i, err)
		}
	}
	s := newStats(nil)
	s.countEntry(nil)
	s.countEntry(a)
	if s.count.Load() != 1 {
		t.Errorf("%d entries counted, expected 1", s.count.Load())
	}
}
