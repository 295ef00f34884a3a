package controller

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"
)

// The context of a call ends as one of package context does, whether its first use precedes its end or follows it.
func TestCallContext(t *testing.T) {
	t.Parallel()
	cause := errors.New("the cause")
	for name, c := range map[string]struct {
		end       func(c *callContext, cancelParent context.CancelCauseFunc)
		err, want error
	}{
		"the deadline": {func(*callContext, context.CancelCauseFunc) { time.Sleep(time.Minute) }, context.DeadlineExceeded, context.DeadlineExceeded},
		"the parent":   {func(_ *callContext, cancelParent context.CancelCauseFunc) { cancelParent(cause) }, context.Canceled, cause},
		"the call":     {func(c *callContext, _ context.CancelCauseFunc) { c.end() }, context.Canceled, context.Canceled},
	} {
		for _, isUsedBefore := range []bool{false, true} {
			synctest.Test(t, func(t *testing.T) {
				parent, cancelParent := context.WithCancelCause(context.WithValue(context.Background(), t, "value"))
				defer cancelParent(nil)
				deadline := time.Now().Add(time.Minute)
				ctx := &callContext{parent: parent, deadline: deadline}
				var child context.Context
				called := make(chan struct{})
				derive := func() {
					var cancel context.CancelFunc
					child, cancel = context.WithCancel(ctx)
					t.Cleanup(cancel)
					context.AfterFunc(ctx, func() { close(called) })
				}
				if isUsedBefore {
					derive()
					if at, ok := ctx.Deadline(); !ok || !at.Equal(deadline) || ctx.Err() != nil || ctx.Value(t) != "value" {
						t.Errorf("%s: deadline %v, %v, error %v", name, at, ok, ctx.Err())
					}
					time.Sleep(time.Minute - 1)
					if ctx.Err() != nil || child.Err() != nil {
						t.Errorf("%s: it has ended before its deadline: %v", name, ctx.Err())
					}
				}
				c.end(ctx, cancelParent)
				if !isUsedBefore {
					derive()
				}
				synctest.Wait()
				select {
				case <-called:
				default:
					t.Errorf("%s, used before: %t: it has not ended", name, isUsedBefore)
				}
				for what, err := range map[string]error{"the context": ctx.Err(), "its child": child.Err()} {
					if err != c.err {
						t.Errorf("%s, used before: %t: the error of %s is %v, expected %v", name, isUsedBefore, what, err, c.err)
					}
				}
				for what, err := range map[string]error{"the context": context.Cause(ctx), "its child": context.Cause(child)} {
					if err != c.want {
						t.Errorf("%s, used before: %t: the cause of %s is %v, expected %v", name, isUsedBefore, what, err, c.want)
					}
				}
				ctx.end()
			})
		}
	}
}
