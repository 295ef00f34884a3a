package dynamodb

import "time"

// SetLocalClock replaces the local clock of a backend.
func SetLocalClock(b *Backend, now func() time.Time) { b.handle.table.clock.SetLocal(now) }

// SetPageItems sets the number of examined items after which a page of a backend ends.
func SetPageItems(b *Backend, n int) { b.handle.pageItems = n }
