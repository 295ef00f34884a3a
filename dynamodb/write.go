package dynamodb

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"

	"github.com/ashlar-dev/storage"
	"github.com/ashlar-dev/storage/driver"
	"github.com/ashlar-dev/storage/dynamodb/internal/request"
)

// writer carries out mutations.
type writer struct {
	table    *table
	reader   *reader
	registry *registry
	permit   *permit
	changed  func() // is told of every success
}

// Apply implements driver.Driver.
func (w *writer) Apply(ctx context.Context, mutations []driver.Mutation) error {
	if m := &mutations[0]; len(mutations) == 1 && m.Verb == driver.Delete && m.Uid == "" {
		return nil // no resource has an empty uid
	}
	c := &commit{writer: w, steps: make([]step, len(mutations))}
	if err := c.prepare(ctx, mutations); err != nil {
		return err
	}
	for again := !c.idle(); again; {
		var err error
		if again, err = c.try(ctx); err != nil {
			return err
		}
		if again && ctx.Err() != nil {
			return request.Inconsistent(ctx, nil)
		}
	}
	for i := range c.steps {
		s := &c.steps[i]
		if s.plan == nil {
			continue
		}
		w.reader.marks.noteState(s.Key, s.plan.next.count, s.Verb == driver.Write)
		w.changed()
		if s.Verb == driver.Write {
			s.NewVersion = s.plan.next.version()
		}
	}
	return nil
}

// commit is mutations under way, all together or not at all.
type commit struct {
	*writer
	steps []step

	// Of the last try.
	token      [16]byte
	recallable bool // it has the condition that it was not recalled
}

// lone reports whether the commit is one change, which may be one request on one item.
func (c *commit) lone() bool { return len(c.steps) == 1 && c.steps[0].Verb != driver.Check }

// idle reports whether there is nothing to do: a lone delete of what is not there.
func (c *commit) idle() bool { return c.lone() && c.steps[0].skip }

// prepare reads the versions. A mutation whose version no store ever made needs a look at the store, because a lower one may
// be the first to fail.
func (c *commit) prepare(ctx context.Context, mutations []driver.Mutation) error {
	foreign := false
	for i := range mutations {
		s := step{Mutation: &mutations[i]}
		if s.Version != "" || s.Verb == driver.Delete {
			var ok bool
			s.base, ok = parseVersion(s.Version)
			foreign = foreign || !ok
		} else if s.Verb == driver.Write {
			if err := c.registry.enter(ctx, s.Key); err != nil {
				return err
			}
		}
		c.steps[i] = s
	}
	if !foreign {
		return nil
	}
	for i := range c.steps {
		h, _, err := c.reader.get(ctx, storage.StrongConsistency, c.steps[i].Key)
		if err != nil {
			return err
		}
		if err := c.steps[i].decide(h); err != nil {
			return &storage.OpError{Index: i, Err: err}
		}
	}
	return nil
}

// try sends the commit once. again reports that it was refused for a reason that the steps now take into account, or was not sent in
// time.
//
// It asks until the fate of the request is known. That can do no harm: one that was carried out already finds its own stamps, not
// those that it is conditional on; see plan.made.
func (c *commit) try(ctx context.Context) (again bool, err error) {
	now := c.table.clock.Now()
	for i := range c.steps {
		if err := c.steps[i].compose(c.table, now); err != nil {
			return false, err
		}
	}
	c.token, c.recallable = newToken(), c.mayHoldAgain()
	var reasons []types.CancellationReason
	var items *items
	maybe, err := request.Retry(ctx, c.table.clock, func(option func(*dynamodb.Options)) error {
		return c.permit.with(ctx, func(g *grant) (err error) {
			if c.lone() && c.steps[0].plan.alone() && g.epoch == nil {
				reasons, err = c.put(ctx, c.steps[0].plan, option, g.option, fresh(now))
				return err
			}
			if items == nil {
				items = c.items(now)
			}
			reasons, err = c.transact(ctx, g, items.all, option, g.option, fresh(now))
			return err
		})
	})
	switch {
	case err == nil:
		if items != nil {
			c.retireLater(ctx, items.late)
		}
		return false, nil
	case errors.Is(err, errComposed) && !maybe && request.Sleep(ctx, time.Millisecond):
		return true, nil
	case request.HasCode(err, "ValidationException") && strings.Contains(err.Error(), "4 MB"):
		return false, fmt.Errorf("%w: %w", storage.ErrTooLarge, err)
	case !errors.Is(err, errCondition):
		if maybe && !errors.Is(err, storage.ErrInconsistent) {
			err = request.Inconsistent(ctx, err)
		}
		return false, err
	}
	return c.refused(ctx, reasons, maybe)
}

// refused looks at what is stored where conditions failed. The first reasons are those of the steps.
func (c *commit) refused(ctx context.Context, reasons []types.CancellationReason, maybe bool) (again bool, err error) {
	var first *storage.OpError
	for i := range min(len(c.steps), len(reasons)) {
		if aws.ToString(reasons[i].Code) != failedCondition {
			continue
		}
		s := &c.steps[i]
		h, err := c.stored(ctx, s, reasons[i].Item)
		if err != nil {
			return false, err
		}
		if s.plan != nil {
			// If it was made, then by an attempt whose answer was lost.
			if made, err := s.plan.made(h, maybe); made || err != nil {
				return false, err
			}
		}
		c.reader.marks.note(s.Key, h)
		if err := s.decide(h); err != nil && first == nil {
			first = &storage.OpError{Index: i, Err: err}
		}
	}
	if maybe && c.recallable {
		if made, err := c.recalled(ctx); made || err != nil {
			return false, err
		}
	}
	if first != nil {
		return false, first
	}
	if c.idle() {
		c.steps[0].plan = nil
		return false, nil
	}
	return true, nil
}

// stored returns what was stored instead of a step's base, nil for nothing. The refusal of a lone change holds it. DynamoDB could tell
// it with that of several, but not where the items are large: an answer has to be smaller than 4 MB.
func (c *commit) stored(ctx context.Context, s *step, refusal item) (*head, error) {
	switch {
	case !c.lone():
		return c.reader.head(ctx, storage.StrongConsistency, s.Key)
	case len(refusal) == 0:
		return nil, nil
	}
	return c.table.head(refusal)
}
