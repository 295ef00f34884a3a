package inmem_test

import (
	"errors"
	"fmt"
	"testing"

	"github.com/ashlar-dev/storage"
	"github.com/ashlar-dev/storage/inmem"
)

// Listings that others finish never cost a caller the rest of his own, and of too many at once the last is refused.
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
		for range 2 { // also who has lost the answer and asks again
			if rest := page(2, first.Continue); len(rest.Resources) != 1 || rest.Continue != "" {
				t.Fatalf("the second page has %d resources, and continues with %q", len(rest.Resources), rest.Continue)
			}
		}
	}
	for range 999 {
		page(1, "")
	}
	if _, err := b.ListPage(t.Context(), everything, anywhere(), "", storage.ListOptions{Limit: 1}); !errors.Is(err, storage.ErrInconsistent) {
		t.Errorf("one listing too many: %v, expected ErrInconsistent", err)
	}
	page(3, "") // one that needs no second page
	if rest := page(10, token); len(rest.Resources) != 2 {
		t.Errorf("the rest of the listing has %d resources, expected 2", len(rest.Resources))
	}
	page(1, "") // in the place of the one that has ended
}
