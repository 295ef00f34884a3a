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

const (
	// maxOps is such that every operation may be a write that moves its resource from one owner to another, three items each,
	// with two parts for the largest resources and the condition of a fence, within DynamoDB's 100 items.
	maxOps   = 32
	maxItems = 100
	// maxRetired bounds the parts that are retired within the transaction, for DynamoDB's 4 MB.
	maxRetired = 6
)

// commit carries out mutations all together or not at all.
func (w *writer) commit(ctx context.Context, mutations []driver.Mutation) error {
	t := &transaction{writer: w, steps: make([]step, len(mutations))}
	if err := t.prepare(ctx, mutations); err != nil {
		return err
	}
	for {
		again, err := t.try(ctx)
		if err != nil {
			return err
		}
		if !again {
			break
		}
		if ctx.Err() != nil {
			return request.Inconsistent(ctx, nil)
		}
	}
	for i := range t.steps {
		s := &t.steps[i]
		if s.plan == nil {
			continue
		}
		w.applied(s.plan)
		if s.Verb == driver.Write {
			s.Written = s.plan.next.version()
		}
	}
	return nil
}

// transaction is a commit under way.
type transaction struct {
	*writer
	steps []step

	token      [16]byte // of the last try
	recallable bool     // the last try has the condition that it was not recalled
}

// step is one operation.
type step struct {
	*driver.Mutation
	base *stamp // from the version given, or a tombstone's
	dead bool   // base is a tombstone's
	skip bool   // a delete of what is not there

	plan *plan // what the last try sent, nil for a check
}

// prepare reads the versions. An operation whose version no store ever made needs a look at the store, because a lower one may
// be the first to fail.
func (t *transaction) prepare(ctx context.Context, mutations []driver.Mutation) error {
	foreign := false
	for i := range mutations {
		s := step{Mutation: &mutations[i]}
		if s.Version != "" || s.Verb == driver.Delete {
			var ok bool
			s.base, ok = parseVersion(s.Version)
			foreign = foreign || !ok
		} else if s.Verb == driver.Write {
			if err := t.registry.enter(ctx, s.Key); err != nil {
				return err
			}
		}
		t.steps[i] = s
	}
	if !foreign {
		return nil
	}
	for i := range t.steps {
		h, _, err := t.reader.get(ctx, storage.StrongConsistency, t.steps[i].Key)
		if err != nil {
			return err
		}
		if err := t.steps[i].decide(h); err != nil {
			return &storage.OpError{Index: i, Err: err}
		}
	}
	return nil
}

// decide decides what a step does in view of what is stored: an error, or how to try it.
func (s *step) decide(h *head) error {
	changes, err := s.Decide(h.stored())
	if err != nil {
		return err
	}
	switch {
	case s.Verb == driver.Delete:
		s.skip = !changes
	case s.Verb == driver.Write && s.Version == "":
		s.base, s.dead = nil, false
		if h != nil {
			s.base, s.dead = h.stamp, true
		}
	}
	return nil
}

