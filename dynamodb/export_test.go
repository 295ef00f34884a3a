package dynamodb

import (
	"time"

	"github.com/ashlar-dev/storage/driver"
)

// SetLocalClock replaces the local clock of a backend.
func SetLocalClock(b *Backend, now func() time.Time) { b.handle.table.clock.SetLocal(now) }

// SetPageItems sets the maximum number of examined items in a page of a backend.
func SetPageItems(b *Backend, n int) { b.handle.pageItems = n }

// SetSizes divides by n the size of the parts that a backend writes, and the size of its pages.
func SetSizes(b *Backend, n int) {
	b.handle.table.partSize = defaultPartSize / n
	b.handle.lister.pageBytes, b.handle.columnChecker.pageBytes = driver.PageBytes/n, driver.PageBytes/n
}
