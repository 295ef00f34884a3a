package service

import (
	"cmp"
	"context"
	"errors"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	"github.com/ashlar-dev/storage"
	"github.com/ashlar-dev/storage/history"
	"github.com/ashlar-dev/storage/resourcepb"
)

// stream is one WatchList call: the events of a watch of the store that are visible to the caller. It must not be used concurrently.
type stream struct {
	*view
	req   *resourcepb.WatchListRequest
	watch storage.Watch

	ctx  context.Context // of the call; canceled when the server drains, too
	free func()          // cancels ctx

	// visibleIDs are the resources that the caller was sent and that still exist. It is nil if a resource can leave the view only by a change to an
	// unregistered group version; then foreignIDs are the resources stored in such a version.
	visibleIDs *idSet
	foreignIDs *idSet

	// waitCtx is ctx with the deadline of the next authentication or bookmark.
	waitCtx      context.Context
	cancelWait   func()
	nextBookmark time.Time // when to request the next bookmark; zero for never

	live         bool // the snapshot has ended
	pendingEvent *resourcepb.WatchEvent
	ready        *resourcepb.WatchEvent
}

// wildcardTenancy is the tenancy of a watch without one.
func wildcardTenancy() *resourcepb.Tenancy {
	return &resourcepb.Tenancy{Partition: storage.Wildcard, Namespace: storage.Wildcard}
}

// open opens a stream.
func (s *Server) open(ctx context.Context, req *resourcepb.WatchListRequest) (*stream, error) {
	ctx, free := s.streamContext(ctx)
	st := &stream{req: req, ctx: ctx, free: free, live: req.GetCursor() != "", cancelWait: func() {}}
	opened := false
	defer func() {
		if !opened { // because of an error or a panic of a hook
			free()
		}
	}()
	var err error
	if st.view, err = s.openView(ctx, req.GetType(), cmp.Or(req.GetTenancy(), wildcardTenancy()), req.GetNamePrefix()); err != nil {
		return nil, s.toStatus(ctx, "watch", err)
	}
	if interval := req.GetBookmarkInterval(); interval != nil {
		if interval.CheckValid() != nil || interval.AsDuration() < time.Second {
			return nil, invalid("bookmark_interval invalid: expected a second or more")
		}
		st.nextBookmark = time.Now() // the first bookmark proves the snapshot
	}
	if anyType(req.GetType()) || s.types.Load().PartlyVisible(req.GetType()) {
		st.visibleIDs = newIDSet()
	}
	if st.watch, err = s.watch(ctx, req, st.tenancy); err != nil {
		return nil, st.toStatus(err)
	}
	if err := st.configureWatch(); err != nil {
		st.watch.Close()
		return nil, err
	}
	opened = true
	return st, nil
}

// streamContext returns a context for a stream. When the server drains, the context is canceled with the cause errDraining. free releases it.
func (s *Server) streamContext(ctx context.Context) (_ context.Context, free func()) {
	ctx, cancel := context.WithCancelCause(ctx)
	stop := context.AfterFunc(s.draining, func() { cancel(errDraining) })
	return ctx, func() { stop(); cancel(nil) }
}

// watch opens the watch of the store.
func (s *Server) watch(ctx context.Context, req *resourcepb.WatchListRequest, tenancy *resourcepb.Tenancy) (storage.Watch, error) {
	name := storage.UnversionedTypeFrom(req.GetType())
	if req.GetCursor() == "" {
		return s.backend.WatchList(ctx, name, tenancy, req.GetNamePrefix())
	}
	resumer, ok := storage.As[storage.Resumer](s.backend)
	if !ok {
		return nil, status.Error(codes.Unimplemented, "the store cannot resume a watch: watch without a cursor")
	}
	return resumer.WatchFrom(ctx, name, tenancy, req.GetNamePrefix(), req.GetCursor())
}

// configureWatch enables the options of the watch that the request needs. It is called before the first event.
func (st *stream) configureWatch() error {
	// A watch of package moved would continue in a store with other versions. Clients that keep copies must list it.
	if moving, ok := st.watch.(interface{ EndAtMove() }); ok {
		moving.EndAtMove()
	}
	recaller, ok := st.watch.(history.Recaller)
	// A stream with a cursor does not know which resources an earlier stream has sent. It derives that from the state before each change.
	if ok && (st.req.GetBefore() || st.req.GetCursor() != "" && st.visibleIDs != nil) {
		recaller.Recall()
	}
	if !ok && st.req.GetBefore() {
		return status.Error(codes.Unimplemented, "the store keeps no history: watch without the state before")
	}
	if _, ok := st.watch.(storage.Bookmarker); !ok && !st.nextBookmark.IsZero() {
		return status.Error(codes.Unimplemented, "the store's watches have no bookmarks: watch without bookmark_interval")
	}
	return nil
}

