package client

import (
	"context"
	"fmt"
	"sync"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/ashlar-dev/storage"
	"github.com/ashlar-dev/storage/resourcepb"
)

// Bookmarks come so often to those who want them, and to others, so that the position of a quiet watch does not age.
const (
	bookmarksWanted = time.Second
	bookmarksHidden = 30 * time.Second
)

// A watch whose server went away looks for it again for so long, with pauses between these.
const (
	outage   = 5 * time.Minute
	minPause = 100 * time.Millisecond
	maxPause = 5 * time.Second
)

// WatchList returns a watch that begins with a snapshot. Between the snapshot and its end it goes on by itself when the server goes away
// and comes back, or another one answers at its address.
func (b *Backend) WatchList(ctx context.Context, typ storage.UnversionedType, tenancy *resourcepb.Tenancy, namePrefix string) (storage.Watch, error) {
	return b.watch(ctx, typ, tenancy, namePrefix, "")
}

// WatchFrom returns a watch that goes on from a cursor.
func (b *Backend) WatchFrom(ctx context.Context, typ storage.UnversionedType, tenancy *resourcepb.Tenancy, namePrefix, cursor string) (storage.Watch, error) {
	if cursor == "" {
		return nil, fmt.Errorf("%w: the cursor is empty", storage.ErrInvalid)
	}
	return b.watch(ctx, typ, tenancy, namePrefix, cursor)
}

func (b *Backend) watch(ctx context.Context, typ storage.UnversionedType, tenancy *resourcepb.Tenancy, namePrefix, cursor string) (*watch, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	interval := bookmarksHidden
	if b.Bookmarks {
		interval = bookmarksWanted
	}
	w := &watch{backend: b, shown: b.Bookmarks, position: cursor, events: make(chan *resourcepb.WatchEvent), failed: make(chan struct{}),
		req: &resourcepb.WatchListRequest{
			Type: typeOf(typ), Tenancy: tenancy, NamePrefix: namePrefix, Cursor: cursor, Cursors: true, BookmarkInterval: durationpb.New(interval),
		}}
	w.ctx, w.stop = context.WithCancel(context.Background())
	go w.run()
	return w, nil
}

// watch is a watch of a server.
type watch struct {
	backend *Backend
	req     *resourcepb.WatchListRequest // of the next stream
	shown   bool                         // bookmarks are returned

	ctx    context.Context // over when the watch is closed
	stop   context.CancelFunc
	events chan *resourcepb.WatchEvent
	failed chan struct{} // closed when err is set
	err    error

	mu       sync.Mutex
	position string
	asked    bool // for a bookmark
}

// run receives events, from one stream after another, until the watch ends.
func (w *watch) run() {
	defer close(w.failed)
	var since time.Time // of the first failure that nothing followed; zero for none
	for pause := minPause; ; pause = min(2*pause, maxPause) {
		progress, err := w.stream()
		switch {
		case w.ctx.Err() != nil:
			w.err = storage.ErrWatchClosed
			return
		case status.Code(err) == codes.Unimplemented && w.req.GetBookmarkInterval() != nil && !w.shown:
			w.req.BookmarkInterval = nil // the server's store has none
			continue
		case status.Code(err) == codes.Unimplemented:
			w.err = fmt.Errorf("%w: %s", storage.ErrInvalid, status.Convert(err).Message())
			return
		case status.Code(err) != codes.Unavailable || w.req.GetCursor() == "":
			w.err = w.backend.translated(w.ctx, err)
			return
		}
		if progress {
			since, pause = time.Time{}, minPause
		}
		if since.IsZero() {
			since = time.Now()
		}
		if time.Since(since) > outage {
			w.err = fmt.Errorf("%w: %w", storage.ErrWatchClosed, w.backend.translated(w.ctx, err))
			return
		}
		select {
		case <-w.ctx.Done():
		case <-time.After(pause):
		}
	}
}

// stream receives the events of one stream until it ends, and reports whether there were any.
func (w *watch) stream() (progress bool, err error) {
	ctx, cancel := context.WithCancel(w.ctx)
	defer cancel()
	stream, err := w.backend.service.WatchList(ctx, proto.CloneOf(w.req))
	if err != nil {
		return false, err
	}
	for {
		ev, err := stream.Recv()
		if err != nil {
			return progress, err
		}
		progress = true
		if !w.take(ev) {
			return progress, ctx.Err()
		}
	}
}

// take hands an event to Next, and notes where a next stream goes on. It reports whether the watch is still open.
func (w *watch) take(ev *resourcepb.WatchEvent) bool {
	cursor := ev.GetCursor()
	mark, bookmark := ev.GetEvent().(*resourcepb.WatchEvent_Bookmark_)
	if bookmark && cursor == "" {
		cursor = mark.Bookmark.GetCursor()
	}
	if bookmark && !w.wanted() {
		w.moveTo(cursor)
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

// wanted reports whether a bookmark was asked for, which this one then answers.
func (w *watch) wanted() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	asked := w.asked
	w.asked = false
	return asked && w.shown
}

func (w *watch) moveTo(cursor string) {
	if cursor != "" {
		w.mu.Lock()
		defer w.mu.Unlock()
		w.position = cursor
	}
}

// Next returns the next event. An event's position is that of Cursor.
func (w *watch) Next(ctx context.Context) (*resourcepb.WatchEvent, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	select {
	case ev := <-w.events:
		w.moveTo(ev.GetCursor())
		ev.Cursor = ""
		return ev, nil
	case <-w.failed:
		return nil, w.err
	case <-w.ctx.Done():
		return nil, storage.ErrWatchClosed
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// Cursor returns the position behind the last event.
func (w *watch) Cursor() string {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.position
}

// Bookmark has the next bookmark of the server returned, which proves what was acknowledged before the server asked for it: about a second
// ago at most. It needs Backend.Bookmarks.
func (w *watch) Bookmark(context.Context) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.asked = true
	return nil
}

// Close ends the watch.
func (w *watch) Close() { w.stop() }
