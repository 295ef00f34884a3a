package dynamodb

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/ashlar-dev/storage"
	"github.com/ashlar-dev/storage/driver"
	"github.com/ashlar-dev/storage/driver/key"
	"github.com/ashlar-dev/storage/internal/batch"
	"github.com/ashlar-dev/storage/resourcepb"
)

// reader reads resources by their keys.
type reader struct {
	table    *table
	marks    *watermarks
	lease    *writeLease
	batchers map[storage.ReadConsistency]*batch.Batcher[item, item]
}

func newReader(t *table) *reader {
	return &reader{table: t, marks: newWatermarks(t.clock.Now), batchers: map[storage.ReadConsistency]*batch.Batcher[item, item]{
		storage.EventualConsistency: newBatcher(t, false),
		storage.StrongConsistency:   newBatcher(t, true),
	}}
}

// newBatcher returns a batcher of reads. A single read is a GetItem; reads that arrive while others are in flight are sent together
// as a BatchGetItem, which consumes the same capacity.
func newBatcher(t *table, strong bool) *batch.Batcher[item, item] {
	return batch.New(batch.Options[item]{MaxCalls: 100, Workers: 2, WorkerAt: 32, Sizes: t.readSizes}, func(ctx context.Context, calls []*batch.Call[item, item]) {
		if len(calls) == 1 {
			calls[0].Done(t.get(ctx, strong, calls[0].Request))
			return
		}
		waiting := make(map[string][]*batch.Call[item, item], len(calls))
		wanted := make([]item, 0, len(calls))
		for _, c := range calls {
			at := c.Request.address()
			if waiting[at] == nil {
				wanted = append(wanted, c.Request)
			}
			waiting[at] = append(waiting[at], c)
		}
		err := t.getAll(ctx, strong, wanted, func(it item) {
			for _, c := range waiting[it.address()] {
				c.Done(it, nil)
			}
		})
		for _, c := range calls {
			c.Done(nil, err) // items that were not found, or not reached
		}
	})
}

func (r *reader) close() {
	for _, b := range r.batchers {
		b.Close()
	}
}

// Get implements driver.Driver.
func (r *reader) Get(ctx context.Context, consistency storage.ReadConsistency, k driver.Key) (*resourcepb.Resource, error) {
	_, res, err := r.get(ctx, consistency, k)
	if err == nil && consistency == storage.StrongConsistency {
		err = r.lease.checkMoved(ctx)
	}
	if err != nil {
		return nil, err
	}
	return res, nil
}

// get returns the state of a key: no head if no write of the key is known, and no resource if none is stored.
func (r *reader) get(ctx context.Context, consistency storage.ReadConsistency, k key.Key) (*headItem, *resourcepb.Resource, error) {
	if consistency == storage.EventualConsistency && r.marks.distrust() {
		consistency = storage.StrongConsistency
	}
	for {
		h, err := r.head(ctx, consistency, k)
		if err != nil {
			return nil, nil, err
		}
		if consistency == storage.EventualConsistency && r.marks.stale(k, h) {
			consistency = storage.StrongConsistency
			continue
		}
		r.marks.note(k, h)
		if h == nil || !h.live {
			return h, nil, nil
		}
		packed, err := r.gather(ctx, h)
		if errors.Is(err, errPartsGone) && consistency == storage.EventualConsistency {
			consistency = storage.StrongConsistency
			continue // overwritten a day ago, and read from a replica that is as old
		}
		if err != nil {
			return nil, nil, err
		}
		res, err := h.decode(packed)
		return h, res, err
	}
}

// head reads the head of a key. It returns nil if there is none.
func (r *reader) head(ctx context.Context, consistency storage.ReadConsistency, k key.Key) (*headItem, error) {
	it, err := r.batchers[consistency].Do(ctx, r.table.resource(k))
	if it == nil || err != nil {
		return nil, err
	}
	return r.table.head(it)
}

// resourceOf decodes a head that was read earlier. It returns nil if the resource has been deleted meanwhile.
func (r *reader) resourceOf(ctx context.Context, h *headItem) (*resourcepb.Resource, error) {
	if h.damage != nil {
		return nil, h.damage
	}
	packed, err := r.gather(ctx, h)
	if errors.Is(err, errPartsGone) {
		_, res, err := r.get(ctx, storage.StrongConsistency, h.key)
		return res, err
	}
	if err != nil {
		return nil, err
	}
	return h.decode(packed)
}

// errPartsGone means that the parts of an old head have expired. The stored head has its parts, unless it is damaged.
var errPartsGone = errors.New("parts of the stored data do not exist")

// gather returns the packed data of a head, including its parts.
//
// Parts are written once, in the transaction that writes the head, under the token of that write; they are never changed. When the
// resource is overwritten or deleted they are retired: kept for longer than a stream's retention, then removed by DynamoDB. A
// reader with a head, from a read or from the stream, therefore finds exactly the parts that belong to it, and never a mixture of
// two versions.
func (r *reader) gather(ctx context.Context, h *headItem) ([]byte, error) {
	parts, err := r.parts(ctx, h)
	if err != nil {
		return nil, err
	}
	return h.join(parts)
}

// parts reads the parts of a head, nil for each that does not exist.
func (r *reader) parts(ctx context.Context, h *headItem) ([]item, error) {
	if h.ring.parts == 0 {
		return nil, nil
	}
	wanted, parts := make([]item, h.ring.parts), make([]item, h.ring.parts)
	for i := range wanted {
		wanted[i] = r.table.part(h.ring.token, i)
	}
	err := r.table.getAll(ctx, true, wanted, func(it item) {
		if n := it.bytes(attrSK); len(n) == 1 && int(n[0]) < len(parts) {
			parts[n[0]] = it
		}
	})
	return parts, err
}

// join returns the packed data of a head with these parts.
func (h *headItem) join(parts []item) ([]byte, error) {
	if len(parts) == 0 {
		return h.packedData, nil
	}
	var data [][]byte
	var missing []string
	for i, p := range parts {
		data = append(data, p.bytes(attrData))
		if p == nil {
			missing = append(missing, strconv.Itoa(i+1))
		}
	}
	packed := bytes.Join(append(data, h.packedData), nil)
	if missing != nil { // a repair by hand needs the others
		return nil, h.damageError(packed, fmt.Errorf("%w: %s of %d", errPartsGone, strings.Join(missing, ", "), len(parts)))
	}
	return packed, nil
}

// Children implements driver.Driver. Each reference is an item of its own, an edge. The transaction that writes its child also
// writes or removes it. Edges are read strongly: a global index would lag, and after the owner's delete event a caller could miss
// children.
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

// childOf returns the id in an edge of the owner. It returns nil if the child has left the owner meanwhile.
func (r *reader) childOf(ctx context.Context, edge item, owner *resourcepb.ID) (*resourcepb.ID, error) {
	child, long, err := decodeEdge(edge)
	if err != nil || !long {
		return child, err
	}
	_, res, err := r.get(ctx, storage.StrongConsistency, key.Of(child))
	if err != nil || ownerHash(res.GetOwner()) != ownerHash(owner) {
		return nil, err
	}
	return res.GetId(), nil
}
