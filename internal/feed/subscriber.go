package feed

import (
	"context"
	"sync/atomic"

	"github.com/ashlar-dev/storage/driver/key"
)

// subscriber is the part of a watch that its run uses to wake it.
type subscriber struct {
	filter        key.Filter
	lifetime      context.Context // ends with the watch
	wantsBookmark atomic.Bool     // every batch wakes the watch, because it expects a proof
	wake          chan struct{}   // signals a change of the log or of a proof
}

// wakeUp makes the watch check the log.
func (s *subscriber) wakeUp() {
	select {
	case s.wake <- struct{}{}:
	default: // a signal is pending
	}
}
