package client

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/ashlar-dev/storage"
	"github.com/ashlar-dev/storage/resourcepb"
)

// Bookmark intervals. Hidden bookmarks keep the position of a quiet watch recent.
const (
	bookmarkInterval       = time.Second
	hiddenBookmarkInterval = 30 * time.Second
)

// A watch that lost its server tries to reconnect for at most maxOutage, with pauses between minPause and maxPause.
const (
	maxOutage = 5 * time.Minute
	minPause  = 100 * time.Millisecond
	maxPause  = 5 * time.Second
)

// WatchList returns a watch that begins with a snapshot. After the snapshot it survives an outage of the server, and also its replacement
// by another server at the same address.
func (b *Backend) WatchList(ctx context.Context, typ storage.UnversionedType, tenancy *resourcepb.Tenancy, namePrefix string) (storage.Watch, error) {
	return watchOrError(b.watch(ctx, typ, tenancy, namePrefix, ""))
}

// WatchFrom returns a watch that resumes at a cursor.
func (b *Backend) WatchFrom(ctx context.Context, typ storage.UnversionedType, tenancy *resourcepb.Tenancy, namePrefix, cursor string) (storage.Watch, error) {
	if cursor == "" {
		return nil, fmt.Errorf("%w: the cursor is empty", storage.ErrInvalid)
	}
	return watchOrError(b.watch(ctx, typ, tenancy, namePrefix, cursor))
}

// BookmarkedWatch is implemented by the watches of a Backend with Bookmarks. They are no [storage.Bookmarker]: a bookmark that is requested from
// the service proves less.
type BookmarkedWatch interface {
	storage.Watch
	// ShowBookmark requests that the next bookmark of the server is returned. It proves that the watch has returned everything acknowledged
	// before the server requested it, which was at most about a second ago.
	ShowBookmark()
}

// watchOrError returns a watch or the error of its opening.
func watchOrError(w *watch, err error) (storage.Watch, error) {
	if err != nil {
		return nil, err
	}
	return w, nil
}

// watch returns a watch whose first stream is open: the server has opened the watch in its store.
func (b *Backend) watch(ctx context.Context, typ storage.UnversionedType, tenancy *resourcepb.Tenancy, namePrefix, cursor string) (*watch, error) {
	if err := b.checkOpen(ctx); err != nil {
		return nil, err
	}
	interval := hiddenBookmarkInterval
	if b.Bookmarks {
		interval = bookmarkInterval
	}
	w := &watch{backend: b, showBookmarks: b.Bookmarks, position: cursor, events: make(chan *resourcepb.WatchEvent), errReady: make(chan struct{}),
		req: &resourcepb.WatchListRequest{
			Type: b.requestType(typ), Tenancy: tenancy, NamePrefix: namePrefix, Cursor: cursor, Cursors: true, BookmarkInterval: durationpb.New(interval),
		}}
	w.ctx, w.stop = context.WithCancelCause(b.lifetime)
	bound, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	open := func() (*stream, error) { return w.open(bound) }
	first, err := repeat(bound, open)
	if err != nil && w.dropBookmarks(err) {
		first, err = repeat(bound, open)
	}
	if err != nil {
		w.Close()
		return nil, w.translateError(bound, err)
	}
	go w.run(first)
	return w, nil
}

// watch is a watch on a server.
type watch struct {
	backend       *Backend
	req           *resourcepb.WatchListRequest // for the next stream
	showBookmarks bool                         // deliver bookmarks to the caller

	ctx      context.Context // ends when the watch is closed; Next returns its cause
	stop     context.CancelCauseFunc
	events   chan *resourcepb.WatchEvent
	errReady chan struct{} // closed when err is set
	err      error

	mu                sync.Mutex
	position          string
	bookmarkRequested bool // for a bookmark
}

// stream is one call of the service on behalf of a watch.
type stream struct {
	grpc.ServerStreamingClient[resourcepb.WatchEvent]
	end func()
}

// run receives events from one stream after another until the watch ends.
func (w *watch) run(s *stream) {
	defer close(w.errReady)
	var since time.Time // time of the first failure without progress since; zero for none
	for pause := minPause; ; pause = min(2*pause, maxPause) {
		progress, err := false, error(nil)
		if s == nil {
			s, err = w.open(w.ctx)
		}
		if err == nil {
			progress, err = w.receive(s)
		}
		s = nil
		switch {
		case w.ctx.Err() != nil:
			w.err = context.Cause(w.ctx)
			return
		case w.dropBookmarks(err):
			continue
		case !canResume(err) || w.req.GetCursor() == "":
			w.err = closedError(w.translateError(w.ctx, err))
			return
		}
		if progress {
			since, pause = time.Time{}, minPause
		}
		if since.IsZero() {
			since = time.Now()
		}
		if time.Since(since) > maxOutage {
			w.err = closedError(w.translateError(w.ctx, err))
			return
		}
		select {
		case <-w.ctx.Done():
		case <-time.After(pause):
		}
	}
}

