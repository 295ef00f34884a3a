package proxy

import (
	"sync"
	"time"
)

// throttle is the bound on one direction.
type throttle struct {
	mu   sync.Mutex
	rate int
	free time.Time // when the link has carried all that was promised a place on it
}

func (t *throttle) set(rate int) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.rate, t.free = max(0, rate), time.Time{}
}

// pieces is how many pieces a second pass at least, so that connections take turns.
const pieces = 100

// chunk is how many bytes to read at once.
func (t *throttle) chunk(most int) int {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.rate == 0 {
		return most
	}
	return max(1, min(most, t.rate/pieces))
}

// wait takes the link for n bytes and returns when it has carried them; false if broken is closed first.
func (t *throttle) wait(n int, broken <-chan struct{}) bool {
	t.mu.Lock()
	if t.rate == 0 {
		t.mu.Unlock()
		return true
	}
	now := time.Now()
	if t.free.Before(now) {
		t.free = now
	}
	// The sum of the waits is exact, not each wait: a late timer shortens the waits after it.
	t.free = t.free.Add(time.Duration(n) * time.Second / time.Duration(t.rate))
	until := t.free
	t.mu.Unlock()
	timer := time.NewTimer(time.Until(until))
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-broken:
		return false
	}
}
