package dynamodb

import (
	"context"
	"errors"
	"fmt"

	"github.com/aws/aws-sdk-go-v2/aws"
	dynamodbtypes "github.com/aws/aws-sdk-go-v2/service/dynamodb/types"
	"github.com/aws/aws-sdk-go-v2/service/dynamodbstreams/types"

	"github.com/ashlar-dev/storage"
	"github.com/ashlar-dev/storage/internal/message"
)

// change makes an event of a stream's record, nil where it is about something else: another store in the table, a part, an edge.
// It goes by the images, not by the record's name for what happened: a deletion is a put of a tombstone, the removal of a
// tombstone by DynamoDB is no change, and an operator's DeleteItem is a deletion.
func (b *Backend) change(ctx context.Context, r *types.Record) (*event, error) {
	if r.Dynamodb == nil {
		return nil, errors.New("a stream record is empty")
	}
	keys := fromStream(r.Dynamodb.Keys)
	if class, _ := b.class(keys.bytes(attrPK)); class != classResource {
		return nil, nil
	}
	before, err := b.image(keys, r.Dynamodb.OldImage)
	if err != nil {
		return nil, err
	}
	after, err := b.image(keys, r.Dynamodb.NewImage)
	if err != nil {
		return nil, err
	}
	shown, gone := after, false
	if after == nil || !after.live {
		shown, gone = before, true
	}
	if shown == nil || !shown.live {
		return nil, nil
	}
	packed, err := b.gather(ctx, shown)
	if errors.Is(err, errPartsGone) {
		return nil, fmt.Errorf("%w: %w", storage.ErrCompacted, err)
	}
	if err != nil {
		return nil, err
	}
	res, err := shown.decode(packed)
	if err != nil {
		return nil, fmt.Errorf("%w: a record of the stream cannot be read: %w", storage.ErrCompacted, err)
	}
	ev := &event{Key: shown.key, Delete: gone, Resource: res, Size: message.Size(res), At: &position{
		seq: aws.ToString(r.Dynamodb.SequenceNumber), count: shown.stamp.count,
	}}
	if gone && after != nil {
		ev.At.count = after.stamp.count
	} else if gone {
		ev.At.count = before.stamp.count + 1
	}
	return ev, nil
}

func (b *Backend) image(keys item, image map[string]types.AttributeValue) (*head, error) {
	if len(image) == 0 {
		return nil, nil
	}
	it := fromStream(image)
	it[attrPK], it[attrSK] = keys[attrPK], keys[attrSK]
	h, err := b.head(it)
	if err != nil {
		return nil, fmt.Errorf("%w: a record of the stream cannot be read: %w", storage.ErrCompacted, err)
	}
	return h, nil
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
