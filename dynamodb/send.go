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

// failedCondition is the code of a reason.
const failedCondition = "ConditionalCheckFailed"

// errCondition says that a condition of a commit does not hold, and that nothing was changed.
var errCondition = errors.New("the condition does not hold")

// conditionError passes through retry as a refusal, without losing the exception.
type conditionError struct{ error }

func (e *conditionError) Unwrap() error        { return e.error }
func (e *conditionError) Is(target error) bool { return target == errCondition }

// transact makes one attempt at a transaction, with the condition of a fence that is announced. Its token makes DynamoDB itself recognise a
// repetition for ten minutes; with another condition it is another transaction, and has another token. On errCondition the reasons
// line up with the items.
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

// whyCancelled turns the reasons into an error that retry understands: a failed condition or worse settles it, a conflict with
// another transaction or throttling does not.
func whyCancelled(cancelled *types.TransactionCanceledException, err error) ([]types.CancellationReason, error) {
	condition := false
	for _, r := range cancelled.CancellationReasons {
		switch aws.ToString(r.Code) {
		case "", "None":
		case failedCondition:
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
