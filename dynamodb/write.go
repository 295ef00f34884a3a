package dynamodb

import (
	"context"
	"errors"
	"time"

	"github.com/aws/aws-sdk-go-v2/service/dynamodb"

	"github.com/ashlar-dev/storage"
	"github.com/ashlar-dev/storage/driver"
	"github.com/ashlar-dev/storage/dynamodb/internal/request"
)

// writer carries out mutations: a lone one here, several together as a transaction.
type writer struct {
	table    *table
	reader   *reader
	registry *registry
	permit   *permit
	changed  func() // is told of every success
}

// Apply implements driver.Driver.
func (w *writer) Apply(ctx context.Context, mutations []driver.Mutation) error {
	m := &mutations[0]
	switch {
	case len(mutations) > 1 || m.Verb == driver.Check:
		return w.commit(ctx, mutations)
	case m.Verb == driver.Write:
		return w.write(ctx, m)
	case m.Uid == "":
		return nil // no resource has an empty uid
	default:
		return w.delete(ctx, m)
	}
}

// refuse is why a mutation is refused where this is stored, nil if it is not.
func refuse(m *driver.Mutation, h *head) error {
	if _, err := m.Decide(h.stored()); err != nil {
		return &storage.OpError{Err: err}
	}
	return nil
}

// refuseForeign finds out why a mutation with a version that this store never made is refused.
func (w *writer) refuseForeign(ctx context.Context, m *driver.Mutation) error {
	h, _, err := w.reader.get(ctx, storage.StrongConsistency, m.Key)
	if err != nil {
		return err
	}
	if err := refuse(m, h); err != nil || m.Verb == driver.Delete {
		return err
	}
	return &storage.OpError{Err: storage.ErrCASFailure}
}

func (w *writer) write(ctx context.Context, m *driver.Mutation) error {
	var base *stamp
	if m.Version != "" {
		var ok bool
		if base, ok = parseVersion(m.Version); !ok {
			return w.refuseForeign(ctx, m)
		}
	} else if err := w.registry.enter(ctx, m.Key); err != nil {
		return err
	}
	for dead := false; ; {
		p, old, err := w.apply(ctx, func(now time.Time) (*plan, error) {
			return w.table.planWrite(m.Key, m.Resource, base, dead, now)
		})
		if err == nil {
			m.Written = p.next.version()
		}
		if !errors.Is(err, errCondition) {
			return err
		}
		err = refuse(m, old)
		switch {
		case err != nil:
			return err
		case old != nil && !old.live && m.Version == "":
			base, dead = old.stamp, true // a tombstone: go on with its chain
		case old == nil && dead:
			base, dead = nil, false
		case ctx.Err() != nil:
			return request.Inconsistent(ctx, nil)
		}
	}
}

func (w *writer) delete(ctx context.Context, m *driver.Mutation) error {
	base, ok := parseVersion(m.Version)
	if !ok {
		return w.refuseForeign(ctx, m)
	}
	_, old, err := w.apply(ctx, func(now time.Time) (*plan, error) {
		return w.table.planDelete(m.Key, m.Uid, base, now), nil
	})
	if errors.Is(err, errCondition) {
		return refuse(m, old)
	}
	return err
}

// applied does what follows the success of a plan.
func (w *writer) applied(p *plan) {
	w.reader.marks.noteState(p.key, p.next.count, p.res != nil)
	w.changed()
}

// errCondition says that the condition of a plan does not hold, and that the plan was not carried out.
var errCondition = errors.New("the condition does not hold")

// apply composes a plan, anew where it could not be sent in time, and carries it out. On errCondition old is what is stored instead,
// nil for nothing.
func (w *writer) apply(ctx context.Context, compose func(now time.Time) (*plan, error)) (p *plan, old *head, err error) {
	for {
		if p, err = compose(w.table.clock.Now()); err != nil {
			return nil, nil, err
		}
		old, err = w.carryOut(ctx, p)
		switch {
		case err == nil:
			w.applied(p)
		case errors.Is(err, errCondition):
			w.reader.marks.note(p.key, old)
		case errors.Is(err, errComposed) && !errors.Is(err, storage.ErrInconsistent) && request.Sleep(ctx, time.Millisecond):
			continue
		}
		return p, old, err
	}
}

// carryOut asks until the fate of a plan is known, which can do no harm; see plan.made.
func (w *writer) carryOut(ctx context.Context, p *plan) (old *head, err error) {
	var stored item
	maybe, err := w.table.retry(ctx, func(option func(*dynamodb.Options)) error {
		return w.permit.with(ctx, func(g *grant) (err error) {
			stored, err = w.send(ctx, g, p, option)
			return err
		})
	})
	if !errors.Is(err, errCondition) {
		if err != nil && maybe && !errors.Is(err, storage.ErrInconsistent) {
			return nil, request.Inconsistent(ctx, err)
		}
		return nil, err
	}
	if len(stored) > 0 {
		if old, err = w.table.head(stored); err != nil {
			return nil, err
		}
	}
	made, err := p.made(old, maybe)
	switch {
	case err != nil:
		return nil, err
	case made:
		return nil, nil
	}
	return old, errCondition
}
