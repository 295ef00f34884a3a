package service

import (
	"context"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	"github.com/ashlar-dev/storage"
	"github.com/ashlar-dev/storage/resourcepb"
)

// WatchStore sends the changes that the entries of a request select, each with what it did, the state before it and whether its commit
// goes on, for ever: to each caller as much as WatchList of the same types would show it. It ends as WatchList does.
//
// A store that keeps no history cannot tell the state before, and the answer is Unimplemented. Without a cursor the store is read once, also
// where no snapshot is wanted.
func (s *Server) WatchStore(req *resourcepb.WatchStoreRequest, out grpc.ServerStreamingServer[resourcepb.StoreEvent]) error {
	w, err := s.watchStore(out.Context(), req)
	if err != nil {
		return err
	}
	defer w.close()
	// A stream that goes on from a cursor may be silent for long: the header says that it stands.
	if err := out.SendHeader(nil); err != nil {
		return err
	}
	for {
		ev, err := w.next()
		if err != nil {
			return err
		}
		if err := out.Send(ev); err != nil {
			return err
		}
	}
}

// storeWatch is one call of WatchStore: the events of a stream, selected. It is for one goroutine.
type storeWatch struct {
	*stream
	request       *resourcepb.WatchStoreRequest
	pendingCommit []*resourcepb.StoreEvent // selected, of a pendingCommit that may go on
	ready         []*resourcepb.StoreEvent
}

// maxEntries is how many entries a request may have: each is looked at for each change.
const maxEntries = 64

// maxActions is how many actions an entry may name, and how many there are.
const maxActions = 3

// watchStore begins a call of WatchStore.
func (s *Server) watchStore(ctx context.Context, req *resourcepb.WatchStoreRequest) (*storeWatch, error) {
	switch {
	case len(req.GetEntries()) == 0:
		return nil, invalid("entries are required: each names a type to watch")
	case len(req.GetEntries()) > maxEntries:
		return nil, invalid("entries invalid: %d are the most", maxEntries)
	case req.GetSnapshot() && req.GetCursor() != "":
		return nil, invalid("snapshot invalid: a watch from a cursor has none")
	}
	for i, e := range req.GetEntries() {
		if err := s.checkEntry(ctx, e, req.GetTenancy()); err != nil {
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
	return &storeWatch{stream: st, request: req}, nil
}

// checkEntry checks an entry of a request, and that the caller may list its type.
func (s *Server) checkEntry(ctx context.Context, e *resourcepb.WatchEntry, asked *resourcepb.Tenancy) error {
	if e.GetType() == nil {
		return invalid("type is required")
	}
	if asked == nil {
		asked = &resourcepb.Tenancy{Partition: storage.Wildcard, Namespace: storage.Wildcard}
	}
	t, tenancy, err := s.resolveList(e.GetType(), asked, "")
	if err != nil {
		return err
	}
	if n := len(e.GetActions()); n > maxActions {
		return invalid("actions invalid: there are %d, expected each once at most", n)
	}
	for _, a := range e.GetActions() {
		if a < resourcepb.Action_ACTION_CREATE || a > resourcepb.Action_ACTION_DELETE {
			return invalid("actions invalid: expected ACTION_CREATE, ACTION_UPDATE or ACTION_DELETE, got %v", a)
		}
	}
	if e.GetSelector() != nil {
		left := maxSelectors
		if err := checkSelector(e.GetSelector(), maxSelectorDepth, &left); err != nil {
			return err
		}
	}
	caller, err := s.caller(ctx, tenancy)
	if err != nil {
		return err
	}
	return s.authStatus(ctx, t.MayList(caller, e.GetType(), tenancy))
}

// coveringType returns the name that stands for the types of all entries, and perhaps more.
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

// next returns the next event, and waits for it if need be.
func (w *storeWatch) next() (*resourcepb.StoreEvent, error) {
	for len(w.ready) == 0 {
		ev, err := w.stream.next()
		if err != nil {
			return nil, err
		}
		if err := w.convert(ev); err != nil {
			return nil, w.toStatus(err)
		}
	}
	first := w.ready[0]
	w.ready = w.ready[1:]
	return first, nil
}

// convert makes of an event of the stream what is to be sent. Events wait for the end of their commit, since the last one says that it is.
func (w *storeWatch) convert(ev *resourcepb.WatchEvent) error {
	switch {
	case ev.GetEndOfSnapshot() != nil:
		w.ready = append(w.ready, &resourcepb.StoreEvent{Action: resourcepb.Action_ACTION_START, Cursor: w.watch.Cursor()})
		return nil
	case ev.GetBookmark() != nil:
		w.ready = append(w.ready, &resourcepb.StoreEvent{Action: resourcepb.Action_ACTION_PROGRESS, Cursor: w.watch.Cursor()})
		return nil
	}
	e := storeEvent(ev, w.live)
	if w.selects(e) {
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

// storeEvent returns what an event of a stream says, before or after the end of its snapshot.
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

// idOnly reports whether of a resource no more than the id can be told, because it left the caller's view.
func idOnly(res *resourcepb.Resource) bool { return res.GetVersion() == "" }

// selects reports whether an entry selects an event.
func (w *storeWatch) selects(ev *resourcepb.StoreEvent) bool {
	if ev.GetAction() == resourcepb.Action_ACTION_EXISTS && !w.request.GetSnapshot() {
		return false
	}
	for _, e := range w.request.GetEntries() {
		if actionSelected(e.GetActions(), ev.GetAction()) && (entrySelects(e, ev.GetNow()) || entrySelects(e, ev.GetBefore())) {
			return true
		}
	}
	return false
}

// actionSelected reports whether an action is one of those that were asked for.
func actionSelected(actions []resourcepb.Action, a resourcepb.Action) bool {
	if len(actions) == 0 || a == resourcepb.Action_ACTION_EXISTS {
		return true
	}
	for _, one := range actions {
		if one == a {
			return true
		}
	}
	return false
}

// entrySelects reports whether a resource is what an entry is about.
func entrySelects(e *resourcepb.WatchEntry, res *resourcepb.Resource) bool {
	if res == nil {
		return false
	}
	// Of what left the view without a trace nobody can tell the group version and the contents: each entry that may have selected it does.
	left, name, typ := idOnly(res), e.GetType(), res.GetId().GetType()
	if anyType(name) && !matchesType(name, typ) ||
		!anyType(name) && (storage.UnversionedTypeFrom(name) != storage.UnversionedTypeFrom(typ) || !left && !matchesType(name, typ)) {
		return false
	}
	return e.GetSelector() == nil || left || mayMatch(e.GetSelector(), res)
}
