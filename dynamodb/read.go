package dynamodb

import (
	"context"
	"errors"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"

	"github.com/ashlar-dev/storage"
	"github.com/ashlar-dev/storage/driver"
	"github.com/ashlar-dev/storage/driver/key"
	"github.com/ashlar-dev/storage/internal/batch"
	"github.com/ashlar-dev/storage/resourcepb"
)

// Get implements driver.Driver.
func (b *handle) Get(ctx context.Context, consistency storage.ReadConsistency, k driver.Key) (*resourcepb.Resource, error) {
	_, res, err := b.get(ctx, consistency, k)
	return res, err
}

// get returns what is stored under a key: no head if nothing ever was (as far as anybody knows), no resource if there is none.
func (b *handle) get(ctx context.Context, consistency storage.ReadConsistency, k key.Key) (*head, *resourcepb.Resource, error) {
	if consistency == storage.EventualConsistency && b.seen.distrust() {
		consistency = storage.StrongConsistency
	}
	for {
		it, err := b.readers[consistency].Do(ctx, b.resource(k))
		if err != nil {
			return nil, nil, err
		}
		var h *head
		if it != nil {
			if h, err = b.head(it); err != nil {
				return nil, nil, err
			}
		}
		if consistency == storage.EventualConsistency && b.seen.stale(k, h) {
			consistency = storage.StrongConsistency
			continue
		}
		b.seen.note(k, h)
		if h == nil || !h.live {
			return h, nil, nil
		}
		packed, err := b.gather(ctx, h)
		if errors.Is(err, errPartsGone) && consistency == storage.EventualConsistency {
			consistency = storage.StrongConsistency
			continue // overwritten a day ago, and read from a replica that is as old
		}
		if err != nil {
			return nil, nil, err
		}
		res, err := h.decode(packed)
		return h, res, err
	}
}

// stored is what the decision tables want to know of a head.
func (h *head) stored() driver.Stored {
	if h == nil || !h.live {
		return driver.Stored{}
	}
	return driver.Stored{Exists: true, Uid: h.uid, Version: h.stamp.version()}
}

// newReader returns a batcher of reads. A lone read is a GetItem; reads that arrive while others are under way leave together as
// a BatchGetItem, which costs the same in capacity.
func (b *handle) newReader(strong bool) *batch.Batcher[item, item] {
	return batch.New(batch.Options[item]{MaxCalls: 100, Workers: 2, WorkerAt: 32}, func(ctx context.Context, calls []*batch.Call[item, item]) {
		if len(calls) == 1 {
			calls[0].Done(b.getItem(ctx, strong, calls[0].Request))
			return
		}
		waiting := make(map[string][]*batch.Call[item, item], len(calls))
		wanted := make([]item, 0, len(calls))
		for _, c := range calls {
			at := c.Request.address()
			if waiting[at] == nil {
				wanted = append(wanted, c.Request)
			}
			waiting[at] = append(waiting[at], c)
		}
		err := b.getItems(ctx, strong, wanted, func(it item) {
			for _, c := range waiting[it.address()] {
				c.Done(it, nil)
			}
		})
		for _, c := range calls {
			c.Done(nil, err) // those that were not found, or not reached
		}
	})
}

func (b *handle) getItem(ctx context.Context, strong bool, keys item) (item, error) {
	var found item
	_, err := b.call(ctx, func(option func(*dynamodb.Options)) error {
		out, err := b.db.GetItem(ctx, &dynamodb.GetItemInput{
			TableName: &b.table, Key: keys, ConsistentRead: &strong,
			ReturnConsumedCapacity: b.opts.capacity(),
		}, option)
		if err != nil {
			return err
		}
		b.opts.spent(out.ConsumedCapacity)
		found = out.Item
		return nil
	})
	return found, err
}

// getItems reads up to 100 items and passes on those that exist, in any order. DynamoDB may leave some for another time.
func (b *handle) getItems(ctx context.Context, strong bool, wanted []item, found func(item)) error {
	left := make([]map[string]types.AttributeValue, len(wanted))
	for i, w := range wanted {
		left[i] = w
	}
	var progress bool
	_, err := b.call(ctx, func(option func(*dynamodb.Options)) error {
		for len(left) > 0 {
			out, err := b.db.BatchGetItem(ctx, &dynamodb.BatchGetItemInput{
				RequestItems:           map[string]types.KeysAndAttributes{b.table: {Keys: left, ConsistentRead: &strong}},
				ReturnConsumedCapacity: b.opts.capacity(),
			}, option)
			if err != nil {
				return err
			}
			for i := range out.ConsumedCapacity {
				b.opts.spent(&out.ConsumedCapacity[i])
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
			progress = len(left) < before
			if len(left) > 0 && !progress {
				return errUnprocessed
			}
		}
		return nil
	})
	return err
}

// errUnprocessed is what DynamoDB means by an answer without items: it is throttling.
var errUnprocessed = errors.New("BatchGetItem: all keys were left unprocessed")

// errPartsGone says that a head was read after its parts' time was over. What is stored now has its parts, unless it is damaged.
var errPartsGone = errors.New("parts of the stored data are gone")

// gather returns the packed data of a head, from its parts where it has some.
//
// Parts are written once, in the transaction that writes the head, under the token of that write; they are never changed. When
// the resource is overwritten or deleted they are retired: kept for longer than a stream remembers, then removed by DynamoDB.
// So whoever has a head, from a read or from the stream, finds exactly the parts that belong to it, and no reader ever sees a
// mixture of two versions.
func (b *handle) gather(ctx context.Context, h *head) ([]byte, error) {
	if h.stamp.parts == 0 {
		return h.packed, nil
	}
	wanted := make([]item, h.stamp.parts)
	for i := range wanted {
		wanted[i] = b.part(h.stamp.token, i)
	}
	parts := make([][]byte, len(wanted))
	err := b.getItems(ctx, true, wanted, func(it item) {
		if n := it.bytes(attrSK); len(n) == 1 && int(n[0]) < len(parts) {
			parts[n[0]] = it.bytes(attrData)
		}
	})
	if err != nil {
		return nil, err
	}
	size := len(h.packed)
	for _, p := range parts {
		if p == nil {
			return nil, h.damaged(errPartsGone)
		}
		size += len(p)
	}
	packed := make([]byte, 0, size)
	for _, p := range parts {
		packed = append(packed, p...)
	}
	return append(packed, h.packed...), nil
}

func (o *Options) capacity() types.ReturnConsumedCapacity {
	if o.Spent == nil {
		return ""
	}
	return types.ReturnConsumedCapacityTotal
}

func (o *Options) spent(c *types.ConsumedCapacity) {
	if o.Spent != nil && c != nil {
		o.Spent(aws.ToFloat64(c.CapacityUnits))
	}
}
