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

// The errors of a migration that a caller may want to tell apart.
var (
	// ErrNotEmpty says that the target holds resources and Options.Into does not say what to do with them.
	ErrNotEmpty = errors.New("the target is not empty")
	// ErrConflict says that the target holds something else under keys of the source, and was not told to replace it.
	ErrConflict = errors.New("the target holds something else under the same key")
	// ErrBusy says that the target takes part in another migration, or that another process is at work on this one.
	ErrBusy = errors.New("the target takes part in another migration")
	// ErrTakenOver says that another process has gone on with this migration, so this one has stopped.
	ErrTakenOver = errors.New("another process has taken over this migration")
	// ErrDiffers says that the two sides are not the same at the end.
	ErrDiffers = errors.New("source and target differ")
	// ErrUnsupported says that a store lacks what is needed, which the text names.
	ErrUnsupported = errors.New("the store does not support this")
)

// Into says what becomes of what the target already holds.
type Into int

const (
	// Empty demands an empty target.
	Empty Into = iota
	// Merge adds to what is there. A key that both sides have with different contents is ErrConflict, found before anything
	// is written.
	Merge
	// Overwrite adds to what is there and replaces what differs.
	Overwrite
	// Mirror replaces what differs and deletes what the source does not have.
	Mirror
)

// prunes reports whether all that the source does not have may be deleted from the target.
func (i Into) prunes() bool { return i == Empty || i == Mirror }

// Options of a migration. Nil and zero values are the defaults.
type Options struct {
	// From and To name the stores for people: in errors, in the journal, and in what writers to the source are told after
	// cutover, with the beginning of the target's identity. They must hold no password; Name makes such names from URLs.
	From, To string
	// Into says what becomes of what the target already holds. Once a migration has begun, Merge may become Overwrite; Merge and
	// Overwrite are refused where it was begun to make the target equal.
	Into Into

	// Live follows the source's changes after the copy until a cutover, so that programs can go on writing to the source.
	// Without it nobody should write to the source during the copy; if somebody does, the comparison at the end says so.
	Live bool
	// Cutover ends a live migration when it is closed or something is received from it.
	Cutover <-chan struct{}
	// CutoverLag ends a live migration by itself as soon as it is proven that the target is less than this behind. The proof
	// takes a round trip to the source, or, where its watches prove nothing (they are no storage.Bookmarker), a comparison of
	// both sides.
	CutoverLag time.Duration

	// Rate limits the changes made to the target per second; 0 is no limit.
	Rate float64
	// Parallel is the number of writers to the target: 32.
	Parallel int
	// PageSize is the number of resources asked for at a time: 500.
	PageSize int
	// Batch is the most resources that are created together: what the target takes with advantage. 1 means one by one.
	Batch int
	// Patience is how long a database may be silent before the migration gives up: a minute. What it has done is not lost.
	Patience time.Duration

	// Count lists the source once more at the beginning, so that Progress knows the total.
	Count bool
	// Progress is told how far the migration is, about once a second and when the phase changes, by one goroutine at a time.
	Progress func(Progress)

	// takeover is how long to look whether another process is at work, and lease how long a sign of life allows to write.
	takeover, lease time.Duration
}

// Next says what leads on from where a call of Run has ended.
type Next string

const (
	// Nothing is to be done: the migration is complete, or was never begun.
	Nothing Next = ""
	// Again means that the same call goes on, once the cause of the error is gone.
	Again Next = "again"
	// GiveUp means that the same call would fail again: Abort has to come first.
	GiveUp Next = "give up"
	// Leave means that another process has taken over, or aborted, the migration.
	Leave Next = "leave"
)

// Result says what a migration has done.
type Result struct {
	// Phase is how far it is.
	Phase Phase
	// Begun says that the target remembers the migration, so that it can be gone on with, whatever ended this call.
	Begun bool
	// Next says what leads on after an error.
	Next Next
	// Closed says that this call has closed the source for writing, or may have, and has not opened it again.
	Closed bool
	// Resumed says that it went on with what an earlier run had begun.
	Resumed bool
	// Already says that it had been completed before, and nothing was done.
	Already bool
	// Done counts what this run did.
	Done Counts
	// Report is the comparison at the end, if it came to that.
	Report *Report
	// Copied is how long this run took to copy, without the comparison at the end.
	Copied time.Duration
	// Elapsed is how long this run took.
	Elapsed time.Duration
	// Fenced is how long the source was closed before the target was complete.
	Fenced time.Duration
}

