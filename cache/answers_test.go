package cache_test

import (
	"errors"
	"sync"
	"testing"

	"github.com/ashlar-dev/storage"
	"github.com/ashlar-dev/storage/internal/test/fixture"
	"github.com/ashlar-dev/storage/resourcepb"
)

// Watches prove nothing, so the database answers for what it has shown. Of several who ask it at the same time, none is told what was
// before: an answer that ends one doubt and begins another leaves no moment between.
func TestReadsAtTheSameTimeWithoutBookmarks(t *testing.T) {
	t.Parallel()
	v := newValve(t)
	c := over(t, mute{v}, nil)
	a := fixture.Write(t, c, fixture.Resource("a", "1"))
	fixture.Eventually(t, "the copy has the first write", func() bool {
		all, err := c.List(t.Context(), eventual, fixture.Type, fixture.Tenancy, "")
		return err == nil && len(all) == 1
	})
	defer v.hold()()
	fixture.Write(t, v.Backend, rewritten(a, "2"))
	want(t, "a strong read", shows(t, c, strong, "a"), "2")
	var readers sync.WaitGroup
	for range 8 {
		readers.Go(func() {
			for range 500 {
				if got := shows(t, c, eventual, "a"); got != "2" {
					t.Errorf("an eventual read shows %q after a strong one has shown %q", got, "2")
					return
				}
			}
		})
	}
	readers.Wait()
}

// What is refused at the version which the copy shows tells that the copy is behind: who reads again, to try again, reads something newer.
func TestReadAfterARefusal(t *testing.T) {
	t.Parallel()
	for name, try := range map[string]func(c storage.Backend, tx storage.Transactor, shown *resourcepb.Resource) error{
		"write": func(c storage.Backend, _ storage.Transactor, shown *resourcepb.Resource) error {
			_, err := c.WriteCAS(fixture.Context(t), rewritten(shown, "mine"))
			return err
		},
		"deletion": func(c storage.Backend, _ storage.Transactor, shown *resourcepb.Resource) error {
			return c.DeleteCAS(fixture.Context(t), shown.GetId(), shown.GetVersion())
		},
		"transaction": func(_ storage.Backend, tx storage.Transactor, shown *resourcepb.Resource) error {
			_, err := tx.Commit(fixture.Context(t), []storage.Op{
				{Write: fixture.Resource("b", "mine")}, {Check: shown.GetId(), Version: shown.GetVersion()},
			})
			return err
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			v := newValve(t)
			c := over(t, v, nil)
			a := fixture.Write(t, c, fixture.Resource("a", "1"))
			want(t, "a strong read", shows(t, c, strong, "a"), "1")
			release := v.hold()
			fixture.Write(t, v.Backend, rewritten(a, "2"))
			tx, _ := storage.As[storage.Transactor](storage.Backend(c))
			if err := try(c, tx, a); !errors.Is(err, storage.ErrCASFailure) {
				t.Errorf("got %v, expected ErrCASFailure", err)
			}
			got := afterProof(t, v, release, func() string { return shows(t, c, eventual, "a") })
			want(t, "a read after the refusal", got, "2")
		})
	}
}

// A transaction that has checked that nothing is stored under a key has told so.
func TestReadAfterACheck(t *testing.T) {
	t.Parallel()
	v := newValve(t)
	c := over(t, v, nil)
	a := fixture.Write(t, c, fixture.Resource("a", "1"))
	want(t, "a strong read", shows(t, c, strong, "a"), "1")
	release := v.hold()
	fixture.Remove(t, v.Backend, a)
	tx, _ := storage.As[storage.Transactor](storage.Backend(c))
	if _, err := tx.Commit(t.Context(), []storage.Op{{Check: a.GetId()}, {Write: fixture.Resource("b", "")}}); err != nil {
		t.Fatal(err)
	}
	got := afterProof(t, v, release, func() string { return shows(t, c, eventual, "a") })
	want(t, "a read after the check", got, "nothing")
}

// past is a valve that passes on what reads the past.
type past struct{ *valve }

func (p past) As(target any) bool {
	ok := false
	switch target := target.(type) {
	case *storage.Pager:
		*target, ok = storage.As[storage.Pager](p.Backend)
	case *storage.Historian:
		*target, ok = storage.As[storage.Historian](p.Backend)
	}
	return ok
}

// A page of a revision that the copy has not come by yet is ahead of it, as one of the present.
func TestReadAfterAPageOfARevision(t *testing.T) {
	t.Parallel()
	v := newValve(t)
	c := over(t, past{v}, nil)
	release := v.hold()
	fixture.Write(t, v.Backend, fixture.Resource("a", "1"))
	history, _ := storage.As[storage.Historian](storage.Backend(c))
	pages, _ := storage.As[storage.Pager](storage.Backend(c))
	_, newest, err := history.Revisions(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	page, err := pages.ListPage(t.Context(), fixture.Type, fixture.Tenancy, "", storage.ListOptions{Revision: newest})
	if err != nil || len(page.Resources) != 1 {
		t.Fatalf("the page shows %v, %v, expected one resource", page.Resources, err)
	}
	got := afterProof(t, v, release, func() string { return shows(t, c, eventual, "a") })
	want(t, "a read after the page", got, "1")
}
