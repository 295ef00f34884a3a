package migrate

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"golang.org/x/time/rate"

	"github.com/ashlar-dev/storage"
	"github.com/ashlar-dev/storage/driver"
)

// Errors of a migration, for errors.Is.
var (
	// ErrNotEmpty means that the target has resources and Options.Into does not decide about them.
	ErrNotEmpty = errors.New("the target is not empty")
	// ErrConflict means that the target has a different resource under a key of the source, and may not replace it.
	ErrConflict = errors.New("the target holds something else under the same key")
	// ErrBusy means that the target takes part in another migration, or that another process is working on this migration.
	ErrBusy = errors.New("the target takes part in another migration")
	// ErrSuperseded means that another process has continued this migration, and this process has stopped.
	ErrSuperseded = errors.New("another process has taken over this migration")
	// ErrDiffers means that the two sides are not equal at the end.
	ErrDiffers = errors.New("source and target differ")
	// ErrUnsupported means that a store lacks a required ability, which the error names.
	ErrUnsupported = errors.New("the store does not support this")
)

// Into decides about existing resources in the target.
type Into int

const (
	// Empty requires an empty target.
	Empty Into = iota
	// Merge keeps existing resources. A key with different contents on both sides is ErrConflict, found before anything is written.
	Merge
	// Overwrite keeps existing resources but replaces those that differ.
	Overwrite
	// Mirror replaces resources that differ and deletes those that the source does not have.
	Mirror
)

// prunes reports whether resources that the source does not have may be deleted from the target.
func (i Into) prunes() bool { return i == Empty || i == Mirror }

// Options configure a migration. Nil and zero values are the defaults.
type Options struct {
	// From and To are display names of the stores: for errors, the journal, and the error of writers to the source after cutover,
	// which also contains the beginning of the target's identity. They must not contain a password; Name makes such names from
	// URLs.
	From, To string
	// Into decides about existing resources in the target. After the start of a migration, Merge may become Overwrite; Merge and
	// Overwrite are refused if the migration was started to make the target equal.
	Into Into

	// Live follows the source's changes after the copy until a cutover, so that programs can continue to write to the source.
	// Without it the source should not change during the copy; if it does, the comparison at the end fails.
	Live bool
	// Cutover starts the cutover of a live migration when it is closed or a value is received from it.
	Cutover <-chan struct{}
	// CutoverLag starts the cutover of a live migration as soon as the target is proven to be less than this behind. The proof
	// takes a round trip to the source, or, if its watches are no storage.Bookmarker, a comparison of both sides.
	CutoverLag time.Duration

	// Rate limits the changes of the target per second; 0 is no limit.
	Rate float64
	// Parallel is the number of concurrent writers to the target. The default is 32.
	Parallel int
	// PageSize is the number of resources in a page of a listing. The default is 500.
	PageSize int
	// Batch is the maximum number of resources that are created together. The default depends on the target; 1 creates them one by
	// one.
	Batch int
	// Timeout is how long a database may fail to answer before the migration fails. The default is a minute. Completed work is
	// kept.
	Timeout time.Duration

	// Count lists the source once more at the start, so that Progress contains the total.
	Count bool
	// Progress is called about once a second and when the phase changes, never concurrently.
	Progress func(Progress)

	// takeover is how long to wait for heartbeats of another process, and lease how long a heartbeat allows writes.
	takeover, lease time.Duration
}

// Next is the way to continue after a call of Run.
type Next string

const (
	// Nothing: the migration is complete, or was never started.
	Nothing Next = ""
	// Retry: the same call continues, once the cause of the error is gone.
	Retry Next = "again"
	// AbortFirst: the same call would fail again, so call Abort first.
	AbortFirst Next = "give up"
	// Stop: another process has taken over, or aborted, the migration.
	Stop Next = "leave"
)

