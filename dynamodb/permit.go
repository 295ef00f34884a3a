package dynamodb

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/aws/aws-sdk-go-v2/service/dynamodb"

	"github.com/ashlar-dev/storage"
	"github.com/ashlar-dev/storage/driver"
	"github.com/ashlar-dev/storage/dynamodb/internal/request"
)

// permit is a handle's permission to write; fence.go says what for. A look at the fence grants it.
type permit struct {
	table *table
	life  context.Context // of the handle
	lasts time.Duration

	mu    sync.Mutex
	saw   fence
	until time.Time // by AWS's clock
	look  *look     // under way
}

func newPermit(life context.Context, t *table) *permit {
	return &permit{table: t, life: life, lasts: min(30*time.Second, t.opts.FenceWait/8)}
}

// look is one for all who wait for it. It goes on when they leave.
type look struct {
	done chan struct{}
	err  error
}

// Reasons for asking again.
var (
	errNotPermitted = request.NewError(request.Undone, "the permission to write was over before the request was signed")
	errGateShut     = request.NewError(request.Undone, "the store is being closed for writing")
)

// grant permits one request.
type grant struct {
	fence
	until time.Time
}

// option keeps a request from being signed too late.
func (g *grant) option(o *dynamodb.Options) {
	request.SignedBy("AshlarPermitted", g.until, errNotPermitted)(o)
}

// with sends a write with the permission for it, looking for a fence where that is necessary.
func (p *permit) with(ctx context.Context, send func(g *grant) error) error {
	for {
		g, l := p.get()
		if g != nil {
			err := send(g)
			if errors.Is(err, errNotPermitted) || errors.Is(err, errGateShut) {
				p.forget()
			}
			return err
		}
		select {
		case <-l.done:
		case <-ctx.Done():
			return fmt.Errorf("%w: the look for a fence was not answered", errNotPermitted)
		}
		switch {
		case p.life.Err() != nil:
			return storage.ErrClosed
		case l.err != nil && request.FateOf(l.err) != request.Refused:
			return fmt.Errorf("%w: look for a fence: %w", errNotPermitted, l.err)
		case l.err != nil:
			return l.err
		}
	}
}

// get returns the permission, if there is one, or the look that will tell.
func (p *permit) get() (*grant, *look) {
	p.mu.Lock()
	defer p.mu.Unlock()
	rest := p.until.Sub(p.table.clock.Now())
	if rest <= p.lasts/2 && p.look == nil {
		p.look = &look{done: make(chan struct{})}
		go p.renew(p.look)
	}
	if rest > 0 {
		return &grant{p.saw, p.until}, nil
	}
	return nil, p.look
}

// forget has the next write look.
func (p *permit) forget() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.until = time.Time{}
}

// renew looks at the fence.
func (p *permit) renew(l *look) {
	ctx, cancel := context.WithTimeout(p.life, p.table.opts.Timeout)
	defer cancel()
	saw, at, err := p.table.readFence(ctx)
	p.mu.Lock()
	defer p.mu.Unlock()
	if err == nil {
		p.saw, p.until = saw, at.Add(p.lasts)
	}
	if err == nil && saw.shut {
		p.until = time.Time{} // the next write looks again
		err = driver.FenceError(saw.target)
	}
	p.look = nil
	l.err = err
	close(l.done)
}
