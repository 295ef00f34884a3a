package clientstore

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/ashlar-dev/storage"
	"github.com/ashlar-dev/storage/resourcepb"
)

// WatchList implements [storage.Backend]. The watch survives interruptions of its stream as long as the service can resume it. It is a
// [storage.Bookmarker] if the service's store has bookmarks.
func (s *Store) WatchList(ctx context.Context, _ storage.UnversionedType, _ *resourcepb.Tenancy, _ string) (storage.Watch, error) {
	w := &watch{store: s, endCh: make(chan struct{}), hasBookmarks: true}
	for {
		err := w.open(ctx)
		if err == nil {
			err = w.fetch(ctx) // errors of the call come with the first event
		}
		switch {
		case err == nil && w.hasBookmarks:
			return bookmarker{w}, nil
		case err == nil:
			return w, nil
		case status.Code(err) == codes.Unimplemented && w.hasBookmarks:
			w.hasBookmarks = false
			continue
		}
		w.Close()
		if ctx.Err() != nil {
			return nil, ctx.Err()
		}
		return nil, err
	}
}

// isFinal reports whether a stream cannot be resumed after an error.
func isFinal(err error) bool {
	switch status.Code(err) {
	case codes.OutOfRange, codes.Unimplemented, codes.InvalidArgument, codes.PermissionDenied, codes.Unauthenticated, codes.DataLoss:
		return true
	}
	return errors.Is(err, storage.ErrClosed)
}

// watch is a sequence of streams, where each stream continues after the last event of the previous one. One goroutine calls Next.
type watch struct {
	store        *Store
	hasBookmarks bool
	endCh        chan struct{} // closed by Close
	openedAt     time.Time     // of the last stream; used by Next
	isReported   bool          // the log has an outage that has not ended; used by Next

	mu              sync.Mutex
	stream          grpc.ServerStreamingClient[resourcepb.WatchEvent] // nil before the first one, and after an interruption
	cancel          context.CancelFunc                                // ends the stream
	caller          binding                                           // of the stream to the context of Next
	cursor          string
	requests        int64 // the number of requested bookmarks
	wantsBookmark   bool  // the next stream must request a bookmark
	hasRequest      bool  // the first bookmark of the stream answers all calls of Bookmark
	closed          bool
	fetchedEvent    *resourcepb.WatchEvent // received and not returned
	isAfterSnapshot bool
}

// binding ends a stream when the context of a caller ends, also between two calls. It is kept for later calls with the same context, because making
// it takes longer than receiving an event from a service in the process. The next call resumes a stream that has ended.
type binding struct {
	doneCh <-chan struct{} // of the context
	stop   func() bool     // nil if there is none
}

// bind ends a stream with ctx.
func (b *binding) bind(ctx context.Context, cancel context.CancelFunc) {
	if b.stop == nil || b.doneCh != ctx.Done() {
		b.free()
		*b = binding{ctx.Done(), context.AfterFunc(ctx, cancel)}
	}
}

// free ends the binding.
func (b *binding) free() {
	if b.stop != nil {
		b.stop()
		*b = binding{}
	}
}

// The pauses between attempts to reopen a stream.
const (
	minPause = 20 * time.Millisecond
	maxPause = 5 * time.Second
)

// bookmarkInterval is the interval of the bookmarks that the service sends without a request. Only the
// first one is needed, which the service sends at once.
const bookmarkInterval = 24 * time.Hour

