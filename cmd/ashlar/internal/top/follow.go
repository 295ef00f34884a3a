package top

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/ashlar-dev/storage"
	"github.com/ashlar-dev/storage/resourcepb"
)

const (
	// bookmarkInterval is the time between two questions how far the watch is.
	bookmarkInterval = 2 * time.Second
	// retryPause is the time before another watch is opened.
	retryPause = time.Second
)

// Follow counts the resources of a filter in t until ctx is over, which is no error. When a watch ends, it opens another one. It fails
// when the first one cannot be opened, and when the backend is closed.
func Follow(
	ctx context.Context, b storage.Backend, typ storage.UnversionedType, tenancy *resourcepb.Tenancy, namePrefix string, t *Tally,
) error {
	for opened := false; ; {
		w, err := b.WatchList(ctx, typ, tenancy, namePrefix)
		switch {
		case err == nil:
			opened = true
			err = followWatch(ctx, w, t)
			w.Close()
		case !opened && ctx.Err() == nil:
			return err
		}
		switch {
		case ctx.Err() != nil:
			return nil
		case errors.Is(err, storage.ErrClosed), errors.Is(err, storage.ErrInvalid):
			return err
		}
		t.Relist("counting anew: " + err.Error())
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(retryPause):
		}
	}
}

// followWatch counts what one watch returns, until it ends.
func followWatch(ctx context.Context, w storage.Watch, t *Tally) error {
	ctx, cancel := context.WithCancel(ctx)
	var asking sync.WaitGroup
	defer asking.Wait()
	defer cancel()
	asked := make(chan time.Time, 1) // holds the time of a question that is not answered
	if b, ok := w.(storage.Bookmarker); ok {
		asking.Go(func() { requestBookmarks(ctx, b, asked) })
	}
	for {
		ev, err := w.Next(ctx)
		if err != nil {
			return err
		}
		if ev.GetBookmark() == nil {
			t.Count(ev, time.Now())
			continue
		}
		select {
		case at := <-asked:
			t.SetLag(time.Since(at))
		default: // one that nobody here asked for
		}
	}
}

// requestBookmarks asks the watch how far it is, again and again, once the last question is answered.
func requestBookmarks(ctx context.Context, b storage.Bookmarker, asked chan time.Time) {
	for {
		select {
		case asked <- time.Now():
			if b.Bookmark(ctx) != nil {
				return // the watch has ended
			}
		case <-ctx.Done():
			return
		}
		select {
		case <-time.After(bookmarkInterval):
		case <-ctx.Done():
			return
		}
	}
}