// Result describes the outcome of a call of Run.
type Result struct {
	// Phase is the phase that the migration has reached.
	Phase Phase
	// HasJournal reports that the target's journal contains the migration, so it can be continued, whatever ended this call.
	HasJournal bool
	// Next is the way to continue after an error.
	Next Next
	// SourceClosed reports that this call has closed the source for writing, or may have, and has not opened it again.
	SourceClosed bool
	// IsResumed reports that the call continued the migration of an earlier run.
	IsResumed bool
	// WasComplete reports that the migration had been completed before, and nothing was done.
	WasComplete bool
	// Work counts the work of this run.
	Work Counts
	// Report is the comparison at the end, if there was one.
	Report *Report
	// CopyTime is the duration of the copy in this run, without the comparison at the end.
	CopyTime time.Duration
	// Duration is the duration of this run.
	Duration time.Duration
	// FenceTime is how long the source was closed before the target was complete.
	FenceTime time.Duration
}

// defaultTarget is the default display name of a target.
const defaultTarget = "the target"

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

// Run moves the contents of from to the store to, or continues a migration: the target's journal contains the progress of an
// earlier run.
//
// Without Options.Live it copies once and compares. With it, it copies, follows, and at the cutover closes the source for writing,
// transfers the rest and compares; then Result.Phase is Complete. When ctx ends it stops, at any point; the same call continues
// later.
func Run(ctx context.Context, from, to storage.Backend, opts *Options) (*Result, error) {
	m := newMigration(from, to, opts)
	began := time.Now()
	ctx, cancel := withoutDeadline(ctx)
	defer cancel(nil)
	stop := m.stats.report(ctx)
	r, err := m.run(ctx, cancel)
	stop()
	r.Work, r.Duration = m.stats.counts(), time.Since(began)
	if m.journal != nil {
		if phase := m.journal.current().Phase; phase != "" && phase != phaseComplete && phase != phaseAborted {
			r.Phase, r.HasJournal = phase, true
		}
	}
	if errors.Is(err, driver.ErrSuperseded) {
		err = errors.Join(ErrSuperseded, err)
	}
	r.Next = next(r, err)
	r.SourceClosed = r.Phase != Complete && m.closed.Load()
	if err != nil {
		if cause := context.Cause(ctx); cause != nil && !errors.Is(err, cause) {
			err = errors.Join(cause, err)
		}
		return r, fmt.Errorf("migrate from %s to %s: %w", m.o.From, m.o.To, err)
	}
	return r, nil
}

// next returns the way to continue.
func next(r *Result, err error) Next {
	switch {
	case err == nil:
		return Nothing
	case errors.Is(err, ErrSuperseded):
		return Stop
	case errors.Is(err, errStuck), errors.Is(err, errElsewhere):
		return AbortFirst
	case r.HasJournal:
		return Retry
	}
	return Nothing
}

func (m *migration) run(ctx context.Context, cancel context.CancelCauseFunc) (*Result, error) {
	r := &Result{Phase: Copying}
	if m.o.Live {
		for _, need := range []struct {
			there bool
			what  string
		}{
			{m.source != nil, "the source cannot be closed for writing"},
			{m.resumer != nil, "the source's watches cannot be resumed (it is no storage.Resumer)"},
			{m.target != nil, "the target cannot store a journal"},
		} {
			if !need.there {
				return r, fmt.Errorf("%w: %s", ErrUnsupported, need.what)
			}
		}
	}
	if err := m.begin(ctx, r); err != nil || r.WasComplete {
		return r, err
	}
	if m.o.Count {
		if err := m.count(ctx); err != nil {
			return r, err
		}
	}
	stop := m.keepAlive(ctx, cancel)
	defer stop()
	if err := m.prepareTarget(ctx); err != nil {
		return r, err
	}
	if !m.o.Live {
		return r, m.copyOnce(ctx, r)
	}
	return r, m.live(ctx, r)
}

// count lists the source to determine the total.
func (m *migration) count(ctx context.Context) error {
	l, err := m.listSource(ctx)
	if err != nil {
		return err
	}
	defer l.close()
	for n := int64(0); ; n++ {
		e, err := l.next(ctx)
		if err != nil {
			return fmt.Errorf("source: %w", err)
		}
		if e == nil {
			m.stats.total.Store(n)
			return nil
		}
	}
}
