package etcdserver

import (
	"context"
	"sync"
	"time"

	"github.com/ashlar-dev/storage/history"
)

// turns has those who change one key whatever is stored there do so one after the other. All at once, each would be overtaken by one of the
// others again and again, and nobody would come to an end.
type turns struct {
	mu   sync.Mutex
	keys map[string]*turn
}

// turn is that of one key.
type turn struct {
	slot  chan struct{} // holds an element while it is somebody's
	users int           // who has it, and who waits
	// last is what the one before has stored, as far as that is known. It belongs to whom the turn does.
	last *history.Record
}

// turnTimeout is how long a turn is waited for. Whoever has it may wait for a store that does not answer: then the others are not to wait for
// him, and for each other, first.
const turnTimeout = 2 * time.Second

// take waits for the turn of a key, which lasts until over is called. After a while it does without.
func (t *turns) take(ctx context.Context, key string) (mine *turn, over func(), err error) {
	t.mu.Lock()
	if t.keys == nil {
		t.keys = map[string]*turn{}
	}
	one := t.keys[key]
	if one == nil {
		one = &turn{slot: make(chan struct{}, 1)}
		t.keys[key] = one
	}
	one.users++
	t.mu.Unlock()
	leave := func() {
		t.mu.Lock()
		defer t.mu.Unlock()
		if one.users--; one.users == 0 {
			delete(t.keys, key)
		}
	}
	wait := time.NewTimer(turnTimeout)
	defer wait.Stop()
	select {
	case one.slot <- struct{}{}:
		return one, func() { <-one.slot; leave() }, nil
	case <-wait.C:
		leave()
		return &turn{}, func() {}, nil
	case <-ctx.Done():
		leave()
		return nil, nil, ctx.Err()
	}
}
