package service

import (
	"cmp"
	"context"
	"slices"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	"github.com/ashlar-dev/storage"
	"github.com/ashlar-dev/storage/resourcepb"
	"github.com/ashlar-dev/storage/service/registry"
)

// WatchStore sends the changes that the entries of a request select, each with its action, the state before it and whether its commit
// continues. The stream has no end. Visibility is the same as in WatchList of the same types, and the stream ends with the same errors.
//
// An event has the group version of the first entry that selects it.
//
// It fails with Unimplemented if the store keeps no history, which provides the state before. Without a cursor it reads the store once, even
// if the request wants no snapshot.
func (s *Server) WatchStore(req *resourcepb.WatchStoreRequest, out grpc.ServerStreamingServer[resourcepb.StoreEvent]) error {
	w, err := s.watchStore(out.Context(), req)
	if err != nil {
		return err
	}
	defer w.close()
	// A stream from a cursor may have no event for a long time: the header confirms that it is open.
	if err := out.SendHeader(nil); err != nil {
		return err
	}
	return send(out, w.next)
}

// storeWatch is one WatchStore call: the selected events of a stream. It must not be used concurrently.
type storeWatch struct {
	*stream
	request       *resourcepb.WatchStoreRequest
	types         []*registry.Type         // of the entries
	pendingCommit []*resourcepb.StoreEvent // selected events of a commit that may continue
	ready         []*resourcepb.StoreEvent
}

// maxEntries is the maximum number of entries of a request: each is evaluated for each change.
const maxEntries = 64

// maxActions is the number of actions, and the maximum number in an entry.
const maxActions = 3

// watchStore opens a WatchStore call.
func (s *Server) watchStore(ctx context.Context, req *resourcepb.WatchStoreRequest) (*storeWatch, error) {
	switch {
	case len(req.GetEntries()) == 0:
		return nil, invalid("entries are required: each names a type to watch")
	case len(req.GetEntries()) > maxEntries:
		return nil, invalid("entries invalid: the maximum is %d", maxEntries)
	case req.GetSnapshot() && req.GetCursor() != "":
		return nil, invalid("snapshot invalid: a watch from a cursor has none")
	}
	types := make([]*registry.Type, len(req.GetEntries()))
	for i, e := range req.GetEntries() {
		var err error
		if types[i], err = s.checkEntry(ctx, e, cmp.Or(req.GetTenancy(), wildcardTenancy())); err != nil {
			if status.Code(err) == codes.InvalidArgument {
				return nil, invalid("entries[%d]: %s", i, status.Convert(err).Message())
			}
			return nil, err
		}
	}
	st, err := s.open(ctx, &resourcepb.WatchListRequest{
		Type: coveringType(req.GetEntries()), Tenancy: req.GetTenancy(), Cursor: req.GetCursor(), BookmarkInterval: req.GetBookmarkInterval(),
		Before: true, Cursors: true,
	})
	if err != nil {
		return nil, err
	}
	return &storeWatch{stream: st, request: req, types: types}, nil
}

// checkEntry checks an entry of a request and that the caller may list its type, and returns the type.
func (s *Server) checkEntry(ctx context.Context, e *resourcepb.WatchEntry, tenancy *resourcepb.Tenancy) (*registry.Type, error) {
	if n := len(e.GetActions()); n > maxActions {
		return nil, invalid("actions invalid: there are %d, expected each once at most", n)
	}
	for _, a := range e.GetActions() {
		if a < resourcepb.Action_ACTION_CREATE || a > resourcepb.Action_ACTION_DELETE {
			return nil, invalid("actions invalid: expected ACTION_CREATE, ACTION_UPDATE or ACTION_DELETE, got %v", a)
		}
	}
	if e.GetSelector() != nil {
		remaining := maxSelectors
		if err := checkSelector(e.GetSelector(), maxSelectorDepth, &remaining); err != nil {
			return nil, err
		}
	}
	v, err := s.openView(ctx, e.GetType(), tenancy, "")
	if err != nil {
		return nil, err
	}
	return v.t, nil
}

// coveringType returns a type name that selects the types of all entries, and perhaps more.
func coveringType(entries []*resourcepb.WatchEntry) *resourcepb.Type {
	all := proto.CloneOf(entries[0].GetType())
	for _, e := range entries[1:] {
		t := e.GetType()
		if t.GetGroup() != all.GetGroup() {
			return &resourcepb.Type{Group: storage.Wildcard, GroupVersion: storage.Wildcard, Kind: storage.Wildcard}
		}
		if t.GetKind() != all.GetKind() {
			all.Kind, all.GroupVersion = storage.Wildcard, storage.Wildcard
		}
		if t.GetGroupVersion() != all.GetGroupVersion() {
			all.GroupVersion = storage.Wildcard
		}
	}
	return all
}

