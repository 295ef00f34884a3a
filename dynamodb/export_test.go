package dynamodb

import "time"

// SetLocalClock replaces the local clock of a backend.
func SetLocalClock(b *Backend, now func() time.Time) { b.handle.table.clock.SetLocal(now) }

// SetPageItems sets the maximum number of examined items in a page of a backend.
func SetPageItems(b *Backend, n int) { b.handle.pageItems = n }
