package migrate

import (
	"context"
	"fmt"
	"sync/atomic"
	"time"

	"golang.org/x/time/rate"

	"github.com/ashlar-dev/storage"
	"github.com/ashlar-dev/storage/driver"
)

const (
	// maxBatchBytes limits the resources of one transaction, and together with Options.Parallel the memory of all.
	maxBatchBytes = 512 << 10
	// maxBatch is the number of operations above which a larger transaction gains nothing.
	maxBatch = 256
	// maxLoad and maxLoadBytes limit a batch of a loader, and maxLoads the number of concurrent batches.
	maxLoad      = 4096
	maxLoadBytes = 4 << 20
	maxLoads     = 2
)

// migration is the state of a migration in one process.
type migration struct {
	from, to   storage.Backend
	source     driver.Mover // nil if the store is none
	target     driver.Mover
	resumer    storage.Resumer
	transactor storage.Transactor
	loader     driver.Bulk
	batch      int // maximum number and size of resources that are created together
	batchBytes int

	o           Options
	closedFor   string // the name under which the source is closed, if this process starts the migration
	limiter     *rate.Limiter
	try         retrier
	stats       *stats
	journal     *journal // nil if the target cannot store one
	gate        *gate    // of the source; nil if it has no fence
	targetGate  *gate    // of the target; nil if its fence cannot admit the tool
	targetEpoch string   // of the target's fence, once it is closed

	hasBookmarks  bool        // the source's watches have bookmarks
	comparePasses int         // passes that gave the target the source's state of a known time
	closed        atomic.Bool // this run has closed the source, or may have
	unanswered    atomic.Bool // a change of the target was not answered since the guard was taken, so it may still arrive
}

func newMigration(from, to storage.Backend, opts *Options) *migration {
	m := &migration{from: from, to: to}
	if opts != nil {
		m.o = *opts
	}
	o := &m.o
	if o.From == "" {
		o.From = "the source"
	}
	if o.To == "" {
		o.To = defaultTarget
	}
	o.From, o.To = legible(o.From), legible(o.To)
	if o.Parallel <= 0 {
		o.Parallel = 32
	}
	if o.PageSize <= 0 {
		o.PageSize = 500
	}
	if o.Timeout <= 0 {
		o.Timeout = time.Minute
	}
	if o.takeover == 0 {
		o.takeover = takeoverTime
	}
	if o.lease == 0 {
		o.lease = leaseTime
	}
	if o.Rate > 0 {
		m.limiter = rate.NewLimiter(rate.Limit(o.Rate), max(1, int(o.Rate/10)))
		// The store drops a listing that is not continued for minutes.
		o.PageSize = max(1, min(o.PageSize, int(o.Rate*30)))
	}
	m.stats = newStats(o.Progress)
	m.try = retrier{timeout: o.Timeout, waiting: m.stats.warn}
	m.source, _ = storage.As[driver.Mover](from)
	m.resumer, _ = storage.As[storage.Resumer](from)
	if to != nil {
		m.target, _ = storage.As[driver.Mover](to)
		m.transactor, _ = storage.As[storage.Transactor](to)
		m.loader, _ = storage.As[driver.Bulk](to)
	}
	m.batch, m.batchBytes = 1, maxBatchBytes
	if m.transactor != nil {
		m.batch = min(m.transactor.MaxOps(), maxBatch)
	}
	if m.loader != nil {
		m.batch, m.batchBytes = maxLoad, maxLoadBytes
	}
	if o.Batch > 0 {
		m.batch = min(m.batch, o.Batch)
	}
	if o.Rate > 0 {
		m.batch = max(1, min(m.batch, int(o.Rate)))
	}
	return m
}

func (m *migration) listSource(ctx context.Context) (*listing, error) {
	l, err := list(ctx, m.from, m.o.PageSize, m.try)
	if err != nil {
		return nil, fmt.Errorf("source: %w", err)
	}
	return l, nil
}

func (m *migration) listTarget(ctx context.Context) (*listing, error) {
	l, err := list(ctx, m.to, m.o.PageSize, m.try)
	if err != nil {
		return nil, fmt.Errorf("target: %w", err)
	}
	return l, nil
}

func (m *migration) noteCursor(ctx context.Context, cursor string) error {
	return m.journal.change(ctx, func(s *state) { s.Cursor = cursor })
}

func (m *migration) enter(ctx context.Context, phase Phase, cursor string) error {
	return m.journal.change(ctx, func(s *state) { s.Phase, s.Cursor = phase, cursor })
}
