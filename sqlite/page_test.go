package sqlite

import (
	"errors"
	"fmt"
	"testing"

	"github.com/ashlar-dev/storage"
	"github.com/ashlar-dev/storage/internal/test/fixture"
	"github.com/ashlar-dev/storage/resourcepb"
)

// page reads a page of a listing of all resources.
func page(t testing.TB, s *Backend, limit int, token string) storage.Page {
	t.Helper()
	p, err := s.ListPage(t.Context(), fixture.AllTypes, fixture.AllTenancies, "", storage.ListOptions{Limit: limit, Continue: token})
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// A continue token stays valid while other callers complete many listings.
func TestConcurrentListingsKeepToken(t *testing.T) {
	t.Parallel()
	s := open(t, newPath(t), nil)
	for i := range 3 {
		fixture.Write(t, s, resource(fmt.Sprint("a-", i), 0))
	}
	token := page(t, s, 1, "").Continue
	for range 300 {
		first := page(t, s, 2, "")
		if rest := page(t, s, 2, first.Continue); len(rest.Resources) != 1 || rest.Continue != "" {
			t.Fatalf("the second page has %d resources and token %q, expected the last resource", len(rest.Resources), rest.Continue)
		}
	}
	if rest := page(t, s, 10, token); len(rest.Resources) != 2 {
		t.Errorf("the rest of the listing has %d resources, expected 2", len(rest.Resources))
	}
}

// A token is a position and a key, so it is valid in other handles and after a restart.
func TestTokensInOtherHandles(t *testing.T) {
	t.Parallel()
	path := newPath(t)
	s, err := New(t.Context(), path, nil)
	if err != nil {
		t.Fatal(err)
	}
	res := fixture.Write(t, s, resource("a-0", 0))
	for i := range 3 {
		fixture.Write(t, s, resource(fmt.Sprint("b-", i), 0))
	}
	token := page(t, s, 1, "").Continue
	fixture.Write(t, s, res)
	if err := s.DeleteCAS(t.Context(), res.Id, "no version"); !errors.Is(err, storage.ErrCASFailure) {
		t.Fatal(err)
	}
	other := open(t, path, nil)
	fixture.Write(t, other, resource("b-15", 0))
	if rest := page(t, other, 10, token); fmt.Sprint(namesOf(rest.Resources)) != "[b-0 b-1 b-2]" {
		t.Errorf("in another handle the next page has %v, expected [b-0 b-1 b-2]", namesOf(rest.Resources))
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	if rest := page(t, open(t, path, nil), 10, token); fmt.Sprint(namesOf(rest.Resources)) != "[b-0 b-1 b-2]" {
		t.Errorf("after a restart the next page has %v, expected [b-0 b-1 b-2]", namesOf(rest.Resources))
	}
}

func namesOf(list []*resourcepb.Resource) (names []string) {
	for _, res := range list {
		names = append(names, res.Id.Name)
	}
	return names
}
