package dynamodb

import "time"

// SetLocalClock has a backend go by another local clock.
func SetLocalClock(b *Backend, now func() time.Time) { b.handle.table.clock.SetLocal(now) }
