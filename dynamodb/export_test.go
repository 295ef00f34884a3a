package dynamodb

import "time"

// SetLocalClock has a backend go by another local clock.
func SetLocalClock(b *Backend, now func() time.Time) {
	b.handle.clock.mu.Lock()
	defer b.handle.clock.mu.Unlock()
	b.handle.clock.local = now
	b.handle.clock.read = now()
}
