package service

import (
	"context"
	"errors"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/ashlar-dev/storage"
	"github.com/ashlar-dev/storage/history"
	"github.com/ashlar-dev/storage/resourcepb"
	"github.com/ashlar-dev/storage/service/registry"
)

// stream is one WatchList call: the events of a watch of the store, as its caller may see them. It is for one goroutine.
type stream struct {
	server  *Server
	req     *resourcepb.WatchListRequest
	t       *registry.Type
	tenancy *resourcepb.Tenancy
	watch   storage.Watch

	ctx  context.Context // of the call; over when the server drains, too
	free func()          // ends ctx

	visibility *visibility
	shownIDs   *idSet // what the caller was shownIDs; nil where only a group version that is not served takes a resource from the caller's view
	// foreignIDs is, where sent is nil, what is stored in such a group version, and so is not in the caller's view.
	foreignIDs *idSet

	// waitCtx is ctx until the next thing to do that no event brings about.
	waitCtx      context.Context
	cancelWait   func()
	recheckAt    time.Time // when the caller is to be authenticated again
	nextBookmark time.Time // when the next nextBookmark is to be asked for; zero for never

	live         bool // the snapshot has ended
	pendingEvent *resourcepb.WatchEvent
	ready        *resourcepb.WatchEvent
}

// errDraining ends a stream of a server that is about to stop.
var errDraining = status.Error(codes.Unavailable, "the server is about to stop: go on at another one, or later")

// open begins a stream.
func (s *Server) open(ctx context.Context, req *resourcepb.WatchListRequest) (st *stream, err error) {
	if req.GetType() == nil {
		return nil, invalid("type is required")
	}
	asked := req.GetTenancy()
	if asked == nil {
		asked = &resourcepb.Tenancy{Partition: storage.Wildcard, Namespace: storage.Wildcard}
	}
	t, tenancy, err := s.resolveList(req.GetType(), asked, req.GetNamePrefix())
	if err != nil {
		return nil, err
	}
	interval := req.GetBookmarkInterval()
	if interval != nil && (interval.CheckValid() != nil || interval.AsDuration() < time.Second) {
		return nil, invalid("bookmark_interval invalid: expected a second or more")
	}
	st = &stream{server: s, req: req, t: t, tenancy: tenancy, live: req.GetCursor() != "", cancelWait: func() {}}
	if anyType(req.GetType()) || s.types.PartlyVisible(req.GetType()) {
		st.shownIDs = newIDSet()
	}
	var end context.CancelCauseFunc
	st.ctx, end = context.WithCancelCause(ctx)
	stop := context.AfterFunc(s.draining, func() { end(errDraining) })
	free := func() { stop(); end(nil) }
	st.free = free
	opened := false
	defer func() {
		if !opened { // by an error, or by a hook that panicked; the stream that is returned is nil by now
			free()
		}
	}()
	if err := st.authenticate(); err != nil {
		return nil, st.toStatus(err)
	}
	if interval != nil {
		st.nextBookmark = time.Now() // the first one proves the snapshot
	}
	if st.watch, err = s.watch(st.ctx, req, tenancy); err != nil {
		return nil, st.toStatus(err)
	}
	if err := st.configureWatch(); err != nil {
		st.watch.Close()
		return nil, err
	}
	opened = true
	return st, nil
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

// configureWatch asks the watch for what the request wants of it, before the first event.
func (st *stream) configureWatch() error {
	recaller, ok := st.watch.(history.Recaller)
	// A stream that goes on from a cursor does not know what an earlier one has sent: what was stored before a change says it.
	if ok && (st.req.GetBefore() || st.req.GetCursor() != "" && st.shownIDs != nil) {
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

// close ends the stream.
func (st *stream) close() {
	st.cancelWait()
	st.free()
	st.watch.Close()
}

// authenticate asks who calls, and whether the caller may watch.
func (st *stream) authenticate() error {
	caller, err := st.server.caller(st.ctx, st.tenancy)
	if err != nil {
		return err
	}
	if err := st.server.authStatus(st.ctx, st.t.MayList(caller, st.req.GetType(), st.tenancy)); err != nil {
		return err
	}
	st.visibility = st.server.newVisibility(caller, st.tenancy)
	st.recheckAt = time.Now().Add(st.server.opts.Recheck)
	return nil
}

// next returns the next event, and waits for it if need be.
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
		// An event that says that more of its commit follows waits for the next one that the caller may see: there may be none.
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
			st.position(seen)
		case more:
			st.position(seen)
			if st.pendingEvent = seen; before == nil {
				continue
			}
			return before, nil
		default:
			st.position(seen)
		}
		st.pendingEvent = nil
		if before != nil {
			st.ready = seen
			return before, nil
		}
		return seen, nil
	}
}

// position notes in an event where the stream is behind it, if the caller asked for that.
func (st *stream) position(ev *resourcepb.WatchEvent) {
	if st.live && st.req.GetCursors() {
		ev.Cursor = st.watch.Cursor()
	}
}

// fetch returns the next event of the store. Between two events it does what is due.
func (st *stream) fetch() (*resourcepb.WatchEvent, error) {
	for {
		if st.waitCtx == nil || st.waitCtx.Err() != nil {
			if err := st.runDue(); err != nil {
				return nil, st.toStatus(err)
			}
		}
		wait := st.waitCtx
		if !st.live {
			wait = st.ctx // what is due can wait for the store, which would begin to read a part of its snapshot anew
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

// runDue authenticates the caller again and asks for a bookmark when the time has come.
func (st *stream) runDue() error {
	if st.ctx.Err() != nil {
		return st.ctx.Err()
	}
	now := time.Now()
	if !now.Before(st.recheckAt) {
		if err := st.authenticate(); err != nil {
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

// toStatus returns an error as the caller is toStatus of it.
func (st *stream) toStatus(err error) error {
	if errors.Is(context.Cause(st.ctx), errDraining) {
		return errDraining
	}
	if errors.Is(err, storage.ErrCompacted) && st.req.GetCursor() == "" && !st.req.GetCursors() {
		return reasonError(codes.Aborted, "COMPACTED", storage.ErrCompacted.Error()) // to callers that know no cursors every end of a watch looks alike
	}
	return st.server.toStatus(st.ctx, "watch", err)
}
