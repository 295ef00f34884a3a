package inmem_test

import (
	"errors"
	"fmt"
	"testing"

	"github.com/ashlar-dev/storage"
	"github.com/ashlar-dev/storage/inmem"
)

// A continue token stays valid while other callers complete listings. Beyond the maximum of unfinished listings, new
// ones are refused.
func TestConcurrentListingsKeepToken(t *testing.T) {
	t.Parallel()
	b := inmem.New(nil)
	defer b.Close()
	for i := range 3 {
		write(t, b, fmt.Sprint("artist ", i), "")
	}
	page := func(limit int, token string) storage.Page {
		t.Helper()
		p, err := b.ListPage(t.Context(), everything, anywhere(), "", storage.ListOptions{Limit: limit, Continue: token})
		if err != nil {
			t.Fatal(err)
		}
		return p
	}
	token := page(1, "").Continue
	for range 1200 {
		first := page(2, "")
		for range 2 { // a caller that lost the last page may ask again
			if rest := page(2, first.Continue); len(rest.Resources) != 1 || rest.Continue != "" {
				t.Fatalf("the second page has %d resources and token %q, expected the last resource", len(rest.Resources), rest.Continue)
			}
		}
	}
	for range 999 {
		page(1, "")
	}
	if _, err := b.ListPage(t.Context(), everything, anywhere(), "", storage.ListOptions{Limit: 1}); !errors.Is(err, storage.ErrInconsistent) {
		t.Errorf("a listing beyond the maximum: got error %v, expected ErrInconsistent", err)
	}
	page(3, "") // complete after one page, so it needs no place
	if rest := page(10, token); len(rest.Resources) != 2 {
		t.Errorf("the rest of the listing has %d resources, expected 2", len(rest.Resources))
	}
	page(1, "") // takes the place of the complete listing
}
