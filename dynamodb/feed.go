package dynamodb

import (
	"context"
	"errors"
	"fmt"
	"math"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	dynamodbtypes "github.com/aws/aws-sdk-go-v2/service/dynamodb/types"
	"github.com/aws/aws-sdk-go-v2/service/dynamodbstreams/types"

	"github.com/ashlar-dev/storage"
	"github.com/ashlar-dev/storage/dynamodb/internal/streams"
	"github.com/ashlar-dev/storage/internal/codec"
)

// records gives package streams, the source of changes, access to the table.
type records struct{ reader *reader }

var _ streams.Table = records{}

// Stream implements streams.Table.
func (r records) Stream(ctx context.Context) (string, error) {
	description, err := r.reader.table.describe(ctx)
	if err != nil {
		return "", err
	}
	if err := checkStream(description.StreamSpecification); err != nil {
		return "", &dynamodbtypes.ResourceNotFoundException{Message: aws.String(err.Error())}
	}
	return aws.ToString(description.LatestStreamArn), nil
}

// Event implements streams.Table. A record may concern something other than a resource: another store in the table, a part, an
// edge. Event uses the images, not the record's event name: a deletion is a put of a tombstone, the removal of a tombstone by
// DynamoDB is no change, and an operator's DeleteItem is a deletion.
func (r records) Event(ctx context.Context, record *types.Record) (ev *streams.Event, count uint64, err error) {
	if record.Dynamodb == nil {
		return nil, 0, errors.New("a stream record is empty")
	}
	l := r.reader.table.layout
	keys := fromStream(record.Dynamodb.Keys)
	if class, _ := l.class(keys.bytes(attrPK)); class != classResource {
		return nil, 0, nil
	}
	k, err := l.keyOf(keys)
	if err != nil {
		return nil, 0, fmt.Errorf("%w: a record of the stream cannot be decoded: %w", storage.ErrCompacted, err)
	}
	ev = &streams.Event{Key: k}
	after, err := l.image(keys, record.Dynamodb.NewImage)
	if err != nil {
		ev.Damage = err
		return ev, math.MaxUint64, nil
	}
	before, err := l.image(keys, record.Dynamodb.OldImage)
	shown := after
	if after == nil || !after.live {
		if err != nil {
			ev.Damage = err
			return ev, math.MaxUint64, nil
		}
		shown, ev.Delete = before, true
	}
	if shown == nil || !shown.live {
		return nil, 0, nil
	}
	if after != nil {
		count = after.ring.count
	} else {
		count = before.ring.count + 1
	}
	packed, err := r.reader.gather(ctx, shown)
	if err != nil && !errors.Is(err, errPartsGone) {
		return nil, 0, err
	}
	if err == nil {
		ev.Resource, err = shown.decode(packed)
	}
	if ev.Damage = err; err == nil {
		ev.Size = codec.Size(ev.Resource)
	}
	return ev, count, nil
}

// image decodes an image of an item. An error means damage, because the key was decoded before.
func (l layout) image(keys item, image map[string]types.AttributeValue) (*headItem, error) {
	if len(image) == 0 {
		return nil, nil
	}
	it := fromStream(image)
	it[attrPK], it[attrSK] = keys[attrPK], keys[attrSK]
	return l.head(it)
}

// fromStream converts an image into an item. Heads have only binary attributes, except for the time-to-live.
func fromStream(image map[string]types.AttributeValue) item {
	it := make(item, len(image)+2)
	for name, v := range image {
		if v, ok := v.(*types.AttributeValueMemberB); ok {
			it[name] = &dynamodbtypes.AttributeValueMemberB{Value: v.Value}
		}
	}
	return it
}

// WriteTick implements streams.Table.
func (r records) WriteTick(ctx context.Context, n uint16, data []byte) error {
	t := r.reader.table
	it := t.tick(n)
	it[attrData], it[attrExpires] = binaryValue(data), expires(t.clock.Now(), time.Hour)
	return t.put(ctx, it, condition{})
}

// Tick implements streams.Table.
func (r records) Tick(record *types.Record) (n uint16, data []byte, ok bool) {
	if record.Dynamodb == nil {
		return 0, nil, false
	}
	n, ok = r.reader.table.tickNumber(fromStream(record.Dynamodb.Keys))
	if !ok {
		return 0, nil, false
	}
	return n, fromStream(record.Dynamodb.NewImage).bytes(attrData), true
}
