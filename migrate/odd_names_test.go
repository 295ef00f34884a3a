package migrate

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/ashlar-dev/storage/internal/test/fixture"
	"github.com/ashlar-dev/storage/resourcepb"
)

// Names of stores contain bytes that a journal, or a database, cannot store. A migration that is stopped at its cutover continues,
// and one that is aborted there opens the source.
func TestNamesOfOddBytes(t *testing.T) {
	t.Parallel()
	for _, kind := range local {
		for i, name := range []string{"caf\xe9", "a\x00b", "\xff\xfe"} {
			for what, on := range map[string]func(t *testing.T, c *cross, o *Options){
				"continued": func(t *testing.T, c *cross, o *Options) {
					if r, err := Run(limited(t), c.from, c.to, o); err != nil || r.Phase != Complete {
						t.Errorf("continued: %+v, %v", r, err)
					}
				},
				"aborted": func(t *testing.T, c *cross, _ *Options) {
					if err := Abort(limited(t), c.from, c.to); err != nil {
						t.Errorf("aborting: %v", err)
					}
					if target := fenceOf(t, c.from); target != "" {
						t.Errorf("the source is closed for %q", target)
					}
				},
			} {
				t.Run(fmt.Sprintf("%s, %s, name %d", kind.name, what, i), func(t *testing.T) {
					t.Parallel()
					c := &cross{from: fixture.Open(t, kind.url(t)), to: fixture.Open(t, kind.url(t)), tap: newTap()}
					fill(t, c.from, []*resourcepb.Resource{small("a", "1")})
					o := &Options{From: name, To: name, Live: true, CutoverLag: time.Hour, takeover: -1}
					ctx, stop := context.WithCancel(limited(t))
					defer stop()
					c.tap.at = func(_ int, before bool, what string) error {
						if !before && what == "from fence" {
							stop()
						}
						return nil
					}
					if _, err := Run(ctx, &tapped{Backend: c.from, tap: c.tap, role: "from"}, c.to, o); !errors.Is(err, context.Canceled) {
						t.Fatalf("stopping it: %v", err)
					}
					if fenceOf(t, c.from) == "" {
						t.Fatal("it was stopped before the source was closed")
					}
					on(t, c, o)
				})
			}
		}
	}
}
