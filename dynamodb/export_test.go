package dynamodb

import "time"

// SetLocalClock has a backend go by another local clock.
func SetLocalClock(b *Backend, now func() time.Time) {
	b.clock.mu.Lock()
	defer b.clock.mu.Unlock()
	b.clock.local = now
	b.clock.read = now()
}
