package backend

import (
	"cmp"
	"context"
	"errors"
	"sync"
	"time"

	"github.com/ashlar-dev/storage"
	"github.com/ashlar-dev/storage/driver"
)

// moveInterval is the interval at which a handle with watches reads the fence.
const moveInterval = 2 * time.Second

// moveWatcher ends the run of a source with a *storage.MovedError once the store has moved and every change was published. A store is closed
// before it moves, so it has a last change.
type moveWatcher[P any] struct {
	source   driver.Source[P]
	prover   driver.Prover[P]
	readMove func(ctx context.Context) error // returns the *storage.MovedError of a store that has moved
	moveCh   chan struct{}                   // has an element if another request has found the move; capacity 1
}

// run is the Run of the source.
func (m *moveWatcher[P]) run(ctx context.Context, ready func(P), publish func(events []*driver.Event[P], end P)) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	p := &progress[P]{advanceCh: make(chan struct{}, 1)}
	var group sync.WaitGroup
	err := m.source.Run(ctx,
		func(at P) {
			p.advance(at)
			// The goroutine is started before the first watch opens, so that a later list of goroutines has no new one. It may end the run of a
			// moved store at once. A watch that resumes there still returns the changes before the move, because the feed starts watches on a run
			// that was ready, even if it has ended.
			group.Go(func() {
				if err := m.awaitMove(ctx, p); err != nil {
					cancel(err)
				}
			})
			ready(at)
		},
		func(events []*driver.Event[P], end P) {
			publish(events, end)
			p.advance(end)
		})
	cancel(nil)
	group.Wait()
	if moved := (*storage.MovedError)(nil); errors.As(context.Cause(ctx), &moved) {
		return moved
	}
	return err
}

// progress is the last published position.
type progress[P any] struct {
	advanceCh chan struct{}
	mu        sync.Mutex
	at        P
}

func (p *progress[P]) advance(at P) {
	p.mu.Lock()
	p.at = at
	p.mu.Unlock()
	select {
	case p.advanceCh <- struct{}{}:
	default:
	}
}

func (p *progress[P]) position() P {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.at
}

// awaitMove blocks until the store has moved and the newest position was published. It returns the *storage.MovedError, or nil if ctx has
// ended.
func (m *moveWatcher[P]) awaitMove(ctx context.Context, p *progress[P]) error {
	for ; ctx.Err() == nil; m.pause(ctx) {
		moved := m.readMove(ctx)
		if !errors.Is(moved, storage.ErrMoved) {
			continue // a failed read is repeated after the interval
		}
		newest, err := m.prover.Newest(ctx)
		if err != nil {
			continue
		}
		for !m.prover.HasReached(p.position(), newest) {
			select {
			case <-p.advanceCh:
			case <-ctx.Done():
				return nil
			}
		}
		return moved
	}
	return nil
}

// pause waits for the interval, or until another request has found the move.
func (m *moveWatcher[P]) pause(ctx context.Context) {
	timer := time.NewTimer(moveInterval)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-m.moveCh:
	case <-ctx.Done():
	}
}

// serialProver makes calls of Newest one after the other: the feed's bookmarks and awaitMove both use it.
type serialProver[P any] struct {
	driver.Prover[P]
	turn chan struct{}
}

func (p *serialProver[P]) Newest(ctx context.Context) (P, error) {
	select {
	case p.turn <- struct{}{}:
	case <-ctx.Done():
		var none P
		return none, ctx.Err()
	}
	defer func() { <-p.turn }()
	return p.Prover.Newest(ctx)
}

// unmovedProver proves the progress of watches until the store has moved: afterwards their changes are not the newest any more. Then
// moveWatcher ends the run.
type unmovedProver[P any] struct {
	driver.Prover[P]
	watcher *moveWatcher[P]
}

// Newest implements driver.Prover.
func (p unmovedProver[P]) Newest(ctx context.Context) (P, error) {
	at, err := unlessMoved(ctx, p.watcher.readMove, p.Prover.Newest)
	if errors.Is(err, storage.ErrMoved) {
		select {
		case p.watcher.moveCh <- struct{}{}:
		default:
		}
	}
	return at, err
}

// unlessMoved makes a strong read that does not refuse a moved store by itself, and reads the fence at the same time. The order of the two
// does not matter: the store was the newest one when the fence was read, which is during the call.
func unlessMoved[T any](ctx context.Context, readMove func(ctx context.Context) error, read func(ctx context.Context) (T, error)) (T, error) {
	moved := make(chan error, 1)
	go func() { moved <- readMove(ctx) }()
	result, err := read(ctx)
	return result, cmp.Or(err, <-moved)
}
