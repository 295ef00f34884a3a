package conformance

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"

	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/ashlar-dev/storage"
	"github.com/ashlar-dev/storage/history"
	"github.com/ashlar-dev/storage/resourcepb"
)

// modelDraw draws the arguments of calls.
type modelDraw struct {
	*rand.Rand
	store  *modelStore
	ids    []*resourcepb.ID // one of each key
	owners []*resourcepb.ID // that resources have named
	uids   int
}

func pick[T any](d *modelDraw, from ...T) T { return from[d.IntN(len(from))] }

// chance returns true in n of 100 cases.
func (d *modelDraw) chance(n int) bool { return d.IntN(100) < n }

func (d *modelDraw) newUid() string {
	d.uids++
	return fmt.Sprintf("uid-%d-of-%d", d.uids, d.IntN(1000)) + strings.Repeat(" ", d.uids%3/2)
}

// chooseKeys chooses the keys of a history.
func (d *modelDraw) chooseKeys(n int) {
	d.ids = mixture()
	d.Shuffle(len(d.ids), func(i, j int) { d.ids[i], d.ids[j] = d.ids[j], d.ids[i] })
	d.ids = d.ids[:n]
}

// id draws a key, with a group version.
func (d *modelDraw) id() *resourcepb.ID {
	return withGroupVersion(pick(d, d.ids...), pick(d, "v1", "v1", "v1", "v2", ""))
}

// filter draws a filter, which usually selects some of the keys.
func (d *modelDraw) filter() filter {
	all := filters()
	if d.chance(70) {
		all = slices.DeleteFunc(all, func(f filter) bool { return !slices.ContainsFunc(d.ids, f.selects) })
	}
	return pick(d, all...)
}

// broadFilter draws a filter that selects several keys.
func (d *modelDraw) broadFilter() (f filter) {
	for selected := 0; selected < 3; {
		f, selected = d.filter(), 0
		for _, id := range d.ids {
			if f.selects(id) {
				selected++
			}
		}
	}
	return f
}

// match draws the uid and the version of a call: usually the stored ones, or none if nothing is stored.
func (d *modelDraw) match(id *resourcepb.ID) (uid, version string) {
	now := resourceOf(d.store.now[keyOf(id)])
	past := d.oldVersion(id)
	uid, version = now.GetId().GetUid(), now.GetVersion()
	if now == nil {
		uid = d.newUid()
	}
	switch n := d.IntN(20); {
	case n == 0:
		uid, version = d.newUid(), ""
	case n == 1:
		uid = d.newUid()
	case n == 2:
		uid, version = d.newUid(), "another-version"
	case n == 3:
		version = "another-version"
	case n == 4:
		version = ""
	case n == 5 && past != nil:
		uid = past.Id.Uid + strings.Repeat(" ", d.uids%2)
	case n >= 6 && n < 9 && past != nil:
		uid, version = past.Id.Uid, past.Version
	}
	return uid, version
}

// oldVersion draws an earlier resource of a key, nil if there was none.
func (d *modelDraw) oldVersion(id *resourcepb.ID) *resourcepb.Resource {
	var all []*resourcepb.Resource
	for _, c := range d.store.changes {
		if c.key == keyOf(id) && c.now != nil {
			all = append(all, c.now.Resource)
		}
	}
	if len(all) == 0 {
		return nil
	}
	return pick(d, all...)
}

// resource draws a resource to write.
func (d *modelDraw) resource(id *resourcepb.ID) *resourcepb.Resource {
	if now := resourceOf(d.store.now[keyOf(id)]); now != nil && d.chance(10) {
		return clone(now) // the same content is a write as well
	}
	res := &resourcepb.Resource{Id: clone(id), Generation: pick(d, "", "1", "generation")}
	if d.chance(70) {
		res.Data = payload(fmt.Sprint("payload ", d.IntN(1000)))
	}
	if d.chance(60) {
		res.Metadata = map[string]string{"": "empty key", "a/b": "", "äöü": fmt.Sprint("\n", d.IntN(9)), " spaces ": " around "}
	}
	if d.chance(20) {
		rich := newRichThing("")
		res.Status, res.Ttl = rich.Status, rich.Ttl
		res.Status["controller"] = &resourcepb.Status{ObservedGeneration: "1", UpdatedAt: &timestamppb.Timestamp{Seconds: 1 << 33, Nanos: 123456789}, Conditions: []*resourcepb.Condition{{
			Type: "Ready", State: resourcepb.Condition_STATE_TRUE, Reason: "Done", Message: "all is well", Resource: &resourcepb.Reference{
				Type: clone(thing), Tenancy: clone(home), Name: "other", Section: "spec",
			},
		}}}
	}
	if d.chance(50) {
		res.Owner = d.owner()
		d.owners = append(d.owners, res.Owner)
	}
	return res
}