// stop cancels the stream. Unlike the other methods it is safe for concurrent use.
func (st *stream) stop() {
	st.free()
	st.watch.Close()
}

// close ends the stream.
func (st *stream) close() {
	st.cancelWait()
	st.stop()
}

// next returns the next event. It blocks until there is one.
func (st *stream) next() (*resourcepb.WatchEvent, error) {
	if ready := st.ready; ready != nil {
		st.ready = nil
		return ready, nil
	}
	for {
		raw, err := st.fetch()
		if err != nil {
			return nil, err
		}
		more := raw.GetMore()
		seen, err := st.visibleEvent(raw)
		if err != nil {
			return nil, st.toStatus(err)
		}
		if seen != nil {
			seen.More = more
		}
		// An event with More is held back until the next visible event: the rest of its commit may be hidden, and then it is the last one.
		before := st.pendingEvent
		switch {
		case seen == nil && more:
			continue
		case seen == nil:
			seen, before = before, nil
			if seen == nil {
				continue
			}
			seen.More = false
			st.setCursor(seen)
		case more:
			st.setCursor(seen)
			if st.pendingEvent = seen; before == nil {
				continue
			}
			return before, nil
		default:
			st.setCursor(seen)
		}
		st.pendingEvent = nil
		if before != nil {
			st.ready = seen
			return before, nil
		}
		return seen, nil
	}
}

// setCursor sets the cursor of an event to the position of the watch, if the request has cursors set.
func (st *stream) setCursor(ev *resourcepb.WatchEvent) {
	if st.live && st.req.GetCursors() {
		ev.Cursor = st.watch.Cursor()
	}
}

// fetch returns the next event of the store. Between events it runs due work.
func (st *stream) fetch() (*resourcepb.WatchEvent, error) {
	for {
		if st.waitCtx == nil || st.waitCtx.Err() != nil {
			if err := st.runDue(); err != nil {
				return nil, st.toStatus(err)
			}
		}
		wait := st.waitCtx
		if !st.live {
			wait = st.ctx // a deadline would make the store read a part of the snapshot again
		}
		ev, err := st.watch.Next(wait)
		if err == nil {
			return ev, nil
		}
		if st.ctx.Err() == nil && st.waitCtx.Err() != nil && !errors.Is(err, storage.ErrWatchClosed) {
			continue
		}
		return nil, st.toStatus(err)
	}
}

// runDue checks again that the caller may list, and requests a bookmark, each if it is due.
func (st *stream) runDue() error {
	if st.ctx.Err() != nil {
		return st.ctx.Err()
	}
	now := time.Now()
	if !now.Before(st.recheckAt) {
		if err := st.authenticate(st.ctx); err != nil {
			return err
		}
	}
	next := st.recheckAt
	if !st.nextBookmark.IsZero() {
		if !now.Before(st.nextBookmark) {
			if err := st.watch.(storage.Bookmarker).Bookmark(st.ctx); err != nil {
				return err
			}
			st.nextBookmark = now.Add(st.req.GetBookmarkInterval().AsDuration())
		}
		if st.nextBookmark.Before(next) {
			next = st.nextBookmark
		}
	}
	st.cancelWait()
	st.waitCtx, st.cancelWait = context.WithDeadline(st.ctx, next)
	return nil
}

// toStatus converts an error to a status error.
func (st *stream) toStatus(err error) error {
	if errors.Is(err, storage.ErrCompacted) && st.req.GetCursor() == "" && !st.req.GetCursors() && !errors.Is(context.Cause(st.ctx), errDraining) {
		return reasonError(codes.Aborted, "COMPACTED", storage.ErrCompacted.Error()) // clients without cursors expect Aborted at every end of a watch
	}
	return st.server.toStatus(st.ctx, "watch", st.hideDamaged(st.ctx, err))
}

// visibleEvent returns an event as the caller may see it, or nil if it is hidden. If a resource leaves the caller's view, because of its group
// version or its permissions, the result is a deletion.
func (st *stream) visibleEvent(ev *resourcepb.WatchEvent) (*resourcepb.WatchEvent, error) {
	switch e := ev.GetEvent().(type) {
	case *resourcepb.WatchEvent_EndOfSnapshot_:
		st.live = true
		return ev, nil
	case *resourcepb.WatchEvent_Bookmark_:
		e.Bookmark.Request = 0 // a number of the server's requests
		return ev, nil
	case *resourcepb.WatchEvent_Upsert_:
		return st.upsert(ev, e.Upsert.GetResource())
	case *resourcepb.WatchEvent_Delete_:
		return st.deletion(ev, e.Delete.GetResource())
	}
	return nil, nil // a kind of event that this version of the service does not know
}

