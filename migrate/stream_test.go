package migrate

import (
	"context"
	"errors"
	"fmt"
	"testing"

	"github.com/ashlar-dev/storage/internal/test/fixture"
	"github.com/ashlar-dev/storage/resourcepb"
)

// An interrupted listing must not look like a complete one, because the missing resources would be deleted from the target. The
// contexts of a pass do not end at the same moment.
func TestListingThatIsCutOff(t *testing.T) {
	t.Parallel()
	for _, kind := range local {
		t.Run(kind.name, func(t *testing.T) {
			t.Parallel()
			b := fixture.Open(t, kind.url(t))
			const n = 100
			for i := range n {
				fill(t, b, []*resourcepb.Resource{small(fmt.Sprint("r", i), "")})
			}
			ctx, cancel := context.WithCancel(limited(t))
			defer cancel()
			l, err := list(ctx, b, 1, retrier{})
			if err != nil {
				t.Fatal(err)
			}
			defer l.close()
			cancel()
			for i := 0; ; i++ {
				e, err := l.next(limited(t))
				if errors.Is(err, context.Canceled) {
					break
				}
				if err != nil {
					t.Fatal(err)
				}
				if e == nil {
					if i < n {
						t.Fatalf("the listing was interrupted after %d of %d resources, and claims to be complete", i, n)
					}
					break
				}
			}
		})
	}
}