// try sends the transaction once. again reports that it was refused for a reason that the steps now take into account.
func (t *transaction) try(ctx context.Context) (again bool, err error) {
	now := t.table.clock.Now()
	var items []types.TransactWriteItem
	owner := make([]int, 0, maxItems) // which step an item belongs to, -1 for items without a condition
	for i := range t.steps {
		own, err := t.steps[i].items(t.table, now)
		if err != nil {
			return false, err
		}
		items = append(items, own...)
		owner = append(owner, i)
		for range own[1:] {
			owner = append(owner, -1)
		}
	}
	t.token = newToken()
	if t.recallable = t.mayHoldAgain(); t.recallable {
		items, owner = append(items, t.notRecalled()), append(owner, -1)
	}
	late := t.retire(&items, now)
	var reasons []types.CancellationReason
	maybe, err := t.table.retry(ctx, func(option func(*dynamodb.Options)) error {
		return t.permit.with(ctx, func(g *grant) (err error) {
			reasons, err = t.transact(ctx, g, t.token, items, option, fresh(now))
			return err
		})
	})
	switch {
	case err == nil:
		t.retireLater(ctx, late)
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
	return t.refused(ctx, reasons, owner, maybe)
}

// refused looks at what is stored where conditions failed. DynamoDB could tell it with the refusal, but not where the items are
// large: an answer has to be smaller than 4 MB.
func (t *transaction) refused(ctx context.Context, reasons []types.CancellationReason, owner []int, maybe bool) (again bool, err error) {
	var first *storage.OpError
	for n, r := range reasons {
		if n >= len(owner) || owner[n] < 0 || aws.ToString(r.Code) != "ConditionalCheckFailed" {
			continue
		}
		s := &t.steps[owner[n]]
		h, err := t.reader.head(ctx, storage.StrongConsistency, s.Key)
		if err != nil {
			return false, err
		}
		if s.plan != nil {
			// If it was made, then by an attempt whose answer was lost.
			if made, err := s.plan.made(h, maybe); made || err != nil {
				return false, err
			}
		}
		t.reader.marks.note(s.Key, h)
		if err := s.decide(h); err != nil && first == nil {
			first = &storage.OpError{Index: owner[n], Err: err}
		}
	}
	if maybe && t.recallable {
		if made, err := t.recalled(ctx); made || err != nil {
			return false, err
		}
	}
	if first != nil {
		return false, first
	}
	return true, nil
}

// items are the step as operations of a transaction; the first one has the condition.
func (s *step) items(t *table, now time.Time) (items []types.TransactWriteItem, err error) {
	s.plan = nil
	switch {
	case s.Verb == driver.Write:
		if s.plan, err = t.planWrite(s.Key, s.Resource, s.base, s.dead, now); err != nil {
			return nil, err
		}
		return s.plan.items(t), nil
	case s.Verb == driver.Delete && !s.skip:
		s.plan = t.planDelete(s.Key, s.Uid, s.base, now)
		return s.plan.items(t), nil
	}
	check := condition{text: "attribute_not_exists(u)"}
	switch {
	case s.Verb == driver.Delete:
		check = condition{"attribute_not_exists(u) OR u <> :uid", item{":uid": binaryValue([]byte(s.Uid))}}
	case s.base != nil:
		check = storedAs(s.base, s.Uid)
	}
	return []types.TransactWriteItem{t.check(t.resource(s.Key), check)}, nil
}

// check is a condition on an item as an operation of a transaction.
func (t *table) check(keys item, on condition) types.TransactWriteItem {
	return types.TransactWriteItem{ConditionCheck: &types.ConditionCheck{
		TableName: &t.name, Key: keys, ConditionExpression: on.expression(), ExpressionAttributeValues: on.values,
	}}
}

// retire adds the retirement of replaced parts to the transaction as long as they fit, and returns the others.
func (t *transaction) retire(items *[]types.TransactWriteItem, now time.Time) (late []types.TransactWriteItem) {
	retired := 0
	for i := range t.steps {
		if t.steps[i].plan == nil {
			continue
		}
		parts := t.steps[i].plan.retirement(t.table, now)
		if retired+len(parts) <= maxRetired && len(*items)+len(parts) < maxItems {
			retired += len(parts)
			*items = append(*items, parts...)
			continue
		}
		late = append(late, parts...)
	}
	return late
}

// retireLater retires parts on their own after the transaction. Nothing depends on it but the room they take.
func (t *transaction) retireLater(ctx context.Context, late []types.TransactWriteItem) {
	for _, it := range late {
		_, err := t.table.retry(ctx, func(option func(*dynamodb.Options)) error {
			out, err := t.table.db.UpdateItem(ctx, &dynamodb.UpdateItemInput{
				TableName: it.Update.TableName, Key: it.Update.Key, UpdateExpression: it.Update.UpdateExpression,
				ExpressionAttributeNames: it.Update.ExpressionAttributeNames, ExpressionAttributeValues: it.Update.ExpressionAttributeValues,
				ReturnConsumedCapacity: t.table.capacity(),
			}, option)
			if err == nil {
				t.table.spent(out.ConsumedCapacity)
			}
			return err
		})
		if err != nil {
			return
		}
	}
}
