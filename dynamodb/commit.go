package dynamodb

import (
	"context"
	"crypto/sha256"
	"encoding/base64"
	"errors"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"

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

// step is one mutation of a commit.
type step struct {
	*driver.Mutation
	base *stamp // from the version given, or a tombstone's
	dead bool   // base is a tombstone's
	skip bool   // a delete of what is not there

	plan *plan // what the last try sent, nil for what changes nothing
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
			s.base, s.dead = h.stamp, true // a tombstone: go on with its chain
		}
	}
	return nil
}

// compose makes the step's plan.
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

// own is the operation that has the step's condition.
func (s *step) own(t *table) types.TransactWriteItem {
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
		on = storedAs(s.base, s.Uid)
	}
	return t.check(t.resource(s.Key), on)
}

// check is a condition on an item as an operation of a transaction.
func (t *table) check(keys item, on condition) types.TransactWriteItem {
	return types.TransactWriteItem{ConditionCheck: &types.ConditionCheck{
		TableName: &t.name, Key: keys, ConditionExpression: on.expression(), ExpressionAttributeValues: on.values,
	}}
}

// items are the operations of a transaction.
type items struct {
	all  []types.TransactWriteItem // the steps' own first
	late []types.TransactWriteItem // what follows when it is done
}

// items are the commit as a transaction, with the retirement of replaced parts as long as that fits.
func (c *commit) items(now time.Time) *items {
	is := &items{all: make([]types.TransactWriteItem, len(c.steps), maxItems)}
	for i := range c.steps {
		s := &c.steps[i]
		is.all[i] = s.own(c.table)
		if s.plan != nil {
			is.all = append(is.all, s.plan.others(c.table)...)
		}
	}
	if c.lone() {
		is.all[0].Put.ReturnValuesOnConditionCheckFailure = types.ReturnValuesOnConditionCheckFailureAllOld
	}
	if c.recallable {
		is.all = append(is.all, c.notRecalled())
	}
	retired := 0
	for i := range c.steps {
		if c.steps[i].plan == nil {
			continue
		}
		parts := c.steps[i].plan.retirement(c.table, now)
		if retired+len(parts) <= maxRetired && len(is.all)+len(parts) < maxItems {
			retired += len(parts)
			is.all = append(is.all, parts...)
			continue
		}
		is.late = append(is.late, parts...)
	}
	return is
}

// put makes one attempt at a plan that is a single item. On errCondition there is one reason.
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

// transact makes one attempt at a transaction, with the condition of a fence that is announced. Its token makes DynamoDB itself
// recognise a repetition, which has to be the same request to the letter, for ten minutes; with another condition it is another
// transaction, and has another token. On errCondition the reasons line up with the items.
func (c *commit) transact(ctx context.Context, g *grant, items []types.TransactWriteItem, options ...func(*dynamodb.Options)) ([]types.CancellationReason, error) {
	own, token := len(items), c.token
	if g.epoch != nil {
		gate := c.table.anyGate(g.fence)
		items = append(items[:own:own], gate)
		sum := sha256.Sum256(append(item(gate.ConditionCheck.Key).bytes(attrPK), token[:]...))
		token = [16]byte(sum[:16])
	}
	out, err := c.table.db.TransactWriteItems(ctx, &dynamodb.TransactWriteItemsInput{
		TransactItems:          items,
		ClientRequestToken:     aws.String(base64.RawURLEncoding.EncodeToString(token[:])),
		ReturnConsumedCapacity: c.table.capacity(),
	}, options...)
	var cancelled *types.TransactionCanceledException
	if errors.As(err, &cancelled) {
		reasons, err := whyCancelled(cancelled, err)
		if len(reasons) > own && aws.ToString(reasons[own].Code) == failedCondition {
			return nil, errGateShut
		}
		return reasons, err
	}
	if err == nil {
		for i := range out.ConsumedCapacity {
			c.table.spent(&out.ConsumedCapacity[i])
		}
	}
	return nil, err
}

// retireLater retires parts on their own after the transaction. Nothing depends on it but the room they take.
func (c *commit) retireLater(ctx context.Context, late []types.TransactWriteItem) {
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
