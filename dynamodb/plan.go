package dynamodb

import (
	"cmp"
	"fmt"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"

	"github.com/ashlar-dev/storage"
	"github.com/ashlar-dev/storage/driver/key"
	"github.com/ashlar-dev/storage/dynamodb/internal/request"
	"github.com/ashlar-dev/storage/internal/codec"
	"github.com/ashlar-dev/storage/resourcepb"
)

// plan is the change of one key: the new item, its condition, and the items that belong to it. It is composed from the versionRing
// in the caller's version, without a read.
type plan struct {
	key  key.Key
	base *versionRing // nil: no resource may be stored
	dead bool         // base belongs to a tombstone
	uid  string       // required uid of the base, unless dead
	next *versionRing

	put   item
	parts []item
	edge  item // to put, nil for none
	cut   item // the edge to delete, nil for none
}

// planWrite composes a write of res over base.
func (l layout) planWrite(k key.Key, res *resourcepb.Resource, base *versionRing, dead bool, now time.Time) (*plan, error) {
	data, err := codec.Encode(res)
	if err != nil {
		return nil, err
	}
	p := &plan{key: k, base: base, dead: dead, uid: res.GetId().GetUid(), next: base.next(now)}
	p.next.setOwner(res.GetId(), res.GetOwner())
	parts, rest := split(pack(data), cmp.Or(l.partSize, defaultPartSize))
	p.next.parts = uint8(len(parts))
	p.put = l.resource(k)
	p.put[attrUid] = binaryValue([]byte(p.uid))
	p.put[attrData] = binaryValue(rest)
	for i, data := range parts {
		it := l.part(p.next.token, i)
		it[attrData] = binaryValue(data)
		p.parts = append(p.parts, it)
	}
	p.put[attrVersion] = binaryValue(p.next.bytes())
	return p, l.planEdges(p, res)
}

// planEdges changes the owner's edge if the write changes the data in it.
func (l layout) planEdges(p *plan, res *resourcepb.Resource) error {
	if p.base != nil && p.base.owner == p.next.owner && p.base.groupVersion == p.next.groupVersion {
		return nil
	}
	if p.base != nil && p.base.hasOwner() && p.base.owner != p.next.owner {
		p.cut = l.edge(p.base.owner, p.key)
	}
	if p.next.hasOwner() {
		child, err := edgeData(res.GetId())
		if err != nil {
			return fmt.Errorf("encode a reference: %w", err)
		}
		p.edge = l.edge(p.next.owner, p.key)
		p.edge[attrOwner] = binaryValue(ownerBytes(res.GetOwner()))
		p.edge[attrData] = binaryValue(child)
	}
	return nil
}

// planDelete composes a deletion: a tombstone replaces the resource.
func (l layout) planDelete(k key.Key, uid string, base *versionRing, now time.Time) *plan {
	p := &plan{key: k, base: base, uid: uid, next: base.next(now)}
	p.put = l.resource(k)
	p.put[attrVersion] = binaryValue(p.next.bytes())
	p.put[attrExpires] = expires(now, tombstoneTTL)
	if base.hasOwner() {
		p.cut = l.edge(base.owner, k)
	}
	return p
}

// condition returns the condition of the plan's own item.
func (p *plan) condition() condition {
	switch {
	case p.base == nil:
		return absent
	case p.dead:
		// DynamoDB may remove the tombstone between the read and the write.
		return condition{"attribute_not_exists(pk) OR v = :base", item{":base": binaryValue(p.base.bytes())}}
	}
	return ringAndUid(p.base, p.uid)
}

// ringAndUid is the condition that a resource has a versionRing and a uid.
func ringAndUid(base *versionRing, uid string) condition {
	return condition{"v = :base AND u = :uid", item{":base": binaryValue(base.bytes()), ":uid": binaryValue([]byte(uid))}}
}

// isSingleItem reports whether the plan changes only its own item.
func (p *plan) isSingleItem() bool {
	return len(p.parts) == 0 && p.edge == nil && p.cut == nil && (p.base == nil || p.base.parts == 0)
}

// others returns the other items of the plan, as operations of a transaction.
func (p *plan) others(t *table) (items []types.TransactWriteItem) {
	if p.cut != nil {
		items = append(items, types.TransactWriteItem{Delete: &types.Delete{TableName: &t.name, Key: p.cut}})
	}
	put := func(it item) {
		items = append(items, types.TransactWriteItem{Put: &types.Put{TableName: &t.name, Item: it}})
	}
	if p.edge != nil {
		put(p.edge)
	}
	for _, part := range p.parts {
		put(part)
	}
	return items
}

// retirement returns the operations of a transaction that retire the parts of the previous state.
func (p *plan) retirement(t *table, now time.Time) (items []types.TransactWriteItem) {
	if p.base == nil {
		return nil
	}
	for i := range int(p.base.parts) {
		items = append(items, types.TransactWriteItem{Update: &types.Update{
			TableName: &t.name, Key: t.part(p.base.token, i),
			UpdateExpression:          aws.String("SET #ttl = :ttl"),
			ExpressionAttributeNames:  map[string]string{"#ttl": attrExpires},
			ExpressionAttributeValues: item{":ttl": expires(now, retiredPartTTL)},
		}})
	}
	return items
}

// composedFor is how long a request may be sent after it was composed. Its count contains the time, and readers derive from it how
// long a replica may lack the write. A process that was suspended in between composes the request again.
const composedFor = 5 * time.Minute

// errComposed means that a request was not sent because it was composed too long ago.
var errComposed = request.NewError(request.Rejected, "the request was composed too long ago")

// fresh prevents a request from being sent too long after it was composed.
func fresh(composed time.Time) func(*dynamodb.Options) {
	return request.SignBefore("AshlarComposed", composed.Add(composedFor), errComposed)
}

// wasApplied reports whether the plan was applied although its condition does not hold (any more). old is the stored item. maybe
// reports that an earlier attempt may have been applied.
//
// A repeated request that was applied finds its own ring, not its base. So it was applied before if the stored ring is its own or
// follows its own. Otherwise it was not applied, unless more writes than the ring holds came in between.
func (p *plan) wasApplied(old *headItem, maybe bool) (bool, error) {
	switch {
	case old == nil:
		return false, nil // a resource that was created and deleted leaves a tombstone for hours
	case old.ring.follows(p.next.token):
		return true, nil
	case !maybe, len(old.ring.ring) < ringSize, old.ring.count <= p.next.count+ringSize:
		return false, nil // otherwise more than ringSize writes would have followed, and each raises the count
	case p.base != nil && old.ring.follows(p.base.token):
		return false, nil
	}
	return false, fmt.Errorf("%w: the answer was lost, and too many writes of the resource followed to determine the outcome", storage.ErrInconsistent)
}
