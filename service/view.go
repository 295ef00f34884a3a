package service

import (
	"hash/maphash"

	"google.golang.org/grpc/codes"
	"google.golang.org/protobuf/proto"

	"github.com/ashlar-dev/storage/history"
	"github.com/ashlar-dev/storage/resourcepb"
)

// visibleEvent returns an event of the store as the caller may see it, nil if not at all. A resource that leaves the caller's view, because its
// group version is another one now or the caller may not read it any more, is deleted as far as this caller can tell.
func (st *stream) visibleEvent(ev *resourcepb.WatchEvent) (*resourcepb.WatchEvent, error) {
	switch e := ev.GetEvent().(type) {
	case *resourcepb.WatchEvent_EndOfSnapshot_:
		st.live = true
		return ev, nil
	case *resourcepb.WatchEvent_Bookmark_:
		return ev, nil
	case *resourcepb.WatchEvent_Upsert_:
		return st.upsert(ev, e.Upsert.GetResource())
	case *resourcepb.WatchEvent_Delete_:
		return st.deletion(ev, e.Delete.GetResource())
	}
	return nil, nil // a kind of event that this version of the service does not know
}

// upsert returns the event of a resource that was written.
func (st *stream) upsert(ev *resourcepb.WatchEvent, res *resourcepb.Resource) (*resourcepb.WatchEvent, error) {
	shown, err := st.isVisible(res)
	if err != nil {
		return nil, err
	}
	if shown {
		st.shownIDs.add(res.GetId())
		st.foreignIDs.remove(res.GetId())
		return ev, st.hideBefore(ev)
	}
	left, err := st.wasVisible(ev, res)
	if err != nil || !left {
		return nil, err
	}
	st.shownIDs.remove(res.GetId())
	return st.leaveEvent(ev, res.GetId())
}

// deletion returns the event of a resource that was deleted.
func (st *stream) deletion(ev *resourcepb.WatchEvent, res *resourcepb.Resource) (*resourcepb.WatchEvent, error) {
	shown, err := st.isVisible(res)
	if err != nil {
		return nil, err
	}
	sent := st.shownIDs.has(res.GetId())
	st.shownIDs.remove(res.GetId())
	st.foreignIDs.remove(res.GetId())
	switch {
	case shown:
		return ev, st.hideBefore(ev)
	case sent:
		return st.leaveEvent(ev, res.GetId())
	}
	return nil, nil
}

// isVisible reports whether the caller may see a resource in this stream as it is.
func (st *stream) isVisible(res *resourcepb.Resource) (bool, error) {
	if !matchesType(st.req.GetType(), res.GetId().GetType()) {
		return false, nil
	}
	return st.visibility.mayRead(st.ctx, st.t, res)
}

// wasVisible reports whether the caller may have seen, before an event, a resource that the event takes from its view.
func (st *stream) wasVisible(ev *resourcepb.WatchEvent, res *resourcepb.Resource) (bool, error) {
	switch {
	case st.shownIDs == nil:
		return st.leavesView(res)
	case st.shownIDs.has(res.GetId()):
		return true, nil
	case st.req.GetCursor() == "":
		return false, nil
	case ev.GetBefore() != nil:
		return st.isVisible(ev.GetBefore())
	}
	if _, ok := st.watch.(history.Recaller); ok {
		return false, nil // there was nothing before
	}
	return false, reasonError(codes.OutOfRange, "COMPACTED",
		"a resource may have left the view of this stream, and the store keeps no history to tell: watch without a cursor")
}

// leavesView reports whether a resource leavesView a view in which only group versions that this server does not serve are not shown: whether the
// stream may have sent it, and has not told its end yet. What the caller may not read was never sent: authorization does not depend on the
// resource here, but on its tenancy.
func (st *stream) leavesView(res *resourcepb.Resource) (bool, error) {
	may, err := st.visibility.mayRead(st.ctx, st.t, res)
	if err != nil || !may || st.foreignIDs.has(res.GetId()) {
		return false, err
	}
	if st.foreignIDs == nil {
		st.foreignIDs = newIDSet()
	}
	st.foreignIDs.add(res.GetId())
	return st.live, nil // in a snapshot it is there for the first time
}

// leaveEvent is the event of a resource that left the caller's view. It holds no more than the caller knew: in which group version the resource is
// stored now it does not say.
func (st *stream) leaveEvent(ev *resourcepb.WatchEvent, id *resourcepb.ID) (*resourcepb.WatchEvent, error) {
	id = proto.CloneOf(id)
	id.Type.GroupVersion = st.req.GetType().GetGroupVersion()
	end := &resourcepb.WatchEvent{Before: ev.GetBefore(), Event: &resourcepb.WatchEvent_Delete_{Delete: &resourcepb.WatchEvent_Delete{
		Resource: &resourcepb.Resource{Id: id},
	}}}
	return end, st.hideBefore(end)
}

// hideBefore takes the state before a change from its event if the caller did not ask for it, or may not see it.
func (st *stream) hideBefore(ev *resourcepb.WatchEvent) error {
	if ev.GetBefore() == nil {
		return nil
	}
	shown, err := st.isVisible(ev.GetBefore())
	if err != nil {
		return err
	}
	if !shown || !st.req.GetBefore() {
		ev.Before = nil
	}
	return nil
}

// idSet is the set of the resources that a stream has sent, and that were not deleted since. It holds 128 bits of each key, hashed
// with seeds of its own, so that nobody can choose two keys that meet. A nil set is empty and takes nothing.
type idSet struct {
	seeds [2]maphash.Seed
	keys  map[[2]uint64]struct{}
}

func newIDSet() *idSet {
	return &idSet{seeds: [2]maphash.Seed{maphash.MakeSeed(), maphash.MakeSeed()}, keys: map[[2]uint64]struct{}{}}
}

func (s *idSet) hash(id *resourcepb.ID) [2]uint64 {
	key := make([]byte, 0, 256)
	// No part of a key holds a NUL.
	for _, part := range []string{id.GetType().GetGroup(), id.GetType().GetKind(), id.GetTenancy().GetPartition(), id.GetTenancy().GetNamespace(), id.GetName()} {
		key = append(append(key, part...), 0)
	}
	return [2]uint64{maphash.Bytes(s.seeds[0], key), maphash.Bytes(s.seeds[1], key)}
}

func (s *idSet) add(id *resourcepb.ID) {
	if s != nil {
		s.keys[s.hash(id)] = struct{}{}
	}
}

func (s *idSet) remove(id *resourcepb.ID) {
	if s != nil {
		delete(s.keys, s.hash(id))
	}
}

func (s *idSet) has(id *resourcepb.ID) bool {
	if s == nil {
		return false
	}
	_, ok := s.keys[s.hash(id)]
	return ok
}
