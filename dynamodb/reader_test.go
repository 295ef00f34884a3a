package dynamodb

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	dynamodbtypes "github.com/aws/aws-sdk-go-v2/service/dynamodb/types"
	"github.com/aws/aws-sdk-go-v2/service/dynamodbstreams/types"
	"google.golang.org/protobuf/types/known/anypb"

	"github.com/ashlar-dev/storage/driver"
	"github.com/ashlar-dev/storage/driver/key"
	"github.com/ashlar-dev/storage/internal/codec"
	"github.com/ashlar-dev/storage/resourcepb"
)

// toStream turns an item into an image.
func toStream(it item) map[string]types.AttributeValue {
	image := map[string]types.AttributeValue{}
	for name, v := range it {
		image[name] = &types.AttributeValueMemberB{Value: v.(*dynamodbtypes.AttributeValueMemberB).Value}
	}
	return image
}

// An answer of the stream may hold a thousand resources of 1 MiB that were compressed to next to nothing: it is taken in pieces that
// are bounded by what they take in memory, and nothing of it is left out.
func TestTakeIsBoundedInBytes(t *testing.T) {
	t.Parallel()
	const records = 20
	b := &handle{layout: layout{"p"}, opts: Options{Timeout: time.Minute}}
	r := newReader(b)
	var all []types.Record
	for i := range records {
		id := &resourcepb.ID{
			Uid: "u", Name: fmt.Sprint(i), Type: &resourcepb.Type{Group: "g", GroupVersion: "v1", Kind: "k"}, Tenancy: &resourcepb.Tenancy{},
		}
		res := &resourcepb.Resource{Id: id, Data: &anypb.Any{Value: make([]byte, 1000<<10)}}
		c, err := b.planWrite(key.Of(id), res, nil, false, time.Now())
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, types.Record{Dynamodb: &types.StreamRecord{
			Keys: toStream(b.resource(c.key)), NewImage: toStream(c.put), SequenceNumber: aws.String(fmt.Sprint(100 + i)),
		}})
	}
	pos, left, seen := &position{shards: []place{{"s", ""}}}, all, 0
	for len(left) > 0 {
		p := &page{records: left, ended: true}
		next, events, err := r.take(t.Context(), pos, "s", p)
		if err != nil {
			t.Fatal(err)
		}
		size := 0
		for _, ev := range events {
			if ev.Size != codec.Size(ev.Resource) {
				t.Fatalf("an event of %d bytes counts as %d", codec.Size(ev.Resource), ev.Size)
			}
			size += ev.Size
		}
		if size > driver.PageBytes+1<<20 {
			t.Fatalf("%d events of %d bytes were taken at once", len(events), size)
		}
		left, seen = left[len(p.records):], seen+len(events)
		if seq, _ := next.get("s"); p.ended != (len(left) == 0) || (seq == ended) != p.ended || len(p.records) == 0 {
			t.Fatalf("%d records are left, the page has ended: %v, the place is %q", len(left), p.ended, seq)
		}
		pos = next
	}
	if seen != records {
		t.Errorf("%d events of %d records", seen, records)
	}
}

// A shard that is read to its end has its child listed already, which is not being read yet. What was written lately is in the child: a
// proof that asks no shard for anything would say that it has been passed.
func TestNoProofBetweenShards(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithCancel(t.Context())
	cancel() // no tick is to be written
	b := &handle{
		layout: layout{"p"}, opts: Options{Timeout: time.Minute}, clock: clock{local: time.Now},
		db: dynamodb.New(dynamodb.Options{Region: "none", BaseEndpoint: aws.String("http://127.0.0.1:1")}),
	}
	r := newReader(b)
	r.lines.update(map[string]string{"parent": "", "child": "parent"}, &position{})
	r.setPosition(&position{shards: []place{{"parent", ended}}})
	r.ask()
	r.advance(ctx)
	r.ticking.Wait()
	if r.proof.done > 0 || r.position().proven > 0 {
		t.Errorf("the proof is complete, with nothing read of %v's child", r.position())
	}
}
