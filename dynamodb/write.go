package dynamodb

import (
	"context"
	"crypto/sha256"
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

// writer applies mutations.
type writer struct {
	table    *table
	reader   *reader
	registry *registry
	notes    *notes
	lease    *writeLease
	onChange func() // called after every success
}

// Apply implements driver.Driver.
func (w *writer) Apply(ctx context.Context, mutations []driver.Mutation) error {
	if m := &mutations[0]; len(mutations) == 1 && m.Verb == driver.Delete && m.Uid == "" {
		return nil // no resource has an empty uid
	}
	c := &commit{writer: w, guard: driver.GuardOf(ctx), steps: make([]step, len(mutations))}
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
		w.onChange()
		if s.Verb == driver.Write {
			s.NewVersion = s.plan.next.version()
		}
	}
	return nil
}

// commit applies a set of mutations atomically.
type commit struct {
	*writer
	guard   *driver.Guard // nil: none
	steps   []step
	creates []typeBucket // of resources that do not exist yet

	// State of the last attempt.
	composedAt time.Time
	token      [16]byte
	recallable bool // it is conditional on not having been recalled
}

// lone reports whether the commit is a single change, which can be one request on one item.
func (c *commit) lone() bool { return len(c.steps) == 1 && c.steps[0].Verb != driver.Check }

// idle reports whether the commit changes nothing: a single delete of an absent resource.
func (c *commit) idle() bool { return c.lone() && c.steps[0].skip }

