package faults

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/ashlar-dev/storage"
	"github.com/ashlar-dev/storage/resourcepb"
)

// processWatch is a watch in another process. If the process is killed, the next one continues from the cursor, as a program
// that stores its cursor does.
type processWatch struct {
	p      *process
	open   request
	closed context.Context
	close  context.CancelFunc

	mu                  sync.Mutex
	conn                *conn
	id                  uint64
	bookmarks           bool // the watch in the other process is a storage.Bookmarker
	cursor              string
	snapshotDone        bool  // the snapshot is over
	bookmarkOutstanding bool  // a bookmark is
	requests            int64 // the number of requested bookmarks
	earlierRequests     int64 // those that the watch in the current process does not count
	redial              *redial
}

// redial is the attempt to continue in another process.
type redial struct {
	endCh chan struct{} // closed when it has ended
	err   error         // how, then
}

func (r *redial) wait(ctx context.Context) error {
	select {
	case <-r.endCh:
		return r.err
	case <-ctx.Done():
		return ctx.Err()
	}
}

// redialTimeout is the deadline for opening a watch again. The deadline of the Next that found the process dead may be too
// short.
const redialTimeout = 10 * time.Second

func (p *process) WatchList(ctx context.Context, typ storage.UnversionedType, tenancy *resourcepb.Tenancy, prefix string) (storage.Watch, error) {
	return p.watch(ctx, request{Method: "watch", Type: typ, Tenancy: marshal(tenancy), Text: prefix})
}

func (p processResumer) WatchFrom(ctx context.Context, typ storage.UnversionedType, tenancy *resourcepb.Tenancy, prefix, cursor string) (storage.Watch, error) {
	return p.watch(ctx, request{Method: "resume", Type: typ, Tenancy: marshal(tenancy), Text: prefix, Cursor: cursor})
}

func (p *process) watch(ctx context.Context, q request) (storage.Watch, error) {
	w := &processWatch{p: p, open: q, cursor: q.Cursor, snapshotDone: q.Method == "resume"}
	if _, err := w.dial(ctx); err != nil {
		if errors.Is(err, errDied) {
			err = fmt.Errorf("%s: %w: %w", q.Method, storage.ErrInconsistent, err)
		}
		return nil, err
	}
	w.closed, w.close = context.WithCancel(context.Background())
	if w.bookmarks {
		return bookmarkingWatch{w}, nil
	}
	return w, nil
}

// bookmarkingWatch is a processWatch of a storage.Bookmarker.
type bookmarkingWatch struct{ *processWatch }

// dial opens the watch in the current process. It returns whether a bookmark was requested from an earlier process and has to be requested again.
func (w *processWatch) dial(ctx context.Context) (bookmark bool, err error) {
	c, err := w.p.awaitConn(ctx)
	if err != nil {
		return false, err
	}
	w.mu.Lock()
	q := w.open
	q.Cursor = w.cursor
	w.mu.Unlock()
	r, err := c.call(ctx, q)
	if err != nil {
		return false, err
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.conn, w.id, w.bookmarks, w.earlierRequests = c, r.Watch, r.Number == 0, w.requests
	if w.bookmarkOutstanding {
		w.earlierRequests-- // the caller repeats the newest request
	}
	return w.bookmarkOutstanding, nil
}

func (w *processWatch) generation() int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.conn.generation
}

func (w *processWatch) Cursor() string {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.cursor
}

func (w *processWatch) Close() {
	w.close()
	w.mu.Lock()
	c, id := w.conn, w.id
	w.mu.Unlock()
	_, _ = c.call(context.Background(), request{Method: "stop", Watch: id}) // a process that was killed has stopped it
}

// ask sends a request about the watch to the process.
func (w *processWatch) ask(ctx context.Context, method string) (response, error) {
	w.mu.Lock()
	c, id := w.conn, w.id
	w.mu.Unlock()
	return c.call(ctx, request{Method: method, Watch: id})
}