// theTarget is the name of a target that has none.
const theTarget = "the target"

// migration is what one process knows and does of a migration.
type migration struct {
	from, to   storage.Backend
	source     driver.Mover // nil where the store is none
	target     driver.Mover
	resumer    storage.Resumer
	transactor storage.Transactor
	loader     driver.Bulk
	batch      int // the most resources that are created together, and the most bytes
	batchBytes int

	o         Options
	closedFor string // what the source is closed for, if this process begins the migration
	limiter   *rate.Limiter
	try       retrier
	stats     *stats
	journal   *journal // nil where the target cannot keep one
	gate      *gate    // of the source; nil where it has none

	marks         bool        // the source's watches prove how far they are
	comparePasses int         // the passes that brought the target to the source's state of a known time
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
		o.To = theTarget
	}
	o.From, o.To = legible(o.From), legible(o.To)
	if o.Parallel <= 0 {
		o.Parallel = 32
	}
	if o.PageSize <= 0 {
		o.PageSize = 500
	}
	if o.Patience <= 0 {
		o.Patience = time.Minute
	}
	if o.takeover == 0 {
		o.takeover = takeoverTime
	}
	if o.lease == 0 {
		o.lease = leaseTime
	}
	if o.Rate > 0 {
		m.limiter = rate.NewLimiter(rate.Limit(o.Rate), max(1, int(o.Rate/10)))
		// A listing that nobody continues for minutes is given up by the store.
		o.PageSize = max(1, min(o.PageSize, int(o.Rate*30)))
	}
	m.stats = newStats(o.Progress)
	m.try = retrier{timeout: o.Patience, waiting: m.stats.warn}
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

// Run moves what from holds to the store to, or goes on with it: the target remembers how far an earlier run has come.
//
// Without Options.Live it copies once and compares. With it, it copies, follows, and at the cutover closes the source for
// writing, brings over the rest and compares; then Result.Phase is Complete. When ctx ends it stops, at any point; the same call
// goes on later.
func Run(ctx context.Context, from, to storage.Backend, opts *Options) (*Result, error) {
	m := newMigration(from, to, opts)
	began := time.Now()
	ctx, cancel := withoutDeadline(ctx)
	defer cancel(nil)
	stop := m.stats.report(ctx)
	r, err := m.run(ctx, cancel)
	stop()
	r.Done, r.Elapsed = m.stats.counts(), time.Since(began)
	if m.journal != nil {
		if phase := m.journal.current().Phase; phase != "" && phase != phaseComplete {
			r.Phase, r.Begun = phase, true
		}
	}
	if errors.Is(err, driver.ErrSuperseded) {
		err = errors.Join(ErrTakenOver, err)
	}
	r.Next = next(r, err)
	r.Closed = r.Phase != Complete && m.closed.Load()
	if err != nil {
		if cause := context.Cause(ctx); cause != nil && !errors.Is(err, cause) {
			err = errors.Join(cause, err)
		}
		return r, fmt.Errorf("migrate from %s to %s: %w", m.o.From, m.o.To, err)
	}
	return r, nil
}

// next tells what leads on.
func next(r *Result, err error) Next {
	switch {
	case err == nil:
		return Nothing
	case errors.Is(err, ErrTakenOver):
		return Leave
	case errors.Is(err, errStuck), errors.Is(err, errElsewhere):
		return GiveUp
	case r.Begun:
		return Again
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
			{m.resumer != nil, "the source cannot tell what has changed (it is no storage.Resumer)"},
			{m.target != nil, "the target cannot keep a journal"},
		} {
			if !need.there {
				return r, fmt.Errorf("%w: %s", ErrUnsupported, need.what)
			}
		}
	}
	if err := m.begin(ctx, r); err != nil || r.Already {
		return r, err
	}
	if m.o.Count {
		if err := m.count(ctx); err != nil {
			return r, err
		}
	}
	stop := m.keepAlive(ctx, cancel)
	defer stop()
	if !m.o.Live {
		return r, m.copyOnce(ctx, r)
	}
	return r, m.live(ctx, r)
}

// count lists the source for the total.
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
