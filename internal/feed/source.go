package feed

import (
	"context"

	"github.com/ashlar-dev/storage/driver"
	"github.com/ashlar-dev/storage/driver/key"
)

// Source is a driver.Source with cursors instead of encoded positions.
type Source[P any] interface {
	Run(ctx context.Context, ready func(P), publish func(events []*driver.Event[P], end P)) error
	History(from P, f *key.Filter) driver.History[P]
	Contains(at P, ev *driver.Event[P]) bool
	Advance(at P, ev *driver.Event[P]) P
	Merge(at, end P) P

	// Cursor returns the text that lets a watch resume at a position.
	Cursor(at P) string
}
