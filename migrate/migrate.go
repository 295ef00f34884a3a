package migrate

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/ashlar-dev/storage"
	"github.com/ashlar-dev/storage/driver"
)

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
	case errors.Is(err, errDiverged):
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
	if m.o.Count && (m.journal == nil || m.journal.current().Phase != Opening) {
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
