package dynamofake

import (
	"context"
	"sync"

	awsmiddleware "github.com/aws/aws-sdk-go-v2/aws/middleware"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/aws/smithy-go/middleware"
)

// Freezer suspends a client between the composition of a request and its signature, as if its process were suspended. The context
// of the request does not end meanwhile.
type Freezer struct {
	operation string

	mu        sync.Mutex
	thawCh    chan struct{} // nil: not frozen
	requestCh chan struct{} // a token for each request held since Freeze
}

// NewFreezer returns a freezer for the requests of an operation. It is not frozen.
func NewFreezer(operation string) *Freezer { return &Freezer{operation: operation} }

// Freeze suspends the next requests until Thaw.
func (f *Freezer) Freeze() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.thawCh, f.requestCh = make(chan struct{}), make(chan struct{}, maxHeld)
}

// maxHeld is more than the number of requests that a test suspends.
const maxHeld = 1 << 10

// Wait returns when a request has been suspended.
func (f *Freezer) Wait() { f.WaitFor(1) }

// WaitFor returns when n more requests have been suspended.
func (f *Freezer) WaitFor(n int) {
	f.mu.Lock()
	held := f.requestCh
	f.mu.Unlock()
	for range n {
		<-held
	}
}

// Thaw resumes all requests.
func (f *Freezer) Thaw() {
	f.mu.Lock()
	defer f.mu.Unlock()
	close(f.thawCh)
	f.thawCh = nil
}

// Option is for the client that the freezer suspends.
func (f *Freezer) Option(o *dynamodb.Options) {
	stop := middleware.SerializeMiddlewareFunc("Freezer", func(ctx context.Context, in middleware.SerializeInput, next middleware.SerializeHandler) (middleware.SerializeOutput, middleware.Metadata, error) {
		if awsmiddleware.GetOperationName(ctx) == f.operation {
			f.stop()
			ctx = context.WithoutCancel(ctx)
		}
		return next.HandleSerialize(ctx, in)
	})
	o.APIOptions = append(o.APIOptions, func(stack *middleware.Stack) error {
		return stack.Serialize.Add(stop, middleware.Before)
	})
}

func (f *Freezer) stop() {
	f.mu.Lock()
	thawCh, held := f.thawCh, f.requestCh
	f.mu.Unlock()
	if thawCh == nil {
		return
	}
	held <- struct{}{}
	<-thawCh
}
