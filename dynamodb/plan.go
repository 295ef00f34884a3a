package dynamodb

import (
	"fmt"
	"time"

	"github.com/ashlar-dev/storage/driver/key"
	"github.com/ashlar-dev/storage/internal/codec"
	"github.com/ashlar-dev/storage/resourcepb"
	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"
)

// How long DynamoDB keeps what is no longer needed by a read.
const (
	// tombstoneLife is how long a deletion is remembered, for writers whose answer was lost and for scans that meet the key.
	tombstoneLife = 2 * time.Hour
	// retiredLife is longer than the 24 hours of a stream, whose records point at parts.
	retiredLife = 26 * time.Hour
)

// change is what is to happen to one key: the new item, the condition for it, and the items that go with it. It is composed
// from the stamp in the version that the caller gave, without reading anything.
type change struct {
	key  key.Key
	base *stamp // nil: nothing may be stored
	dead bool   // base is a tombstone's
	uid  string // that base must have, unless dead
	next *stamp
	// composed is AWS's time then, as far as it was known.
	composed time.Time
	put      item
	parts    []item
	edge     item // to be put, nil for none
	// cut is the edge to be deleted, nil for none.
	cut item
	res *resourcepb.Resource // as it will be stored, nil for a deletion
}

// planWrite composes a write of res upon base.
func (b *handle) planWrite(k key.Key, res *resourcepb.Resource, base *stamp, dead bool, now time.Time) (*change, error) {
	data, err := codec.Encode(res)
	if err != nil {
		return nil, err
	}
	c := &change{key: k, base: base, dead: dead, uid: res.GetId().GetUid(), next: base.next(now), composed: now}
	c.next.setOwner(res.GetId(), res.GetOwner())
	packed := pack(data)
	parts, rest := split(packed)
	c.next.parts = uint8(len(parts))
	c.put = b.resource(k)
	c.put[attrUid] = binaryValue([]byte(c.uid))
	c.put[attrData] = binaryValue(rest)
	for i, p := range parts {
		it := b.part(c.next.token, i)
		it[attrData] = binaryValue(p)
		c.parts = append(c.parts, it)
	}
	c.put[attrStamp] = binaryValue(c.next.bytes())
	if err := b.planEdges(c, res); err != nil {
		return nil, err
	}
	c.res = res
	return c, nil
}

// planEdges changes the owner's edge if the write changes what it shows.
func (b *handle) planEdges(c *change, res *resourcepb.Resource) error {
	if c.base != nil && c.base.owner == c.next.owner && c.base.groupVersion == c.next.groupVersion {
		return nil
	}
	if c.base != nil && c.base.hasOwner() && c.base.owner != c.next.owner {
		c.cut = b.edge(c.base.owner, c.key)
	}
	if c.next.hasOwner() {
		child, err := edgeData(res.GetId())
		if err != nil {
			return fmt.Errorf("encode a reference: %w", err)
		}
		c.edge = b.edge(c.next.owner, c.key)
		c.edge[attrOwner] = binaryValue(ownerBytes(res.GetOwner()))
		c.edge[attrData] = binaryValue(child)
	}
	return nil
}

// planDelete composes a deletion: a tombstone takes the resource's place.
func (b *handle) planDelete(k key.Key, uid string, base *stamp, now time.Time) *change {
	c := &change{key: k, base: base, uid: uid, next: base.next(now), composed: now}
	c.put = b.resource(k)
	c.put[attrStamp] = binaryValue(c.next.bytes())
	c.put[attrExpires] = expires(now, tombstoneLife)
	if base.hasOwner() {
		c.cut = b.edge(base.owner, k)
	}
	return c
}

func expires(now time.Time, life time.Duration) types.AttributeValue {
	return numberValue(now.Add(life).Unix())
}

// condition is the one on the item itself.
func (c *change) condition() (expression string, values item) {
	switch {
	case c.base == nil:
		return "attribute_not_exists(pk)", nil
	case c.dead:
		// DynamoDB may remove the tombstone between our seeing it and the write.
		return "attribute_not_exists(pk) OR v = :base", item{":base": binaryValue(c.base.bytes())}
	}
	return "v = :base AND u = :uid", item{":base": binaryValue(c.base.bytes()), ":uid": binaryValue([]byte(c.uid))}
}

// alone reports whether the change is a single item.
func (c *change) alone() bool {
	return len(c.parts) == 0 && c.edge == nil && c.cut == nil && (c.base == nil || c.base.parts == 0)
}

// items are the change as operations of a transaction, the resource's own first. With retire, the parts of the state before are
// retired in it, too.
func (c *change) items(b *handle, retire bool, now time.Time) []types.TransactWriteItem {
	expression, values := c.condition()
	put := func(it item) types.TransactWriteItem {
		return types.TransactWriteItem{Put: &types.Put{TableName: &b.table, Item: it}}
	}
	own := put(c.put)
	own.Put.ConditionExpression = &expression
	own.Put.ExpressionAttributeValues = values
	if retire { // the only change of its transaction
		own.Put.ReturnValuesOnConditionCheckFailure = types.ReturnValuesOnConditionCheckFailureAllOld
	}
	items := []types.TransactWriteItem{own}
	if c.cut != nil {
		items = append(items, types.TransactWriteItem{Delete: &types.Delete{TableName: &b.table, Key: c.cut}})
	}
	if c.edge != nil {
		items = append(items, put(c.edge))
	}
	for _, p := range c.parts {
		items = append(items, put(p))
	}
	if retire && c.base != nil {
		for i := range int(c.base.parts) {
			items = append(items, types.TransactWriteItem{Update: &types.Update{
				TableName: &b.table, Key: b.part(c.base.token, i),
				UpdateExpression:          aws.String("SET #ttl = :ttl"),
				ExpressionAttributeNames:  map[string]string{"#ttl": attrExpires},
				ExpressionAttributeValues: item{":ttl": expires(now, retiredLife)},
			}})
		}
	}
	return items
}
