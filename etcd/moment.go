package etcd

import (
	"context"
	"sync/atomic"
	"time"
)

// moment is a context that calls share which have none of their own and begin at about the same time: to make one, with its
// timer, for each of them would be a good part of what a call costs here.
type moment struct{ current atomic.Pointer[shared] }

type shared struct {
	context.Context
	until time.Time // when it is too late for another call to share it
}

// context returns a context that ends with parent, or after timeout and at most a 32nd of it.
func (m *moment) context(parent context.Context, timeout time.Duration) context.Context {
	now := time.Now()
	if s := m.current.Load(); s != nil && now.Before(s.until) {
		return s
	}
	more := timeout / 32
	ctx, cancel := context.WithTimeout(parent, timeout+more)
	context.AfterFunc(ctx, cancel)
	s := &shared{ctx, now.Add(more)}
	m.current.Store(s)
	return s
}
