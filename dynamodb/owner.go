package dynamodb

import (
	"bytes"
	"context"
	"fmt"
	"slices"

	"google.golang.org/protobuf/proto"

	"github.com/ashlar-dev/storage"
	"github.com/ashlar-dev/storage/driver"
	"github.com/ashlar-dev/storage/driver/key"
	"github.com/ashlar-dev/storage/resourcepb"
)

// Children implements driver.Driver. Each reference is an item of its own, an edge, written and removed in the transaction that
// writes its child, and read strongly: a global index would lag, and whoever saw the owner's delete event could miss children.
func (r *reader) Children(ctx context.Context, owner driver.Key, uid string) ([]*resourcepb.ID, error) {
	id := owner.ID(uid, "")
	hash, whole := ownerHash(id), ownerBytes(id)
	var children []*resourcepb.ID
	for start := item(nil); ; {
		items, next, err := r.table.query(ctx, true, r.table.pk(classEdge, hash[:]...), nil, start, 0)
		if err != nil {
			return nil, err
		}
		for _, it := range items {
			if !bytes.Equal(it.bytes(attrOwner), whole) {
				continue
			}
			child, err := r.childOf(ctx, it, id)
			if err != nil {
				return nil, err
			}
			if child != nil {
				children = append(children, child)
			}
		}
		if start = next; start == nil {
			break
		}
	}
	slices.SortFunc(children, func(a, b *resourcepb.ID) int { return key.Of(a).Compare(key.Of(b)) })
	return children, nil
}

// edgeIDSize is the most that an edge holds of a child's id. Only a group version is ever longer, which nothing else bounds.
const edgeIDSize = 8 << 10

// edgeData is what an edge shows of a child: its id, or nothing where that is too long, and is to be read from the child.
func edgeData(id *resourcepb.ID) ([]byte, error) {
	if proto.Size(id) <= edgeIDSize {
		return proto.Marshal(id)
	}
	short := proto.Clone(id).(*resourcepb.ID)
	short.Type.GroupVersion = ""
	data, err := proto.Marshal(short)
	return append([]byte{edgeLong}, data...), err
}

// edgeLong begins the data of an edge whose child's group version is left out. No message begins with it.
const edgeLong = 0

// childOf returns the id that an edge of the owner shows, nil if the child has left the owner meanwhile.
func (r *reader) childOf(ctx context.Context, edge item, owner *resourcepb.ID) (*resourcepb.ID, error) {
	data := edge.bytes(attrData)
	long := len(data) > 0 && data[0] == edgeLong
	if long {
		data = data[1:]
	}
	child := new(resourcepb.ID)
	if err := proto.Unmarshal(data, child); err != nil {
		return nil, fmt.Errorf("decode a stored reference: %w", err)
	}
	if !long {
		return child, nil
	}
	_, res, err := r.get(ctx, storage.StrongConsistency, key.Of(child))
	if err != nil || ownerHash(res.GetOwner()) != ownerHash(owner) {
		return nil, err
	}
	return res.GetId(), nil
}
