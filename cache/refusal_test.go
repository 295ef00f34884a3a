package cache_test

import (
	"errors"
	"sync"
	"testing"

	"github.com/ashlar-dev/storage"
	"github.com/ashlar-dev/storage/history"
	"github.com/ashlar-dev/storage/internal/test/fixture"
	"github.com/ashlar-dev/storage/resourcepb"
)

// Without bookmarks, the database answers for a key that it has returned. Concurrent readers never get an older value: an answer that removes
// one mark and adds the next leaves no gap between them.
func TestConcurrentReadsWithoutBookmarks(t *testing.T) {
	t.Parallel()
	g := newGate(t)
	c := newCache(t, noBookmarks{g}, nil)
	a := fixture.Write(t, c, fixture.Resource("a", "1"))
	fixture.Eventually(t, "the copy has the first write", func() bool {
		all, err := c.List(t.Context(), eventual, fixture.Type, fixture.Tenancy, "")
		return err == nil && len(all) == 1
	})
	defer g.hold()()
	fixture.Write(t, g.Backend, updated(a, "2"))
	expect(t, "a strong read", readData(t, c, strong, "a"), "2")
	var readers sync.WaitGroup
	for range 8 {
		readers.Go(func() {
			for range 500 {
				if got := readData(t, c, eventual, "a"); got != "2" {
					t.Errorf("an eventual read returned %q after a strong read had returned %q", got, "2")
					return
				}
			}
		})
	}
	readers.Wait()
}

// A refusal at the version that the copy has shows that the copy is behind. A caller that reads again before a retry gets the newer state.
func TestReadAfterRefusedWrite(t *testing.T) {
	t.Parallel()
	for name, try := range map[string]func(c storage.Backend, tx storage.Transactor, current *resourcepb.Resource) error{
		"write": func(c storage.Backend, _ storage.Transactor, current *resourcepb.Resource) error {
			_, err := c.WriteCAS(fixture.Context(t), updated(current, "mine"))
			return err
		},
		"deletion": func(c storage.Backend, _ storage.Transactor, current *resourcepb.Resource) error {
			return c.DeleteCAS(fixture.Context(t), current.GetId(), current.GetVersion())
		},
		"transaction": func(_ storage.Backend, tx storage.Transactor, current *resourcepb.Resource) error {
			_, err := tx.Commit(fixture.Context(t), []storage.Op{
				{Write: fixture.Resource("b", "mine")}, {Check: current.GetId(), Version: current.GetVersion()},
			})
			return err
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			g := newGate(t)
			c := newCache(t, g, nil)
			a := fixture.Write(t, c, fixture.Resource("a", "1"))
			expect(t, "a strong read", readData(t, c, strong, "a"), "1")
			release := g.hold()
			fixture.Write(t, g.Backend, updated(a, "2"))
			tx, _ := storage.As[storage.Transactor](storage.Backend(c))
			if err := try(c, tx, a); !errors.Is(err, storage.ErrCASFailure) {
				t.Errorf("got %v, expected ErrCASFailure", err)
			}
			got := callBeforeRelease(t, g, release, func() string { return readData(t, c, eventual, "a") })
			expect(t, "a read after the refusal", got, "2")
		})
	}
}

// A committed check for an absent key shows that the key is absent.
func TestReadAfterCheck(t *testing.T) {
	t.Parallel()
	g := newGate(t)
	c := newCache(t, g, nil)
	a := fixture.Write(t, c, fixture.Resource("a", "1"))
	expect(t, "a strong read", readData(t, c, strong, "a"), "1")
	release := g.hold()
	fixture.Remove(t, g.Backend, a)
	tx, _ := storage.As[storage.Transactor](storage.Backend(c))
	if _, err := tx.Commit(t.Context(), []storage.Op{{Check: a.GetId()}, {Write: fixture.Resource("b", "")}}); err != nil {
		t.Fatal(err)
	}
	got := callBeforeRelease(t, g, release, func() string { return readData(t, c, eventual, "a") })
	expect(t, "a read after the check", got, "nothing")
}

// gatedHistorian is a gate that also passes on the Pager and the Historian.
type gatedHistorian struct{ *gate }

func (p gatedHistorian) As(target any) bool {
	ok := false
	switch target := target.(type) {
	case *storage.Pager:
		*target, ok = storage.As[storage.Pager](p.Backend)
	case *history.Historian:
		*target, ok = storage.As[history.Historian](p.Backend)
	}
	return ok
}

// A page at a revision may be ahead of the copy, like a page of the present.
func TestReadAfterPageAtRevision(t *testing.T) {
	t.Parallel()
	g := newGate(t)
	c := newCache(t, gatedHistorian{g}, nil)
	release := g.hold()
	fixture.Write(t, g.Backend, fixture.Resource("a", "1"))
	history, _ := storage.As[history.Historian](storage.Backend(c))
	pages, _ := storage.As[storage.Pager](storage.Backend(c))
	_, newest, err := history.Revisions(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	page, err := pages.ListPage(t.Context(), fixture.Type, fixture.Tenancy, "", storage.ListOptions{Revision: newest})
	if err != nil || len(page.Resources) != 1 {
		t.Fatalf("the page has %v, %v, expected one resource", page.Resources, err)
	}
	got := callBeforeRelease(t, g, release, func() string { return readData(t, c, eventual, "a") })
	expect(t, "a read after the page", got, "1")
}
