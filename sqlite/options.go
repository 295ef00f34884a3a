package sqlite

import (
	"cmp"
	"runtime"
	"time"

	"github.com/ashlar-dev/storage/driver"
)

// The defaults of Options.
const (
	DefaultTimeout       = 30 * time.Second
	DefaultOutage        = 5 * time.Minute
	DefaultRetention     = time.Hour
	DefaultRetentionRows = 10_000_000

	// DefaultRetentionBytes is 1 GiB.
	DefaultRetentionBytes = 1 << 30
)

// defaultReaders is the default number of reading connections: more than there are processors only get in each other's way.
func defaultReaders() int { return max(2, runtime.GOMAXPROCS(0)) }

// Options of a store. The zero value of each field means its default.
type Options struct {
	// NoCreate makes Open fail where there is no store yet.
	NoCreate bool
	// Timeout bounds calls whose context has no deadline.
	Timeout time.Duration
	// Outage is how long watches go on while the file cannot be read, before they end.
	Outage time.Duration
	// MaxSize is the largest size of a resource in bytes, at most 1 MiB, which is the default.
	MaxSize int
	// Retention is how far history goes back: for how long a watch or a page can go on from a change, and the store be read as it
	// was then, unless RetentionRows or RetentionBytes is reached earlier. The newest 2,048 changes are kept longer. At least it is
	// driver.TokenLifetime, and so long all changes are kept, whatever the other bounds: pages and the snapshots of watches need them.
	Retention time.Duration
	// RetentionRows is the number of changes in history at most, give or take a few hundred.
	RetentionRows int
	// RetentionBytes is the number of bytes of resources in the changes of history at most, give or take 32 MiB, whatever their age and
	// number: also of the newest 2,048. At least 32 MiB are. The log of a database that is smaller than this as a whole is not bounded by it.
	RetentionBytes int
	// Readers is the number of connections for reading. The default is GOMAXPROCS, but at least 2.
	Readers int

	vfs          string        // for tests
	minRetention time.Duration // for tests: instead of driver.TokenLifetime
}

// minRetentionTime is how long a change is retained, regardless of the bounds on number and size.
func (o *Options) minRetentionTime() time.Duration {
	return cmp.Or(o.minRetention, driver.TokenLifetime)
}

func (o *Options) withDefaults() Options {
	var d Options
	if o != nil {
		d = *o
	}
	if d.Timeout <= 0 {
		d.Timeout = DefaultTimeout
	}
	if d.Outage <= 0 {
		d.Outage = DefaultOutage
	}
	if d.Retention <= 0 {
		d.Retention = DefaultRetention
	}
	d.Retention = max(d.Retention, d.minRetentionTime())
	if d.RetentionRows <= 0 {
		d.RetentionRows = DefaultRetentionRows
	}
	if d.RetentionBytes <= 0 {
		d.RetentionBytes = DefaultRetentionBytes
	}
	d.RetentionBytes = max(d.RetentionBytes, pruneNeverBytes)
	if d.Readers <= 0 {
		d.Readers = defaultReaders()
	}
	return d
}

// maxOps is the largest number of operations in a transaction. SQLite sets no bound; all writers wait for one transaction.
const maxOps = 256

// The bounds of a batch. A request that exceeds them is a batch by itself.
const (
	batchChanges = 512
	batchBytes   = 8 << 20
)

// The writer looks at the log's end again after so many rows, and deletes so many at most in one transaction: more than come
// in, so that it catches up, and few enough to delay nobody. The newest rows are always kept, so that watches which keep up
// are never cut off, whatever the retention: a number of them, or where they are large, bytes.
const (
	pruneEvery = 256
	pruneStep  = 4 * pruneEvery
	pruneNever = 4 * batchChanges
	// The same in bytes, for rows that are large: a look after so many at the latest, and so many deleted at a time.
	pruneEveryBytes = 16 << 20
	pruneStepBytes  = 4 * pruneEveryBytes
	pruneNeverBytes = 4 * batchBytes
)
