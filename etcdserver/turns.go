package etcdserver

import (
	"context"
	"sync"
	"time"

	"github.com/ashlar-dev/storage/history"
)

// keyLocks has those who change one key whatever is stored there do so one after the other. All at once, each would be overtaken by one of the
// others again and again, and nobody would come to an end.
type keyLocks struct {
	mu   sync.Mutex
	keys map[string]*keyLock
}

// keyLock is that of one key.
type keyLock struct {
	slot  chan struct{} // holds an element while it is somebody's
	users int           // who has it, and who waits
	// last is what the one before has stored, as far as that is known. It belongs to whom the turn does.
	last *history.Record
}

// lockTimeout is how long a turn is waited for. Whoever has it may wait for a store that does not answer: then the others are not to wait for
// him, and for each other, first.
const lockTimeout = 2 * time.Second

// acquire waits for the turn of a key, which lasts until over is called. After a while it does without.
func (t *keyLocks) acquire(ctx context.Context, key string) (mine *keyLock, over func(), err error) {
	t.mu.Lock()
	if t.keys == nil {
		t.keys = map[string]*keyLock{}
	}
	one := t.keys[key]
	if one == nil {
		one = &keyLock{slot: make(chan struct{}, 1)}
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
	wait := time.NewTimer(lockTimeout)
	defer wait.Stop()
	select {
	case one.slot <- struct{}{}:
		return one, func() { <-one.slot; leave() }, nil
	case <-wait.C:
		leave()
		return &keyLock{}, func() {}, nil
	case <-ctx.Done():
		leave()
		return nil, nil, ctx.Err()
	}
}
