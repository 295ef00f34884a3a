package cache_test

import (
	"errors"
	"testing"

	"github.com/ashlar-dev/storage/internal/test/fixture"
)

// Watches have no bookmarks. During a relist, after the list's position, a local write is acknowledged and another program overwrites it. Reads
// do not return to the listed state.
func TestLocalWriteDuringRelistWithoutBookmarks(t *testing.T) {
	t.Parallel()
	v := newGate(t)
	c := newCache(t, noBookmarks{v}, nil)
	a := fixture.Write(t, c, fixture.Resource("a", "1"))
	fixture.Eventually(t, "the copy has the first write", func() bool {
		all, err := c.List(t.Context(), eventual, fixture.Type, fixture.Tenancy, "")
		return err == nil && len(all) == 1
	})
	listing, wrote := make(chan struct{}), make(chan struct{})
	v.beforeSnapshot = func() {
		close(listing)
		<-wrote
	}
	v.endWatches()
	<-listing
	a = fixture.Write(t, c, updated(a, "2"))
	fixture.Write(t, v.Backend, updated(a, "3"))
	release := v.hold()
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
	v := newGate(t)
	c := newCache(t, noBookmarks{v}, nil)
	a := fixture.Write(t, c, fixture.Resource("a", "1"))
	fixture.Eventually(t, "the copy has the first write", func() bool {
		all, err := c.List(t.Context(), eventual, fixture.Type, fixture.Tenancy, "")
		return err == nil && len(all) == 1
	})
	release := v.hold()
	v.beforeAck = func(error) error {
		stored, _ := v.Backend.Read(t.Context(), strong, fixture.ID("a"))
		fixture.Write(t, v.Backend, updated(stored, "3"))
		v.endWatches()
		fixture.Eventually(t, "the copy has the other write", func() bool { return readData(t, c, eventual, "a") == "3" })
		fixture.Eventually(t, "a watch feeds the copy", func() bool { return c.Stats().Live })
		release()
		v.failReads(1, errors.New("out of reach"))
		return nil
	}
	fixture.Write(t, c, updated(a, "2"))
	fixture.Eventually(t, "the copy has retried its read", func() bool { return v.failReads(0, nil) == 0 })
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
			v := newGate(t)
			c := newCache(t, noBookmarks{v}, nil)
			listing, wrote := make(chan struct{}), make(chan struct{})
			v.beforeSnapshot = func() {
				close(listing)
				<-wrote
			}
			v.endWatches()
			<-listing
			a := fixture.Write(t, c, fixture.Resource("a", "1"))
			if remove {
				fixture.Remove(t, c, a)
			} else {
				fixture.Remove(t, v.Backend, a)
			}
			release := v.hold()
			close(wrote)
			fixture.Eventually(t, "the list is the copy", func() bool { return c.Stats().Live })
			expect(t, "a read when the store is listed", readData(t, c, eventual, "a"), "nothing")
			v.passEvents(t, 1)
			expect(t, "a read after the copy has replayed the creation", readData(t, c, eventual, "a"), "nothing")
			release()
			expect(t, "a strong read", readData(t, c, strong, "a"), "nothing")
		})
	}
}
