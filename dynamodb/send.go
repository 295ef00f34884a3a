package dynamodb

import (
	"context"
	"crypto/sha256"
	"encoding/base64"
	"errors"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"
)

// send makes one attempt at a plan. On errCondition stored is what is stored instead.
func (w *writer) send(ctx context.Context, g *grant, p *plan, option func(*dynamodb.Options)) (stored item, err error) {
	if p.alone() && g.epoch == nil {
		return w.putItem(ctx, p, option, g.option, fresh(p.composed))
	}
	items := p.items(w.table)
	items[0].Put.ReturnValuesOnConditionCheckFailure = types.ReturnValuesOnConditionCheckFailureAllOld
	items = append(items, p.retirement(w.table, w.table.clock.Now())...)
	reasons, err := w.transact(ctx, g, p.next.token, items, option, fresh(p.composed))
	if len(reasons) > 0 {
		stored = reasons[0].Item
	}
	return stored, err
}

func (w *writer) putItem(ctx context.Context, p *plan, options ...func(*dynamodb.Options)) (stored item, err error) {
	on := p.condition()
	out, err := w.table.db.PutItem(ctx, &dynamodb.PutItemInput{
		TableName: &w.table.name, Item: p.put,
		ConditionExpression: on.expression(), ExpressionAttributeValues: on.values,
		ReturnValuesOnConditionCheckFailure: types.ReturnValuesOnConditionCheckFailureAllOld,
		ReturnConsumedCapacity:              w.table.capacity(),
	}, options...)
	var refused *types.ConditionalCheckFailedException
	if errors.As(err, &refused) {
		return refused.Item, &conditionError{err}
	}
	if err == nil {
		w.table.spent(out.ConsumedCapacity)
	}
	return nil, err
}

// conditionError passes through retry as a refusal, without losing the exception.
type conditionError struct{ error }

func (e *conditionError) Unwrap() error        { return e.error }
func (e *conditionError) Is(target error) bool { return target == errCondition }

// transact sends a transaction, with the condition of a fence that is announced. Its token makes DynamoDB itself recognise a
// repetition for ten minutes; with another condition it is another transaction, and has another token. On errCondition the reasons
// line up with the items.
func (w *writer) transact(ctx context.Context, g *grant, token [16]byte, items []types.TransactWriteItem, options ...func(*dynamodb.Options)) ([]types.CancellationReason, error) {
	own := len(items)
	if g.epoch != nil {
		gate := w.table.anyGate(g.fence)
		items = append(items[:own:own], gate)
		sum := sha256.Sum256(append(item(gate.ConditionCheck.Key).bytes(attrPK), token[:]...))
		token = [16]byte(sum[:16])
	}
	out, err := w.table.db.TransactWriteItems(ctx, &dynamodb.TransactWriteItemsInput{
		TransactItems:          items,
		ClientRequestToken:     aws.String(base64.RawURLEncoding.EncodeToString(token[:])),
		ReturnConsumedCapacity: w.table.capacity(),
	}, append(options, g.option)...)
	var cancelled *types.TransactionCanceledException
	if errors.As(err, &cancelled) {
		reasons, err := whyCancelled(cancelled, err)
		if len(reasons) > own && aws.ToString(reasons[own].Code) == "ConditionalCheckFailed" {
			return nil, errGateShut
		}
		return reasons, err
	}
	if err == nil {
		for i := range out.ConsumedCapacity {
			w.table.spent(&out.ConsumedCapacity[i])
		}
	}
	return nil, err
}

// whyCancelled turns the reasons into an error that retry understands: a failed condition or worse settles it, a conflict with
// another transaction or throttling does not.
func whyCancelled(cancelled *types.TransactionCanceledException, err error) ([]types.CancellationReason, error) {
	condition := false
	for _, r := range cancelled.CancellationReasons {
		switch aws.ToString(r.Code) {
		case "", "None":
		case "ConditionalCheckFailed":
			condition = true
		case "TransactionConflict", "ThrottlingError", "ProvisionedThroughputExceeded":
			return nil, &types.TransactionInProgressException{Message: aws.String(aws.ToString(r.Code) + ": " + aws.ToString(r.Message))}
		default:
			return nil, err
		}
	}
	if !condition {
		return nil, err
	}
	return cancelled.CancellationReasons, &conditionError{err}
}
