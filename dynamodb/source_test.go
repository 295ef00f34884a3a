package dynamodb

import (
	"fmt"
	"testing"
	"time"

	dynamodbtypes "github.com/aws/aws-sdk-go-v2/service/dynamodb/types"
	"github.com/aws/aws-sdk-go-v2/service/dynamodbstreams/types"
	"google.golang.org/protobuf/types/known/anypb"

	"github.com/ashlar-dev/storage/driver/key"
	"github.com/ashlar-dev/storage/internal/codec"
	"github.com/ashlar-dev/storage/resourcepb"
)

// toStream converts an item into an image.
func toStream(it item) map[string]types.AttributeValue {
	image := map[string]types.AttributeValue{}
	for name, v := range it {
		image[name] = &types.AttributeValueMemberB{Value: v.(*dynamodbtypes.AttributeValueMemberB).Value}
	}
	return image
}

// The size of an event is the size of its resource, not of the record, which contains it compressed.
func TestSizeOfAnEvent(t *testing.T) {
	t.Parallel()
	tab := &table{layout: layout{prefix: "p"}}
	for i, size := range []int{1, 1000 << 10} {
		id := &resourcepb.ID{
			Uid: "u", Name: fmt.Sprint(i), Type: &resourcepb.Type{Group: "g", GroupVersion: "v1", Kind: "k"}, Tenancy: &resourcepb.Tenancy{},
		}
		res := &resourcepb.Resource{Id: id, Data: &anypb.Any{Value: make([]byte, size)}}
		p, err := tab.planWrite(key.Of(id), res, nil, false, time.Now())
		if err != nil {
			t.Fatal(err)
		}
		ev, count, err := records{&reader{table: tab}}.Event(t.Context(), &types.Record{Dynamodb: &types.StreamRecord{
			Keys: toStream(tab.resource(p.key)), NewImage: toStream(p.put),
		}})
		if err != nil || ev.Damage != nil {
			t.Fatal(err, ev.Damage)
		}
		if ev.Size != codec.Size(ev.Resource) || ev.Size < size || count != p.next.count {
			t.Errorf("an event of %d bytes has the size %d, its state the count %d", codec.Size(ev.Resource), ev.Size, count)
		}
	}
}
