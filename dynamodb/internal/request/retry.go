package request

import (
	"context"
	"errors"
	"math/rand/v2"
	"net"
	"sync/atomic"
	"time"

	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/aws/smithy-go/middleware"
)

// Retry sends a request until an answer is final or the context ends; then the error matches storage.ErrInconsistent. maybe reports
// whether any attempt, including those inside the SDK, may have been applied without an answer; repeating the request must then be
// safe. send passes option on to the SDK.
func Retry(ctx context.Context, clock *Clock, send func(option func(*dynamodb.Options)) error) (maybe bool, err error) {
	a := attempts{clock: clock}
	for pause := 10 * time.Millisecond; ; pause = min(2*pause, time.Second) {
		err := send(a.option)
		if err == nil {
			return a.maybe.Load(), nil
		}
		if a.note(err) == Rejected {
			return a.maybe.Load(), Plain(err)
		}
		if !Sleep(ctx, pause/2+rand.N(pause/2)) {
			if dial := a.dial.Load(); dial != nil && errors.Is(err, ctx.Err()) {
				err = *dial // the SDK returns only that the time ended during its pause
			}
			return a.maybe.Load(), Inconsistent(ctx, err)
		}
	}
}

// Sleep waits, and reports whether ctx is still valid.
func Sleep(ctx context.Context, d time.Duration) bool {
	if ctx.Err() != nil {
		return false
	}
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-ctx.Done():
		return false
	}
}

// attempts records the outcomes of the SDK's own attempts, which the SDK hides: whether one of them may have been applied.
type attempts struct {
	maybe atomic.Bool
	dial  atomic.Pointer[error] // the error of the last attempt if that could not connect
	clock *Clock
}

// note records the error of an attempt.
func (a *attempts) note(err error) Outcome {
	var op *net.OpError
	if errors.As(err, &op) && op.Op == "dial" {
		a.dial.Store(&err)
	} else if !errors.Is(err, context.DeadlineExceeded) {
		a.dial.Store(nil)
	}
	fate := Classify(err)
	if fate == Unknown {
		a.maybe.Store(true)
	}
	return fate
}

// option inspects the answer to each attempt, and its date. Failures before an attempt is sent do not count.
func (a *attempts) option(o *dynamodb.Options) {
	inspect := middleware.DeserializeMiddlewareFunc("AshlarAttempts", func(ctx context.Context, in middleware.DeserializeInput, next middleware.DeserializeHandler) (middleware.DeserializeOutput, middleware.Metadata, error) {
		out, answer, err := next.HandleDeserialize(ctx, in)
		a.clock.Observe(answer)
		if err != nil {
			a.note(err)
		}
		return out, answer, err
	})
	o.APIOptions = append(o.APIOptions, func(stack *middleware.Stack) error { return stack.Deserialize.Add(inspect, middleware.Before) })
}
