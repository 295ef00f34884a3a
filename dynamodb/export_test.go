package dynamodb

import "time"

// SetLocalClock has a backend go by another local clock.
func SetLocalClock(b *Backend, now func() time.Time) { b.handle.table.clock.SetLocal(now) }

// SetPageItems has the pages of a backend end after other numbers of items.
func SetPageItems(b *Backend, n int) { b.handle.pageItems = n }
