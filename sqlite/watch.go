package sqlite

import (
	"context"
	"errors"
	"fmt"

	"github.com/ashlar-dev/storage"
	"github.com/ashlar-dev/storage/internal/check"
	"github.com/ashlar-dev/storage/internal/feed"
	"github.com/ashlar-dev/storage/internal/spool"
	"github.com/ashlar-dev/storage/resourcepb"
)

// snapshotMemory is how much of a watch's snapshot is kept in memory; the rest lies in a temporary file until it is consumed.
const snapshotMemory = 4 << 20

// WatchList implements storage.Backend.
func (s *Backend) WatchList(ctx context.Context, typ storage.UnversionedType, tenancy *resourcepb.Tenancy, namePrefix string) (storage.Watch, error) {
	filter, err := check.Filter(typ, tenancy, namePrefix)
	if err := s.enter(ctx, err); err != nil {
		return nil, err
	}
	ctx, cancel := s.bounded(ctx)
	defer cancel()
	start, err := s.feed.Start(ctx)
	if err != nil {
		return nil, fmt.Errorf("watch: %w", err)
	}
	rows := spool.New(snapshotMemory)
	at, err := s.snapshot(ctx, &filter, func(r row) error { return r.appendTo(rows) })
	if err == nil {
		err = rows.Seal()
	}
	if err != nil {
		start.Release()
		return nil, fmt.Errorf("watch: %w", errors.Join(err, rows.Close()))
	}
	return s.feed.Watch(start, filter, feed.Expiring(&spooled{rows, rows.Read(0)}), at), nil
}

// WatchFrom implements storage.Resumer.
func (s *Backend) WatchFrom(ctx context.Context, typ storage.UnversionedType, tenancy *resourcepb.Tenancy, namePrefix, cursorText string) (storage.Watch, error) {
	filter, badFilter := check.Filter(typ, tenancy, namePrefix)
	from, badCursor := parseCursor(s.id, cursorText)
	if err := s.enter(ctx, badFilter, badCursor); err != nil {
		return nil, err
	}
	ctx, cancel := s.bounded(ctx)
	defer cancel()
	w, err := s.feed.Resume(ctx, filter, from, cursorText)
	if err != nil {
		return nil, fmt.Errorf("watch: %w", err)
	}
	return w, nil
}
