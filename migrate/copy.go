package migrate

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"golang.org/x/sync/errgroup"

	"github.com/ashlar-dev/storage"
	"github.com/ashlar-dev/storage/driver"
	"github.com/ashlar-dev/storage/driver/key"
	"github.com/ashlar-dev/storage/internal/codec"
)

// maxPasses limits how often a listing, or the history after it, may be lost.
const maxPasses = 6

// pass compares source and target in key order and makes the target equal to the source. The returned report describes the
// differences that it found: a pass without differences has changed nothing. If renewed is not nil, it also renews equal resources with a time to live,
// whose last write may not have been followed, and counts them.
func (m *migration) pass(ctx context.Context, source stream, other conflictPolicy, renewed *int) (*Report, error) {
	target, err := m.listTarget(ctx)
	if err != nil {
		return nil, err
	}
	defer target.close()
	parent := ctx
	group, ctx := errgroup.WithContext(parent)
	group.SetLimit(m.o.Parallel)
	w := &writers{m: m, group: group, ctx: ctx, other: other, loads: make(chan struct{}, maxLoads)}
	t := newTally()
	err = join(ctx, source, target, func(want, have *entry) error {
		kind, err := t.add(want, have)
		if err != nil {
			return err
		}
		m.stats.countEntry(want)
		switch kind {
		case Missing:
			return w.create(want)
		case Extra:
			if m.o.Into.prunes() {
				return w.drop(have)
			}
		case Different:
			return w.replace(want, have, false)
		default:
			if renewed != nil {
				switch res, err := want.resource(); {
				case err != nil:
					return err
				case res.GetTtl() != nil:
					*renewed++
					return w.replace(want, have, true)
				}
			}
			m.stats.unchanged.Add(1)
		}
		return nil
	})
	err = errors.Join(err, w.flush())
	if failed := group.Wait(); failed != nil {
		err = failed // the join only reports that it was cancelled
	}
	if err == nil {
		err = m.excludeLateChanges(parent)
	}
	if err != nil {
		return nil, err
	}
	return t.report(), nil
}

// writers change the target in parallel. Creations are batched if the target supports it.
type writers struct {
	m     *migration
	group *errgroup.Group
	ctx   context.Context
	other conflictPolicy
	loads chan struct{} // a slot for each batch of a loader in flight

	batch []*entry
	bytes int
}

func (w *writers) create(want *entry) error {
	if len(w.batch) > 0 && (len(w.batch) >= w.m.batch || w.bytes+len(want.Data) > w.m.batchBytes) {
		if err := w.flush(); err != nil {
			return err
		}
	}
	w.batch = append(w.batch, want)
	w.bytes += len(want.Data)
	return nil
}

// flush sends the batch. It blocks while the maximum number of batches is in flight.
func (w *writers) flush() error {
	batch := w.batch
	w.batch, w.bytes = nil, 0
	if len(batch) == 0 {
		return nil
	}
	if err := w.m.pace(w.ctx, len(batch)); err != nil {
		return err
	}
	if w.m.loader != nil {
		select {
		case w.loads <- struct{}{}:
		case <-w.ctx.Done():
			return w.ctx.Err()
		}
	}
	w.group.Go(func() error {
		if w.m.loader != nil {
			defer func() { <-w.loads }()
		}
		return w.m.createAll(w.ctx, batch, w.other)
	})
	return w.ctx.Err()
}

func (w *writers) replace(want, have *entry, renew bool) error {
	wanted, err := want.resource()
	if err != nil {
		return err
	}
	had, err := have.resource()
	if err != nil {
		return err
	}
	if err := w.m.pace(w.ctx, 1); err != nil {
		return err
	}
	w.group.Go(func() error {
		did, err := w.m.put(w.ctx, wanted, had, w.other, renew)
		w.m.stats.countOutcome(did, len(want.Data))
		return err
	})
	return w.ctx.Err()
}

func (w *writers) drop(have *entry) error {
	had, err := have.resource()
	if err != nil {
		return err
	}
	if err := w.m.pace(w.ctx, 1); err != nil {
		return err
	}
	w.group.Go(func() error {
		did, err := w.m.drop(w.ctx, had.GetId(), had, func(string) bool { return true })
		if did {
			w.m.stats.deletions.Add(1)
		}
		return err
	})
	return w.ctx.Err()
}

// createAll creates resources that the target does not have: together if possible, otherwise in smaller groups and one by one.
func (m *migration) createAll(ctx context.Context, batch []*entry, other conflictPolicy) error {
	if len(batch) > 1 {
		var tried bool
		err := m.try.do(ctx, "create resources", func(ctx context.Context) (err error) {
			tried, err = m.createBatch(ctx, batch)
			return err
		})
		if tried && err == nil {
			for _, e := range batch {
				m.stats.countOutcome(outcomeCreated, len(e.Data))
			}
			return nil
		}
		if ctx.Err() != nil || errors.Is(err, storage.ErrInconsistent) || errors.Is(err, driver.ErrSuperseded) || errors.Is(err, ErrSuperseded) {
			return fmt.Errorf("target: %w", err)
		}
		// One of them exists, or all exist and the answer was lost, or together they are too large. Single writes distinguish these
		// cases.
	}
	if len(batch) > maxBatch {
		for group := range slices.Chunk(batch, maxBatch) {
			if err := m.createAll(ctx, group, other); err != nil {
				return err
			}
		}
		return nil
	}
	for _, e := range batch {
		res, err := e.resource()
		if err != nil {
			return err
		}
		did, err := m.put(ctx, res, nil, other, false)
		if err != nil {
			return err
		}
		m.stats.countOutcome(did, len(e.Data))
	}
	return nil
}

// createBatch creates all or none, if the target supports that.
func (m *migration) createBatch(ctx context.Context, batch []*entry) (tried bool, err error) {
	if m.loader != nil {
		rows := make([]driver.Row, len(batch))
		for i, e := range batch {
			rows[i] = e.Row
		}
		if ctx, err = m.journal.attemptContext(ctx); err != nil {
			return true, err
		}
		err = m.loader.Load(ctx, rows)
		m.noteAnswer(err)
		return true, err
	}
	if m.transactor == nil {
		return false, nil
	}
	ops := make([]storage.Op, len(batch))
	for i, e := range batch {
		res, err := e.resource()
		if err != nil {
			return true, err
		}
		ops[i] = storage.Op{Write: codec.WithVersion(res, "")}
	}
	if ctx, err = m.journal.attemptContext(ctx); err != nil {
		return true, err
	}
	_, err = m.transactor.Commit(ctx, ops)
	m.noteAnswer(err)
	return true, err
}

// pace blocks according to the rate limit.
func (m *migration) pace(ctx context.Context, n int) error {
	for m.limiter != nil && n > 0 {
		some := min(n, m.limiter.Burst())
		if err := m.limiter.WaitN(ctx, some); err != nil {
			return err
		}
		n -= some
	}
	return nil
}

// preflight finds the first resources that exist on both sides and differ.
func (m *migration) preflight(ctx context.Context, source stream) error {
	var found []error
	const enough = 10
	_, err := m.compare(ctx, source, func(d Difference) error {
		if d.Kind == Different && len(found) < enough {
			found = append(found, fmt.Errorf("%v", key.Of(d.Source.GetId())))
		}
		return nil
	}, nil)
	if err != nil {
		return err
	}
	if len(found) > 0 {
		return fmt.Errorf("%w, and nothing was written: %w", ErrConflict, errors.Join(found...))
	}
	return nil
}
