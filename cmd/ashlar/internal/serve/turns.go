package serve

import (
	"context"
	"sync"

	"golang.org/x/sync/semaphore"
	"google.golang.org/grpc/status"
)

// maxTurns is the number of lists and snapshots of watches that are read at once. Each holds some MiB of resources.
const maxTurns = 64

// turns bounds the number of lists and snapshots that are read at once, of all callers together and of each caller. Further ones wait.
type turns struct {
	total *semaphore.Weighted
	each  int64

	mu      sync.Mutex
	callers map[string]*semaphore.Weighted // by the name of the token
}

// newTurns returns turns that limit each caller to a quarter. Without tokens there is one caller, which can use all.
func newTurns(total int64, tokens bool) *turns {
	t := &turns{total: semaphore.NewWeighted(total), each: total, callers: map[string]*semaphore.Weighted{}}
	if tokens {
		t.each = total / 4
	}
	return t
}

// take waits for a turn of a caller. It fails if ctx ends before. release ends the turn, once.
func (t *turns) take(ctx context.Context, caller string) (release func(), err error) {
	own := t.caller(caller)
	if err := own.Acquire(ctx, 1); err != nil {
		return nil, status.FromContextError(err).Err()
	}
	if err := t.total.Acquire(ctx, 1); err != nil {
		own.Release(1)
		return nil, status.FromContextError(err).Err()
	}
	return sync.OnceFunc(func() {
		t.total.Release(1)
		own.Release(1)
	}), nil
}

// caller returns the turns of a caller.
func (t *turns) caller(name string) *semaphore.Weighted {
	t.mu.Lock()
	defer t.mu.Unlock()
	own := t.callers[name]
	if own == nil {
		own = semaphore.NewWeighted(t.each)
		t.callers[name] = own
	}
	return own
}
