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
	// bookmarkInterval is the minimum time between two bookmark requests.
	bookmarkInterval = 2 * time.Second
	// retryPause is the pause before another watch is opened.
	retryPause = time.Second
)

// Follow counts the resources that match a filter in t until ctx ends, which is not an error. When a watch ends, it opens another.
// It fails if the first watch cannot be opened, or if the backend is closed.
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

// followWatch counts the events of one watch until it ends.
func followWatch(ctx context.Context, w storage.Watch, t *Tally) error {
	ctx, cancel := context.WithCancel(ctx)
	var requests sync.WaitGroup
	defer requests.Wait()
	defer cancel()
	pending := make(chan time.Time, 1) // the time of an unanswered bookmark request
	if b, ok := w.(storage.Bookmarker); ok {
		requests.Go(func() { requestBookmarks(ctx, b, pending) })
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
		case at := <-pending:
			t.SetLag(time.Since(at))
		default: // not requested by this function
		}
	}
}

// requestBookmarks requests one bookmark after another, each once the previous request is answered.
func requestBookmarks(ctx context.Context, b storage.Bookmarker, pending chan time.Time) {
	for {
		select {
		case pending <- time.Now():
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
