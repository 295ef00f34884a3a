package dynamodb

import (
	"context"
	"errors"
	"fmt"
	"math"

	"github.com/aws/aws-sdk-go-v2/aws"
	dynamodbtypes "github.com/aws/aws-sdk-go-v2/service/dynamodb/types"
	"github.com/aws/aws-sdk-go-v2/service/dynamodbstreams/types"

	"github.com/ashlar-dev/storage"
	"github.com/ashlar-dev/storage/internal/codec"
)

// change makes an event of a stream's record, nil where it is about something else: another store in the table, a part, an edge.
// It goes by the images, not by the record's name for what happened: a deletion is a put of a tombstone, the removal of a
// tombstone by DynamoDB is no change, and an operator's DeleteItem is a deletion.
func (b *handle) change(ctx context.Context, r *types.Record) (*event, error) {
	if r.Dynamodb == nil {
		return nil, errors.New("a stream record is empty")
	}
	keys := fromStream(r.Dynamodb.Keys)
	if class, _ := b.class(keys.bytes(attrPK)); class != classResource {
		return nil, nil
	}
	k, err := b.keyOf(keys)
	if err != nil {
		return nil, fmt.Errorf("%w: a record of the stream cannot be read: %w", storage.ErrCompacted, err)
	}
	ev := &event{Key: k, At: &position{seq: aws.ToString(r.Dynamodb.SequenceNumber), count: math.MaxUint64}}
	after, err := b.image(keys, r.Dynamodb.NewImage)
	if err != nil {
		ev.Damage = err
		return ev, nil
	}
	before, err := b.image(keys, r.Dynamodb.OldImage)
	shown := after
	if after == nil || !after.live {
		if err != nil {
			ev.Damage = err
			return ev, nil
		}
		shown, ev.Delete = before, true
	}
	if shown == nil || !shown.live {
		return nil, nil
	}
	if after != nil {
		ev.At.count = after.stamp.count
	} else {
		ev.At.count = before.stamp.count + 1
	}
	packed, err := b.gather(ctx, shown)
	if err != nil && !errors.Is(err, errPartsGone) {
		return nil, err
	}
	if err == nil {
		ev.Resource, err = shown.decode(packed)
	}
	if ev.Damage = err; err == nil {
		ev.Size = codec.Size(ev.Resource)
	}
	return ev, nil
}

// image decodes what an item was. An error is about damage: the key was read before.
func (b *handle) image(keys item, image map[string]types.AttributeValue) (*head, error) {
	if len(image) == 0 {
		return nil, nil
	}
	it := fromStream(image)
	it[attrPK], it[attrSK] = keys[attrPK], keys[attrSK]
	return b.head(it)
}

// fromStream turns an image into an item. Heads hold binary attributes only, but for the time that DynamoDB looks at.
func fromStream(image map[string]types.AttributeValue) item {
	it := make(item, len(image)+2)
	for name, v := range image {
		if v, ok := v.(*types.AttributeValueMemberB); ok {
			it[name] = &dynamodbtypes.AttributeValueMemberB{Value: v.Value}
		}
	}
	return it
}
