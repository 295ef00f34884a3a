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
func (b *handle) commit(ctx context.Context, mutations []driver.Mutation) error {
	t := &transaction{b: b, steps: make([]step, len(mutations))}
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
			return inconsistent(ctx, nil)
		}
	}
	for i := range t.steps {
		if c := t.steps[i].change; c != nil {
			b.applied(c)
			if mutations[i].Verb == driver.Write {
				mutations[i].Written = c.next.version()
			}
		}
	}
	return nil
}

// transaction is a commit under way.
type transaction struct {
	b     *handle
	steps []step

	recallable bool // the last try has the condition that it was not recalled
}

// step is one operation.
type step struct {
	*driver.Mutation
	base *stamp // from the version given, or a tombstone's
	dead bool   // base is a tombstone's
	skip bool   // a delete of what is not there

	change *change // what the last try sent, nil for a check
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
			if err := t.b.register(ctx, s.Key); err != nil {
				return err
			}
		}
		t.steps[i] = s
	}
	if !foreign {
		return nil
	}
	for i := range t.steps {
		h, _, err := t.b.get(ctx, storage.StrongConsistency, t.steps[i].Key)
		if err != nil {
			return err
		}
		if err := t.steps[i].settle(h); err != nil {
			return &storage.OpError{Index: i, Err: err}
		}
	}
	return nil
}

// settle decides what a step does in view of what is stored: an error, or how to try it.
func (s *step) settle(h *head) error {
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
	now := t.b.clock.now()
	var items []types.TransactWriteItem
	owner := make([]int, 0, maxItems) // which step an item belongs to, -1 for items without a condition
	for i := range t.steps {
		own, err := t.steps[i].items(t.b, now)
		if err != nil {
			return false, err
		}
		items = append(items, own...)
		owner = append(owner, i)
		for range own[1:] {
			owner = append(owner, -1)
		}
	}
	token, fresh := newToken(), signedBy("AshlarComposed", now.Add(composedFor), errComposed)
	if t.recallable = t.mayHoldAgain(); t.recallable {
		items, owner = append(items, t.b.recall(token)), append(owner, -1)
	}
	late := t.retire(&items, now)
	var reasons []types.CancellationReason
	maybe, err := t.b.call(ctx, func(option func(*dynamodb.Options)) error {
		return t.b.permitted(ctx, func(g *grant) (err error) {
			reasons, err = t.b.transact(ctx, g, token, items, option, fresh)
			return err
		})
	})
	switch {
	case err == nil:
		t.retireLater(ctx, late)
		return false, nil
	case errors.Is(err, errComposed) && !maybe && sleep(ctx, time.Millisecond):
		return true, nil
	case hasCode(err, "ValidationException") && strings.Contains(err.Error(), "4 MB"):
		return false, fmt.Errorf("%w: %w", storage.ErrTooLarge, err)
	case !errors.Is(err, errCondition):
		if maybe && !errors.Is(err, storage.ErrInconsistent) {
			err = inconsistent(ctx, err)
		}
		return false, err
	}
	return t.refused(ctx, token, reasons, owner, maybe)
}

// refused looks at what is stored where conditions failed. DynamoDB could tell it with the refusal, but not where the items are
// large: an answer has to be smaller than 4 MB.
func (t *transaction) refused(ctx context.Context, token [16]byte, reasons []types.CancellationReason, owner []int, maybe bool) (again bool, err error) {
	var first *storage.OpError
	for n, r := range reasons {
		if n >= len(owner) || owner[n] < 0 || aws.ToString(r.Code) != "ConditionalCheckFailed" {
			continue
		}
		i := owner[n]
		s := &t.steps[i]
		it, err := t.b.readers[storage.StrongConsistency].Do(ctx, t.b.resource(s.Key))
		if err != nil {
			return false, err
		}
		var h *head
		if it != nil {
			if h, err = t.b.head(it); err != nil {
				return false, err
			}
		}
		if s.change != nil {
			made, err := s.change.made(h, maybe)
			if err != nil {
				return false, err
			}
			if made {
				return false, nil // by an attempt whose answer was lost
			}
		}
		t.b.seen.note(s.Key, h)
		if err := s.settle(h); err != nil && first == nil {
			first = &storage.OpError{Index: i, Err: err}
		}
	}
	if maybe && t.recallable {
		made, err := t.recalled(ctx, token)
		if err != nil {
			return false, err
		}
		if made {
			return false, nil
		}
	}
	if first != nil {
		return false, first
	}
	return true, nil
}

// items are the step as operations of a transaction; the first one has the condition.
func (s *step) items(b *handle, now time.Time) ([]types.TransactWriteItem, error) {
	s.change = nil
	switch {
	case s.Verb == driver.Write:
		c, err := b.planWrite(s.Key, s.Resource, s.base, s.dead, now)
		if err != nil {
			return nil, err
		}
		s.change = c
		return c.items(b, false, now), nil
	case s.Verb == driver.Delete && s.skip:
		return s.condition(b, "attribute_not_exists(u) OR u <> :uid", item{":uid": binaryValue([]byte(s.Uid))}), nil
	case s.Verb == driver.Delete:
		s.change = b.planDelete(s.Key, s.Uid, s.base, now)
		return s.change.items(b, false, now), nil
	case s.base == nil:
		return s.condition(b, "attribute_not_exists(u)", nil), nil
	default:
		return s.condition(b, "v = :base AND u = :uid", item{
			":base": binaryValue(s.base.bytes()), ":uid": binaryValue([]byte(s.Uid)),
		}), nil
	}
}

func (s *step) condition(b *handle, expression string, values item) []types.TransactWriteItem {
	return []types.TransactWriteItem{{ConditionCheck: &types.ConditionCheck{
		TableName: &b.table, Key: b.resource(s.Key), ConditionExpression: &expression, ExpressionAttributeValues: values,
	}}}
}

// retire adds the retirement of replaced parts to the transaction as long as they fit, and returns the others.
func (t *transaction) retire(items *[]types.TransactWriteItem, now time.Time) (late []types.TransactWriteItem) {
	retired := 0
	for i := range t.steps {
		c := t.steps[i].change
		if c == nil || c.base == nil || c.base.parts == 0 {
			continue
		}
		parts := c.items(t.b, true, now)
		parts = parts[len(parts)-int(c.base.parts):]
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
		_, err := t.b.call(ctx, func(option func(*dynamodb.Options)) error {
			_, err := t.b.db.UpdateItem(ctx, &dynamodb.UpdateItemInput{
				TableName: it.Update.TableName, Key: it.Update.Key, UpdateExpression: it.Update.UpdateExpression,
				ExpressionAttributeNames: it.Update.ExpressionAttributeNames, ExpressionAttributeValues: it.Update.ExpressionAttributeValues,
			}, option)
			return err
		})
		if err != nil {
			return
		}
	}
}