// owner draws the id of an owner: a stored resource, an earlier owner, or one that differs from it in a part.
func (d *modelDraw) owner() *resourcepb.ID {
	owner := d.id()
	owner.Uid = d.newUid()
	if past := d.oldVersion(owner); past != nil {
		owner.Uid = past.Id.Uid
	}
	if now := resourceOf(d.store.now[keyOf(owner)]); now != nil {
		owner.Uid = now.Id.Uid
	}
	if len(d.owners) > 0 && d.chance(60) {
		owner = withGroupVersion(pick(d, d.owners...), pick(d, "v1", "v77"))
	}
	switch d.IntN(30) {
	case 0:
		owner.Uid += []string{"x", " "}[d.uids%2]
	case 1:
		owner.Uid = owner.Uid[:max(1, len(owner.Uid)-1)]
	case 2:
		owner.Name += "2"
	case 3:
		owner.Tenancy.Namespace = pick(d, "", "other")
	case 4:
		owner.Type.Kind = "Other"
	}
	return owner
}

func (d *modelDraw) write() storage.Op {
	id := d.id()
	uid, version := d.match(id)
	res := d.resource(withUid(id, uid))
	res.Id, res.Version = withUid(id, uid), version
	return storage.Op{Write: res}
}

func (d *modelDraw) delete() storage.Op {
	id := d.id()
	uid, version := d.match(id)
	if d.chance(8) {
		uid = ""
	}
	return storage.Op{Delete: withUid(id, uid), Version: version}
}

func (d *modelDraw) check() storage.Op {
	id := d.id()
	uid, version := d.match(id)
	if version == "" && d.chance(50) {
		uid = ""
	}
	return storage.Op{Check: withUid(id, uid), Version: version}
}

// operations draws a transaction with at most one operation for each key.
func (d *modelDraw) operations() (ops []storage.Op) {
	keys := make(map[string]bool)
	for range d.IntN(6) {
		op := pick(d, d.write, d.write, d.write, d.delete, d.check)()
		op.Present = op.Delete.GetUid() != "" && d.chance(50)
		if key := keyOf(operationID(op)); !keys[key] {
			keys[key] = true
			ops = append(ops, op)
		}
	}
	return ops
}

// keyRange draws a range of keys.
func (d *modelDraw) keyRange() (span history.Range) {
	if d.chance(60) {
		span.From = pick(d, d.ids...)
		if d.chance(40) {
			span.From = nextKey(span.From)
		}
	}
	if d.chance(60) {
		span.To = pick(d, d.ids...)
	}
	return span
}

// swap draws a swap, usually of one of two keys. Its uid is the stored one, or the expected revision is right.
func (d *modelDraw) swap(points []modelPoint) history.Swap {
	id := d.id()
	if d.chance(70) {
		id = withGroupVersion(d.ids[d.IntN(2)], "v1")
	}
	now := d.store.now[keyOf(id)]
	swap := history.Swap{Expect: pick(d, points...).revision * int64(d.IntN(2))}
	for _, c := range d.store.changes {
		if c.key == keyOf(id) && c.now != nil && d.chance(60) {
			swap.Expect = c.now.Modified
		}
	}
	right := d.chance(50)
	if right {
		swap.Expect = 0
	}
	uid := d.newUid()
	if now != nil {
		if right {
			swap.Expect = now.Modified
		}
		if !right || d.chance(85) {
			uid = now.Resource.Id.Uid
		}
	}
	if d.chance(35) {
		swap.Delete = withUid(id, pick(d, "", uid, "any-uid"))
		return swap
	}
	swap.Write = d.resource(withUid(id, uid))
	swap.Write.Id, swap.Write.Version = withUid(id, uid), pick(d, "", "does not matter")
	return swap
}
