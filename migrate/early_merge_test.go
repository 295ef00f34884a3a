package migrate

import (
	"errors"
	"testing"
	"time"

	"github.com/ashlar-dev/storage/internal/test/fixture"
)

// TestEarlyWriterBeforeTheFenceOfAMerge has a program change a resource that both stores have, after the tool has compared them, and before it has
// closed the target. The change stays, and the migration fails: it must not replace a different resource.
func TestEarlyWriterBeforeTheFenceOfAMerge(t *testing.T) {
	t.Parallel()
	for _, live := range []bool{false, true} {
		from, to := fixture.Open(t, "mem://"), fixture.Open(t, "mem://")
		write(t, from, small("both", "1"))
		write(t, from, small("new", "1"))
		write(t, to, small("both", "1"))
		tap, wrote := newTap(), false
		tap.at = func(_ int, before bool, what string) error {
			if what == "to fence" && before && !wrote {
				wrote = true
				write(t, to, small("both", "2"))
			}
			return nil
		}
		o := quick(Options{Into: Merge, Live: live})
		if live {
			o.CutoverLag = time.Hour
		}
		r, err := Run(limited(t), from, &tapped{Backend: to, tap: tap, role: "to"}, o)
		if !errors.Is(err, ErrConflict) || r.HasJournal {
			t.Errorf("live %v: got %+v, %v, expected ErrConflict", live, r, err)
		}
		if got := contents(t, to); got["both"] != "2" {
			t.Errorf("live %v: the program wrote 2, and the target has %v", live, got)
		}
		if got := fenceOf(t, to); got != "" {
			t.Errorf("live %v: the target is closed for %q", live, got)
		}
	}
}