// Bookmark requests a bookmark. If the process is killed, the watch requests it from the next one.
func (w bookmarkingWatch) Bookmark(ctx context.Context) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	// The request is counted for the process that gets it: the watch may move to the next process at any time.
	w.mu.Lock()
	c, id := w.conn, w.id
	w.requests++
	w.bookmarkOutstanding = true
	w.mu.Unlock()
	_, err := c.call(ctx, request{Method: "bookmark", Watch: id})
	if errors.Is(err, errDied) {
		return nil
	}
	if err != nil {
		w.mu.Lock()
		defer w.mu.Unlock()
		w.requests--
		w.bookmarkOutstanding = false
	}
	return err
}

func (w *processWatch) Next(ctx context.Context) (*resourcepb.WatchEvent, error) {
	for {
		w.mu.Lock()
		c, id, moving := w.conn, w.id, w.redial
		w.mu.Unlock()
		if moving != nil { // the next watch begins at the present cursor, so an event of this one would come again
			if err := moving.wait(ctx); err != nil {
				return nil, err
			}
			continue
		}
		r, err := c.call(ctx, request{Method: "next", Watch: id})
		if errors.Is(err, errDied) {
			if err := w.awaitRedial(ctx); err != nil {
				return nil, err
			}
			continue
		}
		w.mu.Lock()
		defer w.mu.Unlock()
		if r.Cursor != "" {
			w.cursor = r.Cursor
		}
		if err != nil {
			return nil, err
		}
		ev := unmarshal[resourcepb.WatchEvent](r.Messages[0])
		w.snapshotDone = w.snapshotDone || ev.GetEndOfSnapshot() != nil
		if mark := ev.GetBookmark(); mark != nil {
			w.addBookmark(mark)
		}
		return ev, nil
	}
}

// addBookmark numbers the request that a bookmark of the current process answers.
func (w *processWatch) addBookmark(mark *resourcepb.WatchEvent_Bookmark) {
	if mark.Request == 0 { // a program of an older version, which does not number them
		mark.Request = w.requests
	}
	mark.Request = min(mark.Request+w.earlierRequests, w.requests)
	w.bookmarkOutstanding = w.bookmarkOutstanding && mark.Request < w.requests
}

// awaitRedial waits until the watch is open in the next process.
func (w *processWatch) awaitRedial(ctx context.Context) error {
	w.mu.Lock()
	if !w.snapshotDone {
		w.mu.Unlock()
		return fmt.Errorf("%w: %w in the snapshot", storage.ErrInconsistent, errDied)
	}
	r := w.redial
	if r == nil {
		r = &redial{endCh: make(chan struct{})}
		w.redial = r
		go func() {
			r.err = w.redialUntilOpen()
			w.mu.Lock()
			if r.err == nil {
				w.redial = nil // the next process may be killed as well
			}
			w.mu.Unlock()
			close(r.endCh)
		}()
	}
	w.mu.Unlock()
	return r.wait(ctx)
}

// redialUntilOpen opens the watch again, in as many processes as necessary.
func (w *processWatch) redialUntilOpen() error {
	w.mu.Lock()
	w.open.Method = "resume"
	w.mu.Unlock()
	for {
		ctx, cancel := context.WithTimeout(w.closed, redialTimeout)
		bookmark, err := w.dial(ctx)
		if err == nil && bookmark {
			_, err = w.ask(ctx, "bookmark")
		}
		cancel()
		switch {
		case err == nil:
			return nil
		case w.closed.Err() != nil:
			return storage.ErrWatchClosed
		case errors.Is(err, errDied), errors.Is(err, storage.ErrInconsistent), errors.Is(err, context.DeadlineExceeded):
		case errors.Is(err, storage.ErrCompacted):
			return fmt.Errorf("%w: %w", storage.ErrWatchClosed, err)
		default:
			return err
		}
	}
}
