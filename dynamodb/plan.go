package dynamodb

import (
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

// plan is how one key is to be changed: the new item, the condition for it, and the items that go with it. It is composed
// from the stamp in the version that the caller gave, without reading anything.
type plan struct {
	key  key.Key
	base *versionRing // nil: nothing may be stored
	dead bool         // base is a tombstone's
	uid  string       // that base must have, unless dead
	next *versionRing

	put   item
	parts []item
	edge  item // to be put, nil for none
	cut   item // the edge to be deleted, nil for none
}

// planWrite composes a write of res upon base.
func (l layout) planWrite(k key.Key, res *resourcepb.Resource, base *versionRing, dead bool, now time.Time) (*plan, error) {
	data, err := codec.Encode(res)
	if err != nil {
		return nil, err
	}
	p := &plan{key: k, base: base, dead: dead, uid: res.GetId().GetUid(), next: base.next(now)}
	p.next.setOwner(res.GetId(), res.GetOwner())
	parts, rest := split(pack(data))
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

// planEdges changes the owner's edge if the write changes what it shows.
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

// planDelete composes a deletion: a tombstone takes the resource's place.
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

// condition is the one on the item itself.
func (p *plan) condition() condition {
	switch {
	case p.base == nil:
		return absent
	case p.dead:
		// DynamoDB may remove the tombstone between our seeing it and the write.
		return condition{"attribute_not_exists(pk) OR v = :base", item{":base": binaryValue(p.base.bytes())}}
	}
	return ringAndUid(p.base, p.uid)
}

// ringAndUid is the condition that a resource has a stamp and a uid.
func ringAndUid(base *versionRing, uid string) condition {
	return condition{"v = :base AND u = :uid", item{":base": binaryValue(base.bytes()), ":uid": binaryValue([]byte(uid))}}
}

// isSingleItem reports whether the plan is a single item.
func (p *plan) isSingleItem() bool {
	return len(p.parts) == 0 && p.edge == nil && p.cut == nil && (p.base == nil || p.base.parts == 0)
}

// others are the items that go with the plan's own, as operations of a transaction.
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

// retirement is what retires the parts of the state before, as operations of a transaction.
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

// composedFor is how long a request may be sent after it was composed. Its count holds the time, by which readers tell for how long
// a replica may not have it; a process that was stopped in between composes it anew.
const composedFor = 5 * time.Minute

// errComposed says that a request was not sent because it was composed too long ago.
var errComposed = request.NewError(request.Rejected, "the request was composed too long ago")

// fresh keeps a request from being sent too long after it was composed.
func fresh(composed time.Time) func(*dynamodb.Options) {
	return request.SignedBy("AshlarComposed", composed.Add(composedFor), errComposed)
}

// wasApplied reports whether the plan was carried out although its condition does not hold (any more). old is what is stored, maybe says
// that an earlier attempt may have been carried out.
//
// A repeated request that was applied finds its own ring, not its base. So it was applied before if the stored ring is its own or follows
// its own. Otherwise it was not applied, unless more writes than the ring holds came in between.
func (p *plan) wasApplied(old *headItem, maybe bool) (bool, error) {
	switch {
	case old == nil:
		return false, nil // what was made and then deleted leaves a tombstone for hours
	case old.ring.follows(p.next.token):
		return true, nil
	case !maybe, len(old.ring.ring) < ringSize, old.ring.count <= p.next.count+ringSize:
		return false, nil // else more than ringSize writes would have followed, each counting one up
	case p.base != nil && old.ring.follows(p.base.token):
		return false, nil
	}
	return false, fmt.Errorf("%w: the answer was lost, and the resource was written too often since to tell what became of the request", storage.ErrInconsistent)
}
