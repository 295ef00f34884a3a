package sqlite

import (
	"context"
	"errors"
	"time"

	"github.com/ashlar-dev/storage"
)

// pool holds the reading connections, opened when they are first needed.
type pool struct {
	open    func(context.Context) (*conn, error)
	timeout time.Duration
	free    chan *conn
	room    chan struct{} // a token for each connection that may still be opened
	closed  chan struct{}
}

func newPool(size int, timeout time.Duration, open func(context.Context) (*conn, error)) *pool {
	p := &pool{open: open, timeout: timeout, free: make(chan *conn, size), room: make(chan struct{}, size), closed: make(chan struct{})}
	for range size {
		p.room <- struct{}{}
	}
	return p
}

// take returns a connection that ctx interrupts, within ctx or, where that has no deadline, the pool's timeout. Each has to be
// given back.
func (p *pool) take(ctx context.Context) (*conn, error) {
	select {
	case c := <-p.free:
		c.db.SetInterrupt(ctx)
		return c, nil
	default:
	}
	waiting := ctx
	if _, has := ctx.Deadline(); !has {
		var cancel context.CancelFunc
		waiting, cancel = context.WithTimeout(ctx, p.timeout)
		defer cancel()
	}
	select {
	case c := <-p.free:
		c.db.SetInterrupt(ctx)
		return c, nil
	case <-p.room:
		c, err := p.open(waiting)
		if err != nil {
			p.room <- struct{}{}
			return nil, failed(waiting, "open another connection", err)
		}
		c.db.SetInterrupt(ctx)
		return c, nil
	case <-p.closed:
		return nil, storage.ErrClosed
	case <-waiting.Done():
		return nil, tooLate(waiting)
	}
}

// give takes a connection back. It is never inside a transaction then, which would show its next users the past.
func (p *pool) give(c *conn) {
	if c.abandon() != nil {
		_ = c.close() // the transaction goes with it
		p.room <- struct{}{}
		return
	}
	p.free <- c
}

// close waits for the connections in use and closes them all. It is called once.
func (p *pool) close() error {
	close(p.closed)
	var errs []error
	for range cap(p.free) {
		select {
		case c := <-p.free:
			errs = append(errs, c.close())
		case <-p.room:
		}
	}
	return errors.Join(errs...)
}
