package sqlite

import (
	"errors"
	"fmt"
	"testing"

	"github.com/ashlar-dev/storage"
	"github.com/ashlar-dev/storage/internal/paging"
	"github.com/ashlar-dev/storage/internal/storetest"
)

// page reads a page of a listing of everything.
func page(t testing.TB, s *Backend, limit int, token string) storage.Page {
	t.Helper()
	p, err := s.ListPage(t.Context(), storetest.AllTypes, storetest.AllTenancies, "", storage.ListOptions{Limit: limit, Continue: token})
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// Whatever others list to the end meanwhile, a listing goes on.
func TestListingsOfOthersLeaveATokenAlone(t *testing.T) {
	t.Parallel()
	s := open(t, newPath(t), nil)
	for i := range 3 {
		storetest.Write(t, s, resource(fmt.Sprint("a-", i), 0))
	}
	token := page(t, s, 1, "").Continue
	for range 300 {
		first := page(t, s, 2, "")
		if rest := page(t, s, 2, first.Continue); len(rest.Resources) != 1 || rest.Continue != "" {
			t.Fatalf("the second page has %d resources, and continues with %q", len(rest.Resources), rest.Continue)
		}
	}
	if rest := page(t, s, 10, token); len(rest.Resources) != 2 {
		t.Errorf("the rest of the listing has %d resources, expected 2", len(rest.Resources))
	}
}

// Of too many listings at once the last is refused, in words that say so, and the others go on.
func TestTooManyListings(t *testing.T) {
	t.Parallel()
	s := open(t, newPath(t), nil)
	storetest.Write(t, s, resource("a", 0))
	storetest.Write(t, s, resource("b", 0))
	first := page(t, s, 1, "").Continue
	for range paging.DefaultListings - 1 {
		page(t, s, 1, "")
	}
	if _, err := s.ListPage(t.Context(), storetest.AllTypes, storetest.AllTenancies, "", storage.ListOptions{Limit: 1}); !errors.Is(err, storage.ErrInconsistent) {
		t.Errorf("one listing too many: %v, expected ErrInconsistent", err)
	}
	if rest := page(t, s, 1, first); len(rest.Resources) != 1 || rest.Continue != "" {
		t.Errorf("the first listing goes on with %d resources, continues with %q", len(rest.Resources), rest.Continue)
	}
	page(t, s, 1, "") // in the place of the one that has ended
}
