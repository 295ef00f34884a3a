package main

import (
	"context"
	"errors"
	"fmt"

	"github.com/ashlar-dev/storage"
	"github.com/ashlar-dev/storage/cmd/ashlar/internal/cli"
	"github.com/ashlar-dev/storage/cmd/ashlar/internal/client"
	"github.com/ashlar-dev/storage/driver/key"
	"github.com/ashlar-dev/storage/internal/ranges"
	"github.com/ashlar-dev/storage/resourcepb"
)

// scanLimit is how many records are asked for at once.
const scanLimit = 500

// historySource is the past of a store, or as much of it as a server shows. It goes by filters, as a server's authorization does.
type historySource interface {
	// Revisions returns the oldest and the newest revision, to those who may list what matches.
	Revisions(ctx context.Context, f *key.Filter) (oldest, newest int64, err error)
	// RecordsAt returns a function that returns what matched at a revision, 0 being the newest one, in order, page by page, and whether
	// there is more.
	RecordsAt(f *key.Filter, revision int64, limit int) func(context.Context) ([]storage.Record, bool, error)
	// Changes calls do for the changes of a key after a revision, in order, until another one, which has to be there.
	Changes(ctx context.Context, id *resourcepb.ID, after, until int64, do func(*storage.Change) error) error
}

// onHistory opens the store, or connects to the server, for a command that needs what was there, and closes it. What is forgotten, or has
// not happened yet, is an error that names the revisions there are for those who may list what matches.
func onHistory(ctx context.Context, a *cli.App, f *key.Filter, do func(historySource) error) error {
	return a.With(ctx, func(backend storage.Backend) error {
		var h historySource
		if server, ok := backend.(*client.Backend); ok {
			h = server
		} else {
			found, err := historianOf(backend)
			if err != nil {
				return err
			}
			h = storeHistory{found}
		}
		return addRevisions(do(h), func() (int64, int64, error) { return h.Revisions(ctx, f) })
	})
}

// onHistorian opens a store for a command that changes its past, and closes it.
func onHistorian(ctx context.Context, a *cli.App, do func(storage.Historian) error) error {
	return a.With(ctx, func(backend storage.Backend) error {
		h, err := historianOf(backend)
		if err != nil {
			return err
		}
		return addRevisions(do(h), func() (int64, int64, error) { return h.Revisions(ctx) })
	})
}

func historianOf(backend storage.Backend) (storage.Historian, error) {
	h, ok := storage.As[storage.Historian](backend)
	if !ok {
		return nil, cli.Usagef("this store does not number its changes, so nothing can be shown of its past")
	}
	return h, nil
}

// addRevisions adds the revisions there are to an error about one that is not there.
func addRevisions(err error, revisions func() (oldest, newest int64, err error)) error {
	if !errors.Is(err, storage.ErrCompacted) && !errors.Is(err, storage.ErrFutureRevision) {
		return err
	}
	if oldest, newest, unknown := revisions(); unknown == nil {
		err = fmt.Errorf("%w (the store has the revisions %d to %d)", err, oldest, newest)
	}
	return err
}

// storeHistory is the past of a store.
type storeHistory struct{ h storage.Historian }

// Revisions implements chronicle.
func (s storeHistory) Revisions(ctx context.Context, _ *key.Filter) (oldest, newest int64, err error) {
	return s.h.Revisions(ctx)
}

// RecordsAt implements chronicle.
func (s storeHistory) RecordsAt(f *key.Filter, revision int64, limit int) func(context.Context) ([]storage.Record, bool, error) {
	filter, rest := *f, ranges.Of(f)
	return func(ctx context.Context) (page []storage.Record, more bool, err error) {
		scan, err := s.h.Scan(ctx, rest, storage.ScanOptions{Revision: revision, Limit: limit})
		if err != nil {
			return nil, false, err
		}
		revision, rest = scan.Revision, scan.Rest
		for _, r := range scan.Records {
			if k := key.Of(r.Resource.GetId()); filter.Match(&k) {
				page = append(page, r)
			}
		}
		return page, scan.More, nil
	}
}

// Changes implements chronicle.
func (s storeHistory) Changes(ctx context.Context, id *resourcepb.ID, after, until int64, do func(*storage.Change) error) error {
	follower, err := s.h.Follow(ctx, ranges.OfKey(key.Of(id)), after)
	if err != nil {
		return err
	}
	defer follower.Close()
	if err := follower.Bookmark(ctx); err != nil {
		return err
	}
	for {
		changes, upTo, err := follower.Next(ctx)
		if err != nil {
			return err
		}
		for i := range changes {
			if err := do(&changes[i]); err != nil {
				return err
			}
		}
		if upTo >= until {
			return nil
		}
	}
}

// recordReader is what matched a filter at a revision, read page by page.
type recordReader struct {
	read func(context.Context) ([]storage.Record, bool, error)
	page []storage.Record
	more bool
}

// newRecordReader returns what matched at a revision; 0 is the newest one.
func newRecordReader(h historySource, f *key.Filter, revision int64) *recordReader {
	return &recordReader{read: h.RecordsAt(f, revision, scanLimit), more: true}
}

// next returns the next record, nil after the last one.
func (p *recordReader) next(ctx context.Context) (*storage.Record, error) {
	for len(p.page) == 0 {
		if !p.more {
			return nil, nil
		}
		var err error
		if p.page, p.more, err = p.read(ctx); err != nil {
			return nil, err
		}
	}
	r := &p.page[0]
	p.page = p.page[1:]
	return r, nil
}

// each calls do for the resources, in order, and for no more than limit, unless that is 0.
func (p *recordReader) each(ctx context.Context, limit int, do func(*resourcepb.Resource) error) error {
	for left := limit; ; {
		r, err := p.next(ctx)
		if err != nil || r == nil {
			return err
		}
		if err := do(r.Resource); err != nil {
			return err
		}
		if left--; left == 0 {
			return nil
		}
	}
}
