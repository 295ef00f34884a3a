package dynamodb

import (
	"context"
	"encoding/base64"
	"errors"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"

	"github.com/ashlar-dev/storage/dynamodb/internal/request"
)

// table sends requests for the items of a store. All other parts of the adapter use it.
type table struct {
	layout
	db    *dynamodb.Client
	name  string
	clock *request.Clock
	opts  *Options
	recorder
}

// retry sends a request until its outcome is known; see request.Retry. It is for requests that are safe to repeat.
func retry[I, O any](ctx context.Context, t *table, send func(context.Context, I, ...func(*dynamodb.Options)) (O, error), in I) (out O, err error) {
	_, err = t.attempt(ctx, func(option func(*dynamodb.Options)) error {
		out, err = send(ctx, in, option)
		return err
	})
	return out, err
}

// attempt sends a request until its outcome is known, as request.Retry does.
func (t *table) attempt(ctx context.Context, send func(option func(*dynamodb.Options)) error) (maybe bool, err error) {
	first := true
	return request.Retry(ctx, t.clock, func(option func(*dynamodb.Options)) error {
		if !first {
			t.retries.Add(ctx, 1)
		}
		first = false
		return send(option)
	})
}

// condition is a condition of a request on an item. The zero value is no condition.
type condition struct {
	text   string
	values item
}

var absent = condition{text: "attribute_not_exists(pk)"}

// versionEquals returns the condition that an item has this version, epoch or revision.
func versionEquals(v []byte) condition { return condition{"v = :v", item{":v": binaryValue(v)}} }

func (c condition) expression() *string {
	if c.text == "" {
		return nil
	}
	return &c.text
}

// get reads an item. It returns nil if the item does not exist.
func (t *table) get(ctx context.Context, strong bool, keys item) (item, error) {
	it, _, err := t.getAt(ctx, strong, keys)
	return it, err
}

// getAt reads an item, and returns AWS's time of the answer as well.
func (t *table) getAt(ctx context.Context, strong bool, keys item) (item, time.Time, error) {
	out, err := retry(ctx, t, t.db.GetItem, &dynamodb.GetItemInput{
		TableName: &t.name, Key: keys, ConsistentRead: &strong, ReturnConsumedCapacity: t.capacity(),
	})
	if err != nil {
		return nil, time.Time{}, err
	}
	t.spent(out.ConsumedCapacity)
	return out.Item, t.clock.Observe(out.ResultMetadata), nil
}

// getAtomically reads items at one moment, in order; nil for each that does not exist.
func (t *table) getAtomically(ctx context.Context, wanted ...item) ([]item, error) {
	in := &dynamodb.TransactGetItemsInput{ReturnConsumedCapacity: t.capacity()}
	for _, keys := range wanted {
		in.TransactItems = append(in.TransactItems, types.TransactGetItem{Get: &types.Get{TableName: &t.name, Key: keys}})
	}
	var out *dynamodb.TransactGetItemsOutput
	_, err := t.attempt(ctx, func(option func(*dynamodb.Options)) (err error) {
		out, err = t.db.TransactGetItems(ctx, in, option)
		var cancelled *types.TransactionCanceledException
		if errors.As(err, &cancelled) { // by a write of one of the items
			_, err = whyCancelled(cancelled, err)
		}
		return err
	})
	if err != nil {
		return nil, err
	}
	for i := range out.ConsumedCapacity {
		t.spent(&out.ConsumedCapacity[i])
	}
	items := make([]item, len(wanted))
	for i := range items {
		items[i] = out.Responses[i].Item
	}
	return items, nil
}

