package serve

import (
	"container/list"
	"context"
	"sync"
)

// maxAnonymous is the number of gRPC calls without a valid token that may be active at once, such as watches of the health service,
// and of checks of the health service. Each may hold a message of
// maxReceived bytes.
const maxAnonymous = 256

// probes bounds the active checks of the health service without a token. A hostile client can keep many of them waiting for their message, so
// a check beyond the limit ends the oldest one instead of being refused: the checks of an honest client take no time.
type probes struct {
	mu     sync.Mutex
	active list.List // of the functions that end the checks, the oldest first
}

// admit returns the context of a check.
func (p *probes) admit(ctx context.Context) context.Context {
	ctx, end := context.WithCancel(ctx)
	p.mu.Lock()
	defer p.mu.Unlock()
	check := p.active.PushBack(end)
	if p.active.Len() > maxAnonymous {
		p.active.Remove(p.active.Front()).(context.CancelFunc)()
	}
	context.AfterFunc(ctx, func() {
		p.mu.Lock()
		defer p.mu.Unlock()
		p.active.Remove(check) // a check that was ended is no longer in the list
	})
	return ctx
}
