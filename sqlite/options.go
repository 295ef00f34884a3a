package sqlite

import (
	"cmp"
	"runtime"
	"time"

	"github.com/ashlar-dev/storage/driver"
	"github.com/ashlar-dev/storage/telemetry"
)

// Defaults of Options.
const (
	DefaultTimeout       = 30 * time.Second
	DefaultOutage        = 5 * time.Minute
	DefaultRetention     = time.Hour
	DefaultRetentionRows = 10_000_000

	// DefaultRetentionBytes is 1 GiB.
	DefaultRetentionBytes = 1 << 30
)

// defaultReaders returns the default number of reading connections. More connections than processors only compete with
// each other.
func defaultReaders() int { return max(2, runtime.GOMAXPROCS(0)) }

// Options are the settings of a store. The zero value of each field means its default.
type Options struct {
	// NoCreate makes Open fail if the store does not exist.
	NoCreate bool
	// Timeout bounds calls whose context has no deadline.
	Timeout time.Duration
	// Outage is how long watches continue if the file cannot be read.
	Outage time.Duration
	// MaxSize is the largest size of a resource in bytes. The default, 1 MiB, is also the maximum.
	MaxSize int
	// Retention is how long changes stay in history, unless RetentionRows or RetentionBytes is reached earlier. Watches and pages
	// can continue from such a change, and the store can be read as of it. The newest 2,048 changes stay longer. Retention is at
	// least driver.TokenLifetime. All changes of that age stay regardless of the other bounds, because pages and the snapshots of
	// watches need them.
	Retention time.Duration
	// RetentionRows is the maximum number of changes in history, accurate to a few hundred.
	RetentionRows int
	// RetentionBytes is the maximum size of history in bytes of resources, accurate to 32 MiB. It takes precedence over
	// age and number, also for the newest 2,048 changes. The minimum is 32 MiB. It does not bound the log of a database
	// that is smaller in total.
	RetentionBytes int
	// Readers is the number of connections for reading. The default is GOMAXPROCS, but at least 2.
	Readers int
	// Telemetry receives what the store reports.
	Telemetry telemetry.Options

	vfs          string        // for tests
	minRetention time.Duration // for tests: replaces driver.TokenLifetime
}

// minRetentionTime returns how long changes stay regardless of the bounds on number and size.
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

// maxOps is the maximum number of operations in a transaction. SQLite has no limit, but all writers wait for one
// transaction.
const maxOps = 256

// Bounds of a batch. A larger request is a batch by itself.
const (
	batchChanges = 512
	batchBytes   = 8 << 20
)

// The writer checks the end of the log after pruneEvery rows and deletes at most pruneStep rows in one transaction. That is more
// than arrive in between, so pruning catches up, and too few to delay other writers. The newest pruneNever rows, or
// pruneNeverBytes if the rows are large, stay regardless of retention, so a watch that keeps up is never cut off. Only the rest of a call that
// began before them may go with it.
const (
	pruneEvery = 256
	pruneStep  = 4 * pruneEvery
	pruneNever = 4 * batchChanges
	// The same bounds in bytes, for large rows.
	pruneEveryBytes = 16 << 20
	pruneStepBytes  = 4 * pruneEveryBytes
	pruneNeverBytes = 4 * batchBytes
)
