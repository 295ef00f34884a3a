package backend

import (
	"context"
	"sync/atomic"
	"time"
)

// sharedDeadline gives one context, and thus one timer, to calls that begin at about the same time. On a machine with few cores, a
// timer per call costs up to 10 % of a fast call. The zero value is ready to use.
type sharedDeadline struct{ current atomic.Pointer[shared] }

type shared struct {
	context.Context
	until time.Time // the end of the time in which other calls may share it
}

// context returns a context that ends after timeout, or later by at most a 32nd of timeout. The timeout must be the same in every
// call.
func (d *sharedDeadline) context(timeout time.Duration) context.Context {
	now := time.Now()
	if s := d.current.Load(); s != nil && now.Before(s.until) {
		return s
	}
	more := timeout / 32
	ctx, cancel := context.WithTimeout(context.Background(), timeout+more)
	context.AfterFunc(ctx, cancel)
	s := &shared{ctx, now.Add(more)}
	d.current.Store(s)
	return s
}
