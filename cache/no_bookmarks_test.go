package cache_test

import (
	"context"
	"errors"
	"testing"

	"github.com/ashlar-dev/storage"
	"github.com/ashlar-dev/storage/internal/test/fixture"
	"github.com/ashlar-dev/storage/resourcepb"
)

// Watches have no bookmarks. During a relist, after the list's position, a local write is acknowledged and another program overwrites it. Reads
// do not return to the listed state.
func TestLocalWriteDuringRelistWithoutBookmarks(t *testing.T) {
	t.Parallel()
	g := newGate(t)
	c := newCache(t, noBookmarks{g}, nil)
	a := fixture.Write(t, c, fixture.Resource("a", "1"))
	fixture.Eventually(t, "the copy has the first write", func() bool {
		all, err := c.List(t.Context(), eventual, fixture.Type, fixture.Tenancy, "")
		return err == nil && len(all) == 1
	})
	listing, wrote := make(chan struct{}), make(chan struct{})
	g.beforeSnapshot = func() {
		close(listing)
		<-wrote
	}
	g.endWatches()
	<-listing
	a = fixture.Write(t, c, updated(a, "2"))
	fixture.Write(t, g.Backend, updated(a, "3"))
	release := g.hold()
	close(wrote)
	fixture.Eventually(t, "the list is the copy", func() bool { return c.Stats().Live })
	if got := readData(t, c, eventual, "a"); got != "2" && got != "3" {
		t.Errorf("a read returned %q, expected the local write or a later one", got)
	}
	release()
	fixture.Eventually(t, "the copy has the other write", func() bool { return readData(t, c, eventual, "a") == "3" })
	if all, err := c.List(t.Context(), eventual, fixture.Type, fixture.Tenancy, ""); err != nil || len(all) != 1 {
		t.Errorf("a list returned %v, %v, expected one resource", all, err)
	}
}

// A relist that ran before a write was acknowledged may already include a later write. The copy detects this, even if the database cannot be
// reached at first.
func TestRelistBeforeAcknowledgementWithoutBookmarks(t *testing.T) {
	t.Parallel()
	g := newGate(t)
	c := newCache(t, noBookmarks{g}, nil)
	a := fixture.Write(t, c, fixture.Resource("a", "1"))
	fixture.Eventually(t, "the copy has the first write", func() bool {
		all, err := c.List(t.Context(), eventual, fixture.Type, fixture.Tenancy, "")
		return err == nil && len(all) == 1
	})
	release := g.hold()
	g.beforeAck = func(error) error {
		stored, _ := g.Backend.Read(t.Context(), strong, fixture.ID("a"))
		fixture.Write(t, g.Backend, updated(stored, "3"))
		g.endWatches()
		fixture.Eventually(t, "the copy has the other write", func() bool { return readData(t, c, eventual, "a") == "3" })
		fixture.Eventually(t, "a watch feeds the copy", func() bool { return c.Stats().Live })
		release()
		g.failReads(1, errors.New("out of reach"))
		return nil
	}
	fixture.Write(t, c, updated(a, "2"))
	fixture.Eventually(t, "the copy has retried its read", func() bool { return g.failReads(0, nil) == 0 })
	expect(t, "a read after the answer", readData(t, c, eventual, "a"), "3")
	all, err := c.List(fixture.Context(t), eventual, fixture.Type, fixture.Tenancy, "")
	if err != nil || len(all) != 1 || string(all[0].GetData().GetValue()) != "3" {
		t.Errorf("a list returned %v, %v, expected the other write", all, err)
	}
}

// Watches have no bookmarks. A resource is created and deleted during a relist, after the list's position. It stays deleted.
func TestCreateAndDeleteDuringRelistWithoutBookmarks(t *testing.T) {
	t.Parallel()
	for name, remove := range map[string]bool{"local deletion": true, "deletion by another program": false} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			g := newGate(t)
			c := newCache(t, noBookmarks{g}, nil)
			listing, wrote := make(chan struct{}), make(chan struct{})
			g.beforeSnapshot = func() {
				close(listing)
				<-wrote
			}
			g.endWatches()
			<-listing
			a := fixture.Write(t, c, fixture.Resource("a", "1"))
			if remove {
				fixture.Remove(t, c, a)
			} else {
				fixture.Remove(t, g.Backend, a)
			}
			release := g.hold()
			close(wrote)
			fixture.Eventually(t, "the list is the copy", func() bool { return c.Stats().Live })
			expect(t, "a read when the store is listed", readData(t, c, eventual, "a"), "nothing")
			g.passEvents(t, 1)
			expect(t, "a read after the copy has replayed the creation", readData(t, c, eventual, "a"), "nothing")
			release()
			expect(t, "a strong read", readData(t, c, strong, "a"), "nothing")
		})
	}
}