// canResume reports whether another stream can continue after the error of one: the server has refused it for too many calls, or the connection is
// broken, perhaps by a proxy.
func canResume(err error) bool {
	if _, limited := retryDelay(err); limited || status.Code(err) == codes.Unavailable {
		return true
	}
	s := status.Convert(err)
	_, given := reasonOf(s)
	return ambiguousCodes[s.Code()] && !given && errorOf(s) == nil
}

// closedError returns the error of a watch that cannot continue.
func closedError(err error) error {
	if errors.Is(err, storage.ErrWatchClosed) {
		return err
	}
	return fmt.Errorf("%w: %w", storage.ErrWatchClosed, err)
}

// dropBookmarks reports whether err says that the server's store has no bookmarks and the watch can continue without them. If so, it stops
// requesting bookmarks.
func (w *watch) dropBookmarks(err error) bool {
	if status.Code(err) != codes.Unimplemented || w.req.GetBookmarkInterval() == nil || w.showBookmarks {
		return false
	}
	w.req.BookmarkInterval = nil
	return true
}

// translateError returns the error that a store would have returned from a stream.
func (w *watch) translateError(ctx context.Context, err error) error {
	if status.Code(err) == codes.Unimplemented {
		return fmt.Errorf("%w: %s", storage.ErrInvalid, status.Convert(err).Message())
	}
	return w.backend.translateError(ctx, err)
}

// open opens a stream. It returns, within the time of bound, after the server has opened or refused its watch.
func (w *watch) open(bound context.Context) (*stream, error) {
	ctx, end := context.WithCancel(w.ctx)
	stop := context.AfterFunc(bound, end)
	s, err := w.backend.service.WatchList(ctx, proto.CloneOf(w.req))
	if err == nil {
		var header metadata.MD
		if header, err = s.Header(); err == nil && header == nil {
			_, err = s.Recv() // the stream ended without a header; Recv returns the reason
		}
	}
	if !stop() && err == nil {
		err = bound.Err()
	}
	if err != nil {
		end()
		return nil, err
	}
	return &stream{s, end}, nil
}

// receive delivers the events of one stream until it ends, and reports whether there were any.
func (w *watch) receive(s *stream) (progress bool, err error) {
	defer s.end()
	for {
		ev, err := s.Recv()
		if err != nil {
			return progress, err
		}
		progress = true
		if !w.deliver(ev) {
			return progress, w.ctx.Err()
		}
	}
}

// deliver passes an event to Next and saves the position for the next stream. It reports whether the watch is still open.
func (w *watch) deliver(ev *resourcepb.WatchEvent) bool {
	cursor := ev.GetCursor()
	mark, bookmark := ev.GetEvent().(*resourcepb.WatchEvent_Bookmark_)
	if bookmark && cursor == "" {
		cursor = mark.Bookmark.GetCursor()
	}
	if bookmark && !w.takeBookmarkRequest() {
		w.advance(cursor)
	} else {
		ev.Cursor = cursor
		select {
		case w.events <- ev:
		case <-w.ctx.Done():
			return false
		}
	}
	if cursor != "" {
		w.req.Cursor = cursor
	}
	return true
}

// takeBookmarkRequest reports whether a bookmark was requested, and clears the request.
func (w *watch) takeBookmarkRequest() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	requested := w.bookmarkRequested
	w.bookmarkRequested = false
	return requested && w.showBookmarks
}

func (w *watch) advance(cursor string) {
	if cursor != "" {
		w.mu.Lock()
		defer w.mu.Unlock()
		w.position = cursor
	}
}

// Next returns the next event. Cursor returns its position, so the event has none.
func (w *watch) Next(ctx context.Context) (*resourcepb.WatchEvent, error) {
	select { // an ended watch returns its error even if an event is ready
	case <-w.errReady:
		return nil, w.err
	case <-w.ctx.Done():
		<-w.errReady
		return nil, w.err
	default:
	}
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	select {
	case ev := <-w.events:
		w.advance(ev.GetCursor())
		ev.Cursor = ""
		return ev, nil
	case <-w.errReady:
		return nil, w.err
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// Cursor returns the position after the last event.
func (w *watch) Cursor() string {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.position
}

// ShowBookmark requests that the next bookmark of the server is returned.
func (w *watch) ShowBookmark() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.bookmarkRequested = true
}

// Close ends the watch.
func (w *watch) Close() { w.stop(storage.ErrWatchClosed) }