// upsert returns the event of a written resource.
func (st *stream) upsert(ev *resourcepb.WatchEvent, res *resourcepb.Resource) (*resourcepb.WatchEvent, error) {
	visible, err := st.isVisible(res)
	if err != nil {
		return nil, err
	}
	if visible {
		st.visibleIDs.add(res.GetId())
		st.foreignIDs.remove(res.GetId())
		if ev.GetUpsert().Resource, err = st.t.FromStored(res); err != nil {
			return nil, err
		}
		return ev, st.hideBefore(ev)
	}
	left, err := st.wasVisible(ev, res)
	if err != nil || !left {
		return nil, err
	}
	st.visibleIDs.remove(res.GetId())
	return st.leaveEvent(ev, res.GetId())
}

// deletion returns the event of a deleted resource.
func (st *stream) deletion(ev *resourcepb.WatchEvent, res *resourcepb.Resource) (*resourcepb.WatchEvent, error) {
	visible, err := st.isVisible(res)
	if err != nil {
		return nil, err
	}
	shown := st.visibleIDs.has(res.GetId())
	st.visibleIDs.remove(res.GetId())
	st.foreignIDs.remove(res.GetId())
	switch {
	case visible:
		ev.GetDelete().Resource = st.viewOrID(st.ctx, st.t, res)
		return ev, st.hideBefore(ev)
	case shown:
		return st.leaveEvent(ev, res.GetId())
	}
	return nil, nil
}

// isVisible reports whether the stream shows a resource in this state.
func (st *stream) isVisible(res *resourcepb.Resource) (bool, error) {
	if !st.selects(res.GetId().GetType()) {
		return false, nil
	}
	return st.mayRead(st.ctx, st.t, res)
}

// wasVisible reports whether the caller may have seen a resource before the event that removes it from the view.
func (st *stream) wasVisible(ev *resourcepb.WatchEvent, res *resourcepb.Resource) (bool, error) {
	switch {
	case st.visibleIDs == nil:
		return st.leavesView(res)
	case st.visibleIDs.has(res.GetId()):
		return true, nil
	case st.req.GetCursor() == "":
		return false, nil
	case ev.GetBefore() != nil:
		return st.isVisible(ev.GetBefore())
	}
	if _, ok := st.watch.(history.Recaller); ok {
		return false, nil // the resource did not exist before
	}
	return false, reasonError(codes.OutOfRange, "COMPACTED",
		"a resource may have left the view of this stream, and the store keeps no history to check: watch without a cursor")
}

// leavesView reports whether a resource leaves a view that hides only unregistered group versions: whether the stream may have sent the
// resource and has not sent its end yet. Resources that the caller may not read were never sent, because in such a view authorization
// depends on the tenancy only.
func (st *stream) leavesView(res *resourcepb.Resource) (bool, error) {
	may, err := st.mayRead(st.ctx, st.t, res)
	if err != nil || !may || st.foreignIDs.has(res.GetId()) {
		return false, err
	}
	if st.foreignIDs == nil {
		st.foreignIDs = newIDSet()
	}
	st.foreignIDs.add(res.GetId())
	return st.live, nil // within a snapshot it is the first event of the resource
}

// leaveEvent is the event of a resource that left the caller's view. It has only an id, in the requested group version: the stored one is not
// disclosed.
func (st *stream) leaveEvent(ev *resourcepb.WatchEvent, id *resourcepb.ID) (*resourcepb.WatchEvent, error) {
	id = proto.CloneOf(id)
	id.Type.GroupVersion = st.name.GetGroupVersion()
	end := &resourcepb.WatchEvent{Before: ev.GetBefore(), Event: &resourcepb.WatchEvent_Delete_{Delete: &resourcepb.WatchEvent_Delete{
		Resource: &resourcepb.Resource{Id: id},
	}}}
	return end, st.hideBefore(end)
}

// hideBefore removes the state before a change from its event unless the request has before set and the caller may read it.
func (st *stream) hideBefore(ev *resourcepb.WatchEvent) error {
	if ev.GetBefore() == nil {
		return nil
	}
	visible, err := st.isVisible(ev.GetBefore())
	if err != nil {
		return err
	}
	if !visible || !st.req.GetBefore() {
		ev.Before = nil
		return nil
	}
	ev.Before = st.viewOrID(st.ctx, st.t, ev.GetBefore())
	return nil
}

// send sends messages from next until next or the client fails.
func send[M any](out grpc.ServerStreamingServer[M], next func() (*M, error)) error {
	for {
		m, err := next()
		if err != nil {
			return err
		}
		if err := out.Send(m); err != nil {
			return err
		}
	}
}