// getAll reads up to 100 items and passes on the existing ones, in any order. DynamoDB may leave some unprocessed, which are
// requested again.
func (t *table) getAll(ctx context.Context, strong bool, wanted []item, found func(item)) error {
	left := make([]map[string]types.AttributeValue, len(wanted))
	for i, w := range wanted {
		left[i] = w
	}
	_, err := t.attempt(ctx, func(option func(*dynamodb.Options)) error {
		for len(left) > 0 {
			out, err := t.db.BatchGetItem(ctx, &dynamodb.BatchGetItemInput{
				RequestItems:           map[string]types.KeysAndAttributes{t.name: {Keys: left, ConsistentRead: &strong}},
				ReturnConsumedCapacity: t.capacity(),
			}, option)
			if err != nil {
				return err
			}
			for i := range out.ConsumedCapacity {
				t.spent(&out.ConsumedCapacity[i])
			}
			for _, items := range out.Responses {
				for _, it := range items {
					found(it)
				}
			}
			before := len(left)
			left = nil
			for _, rest := range out.UnprocessedKeys {
				left = append(left, rest.Keys...)
			}
			if len(left) == before {
				return errUnprocessed
			}
		}
		return nil
	})
	return err
}

// query reads one answer's items of a partition, after start. If limit is not 0, it returns at most that many.
func (t *table) query(ctx context.Context, strong bool, pk, begins []byte, start item, limit int) (items []item, next item, err error) {
	in := &dynamodb.QueryInput{
		TableName: &t.name, ConsistentRead: &strong, ExclusiveStartKey: start,
		KeyConditionExpression:    aws.String("pk = :pk"),
		ExpressionAttributeValues: item{":pk": binaryValue(pk)},
		ReturnConsumedCapacity:    t.capacity(),
	}
	if len(begins) > 0 {
		in.KeyConditionExpression = aws.String("pk = :pk AND begins_with(sk, :sk)")
		in.ExpressionAttributeValues[":sk"] = binaryValue(begins)
	}
	if limit > 0 {
		in.Limit = aws.Int32(int32(limit))
	}
	out, err := retry(ctx, t, t.db.Query, in)
	if err != nil {
		return nil, nil, err
	}
	t.spent(out.ConsumedCapacity)
	items = make([]item, len(out.Items))
	for i, it := range out.Items {
		items[i] = it
	}
	if len(out.LastEvaluatedKey) > 0 {
		next = out.LastEvaluatedKey
	}
	return items, next, nil
}

// scan reads at most limit items of the whole table, after start, in an order of DynamoDB. It returns those of this store.
func (t *table) scan(ctx context.Context, start item, limit int) (items []item, next item, err error) {
	out, err := retry(ctx, t, t.db.Scan, &dynamodb.ScanInput{
		TableName: &t.name, ConsistentRead: aws.Bool(true), ExclusiveStartKey: start, Limit: aws.Int32(int32(limit)),
		FilterExpression:          aws.String("begins_with(pk, :store)"),
		ExpressionAttributeValues: item{":store": binaryValue([]byte(t.prefix + "\x00"))},
		ReturnConsumedCapacity:    t.capacity(),
	})
	if err != nil {
		return nil, nil, err
	}
	t.spent(out.ConsumedCapacity)
	for _, it := range out.Items {
		items = append(items, it)
	}
	if len(out.LastEvaluatedKey) > 0 {
		next = out.LastEvaluatedKey
	}
	return items, next, nil
}

// put stores an item on a condition.
func (t *table) put(ctx context.Context, it item, on condition) error {
	out, err := retry(ctx, t, t.db.PutItem, &dynamodb.PutItemInput{
		TableName: &t.name, Item: it, ConditionExpression: on.expression(), ExpressionAttributeValues: on.values,
		ReturnConsumedCapacity: t.capacity(),
	})
	if err == nil {
		t.spent(out.ConsumedCapacity)
	}
	return err
}

// remove deletes an item on a condition.
func (t *table) remove(ctx context.Context, keys item, on condition) error {
	out, err := retry(ctx, t, t.db.DeleteItem, &dynamodb.DeleteItemInput{
		TableName: &t.name, Key: keys, ConditionExpression: on.expression(), ExpressionAttributeValues: on.values,
		ReturnConsumedCapacity: t.capacity(),
	})
	if err == nil {
		t.spent(out.ConsumedCapacity)
	}
	return err
}

