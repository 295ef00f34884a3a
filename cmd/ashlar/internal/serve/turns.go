package serve

import (
	"context"
	"sync"

	"golang.org/x/sync/semaphore"
	"google.golang.org/grpc/status"
)

// maxTurns is the number of turns. A list or snapshot takes one for each maxTurn bytes of resources that it holds at most.
const (
	maxTurns = 64
	maxTurn  = 4 << 20
)

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

// take waits for n turns of a caller, or for all of the caller's if these are fewer. It fails if ctx ends before. release ends them, once.
func (t *turns) take(ctx context.Context, caller string, n int64) (release func(), err error) {
	n = min(n, t.each)
	own := t.caller(caller)
	if err := own.Acquire(ctx, n); err != nil {
		return nil, status.FromContextError(err).Err()
	}
	if err := t.total.Acquire(ctx, n); err != nil {
		own.Release(n)
		return nil, status.FromContextError(err).Err()
	}
	return sync.OnceFunc(func() {
		t.total.Release(n)
		own.Release(n)
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
