package etcdserver

import (
	"context"
	"sync"
	"time"

	"github.com/ashlar-dev/storage/history"
)

// keyLocks serializes unconditional changes of the same key. Without it, concurrent changes would overtake each other again and again, and
// none would finish.
type keyLocks struct {
	mu   sync.Mutex
	keys map[string]*keyLock
}

// keyLock is the lock of one key.
type keyLock struct {
	slot  chan struct{} // holds an element while the lock is held
	users int           // the holder and the waiters
	// last is the record that the previous holder stored, if known. Only the holder may use it.
	last *history.Record
}

// lockTimeout bounds the wait for a lock, because the holder may be blocked on a store that does not answer. Without the bound, its waiters
// would wait for it and then for each other.
const lockTimeout = 2 * time.Second

// acquire acquires the lock of a key, which is held until release is called. After lockTimeout it continues without the lock.
func (t *keyLocks) acquire(ctx context.Context, key string) (held *keyLock, release func(), err error) {
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