// describe returns the description of the table.
func (t *table) describe(ctx context.Context) (*types.TableDescription, error) {
	out, err := retry(ctx, t, t.db.DescribeTable, &dynamodb.DescribeTableInput{TableName: &t.name})
	if err != nil {
		return nil, err
	}
	return out.Table, nil
}

func (t *table) capacity() types.ReturnConsumedCapacity {
	if t.opts.Spent == nil && t.units == nil {
		return ""
	}
	return types.ReturnConsumedCapacityTotal
}

func (t *table) spent(c *types.ConsumedCapacity) {
	if c != nil {
		t.count(aws.ToFloat64(c.CapacityUnits))
	}
}

func (t *table) count(units float64) {
	t.units.Add(context.Background(), units)
	if t.opts.Spent != nil {
		t.opts.Spent(units)
	}
}

// check returns a condition on an item as an operation of a transaction.
func (t *table) check(keys item, on condition) types.TransactWriteItem {
	return types.TransactWriteItem{ConditionCheck: &types.ConditionCheck{
		TableName: &t.name, Key: keys, ConditionExpression: on.expression(), ExpressionAttributeValues: on.values,
	}}
}

// on completes an operation of a transaction with its table and a condition.
func (t *table) on(op types.TransactWriteItem, on condition) types.TransactWriteItem {
	switch {
	case op.Put != nil:
		op.Put.TableName, op.Put.ConditionExpression, op.Put.ExpressionAttributeValues = &t.name, on.expression(), on.values
	case op.Update != nil:
		op.Update.TableName, op.Update.ConditionExpression, op.Update.ExpressionAttributeValues = &t.name, on.expression(), on.values
	default:
		op.Delete.TableName, op.Delete.ConditionExpression, op.Delete.ExpressionAttributeValues = &t.name, on.expression(), on.values
	}
	return op
}

// maxItems is DynamoDB's limit for the items of a transaction.
const maxItems = 100

// transact sends a transaction until its outcome is known. With errCondition the reasons correspond to the items.
func (t *table) transact(ctx context.Context, items ...types.TransactWriteItem) (reasons []types.CancellationReason, err error) {
	token := newToken()
	_, err = t.attempt(ctx, func(option func(*dynamodb.Options)) error {
		reasons, err = t.transactOnce(ctx, token, items, option)
		return err
	})
	return reasons, err
}

// transactOnce makes one attempt at a transaction. DynamoDB recognises a repetition by its token for ten minutes. A repetition must
// be the identical request.
func (t *table) transactOnce(ctx context.Context, token [16]byte, items []types.TransactWriteItem, options ...func(*dynamodb.Options)) ([]types.CancellationReason, error) {
	out, err := t.db.TransactWriteItems(ctx, &dynamodb.TransactWriteItemsInput{
		TransactItems:          items,
		ClientRequestToken:     aws.String(base64.RawURLEncoding.EncodeToString(token[:])),
		ReturnConsumedCapacity: t.capacity(),
	}, options...)
	var cancelled *types.TransactionCanceledException
	if errors.As(err, &cancelled) {
		return whyCancelled(cancelled, err)
	}
	if err == nil {
		for i := range out.ConsumedCapacity {
			t.spent(&out.ConsumedCapacity[i])
		}
	}
	return nil, err
}

// errUnprocessed represents an answer without items, which means throttling.
var errUnprocessed = request.NewError(request.NotApplied, "BatchGetItem: all keys were left unprocessed")

// conditionFailed reports whether a request was refused because of its condition.
func conditionFailed(err error) bool { return request.HasCode(err, "ConditionalCheckFailedException") }

// failedCondition is the code of a cancellation reason.
const failedCondition = "ConditionalCheckFailed"

// errCondition means that a condition of a transaction failed and nothing was changed.
var errCondition = errors.New("the condition failed")

// conditionError passes through retry as a refusal, and keeps the exception.
type conditionError struct{ error }

func (e *conditionError) Unwrap() error        { return e.error }
func (e *conditionError) Is(target error) bool { return target == errCondition }

// whyCancelled converts cancellation reasons into an error that retry understands. A failed condition, or a permanent failure, is
// final; a conflict with another transaction, or throttling, is not.
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
