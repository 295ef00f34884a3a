package dynamodb

import (
	"bytes"
	"context"
	"fmt"
	"slices"

	"google.golang.org/protobuf/proto"

	"github.com/ashlar-dev/storage/internal/check"
	"github.com/ashlar-dev/storage/internal/key"
	"github.com/ashlar-dev/storage/resourcepb"
)

// OwnerReferences implements storage.Backend. Each reference is an item of its own, an edge, written and removed in the
// transaction that writes its child, and read strongly: a global index would lag, and whoever saw the owner's delete event could
// miss children.
func (b *Backend) OwnerReferences(ctx context.Context, id *resourcepb.ID) ([]*resourcepb.ID, error) {
	k, err := check.IDWithUid("id", id)
	if err != nil {
		return nil, err
	}
	ctx, done, err := b.begin(ctx)
	if err != nil {
		return nil, err
	}
	defer done()
	hash, whole := ownerHash(id), ownerBytes(id)
	var children []*resourcepb.ID
	for start := item(nil); ; {
		items, next, err := b.query(ctx, true, b.pk(classEdge, hash[:]...), nil, start, 0)
		if err != nil {
			return nil, failed("read the references to", k, err)
		}
		for _, it := range items {
			if !bytes.Equal(it.bytes(attrOwner), whole) {
				continue
			}
			child := new(resourcepb.ID)
			if err := proto.Unmarshal(it.bytes(attrData), child); err != nil {
				return nil, failed("read the references to", k, fmt.Errorf("decode a stored reference: %w", err))
			}
			children = append(children, child)
		}
		if start = next; start == nil {
			break
		}
	}
	slices.SortFunc(children, func(a, b *resourcepb.ID) int { return key.Of(a).Compare(key.Of(b)) })
	return children, nil
}
