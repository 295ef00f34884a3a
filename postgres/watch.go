package postgres

import (
	"context"
	"fmt"

	"github.com/ashlar-dev/storage"
	"github.com/ashlar-dev/storage/internal/check"
	"github.com/ashlar-dev/storage/internal/feed"
	"github.com/ashlar-dev/storage/internal/spool"
	"github.com/ashlar-dev/storage/resourcepb"
)

// WatchList implements storage.Backend.
func (b *Backend) WatchList(ctx context.Context, typ storage.UnversionedType, tenancy *resourcepb.Tenancy, namePrefix string) (storage.Watch, error) {
	f, err := check.Filter(typ, tenancy, namePrefix)
	ctx, done, err := b.begin(ctx, err)
	if err != nil {
		return nil, err
	}
	defer done()
	mark, err := b.feed.Start(ctx)
	if err != nil {
		return nil, fmt.Errorf("watch: %w", err)
	}
	at, rows, err := b.copyOut(ctx, &f)
	if err != nil {
		mark.Release()
		return nil, fmt.Errorf("watch: %w", err)
	}
	b.inbox.Load().listed(&at)
	return b.feed.Watch(mark, f, feed.Expiring(&spooled{rows: rows, reader: rows.Read(0)}), at), nil
}

// WatchFrom implements storage.Resumer.
func (b *Backend) WatchFrom(ctx context.Context, typ storage.UnversionedType, tenancy *resourcepb.Tenancy, namePrefix, cursor string) (storage.Watch, error) {
	f, badFilter := check.Filter(typ, tenancy, namePrefix)
	from, badCursor := parseCursor(b.storeID(), cursor)
	ctx, done, err := b.begin(ctx, badFilter, badCursor)
	if err != nil {
		return nil, err
	}
	defer done()
	watch, err := b.feed.Resume(ctx, f, from, cursor)
	if err != nil {
		return nil, fmt.Errorf("watch: %w", err)
	}
	return watch, nil
}

// spooled is a snapshot that was copied out of the database, so that a slow watch keeps no transaction open.
type spooled struct {
	rows   *spool.Spool
	reader *spool.Reader
}

// Next implements feed.Snapshot.
func (s *spooled) Next(context.Context) (*resourcepb.Resource, error) {
	record, err := s.reader.Next()
	if err != nil {
		return nil, err
	}
	return fromRecord(record)
}

// Close implements feed.Snapshot.
func (s *spooled) Close() { _ = s.rows.Close() } // frees memory, and a file that has no name any more