// open opens the next stream. It respects ctx during the call only.
func (w *watch) open(ctx context.Context) error {
	streamCtx, cancel := context.WithCancel(context.WithoutCancel(ctx))
	stop := context.AfterFunc(ctx, cancel)
	w.mu.Lock()
	if w.closed {
		w.mu.Unlock()
		stop()
		cancel()
		return storage.ErrWatchClosed
	}
	w.cancel = cancel
	req := &resourcepb.WatchListRequest{Type: w.store.typ, Tenancy: w.store.tenancy, Cursor: w.cursor, Cursors: true}
	if w.hasBookmarks && (w.wantsBookmark || w.cursor == "") {
		req.BookmarkInterval = durationpb.New(bookmarkInterval)
	}
	w.hasRequest, w.wantsBookmark = w.wantsBookmark, false
	isRequested := w.hasRequest
	w.mu.Unlock()
	stream, err := w.store.client.WatchList(streamCtx, req)
	if !stop() && err == nil {
		err = ctx.Err()
	}
	if err != nil {
		cancel()
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if err != nil {
		w.wantsBookmark = w.wantsBookmark || isRequested
		return err
	}
	w.stream = stream
	return nil
}

// fetch receives an event into fetchedEvent. If ctx ends first, it ends the stream.
func (w *watch) fetch(ctx context.Context) error {
	w.mu.Lock()
	stream, cancel := w.stream, w.cancel
	w.caller.bind(ctx, cancel)
	w.mu.Unlock()
	ev, err := stream.Recv()
	w.mu.Lock()
	defer w.mu.Unlock()
	if err != nil {
		cancel()
		w.caller.free()
		w.stream = nil
		w.wantsBookmark = w.wantsBookmark || w.hasRequest
		return err
	}
	if ev.GetBookmark() != nil { // it proves nothing about a request after the stream was opened
		if !w.hasRequest {
			return nil
		}
		w.hasRequest = false
		ev.GetBookmark().Request = w.requests
	}
	w.fetchedEvent = ev
	return nil
}

// Next implements [storage.Watch].
func (w *watch) Next(ctx context.Context) (*resourcepb.WatchEvent, error) {
	for pause := time.Duration(0); ; {
		w.mu.Lock()
		switch {
		case w.closed:
			w.mu.Unlock()
			return nil, fmt.Errorf("%w: it was closed", storage.ErrWatchClosed)
		case w.fetchedEvent != nil:
			ev := w.fetchedEvent
			w.fetchedEvent = nil
			w.accept(ev)
			w.mu.Unlock()
			if w.isReported {
				w.isReported = false
				w.store.log.InfoContext(ctx, "the watch of a type continues")
			}
			return ev, nil
		}
		isOpen := w.stream != nil
		canResume := w.cursor != ""
		w.mu.Unlock()
		if ctx.Err() != nil {
			return nil, ctx.Err()
		}
		var err error
		if isOpen {
			if err = w.fetch(ctx); err == nil {
				continue
			}
			if time.Since(w.openedAt) > maxPause {
				pause = 0 // it was not the failure of an attempt
			}
		} else if canResume {
			w.openedAt = time.Now()
			if err = w.open(ctx); err == nil {
				continue
			}
		}
		switch {
		case ctx.Err() != nil:
			return nil, ctx.Err()
		case err != nil && isFinal(err), !canResume:
			w.Close()
			return nil, fmt.Errorf("%w: %w", storage.ErrWatchClosed, err)
		}
		if pause == maxPause && !w.isReported {
			w.isReported = true
			w.store.log.WarnContext(ctx, "cannot continue the watch of a type; retrying", "error", err)
		}
		w.sleep(ctx, pause)
		pause = min(max(2*pause, minPause), maxPause)
	}
}

// sleep waits for a duration, or until ctx or the watch ends.
func (w *watch) sleep(ctx context.Context, pause time.Duration) {
	timer := time.NewTimer(pause)
	defer timer.Stop()
	select {
	case <-ctx.Done():
	case <-w.endCh:
	case <-timer.C:
	}
}

// accept notes the position of an event. The caller holds the lock.
func (w *watch) accept(ev *resourcepb.WatchEvent) {
	switch {
	case ev.GetEndOfSnapshot() != nil:
		w.isAfterSnapshot = true
		w.cursor = ev.GetCursor()
	case w.isAfterSnapshot && ev.GetCursor() != "":
		w.cursor = ev.GetCursor()
	}
}

// Cursor implements [storage.Watch].
func (w *watch) Cursor() string {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.cursor
}

// Close implements [storage.Watch].
func (w *watch) Close() {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.closed {
		return
	}
	w.closed = true
	w.fetchedEvent = nil
	w.caller.free()
	close(w.endCh)
	if w.cancel != nil {
		w.cancel()
	}
}

// requestBookmark makes the next stream request a bookmark, and ends the current one.
func (w *watch) requestBookmark() {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.fetchedEvent.GetBookmark() != nil {
		w.fetchedEvent = nil
	}
	w.requests++
	w.hasRequest, w.wantsBookmark = false, true
	if w.cancel != nil {
		w.cancel()
	}
}

// bookmarker is a watch of a service with bookmarks.
type bookmarker struct{ *watch }

// Bookmark implements [storage.Bookmarker]. It reopens the stream: the first bookmark of the new one answers.
func (b bookmarker) Bookmark(context.Context) error {
	b.requestBookmark()
	return nil
}
