package faults

import (
	"fmt"
	"time"

	"github.com/ashlar-dev/storage/resourcepb"
)

// references calls OwnerReferences for an owner.
func references(c *client, timeout time.Duration) {
	owner := c.owner()
	ctx, cancel := c.callContext(timeout)
	defer cancel()
	k := c.begin("owner references", timeout)
	k.owner = ownerOf(owner)
	ids, err := c.b.OwnerReferences(ctx, owner)
	if err == nil {
		k.references = make(map[string]string, len(ids))
		for i, id := range ids {
			k.references[id.GetName()] = id.GetUid()
			if wrong := referenceError(c, ids[:i], id); wrong != "" {
				c.round.report(Violation{"owner references are true", fmt.Sprintf("%s: %s on handle %d, of %s", wrong, c.name, c.handle, k.owner)})
			}
		}
	}
	c.finishCall(k, err)
}

// referenceError returns the error of an id in an answer of owner references, or "".
func referenceError(c *client, before []*resourcepb.ID, id *resourcepb.ID) string {
	typ, tenancy := id.GetType(), id.GetTenancy()
	switch {
	case typ.GetGroup() != thing.Group || typ.GetKind() != thing.Kind || typ.GetGroupVersion() != "v1" ||
		tenancy.GetPartition() != partition || tenancy.GetNamespace() != c.round.namespace:
		return fmt.Sprintf("no call wrote %v", id)
	case len(before) > 0 && before[len(before)-1].GetName() >= id.GetName():
		return fmt.Sprintf("%s comes after %s", id.GetName(), before[len(before)-1].GetName())
	}
	return ""
}
