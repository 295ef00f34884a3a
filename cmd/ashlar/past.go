package main

import (
	"context"
	"errors"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/ashlar-dev/storage"
	"github.com/ashlar-dev/storage/cmd/ashlar/internal/cli"
	"github.com/ashlar-dev/storage/driver/key"
	"github.com/ashlar-dev/storage/history"
	"github.com/ashlar-dev/storage/internal/ranges"
	"github.com/ashlar-dev/storage/resourcepb"
	"github.com/ashlar-dev/storage/service/client"
)

// scanLimit is the number of records per request.
const scanLimit = 500

// historySource reads the history of a store or, through a server, the permitted part of it. It selects by filters, like the authorization
// of a server.
type historySource interface {
	// Revisions returns the oldest and the newest revision, if the caller may list the filter's matches.
	Revisions(ctx context.Context, f *key.Filter) (oldest, newest int64, err error)
	// RecordsAt returns a function that returns the next page of the records that matched at a revision, in order, and whether more follow.
	// Revision 0 is the newest one.
	RecordsAt(f *key.Filter, revision int64, limit int) func(context.Context) ([]history.Record, bool, error)
	// Changes calls do for each change of a key, in order, from after (exclusive) until a revision (inclusive), which must exist.
	Changes(ctx context.Context, id *resourcepb.ID, after, until int64, do func(*history.Change) error) error
}

// onHistory opens the store, or connects to the server, for a command that reads the history, and closes it. If a revision is forgotten or
// in the future, the error names the available revisions, if the caller may list the filter's matches.
func onHistory(a *cli.App, cmd *cobra.Command, f *key.Filter, do func(context.Context, historySource) error) error {
	return a.OnStore(cmd, cli.Existing, func(ctx context.Context, backend storage.Backend) error {
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
		return addRevisions(do(ctx, h), func() (int64, int64, error) { return h.Revisions(ctx, f) })
	})
}

// onHistorian opens a store for a command that changes its history, and closes it.
func onHistorian(a *cli.App, cmd *cobra.Command, do func(context.Context, history.Historian) error) error {
	return a.OnStore(cmd, cli.Existing, func(ctx context.Context, backend storage.Backend) error {
		h, err := historianOf(backend)
		if err != nil {
			return err
		}
		return addRevisions(do(ctx, h), func() (int64, int64, error) { return h.Revisions(ctx) })
	})
}

func historianOf(backend storage.Backend) (history.Historian, error) {
	h, ok := storage.As[history.Historian](backend)
	if !ok {
		return nil, cli.Usagef("this store does not number its changes, so it has no history")
	}
	return h, nil
}

// addRevisions adds the available revisions to an error about a missing revision.
func addRevisions(err error, revisions func() (oldest, newest int64, err error)) error {
	if !errors.Is(err, storage.ErrCompacted) && !errors.Is(err, storage.ErrFutureRevision) {
		return err
	}
	if oldest, newest, unknown := revisions(); unknown == nil {
		err = fmt.Errorf("%w (the store has the revisions %d to %d)", err, oldest, newest)
	}
	return err
}

// storeHistory is the history of a store.
type storeHistory struct{ h history.Historian }

// Revisions implements historySource.
func (s storeHistory) Revisions(ctx context.Context, _ *key.Filter) (oldest, newest int64, err error) {
	return s.h.Revisions(ctx)
}

// RecordsAt implements historySource.
func (s storeHistory) RecordsAt(f *key.Filter, revision int64, limit int) func(context.Context) ([]history.Record, bool, error) {
	filter, rest := *f, ranges.Of(f)
	return func(ctx context.Context) (page []history.Record, more bool, err error) {
		scan, err := s.h.Scan(ctx, rest, history.ScanOptions{Revision: revision, Limit: limit})
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

// Changes implements historySource.
func (s storeHistory) Changes(ctx context.Context, id *resourcepb.ID, after, until int64, do func(*history.Change) error) error {
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

// recordReader reads the records that matched a filter at a revision, page by page.
type recordReader struct {
	read func(context.Context) ([]history.Record, bool, error)
	page []history.Record
	more bool
}

// newRecordReader returns a reader of the records at a revision. Revision 0 is the newest one.
func newRecordReader(h historySource, f *key.Filter, revision int64) *recordReader {
	return &recordReader{read: h.RecordsAt(f, revision, scanLimit), more: true}
}

// next returns the next record, or nil after the last one.
func (p *recordReader) next(ctx context.Context) (*history.Record, error) {
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

// each calls do for the resources, in order, and for at most limit of them, unless that is 0.
func (p *recordReader) each(ctx context.Context, limit int, do func(*resourcepb.Resource) error) error {
	for remaining := limit; ; {
		r, err := p.next(ctx)
		if err != nil || r == nil {
			return err
		}
		if err := do(r.Resource); err != nil {
			return err
		}
		if remaining--; remaining == 0 {
			return nil
		}
	}
}
