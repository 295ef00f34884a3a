package dynamodb

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/ashlar-dev/storage"
	"github.com/ashlar-dev/storage/dynamodb/internal/request"
	"github.com/ashlar-dev/storage/dynamodb/internal/streams"
)

// checkMoved returns the error of a strong read, after its answer, if the store had moved by then.
//
// A store moves only after it was closed, which takes longer than a permission to write lasts. So an open store that is permitted to be
// written has not moved, and the read costs nothing more. While the store is being closed, or is closed, each strong read also reads the
// fence. The order of the two reads does not matter, because a closed store does not change.
func (p *writeLease) checkMoved(ctx context.Context) error {
	for {
		p.mu.Lock()
		shut := p.saw.shut
		p.mu.Unlock()
		if !shut {
			g, l := p.get()
			if g != nil && g.epoch == nil {
				return nil
			}
			if g == nil {
				if err := p.awaitRenewal(ctx, l); err != nil {
					return err
				}
				continue
			}
		}
		f, _, err := p.table.readFence(ctx)
		switch {
		case err != nil:
			return fmt.Errorf("read the fence: %w", err)
		case f.shut:
			return f.value.ReadError(ctx)
		case !shut:
			return nil // announced, or withdrawn
		}
		p.mu.Lock()
		p.saw, p.until = fence{}, time.Time{} // the next read or write renews the permission
		p.mu.Unlock()
		return nil
	}
}

// awaitRenewal waits for a read of the fence. A closed fence is no error.
func (p *writeLease) awaitRenewal(ctx context.Context, l *leaseRenewal) error {
	select {
	case <-l.endCh:
	case <-ctx.Done():
		return request.Inconsistent(ctx, errors.New("the read of the fence was not answered"))
	}
	switch {
	case p.lifetime.Err() != nil:
		return storage.ErrClosed
	case l.err == nil || errors.Is(l.err, storage.ErrFenced):
		return nil
	}
	return fmt.Errorf("read the fence: %w", l.err)
}

// source is the table's stream until the store has moved.
type source struct {
	streams.Stream
	lease *writeLease
}

// Run implements driver.Source. Its error is a *storage.MovedError if the store has moved. Every change was published then, or the error
// has no cursor.
func (s source) Run(ctx context.Context, ready func(*streams.Position), publish func([]*streams.Event, *streams.Position)) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	var group sync.WaitGroup
	err := s.Stream.Run(ctx, func(at *streams.Position) {
		group.Go(func() { // before the first watch opens, as in package backend
			if moved := s.awaitMove(ctx); moved != nil {
				cancel(moved)
			}
		})
		ready(at)
	}, publish)
	cancel(nil)
	group.Wait()
	if moved := (*storage.MovedError)(nil); errors.As(context.Cause(ctx), &moved) {
		return moved
	}
	return err
}

// awaitMove blocks until the store has moved, and a proof has shown that all of its changes were published. It returns nil if ctx has
// ended. Without a proof, the error has no cursor, because a watch that continues there might miss a change.
func (s source) awaitMove(ctx context.Context) *storage.MovedError {
	for ; ctx.Err() == nil; request.Sleep(ctx, s.lease.lasts/2) {
		f, err := s.readFence(ctx)
		var moved *storage.MovedError
		if err != nil || !f.shut || !errors.As(f.value.Move(), &moved) {
			continue // a failed read is repeated
		}
		proven, err := s.AwaitEnd(ctx)
		switch {
		case err != nil:
			continue
		case !proven:
			moved.Cursor = ""
		}
		return moved
	}
	return nil
}

func (s source) readFence(ctx context.Context) (fence, error) {
	ctx, cancel := context.WithTimeout(ctx, s.lease.table.opts.Timeout)
	defer cancel()
	f, _, err := s.lease.table.readFence(ctx)
	return f, err
}
