package migrate

import (
	"context"
	"errors"
	"testing"
	"time"

	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/ashlar-dev/storage"
	"github.com/ashlar-dev/storage/driver"
	"github.com/ashlar-dev/storage/internal/test/fixture"
	"github.com/ashlar-dev/storage/resourcepb"
)

// listed is a store without snapshots, with a hook at each listing.
type listed struct {
	storage.Backend
	lists int
	at    func(n int) error // called before the nth listing, from 1
}

func (l *listed) List(ctx context.Context, c storage.ReadConsistency, typ storage.UnversionedType, tenancy *resourcepb.Tenancy, prefix string) ([]*resourcepb.Resource, error) {
	l.lists++
	if err := l.at(l.lists); err != nil {
		return nil, err
	}
	return l.Backend.List(ctx, c, typ, tenancy, prefix)
}

// losing loses a store's first n listings.
func losing(n int) func(int) error {
	return func(i int) error {
		if i <= n {
			return storage.ErrCompacted
		}
		return nil
	}
}

// A copy repeats a listing that the source has dropped, a limited number of times.
func TestLostListings(t *testing.T) {
	t.Parallel()
	for lost, want := range map[int]int{0: 1, 1: 2, maxPasses - 1: maxPasses, maxPasses: maxPasses} {
		from := &listed{Backend: fixture.Open(t, "mem://"), at: losing(lost)}
		write(t, from, small("a", "1"))
		m := newMigration(from, fixture.Open(t, "mem://"), nil)
		_, err := m.copyAll(limited(t))
		if from.lists != want || errors.Is(err, storage.ErrCompacted) != (lost == maxPasses) || err != nil && lost < maxPasses {
			t.Errorf("%d listings lost: %d listings, %v", lost, from.lists, err)
		}
	}
}

// A cutover without bookmarks ends with a comparison that finds no difference, while the source is closed. It gives up after some comparisons.
func TestPassesOfTheCutover(t *testing.T) {
	t.Parallel()
	forever := func(int) bool { return true }
	for name, c := range map[string]struct {
		lost   int                 // listings that the source drops
		ttl    bool                // a resource is written again, because its last write may be later than the target's
		meddle func(pass int) bool // another program writes to the target
		open   bool                // a user opens the source
		passes int
		err    error
	}{
		"equal":                     {passes: 1},
		"renewed":                   {ttl: true, passes: 2},
		"some listings lost":        {lost: maxPasses - 1, passes: maxPasses},
		"all listings lost":         {lost: maxPasses, passes: maxPasses, err: storage.ErrCompacted},
		"written once meanwhile":    {meddle: func(pass int) bool { return pass == 1 }, passes: 2},
		"written at the last pass":  {meddle: func(pass int) bool { return pass < maxPasses }, passes: maxPasses},
		"written always":            {meddle: forever, passes: maxPasses, err: ErrDiffers},
		"opened during the listing": {open: true, passes: 1, err: errOpened},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			from, to := &listed{Backend: fixture.Open(t, "mem://")}, fixture.Open(t, "mem://")
			res := small("a", "1")
			if c.ttl {
				res.Ttl = durationpb.New(time.Hour)
			}
			write(t, from, res)
			write(t, to, res)
			source := moverOf(t, from.Backend)
			lose := losing(c.lost)
			from.at = func(n int) error {
				if c.meddle != nil && c.meddle(n) {
					write(t, to, small("other", "1"))
				}
				if c.open {
					if err := source.SetFence(limited(t), nil); err != nil {
						t.Error(err)
					}
				}
				return lose(n)
			}
			m := newMigration(from, to, nil)
			m.gate = &gate{role: "source", store: source, fence: driver.Fence{Target: "target"}, mine: func(context.Context) error { return nil }}
			var r Result
			_, err := m.bringRest(limited(t), &r)
			if !errors.Is(err, c.err) || from.lists != c.passes {
				t.Errorf("%d passes, %v, expected %d, %v", from.lists, err, c.passes, c.err)
			}
			if err == nil && !r.Report.Equal() {
				t.Errorf("it ends with %v", r.Report)
			}
		})
	}
}