// prepare parses the versions. If no store can have issued the version of a mutation, the stored state must be read, because a
// mutation with a lower index may fail first.
func (c *commit) prepare(ctx context.Context, mutations []driver.Mutation) error {
	foreign := false
	for i := range mutations {
		s := step{Mutation: &mutations[i]}
		if s.Version != "" || s.Verb == driver.Delete {
			var ok bool
			s.base, ok = parseVersion(s.Version)
			foreign = foreign || !ok
		} else if s.Verb == driver.Write {
			c.creates = append(c.creates, c.table.typeBucketOf(s.Key))
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

// try makes one attempt. again reports that the commit was refused for a reason that the steps now take into account, or was not
// sent in time.
//
// It repeats the request until its outcome is known. This is safe: a repeated request that was already applied finds its own
// versionRings instead of those that it is conditional on; see plan.wasApplied.
func (c *commit) try(ctx context.Context) (again bool, err error) {
	now := c.table.clock.Now()
	c.composedAt = now
	for i := range c.steps {
		if err := c.steps[i].compose(c.table, now); err != nil {
			return false, err
		}
	}
	c.token, c.recallable = newToken(), c.mayConditionRecur()
	var guards []types.TransactWriteItem
	if c.guard != nil {
		guard, err := c.notes.guard(ctx, c.guard)
		if err != nil {
			return false, err
		}
		guards = []types.TransactWriteItem{guard}
	}
	var reasons []types.CancellationReason
	var items *items
	maybe, err := c.table.attempt(ctx, func(option func(*dynamodb.Options)) error {
		return c.lease.with(ctx, c.guard, func(g *grant) (err error) {
			if err := c.registry.enter(ctx, c.creates); err != nil {
				return err
			}
			if c.lone() && c.steps[0].plan.isSingleItem() && g.epoch == nil && c.guard == nil {
				reasons, err = c.put(ctx, c.steps[0].plan, option, g.option, fresh(now))
				return err
			}
			if items == nil {
				items = c.items(now, guards)
			}
			reasons, err = c.transact(ctx, g, items.all, option, g.option, fresh(now))
			return err
		})
	})
	switch {
	case err == nil:
		if items != nil {
			c.retireAfterCommit(ctx, items.late)
		}
		return false, nil
	case errors.Is(err, errComposed) && !maybe && request.Sleep(ctx, time.Millisecond):
		return true, nil
	case request.HasCode(err, "ValidationException") && strings.Contains(err.Error(), "4 MB"):
		return false, fmt.Errorf("%w: %w", storage.ErrTooLarge, err)
	case maybe && c.guard == nil && errors.Is(err, storage.ErrFenced):
		return false, c.closedError(ctx, err)
	case !errors.Is(err, errCondition):
		if maybe && !errors.Is(err, storage.ErrInconsistent) {
			err = request.Inconsistent(ctx, err)
		}
		return false, err
	}
	return c.refusalError(ctx, reasons, maybe)
}

// closedError returns the error of a commit without a guard that found a closed store: nil if an earlier attempt was applied. None is applied any more.
func (c *commit) closedError(ctx context.Context, fenced error) error {
	if applied, err := c.wasApplied(ctx); applied || err != nil {
		return err
	}
	return fenced
}

// refusalError reads the stored state for each failed condition. The first reasons belong to the steps, in their order.
func (c *commit) refusalError(ctx context.Context, reasons []types.CancellationReason, maybe bool) (again bool, err error) {
	var first *storage.OpError
	for i := range min(len(c.steps), len(reasons)) {
		if aws.ToString(reasons[i].Code) != failedCondition {
			continue
		}
		s := &c.steps[i]
		h, err := c.readConflict(ctx, s, reasons[i].Item)
		if err != nil {
			if maybe {
				err = request.Inconsistent(ctx, err)
			}
			return false, err
		}
		if s.plan != nil {
			// If it was applied, then by an attempt whose answer was lost.
			if applied, err := s.plan.wasApplied(h, maybe); applied || err != nil {
				return false, err
			}
		}
		c.reader.marks.note(s.Key, h)
		if err := s.decide(h); err != nil && first == nil {
			first = &storage.OpError{Index: i, Err: err}
		}
	}
	if maybe && c.recallable {
		if applied, err := c.recallLast(ctx); applied || err != nil {
			return false, err
		}
	}
	if maybe {
		if err := c.checkAge(); err != nil {
			return false, err
		}
	}
	switch {
	case first != nil:
		return false, first
	case c.guard != nil && len(reasons) > len(c.steps) && aws.ToString(reasons[len(c.steps)].Code) == failedCondition:
		return false, c.guard.Superseded()
	}
	if c.idle() {
		c.steps[0].plan = nil
		return false, nil
	}
	return true, nil
}

// readConflict returns the item stored instead of a step's base, or nil. The refusal of a lone change contains it. DynamoDB could
// return it for several changes as well, but not for large items: an answer must be smaller than 4 MB.
func (c *commit) readConflict(ctx context.Context, s *step, refusal item) (*headItem, error) {
	switch {
	case !c.lone():
		return c.reader.head(ctx, storage.StrongConsistency, s.Key)
	case len(refusal) == 0:
		return nil, nil
	}
	return c.table.head(refusal)
}

const (
	// maxOps is chosen so that every operation can move its resource from one owner to another, three items each, with two parts
	// for the largest resources and the conditions of a fence and of a guard, within DynamoDB's limit of 100 items.
	maxOps = 32
	// maxRetired limits the parts that are retired within the transaction, because of DynamoDB's limit of 4 MB.
	maxRetired = 6
)

// step is one mutation of a commit.
type step struct {
	*driver.Mutation
	base *versionRing // from the caller's version, or from a tombstone
	dead bool         // base belongs to a tombstone
	skip bool         // a delete of an absent resource

	plan *plan // the plan of the last attempt, nil for a step without changes
}

// decide compares a step with the stored state. It returns an error, or prepares the next attempt.
func (s *step) decide(h *headItem) error {
	changes, err := s.Decide(h.decisionState())
	if err != nil {
		return err
	}
	switch {
	case s.Verb == driver.Delete:
		s.skip = !changes
	case s.Verb == driver.Write && s.Version == "":
		s.base, s.dead = nil, false
		if h != nil {
			s.base, s.dead = h.ring, true // a tombstone: continue its chain
		}
	}
	return nil
}

// compose builds the step's plan.
func (s *step) compose(t *table, now time.Time) (err error) {
	s.plan = nil
	switch {
	case s.Verb == driver.Write:
		s.plan, err = t.planWrite(s.Key, s.Resource, s.base, s.dead, now)
	case s.Verb == driver.Delete && !s.skip:
		s.plan = t.planDelete(s.Key, s.Uid, s.base, now)
	}
	return err
}

// conditionItem returns the operation with the step's condition.
func (s *step) conditionItem(t *table) types.TransactWriteItem {
	on := condition{text: "attribute_not_exists(u)"}
	switch {
	case s.plan != nil:
		on = s.plan.condition()
		return types.TransactWriteItem{Put: &types.Put{
			TableName: &t.name, Item: s.plan.put, ConditionExpression: on.expression(), ExpressionAttributeValues: on.values,
		}}
	case s.Verb == driver.Delete:
		on = condition{"attribute_not_exists(u) OR u <> :uid", item{":uid": binaryValue([]byte(s.Uid))}}
	case s.base != nil:
		on = ringAndUid(s.base, s.Uid)
	}
	return t.check(t.resource(s.Key), on)
}

// items are the operations of a transaction.
type items struct {
	all  []types.TransactWriteItem // the steps' own items first
	late []types.TransactWriteItem // operations that follow the transaction
}

// items returns the commit as a transaction: one item for each step, the condition of a guard, and further items of the steps. The
// transaction includes the retirement of replaced parts if they fit.
func (c *commit) items(now time.Time, guards []types.TransactWriteItem) *items {
	result := &items{all: make([]types.TransactWriteItem, len(c.steps), maxItems)}
	result.all = append(result.all, guards...)
	for i := range c.steps {
		s := &c.steps[i]
		result.all[i] = s.conditionItem(c.table)
		if s.plan != nil {
			result.all = append(result.all, s.plan.others(c.table)...)
		}
	}
	if c.lone() {
		result.all[0].Put.ReturnValuesOnConditionCheckFailure = types.ReturnValuesOnConditionCheckFailureAllOld
	}
	if c.recallable {
		result.all = append(result.all, c.notRecalled())
	}
	retired := 0
	for i := range c.steps {
		if c.steps[i].plan == nil {
			continue
		}
		parts := c.steps[i].plan.retirement(c.table, now)
		if retired+len(parts) <= maxRetired && len(result.all)+len(parts) < maxItems {
			retired += len(parts)
			result.all = append(result.all, parts...)
			continue
		}
		result.late = append(result.late, parts...)
	}
	return result
}

// put makes one attempt at a plan with a single item. With errCondition there is one reason.
func (c *commit) put(ctx context.Context, p *plan, options ...func(*dynamodb.Options)) ([]types.CancellationReason, error) {
	on := p.condition()
	out, err := c.table.db.PutItem(ctx, &dynamodb.PutItemInput{
		TableName: &c.table.name, Item: p.put,
		ConditionExpression: on.expression(), ExpressionAttributeValues: on.values,
		ReturnValuesOnConditionCheckFailure: types.ReturnValuesOnConditionCheckFailureAllOld,
		ReturnConsumedCapacity:              c.table.capacity(),
	}, options...)
	var refused *types.ConditionalCheckFailedException
	if errors.As(err, &refused) {
		return []types.CancellationReason{{Code: aws.String(failedCondition), Item: refused.Item}}, &conditionError{err}
	}
	if err == nil {
		c.table.spent(out.ConsumedCapacity)
	}
	return nil, err
}

// transact makes one attempt at a transaction, with the condition of an announced fence. A transaction with another condition needs
// another token. With errCondition the reasons correspond to the items.
func (c *commit) transact(ctx context.Context, g *grant, items []types.TransactWriteItem, options ...func(*dynamodb.Options)) ([]types.CancellationReason, error) {
	ownCount, token := len(items), c.token
	if g.epoch != nil {
		gate := c.table.anyGate(g.fence)
		items = append(items[:ownCount:ownCount], gate)
		sum := sha256.Sum256(append(item(gate.ConditionCheck.Key).bytes(attrPK), token[:]...))
		token = [16]byte(sum[:16])
	}
	reasons, err := c.table.transactOnce(ctx, token, items, options...)
	if len(reasons) > ownCount && aws.ToString(reasons[ownCount].Code) == failedCondition {
		return nil, errGateShut
	}
	return reasons, err
}

// retireAfterCommit retires parts separately after the transaction. A failure only wastes storage.
func (c *commit) retireAfterCommit(ctx context.Context, late []types.TransactWriteItem) {
	for _, it := range late {
		out, err := retry(ctx, c.table, c.table.db.UpdateItem, &dynamodb.UpdateItemInput{
			TableName: it.Update.TableName, Key: it.Update.Key, UpdateExpression: it.Update.UpdateExpression,
			ExpressionAttributeNames: it.Update.ExpressionAttributeNames, ExpressionAttributeValues: it.Update.ExpressionAttributeValues,
			ReturnConsumedCapacity: c.table.capacity(),
		})
		if err != nil {
			return
		}
		c.table.spent(out.ConsumedCapacity)
	}
}

// The condition of a plan, that its base is stored, can never hold again after it has failed. The condition that a resource is
// absent can hold again, and a delayed attempt can then be applied although a later one was refused. A transaction with changes on
// such a condition therefore has one more condition: that it was not recalled. If a refusal arrives while the outcome of earlier
// attempts is unknown, the commit is recalled before it returns; after that each attempt has been applied or never will be.

// mayConditionRecur reports whether a change depends on a condition that can hold again.
func (c *commit) mayConditionRecur() bool {
	changes, absent := false, false
	for i := range c.steps {
		s := &c.steps[i]
		changes = changes || s.plan != nil
		absent = absent || s.Verb == driver.Delete && s.skip || s.Verb == driver.Check && s.base == nil
	}
	return changes && absent
}

// notRecalled returns the condition that the transaction was not recalled.
func (c *commit) notRecalled() types.TransactWriteItem {
	return c.table.check(c.table.gate(c.token[:], 0), absent)
}

// recallLast recalls the last attempt, so that it cannot be applied later, and reports whether it has been applied.
func (c *commit) recallLast(ctx context.Context) (bool, error) {
	it := c.table.gate(c.token[:], 0)
	it[attrExpires] = expires(c.table.clock.Now(), tombstoneTTL)
	recall := types.TransactWriteItem{Put: &types.Put{TableName: &c.table.name, Item: it}}
	if _, err := c.table.transact(ctx, recall); err != nil { // a put outside a transaction may overtake a prepared one
		return false, request.Inconsistent(ctx, err)
	}
	return c.wasApplied(ctx)
}

// wasApplied reports whether an earlier attempt was applied. None may be applied later. The read is a transaction: a plain one may return the state
// before a transaction that was committed and has not reached all items yet.
func (c *commit) wasApplied(ctx context.Context) (bool, error) {
	for i := range c.steps {
		s := &c.steps[i]
		if s.plan == nil {
			continue
		}
		stored, err := c.table.getAtomically(ctx, c.table.resource(s.Key))
		if err != nil {
			return false, request.Inconsistent(ctx, err)
		}
		var h *headItem
		if stored[0] != nil {
			if h, err = c.table.head(stored[0]); err != nil {
				return false, request.Inconsistent(ctx, err)
			}
		}
		if applied, err := s.plan.wasApplied(h, true); applied || err != nil {
			return applied, err
		}
		return false, c.checkAge() // the other steps have the same outcome
	}
	return false, nil
}

// checkAge returns an error if the tombstone of a resource that the last attempt has deleted, or created and another writer has deleted, may have
// expired. Then the absence of the attempt's change proves nothing.
func (c *commit) checkAge() error {
	if took := c.table.clock.Now().Sub(c.composedAt); took > tombstoneTTL/2 {
		return fmt.Errorf("%w: the write took %v, but deletions are known only for %v", storage.ErrInconsistent, took, tombstoneTTL)
	}
	return nil
}