// hookedList calls a hook between the answer of a list and its return.
type hookedList struct {
	noBookmarks
	afterList func() // called once
}

func (h *hookedList) List(ctx context.Context, consistency storage.ReadConsistency, typ storage.UnversionedType, tenancy *resourcepb.Tenancy, namePrefix string) ([]*resourcepb.Resource, error) {
	all, err := h.noBookmarks.List(ctx, consistency, typ, tenancy, namePrefix)
	if hook := h.afterList; hook != nil {
		h.afterList = nil
		hook()
	}
	return all, err
}

// A call returns the second version of a resource while a list that has read the first one is on its way. Later reads do not return the first one.
func TestListOvertakenWithoutBookmarks(t *testing.T) {
	t.Parallel()
	list := func(t *testing.T, c storage.Backend) string {
		all, err := c.List(t.Context(), strong, fixture.Type, fixture.Tenancy, "")
		if err != nil || len(all) != 1 {
			t.Fatalf("a list returned %v, %v, expected one resource", all, err)
		}
		return string(all[0].GetData().GetValue())
	}
	for name, overtake := range map[string]func(*testing.T, storage.Backend) string{
		"read": func(t *testing.T, c storage.Backend) string { return readData(t, c, strong, "a") },
		"list": list,
		"watch": func(t *testing.T, c storage.Backend) string {
			w, err := c.WatchList(t.Context(), fixture.Type, fixture.Tenancy, "a")
			if err != nil {
				t.Fatal(err)
			}
			defer w.Close()
			ev, err := w.Next(fixture.Context(t))
			if err != nil {
				t.Fatal(err)
			}
			return string(ev.GetUpsert().GetResource().GetData().GetValue())
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			g := newGate(t)
			h := &hookedList{noBookmarks: noBookmarks{g}}
			c := newCache(t, h, nil)
			a := fixture.Write(t, c, fixture.Resource("a", "1"))
			fixture.Eventually(t, "the copy has the first version", func() bool {
				all, err := c.List(t.Context(), eventual, fixture.Type, fixture.Tenancy, "")
				return err == nil && len(all) == 1
			})
			defer g.hold()()
			h.afterList = func() {
				fixture.Write(t, g.Backend, updated(a, "2"))
				expect(t, "the other call", overtake(t, c), "2")
			}
			expect(t, "the list", list(t, c), "1")
			expect(t, "a read after it", readData(t, c, eventual, "a"), "2")
		})
	}
}

// paged is a backend without bookmarks that lists in pages.
type paged struct{ noBookmarks }

func (p paged) As(target any) bool {
	if target, ok := target.(*storage.Pager); ok {
		*target, ok = storage.As[storage.Pager](p.Backend.(*gate).Backend)
		return ok
	}
	return false
}

// The second page of a listing is of the listing's state. It does not confirm a version that a read has replaced since.
func TestReadBetweenPagesWithoutBookmarks(t *testing.T) {
	t.Parallel()
	g := newGate(t)
	c := newCache(t, paged{noBookmarks{g}}, nil)
	fixture.Write(t, c, fixture.Resource("a", "1"))
	b := fixture.Write(t, c, fixture.Resource("b", "1"))
	fixture.Eventually(t, "the copy has both", func() bool {
		all, err := c.List(t.Context(), eventual, fixture.Type, fixture.Tenancy, "")
		return err == nil && len(all) == 2
	})
	defer g.hold()()
	pager, _ := storage.As[storage.Pager](c)
	page, err := pager.ListPage(t.Context(), fixture.Type, fixture.Tenancy, "", storage.ListOptions{Limit: 1})
	if err != nil || page.Continue == "" {
		t.Fatal(page, err)
	}
	fixture.Write(t, g.Backend, updated(b, "2"))
	expect(t, "a strong read", readData(t, c, strong, "b"), "2")
	page, err = pager.ListPage(t.Context(), fixture.Type, fixture.Tenancy, "", storage.ListOptions{Continue: page.Continue})
	if err != nil || len(page.Resources) != 1 || string(page.Resources[0].GetData().GetValue()) != "1" {
		t.Fatal(page, err)
	}
	expect(t, "a read after the page", readData(t, c, eventual, "b"), "2")
}
