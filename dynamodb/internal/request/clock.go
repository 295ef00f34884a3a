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

// Clock is AWS's: the date of its last answer, and the time that has passed here since. The local clock may be wrong by any
// amount, only its pace counts.
type Clock struct {
	mu    sync.Mutex
	local func() time.Time
	date  time.Time // of an answer; zero before the first
	read  time.Time // by the local clock
}

// NewClock returns a clock that goes by the local one until the first answer.
func NewClock() *Clock { return &Clock{local: time.Now} }

// SetLocal has the clock go by another local one, for tests.
func (c *Clock) SetLocal(now func() time.Time) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.local, c.read = now, now()
}

// Now returns AWS's time. It is never ahead of the true one by more than the answers are late in being read.
func (c *Clock) Now() time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.date.IsZero() {
		return c.local()
	}
	return c.date.Add(max(0, c.local().Sub(c.read)))
}

// Observe takes the date from the metadata of an answer, and returns it: AWS's time when the answer was given, not when it is read,
// nor that of another answer that is read at the same time. Where it has none it returns AWS's time.
func (c *Clock) Observe(answer middleware.Metadata) time.Time {
	if date, ok := awsmiddleware.GetServerTime(answer); ok {
		c.mu.Lock()
		c.date, c.read = date, c.local()
		c.mu.Unlock()
		return date
	}
	return c.Now()
}

// SignatureTTL is how long AWS accepts a signature. Attempts of one call are signed one by one, so that what is to be known of a
// signature is asked of each. AWS refuses a request that arrives later than SignatureTTL after the time in its signature, wherever
// it was held up. So a bound for that time is a bound for the time at which a request can take effect, which no deadline of a context
// is: what was sent stays sent.
const SignatureTTL = 15 * time.Minute

// SignedBy is an option that refuses to send an attempt whose signature is of a later time than that, with the error late. Options
// of one request differ in id.
func SignedBy(id string, until time.Time, late error) func(*dynamodb.Options) {
	check := middleware.FinalizeMiddlewareFunc(id, func(ctx context.Context, in middleware.FinalizeInput, next middleware.FinalizeHandler) (middleware.FinalizeOutput, middleware.Metadata, error) {
		if r, ok := in.Request.(*smithyhttp.Request); ok {
			signed, err := time.Parse("20060102T150405Z", r.Header.Get("X-Amz-Date"))
			if err == nil && signed.After(until) {
				return middleware.FinalizeOutput{}, middleware.Metadata{}, fmt.Errorf("%w: signed %v, not to be after %v", late, signed, until.UTC())
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
