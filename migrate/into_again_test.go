package migrate

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/ashlar-dev/storage"
	"github.com/ashlar-dev/storage/internal/test/fixture"
	"github.com/ashlar-dev/storage/resourcepb"
)

// A migration that makes the target equal cannot be continued by a call with Merge or Overwrite, because other contents of the
// target would already be deleted.
func TestMergeCannotContinueMirror(t *testing.T) {
	t.Parallel()
	for _, begun := range []Into{Empty, Mirror} {
		for _, into := range []Into{Merge, Overwrite} {
			from, to := fixture.Open(t, "mem://"), fixture.Open(t, "mem://")
			fill(t, from, []*resourcepb.Resource{small("a", "1")})
			ctx, stop := context.WithCancel(limited(t))
			if _, err := Run(ctx, from, to, quick(Options{Live: true, Into: begun, Progress: func(p Progress) {
				if p.Phase == Following {
					stop()
				}
			}})); !errors.Is(err, context.Canceled) {
				t.Fatal(err)
			}
			if err := Unfence(limited(t), to); err != nil {
				t.Fatal(err)
			}
			fill(t, to, []*resourcepb.Resource{small("own", "1")})
			r, err := Run(limited(t), from, to, quick(Options{Live: true, Into: into, CutoverLag: time.Hour}))
			if !errors.Is(err, storage.ErrInvalid) || r.Next != AbortFirst {
				t.Errorf("started with Into %d, continued with Into %d: %+v, %v", begun, into, r, err)
			}
			if got := contents(t, to)["own"]; got != "1" {
				t.Errorf("started with Into %d, continued with Into %d: the kept resource is %q", begun, into, got)
			}
		}
	}
}
