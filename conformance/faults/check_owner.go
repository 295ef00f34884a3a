package faults

import (
	"fmt"
	"time"

	"github.com/ashlar-dev/storage/resourcepb"
)

// checkOwners checks owner references against earlier answers and events of the same handle. The answer contains a child whose
// reference the handle has seen, and does not contain a child whose reference it has seen removed, unless the child changed since.
// After a watch of the handle has returned the deletion of the owner, the answer includes everything acknowledged before that
// deletion began.
func checkOwners(e *evidence) (found []Violation) {
	floors, acknowledged, deleted := e.floors(), e.acknowledgedPositions(), deletions(e)
	for _, k := range e.calls {
		if k.owner == "" || k.outcome != outcomeDone || k.process < 0 {
			continue
		}
		var buried *deletion
		if d := deleted[deletedOwner{k.handle, k.process, k.owner}]; d != nil && d.seen <= k.begin {
			buried = d
		}
		for _, key := range e.round.keys {
			floor := floors[handleKey{k.handle, k.process, key}].before(k.begin)
			if buried != nil {
				if required := acknowledged[key].before(buried.began); required.position > floor.position {
					floor = required
				}
			}
			if !owns(e, k, key, floor.position) {
				verb := "is not among"
				if _, listed := k.references[key]; listed {
					verb = "is among"
				}
				found = append(found, Violation{"owner references are true", fmt.Sprintf("%s %s the children of %s, which contradicts each of its states since %s: %s",
					shortKey(key), verb, k.owner, floor.describe(e.keyHistories[key]), k)})
			}
		}
		for key := range k.references {
			if e.keyHistories[key] == nil {
				found = append(found, Violation{"owner references are true", fmt.Sprintf("no call wrote %s: %s", key, k)})
			}
		}
	}
	return found
}

// owns reports whether the answer for a key was true at some position: at or after from, and not after a change that began
// after the answer.
func owns(e *evidence, k *call, key string, from int) bool {
	c := e.keyHistories[key]
	uid, listed := k.references[key]
	for at := from; at <= len(c.steps); at++ {
		names := false
		if at > 0 {
			step := c.steps[at-1]
			if at > from && beganBy(e, c, step) > k.returnTime {
				return false
			}
			names = !step.isDelete && step.owner == k.owner && (!listed || step.now.uid == uid)
		}
		if names == listed {
			return true
		}
	}
	return false
}

// beganBy returns the earliest possible time of a change.
func beganBy(e *evidence, c *keyHistory, step event) time.Duration {
	if !step.isDelete {
		if k := e.writes[step.name]; k != nil {
			return k.begin
		}
		return 0
	}
	first := forever
	for _, k := range c.removers[step.now] {
		first = min(first, k.begin)
	}
	return first
}

// deletedOwner is a deleted resource, as observed through one process of a handle.
type deletedOwner struct {
	handle, process int
	owner           string
}

// deletion holds the time at which the deletion of a resource began, and the time at which a watch of the handle returned it.
type deletion struct{ began, seen time.Duration }

// deletions returns the deletions that watches have returned. If a uid was deleted more than once, the entry spans all of them.
func deletions(e *evidence) map[deletedOwner]*deletion {
	all := map[deletedOwner]*deletion{}
	for _, s := range e.observations {
		for _, ev := range s.events {
			if !ev.isDelete {
				continue
			}
			began := beganBy(e, e.keyHistories[ev.key], ev)
			at := deletedOwner{ev.handle, ev.process, ev.key + " with uid " + ev.now.uid}
			if d := all[at]; d == nil {
				all[at] = &deletion{began, ev.at}
			} else {
				d.began, d.seen = min(d.began, began), max(d.seen, ev.at)
			}
		}
	}
	return all
}

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