// next returns the next event. It blocks until there is one.
func (w *storeWatch) next() (*resourcepb.StoreEvent, error) {
	for len(w.ready) == 0 {
		ev, err := w.stream.next()
		if err != nil {
			return nil, err
		}
		if err := w.add(ev); err != nil {
			return nil, w.toStatus(err)
		}
	}
	first := w.ready[0]
	w.ready = w.ready[1:]
	return first, nil
}

// add appends the store events of a stream event to ready. Selected events are held back until the end of their commit, because only the
// last one has a cursor and no More.
func (w *storeWatch) add(ev *resourcepb.WatchEvent) error {
	switch {
	case ev.GetEndOfSnapshot() != nil:
		w.ready = append(w.ready, &resourcepb.StoreEvent{Action: resourcepb.Action_ACTION_START, Cursor: w.watch.Cursor()})
		return nil
	case ev.GetBookmark() != nil:
		w.ready = append(w.ready, &resourcepb.StoreEvent{Action: resourcepb.Action_ACTION_PROGRESS, Cursor: w.watch.Cursor()})
		return nil
	}
	e := storeEvent(ev, w.live)
	if t := w.selectingType(e); t != nil {
		var err error
		if e.Now, err = t.FromStored(e.GetNow()); err != nil {
			return err
		}
		e.Before = w.viewOrID(w.ctx, t, e.GetBefore())
		w.pendingCommit = append(w.pendingCommit, e)
	}
	if ev.GetMore() || len(w.pendingCommit) == 0 {
		return nil
	}
	last := len(w.pendingCommit) - 1
	for _, e := range w.pendingCommit[:last] {
		e.More = true
	}
	w.pendingCommit[last].Cursor = ev.GetCursor()
	w.ready, w.pendingCommit = append(w.ready, w.pendingCommit...), nil
	return nil
}

// storeEvent converts a change of a stream. live reports whether the snapshot has ended.
func storeEvent(ev *resourcepb.WatchEvent, live bool) *resourcepb.StoreEvent {
	deleted, now := ev.GetDelete().GetResource(), ev.GetUpsert().GetResource()
	switch {
	case deleted != nil && idOnly(deleted) && ev.GetBefore() != nil:
		return &resourcepb.StoreEvent{Action: resourcepb.Action_ACTION_DELETE, Before: ev.GetBefore()}
	case deleted != nil:
		return &resourcepb.StoreEvent{Action: resourcepb.Action_ACTION_DELETE, Before: deleted}
	case !live:
		return &resourcepb.StoreEvent{Action: resourcepb.Action_ACTION_EXISTS, Now: now}
	case ev.GetBefore() == nil:
		return &resourcepb.StoreEvent{Action: resourcepb.Action_ACTION_CREATE, Now: now}
	}
	return &resourcepb.StoreEvent{Action: resourcepb.Action_ACTION_UPDATE, Now: now, Before: ev.GetBefore()}
}

// selectingType returns the type of the first entry of the request that selects an event, nil if there is none.
func (w *storeWatch) selectingType(ev *resourcepb.StoreEvent) *registry.Type {
	if ev.GetAction() == resourcepb.Action_ACTION_EXISTS && !w.request.GetSnapshot() {
		return nil
	}
	for i, e := range w.request.GetEntries() {
		if actionSelected(e.GetActions(), ev.GetAction()) && (entrySelects(e, w.types[i], ev.GetNow()) || entrySelects(e, w.types[i], ev.GetBefore())) {
			return w.types[i]
		}
	}
	return nil
}

// actionSelected reports whether the actions of an entry select an action.
func actionSelected(actions []resourcepb.Action, a resourcepb.Action) bool {
	return len(actions) == 0 || a == resourcepb.Action_ACTION_EXISTS || slices.Contains(actions, a)
}

// entrySelects reports whether an entry of type t selects a resource, whatever the action.
func entrySelects(e *resourcepb.WatchEntry, t *registry.Type, res *resourcepb.Resource) bool {
	if res == nil {
		return false
	}
	// A resource that left the view has only an id, without its group version: each entry that may have selected the earlier state
	// selects the event.
	left, name, typ := idOnly(res), e.GetType(), res.GetId().GetType()
	if anyType(name) && !matchesType(name, typ) ||
		!anyType(name) && (storage.UnversionedTypeFrom(name) != storage.UnversionedTypeFrom(typ) || !left && !matchesType(name, typ) && !t.Converts(typ)) {
		return false
	}
	return e.GetSelector() == nil || left || mayMatch(e.GetSelector(), res)
}
