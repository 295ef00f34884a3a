package cache_test

import (
	"errors"
	"testing"

	"github.com/ashlar-dev/storage/internal/test/fixture"
)

// Watches prove nothing. While the store is listed anew, after the point that the list shows, an own write is acknowledged and another
// program overwrites it: reads do not go back to what the list shows.
func TestOwnWriteWhileListingWithoutBookmarks(t *testing.T) {
	t.Parallel()
	v := newValve(t)
	c := over(t, mute{v}, nil)
	a := fixture.Write(t, c, fixture.Resource("a", "1"))
	fixture.Eventually(t, "the copy has the first write", func() bool {
		all, err := c.List(t.Context(), eventual, fixture.Type, fixture.Tenancy, "")
		return err == nil && len(all) == 1
	})
	listing, wrote := make(chan struct{}), make(chan struct{})
	v.listing = func() {
		close(listing)
		<-wrote
	}
	v.end()
	<-listing
	a = fixture.Write(t, c, rewritten(a, "2"))
	fixture.Write(t, v.Backend, rewritten(a, "3"))
	release := v.hold()
	close(wrote)
	fixture.Eventually(t, "the list is the copy", func() bool { return c.Stats().Live })
	if got := shows(t, c, eventual, "a"); got != "2" && got != "3" {
		t.Errorf("a read shows %q, expected the own write or a later one", got)
	}
	release()
	fixture.Eventually(t, "the copy has the other write", func() bool { return shows(t, c, eventual, "a") == "3" })
	if all, err := c.List(t.Context(), eventual, fixture.Type, fixture.Tenancy, ""); err != nil || len(all) != 1 {
		t.Errorf("a list shows %v, %v, expected one resource", all, err)
	}
}

// The list that was taken anew before a write was acknowledged may show what came after it. The copy finds out, also if the database is out
// of reach at first.
func TestListedBeforeTheAnswerWithoutBookmarks(t *testing.T) {
	t.Parallel()
	v := newValve(t)
	c := over(t, mute{v}, nil)
	a := fixture.Write(t, c, fixture.Resource("a", "1"))
	fixture.Eventually(t, "the copy has the first write", func() bool {
		all, err := c.List(t.Context(), eventual, fixture.Type, fixture.Tenancy, "")
		return err == nil && len(all) == 1
	})
	release := v.hold()
	v.answering = func(error) error {
		stored, _ := v.Backend.Read(t.Context(), strong, fixture.ID("a"))
		fixture.Write(t, v.Backend, rewritten(stored, "3"))
		v.end()
		fixture.Eventually(t, "the copy has the other write", func() bool { return shows(t, c, eventual, "a") == "3" })
		fixture.Eventually(t, "a watch feeds the copy", func() bool { return c.Stats().Live })
		release()
		v.unreachable(1, errors.New("out of reach"))
		return nil
	}
	fixture.Write(t, c, rewritten(a, "2"))
	fixture.Eventually(t, "the database is within reach", func() bool { return v.unreachable(0, nil) == 0 })
	want(t, "a read after the answer", shows(t, c, eventual, "a"), "3")
	all, err := c.List(fixture.Context(t), eventual, fixture.Type, fixture.Tenancy, "")
	if err != nil || len(all) != 1 || string(all[0].GetData().GetValue()) != "3" {
		t.Errorf("a list shows %v, %v, expected the other write", all, err)
	}
}

// Watches prove nothing. While the store is listed anew, after the point that the list shows, a resource is created and deleted. It stays
// gone.
func TestOwnLifeWhileListingWithoutBookmarks(t *testing.T) {
	t.Parallel()
	for name, remove := range map[string]bool{"by itself": true, "by another": false} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			v := newValve(t)
			c := over(t, mute{v}, nil)
			listing, wrote := make(chan struct{}), make(chan struct{})
			v.listing = func() {
				close(listing)
				<-wrote
			}
			v.end()
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
			want(t, "a read when the store is listed", shows(t, c, eventual, "a"), "nothing")
			v.let(t, 1)
			want(t, "a read when the copy has come by the creation", shows(t, c, eventual, "a"), "nothing")
			release()
			want(t, "a strong read", shows(t, c, strong, "a"), "nothing")
		})
	}
}
