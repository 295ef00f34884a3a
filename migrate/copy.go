package migrate

import (
	"context"
	"errors"
	"fmt"

	"golang.org/x/sync/errgroup"

	"github.com/ashlar-dev/storage"
	"github.com/ashlar-dev/storage/internal/key"
	"github.com/ashlar-dev/storage/internal/message"
	"github.com/ashlar-dev/storage/resourcepb"
)

const (
	// maxBatchBytes bounds the resources of one transaction, and with Options.Parallel the memory of all.
	maxBatchBytes = 512 << 10
	// maxBatch is the number of operations from which a larger transaction gains nothing.
	maxBatch = 256
)

// pass walks through the source and the target side by side and makes the target hold what the source holds. It returns the
// comparison of both as they were found: a pass that found no difference has changed nothing.
func (m *mover) pass(ctx context.Context, source stream, other rival) (*Report, error) {
	target, err := m.listTarget(ctx)
	if err != nil {
		return nil, err
	}
	defer target.close()
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(m.o.Parallel)
	w := &writers{m: m, group: group, ctx: ctx, other: other}
	t := newTally()
	err = join(ctx, source, target, func(_ key.Key, want, have *resourcepb.Resource) error {
		d, differ, err := t.add(want, have)
		if err != nil {
			return err
		}
		m.stats.seen(want)
		switch {
		case !differ:
			m.stats.skipped.Add(1)
			return nil
		case d.Kind == Extra && !m.o.Into.prunes():
			return nil
		case d.Kind == Missing:
			return w.create(want)
		case d.Kind == Extra:
			return w.drop(have)
		}
		return w.replace(want, have)
	})
	err = errors.Join(err, w.flush())
	if failed := group.Wait(); failed != nil {
		err = failed // what the join says then is only that it was stopped
	}
	if err != nil {
		return nil, err
	}
	return t.report(), nil
}

// writers change the target in parallel. Creations go together in transactions where the target has them.
type writers struct {
	m     *mover
	group *errgroup.Group
	ctx   context.Context
	other rival

	batch []*resourcepb.Resource
	bytes int
}

func (w *writers) create(want *resourcepb.Resource) error {
	size := message.Size(want)
	if len(w.batch) > 0 && (len(w.batch) >= w.m.batch || w.bytes+size > maxBatchBytes) {
		if err := w.flush(); err != nil {
			return err
		}
	}
	w.batch = append(w.batch, want)
	w.bytes += size
	return nil
}

// flush sends the batch on its way, waiting while as many as allowed are.
func (w *writers) flush() error {
	batch := w.batch
	w.batch, w.bytes = nil, 0
	if len(batch) == 0 {
		return nil
	}
	if err := w.m.pace(w.ctx, len(batch)); err != nil {
		return err
	}
	w.group.Go(func() error { return w.m.createAll(w.ctx, batch, w.other) })
	return w.ctx.Err()
}

func (w *writers) replace(want, have *resourcepb.Resource) error {
	if err := w.m.pace(w.ctx, 1); err != nil {
		return err
	}
	w.group.Go(func() error {
		did, err := w.m.put(w.ctx, want, have, w.other)
		w.m.stats.did(did, want)
		return err
	})
	return w.ctx.Err()
}

func (w *writers) drop(have *resourcepb.Resource) error {
	if err := w.m.pace(w.ctx, 1); err != nil {
		return err
	}
	w.group.Go(func() error {
		did, err := w.m.drop(w.ctx, have.GetId(), have, func(string) bool { return true })
		if did {
			w.m.stats.deleted.Add(1)
		}
		return err
	})
	return w.ctx.Err()
}

// createAll writes resources that the target does not have, in one transaction if it can be, else one by one.
func (m *mover) createAll(ctx context.Context, batch []*resourcepb.Resource, other rival) error {
	if len(batch) > 1 && m.transactor != nil {
		ops := make([]storage.Op, len(batch))
		for i, res := range batch {
			ops[i] = storage.Op{Write: message.WithVersion(res, "")}
		}
		_, err := m.transactor.Commit(ctx, ops)
		if err == nil {
			for _, res := range batch {
				m.stats.did(created, res)
			}
			return nil
		}
		if ctx.Err() != nil {
			return err
		}
		// One of them is there after all, or all are and the answer was lost, or together they are too large. Alone, each
		// finds out.
	}
	for _, res := range batch {
		did, err := m.put(ctx, res, nil, other)
		if err != nil {
			return err
		}
		m.stats.did(did, res)
	}
	return nil
}

// pace waits as the rate limit says.
func (m *mover) pace(ctx context.Context, n int) error {
	for m.limiter != nil && n > 0 {
		some := min(n, m.limiter.Burst())
		if err := m.limiter.WaitN(ctx, some); err != nil {
			return err
		}
		n -= some
	}
	return nil
}

// preflight finds the first resources that both sides have and that differ.
func (m *mover) preflight(ctx context.Context, source stream) error {
	var found []error
	const enough = 10
	_, err := m.compare(ctx, source, func(d Difference) error {
		if d.Kind == Different && len(found) < enough {
			found = append(found, fmt.Errorf("%v", key.Of(d.Source.GetId())))
		}
		return nil
	})
	if err != nil {
		return err
	}
	if len(found) > 0 {
		return fmt.Errorf("%w, and nothing was written: %w", ErrConflict, errors.Join(found...))
	}
	return nil
}
