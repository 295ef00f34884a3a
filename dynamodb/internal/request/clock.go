package request

import (
	"context"
	"fmt"
	"sync"
	"time"

	awsmiddleware "github.com/aws/aws-sdk-go-v2/aws/middleware"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/aws/smithy-go/middleware"
	smithyhttp "github.com/aws/smithy-go/transport/http"
)

// Clock is AWS's clock: the date of its last answer plus the local time that has passed since. The local clock may be wrong by any
// amount; only its rate counts.
type Clock struct {
	mu     sync.Mutex
	local  func() time.Time
	date   time.Time // of the answer that was processed last; zero before the first
	read   time.Time // by the local clock
	latest time.Time // the latest date of all answers
}

// NewClock returns a clock that uses the local one until the first answer.
func NewClock() *Clock { return &Clock{local: time.Now} }

// SetLocal replaces the local clock, for tests.
func (c *Clock) SetLocal(now func() time.Time) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.local, c.read = now, now()
}

// Now returns AWS's time. It is never ahead of the true time, and lags behind it by at most a second (dates have whole seconds) plus
// the delay between an answer and its processing. It is never before the date of an answer that was processed already.
func (c *Clock) Now() time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.date.IsZero() {
		return c.local()
	}
	if now := c.date.Add(max(0, c.local().Sub(c.read))); now.After(c.latest) {
		return now
	}
	return c.latest
}

// Observe takes the date from the metadata of an answer and returns it: AWS's time when it gave this answer, regardless of when the
// answer is processed and of other answers. Without a date it returns AWS's present time.
func (c *Clock) Observe(answer middleware.Metadata) time.Time {
	if date, ok := awsmiddleware.GetServerTime(answer); ok {
		c.mu.Lock()
		c.date, c.read = date, c.local()
		if date.After(c.latest) {
			c.latest = date
		}
		c.mu.Unlock()
		return date
	}
	return c.Now()
}

// SignatureTTL is how long AWS accepts a signature. Each attempt of a call is signed separately, so a limit on signatures must be
// checked for each attempt. AWS refuses a request that arrives later than SignatureTTL after the time in its signature, wherever it
// was delayed. A limit for the time in the signature is therefore a limit for the time at which a request can be applied. The
// deadline of a context is not, because a sent request stays sent.
const SignatureTTL = 15 * time.Minute

// SignBefore is an option that refuses to send an attempt whose signature is later than until, with the error late. Options of the
// same request need different ids.
func SignBefore(id string, until time.Time, late error) func(*dynamodb.Options) {
	check := middleware.FinalizeMiddlewareFunc(id, func(ctx context.Context, in middleware.FinalizeInput, next middleware.FinalizeHandler) (middleware.FinalizeOutput, middleware.Metadata, error) {
		if r, ok := in.Request.(*smithyhttp.Request); ok {
			signed, err := time.Parse("20060102T150405Z", r.Header.Get("X-Amz-Date"))
			if err == nil && signed.After(until) {
				return middleware.FinalizeOutput{}, middleware.Metadata{}, fmt.Errorf("%w: signed at %v, which is after the limit %v", late, signed, until.UTC())
			}
		}
		return next.HandleFinalize(ctx, in)
	})
	return func(o *dynamodb.Options) {
		o.APIOptions = append(o.APIOptions, func(stack *middleware.Stack) error {
			return stack.Finalize.Insert(check, "Signing", middleware.After)
		})
	}
}
