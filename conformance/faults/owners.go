package faults

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/ashlar-dev/storage/resourcepb"
)

// absentOwners is how many owners of a round are never stored: a reference needs no owner that is there.
const absentOwners = 3

// ownerOf is an owner in the words of a history; "" is none.
func ownerOf(id *resourcepb.ID) string {
	if id == nil {
		return ""
	}
	return id.GetName() + " with uid " + id.GetUid()
}

// meet remembers a resource that was read, as an owner of others. It may be deleted by the time that it is named.
func (c *client) meet(res *resourcepb.Resource) {
	const remembered = 4
	if res == nil {
		return
	}
	if c.met = append(c.met, res.GetId()); len(c.met) > remembered {
		c.met = c.met[1:]
	}
}

// owner returns an owner for a write, or to ask about: one that is never stored, or a resource of the round.
func (c *client) owner() *resourcepb.ID {
	if n := c.random.IntN(2 * absentOwners); n < absentOwners || len(c.met) == 0 {
		n %= absentOwners
		return idOf(c.round.namespace, fmt.Sprintf("owner-%d", n), fmt.Sprintf("uid-of-owner-%d", n))
	}
	return c.met[c.random.IntN(len(c.met))]
}

// references asks which resources name an owner.
func references(c *client, patience time.Duration) {
	owner := c.owner()
	ctx, cancel := c.limited(patience)
	defer cancel()
	k := c.begin("owner references", patience)
	k.owner = ownerOf(owner)
	ids, err := c.b.OwnerReferences(ctx, owner)
	if err == nil {
		k.owned = make(map[string]string, len(ids))
		for i, id := range ids {
			k.owned[id.GetName()] = id.GetUid()
			if wrong := misplaced(c, ids[:i], id); wrong != "" {
				c.round.odd(Violation{"owner references are true", fmt.Sprintf("%s: %s on handle %d, of %s", wrong, c.name, c.handle, k.owner)})
			}
		}
	}
	c.told(k, err)
}

// misplaced says what is wrong with one of the ids that owner references are answered with, or "".
func misplaced(c *client, before []*resourcepb.ID, id *resourcepb.ID) string {
	typ, tenancy := id.GetType(), id.GetTenancy()
	switch {
	case typ.GetGroup() != thing.Group || typ.GetKind() != thing.Kind || typ.GetGroupVersion() != "v1" ||
		tenancy.GetPartition() != partition || tenancy.GetNamespace() != c.round.namespace:
		return fmt.Sprintf("nobody wrote %v", id)
	case len(before) > 0 && before[len(before)-1].GetName() >= id.GetName():
		return fmt.Sprintf("%s comes after %s", id.GetName(), before[len(before)-1].GetName())
	}
	return ""
}

// children is what owner references were answered with, in words.
func (c *call) children() string {
	if len(c.owned) == 0 {
		return "none"
	}
	var names []string
	for _, key := range slices.Sorted(maps.Keys(c.owned)) {
		names = append(names, short(key))
	}
	return strings.Join(names, ", ")
}
