package controller

import (
	"context"
	"sync"
	"time"
)

// callContext is the context of a reconcile: it ends at a deadline, with its parent, or with the call. Most reconciles find nothing to do and do not
// use their context, so its timer and its entry in the parent are created at the first use.
type callContext struct {
	parent   context.Context
	deadline time.Time

	mu       sync.Mutex
	inner    context.Context // nil before the first use
	cancel   context.CancelFunc
	hasEnded bool
}

// use returns the context that does the work.
func (c *callContext) use() context.Context {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.inner == nil {
		c.inner, c.cancel = context.WithDeadline(c.parent, c.deadline)
		if c.hasEnded { // a goroutine of the reconcile has outlived it
			c.cancel()
		}
	}
	return c.inner
}

// end cancels the context. It is called when the reconcile has returned.
func (c *callContext) end() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.hasEnded = true
	if c.cancel != nil {
		c.cancel()
	}
}

// Deadline implements context.Context.
func (c *callContext) Deadline() (time.Time, bool) { return c.use().Deadline() }

// Done implements context.Context.
func (c *callContext) Done() <-chan struct{} { return c.use().Done() }

// Err implements context.Context.
func (c *callContext) Err() error { return c.use().Err() }

// Value implements context.Context. Package context finds the cause of the end, and attaches children, by a value of the inner context.
func (c *callContext) Value(key any) any { return c.use().Value(key) }
