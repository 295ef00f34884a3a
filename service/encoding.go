package service

import (
	"sync"

	"google.golang.org/protobuf/proto"

	"github.com/ashlar-dev/storage/resourcepb"
	"github.com/ashlar-dev/storage/service/registry"
)

// eventCache caches the newest events in encoded form, so that an event for many streams is encoded once.
type eventCache struct {
	mu    sync.Mutex
	byKey map[eventKey]*resourcepb.WatchEvent
	order []eventKey // of the newest events, as a ring
	next  int
	bytes int
}

// The limits of an eventCache. Streams that are further behind encode each event themselves.
const (
	maxCachedEvents = 1024
	maxCachedBytes  = 16 << 20
)

// eventKey identifies a change of a resource: a version occurs once under a key.
type eventKey struct {
	group, kind, partition, namespace, name string
	target                                  *registry.Type // the type to which the stream converts resources, nil for none
	version, cursor                         string
	isDelete, isMore, hasBefore             bool
}

func newEventCache() *eventCache {
	return &eventCache{byKey: map[eventKey]*resourcepb.WatchEvent{}, order: make([]eventKey, maxCachedEvents)}
}

// encode returns an event of a stream of type t that encodes as ev does, but faster. The result is shared and must not be modified. Its bytes are in its unknown fields,
// which every codec writes unchanged.
func (e *eventCache) encode(ev *resourcepb.WatchEvent, t *registry.Type) (*resourcepb.WatchEvent, error) {
	res, deleted := ev.GetUpsert().GetResource(), false
	if ev.GetDelete() != nil {
		res, deleted = ev.GetDelete().GetResource(), true
	}
	if res.GetVersion() == "" {
		return ev, nil // not a change, or made for one stream
	}
	id := res.GetId()
	key := eventKey{
		group: id.GetType().GetGroup(), kind: id.GetType().GetKind(), partition: id.GetTenancy().GetPartition(), namespace: id.GetTenancy().GetNamespace(),
		name: id.GetName(), version: res.GetVersion(), cursor: ev.GetCursor(), isDelete: deleted, isMore: ev.GetMore(), hasBefore: ev.GetBefore() != nil,
	}
	if t.Converts(id.GetType()) {
		key.target = t
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	if cached := e.byKey[key]; cached != nil {
		return cached, nil
	}
	raw, err := proto.Marshal(ev)
	if err != nil {
		return nil, err
	}
	out := &resourcepb.WatchEvent{}
	out.ProtoReflect().SetUnknown(raw)
	e.drop(e.next)
	for e.bytes+len(raw) > maxCachedBytes && len(e.byKey) > 0 {
		e.drop((e.next + maxCachedEvents - len(e.byKey)) % maxCachedEvents) // the oldest: the entries precede next without a gap
	}
	e.byKey[key], e.order[e.next] = out, key
	e.next = (e.next + 1) % maxCachedEvents
	e.bytes += len(raw)
	return out, nil
}

// drop removes the event in a slot of the ring.
func (e *eventCache) drop(slot int) {
	key := e.order[slot]
	if old := e.byKey[key]; old != nil {
		e.bytes -= len(old.ProtoReflect().GetUnknown())
		delete(e.byKey, key)
	}
	e.order[slot] = eventKey{}
}
